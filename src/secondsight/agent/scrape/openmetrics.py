"""Turn OpenMetrics 1.0 text into samples strictly: the first line that breaks the standard refuses the whole text.

The agent reads leniently (`exposition.py`); this reader tells the author of an exporter what is wrong with it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from secondsight.agent.scrape.exposition import Sample, parse_labels, whole_ms
from secondsight.errors import Rejected
from secondsight.mapping.identity import Labels

EXEMPLAR_LABELS_CHARACTERS = 128

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LABELS = rf"\{{((?:{_LABEL}(?:,{_LABEL})*)?)\}}"
_REAL = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_VALUE = rf"(?:{_REAL}|[+-]?(?i:inf(?:inity)?)|(?i:nan))"

_SAMPLE_LINE = re.compile(
    rf"({_NAME})(?:{_LABELS})? ({_VALUE})(?: ({_REAL}))?(?: # {_LABELS} ({_VALUE})(?: ({_REAL}))?)?"
).fullmatch
_TYPE_LINE = re.compile(rf"# TYPE ({_NAME}) ([a-z]+)").fullmatch
_UNIT_LINE = re.compile(rf"# UNIT ({_NAME}) ([a-zA-Z0-9_:]*)").fullmatch
_HELP_LINE = re.compile(rf"# HELP ({_NAME}) (.*)").fullmatch

_SUFFIXES: dict[str, tuple[str, ...]] = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "summary": ("", "_sum", "_count", "_created"),
    "info": ("_info",),
    "stateset": ("",),
    "unknown": ("",),
}
_NEVER_NEGATIVE = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gcount"),
    "summary": ("_sum", "_count", "_created"),
}
_NEVER_NAN = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "summary": ("_sum", "_count"),
}
_EXEMPLAR_PLACES = {("counter", "_total"), ("histogram", "_bucket"), ("gaugehistogram", "_bucket")}


class _Point(NamedTuple):
    line: int
    name: str
    labels: Labels
    value: float
    seconds: float | None


@dataclass(slots=True)
class _Family:
    name: str
    type: str = "unknown"
    samples: list[_Point] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    def suffix_of(self, sample_name: str) -> str | None:
        """Return which of the family's suffixes makes this sample name, or None."""
        return next((s for s in _SUFFIXES[self.type] if self.name + s == sample_name), None)


def parse_strict(text: str) -> list[Sample]:
    """Read a whole exposition by the letter of OpenMetrics 1.0. Timestamps are given in whole ms.

    Raises:
        Rejected: code `openmetrics`; the message names the line and what is wrong with it.
    """
    if not (text.endswith(("\n# EOF\n", "\n# EOF")) or text in ("# EOF\n", "# EOF")):
        raise Rejected("openmetrics", "the text does not end in # EOF")
    reader = _Reader()
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines[:-1], 1):
        reader.read(number, line)
    reader.close()
    return [_sample(point) for family in reader.families.values() for point in family.samples]


