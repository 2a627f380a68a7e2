"""Turn a request and a scope into an answer: look up, plan, compile, read, and say what the answer is worth."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric
from secondsight.catalog.scale import physical_array
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.model import Quality
from secondsight.query.aggregates import is_scaled, unit_of
from secondsight.query.answer import Answer, Series, cut_series
from secondsight.query.compile import compile_series
from secondsight.query.coverage import Coverage, Key, carriers, coverage_of, held_of, keys_of, stretches_of
from secondsight.query.inventory import Inventory, Progress, progress_of
from secondsight.query.plan import CELLS_MAXIMUM, SeriesPlan, Situation, Span, plan_series
from secondsight.query.request import Filters, MetricQuery
from secondsight.query.rows import compile_rows, figures_of, suits_rows
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import IDENTITY, filter_predicates, raw_bounds
from secondsight.store.spec import quoted

AT_ONCE = 4
PRESENCE_MS = 120_000
PRESENCE_SECONDS = 10.0
_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class _Part:
    """What one metric of a request gave."""

    series: tuple[Series, ...]
    plan: SeriesPlan
    coverage: Coverage
    progress: Progress
    newest_ms: int | None
    late: int
    rows: int


class QueryRunner:
    """Answers requests from one store; safe from several threads, blocks while it reads."""

    def __init__(self, store: Store, clock: Clock, inventory: Inventory | None = None) -> None:
        self._store = store
        self._clock = clock
        self.inventory = inventory or Inventory(store, clock)

    def run(self, query: MetricQuery, scope: Scope) -> Answer:
        """Return the answer to a request.

        Raises:
            Rejected: forbidden_metric, range_too_wide, too_many_series, or a limit of the store.
            Retryable: The store is away or busy.
        """
        now_ms = self._clock.now_ms()
        expected = self.inventory.expected(query.selected[0].metric.kind, query.filters, scope)
        progress = progress_of(self.inventory.progress(scope), expected, now_ms)
        situation = replace(situation_of(expected, progress, now_ms), rewrites=self.inventory.rewrites(scope))
        plans = [plan_series(query, selected, situation) for selected in query.selected]
        found = self._read(plans, situation, scope)
        parts = [self._part(plan, rows, expected, progress, scope) for plan, rows in zip(plans, found, strict=True)]
        return _assembled(query, parts, now_ms)

    def top(self, query: MetricQuery, count: int, scope: Scope, *, highest: bool = True) -> Answer:
        """Return the `count` series of one metric with the highest (or lowest) figure over the whole range, in order.

        Raises:
            Rejected, Retryable: As `run`.
        """
        answer = self.run(replace(query, limit=CELLS_MAXIMUM, offset=0), scope)
        ranked = sorted(answer.series, key=lambda one: one.values[0], reverse=highest)
        return replace(answer, series=tuple(ranked[:count]), next_cursor="")

    def _read(self, plans: list[SeriesPlan], situation: Situation, scope: Scope) -> list[Any]:
        """Return the rows of each plan: few rows in one statement for all of them, else one statement for each."""
        if suits_rows(plans, situation):
            rows = self.inventory.read(compile_rows(plans, scope))
            return [figures_of(rows, plan) for plan in plans]
        statements = [compile_series(plan, scope) for plan in plans]
        if len(statements) == 1:
            return [self.inventory.read(statements[0])]
        with ThreadPoolExecutor(min(AT_ONCE, len(statements))) as pool:
            return list(pool.map(self.inventory.read, statements))

    def _part(self, plan: SeriesPlan, rows: Any, expected: Any, progress: Progress, scope: Scope) -> _Part:
        whole_range = _COMPUTE.equal(rows["is_entity"], 1)
        stored, points = rows.filter(whole_range), rows.filter(_COMPUTE.invert(whole_range))
        held = held_of(stored)
        stretches = carriers(plan.selected.metric, stretches_of(expected, plan.span, plan.due_ms), held)
        silent = self._silent(plan, scope) if stretches.keys() - held.keys() else frozenset()
        return _Part(
            series=_series(points, plan),
            plan=plan,
            coverage=coverage_of(stretches, held, counts_gaps=plan.rollup is None, silent=silent),
            progress=progress,
            newest_ms=max((one.last_ms for one in held.values()), default=None),
            late=_total(stored, "late"),
            rows=_total(stored, "rows"),
        )

    def _silent(self, plan: SeriesPlan, scope: Scope) -> frozenset[Key]:
        """Return entities and parts whose newest rows say that they never had the metric."""
        metric, span = plan.selected.metric, Span(plan.due_ms - PRESENCE_MS, plan.due_ms)
        key = ("silent", metric.name, plan.filters, scope)
        found: frozenset[Key] = self.inventory.remember(
            key,
            PRESENCE_SECONDS,
            lambda: frozenset(keys_of(self.inventory.read(compile_silent(metric, plan.filters, span, scope)))),
        )
        return found


def compile_silent(metric: Metric, filters: Filters, span: Span, scope: Scope) -> Statement:
    """Return the statement for entities and parts that have rows in a range, and no claim of the metric in any."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(metric.name)
    claimed = f"max(quality[{parameters.bind(metric.name, 'String')}])"
    unclaimed = f"{claimed} IN ({Quality.NONE.value}, {Quality.ABSENT_NOT_SUPPORTED.value})"
    rows = tables.table(
        f"{metric.kind.value}_1s",
        IDENTITY,
        [*raw_bounds(span, parameters), *filter_predicates(filters, tables, parameters)],
        tail=[f"GROUP BY {', '.join(IDENTITY)} HAVING count({quoted(metric.name)}) = 0 AND {unclaimed}"],
    )
    return Statement(rows[1:-1], parameters.values())


