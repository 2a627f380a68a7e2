"""Turn histograms whose buckets grow by a fixed factor into histograms of fixed bounds, without state.

Buckets of 2^(1/2^scale) come with any scale and offset, which move with the data. A stored histogram keeps its bounds,
so every one is put on the same grid: four buckets for each power of two, from 2^-20 to 2^20. A scale finer than that
merges exactly; a coarser one fills each of its buckets' upper ends, so that counts at its own bounds stay exact. What
lies below the grid, negatives included, is in the first bucket, what lies above in the last, and what counts as zero
where it may lie at most.
"""

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from secondsight.gateway.foreign.points import STALE_BITS, HistogramSample
from secondsight.mapping.grid import GRID_BOUNDS, GRID_FIRST, GRID_SCALE

CUSTOM_SCALE = -53
"""The schema of a histogram with bounds of its own."""
SCALES = range(-10, 21)
GAUGE_HINT = 3
"""Says that buckets hold what is there now, and not what was counted since the start."""
BUCKETS_MAXIMUM = 20_000
BOUNDS_MAXIMUM = 1_000
COUNT_MAXIMUM = 2**63

Buckets = Iterable[tuple[int, int]]
"""(step, count): values up to base^step and above base^(step - 1)."""


def on_grid(scale: int, positive: Buckets, below: int, zeros: tuple[float, int]) -> tuple[int, ...]:
    """Return the counts of the grid's buckets, one more than `GRID_BOUNDS`.

    Args:
        scale: Base is 2^(1/2^scale).
        positive: Buckets of positive values.
        below: How many values are negative.
        zeros: (threshold, count) of the values that are no further from zero than that.
    """
    counts = [0] * (len(GRID_BOUNDS) + 1)
    counts[0] = below
    threshold, count = zeros
    counts[bisect_left(GRID_BOUNDS, threshold)] += count
    for step, count in positive:
        counts[_place(step, scale)] += count
    return tuple(counts)


def histogram_sample(series: int, histogram: Any, created_ms: int) -> HistogramSample:
    """Return the reading that a `Histogram` message of remote write makes."""
    start_ms = histogram.start_timestamp or created_ms
    if _is_stale(histogram.sum):
        return HistogramSample(series, (), (), 0.0, histogram.timestamp, start_ms)
    try:
        if histogram.reset_hint == GAUGE_HINT:
            raise ValueError("histogram_gauge")  # noqa: TRY301 - one way out for all faults
        bounds, buckets = _custom(histogram) if histogram.schema == CUSTOM_SCALE else _exponential(histogram)
        _require_count(histogram, buckets)
    except ValueError as error:
        return HistogramSample(series, (), (), 0.0, histogram.timestamp, fault=str(error))
    return HistogramSample(series, bounds, buckets, histogram.sum, histogram.timestamp, start_ms)


def require_bounds(bounds: Sequence[float]) -> None:
    """Check that bounds are finite, ascending and not too many.

    Raises:
        ValueError
    """
    ascending = all(after > before for before, after in pairwise(bounds))
    if len(bounds) > BOUNDS_MAXIMUM or not ascending or not all(map(math.isfinite, bounds)):
        raise ValueError("histogram_order")


def _place(step: int, scale: int) -> int:
    """Return the bucket of the grid that holds the upper end of a bucket."""
    if scale >= GRID_SCALE:
        shift = scale - GRID_SCALE
        upper = -(-step >> shift)
    else:
        upper = step << (GRID_SCALE - scale)
    return min(max(upper - GRID_FIRST, 0), len(GRID_BOUNDS))


def _exponential(histogram: Any) -> tuple[tuple[float, ...], tuple[int, ...]]:
    if histogram.schema not in SCALES:
        raise ValueError("histogram_schema")
    zeros = _whole(histogram.zero_count_float) if histogram.HasField("zero_count_float") else histogram.zero_count_int
    below = sum(count for _, count in _buckets(histogram, "negative"))
    positive = _buckets(histogram, "positive")
    return GRID_BOUNDS, on_grid(histogram.schema, positive, below, (histogram.zero_threshold, zeros))


def _custom(histogram: Any) -> tuple[tuple[float, ...], tuple[int, ...]]:
    bounds = tuple(bound for bound in histogram.custom_values if bound != math.inf)
    require_bounds(bounds)
    counts = [0] * (len(bounds) + 1)
    for step, count in _buckets(histogram, "positive"):
        if not 0 <= step < len(counts):
            raise ValueError("histogram_spans")
        counts[step] += count
    return bounds, tuple(counts)


def _buckets(histogram: Any, side: str) -> Iterator[tuple[int, int]]:
    """Give (step, count) of one side.

    Raises:
        ValueError: Spans and counts do not fit each other, or a count is impossible.
    """
    steps = list(_steps(getattr(histogram, f"{side}_spans")))
    counts = _counts(getattr(histogram, f"{side}_deltas"), getattr(histogram, f"{side}_counts"))
    if len(steps) != len(counts):
        raise ValueError("histogram_spans")
    if any(not 0 <= count < COUNT_MAXIMUM for count in counts):
        raise ValueError("histogram_value")
    yield from zip(steps, counts, strict=True)


def _steps(spans: Iterable[Any]) -> Iterator[int]:
    step = total = 0
    for span in spans:
        step += span.offset
        total += span.length
        if total > BUCKETS_MAXIMUM:
            raise ValueError("histogram_spans")
        yield from range(step, step + span.length)
        step += span.length


def _counts(deltas: Sequence[int], floats: Sequence[float]) -> list[int]:
    if floats:
        return [_whole(count) for count in floats]
    counts, count = [], 0
    for delta in deltas:
        count += delta
        counts.append(count)
    return counts


def _require_count(histogram: Any, buckets: tuple[int, ...]) -> None:
    """Check that the buckets hold what the histogram says, and that its sum is a number.

    Raises:
        ValueError
    """
    count = _whole(histogram.count_float) if histogram.HasField("count_float") else histogram.count_int
    if sum(buckets) != count:
        raise ValueError("histogram_count")
    if not math.isfinite(histogram.sum):
        raise ValueError("histogram_sum")


def _whole(count: float) -> int:
    if not abs(count) < COUNT_MAXIMUM or count != int(count):
        raise ValueError("histogram_value")
    return int(count)


def _is_stale(value: float) -> bool:
    return math.isnan(value) and struct.pack("<d", value) == struct.pack("<Q", STALE_BITS)
