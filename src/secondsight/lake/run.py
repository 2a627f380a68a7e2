"""Keep the lake equal to the hot store: a stage of its own that copies what changed, and tidies up in between.

One table's trouble does not hold up the others: what fails is tried again, later where the same input cannot succeed.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from secondsight.errors import Retryable, SecondsightError
from secondsight.lake.compact import compact_table
from secondsight.lake.export import Means, TableExporter
from secondsight.lake.hot import hot_specs
from secondsight.lake.layout import LakeTable, Slice, lake_tables
from secondsight.lake.sweep import Sweeper
from secondsight.lake.watch import Place, first_time, rolled_through, written_through
from secondsight.store.blocks import newest_blocks
from secondsight.store.spec import TableSpec

logger = logging.getLogger(__name__)

STEP_SECONDS = 15.0
PAUSE_SECONDS = 30.0
AGAIN_SECONDS = 600.0
FAULTS = (SecondsightError, ValueError, LookupError, ArithmeticError, TypeError)
"""What a table's own data may raise; anything else is a fault of the program and ends it."""

Complete = Callable[[str, Slice], int]
"""Gives up to when the rows of a table and a slice's cluster are all written, in ms."""


def _never(_table: str, _slice: Slice) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Tidying:
    """How often what is done beside copying, in seconds.

    Attributes:
        check_seconds: Tables are looked at for changes of somebody else.
        compact_seconds: Small files are joined; 0 for never.
        expire_seconds: Snapshots are forgotten.
        sweep_seconds: Files that nothing names are looked for.
        over_ms: After its end a partition waits that long for being compacted.
    """

    check_seconds: float = 600.0
    compact_seconds: float = 300.0
    expire_seconds: float = 900.0
    sweep_seconds: float = 3600.0
    over_ms: int = 7_200_000


@dataclass(slots=True)
class Stage:
    """Copies all tables. For one thread.

    Attributes:
        specs: Tables of the hot store, as the catalogue says them.
        names: Tables that are copied; empty for all.
    """

    means: Means
    specs: Mapping[str, TableSpec]
    names: frozenset[str]
    tidying: Tidying
    sweeper: Sweeper
    _shapes: dict[str, LakeTable] = field(default_factory=dict)
    _exporters: dict[str, TableExporter] = field(default_factory=dict)
    _put_off: dict[str, float] = field(default_factory=dict)
    _done_at: dict[str, float] = field(default_factory=dict)
    _complete: Complete = _never

    def run(self, stop: threading.Event) -> None:
        """Copy what becomes due until told to stop."""
        while not stop.is_set():
            pause = STEP_SECONDS
            try:
                self.step(stop)
                self.tidy(stop)
            except Retryable as error:
                logger.warning("the lake waits: %s", error)
                pause = PAUSE_SECONDS
            stop.wait(pause)

    def step(self, stop: threading.Event) -> int:
        """Look for changes once and copy the slices that are due; return how many were copied.

        Raises:
            Retryable: The hot store is away.
        """
        store = self.means.store
        self._shapes = self._wanted(lake_tables(hot_specs(store, self.specs).values()))
        newest = newest_blocks(store)
        self._complete = self._complete_of(written_through(store), rolled_through(store))
        copied = 0
        for name, shape in self._shapes.items():
            if stop.is_set():
                break
            if name in newest and self._may(name):
                copied += self._guarded(shape, lambda each: self._copy(each, newest[each.name], stop))
        self._show()
        return copied

    def tidy(self, stop: threading.Event) -> None:
        """Do what is due beside copying; stop when something is to be copied."""
        over_ms = self.means.clock.now_ms() - self.tidying.over_ms

        def yields() -> bool:
            return stop.is_set() or any(each.due(self._complete) for each in self._exporters.values())

        works: tuple[tuple[str, float, Callable[[LakeTable], int]], ...] = (
            ("check", self.tidying.check_seconds, self._check),
            ("compact", self.tidying.compact_seconds, lambda each: compact_table(self.means, each, over_ms, yields)),
            ("expire", self.tidying.expire_seconds, self.sweeper.expire),
            ("sweep", self.tidying.sweep_seconds, self.sweeper.sweep),
        )
        for name, every_seconds, work in works:
            if every_seconds and self._is_time(name, every_seconds):
                for shape in self._shapes.values():
                    self._guarded(shape, work)

    def _wanted(self, shapes: Mapping[str, LakeTable]) -> dict[str, LakeTable]:
        return {name: shape for name, shape in shapes.items() if not self.names or name in self.names}

    def _copy(self, shape: LakeTable, newest: int, stop: threading.Event) -> int:
        exporter = self._exporters.setdefault(shape.name, TableExporter(self.means, shape))
        exporter.look(shape, newest, first_time(self.means.store, shape))
        due = exporter.due(self._complete)
        return exporter.copy(due, stop.is_set) if due else 0

    def _check(self, shape: LakeTable) -> int:
        exporter = self._exporters.get(shape.name)
        return 0 if exporter is None else exporter.check()

    def _complete_of(self, written: Mapping[Place, int], rolled: Mapping[tuple[str, Place], int]) -> Complete:
        """Return what gives up to when the rows of a table and a slice's cluster are all written, in ms."""
        now_ms = self.means.clock.now_ms()

        def complete(table: str, each: Slice) -> int:
            place = (each.tenant, each.cluster)
            return rolled.get((table, place), written.get(place, now_ms))

        return complete

    def _guarded(self, shape: LakeTable, work: Callable[[LakeTable], int]) -> int:
        """Do something for one table; what fails is counted, said and tried again."""
        name = shape.name
        try:
            return work(shape)
        except Retryable as error:
            self.means.metrics.count("lake_failures_total", table=name, kind="away")
            logger.warning("%s is tried again: %s", name, error)
        except FAULTS as error:
            self.means.metrics.count("lake_failures_total", table=name, kind="refused")
            logger.exception("%s cannot be copied, and is tried again in %d s", name, AGAIN_SECONDS, exc_info=error)
            self._put_off[name] = self.means.clock.monotonic_seconds() + AGAIN_SECONDS
        return 0

    def _may(self, name: str) -> bool:
        return self.means.clock.monotonic_seconds() >= self._put_off.get(name, 0.0)

    def _is_time(self, work: str, every_seconds: float) -> bool:
        now = self.means.clock.monotonic_seconds()
        if now - self._done_at.setdefault(work, now) < every_seconds:
            return False
        self._done_at[work] = now
        return True

    def _show(self) -> None:
        """Set the gauges that say how far behind the lake is."""
        now_ms = self.means.clock.now_ms()
        for name, exporter in self._exporters.items():
            oldest_ms = exporter.oldest_ms()
            lag_ms = 0 if oldest_ms is None else max(now_ms - oldest_ms, 0)
            self.means.metrics.gauge("lake_slices_waiting", exporter.waiting, table=name)
            self.means.metrics.gauge("lake_lag_seconds", lag_ms / 1000, table=name)
        self.means.metrics.gauge("lake_files_handed", len(self.means.handed))
