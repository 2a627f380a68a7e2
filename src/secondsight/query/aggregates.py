"""Say which aggregates exist, and which of them are legal for a metric."""

from enum import StrEnum

from secondsight.catalog.metric import Metric, MetricType, PartsAdd, RollupSet
from secondsight.errors import Rejected


class Aggregate(StrEnum):
    """How the samples of one window make one point."""

    AVG = "avg"
    MIN = "min"
    MAX = "max"
    LAST = "last"
    COUNT = "count"
    SUM = "sum"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"
    RATE = "rate"
    INCREASE = "increase"
    RESETS = "resets"
    CHANGES = "changes"
    BUCKET_GAINS = "bucket_gains"
    BUCKET_LEVELS = "bucket_levels"


BUCKETS = frozenset({Aggregate.BUCKET_GAINS, Aggregate.BUCKET_LEVELS})
"""Every bucket of a histogram as a series of its own, for programs that are of this code alone; see `buckets.py`."""

_LEVEL = (Aggregate.AVG, Aggregate.MIN, Aggregate.MAX, Aggregate.LAST, Aggregate.COUNT, Aggregate.SUM)

LEGAL: dict[RollupSet, tuple[Aggregate, ...]] = {
    RollupSet.DISTRIBUTION: (*_LEVEL, Aggregate.P50, Aggregate.P95, Aggregate.P99),
    RollupSet.LEVEL: _LEVEL,
    RollupSet.CONSTANT: (Aggregate.LAST,),
    RollupSet.INCREASE: (Aggregate.RATE, Aggregate.INCREASE, Aggregate.RESETS, Aggregate.LAST),
    RollupSet.STATE: (Aggregate.LAST, Aggregate.CHANGES),
    RollupSet.EVENT: (),
    RollupSet.HISTOGRAM: (
        Aggregate.P95,
        Aggregate.P50,
        Aggregate.P99,
        Aggregate.AVG,
        Aggregate.RATE,
        Aggregate.COUNT,
    ),
}

QUANTILES: dict[Aggregate, float] = {Aggregate.P50: 0.5, Aggregate.P95: 0.95, Aggregate.P99: 0.99}

PAIRED = frozenset({Aggregate.RATE, Aggregate.INCREASE, Aggregate.RESETS, Aggregate.CHANGES})
"""What a sample and the one before it say together."""

_UNSCALED = frozenset({Aggregate.COUNT, Aggregate.RESETS, Aggregate.CHANGES, *BUCKETS})
_PARTS_MIX = frozenset({Aggregate.MIN, Aggregate.MAX, Aggregate.COUNT, Aggregate.RESETS, Aggregate.CHANGES})
_PARTS_ADD = frozenset({Aggregate.SUM, Aggregate.INCREASE})


def legal_aggregates(metric: Metric) -> tuple[Aggregate, ...]:
    """Return the aggregates that a metric has, the usual ones first."""
    return LEGAL[metric.rollup] if metric.is_scalar else ()


def is_histogram(metric: Metric) -> bool:
    """Tell whether figures of a metric are made of what buckets gained."""
    return metric.rollup is RollupSet.HISTOGRAM


def choose_aggregate(metric: Metric, asked: str | None) -> Aggregate:
    """Return the aggregate asked for, or the metric's default: avg of gauges, rate of counters, last of states.

    Raises:
        Rejected(not_a_series): The metric is an event or an info.
        Rejected(illegal_aggregate): The metric's rollups do not hold it.
    """
    legal = LEGAL[metric.rollup] if is_histogram(metric) else legal_aggregates(metric)
    if not legal:
        events = f"`secondsight events --metric {metric.name}` and GET /v1/events have them"
        kind_hint = events if metric.type is MetricType.EVENT else ""
        raise Rejected("not_a_series", f"{metric.name} is of type {metric.type.value} and has no points", kind_hint)
    if not asked:
        return legal[0]
    if asked not in legal:
        names = ", ".join(legal)
        raise Rejected("illegal_aggregate", f"{asked!r} is not legal for {metric.name}", f"legal here: {names}")
    return Aggregate(asked)


def is_scaled(aggregate: Aggregate) -> bool:
    """Tell whether the figure is in the metric's unit, and so is multiplied by its resolution."""
    return aggregate not in _UNSCALED


def mixes_parts(metric: Metric, aggregate: Aggregate) -> bool:
    """Tell whether parts of an entity may fall into one series and the figure still be exact."""
    if not metric.labels:
        return True
    return aggregate in _PARTS_MIX or (aggregate in _PARTS_ADD and metric.parts_add is PartsAdd.SUM)


def unit_of(metric: Metric, aggregate: Aggregate) -> str:
    """Return the unit of the figure."""
    if is_histogram(metric) and aggregate in (Aggregate.COUNT, Aggregate.RATE):
        return "1" if aggregate is Aggregate.COUNT else "1/s"
    if aggregate is Aggregate.COUNT:
        return "s"
    if aggregate in _UNSCALED:
        return "1"
    return f"{metric.unit}/s" if aggregate is Aggregate.RATE else metric.unit
