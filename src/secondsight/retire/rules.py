"""Say how long the hot store keeps rows, and which of its partitions are older than that."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from secondsight.access.retention import EVERY_CLASS, KeepRule
from secondsight.errors import Rejected
from secondsight.lake.layout import period_bounds
from secondsight.store.retention import RETIRABLE, HotPart

DAY_MS = 86_400_000
DAYS_MINIMUM = 2.0
"""Late rows are taken as corrections for a day, and the lake may be hours behind."""
DEFAULT_DAYS: Mapping[str, float | None] = {"1s": 14, "30s": 30, "5m": 180, "1h": 1_095, "1d": None}
"""Resolution -> days that the hot store keeps rows where nothing else was said; None for ever."""
DEBUG_CLASS = 3
CLASS_DAYS: Mapping[tuple[str, int], float | None] = {("1s", DEBUG_CLASS): 3}
"""The same of single classes: rows that only a debug session asked for."""
_PARTITION = re.compile(r"\('?(\d{4}(?:-\d\d-\d\d|\d\d)?)'?,\s*(\d+)\)")


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table: a class of rows of a day, a month or a year.

    Attributes:
        parts: What it is made of.
    """

    table: str
    retention_class: int
    start_ms: int
    end_ms: int
    parts: tuple[HotPart, ...]

    @property
    def rows(self) -> int:
        """Return how many rows it holds, those not merged counted twice."""
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Return its bytes on disk."""
        return sum(part.size_bytes for part in self.parts)


def partitions_of(parts: Iterable[HotPart]) -> list[Partition]:
    """Return the partitions that parts make up, in order of table, time and class."""
    found: defaultdict[tuple[str, int, int, int], list[HotPart]] = defaultdict(list)
    for part in parts:
        start_ms, end_ms, retention_class = bounds_of(part.partition)
        found[part.table, start_ms, end_ms, retention_class].append(part)
    return [
        Partition(table, retention_class, start_ms, end_ms, tuple(some))
        for (table, start_ms, end_ms, retention_class), some in sorted(found.items(), key=lambda one: one[0])
    ]


def bounds_of(partition: str) -> tuple[int, int, int]:
    """Return [start, end) in epoch ms and the class of a partition, as the engine writes it.

    Raises:
        ValueError: It is written otherwise; nothing may be concluded from it.
    """
    found = _PARTITION.fullmatch(partition.replace(" ", ""))
    if found is None:
        raise ValueError(f"{partition!r} is no partition of a day, month or year and a class")
    text = found[1]
    form, period = {10: ("%Y-%m-%d", "day"), 6: ("%Y%m", "month"), 4: ("%Y", "year")}[len(text)]
    at_ms = round(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
    return (*period_bounds(period, at_ms), int(found[2]))


def days_kept(table: str, retention_class: int, rules: Sequence[KeepRule]) -> float | None:
    """Return how many days of a table's rows of a class the hot store keeps, None for ever: the nearest rule counts."""
    resolution = RETIRABLE[table]
    said = {(rule.table, rule.retention_class): rule.days for rule in rules}
    asked = [(table, retention_class), (resolution, retention_class), (table, EVERY_CLASS), (resolution, EVERY_CLASS)]
    for key in asked[:2]:
        if key in said:
            return said[key]
    if (resolution, retention_class) in CLASS_DAYS:
        return CLASS_DAYS[resolution, retention_class]
    for key in asked[2:]:
        if key in said:
            return said[key]
    return DEFAULT_DAYS[resolution]


def is_due(partition: Partition, rules: Sequence[KeepRule], now_ms: int) -> bool:
    """Tell whether all of a partition is older than is kept."""
    days = days_kept(partition.table, partition.retention_class, rules)
    return days is not None and partition.end_ms <= now_ms - days * DAY_MS


def with_rule(rules: Sequence[KeepRule], rule: KeepRule) -> tuple[KeepRule, ...]:
    """Return rules with one more, in place of that of the same table and class.

    Raises:
        Rejected(bad_retention): Its table may not go, or it keeps too little.
    """
    if rule.table not in RETIRABLE and rule.table not in DEFAULT_DAYS:
        hint = f"{', '.join(DEFAULT_DAYS)}, or a table of one kind such as gpu_1s; all else is kept for ever"
        raise Rejected("bad_retention", f"rows of {rule.table} are never deleted", hint)
    if rule.days is not None and rule.days < DAYS_MINIMUM:
        message = f"{rule.days:g} days are less than late rows and the lake may take"
        raise Rejected("bad_retention", message, f"keep {DAYS_MINIMUM:g} days or more")
    others = [each for each in rules if (each.table, each.retention_class) != (rule.table, rule.retention_class)]
    return (*others, rule)
