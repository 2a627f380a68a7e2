"""Turn a request into a plan: which tables, which windows, where stored rollups end and raw rows take over.

Routing: windows that are a multiple of 30 s are read from rollups up to where these are written, and from 1 s rows
after that; all others, and percentiles, are read from 1 s rows. Of rollups the coarsest that divides the window is read
as far as it is made, finer ones at both ends. All give the same figures. Percentiles over very many 1 s rows come from
the sketches of coarse rollups, where windows are multiples of theirs. Questions that name no host and no GPU, and tell
none apart, are answered from rows of whole clusters; over more than a week they end with these.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from secondsight.errors import Rejected
from secondsight.process.cells import WINDOW_MS
from secondsight.process.patterns import LOOKBACK_MS
from secondsight.query.aggregates import PAIRED, QUANTILES, Aggregate, is_histogram
from secondsight.query.calendar import FROM_MS, edges_of
from secondsight.query.request import Filters, Group, MetricQuery, Selected
from secondsight.query.times import format_width
from secondsight.store.clusters import CLUSTER_KINDS, WIDTHS_MS
from secondsight.store.coarse import CLUSTER, FINEST
from secondsight.store.schema import raw_table, rollup_table

RAW_MS = 1_000
RAW_RANGE_MAXIMUM_MS = 900_000
POINTS_WANTED = 2_000
POINTS_MAXIMUM = 12_000
CELLS_MAXIMUM = 2_000_000
RAW_ROWS_MAXIMUM = 100_000_000
SKETCH_ROWS_MINIMUM = 2_000_000
"""Percentiles over more 1 s rows than this are read from sketches, within their stated error."""
LOOKBACK_SHORT_MS = 600_000
LOOKBACK_ENTITIES = 64
GRACE_MS = 10_000
BEHIND_MAXIMUM_MS = 900_000
POOLED = frozenset(
    {Aggregate.AVG, Aggregate.MIN, Aggregate.MAX, Aggregate.COUNT, Aggregate.RATE, Aggregate.INCREASE, *QUANTILES}
)
"""Aggregates that rows of whole clusters give."""

HISTOGRAMS = "histograms_1s"
"""Table of the samples of histograms of all kinds."""
_DAY_MS = 86_400_000
MONTH_MS = 31 * _DAY_MS
LEAST_MS = ((_DAY_MS, 300_000), (7 * _DAY_MS, 3_600_000))
"""Range beyond which a width of windows is the least."""
_NICE_MS = tuple(
    seconds * 1000 for seconds in (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
)


@dataclass(frozen=True, slots=True)
class Span:
    """Half open range of epoch ms."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Leg:
    """A range that is read from the rollups of one resolution."""

    resolution: str
    span: Span

    @property
    def is_pooled(self) -> bool:
        """Tell whether it is read from rows of whole clusters."""
        return self.resolution.startswith(CLUSTER)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A range of one table where duplicates may be unmerged."""

    table: str
    span: Span


@dataclass(frozen=True, slots=True)
class Situation:
    """What a planner knows of the scope, looked up before.

    Attributes:
        now_ms: Time of the question.
        entities: Entities and parts that the filters admit; 0 where unknown.
        rollup_through_ms: Up to where 30 s rollups are written for all of them, or None.
        coarse_through_ms: Coarser resolution -> up to where its rollups are made for all of them, those of clusters
            too.
        several_sources: True where some entity has several collectors.
        rewrites: Ranges to read with FINAL.
        interval_ms: Finest cadence in scope.
    """

    now_ms: int
    entities: int = 0
    rollup_through_ms: int | None = None
    coarse_through_ms: tuple[tuple[str, int], ...] = ()
    several_sources: bool = True
    rewrites: tuple[Rewrite, ...] = ()
    interval_ms: int = 1000


@dataclass(frozen=True, slots=True)
class SeriesPlan:
    """How one metric is read.

    Attributes:
        span: Asked range, widened to whole windows.
        resolution_ms: Width of an output window; the whole range when `whole`.
        base_ms: Windows that figures are made in before they are merged into output windows.
        head: Range before `rollup` that is no full window and is read from 1 s rows, or None.
        rollup: Range read from rollups, or None.
        legs: The parts of it by resolution, in order; empty where there is no such range.
        raw: Range read from 1 s rows, or None; begins where `rollup` ends.
        due_ms: Slots from here on may still be on their way; they are not counted.
        edges: Where output windows begin and the last one ends, where they follow the clocks of a zone.
        lookback_ms: How far before `raw` the sample before a counter's first one is looked for; 0 where none is.
        is_part: What lies before or behind it is read elsewhere, and gaps between both are still to be found.
    """

    selected: Selected
    filters: Filters
    groups: tuple[Group, ...]
    span: Span
    resolution_ms: int
    base_ms: int
    whole: bool
    head: Span | None
    rollup: Span | None
    legs: tuple[Leg, ...]
    raw: Span | None
    final_rollup: bool
    final_raw: bool
    several_sources: bool
    due_ms: int
    lookback_ms: int
    edges: tuple[int, ...] = ()
    is_part: bool = False

    @property
    def is_pooled(self) -> bool:
        """Tell whether a part is read from rows of whole clusters."""
        return any(leg.is_pooled for leg in self.legs)

    @property
    def raw_table(self) -> str:
        """Return the table of 1 s rows."""
        return HISTOGRAMS if is_histogram(self.selected.metric) else raw_table(self.selected.metric.kind)

    def rollup_table(self, leg: Leg) -> str:
        """Return the table that a range is read from."""
        return rollup_table(self.selected.metric.kind, leg.resolution)

    def reads_final(self, leg: Leg) -> bool:
        """Tell whether duplicates in a range may be unmerged; coarse rows are few, and rewritten at any time."""
        return self.final_rollup or leg.resolution != FINEST


def plan_series(query: MetricQuery, selected: Selected, situation: Situation) -> SeriesPlan:
    """Return the plan for one metric of a request.

    Raises:
        Rejected(range_too_wide, too_many_series): It would cost more than one question may.
    """
    resolution_ms = choose_resolution(query, situation.now_ms)
    if is_histogram(selected.metric):
        situation = replace(situation, rollup_through_ms=None, coarse_through_ms=())
    exact = selected.aggregate in QUANTILES
    from_rollups = not exact and (query.whole or resolution_ms % WINDOW_MS == 0)
    narrow = query.to_ms - query.from_ms <= RAW_RANGE_MAXIMUM_MS
    step_ms = (WINDOW_MS if from_rollups and not narrow else RAW_MS) if query.whole else resolution_ms
    edges = _edges(query, resolution_ms, situation.now_ms)
    span = Span(edges[0], edges[-1]) if edges else _whole_windows(query, step_ms, situation.now_ms)
    grid_ms = gcd(*edges) if edges else resolution_ms
    head, rollup, raw = _split(span, situation.rollup_through_ms if from_rollups else None)
    usable = _usable(None if query.whole else grid_ms, situation, pooled=may_pool(query, selected))
    legs = () if rollup is None else tuple(_divided(rollup, usable))
    if exact and _raw_rows(span, situation) > SKETCH_ROWS_MINIMUM:
        head, rollup, legs, raw = _sketched(span, usable)
    end_ms = _settled_end(span, legs, situation.now_ms)
    if end_ms is not None and rollup is not None:
        rollup, raw = Span(rollup.from_ms, end_ms), None
        legs = tuple(leg for leg in legs if leg.span.to_ms <= end_ms)
    kind = selected.metric.kind
    _check_cost(query, selected, raw if exact else span, span, resolution_ms, situation)
    back_ms = LOOKBACK_MS if situation.entities <= LOOKBACK_ENTITIES else LOOKBACK_SHORT_MS
    if is_histogram(selected.metric):
        back_ms = 0 if selected.aggregate is Aggregate.BUCKET_LEVELS else LOOKBACK_MS
    elif selected.aggregate not in PAIRED:
        back_ms = 0
    return SeriesPlan(
        selected=selected,
        filters=query.filters,
        groups=query.groups_of(selected),
        span=span,
        resolution_ms=span.to_ms - span.from_ms if query.whole else resolution_ms,
        base_ms=WINDOW_MS if query.whole or grid_ms % WINDOW_MS == 0 else grid_ms,
        whole=query.whole,
        head=head,
        rollup=rollup,
        legs=legs,
        raw=raw,
        final_rollup=rewritten(rollup_table(kind), rollup, situation.rewrites),
        final_raw=any(rewritten(raw_table(kind), each, situation.rewrites, back_ms) for each in (head, raw)),
        several_sources=situation.several_sources,
        due_ms=min(span.to_ms, situation.now_ms - GRACE_MS, end_ms or span.to_ms),
        lookback_ms=back_ms,
        edges=edges,
    )


def _settled_end(span: Span, legs: Sequence[Leg], now_ms: int) -> int | None:
    """Return where a trend over more than a week may end: with the rows of clusters, if these are nearly up to date.

    The newest minutes would show in nothing but the last window, and cost more than all that is before them.
    """
    end_ms = max((leg.span.to_ms for leg in legs if leg.is_pooled), default=0)
    is_long = span.to_ms - span.from_ms > 7 * _DAY_MS
    return end_ms if is_long and 0 <= min(span.to_ms, now_ms) - end_ms <= BEHIND_MAXIMUM_MS else None


def may_pool(query: MetricQuery, selected: Selected) -> bool:
    """Tell whether rows of whole clusters answer a metric: no host and no GPU is named or told apart."""
    groups = query.groups_of(selected)
    is_narrow = query.filters.host or query.filters.gpu or Group.HOST in groups or Group.GPU in groups
    return selected.metric.kind in CLUSTER_KINDS and selected.aggregate in POOLED and not is_narrow


def reach_of(query: MetricQuery) -> Span:
    """Return a range that holds every row a request may be answered from, whatever its plans come to be."""
    window_ms = max(query.resolution_ms or 0, _NICE_MS[-1])
    return Span(max(query.from_ms - window_ms - LOOKBACK_MS, 0), query.to_ms + window_ms)


def choose_resolution(query: MetricQuery, now_ms: int) -> int:
    """Return the width of a window: as asked, else `automatic_resolution`; of percentiles beyond a month a day.

    Raises:
        Rejected(range_too_wide): The width asked for gives too many points.
    """
    range_ms = max(min(query.to_ms, now_ms) - query.from_ms, 1)
    if query.resolution_ms is None:
        has_percentile = any(selected.aggregate in QUANTILES for selected in query.selected)
        return _DAY_MS if has_percentile and range_ms > MONTH_MS else automatic_resolution(range_ms)
    if range_ms / query.resolution_ms > POINTS_MAXIMUM:
        wanted = format_width(automatic_resolution(range_ms))
        asked = format_width(query.resolution_ms)
        raise Rejected("range_too_wide", f"{asked} over this range is too many points", f"ask for resolution={wanted}")
    return query.resolution_ms


def automatic_resolution(range_ms: int) -> int:
    """Return 1 s up to 15 minutes, then the least round width that gives at most 2,000 points.

    Beyond a day it is a multiple of 5 min and beyond a week of 1 h, which rollups of all times have.
    """
    if range_ms <= RAW_RANGE_MAXIMUM_MS:
        return RAW_MS
    least_ms = max((width_ms for beyond_ms, width_ms in LEAST_MS if range_ms > beyond_ms), default=WINDOW_MS)
    fitting = [width_ms for width_ms in _NICE_MS if range_ms / width_ms <= POINTS_WANTED and width_ms >= least_ms]
    return fitting[0] if fitting else _DAY_MS


def _whole_windows(query: MetricQuery, step_ms: int, now_ms: int) -> Span:
    from_ms = query.from_ms // step_ms * step_ms
    to_ms = min(query.to_ms, max(now_ms, query.from_ms + 1))
    if query.whole:
        return Span(from_ms, max(to_ms // step_ms * step_ms, from_ms + step_ms))
    return Span(from_ms, -(-to_ms // step_ms) * step_ms)


def _edges(query: MetricQuery, resolution_ms: int, now_ms: int) -> tuple[int, ...]:
    """Return where the windows of a zone begin and the last one ends; nothing where they are those of UTC."""
    if query.whole or query.calendar is None or resolution_ms < FROM_MS:
        return ()
    return edges_of(query.calendar, resolution_ms, query.from_ms, min(query.to_ms, max(now_ms, query.from_ms + 1)))


def _split(span: Span, rollup_through_ms: int | None) -> tuple[Span | None, Span | None, Span | None]:
    """Return the part before the first full window, the windows whose rollups are stored, and the part behind them."""
    first_ms = -(-span.from_ms // WINDOW_MS) * WINDOW_MS
    cut_ms = min(rollup_through_ms or 0, span.to_ms) // WINDOW_MS * WINDOW_MS
    if cut_ms <= first_ms:
        return None, None, span
    head = Span(span.from_ms, first_ms) if span.from_ms < first_ms else None
    after = Span(cut_ms, span.to_ms) if cut_ms < span.to_ms else None
    return head, Span(first_ms, cut_ms), after


def _usable(resolution_ms: int | None, situation: Situation, *, pooled: bool) -> list[tuple[str, int, int]]:
    """Return (resolution, width, up to when it is made) of the coarse ones that may be read, the best one last.

    Args:
        resolution_ms: Width that coarse windows have to divide; None where the whole range is one window.
        situation: Up to where coarse rollups are made.
        pooled: Rows of whole clusters will do.
    """
    found = [
        (name, WIDTHS_MS[name], through_ms)
        for name, through_ms in situation.coarse_through_ms
        if (pooled or not name.startswith(CLUSTER)) and (resolution_ms is None or resolution_ms % WIDTHS_MS[name] == 0)
    ]
    return sorted(found, key=lambda one: (one[1], one[0].startswith(CLUSTER)))


def _sketched(
    span: Span, usable: Sequence[tuple[str, int, int]]
) -> tuple[Span | None, Span | None, tuple[Leg, ...], Span | None]:
    """Return the windows that sketches answer, these by resolution, and what is left to 1 s rows before and behind."""
    step_ms = min((width_ms for _, width_ms, _ in usable), default=1)
    through_ms = max((through_ms for _, _, through_ms in usable), default=0)
    first_ms = -(-span.from_ms // step_ms) * step_ms
    cut_ms = min(through_ms, span.to_ms) // step_ms * step_ms
    if cut_ms <= first_ms:
        return None, None, (), span
    sketched = Span(first_ms, cut_ms)
    legs = tuple(leg for leg in _divided(sketched, usable) if leg.resolution != FINEST)
    head, raw = Span(span.from_ms, first_ms), Span(cut_ms, span.to_ms)
    return head if head.from_ms < first_ms else None, sketched, legs, raw if cut_ms < span.to_ms else None


def _divided(span: Span, usable: Sequence[tuple[str, int, int]]) -> list[Leg]:
    """Divide a range of whole 30 s windows by the best resolution that each part can be read from."""
    if span.from_ms >= span.to_ms:
        return []
    if not usable:
        return [Leg(FINEST, span)]
    name, width_ms, through_ms = usable[-1]
    first_ms = -(-span.from_ms // width_ms) * width_ms
    last_ms = min(span.to_ms, through_ms) // width_ms * width_ms
    if last_ms <= first_ms:
        return _divided(span, usable[:-1])
    return [
        *_divided(Span(span.from_ms, first_ms), usable[:-1]),
        Leg(name, Span(first_ms, last_ms)),
        *_divided(Span(last_ms, span.to_ms), usable[:-1]),
    ]


def rewritten(table: str, span: Span | None, rewrites: Sequence[Rewrite], back_ms: int = 0) -> bool:
    """Tell whether duplicates may be unmerged in the range, or in what is read before it."""
    if span is None:
        return False
    return any(
        rewrite.table == table and rewrite.span.from_ms < span.to_ms and rewrite.span.to_ms > span.from_ms - back_ms
        for rewrite in rewrites
    )


def _raw_rows(span: Span | None, situation: Situation) -> int:
    """Return about how many 1 s rows a range holds."""
    return 0 if span is None else situation.entities * (span.to_ms - span.from_ms) // max(situation.interval_ms, 1)


def _check_cost(
    query: MetricQuery, selected: Selected, raw: Span | None, span: Span, resolution_ms: int, situation: Situation
) -> None:
    range_ms = span.to_ms - span.from_ms
    rows = _raw_rows(raw, situation)
    if selected.aggregate in QUANTILES and rows > RAW_ROWS_MAXIMUM:
        message = f"{selected.aggregate.value} over this range would read about {rows:,} rows"
        raise Rejected("range_too_wide", message, "ask for a shorter range or fewer entities, or for max")
    points = 1 if query.whole else range_ms // resolution_ms
    per_entity = Group.GPU in query.groups_of(selected)
    if per_entity and situation.entities * points > CELLS_MAXIMUM:
        message = f"{situation.entities:,} series of {points:,} points are too many for one answer"
        raise Rejected("too_many_series", message, "filter by cluster or host, group by cluster, or ask more coarsely")
