"""Turn a plan for a histogram into figures: percentiles, means and rates of what its buckets gained.

A gain belongs to the window of the later sample of a pair, bucket by bucket. Where a bucket fell, or the host booted,
counting began anew, and all that is counted is gained; so the first sample gains nothing, nor one an hour after the
last, nor one whose bounds are others. A percentile lies on a straight line inside its bucket. Beyond the last bound
nothing is known: the bound is given, and the answer says so.

Buckets that were put on the grid of exponential ones may fall while later ones rise by as much and more: their source
counts more coarsely from then on, or widened what is zero. There counting began anew only where fewer are counted in
all.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.mapping.grid import GRID_BOUNDS
from secondsight.process.patterns import LOOKBACK_MS
from secondsight.query.aggregates import BUCKETS, QUANTILES, Aggregate
from secondsight.query.buckets import cut_buckets
from secondsight.query.compile import bucket, label_columns
from secondsight.query.coverage import Held, Key, held_of
from secondsight.query.plan import SeriesPlan, Span
from secondsight.query.rows import Figures
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import IDENTITY, LATE_MS, best_source, filter_predicates, keys, raw_bounds, with_products

F64 = NDArray[np.float64]
_MOVED = (
    "arrayMap(step -> toUInt64(step), arrayPopFront(arrayDifference(arrayPushFront(arrayMap(place -> least("
    "toInt64(arraySum(buckets)) - toInt64(arraySum(before)), arrayMax(arrayPushFront(arraySlice(arrayCumSum("
    "arrayMap((late, early) -> toInt64(late) - toInt64(early), buckets, before)), 1, place), 0))), "
    "arrayEnumerate(buckets)), 0))))"
)
"""Gains of buckets whose counts moved into later ones: of all up to a bound, as many as there ever were up to there."""
_TOLD = ("t", "interval_ms", "is_late", "boot_id", "bounds", "buckets", "total")


@dataclass(frozen=True, slots=True)
class Gained:
    """What histograms with the same bounds gained.

    Attributes:
        bounds: Upper bounds, ascending, in the metric's unit.
        counts: Gain of each bucket; one more than bounds.
        total: Sum of what was measured.
        span_ms: Time that the counted pairs span.
    """

    bounds: F64
    counts: F64
    total: float
    span_ms: int


def compile_histograms(plan: SeriesPlan, scope: Scope) -> Statement:
    """Return the statement whose rows are what buckets gained, by point and bounds, and one row per entity.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies the metric.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(plan.selected.metric.name)
    labels = label_columns(plan.groups)
    source = _pairs(plan, tables, parameters)
    columns = [
        *dict.fromkeys([*IDENTITY, *labels]),
        f"{bucket('t', plan, parameters)} AS bucket_ms",
        "bounds",
        *_figures(plan.selected.aggregate),
        "toInt64(sum(span_ms)) AS span",
        f"toInt64(countIf(is_slot AND t < {parameters.bind(plan.due_ms, 'Int64')})) AS slots",
        "min(t) AS first_ms",
        "max(t) AS last_ms",
        "toInt64(0) AS gaps",
        "toInt64(countIf(is_late)) AS late",
        "toInt64(count()) AS rows",
        "grouping(bucket_ms) AS is_entity",
    ]
    sets = f"GROUP BY GROUPING SETS (({', '.join(['bucket_ms', 'bounds', *labels])}), ({', '.join(IDENTITY)}))"
    return Statement(select(columns, source, tail=[sets])[1:-1], parameters.values())


def _figures(aggregate: Aggregate) -> tuple[str, str]:
    """Return the columns for what is counted by bucket, and the sum of what was measured."""
    if aggregate is Aggregate.BUCKET_LEVELS:
        return "argMax(buckets, t) AS counts", "argMax(told_total, t) AS total"
    return "sumForEach(gained) AS counts", "sum(gained_total) AS total"


def figures_of_histograms(parts: Sequence[Any], plan: SeriesPlan) -> Figures:
    """Return the points of a plan from the rows of `compile_histograms` of each part of its range, in order of time."""
    rows, stored = _split(parts)
    points: dict[tuple[str, ...], dict[int, list[Gained]]] = defaultdict(lambda: defaultdict(list))
    names = label_columns(plan.groups)
    late, count = (sum(int(np.sum(part[name].to_numpy())) for part in stored) for name in ("late", "rows"))
    if plan.selected.aggregate in BUCKETS:
        return Figures(cut_buckets(rows, names, plan.selected.aggregate), _held(stored), late, count)
    for row in rows:
        if row["span"]:
            label = tuple(row[name] or "" for name in names)
            gained = Gained(np.array(row["bounds"]), np.array(row["counts"], np.float64), row["total"], row["span"])
            points[label][row["bucket_ms"]].append(gained)
    cut, above = [], 0
    for label in sorted(points):
        times = sorted(points[label])
        found = [figure_of(points[label][time], plan.selected.aggregate) for time in times]
        above += sum(is_above for _, is_above in found)
        figures = np.array([figure for figure, _ in found], np.float64)
        there = ~np.isnan(figures)
        cut.append((dict(zip(names, label, strict=True)), np.array(times, np.int64)[there], figures[there]))
    return Figures([one for one in cut if one[1].size], _held(stored), late, count, _notes(plan, above))


