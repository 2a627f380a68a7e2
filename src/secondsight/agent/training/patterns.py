"""Turn pattern files into rules: what lines of trainers' logs look like, and what their values mean.

The shipped rules are `patterns.toml`; operators add files of the same form, whose rules are tried first.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from secondsight.agent.training.measures import COUNTS, GAUGES, METRICS
from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import MetricType
from secondsight.errors import Rejected

MODES = ("each", "total")
REGEX_CHARACTERS_MAXIMUM = 600
_RULE_KEYS = {"name", "contains", "regex", "pairs", "keys", "derive", "event", "remember", "recall", "forget"}
_TARGET_KEYS = {"to", "as", "label", "label_from", "mode", "scale", "absent", "skip_when"}
_EVENT_KEYS = {"metric", "code", "kind", "attributes", "tables", "facts", "once"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where one value of a line goes.

    Attributes:
        to: Short name of `measures.METRICS`; "" for a value that only others are derived from.
        named: Name under which others derive from it.
        label: Label value; `*` is what the wildcard of the key stood for with the prefix before it, as it is printed.
        label_from: Group or prefix that gives the label value.
        mode: Of counts: `each` line adds its value, or it says the `total` so far.
        scale: Factor to the unit of the metric, where the value names no unit itself.
        absent: Scaled values that mean that there is none.
        skip_when: (group, value) pairs: the value is left out of lines that have all of them.
    """

    to: str = ""
    named: str = ""
    label: str = ""
    label_from: str = ""
    mode: str = ""
    scale: float | None = None
    absent: tuple[float, ...] = ()
    skip_when: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Happening:
    """The event that a line is.

    Attributes:
        kind: Label of the count that goes with it; "" for none.
        attributes: Groups that become attributes of the event.
        tables: (attribute, table): the value's name in that table becomes the attribute `<attribute>_name`.
        facts: Attributes that every such event has.
        once: Groups that tell two events apart; equal ones that follow soon are one.
    """

    metric: str
    code: int
    kind: str = ""
    attributes: tuple[str, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    once: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Derivation:
    """A value that follows from others of its line: the product of `times` over the product of `over`."""

    to: str
    times: tuple[str, ...]
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one form of lines says. `contains` is looked for before `regex` is tried."""

    name: str
    contains: tuple[str, ...]
    regex: re.Pattern[str]
    pairs: re.Pattern[str] | None = None
    keys: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    derive: tuple[Derivation, ...] = ()
    event: Happening | None = None
    remember: tuple[str, ...] = ()
    recall: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()

    def targets(self, key: str) -> tuple[Target, ...]:
        """Return where the value of a printed key goes; a key with `*` at its end stands for all that begin so."""
        found = self.keys.get(key)
        if found is not None:
            return found
        return next((told for name, told in self.keys.items() if name[-1:] == "*" and key.startswith(name[:-1])), ())


@dataclass(frozen=True, slots=True)
class Patterns:
    """All rules in the order in which they are tried, factors of units, and names of numbers."""

    rules: tuple[Rule, ...]
    units: Mapping[str, float]
    tables: Mapping[str, Mapping[str, str]]


def load_patterns(catalog: Catalog, extra: Sequence[Path] = ()) -> Patterns:
    """Return the rules of an operator's files and the shipped ones.

    Raises:
        Rejected: `bad_patterns`, naming file, rule and what is wrong.
    """
    shipped = resources.files("secondsight.agent.training").joinpath("patterns.toml").read_text(encoding="utf-8")
    texts = [*((path.name, _read(path)) for path in extra), ("patterns.toml", shipped)]
    rules: list[Rule] = []
    units: dict[str, float] = {}
    tables: dict[str, dict[str, str]] = {}
    for name, text in texts:
        told = _parse(name, text)
        units = {**told.get("units", {}), **units}
        tables = {**told.get("tables", {}), **tables}
        rules += [
            _rule(f"{name}: rule {number}", said, catalog) for number, said in enumerate(told.get("rules", []), 1)
        ]
    return Patterns(tuple(rules), units, tables)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected("bad_patterns", f"cannot read {path}: {error}", "name a TOML file of rules") from error


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(name, f"no TOML: {error}") from error
    unknown = set(told) - {"units", "tables", "rules"}
    if unknown or not isinstance(told.get("rules", []), list):
        raise _wrong(name, f"unknown table {min(unknown, default='rules')!r}")
    return told


def _rule(where: str, said: Any, catalog: Catalog) -> Rule:
    if not isinstance(said, dict):
        raise _wrong(where, "is no table")
    _no_others(where, said, _RULE_KEYS)
    where = f"{where} ({said.get('name', '')})"
    event = said.get("event")
    try:
        return Rule(
            name=str(said["name"]),
            contains=_texts(said["contains"]),
            regex=_regex(where, said["regex"]),
            pairs=_regex(where, said["pairs"]) if "pairs" in said else None,
            keys={key: _targets(where, key, value, catalog) for key, value in said.get("keys", {}).items()},
            derive=tuple(_derivation(where, way) for way in said.get("derive", [])),
            event=None if event is None else _event(where, event, catalog),
            remember=_texts(said.get("remember", [])),
            recall=_texts(said.get("recall", [])),
            forget=_texts(said.get("forget", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(where, f"{error!r}") from error


def _targets(where: str, key: str, value: Any, catalog: Catalog) -> tuple[Target, ...]:
    many = value if isinstance(value, list) else [value]
    return tuple(_target(f"{where}: {key}", {"to": one} if isinstance(one, str) else one, catalog) for one in many)


def _target(where: str, said: Any, catalog: Catalog) -> Target:
    _no_others(where, said, _TARGET_KEYS)
    name, mode = said.get("to", ""), said.get("mode", "")
    if name and name not in METRICS:
        raise _wrong(where, f"there is no value {name!r}", f"one of {', '.join(sorted(METRICS))}")
    if (name in COUNTS) != (mode in MODES):
        raise _wrong(where, f"mode {mode!r} does not fit {name!r}", 'counts have mode "each" or "total", others none')
    labelled = bool(name) and bool(catalog.get(METRICS[name]).labels) and name != "step_seconds"
    if labelled != bool(said.get("label") or said.get("label_from")):
        raise _wrong(where, f"{name!r} and its label disagree", "values with parts have label or label_from")
    return Target(
        to=name,
        named=said.get("as", ""),
        label=said.get("label", ""),
        label_from=said.get("label_from", ""),
        mode=mode,
        scale=None if "scale" not in said else float(said["scale"]),
        absent=tuple(float(each) for each in said.get("absent", [])),
        skip_when=tuple((group, float(number)) for group, number in said.get("skip_when", {}).items()),
    )


def _derivation(where: str, said: Any) -> Derivation:
    if said["to"] not in GAUGES:
        raise _wrong(where, f"{said['to']!r} is no last value", f"one of {', '.join(sorted(GAUGES))}")
    return Derivation(said["to"], _texts(said["times"]), _texts(said.get("over", [])))


def _event(where: str, said: Any, catalog: Catalog) -> Happening:
    _no_others(where, said, _EVENT_KEYS)
    metric = catalog.get(said["metric"])
    if metric.type is not MetricType.EVENT:
        raise _wrong(where, f"{metric.name} is no event")
    return Happening(
        metric=metric.name,
        code=int(said["code"]),
        kind=said.get("kind", ""),
        attributes=_texts(said.get("attributes", [])),
        tables=tuple(said.get("tables", {}).items()),
        facts=tuple(said.get("facts", {}).items()),
        once=_texts(said.get("once", [])),
    )


def _regex(where: str, text: str) -> re.Pattern[str]:
    if len(text) > REGEX_CHARACTERS_MAXIMUM:
        raise _wrong(where, "an expression is too long", f"at most {REGEX_CHARACTERS_MAXIMUM} characters")
    try:
        return re.compile(text)
    except re.error as error:
        raise _wrong(where, f"an expression is wrong: {error}") from error


def _texts(said: Any) -> tuple[str, ...]:
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise TypeError(f"{said!r} is no list of texts")
    return tuple(said)


def _no_others(where: str, said: Mapping[str, Any], known: set[str]) -> None:
    unknown = set(said) - known
    if unknown:
        raise _wrong(where, f"unknown key {min(unknown)!r}", f"one of {', '.join(sorted(known))}")


def _wrong(where: str, what: str, hint: str = "docs/guides/training.md explains the keys of rules") -> Rejected:
    return Rejected("bad_patterns", f"{where}: {what}", hint)
