"""Turn the bucket, sum and count samples of a histogram into a point.

An exposition counts cumulatively over buckets; a point does not. A histogram that contradicts itself is refused as a
whole, with the reason.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise

from secondsight.catalog.metric import Metric, Source
from secondsight.mapping.cells import HistogramPoint

BUCKETS, SUM, COUNT = "_bucket", "_sum", "_count"
"""What the name of a sample of a histogram ends with."""

COUNT_MAXIMUM = 2**63
NOT_MEASURED_COUNT = 50
"""So many observations that all took no time at all were not measured."""
NOT_MEASURED = "histogram_not_measured"
START_MS_MINIMUM, START_MS_MAXIMUM = 1e11, 1e14
"""Between 1973 and 5138; whatever else stands as a start is none."""


@dataclass(slots=True)
class Series:
    """The samples of one histogram of one entity, as they come.

    Attributes:
        source: Gives the factor to the metric's unit, for bounds and sum.
        buckets: (upper bound, cumulative count) in any order, as some exporters and federation sort bounds as texts.
        has_buckets: False for a summary, of which sum and count are a histogram of one bucket.
    """

    metric: Metric
    source: Source
    entity: str
    part: str
    buckets: list[tuple[float, float]] = field(default_factory=list)
    sum: float | None = None
    count: float | None = None
    start_ms: int = 0
    has_buckets: bool = True


def began_ms(seconds: float) -> int:
    """Return when a counter began, epoch ms, of the epoch seconds that a sample says; 0 where they are no time."""
    return int(seconds * 1000) if START_MS_MINIMUM <= seconds * 1000 < START_MS_MAXIMUM else 0


def histogram_point(series: Series) -> HistogramPoint:
    """Return the point that a series makes.

    Raises:
        ValueError: The samples do not make a histogram; the message is the reason's code.
    """
    if not series.has_buckets and series.count is not None:
        series.buckets = [(math.inf, series.count)]
    if not any(math.isnan(bound) for bound, _ in series.buckets):
        series.buckets = sorted(set(series.buckets))
    _require_buckets(series.buckets)
    total = series.buckets[-1][1]
    if series.count is not None and series.count != total:
        raise ValueError("histogram_count")
    if series.sum is None or not math.isfinite(series.sum):
        raise ValueError("histogram_sum")
    if is_not_measured(series.sum, total, series.buckets[0][1]):
        raise ValueError(NOT_MEASURED)
    counts = [int(count) for _, count in series.buckets]
    return HistogramPoint(
        series.metric,
        series.entity,
        series.part,
        tuple(bound * series.source.scale for bound, _ in series.buckets[:-1]),
        (counts[0], *(after - before for before, after in pairwise(counts))),
        series.sum * series.source.scale,
        series.start_ms,
    )


def is_not_measured(total: float, count: float, lowest: float) -> bool:
    """Tell whether values that add up to `total` were never measured: many, all in the lowest bucket, and all 0."""
    return total == 0 and count >= NOT_MEASURED_COUNT and lowest == count


def _require_buckets(buckets: list[tuple[float, float]]) -> None:
    if not buckets or buckets[-1][0] != math.inf:
        raise ValueError("histogram_no_inf")
    if any(not after[0] > before[0] for before, after in pairwise(buckets)):
        raise ValueError("histogram_order")
    if any(not 0 <= count < COUNT_MAXIMUM or count != int(count) for _, count in buckets):
        raise ValueError("histogram_value")
    if any(after[1] < before[1] for before, after in pairwise(buckets)):
        raise ValueError("histogram_decreasing")


def suffix_of(name: str) -> str:
    """Return which part of a histogram a sample name is."""
    return next((suffix for suffix in (BUCKETS, SUM, COUNT) if name.endswith(suffix)), BUCKETS)


def bound_of(text: str) -> float:
    """Return the upper bound that a label `le` says, NaN where it says none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
