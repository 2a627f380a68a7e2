"""Say what the rows below an answer are worth: up to when they are complete, how fresh, and how much of them is there.

Coverage is that of the caller's GPUs over the time that was read: GPU-seconds with samples over those that were to be
there. It is counted from windows, so a range within one of them has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.guard.intervals import Span as Read
from secondsight.model import EntityKind
from secondsight.query.coverage import keys_of, stretches_of
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.progress import progress_of
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.times import format_time
from secondsight.store.clusters import cluster_resolution
from secondsight.store.coarse import FINEST, LEVELS, window_bounds
from secondsight.store.schema import rollup_table

KEPT_SECONDS = 15.0
LOW_RATIO = 0.99
_FINEST_MS = 30_000
_HOUR_MS = 3_600_000
_STEPS = ((6 * _HOUR_MS, FINEST, _FINEST_MS), (14 * 24 * _HOUR_MS, LEVELS[0].name, LEVELS[0].width_ms))
"""(longest range, resolution, width) of the rows that coverage is counted from; beyond them those of an hour."""
_COMPUTE: Any = pc
_KEY = ("tenant_id", "cluster_id", "host_id", "entity", "window_start")


@dataclass(frozen=True, slots=True)
class Quality:
    """What rows are worth.

    Attributes:
        complete_through_ms: Up to when every collector that is in use has delivered; None where none has.
        freshness_ms: Age of the newest sample; None where there is none.
        coverage: Share of the expected GPU-seconds that are there, None where that is not known.
        shared: Several collectors report some GPU.
    """

    complete_through_ms: int | None
    freshness_ms: int | None
    coverage: float | None
    shared: bool


class QualityReader:
    """Reads what answers are worth, under the scope of whoever asks. Safe to call from several threads."""

    def __init__(self, inventory: Inventory, clock: Clock) -> None:
        self._inventory = inventory
        self._clock = clock

    def is_shared(self, scope: Scope) -> bool:
        """Tell whether several collectors report some GPU of a scope.

        Raises:
            Retryable: The store is away or busy.
        """
        expected = self._expected(scope)
        keys = keys_of(expected)
        return len(set(zip(keys, expected["collector_id"].to_pylist(), strict=True))) > len(set(keys))

    def read(self, reads: Sequence[Read], scope: Scope) -> Quality:
        """Return what rows of some reads are worth.

        Raises:
            Retryable: The store is away or busy.
        """
        now_ms = self._clock.now_ms()
        expected = self._expected(scope)
        progress = progress_of(self._inventory.progress(scope), expected, now_ms)
        stated = [read for read in reads if read.stated and read.to_ms > read.from_ms]
        coverage = None
        if stated and progress.complete_through_ms is not None:
            span = Span(min(read.from_ms for read in stated), max(read.to_ms for read in stated))
            coverage = self._coverage(span, min(progress.complete_through_ms, span.to_ms), scope)
        freshness_ms = None if progress.newest_ms is None else max(0, now_ms - progress.newest_ms)
        return Quality(progress.complete_through_ms, freshness_ms, coverage, self.is_shared(scope))

    def _expected(self, scope: Scope) -> Any:
        rows = self._inventory.expected(EntityKind.GPU, Filters(), scope)
        return rows.filter(_COMPUTE.equal(rows["part"], pa.scalar("")))

    def _coverage(self, span: Span, until_ms: int, scope: Scope) -> float | None:
        """Return the coverage of the whole windows of a range that are complete; None where there is none."""
        resolution, width_ms = _windows(span.to_ms - span.from_ms)
        whole = Span(-(-span.from_ms // width_ms) * width_ms, until_ms // width_ms * width_ms)
        if whole.to_ms <= whole.from_ms:
            return None
        stretches = stretches_of(self._expected(scope), whole, whole.to_ms)
        expected_ms = sum(one.slots * one.interval_ms for one in stretches.values())
        if not expected_ms:
            return None
        statement = compile_covered(whole, resolution, scope)
        key = ("covered", whole, resolution, scope)
        rows = self._inventory.remember(key, KEPT_SECONDS, lambda: self._inventory.read(statement))
        return min(1.0, int(rows["covered_ms"][0].as_py() or 0) / expected_ms)


def compile_covered(span: Span, resolution: str, scope: Scope) -> Statement:
    """Return the statement for the GPU-milliseconds with samples in the windows of a range; column covered_ms."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    start, end = (f"toDateTime({parameters.bind(ms // 1000, 'Int64')}, 'UTC')" for ms in (span.from_ms, span.to_ms))
    where = [*window_bounds(resolution, start, end), "part = ''"]
    if resolution != FINEST:
        table = rollup_table(EntityKind.GPU, cluster_resolution(resolution))
        rows = tables.table(table, ["toInt64(sum(covered_ms)) AS covered_ms"], where, final=True)
        return Statement(rows[1:-1], parameters.values())
    of_collectors = tables.table(
        rollup_table(EntityKind.GPU),
        [*_KEY, "collector_id", "sum(covered_ms) AS mine_ms"],
        where,
        final=True,
        tail=[f"GROUP BY {', '.join(_KEY)}, collector_id"],
    )
    best = select(["max(mine_ms) AS best_ms"], of_collectors, tail=[f"GROUP BY {', '.join(_KEY)}"])
    return Statement(select(["toInt64(sum(best_ms)) AS covered_ms"], best)[1:-1], parameters.values())


def caveats(quality: Quality, reads: Sequence[Read], now_ms: int) -> tuple[str, ...]:
    """Return what a reader has to know of rows, in words."""
    found = []
    if quality.complete_through_ms is None:
        found.append("through when rows are complete is not known yet")
    elif any(min(read.to_ms, now_ms) > quality.complete_through_ms for read in reads):
        found.append(
            f"complete through {format_time(quality.complete_through_ms)}; later rows may still be on their way"
        )
    if quality.coverage is not None and quality.coverage < LOW_RATIO:
        found.append(f"{quality.coverage:.1%} of the expected GPU-seconds in this range are there")
    found += sorted(
        {
            f"{read.view} is read from {format_time(read.from_ms)}, as the statement names no beginning"
            for read in reads
            if not read.begins
        }
    )
    return tuple(found)


def _windows(range_ms: int) -> tuple[str, int]:
    for longest_ms, resolution, width_ms in _STEPS:
        if range_ms <= longest_ms:
            return resolution, width_ms
    return LEVELS[1].name, LEVELS[1].width_ms