class _Reader:
    """Keeps the open family and every name that earlier ones took."""

    def __init__(self) -> None:
        self.families: dict[str, _Family] = {}
        self._open: _Family | None = None
        self._line = 0
        self._names_taken: dict[str, str] = {}

    def read(self, number: int, line: str) -> None:
        self._line = number
        if not line.startswith("#"):
            self._read_sample(line)
            return
        for pattern, take in ((_TYPE_LINE, self._read_type), (_UNIT_LINE, self._read_unit), (_HELP_LINE, _nothing)):
            found = pattern(line)
            if found is not None:
                take(self._open_for_metadata(found[1], line.split(" ")[1]), found[2])
                return
        self._refuse("neither a sample nor TYPE, UNIT or HELP of a family")

    def close(self) -> None:
        """Check the last family."""
        if self._open is not None:
            self._take_names(self._open)
            for problem in _problems(self._open):
                self._refuse(problem)
        self._open = None

    def _refuse(self, reason: str) -> None:
        raise Rejected("openmetrics", f"line {self._line}: {reason}")

    def _open_for_metadata(self, name: str, keyword: str) -> _Family:
        family = self._family(name)
        if family.samples:
            self._refuse(f"{keyword} after the samples of {name}")
        if keyword in family.said:
            self._refuse(f"second {keyword} line for {name}")
        family.said.add(keyword)
        return family

    def _family(self, name: str) -> _Family:
        if self._open is not None and self._open.name == name:
            return self._open
        self.close()
        if name in self.families:
            self._refuse(f"family {name} comes in two places, or the sample name does not fit its type")
        self._open = self.families[name] = _Family(name)
        return self._open

    def _take_names(self, family: _Family) -> None:
        for name in {family.name, *(family.name + suffix for suffix in _SUFFIXES[family.type])}:
            if self._names_taken.setdefault(name, family.name) != family.name:
                self._refuse(f"family {family.name} clashes with {self._names_taken[name]} over {name}")

    def _read_type(self, family: _Family, type_name: str) -> None:
        if type_name not in _SUFFIXES:
            self._refuse(f"{type_name} is no type")
        family.type = type_name
        self._check_unit(family)

    def _read_unit(self, family: _Family, unit: str) -> None:
        family.said.add(f"unit {unit}" if unit else "no unit")
        if unit and not family.name.endswith("_" + unit):
            self._refuse(f"{family.name} does not end in its unit {unit}")
        self._check_unit(family)

    def _check_unit(self, family: _Family) -> None:
        if family.type in ("info", "stateset") and any(word.startswith("unit ") for word in family.said):
            self._refuse(f"a family of type {family.type} has no unit")

    def _read_sample(self, line: str) -> None:
        found = _SAMPLE_LINE(line)
        if found is None:
            self._refuse("malformed sample")
            return
        name, body, value, time, exemplar_body, exemplar_value, _ = found.groups()
        family = self._open if self._open is not None and self._open.suffix_of(name) is not None else self._family(name)
        suffix = family.suffix_of(name)
        if suffix is None:
            self._refuse(f"{name} is no sample of a {family.type}")
            return
        if exemplar_value is not None:
            self._check_exemplar((family.type, suffix), exemplar_body)
        seconds = None if time is None else float(time)
        family.samples.append(_Point(self._line, name, self._labels(body), float(value), seconds))

    def _labels(self, body: str | None) -> Labels:
        try:
            return parse_labels(body) if body else ()
        except ValueError as error:
            self._refuse(str(error))
            raise

    def _check_exemplar(self, place: tuple[str, str], body: str) -> None:
        if place not in _EXEMPLAR_PLACES:
            self._refuse(f"a sample {place[1] or 'without suffix'} of a {place[0]} has no exemplar")
        if sum(len(name) + len(value) for name, value in self._labels(body)) > EXEMPLAR_LABELS_CHARACTERS:
            self._refuse(f"the exemplar's labels are longer than {EXEMPLAR_LABELS_CHARACTERS} characters")


def _sample(point: _Point) -> Sample:
    time_ms = None if point.seconds is None else whole_ms(repr(point.seconds))
    return Sample(point.line, point.name, point.labels, point.value, time_ms)


def _nothing(_family: _Family, _text: str) -> None:
    """Help text has no rules."""


def _problems(family: _Family) -> Iterator[str]:
    for sample in family.samples:
        yield from _value_problems(family.type, sample.name.removeprefix(family.name), sample)
    yield from _label_problems(family)
    yield from _group_problems(family)
    if family.type in ("histogram", "gaugehistogram"):
        for points in _groups(family).values():
            yield from _histogram_problems(family.name, points)


def _value_problems(kind: str, suffix: str, sample: _Point) -> Iterator[str]:
    if suffix in _NEVER_NAN.get(kind, ()) and sample.value != sample.value:
        yield f"{sample.name} is NaN"
    if suffix in _NEVER_NEGATIVE.get(kind, ()) and sample.value < 0:
        yield f"{sample.name} is negative"
    if kind == "info" and sample.value != 1:
        yield f"{sample.name} is an info and not 1"
    if kind == "stateset" and sample.value not in (0, 1):
        yield f"{sample.name} is a state and neither 0 nor 1"


