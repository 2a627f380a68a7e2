"""Turn one line of a trainer's log into what it says, by the first rule that matches."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from secondsight.agent.training.lines import Line
from secondsight.agent.training.measures import COUNTS, DURATIONS, Key
from secondsight.agent.training.patterns import Derivation, Happening, Patterns, Rule, Target
from secondsight.mapping.cells import plain_text

ATTRIBUTE_CHARACTERS = 200
_NUMBER = re.compile(r"[-+]?(?:(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)


@dataclass(slots=True)
class Said:
    """What a line says.

    Attributes:
        gauges: Last values; may hold NaN and infinities.
        durations: Observations in seconds.
        added: Counts that the line adds to.
        totals: Counts so far, as the line has them.
        event: What happened, with its attributes, and the values that tell it from others.
    """

    rule: str
    gauges: dict[Key, float] = field(default_factory=dict)
    durations: list[tuple[Key, float]] = field(default_factory=list)
    added: list[tuple[Key, float]] = field(default_factory=list)
    totals: list[tuple[Key, float]] = field(default_factory=list)
    event: tuple[Happening, dict[str, str], tuple[str, ...]] | None = None


def extract(patterns: Patterns, line: Line, memory: dict[str, str]) -> Said | None:
    """Return what a line says, None if no rule knows its form.

    Args:
        patterns: The rules.
        line: The line.
        memory: What earlier lines of the file left for later ones; changed.
    """
    for rule in patterns.rules:
        found = rule.regex.search(line.text) if any(text in line.text for text in rule.contains) else None
        if found is not None:
            return _apply(rule, found, line, memory, patterns)
    return None


def _apply(rule: Rule, found: re.Match[str], line: Line, memory: dict[str, str], patterns: Patterns) -> Said:
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    memory |= {name: groups[name] for name in rule.remember if name in groups}
    for name in rule.forget:
        memory.pop(name, None)
    recalled = {name: memory[name] for name in rule.recall if name in memory}
    known = {**line.who, **recalled, **groups}
    said = Said(rule.name)
    numbers: dict[str, float] = {}
    for key, text in _values(rule, {**recalled, **groups}, line):
        for target in rule.targets(key):
            number = _scaled(target, text, patterns.units)
            if number is not None and not _is_skipped(target, known):
                numbers[target.named] = number
                _put(said, target, _label(target, key, known), number)
    for derivation in rule.derive:
        number = _derived(numbers, derivation)
        if number is not None:
            said.gauges.setdefault((derivation.to, ""), number)
    if rule.event is not None:
        said.event = _event(rule.event, known, patterns)
    return said


def _values(rule: Rule, groups: Mapping[str, str], line: Line) -> Iterator[tuple[str, str]]:
    """Give (key, text) of every value of a line: its named groups, its pairs, and what holds for each line."""
    yield from groups.items()
    if rule.pairs is not None:
        for match in rule.pairs.finditer(line.text):
            if match.lastindex == 2:
                yield " ".join(match[1].split()), match[2]
    yield "$one", "1"
    if line.time_ms is not None:
        yield "$time", repr(line.time_ms / 1000)


def _scaled(target: Target, text: str, units: Mapping[str, float]) -> float | None:
    """Return a printed value in the unit of its metric, None where it is no number or stands for none."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    number = float(found[0].replace(",", ""))
    unit = text.strip()[found.end() :].strip()
    scale = target.scale if target.scale is not None else units.get(unit, 1.0)
    scaled = number * scale
    return None if scaled in target.absent else scaled


def _is_skipped(target: Target, known: Mapping[str, str]) -> bool:
    return bool(target.skip_when) and all(_number(known.get(name, "")) == value for name, value in target.skip_when)


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text.strip())
    return None if found is None else float(found[0].replace(",", ""))


def _label(target: Target, key: str, known: Mapping[str, str]) -> str:
    if target.label_from:
        return known.get(target.label_from, "0")
    return key if target.label == "*" else target.label


def _put(said: Said, target: Target, label: str, number: float) -> None:
    if target.to in COUNTS:
        if 0 <= number < math.inf:
            (said.totals if target.mode == "total" else said.added).append(((target.to, label), number))
    elif target.to in DURATIONS:
        said.durations.append(((target.to, label), number))
    elif target.to:
        said.gauges[target.to, label] = number


def _derived(numbers: Mapping[str, float], derivation: Derivation) -> float | None:
    times, over = derivation.times, derivation.over
    if not all(name in numbers for name in (*times, *over)) or any(numbers[name] == 0 for name in over):
        return None
    return math.prod(numbers[name] for name in times) / math.prod(numbers[name] for name in over)


def _event(
    event: Happening, known: Mapping[str, str], patterns: Patterns
) -> tuple[Happening, dict[str, str], tuple[str, ...]]:
    attributes = {name: plain_text(known[name], ATTRIBUTE_CHARACTERS) for name in event.attributes if name in known}
    for name, table in event.tables:
        meaning = patterns.tables.get(table, {}).get(known.get(name, ""))
        if meaning is not None:
            attributes[f"{name}_name"] = meaning
    for name in ("rank", "local_rank"):
        if name in known:
            attributes.setdefault(name, known[name])
    return event, attributes | dict(event.facts), tuple(known.get(name, "") for name in event.once)
