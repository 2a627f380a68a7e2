"""Decide between samples of one scrape that mean one cell: copies for each pod, an old and a new name of one figure.

The name of the better rank counts, then the first in the text; what does not count is counted by reason. Samples of
one name with different timestamps of their own are different points: the newest is the reading, the others are earlier
ones.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from secondsight.mapping.resolve import Slot
from secondsight.model import Quality

EARLIER_MAXIMUM = 600
"""Most points of one series in one scrape that are kept besides the newest."""


@dataclass(slots=True)
class Candidate:
    """One sample with its place; `value` is stored, `time_ms` the sample's own timestamp."""

    slot: Slot
    value: float | None
    quality: Quality
    time_ms: int | None


class Settled:
    """Takes the candidates of one scrape and gives one per cell.

    Args:
        stale_before_ms: Those of earlier times are stale.
        future_after_ms: Those of later times are refused: the clock behind them is wrong.
    """

    def __init__(self, stale_before_ms: int = 0, future_after_ms: float = math.inf) -> None:
        self._stale_before_ms = stale_before_ms
        self._future_after_ms = future_after_ms
        self._by_cell: dict[tuple[str, str, str, int], Candidate] = {}
        self._earlier: dict[tuple[str, str, str, int], dict[int, Candidate]] = {}
        self._has_ranks = False
        self.discarded: Counter[str] = Counter()

    def add(self, new: Candidate) -> None:
        """Take one more candidate."""
        if new.time_ms is not None and new.time_ms > self._future_after_ms:
            self.discarded["future"] += 1
            return
        key = new.slot.key
        old = self._by_cell.setdefault(key, new)
        if old is new:
            self._has_ranks = self._has_ranks or key[3] != 0
            return
        if _are_points(old, new):
            self._take_point(old, new)
            return
        winner, reason = _better(old, new)
        self._by_cell[key] = winner
        self.discarded[reason] += 1

    def _take_point(self, old: Candidate, new: Candidate) -> None:
        """Keep two points of one series, the newer one as the reading."""
        first, last = (old, new) if (old.time_ms or 0) < (new.time_ms or 0) else (new, old)
        self._by_cell[new.slot.key] = last
        points = self._earlier.setdefault(new.slot.key, {})
        before = points.setdefault(first.time_ms or 0, first)
        if before is not first:
            self.discarded["duplicate" if before.value == first.value else "conflict"] += 1

    def earlier_of(self, winner: Candidate) -> list[Candidate]:
        """Return the points before a winner's, in the order of their times; none of a winner that is stale."""
        points = self._earlier.get(winner.slot.key, {}) if winner.quality is not Quality.STALE else {}
        return [points[time_ms] for time_ms in sorted(points)[-EARLIER_MAXIMUM:]]

    def winners(self) -> list[Candidate]:
        """Return one candidate per cell; of one metric and entity only the best rank that has a value is kept."""
        for key, candidate in self._by_cell.items():
            if candidate.time_ms is not None and candidate.time_ms < self._stale_before_ms:
                self._by_cell[key] = Candidate(candidate.slot, None, Quality.STALE, candidate.time_ms)
        return self._within_limits(self._best_ranks() if self._has_ranks else self._by_cell.values())

    def _best_ranks(self) -> Iterable[Candidate]:
        best: dict[tuple[str, str], int] = {}
        for (metric, entity, _, rank), candidate in self._by_cell.items():
            if candidate.value is not None:
                best[metric, entity] = min(rank, best.get((metric, entity), rank))
        kept: dict[tuple[str, str, str], Candidate] = {}
        for (metric, entity, part, rank), candidate in sorted(self._by_cell.items(), key=_preference):
            if rank != best.get((metric, entity), rank) or (metric, entity, part) in kept:
                self.discarded["duplicate"] += 1
            else:
                kept[metric, entity, part] = candidate
        return kept.values()

    def _within_limits(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Leave out parts beyond the most that an entity may have of a metric."""
        kept: list[Candidate] = []
        parts: Counter[tuple[str, str]] = Counter()
        for candidate in candidates:
            slot = candidate.slot
            if slot.part:
                parts[slot.metric.name, slot.entity] += 1
                if parts[slot.metric.name, slot.entity] > slot.metric.parts_maximum:
                    self.discarded["parts_limit"] += 1
                    continue
            kept.append(candidate)
        return kept


def _preference(item: tuple[tuple[str, str, str, int], Candidate]) -> tuple[bool, int]:
    return item[1].value is None, item[0][3]


def _are_points(old: Candidate, new: Candidate) -> bool:
    """Tell whether two samples of one name are two instants of it."""
    if old.time_ms is None or new.time_ms is None or old.time_ms == new.time_ms:
        return False
    return old.slot.source is new.slot.source and old.value is not None and new.value is not None


def _better(old: Candidate, new: Candidate) -> tuple[Candidate, str]:
    """Return which of two candidates of one cell counts, and why the other does not."""
    if old.value == new.value and old.time_ms == new.time_ms:
        return old, "duplicate"
    if (old.value is None) != (new.value is None):
        return (new if old.value is None else old), "duplicate"
    if old.time_ms != new.time_ms:
        return (old if (old.time_ms or 0) > (new.time_ms or 0) else new), "superseded"
    if old.slot.source is not new.slot.source and old.value is not None and new.value is not None:
        return (old if old.value >= new.value else new), "duplicate"
    return old, "conflict"
