"""Turn one line of a catalogue file into a metric, or say what is wrong with it.

Every key must be known and every value must have its type: a line that is only nearly right is refused.
Rules that need more than one line (unique names and aliases) are in `index.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from secondsight.catalog.metric import Metric, MetricType, PartsAdd, RollupSet, Source, Width
from secondsight.catalog.rules import broken_rule
from secondsight.errors import Rejected
from secondsight.model import EntityKind, Priority

Item = TypeVar("Item", EntityKind, MetricType, RollupSet, PartsAdd, Width)

BOOL_VALUES = ((0, "no"), (1, "yes"))
FIELD_NUMBER = re.compile(r"(?:FI|GPM) (\d+)")


def refused(where: str, what: str, hint: str) -> Rejected:
    """Return the refusal of a line: `where` names file, line and metric, `hint` says what to write instead."""
    return Rejected("bad_catalog", f"{where}: {what}", hint)


@dataclass(slots=True)
class Table:
    """A TOML table that is read key by key, so that what is left over is unknown."""

    where: str
    left: dict[str, Any]

    def text(self, key: str, default: str = "") -> str:
        """Take a text."""
        return str(self._take(key, str, default))

    def whole(self, key: str, default: int) -> int:
        """Take a whole number."""
        return int(self._take(key, int, default))

    def number(self, key: str) -> float | None:
        """Take a number, kept an integer where it is one; None where the key is missing."""
        value: float | None = self._take(key, (int, float), None)
        return value

    def flag(self, key: str) -> bool:
        """Take a boolean, false where the key is missing."""
        return bool(self._take(key, bool, False))

    def items(self, key: str, kind: type | tuple[type, ...]) -> tuple[Any, ...]:
        """Take an array whose members are all of one kind."""
        members = self._take(key, list, [])
        for member in members:
            self._check(key, member, kind)
        return tuple(members)

    def pairs(self, key: str, kind: type | tuple[type, ...]) -> tuple[tuple[str, Any], ...]:
        """Take a table whose values are all of one kind, as pairs in the order of the file."""
        members = self._take(key, dict, {})
        for member in members.values():
            self._check(key, member, kind)
        return tuple(members.items())

    def word(self, key: str, words: type[Item], default: str = "") -> Item:
        """Take one word of a closed set."""
        word = self.text(key, default)
        try:
            return words(word)
        except ValueError:
            raise refused(self.where, f"{key} {word!r} is unknown", f"one of {', '.join(words)}") from None

    def end(self) -> None:
        """Refuse what nobody took."""
        if self.left:
            raise refused(
                self.where, f"unknown key {min(self.left)!r}", "docs/guides/adding-a-metric.md lists the keys"
            )

    def _take(self, key: str, kind: type | tuple[type, ...], default: Any) -> Any:
        if key not in self.left:
            return default
        value = self.left.pop(key)
        self._check(key, value, kind)
        return value

    def _check(self, key: str, value: object, kind: type | tuple[type, ...]) -> None:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise refused(self.where, f"{key} has the wrong type", f"{value!r} is not what {key} holds")


def metric_of(name: str, line: Mapping[str, Any], kind: str, where: str) -> Metric:
    """Return the metric that a line describes.

    Args:
        name: Key of the line.
        line: Inline table of the line.
        kind: Entity kind of the file; a `kind` in the line outranks it.
        where: File, line number and name, for messages.

    Raises:
        Rejected: `bad_catalog`, naming the line, what is wrong and what to write.
    """
    table = Table(where, dict(line))
    metric = _read(name, table, kind)
    table.end()
    wrong = broken_rule(metric)
    if wrong is not None:
        raise refused(where, *wrong)
    return metric


def _read(name: str, table: Table, kind: str) -> Metric:
    labels = table.items("labels", str)
    unit = table.text("unit")
    return Metric(
        name=name,
        kind=table.word("kind", EntityKind, kind),
        unit=unit,
        type=table.word("type", MetricType),
        rollup=table.word("rollup", RollupSet),
        priority=_priority(table),
        dtype=table.text("dtype"),
        resolution=table.number("resolution") or 0,
        description=table.text("description"),
        minimum=table.number("min"),
        maximum=table.number("max"),
        clamp_maximum=table.number("clamp"),
        step_maximum=table.number("step"),
        cap=table.number("cap"),
        values=_values(table, unit),
        bitmask=table.flag("bitmask"),
        labels=labels,
        parts_maximum=table.whole("parts_maximum", 1),
        parts_add=table.word("parts_add", PartsAdd, "none"),
        aliases=table.items("aliases", str),
        sources=(*_nvml(table), *_dcgm(table, labels), *_smi(table), *_prometheus(table, labels)),
        derived=table.text("derived"),
        note=table.text("note"),
    )


def _priority(table: Table) -> Priority:
    number = table.whole("priority", -1)
    if number not in (0, 1, 2):
        raise refused(table.where, "priority is missing or unknown", "0 correctness or money, 1 diagnosis, 2 useful")
    return Priority(number)


def _values(table: Table, unit: str) -> tuple[tuple[int, str], ...]:
    if unit == "bool":
        return BOOL_VALUES
    pairs = table.pairs("values", str)
    try:
        return tuple((int(value), meaning) for value, meaning in pairs)
    except ValueError:
        raise refused(
            table.where, "values has a key that is no whole number", 'write values={0="off", 1="on"}'
        ) from None


def _sources(table: Table, system: str) -> list[Table]:
    entries = table.items(system, dict)
    return [Table(f"{table.where}: {system} source {number}", dict(entry)) for number, entry in enumerate(entries, 1)]


def _nvml(table: Table) -> list[Source]:
    return [_named(entry, "nvml", entry.text("name"), ()) for entry in _sources(table, "nvml")]


def _smi(table: Table) -> list[Source]:
    return [_named(entry, "smi", entry.text("name"), ()) for entry in _sources(table, "smi")]


def _prometheus(table: Table, labels: tuple[str, ...]) -> list[Source]:
    return [
        _named(entry, "prometheus", entry.text("name"), labels, width=entry.text("width", Width.NONE))
        for entry in _sources(table, "prometheus")
    ]


def _dcgm(table: Table, labels: tuple[str, ...]) -> list[Source]:
    """Return one source for each name of each field; the names of one field share its rank."""
    found: list[Source] = []
    for entry in _sources(table, "dcgm"):
        names = entry.items("names", str)
        if not names:
            raise refused(entry.where, "names is missing", 'write names=["DCGM_FI_..."], every spelling of the field')
        field_id = entry.whole("id", 0) or None
        width = entry.text("width", Width.INT64)
        found += [_named(Table(entry.where, dict(entry.left)), "dcgm", name, labels, field_id, width) for name in names]
    return found


def _named(
    entry: Table, system: str, name: str, labels: tuple[str, ...], field_id: int | None = None, width: str = "none"
) -> Source:
    part = entry.pairs("part", str)
    rename = entry.pairs("rename", str)
    scale = entry.number("scale")
    source = Source(
        system=system,
        name=name,
        scale=1.0 if scale is None else scale,
        field_id=field_id or _field_number(name),
        width=Table(entry.where, {"width": width}).word("width", Width),
        match=entry.pairs("match", str),
        part=part,
        rename=rename + _same_names(labels, part, rename),
        rank=entry.whole("rank", 0),
        absent=entry.items("absent", (int, float)),
        translate=_translate(entry),
        estimate=entry.flag("estimate"),
        shared=entry.flag("shared"),
        help_scales=entry.pairs("help", (int, float)),
    )
    entry.end()
    return source


def _field_number(name: str) -> int | None:
    number = FIELD_NUMBER.fullmatch(name)
    return int(number[1]) if number else None


def _same_names(labels: tuple[str, ...], *taken: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the part labels that a sample may carry under their own name."""
    named = {label for part in taken[:1] for label, _ in part} | {label for rename in taken[1:] for _, label in rename}
    return tuple((label, label) for label in labels if label not in named)


def _translate(entry: Table) -> tuple[tuple[float, float], ...]:
    pairs = entry.pairs("translate", int)
    try:
        return tuple((float(source), value) for source, value in pairs)
    except ValueError:
        raise refused(entry.where, "translate has a key that is no number", "write translate={1=0, 0=2}") from None