def situation_of(expected: Any, progress: Progress, now_ms: int) -> Situation:
    """Return what a planner needs of the entities that a request admits."""
    if not expected.num_rows:
        return Situation(now_ms, rollup_through_ms=progress.rollup_through_ms)
    keys = keys_of(expected)
    entities = len(set(keys))
    sources = len(set(zip(keys, expected["collector_id"].to_pylist(), strict=True)))
    return Situation(
        now_ms,
        entities=entities,
        rollup_through_ms=progress.rollup_through_ms,
        several_sources=sources > entities,
        interval_ms=int(_COMPUTE.min(expected["cadence_ms"]).as_py()),
    )


def _series(points: pa.Table, plan: SeriesPlan) -> tuple[Series, ...]:
    metric, aggregate = plan.selected.metric, plan.selected.aggregate
    scaled = is_scaled(aggregate)
    unit = unit_of(metric, aggregate)
    return tuple(
        Series(metric.name, unit, aggregate.value, labels, times, physical_array(metric, values) if scaled else values)
        for labels, times, values in cut_series(points, plan.groups, metric.kind)
    )


def _assembled(query: MetricQuery, parts: list[_Part], now_ms: int) -> Answer:
    series = [one for part in parts for one in part.series]
    page = series[query.offset : query.offset + query.limit]
    end = query.offset + len(page)
    rows = sum(part.rows for part in parts)
    newest = [ms for part in parts for ms in (part.newest_ms, part.progress.newest_ms) if ms is not None]
    through = [part.progress.complete_through_ms for part in parts if part.progress.complete_through_ms is not None]
    coverage = reduce(Coverage.plus, (part.coverage for part in parts))
    return Answer(
        metric=",".join(part.plan.selected.metric.name for part in parts),
        unit=_common([one.unit for one in series] or [_unit(parts[0])]),
        aggregate=_common([part.plan.selected.aggregate.value for part in parts]),
        series=tuple(page),
        span=parts[0].plan.span,
        resolution_ms=parts[0].plan.resolution_ms,
        coverage=coverage,
        complete_through_ms=min(through, default=None),
        freshness_ms=max(now_ms - max(newest), 0) if newest else None,
        late_ratio=sum(part.late for part in parts) / rows if rows else None,
        warnings=_warnings(parts[0].progress, coverage),
        series_total=len(series),
        next_cursor=str(end) if end < len(series) else "",
    )


def _warnings(progress: Progress, coverage: Coverage) -> tuple[str, ...]:
    warnings = []
    if progress.idle:
        warnings.append(f"{progress.idle} of {progress.collectors} collectors in scope are silent")
    if not coverage.expected:
        warnings.append("nothing was expected in this scope and range")
    return tuple(warnings)


def _unit(part: _Part) -> str:
    return unit_of(part.plan.selected.metric, part.plan.selected.aggregate)


def _common(values: list[str]) -> str:
    """Return the one value, or "" where there are several."""
    return values[0] if len(set(values)) == 1 else ""


def _total(rows: pa.Table, name: str) -> int:
    return int(np.sum(rows[name].to_numpy()))
