"""Say what an answer out of memory is worth, as `run.py` does with an object for each entity."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any

from secondsight.query.coverage import Coverage, Key, Lack
from secondsight.query.gapreader import BESIDE_LACKING, BESIDE_MAXIMUM, WINDOW_MS
from secondsight.query.grouped import Grouped
from secondsight.query.plan import SeriesPlan
from secondsight.query.roster import (
    Roster,
    Stretches,
    Universe,
    carriers,
    coverage_of,
    lacking,
    unlisted,
    with_unlisted,
)

_KEPT = 32


@dataclass(frozen=True, slots=True)
class Worth:
    """How much of what was expected an answer has.

    Attributes:
        unlisted: Entities and parts that no list expects and the tables hold all the same.
        expected_from_ms: Earliest instant inside the range at which something was expected, or None.
    """

    coverage: Coverage
    unlisted: int
    expected_from_ms: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """How to find out more, where something is missing.

    Attributes:
        silent: Returns the entities and parts that never had the metric of a plan.
        lacks: Returns entity -> what its gaps come to, or None.
    """

    silent: Callable[[SeriesPlan], Collection[Key]]
    lacks: Callable[[], Mapping[str, Lack] | None]


class Rosters:
    """Keeps what follows from rows of expectations while they stay the same; safe from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[Any, tuple[Any, Roster]] = {}
        self._universes: dict[int, tuple[Any, Any, Universe]] = {}
        self._progress: dict[int, tuple[Any, Any, Any]] = {}

    def of(self, key: Any, expected: Any) -> Roster:
        """Return the roster of some expected rows; `key` says what they were asked by."""
        with self._lock:
            found = self._kept.get(key)
        if found is not None and (found[0] is expected or found[0].equals(expected)):
            return found[1]
        made = Roster(expected)
        with self._lock:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = (expected, made)
        return made

    def progress(self, roster: Roster, rows: Any) -> Any:
        """Return those rows of `inventory.compile_progress` that a roster's collectors have."""
        with self._lock:
            found = self._progress.get(id(roster))
        if found is not None and found[0] is roster and found[1] is rows:
            return found[2]
        made = roster.progress(rows)
        with self._lock:
            while len(self._progress) >= _KEPT:
                self._progress.pop(next(iter(self._progress)))
            self._progress[id(roster)] = (roster, rows, made)
        return made

    def universe(self, roster: Roster, keys: Any) -> Universe:
        """Return the entities of a roster and of some keys together."""
        with self._lock:
            found = self._universes.get(id(keys))
        if found is not None and found[0] is keys and found[1] is roster:
            return found[2]
        made = Universe(roster, keys)
        with self._lock:
            while len(self._universes) >= _KEPT:
                self._universes.pop(next(iter(self._universes)))
            self._universes[id(keys)] = (keys, roster, made)
        return made


def worth_of(found: Sequence[Grouped], rosters: Rosters, roster: Roster, asked: Asked) -> Worth:
    """Return what the plans of one request are worth together."""
    plan = found[0].plan
    whole = roster.stretches(plan.span, plan.due_ms)
    by_metric = {one.plan.selected.metric.name: one for one in reversed(found)}
    shares = [_share(one, rosters.universe(roster, one.entities), whole, asked) for one in by_metric.values()]
    coverage = reduce(Coverage.plus, [share.coverage({}) for share in shares])
    if coverage.expected != coverage.stored:
        lacks = asked.lacks() if _may_look(plan, whole, shares) else None
        coverage = reduce(Coverage.plus, [share.coverage(lacks) for share in shares])
    new = {name for share in shares for name in share.new()}
    first_ms = int(whole.from_ms[whole.there].min()) if whole.there.any() else None
    return Worth(coverage, len(new), first_ms)


def _may_look(plan: SeriesPlan, whole: Stretches, shares: Sequence["_Share"]) -> bool:
    """Tell whether gaps may be looked for, before a list of all entities is made that tells the same.

    Where a processor lags, all of a fleet lacks what is due.
    """
    windows = int(whole.there.sum()) * (plan.span.to_ms - plan.span.from_ms) // WINDOW_MS
    return windows <= BESIDE_MAXIMUM and max(share.lacking for share in shares) <= BESIDE_LACKING


@dataclass(frozen=True, slots=True)
class _Share:
    """One metric of an answer, by the numbers of a universe."""

    universe: Universe
    every: Stretches
    known: Stretches
    held: Any
    carrying: Any
    counts_gaps: bool

    def coverage(self, lacks: Mapping[str, Lack] | None) -> Coverage:
        return coverage_of(self.universe, self.carrying, self.known, self.held, lacks, counts_gaps=self.counts_gaps)

    @property
    def lacking(self) -> int:
        """Return how many entities and parts lack some of what was due."""
        return lacking(self.carrying, self.known, self.held)

    def new(self) -> list[str]:
        there = unlisted(self.every, self.held)
        return self.universe.names(there) if there.any() else []


def _share(found: Grouped, universe: Universe, whole: Stretches, asked: Asked) -> _Share:
    plan, metric = found.plan, found.plan.selected.metric
    held = universe.spread(found.held)
    every = universe.widened(whole)
    wanted = every
    if universe.roster.tells_metrics_apart:
        wanted = universe.widened(universe.roster.stretches(plan.span, plan.due_ms, metric.name))
    known = with_unlisted(wanted, held)
    carrying = carriers(metric, universe, known, held)
    if (carrying & ~held.there).any():
        carrying &= held.there | ~universe.among(asked.silent(plan))
    return _Share(universe, every, known, held, carrying, plan.rollup is None)