def _split(parts: Sequence[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the rows about points, and the tables of those about entities."""
    points, stored = [], []
    for part in parts:
        is_entity = part["is_entity"].to_numpy() == 1
        points += part.filter(~is_entity).to_pylist()
        stored.append(part.filter(is_entity))
    return points, stored


def _held(stored: Sequence[Any]) -> dict[Key, Held]:
    held: dict[Key, Held] = {}
    for part in stored:
        for key, found in held_of(part).items():
            held[key] = held[key].before(found, counts_gaps=False) if key in held else found
    return held


def figure_of(gained: Sequence[Gained], aggregate: Aggregate) -> tuple[float, bool]:
    """Return a figure of what histograms gained together, NaN where there is none, and whether more may be true."""
    count = sum(float(each.counts.sum()) for each in gained)
    if aggregate in QUANTILES:
        return _quantile(gained, QUANTILES[aggregate], count)
    if aggregate is Aggregate.AVG:
        return (sum(each.total for each in gained) / count if count else np.nan), False
    if aggregate is Aggregate.RATE:
        return count * 1000 / sum(each.span_ms for each in gained), False
    return count, False


def _quantile(gained: Sequence[Gained], share: float, count: float) -> tuple[float, bool]:
    if not count:
        return np.nan, False
    edges = np.unique(np.concatenate([each.bounds for each in gained]))
    if not edges.size:
        return np.nan, False
    below = np.sum([_below(each, edges) for each in gained], axis=0)
    rank = share * count
    place = int(np.searchsorted(below, rank))
    if place == edges.size:
        return float(edges[-1]), True
    low, before = (float(edges[place - 1]), float(below[place - 1])) if place else (min(0.0, float(edges[0])), 0.0)
    inside = float(below[place]) - before
    return low + (float(edges[place]) - low) * ((rank - before) / inside if inside else 1.0), False


def _below(gained: Gained, edges: F64) -> F64:
    """Return how many of a histogram's values lie below each edge, on straight lines between its own bounds."""
    known = np.cumsum(gained.counts[: gained.bounds.size])
    first = min(0.0, float(gained.bounds[0])) if gained.bounds.size else 0.0
    below: F64 = np.interp(edges, np.append(first, gained.bounds), np.append(0.0, known))
    return below


def _notes(plan: SeriesPlan, above: int) -> tuple[str, ...]:
    if not above:
        return ()
    aggregate, name = plan.selected.aggregate.value, plan.selected.metric.name
    return (f"{aggregate} of {name} lies above its last bound in {above} windows; the bound is shown",)


def _pairs(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    """Return the subquery of samples with what their buckets gained since the sample before."""
    start = parameters.bind((plan.raw or plan.span).from_ms, "Int64")
    apart = f"prev_t > 0 AND t - prev_t <= {LOOKBACK_MS} AND bounds = prev_bounds"
    booted = "boot_id != prev_boot AND boot_id != '' AND prev_boot != ''"
    fell = "arrayExists((late, early) -> late < early, buckets, before)"
    fewer = f"(length(buckets) != {len(GRID_BOUNDS) + 1} OR arraySum(buckets) < arraySum(before))"
    grown = "arrayMap((late, early) -> if(late >= early, toUInt64(late - early), toUInt64(0)), buckets, before)"
    columns = [
        *keys(plan),
        "collector_id",
        "source_rank",
        "t",
        "is_late",
        "bounds",
        f"intDiv(t, {parameters.bind(plan.base_ms, 'Int64')}) AS window_ms",
        "arrayResize(prev_buckets, length(buckets)) AS before",
        f"{apart} AS is_pair",
        f"{fell} AS has_fallen",
        f"({booted}) OR (has_fallen AND {fewer}) AS is_restart",
        f"multiIf(NOT is_pair, arrayResize(buckets, 0), is_restart, buckets, has_fallen, {_MOVED}, {grown}) AS gained",
        "if(is_pair, if(is_restart, total, total - prev_total), 0.) AS gained_total",
        "if(is_pair, t - prev_t, 0) AS span_ms",
        *(("buckets", "total AS told_total") if plan.selected.aggregate is Aggregate.BUCKET_LEVELS else ()),
        "intDiv(t, interval_ms) != intDiv(prev_t, interval_ms) AS is_slot",
    ]
    tail = [best_source("window_ms")] if plan.several_sources else []
    made = select(columns, _neighbours(plan, tables, parameters), where=[f"t >= {start}"], tail=tail)
    return with_products(made, tables) if "gpu_model" in label_columns(plan.groups) else made


def _neighbours(plan: SeriesPlan, tables: ScopedTables, parameters: Parameters) -> str:
    metric, span = plan.selected.metric, plan.raw or plan.span
    rows = tables.table(
        plan.raw_table,
        [
            *keys(plan),
            "collector_id",
            "source_rank",
            "boot_id",
            "toUnixTimestamp64Milli(event_time) AS t",
            "toInt64(greatest(interval_ms, 1)) AS interval_ms",
            f"toUnixTimestamp64Milli(ingest_time) - t > {LATE_MS} AS is_late",
            "bounds",
            "buckets",
            "sum AS total",
        ],
        [
            *raw_bounds(Span(span.from_ms - plan.lookback_ms, span.to_ms), parameters),
            f"kind = {parameters.bind(metric.kind.value, 'String')}",
            f"metric = {parameters.bind(metric.name, 'String')}",
            *filter_predicates(plan.filters, tables, parameters),
        ],
        final=True,
    )
    before = ["lagInFrame(t, 1, 0) OVER series AS prev_t"]
    before += [f"lagInFrame({name}) OVER series AS prev_{new}" for name, new in _lagged()]
    partition = ", ".join([*IDENTITY, "collector_id"])
    window = f"WINDOW series AS (PARTITION BY {partition} ORDER BY t ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    return select([*keys(plan), "collector_id", "source_rank", *_TOLD, *before], rows, tail=[window])


def _lagged() -> Iterator[tuple[str, str]]:
    names = {"boot_id": "boot"}
    return ((name, names.get(name, name)) for name in ("boot_id", "bounds", "buckets", "total"))