def _label_problems(family: _Family) -> Iterator[str]:
    needed = _needed_label(family)
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        if needed is None or suffix not in ("", "_bucket"):
            continue
        value = dict(sample.labels).get(needed)
        if value is None:
            yield f"{sample.name} needs the label {needed}"
        elif not _LABEL_CHECKS.get(needed, _any_text)(value):
            yield f"{sample.name} has a bad {needed}: {value!r}"


def _needed_label(family: _Family) -> str | None:
    if family.type == "stateset":
        return family.name
    return {"histogram": "le", "gaugehistogram": "le", "summary": "quantile"}.get(family.type)


def _any_text(_value: str) -> bool:
    return True


def _is_bound(value: str) -> bool:
    return value == "+Inf" or re.fullmatch(_REAL, value) is not None


def _is_quantile(value: str) -> bool:
    return re.fullmatch(_REAL, value) is not None and 0 <= float(value) <= 1


_LABEL_CHECKS: dict[str, Callable[[str], bool]] = {"le": _is_bound, "quantile": _is_quantile}


def _group_key(family: _Family, sample: _Point) -> Labels:
    needed = _needed_label(family)
    return tuple(sorted(pair for pair in sample.labels if pair[0] != needed))


def _groups(family: _Family) -> dict[tuple[Labels, float | None], list[_Point]]:
    groups: dict[tuple[Labels, float | None], list[_Point]] = {}
    for sample in family.samples:
        groups.setdefault((_group_key(family, sample), sample.seconds), []).append(sample)
    return groups


def _group_problems(family: _Family) -> Iterator[str]:
    keys = [_group_key(family, sample) for sample in family.samples]
    runs = [key for position, key in enumerate(keys) if position == 0 or keys[position - 1] != key]
    if len(set(runs)) != len(runs):
        yield f"samples of one metric of {family.name} are not together"
    for points in _by_key(keys, family.samples).values():
        times = [sample.seconds for sample in points]
        if len({time is None for time in times}) > 1:
            yield f"some samples of one metric of {family.name} have a timestamp and some have none"
        elif any(b < a for a, b in pairwise(time for time in times if time is not None)):
            yield f"timestamps of one metric of {family.name} go back"
    series = [(sample.name, tuple(sorted(sample.labels)), sample.seconds) for sample in family.samples]
    if len(set(series)) != len(series):
        yield f"a sample of {family.name} is repeated"


def _by_key(keys: list[Labels], samples: list[_Point]) -> dict[Labels, list[_Point]]:
    points: dict[Labels, list[_Point]] = {}
    for key, sample in zip(keys, samples, strict=True):
        points.setdefault(key, []).append(sample)
    return points


def _histogram_problems(name: str, points: list[_Point]) -> Iterator[str]:
    buckets = [(float(dict(s.labels).get("le", "nan")), s.value) for s in points if s.name == name + "_bucket"]
    rest = {s.name.removeprefix(name): s.value for s in points if s.name != name + "_bucket"}
    totals = rest.get("_sum", rest.get("_gsum")), rest.get("_count", rest.get("_gcount"))
    if set(rest) == {"_created"} and not buckets:
        return
    if not buckets or buckets[-1][0] != float("inf"):
        yield f"{name} has no +Inf bucket at its end"
        return
    if any(b[0] <= a[0] or b[1] < a[1] for a, b in pairwise(buckets)):
        yield f"buckets of {name} are out of order"
    if (totals[0] is None) != (totals[1] is None):
        yield f"{name} has one of sum and count without the other"
    if totals[1] is not None and totals[1] != buckets[-1][1]:
        yield f"the count of {name} is not its +Inf bucket"
    yield from _sign_problems(name, buckets[0][0], rest)


def _sign_problems(name: str, lowest_bound: float, rest: dict[str, float]) -> Iterator[str]:
    if "_sum" in rest and (lowest_bound < 0 or rest["_sum"] < 0):
        yield f"{name} has a sum although values may be negative"
    if rest.get("_gsum", 0) < 0 <= lowest_bound:
        yield f"{name} has a negative sum without negative buckets"
