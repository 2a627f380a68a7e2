"""Turn a request and a scope into an answer: look up, plan, compile, read, and say what the answer is worth."""

import math
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow.compute as pc

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.model import Quality
from secondsight.query.aggregates import is_histogram
from secondsight.query.answer import Answer
from secondsight.query.assemble import Best, Part, as_figures, assembled, part_of, together, with_objects
from secondsight.query.cold import ColdTier, Read
from secondsight.query.cold_gaps import TieredGaps
from secondsight.query.cold_plans import Tiers, any_cold, read_parts, read_tiers
from secondsight.query.compile import compile_series
from secondsight.query.coverage import (
    Coverage,
    Key,
    Lack,
    Stretch,
    carriers,
    coverage_of,
    keys_of,
    pooled_coverage,
    stretches_of,
    unlisted,
)
from secondsight.query.gapreader import GapReader
from secondsight.query.grouped import GroupedReader
from secondsight.query.hints import unknown_names
from secondsight.query.histograms import compile_histograms, figures_of_histograms
from secondsight.query.inventory import Inventory, collecting, left_out
from secondsight.query.joint import compile_joint, is_steady, joined
from secondsight.query.joint import figures_of as joint_figures
from secondsight.query.live import LiveTables, NoLiveTables, live_rows
from secondsight.query.plan import CELLS_MAXIMUM, SeriesPlan, Situation, Span, plan_series, reach_of
from secondsight.query.progress import Progress, progress_of
from secondsight.query.request import Filters, MetricQuery, Selected
from secondsight.query.roster import Roster
from secondsight.query.rowfigures import figures_of
from secondsight.query.rows import Figures, Rows, back_of, compile_rows, lacks_before, rows_of, suits_rows
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import IDENTITY, filter_predicates, raw_bounds
from secondsight.query.worth import Asked, Rosters, Worth, worth_of
from secondsight.store.schema import raw_table
from secondsight.store.spec import quoted

AT_ONCE = 4
NEAR_MS = 60_000
"""Where the sample before a counter's first one is looked for first."""
BACK_ROWS_MAXIMUM = 400_000
UNSTEADY_SECONDS = 60.0
UNSTEADY_MAXIMUM = 1_000
PRESENCE_MS = 120_000
PRESENCE_SECONDS = 10.0
_COMPUTE: Any = pc


