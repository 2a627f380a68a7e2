"""Say which columns a rollup keeps of a metric, and which aggregates a reader may ask for.

Both follow from the rollup set, as data. There is no mean of a counter and no sum of a state to ask for.
"""

from dataclasses import dataclass
from enum import StrEnum

from secondsight.catalog.metric import Metric, MetricType, RollupSet
from secondsight.errors import Rejected


class Merge(StrEnum):
    """How a member of a coarser window follows from those of finer ones, in the order of their time."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    OR = "or"
    SKETCH = "sketch"
    NONE = "none"


class Holds(StrEnum):
    """What a member holds, which decides how it is stored."""

    VALUE = "value"
    WEIGHTED_SUM = "weighted_sum"
    INCREASE = "increase"
    SECONDS = "seconds"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Member:
    """One column of a rollup table: `<metric>_<suffix>`.

    Attributes:
        suffix: What follows the metric's name.
        merge: How it merges over time; NONE where a coarser one is read from something else (the sketch).
        holds: VALUE, WEIGHTED_SUM (value x covered seconds) and INCREASE are in the metric's stored unit; SECONDS are
            seconds; EVENTS are plain counts.
        exceptional: True where the column is kept only in rows in which it differs from the row's covered seconds.
    """

    suffix: str
    merge: Merge
    holds: Holds = Holds.VALUE
    exceptional: bool = False

    def column(self, metric: Metric) -> str:
        """Return the name of the column of this member of a metric."""
        return f"{metric.name}_{self.suffix}"

    def dtype(self, metric: Metric) -> str:
        """Return the stored dtype of this member of a metric, one of `metric.DTYPES`."""
        match self.holds:
            case Holds.VALUE:
                return metric.dtype
            case Holds.WEIGHTED_SUM | Holds.INCREASE:
                return "f64" if metric.dtype == "f64" else f"{metric.dtype[0]}64"
            case Holds.SECONDS | Holds.EVENTS:
                return "u32"


def may_wrap(metric: Metric, span_ms: int) -> bool:
    """Tell whether a sum of value x milliseconds over so long may leave 64 bits, for what the metric may hold."""
    if metric.dtype not in ("u64", "i64"):
        return False
    if metric.maximum is None or (metric.minimum is None and metric.dtype == "i64"):
        return True
    return max(abs(metric.minimum or 0), abs(metric.maximum)) / (metric.resolution or 1) * span_ms >= 2**63


COUNT = Member("count", Merge.SUM, Holds.SECONDS, exceptional=True)
"""Covered seconds of a gauge: the weight of its mean."""

SECONDS = Member("seconds", Merge.SUM, Holds.SECONDS, exceptional=True)
"""Seconds that the counted pairs of a counter span: the divisor of its rate."""

SUM = Member("sum", Merge.SUM, Holds.WEIGHTED_SUM)
MIN = Member("min", Merge.MIN)
MAX = Member("max", Merge.MAX)
FIRST = Member("first", Merge.FIRST)
LAST = Member("last", Merge.LAST)
P95 = Member("p95", Merge.NONE)
INCREASE = Member("increase", Merge.SUM, Holds.INCREASE)
RESETS = Member("resets", Merge.SUM, Holds.EVENTS)
CHANGES = Member("changes", Merge.SUM, Holds.EVENTS)
OR = Member("or", Merge.OR)

LEVEL_MEMBERS = (SUM, MIN, MAX, LAST, COUNT)

MEMBERS: dict[RollupSet, tuple[Member, ...]] = {
    RollupSet.DISTRIBUTION: (*LEVEL_MEMBERS, P95),
    RollupSet.LEVEL: LEVEL_MEMBERS,
    RollupSet.CONSTANT: (LAST,),
    RollupSet.INCREASE: (INCREASE, SECONDS, RESETS, FIRST, LAST),
    RollupSet.STATE: (LAST, CHANGES),
    RollupSet.EVENT: (),
    RollupSet.HISTOGRAM: (),
}
"""Columns of each rollup set; events, infos and histograms are kept in tables of their own."""


class Aggregate(StrEnum):
    """What a reader may ask for; no value of it is a mean of a counter."""

    AVG = "avg"
    MIN = "min"
    MAX = "max"
    LAST = "last"
    P50 = "p50"
    P95 = "p95"
    P99 = "p99"
    RATE = "rate"
    INCREASE = "increase"
    CHANGES = "changes"
    COUNT = "count"


LEVEL_AGGREGATES = (Aggregate.AVG, Aggregate.MIN, Aggregate.MAX, Aggregate.LAST)
QUANTILES = (Aggregate.P50, Aggregate.P95, Aggregate.P99)

AGGREGATES: dict[RollupSet, tuple[Aggregate, ...]] = {
    RollupSet.DISTRIBUTION: (*LEVEL_AGGREGATES, *QUANTILES),
    RollupSet.LEVEL: LEVEL_AGGREGATES,
    RollupSet.CONSTANT: (Aggregate.LAST,),
    RollupSet.INCREASE: (Aggregate.RATE, Aggregate.INCREASE),
    RollupSet.STATE: (Aggregate.LAST, Aggregate.CHANGES),
    RollupSet.EVENT: (Aggregate.COUNT,),
    RollupSet.HISTOGRAM: (Aggregate.P95, Aggregate.P50, Aggregate.P99, Aggregate.AVG, Aggregate.COUNT),
}
"""Legal aggregates of each rollup set; the first one is the default."""


def members(metric: Metric) -> tuple[Member, ...]:
    """Return the columns that rollups keep of a metric; a bitmask also keeps the OR of its bits."""
    if not metric.is_scalar:
        return ()
    return (*MEMBERS[metric.rollup], OR) if metric.bitmask else MEMBERS[metric.rollup]


def keeps_sketch(metric: Metric) -> bool:
    """Tell whether rollups from 5 min up keep a mergeable quantile sketch of the metric."""
    return metric.rollup is RollupSet.DISTRIBUTION


def aggregates(metric: Metric) -> tuple[Aggregate, ...]:
    """Return the aggregates that a reader may ask for, the default first."""
    return (Aggregate.LAST,) if metric.type is MetricType.INFO else AGGREGATES[metric.rollup]


def default_aggregate(metric: Metric) -> Aggregate:
    """Return the aggregate of a reader who names none: avg of gauges, rate of counters, last of states."""
    return aggregates(metric)[0]


def aggregate_of(metric: Metric, word: str) -> Aggregate:
    """Return the aggregate that a reader asked for, the default for an empty word.

    Raises:
        Rejected: `illegal_aggregate`, naming the legal ones.
    """
    legal = aggregates(metric)
    if not word:
        return legal[0]
    if word not in legal:
        hint = f"one of {', '.join(legal)}"
        raise Rejected("illegal_aggregate", f"{word} of {metric.name}, a {metric.type}, means nothing", hint)
    return Aggregate(word)
