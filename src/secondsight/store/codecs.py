"""Choose the compression codec of a metric's columns by what the metric measures.

The classes were measured (`bench/codecs.py`, `docs/decisions/0003-codecs.md`). Values that stand still or move by steps
are small after Delta. Noisy ones are small after T64 has dropped the bits that a block does not use, of differences,
as neighbours in time are alike, and of multiples of what the source steps by, which may be coarser than the catalogue's
resolution.
"""

from secondsight.catalog.metric import Metric, MetricType, RollupSet

PLAIN = "ZSTD(1)"
TIMES = "DoubleDelta,ZSTD(1)"
STEPS = "Delta,ZSTD(1)"
NOISE = "GCD,Delta,T64('bit'),ZSTD(1)"

_SWITCHED_UNITS = frozenset({"Hz"})
_NOISY_GAUGE_UNITS = frozenset({"W", "Cel"})
_BUSY_COUNTER_UNITS = frozenset({"By", "J"})


def codec_of(metric: Metric) -> str:
    """Return the codec of the metric's raw column and of the members that keep raw values."""
    if metric.dtype == "f64" or metric.unit in _SWITCHED_UNITS:
        return PLAIN
    if metric.rollup in (RollupSet.CONSTANT, RollupSet.STATE):
        return STEPS
    if is_noisy(metric):
        return NOISE
    return TIMES if metric.type is MetricType.COUNTER and metric.unit == "s" else STEPS


def is_noisy(metric: Metric) -> bool:
    """Tell whether successive values mostly differ: power, temperatures, ratios, rates, counters that always run."""
    if metric.type is MetricType.COUNTER:
        return metric.unit in _BUSY_COUNTER_UNITS
    is_ratio = metric.unit == "1" and metric.resolution < 1
    return is_ratio or metric.unit.endswith("/s") or metric.unit in _NOISY_GAUGE_UNITS