class QueryRunner:
    """Answers requests from one store; safe from several threads, blocks while it reads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        inventory: Inventory | None = None,
        gaps: TieredGaps | None = None,
        cold: ColdTier | None = None,
        live: LiveTables | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self.inventory = inventory or Inventory(store, clock)
        reader = GapReader(self.inventory, clock, lambda _scope, _span: ())
        self._gaps = gaps or TieredGaps(reader, self.inventory, cold)
        self._cold = cold
        self._live = live or NoLiveTables()
        self._grouped = GroupedReader(self._live, self.inventory)
        self._rosters = Rosters()
        self._unsteady: dict[Hashable, float] = {}

    def run(self, query: MetricQuery, scope: Scope, best: Best | None = None) -> Answer:
        """Return the answer to a request; with `best`, only the points that rank first.

        Raises:
            Rejected: forbidden_metric, range_too_wide, too_many_series, or a limit of the store.
            Retryable: The store is away or busy.
        """
        shown = by_scope(query.selected, scope)
        if len(shown) == 1:
            return self._run(query, next(iter(shown)), best)
        whole = replace(query, limit=CELLS_MAXIMUM, offset=0)
        answers = [self._run(replace(whole, selected=tuple(some)), each, best) for each, some in shown.items()]
        return together(query, answers)

    def _run(self, query: MetricQuery, scope: Scope, best: Best | None) -> Answer:
        now_ms = self._clock.now_ms()
        kind = query.selected[0].metric.kind
        expected = self.inventory.expected(kind, query.filters, scope)
        asked = query.filters
        query = replace(query, filters=self.inventory.placed(kind, asked, scope))
        roster = self._rosters.of((kind, asked, scope), expected)
        told = self._rosters.progress(roster, self.inventory.progress(scope))
        progress = progress_of(told, expected.slice(0, 0), now_ms)
        rewrites = self.inventory.rewrites(kind, reach_of(query), scope)
        coarse = self.inventory.coarse_through(kind, roster.places, scope)
        situation = replace(situation_of(roster, progress, now_ms), rewrites=rewrites, coarse_through_ms=coarse)
        plans = [plan_series(query, selected, situation) for selected in query.selected]
        tiers = Tiers()
        found = self._read_tiers(plans, situation, scope, tiers)
        parts = [part_of(plan, rows, best) for plan, rows in zip(plans, found, strict=True)]
        worth = self._worth(parts, roster, expected, scope)
        answer = assembled(query, parts, progress, now_ms, worth.coverage)
        answer = replace(answer, tier=tiers.name, partial=bool(tiers.missing))
        unknown = () if answer.series or expected.num_rows else unknown_names(asked, self.inventory, scope)
        return replace(
            answer,
            warnings=(*answer.warnings, *unknown, *_unlisted_warnings(worth.unlisted), *filter(None, [tiers.missing])),
            expected_from_ms=worth.expected_from_ms,
        )

    def _worth(self, parts: Sequence[Part], roster: Roster, expected: Any, scope: Scope) -> Worth:
        """Return what parts are worth: in arrays where all of them are arrays, else entity by entity."""
        plan, arrays = parts[0].plan, [part.found for part in parts if part.found is not None]
        if len(arrays) == len(parts):
            silent, kind = partial(self._silent, scope=scope), plan.selected.metric.kind
            lacks = partial(self._gaps.lacks, kind, plan.filters, plan.span, scope)
            return worth_of(arrays, self._rosters, roster, Asked(silent, lacks))
        parts = [with_objects(part) for part in parts]
        keys: list[Key] = self.inventory.derive((expected,), "keys", lambda: keys_of(expected))
        stretches = stretches_of(expected, plan.span, plan.due_ms, keys)
        by_metric = {part.plan.selected.metric.name: part for part in reversed(parts)}
        some = self.inventory.derive((expected,), "left out", lambda: left_out(expected))
        delivered = {
            name: stretches_of(collecting(expected, name), plan.span, plan.due_ms) if name in some else stretches
            for name in by_metric
        }
        return Worth(
            coverage=self._covered(by_metric, delivered, scope),
            unlisted=len({key for part in parts for key in unlisted(stretches, part.held)}),
            expected_from_ms=min((one.from_ms for one in stretches.values()), default=None),
        )

    def is_held(self, query: MetricQuery) -> bool:
        """Tell whether a request of named entities lies in memory: answering it costs less than asking what changed."""
        named = query.filters.gpu or query.filters.host
        kind = query.selected[0].metric.kind
        return bool(named) and self._live.holds(raw_table(kind), query.from_ms - NEAR_MS)

    def top(self, query: MetricQuery, count: int, scope: Scope, *, highest: bool = True) -> Answer:
        """Return the `count` series of one metric with the highest (or lowest) figure over the whole range, in order.

        Raises:
            Rejected, Retryable: As `run`.
        """
        best = Best(count, highest=highest)
        answer = self.run(replace(query, limit=CELLS_MAXIMUM, offset=0), scope, best)
        ranked = sorted(answer.series, key=lambda one: one.values[0], reverse=highest)
        return replace(answer, series=tuple(ranked[:count]), next_cursor="")

    def _read_tiers(self, plans: list[SeriesPlan], situation: Situation, scope: Scope, tiers: Tiers) -> Sequence[Any]:
        """Return the rows of each plan, from where they are: the hot store, the lake, or both."""
        histograms = [is_histogram(plan.selected.metric) for plan in plans]
        scalars = [plan for plan, is_bucketed in zip(plans, histograms, strict=True) if not is_bucketed]
        found = iter(self._read_scalars(scalars, situation, scope, tiers) if scalars else ())
        return [
            self._read_histogram(plan, scope, tiers) if is_bucketed else next(found)
            for plan, is_bucketed in zip(plans, histograms, strict=True)
        ]

    def _read_histogram(self, plan: SeriesPlan, scope: Scope, tiers: Tiers) -> Figures:
        stores = (self.inventory.read, lambda part: compile_histograms(part, scope))
        return figures_of_histograms(read_parts(plan, scope, self._cold, stores, tiers), plan)

    def _read_scalars(self, plans: list[SeriesPlan], situation: Situation, scope: Scope, tiers: Tiers) -> Sequence[Any]:
        if self._cold is None or not any_cold(plans, self._cold.floors()):
            return self._read_near(plans, situation, scope)

        def read_plans(some: Sequence[SeriesPlan], read: Read | None) -> list[Figures]:
            if read is None:
                rows = self._read(list(some), situation, scope)
            else:
                rows = self._read_cold(list(some), situation, scope, read)
            return [as_figures(plan, each) for plan, each in zip(some, rows, strict=True)]

        return read_tiers(plans, situation, scope, self._cold, read_plans, tiers)

    def _read_near(self, plans: list[SeriesPlan], situation: Situation, scope: Scope) -> Sequence[Any]:
        """Return the rows of each plan out of memory where it has them, else out of the hot store."""
        if suits_rows(plans, situation):
            return self._read(plans, situation, scope)
        found: list[Any] = [self._grouped.read(plan, scope) for plan in plans]
        lacking = [place for place, one in enumerate(found) if one is None]
        self._live.count(held=not lacking)
        if lacking:
            rows = self._read([plans[place] for place in lacking], situation, scope)
            for place, one in zip(lacking, rows, strict=True):
                found[place] = one
        return found

    def _read_cold(self, plans: list[SeriesPlan], situation: Situation, scope: Scope, read: Read) -> list[Any]:
        """Return the rows of each plan out of the lake, where every row is there once."""
        if suits_rows(plans, situation):
            rows = rows_of(read(compile_rows(plans, scope, back_of(plans))))
            return [figures_of(rows, plan) for plan in plans]
        return [read(compile_series(plan, scope)) for plan in plans]

    def _read(self, plans: list[SeriesPlan], situation: Situation, scope: Scope) -> list[Any]:
        """Return the rows of each plan: few rows in one statement for all of them, else one statement for each."""
        if suits_rows(plans, situation):
            rows = self._rows(plans, situation, scope)
            if rows is not None:
                return [figures_of(rows, plan) for plan in plans]
        tasks = self._tasks(plans)
        if len(tasks) == 1:
            return self._read_some(plans, tasks[0], scope)
        found: dict[int, Any] = {}
        with ThreadPoolExecutor(min(AT_ONCE, len(tasks))) as pool:
            answers = [pool.submit(copy_context().run, self._read_some, plans, each, scope) for each in tasks]
            for positions, tables in zip(tasks, answers, strict=True):
                found.update(dict(zip(positions, tables.result(), strict=True)))
        return [found[position] for position in range(len(plans))]

    def _rows(self, plans: Sequence[SeriesPlan], situation: Situation, scope: Scope) -> Rows | None:
        """Return the rows of few entities, with the samples before the range that counters need; None if too many."""
        back_ms = back_of(plans)
        near_ms = min(back_ms, NEAR_MS)
        rows = self._rows_since(plans, scope, near_ms)
        if near_ms == back_ms or not lacks_before(rows, plans):
            return rows
        if situation.entities * back_ms // situation.interval_ms > BACK_ROWS_MAXIMUM:
            return None
        return self._rows_since(plans, scope, back_ms)

    def _rows_since(self, plans: Sequence[SeriesPlan], scope: Scope, back_ms: int) -> Rows:
        """Return the rows of a range and what is before it, from memory where they are there."""
        rows = live_rows(self._live, plans, scope, back_ms)
        self._live.count(held=rows is not None)
        return rows_of(self.inventory.read(compile_rows(plans, scope, back_ms))) if rows is None else rows

    def _tasks(self, plans: Sequence[SeriesPlan]) -> list[list[int]]:
        """Return positions of plans by the statement that answers them."""
        groups = joined(plans) if self._may_join(plans) else []
        single = set(range(len(plans))) - {position for group in groups for position in group}
        return groups + [[position] for position in sorted(single)]

    def _may_join(self, plans: Sequence[SeriesPlan]) -> bool:
        """Tell whether the place asked about was not found unsteady a moment ago."""
        return self._unsteady.get(_place(plans[0]), -math.inf) <= self._clock.monotonic_seconds()

    def _read_some(self, plans: Sequence[SeriesPlan], positions: list[int], scope: Scope) -> list[Any]:
        """Return the rows of some plans, from one statement for all of them where the samples allow it."""
        mine = [plans[position] for position in positions]
        if self._may_join(mine) and joined(mine):
            rows = self.inventory.read(compile_joint(mine, scope))
            if is_steady(rows):
                return joint_figures(rows, mine)
            if len(self._unsteady) > UNSTEADY_MAXIMUM:
                self._unsteady.clear()
            self._unsteady[_place(mine[0])] = self._clock.monotonic_seconds() + UNSTEADY_SECONDS
        return [self.inventory.read(compile_series(plan, scope)) for plan in mine]

    def _covered(
        self, parts: Mapping[str, Part], delivered: Mapping[str, dict[Key, Stretch]], scope: Scope
    ) -> Coverage:
        """Return the coverage of all metrics together; where something is missing, gaps say what it means."""
        lacks: dict[str, Lack] | None = {}
        coverage = reduce(
            Coverage.plus, [self._coverage(part, delivered[name], lacks, scope) for name, part in parts.items()]
        )
        if coverage.expected == coverage.stored:
            return coverage
        plan = next(iter(parts.values())).plan
        lacks = self._gaps.lacks(plan.selected.metric.kind, plan.filters, plan.span, scope)
        return reduce(
            Coverage.plus, [self._coverage(part, delivered[name], lacks, scope) for name, part in parts.items()]
        )

    def _coverage(
        self, part: Part, stretches: dict[Key, Stretch], lacks: dict[str, Lack] | None, scope: Scope
    ) -> Coverage:
        plan = part.plan
        known = stretches | unlisted(stretches, part.held)
        if plan.is_pooled:
            return self._pooled_coverage(part, known, lacks, scope)
        carrying = carriers(plan.selected.metric, known, part.held)
        may_lack = carrying.keys() - part.held.keys() and not is_histogram(plan.selected.metric)
        silent = self._silent(plan, scope) if may_lack else frozenset()
        counts_gaps = plan.rollup is None
        return coverage_of(carrying, part.held, counts_gaps=counts_gaps, silent=silent, lacks=lacks)

    def _pooled_coverage(
        self, part: Part, stretches: dict[Key, Stretch], lacks: dict[str, Lack] | None, scope: Scope
    ) -> Coverage:
        metric = part.plan.selected.metric
        coverage = pooled_coverage(metric, stretches, part.held, lacks=lacks)
        if coverage.stored == coverage.expected:
            return coverage
        return pooled_coverage(metric, stretches, part.held, silent=self._silent(part.plan, scope), lacks=lacks)

    def _silent(self, plan: SeriesPlan, scope: Scope) -> frozenset[Key]:
        """Return entities and parts whose newest rows say that they never had the metric."""
        metric, span = plan.selected.metric, Span(plan.due_ms - PRESENCE_MS, plan.due_ms)
        read: Read = self.inventory.read
        is_old = self._cold is not None and span.from_ms < self._cold.floors().get(plan.raw_table, 0)
        if self._cold is not None and is_old:
            read = self._cold.reader(span, 0, plan.filters, scope)
        key = ("silent", metric.name, plan.filters, scope, span if is_old else None)

        def made() -> frozenset[Key]:
            try:
                return frozenset(keys_of(read(compile_silent(metric, plan.filters, span, scope, is_hot=not is_old))))
            except Retryable:
                if is_old:  # the answer says already that the lake is away
                    return frozenset()
                raise

        found: frozenset[Key] = self.inventory.remember(key, PRESENCE_SECONDS, made)
        return found


def by_scope(selected: Sequence[Selected], scope: Scope) -> dict[Scope, list[Selected]]:
    """Return the metrics of a request by the boxes of a scope that show them.

    Raises:
        Rejected(forbidden_metric): No box shows one of them.
    """
    found: dict[Scope, list[Selected]] = {}
    for one in selected:
        found.setdefault(scope.showing(one.metric.name), []).append(one)
    return found


def compile_silent(metric: Metric, filters: Filters, span: Span, scope: Scope, *, is_hot: bool = True) -> Statement:
    """Return the statement for entities and parts that have rows in a range, and no claim of the metric in any.

    In the hot store those alone are looked at that have a row without it, which are few and found by its column alone.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(metric.name)
    name = f"{metric.kind.value}_1s"
    where = [*raw_bounds(span, parameters), *filter_predicates(filters, tables, parameters)]
    identity = ", ".join(IDENTITY)
    claimed = f"max(quality[{parameters.bind(metric.name, 'String')}])"
    unclaimed = f"{claimed} IN ({Quality.NONE.value}, {Quality.ABSENT_NOT_SUPPORTED.value})"
    few = []
    if is_hot:
        without = tables.table(
            name, IDENTITY, [*where, f"{quoted(metric.name)} IS NULL"], tail=[f"GROUP BY {identity}"]
        )
        few.append(f"({identity}) IN {without}")
    lacking = f"GROUP BY {identity} HAVING count({quoted(metric.name)}) = 0 AND {unclaimed}"
    rows = tables.table(name, IDENTITY, [*where, *few], tail=[lacking])
    return Statement(rows[1:-1], parameters.values())


def situation_of(roster: Roster, progress: Progress, now_ms: int) -> Situation:
    """Return what a planner needs of the entities that a request admits."""
    if not roster.size:
        return Situation(now_ms, rollup_through_ms=progress.rollup_through_ms)
    return Situation(
        now_ms,
        entities=roster.size,
        rollup_through_ms=progress.rollup_through_ms,
        several_sources=roster.sources > roster.size,
        interval_ms=roster.interval_ms,
    )


def _place(plan: SeriesPlan) -> Hashable:
    return (plan.selected.metric.kind, plan.filters)


def _unlisted_warnings(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count} entities or parts are not listed for this range yet; coverage expects of them what they have",)
