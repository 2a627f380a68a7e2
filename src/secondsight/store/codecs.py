"""Choose the compression codec of a metric's columns by what the metric measures.

The classes were measured (`bench/layout.py`, `docs/decisions/0003-codecs.md`): values that move by steps in both
directions are small after Delta, noisy ones only after T64 has dropped the bits that none of them uses.
"""

from secondsight.catalog.metric import Metric, MetricType, RollupSet

PLAIN = "ZSTD(1)"
TIMES = "DoubleDelta,ZSTD(1)"
STEPS = "Delta,ZSTD(1)"
NOISE = "T64('bit'),ZSTD(1)"
NOISY_STEPS = "Delta,T64('bit'),ZSTD(1)"

_PERCENT_RESOLUTION = 1e-4
_SWITCHED_UNITS = frozenset({"Hz"})
_NOISY_STEP_UNITS = frozenset({"W", "J"})


def codec_of(metric: Metric) -> str:
    """Return the codec of the metric's raw column and of the members that keep raw values."""
    if metric.dtype == "f64" or metric.type is MetricType.STATE or metric.rollup is RollupSet.CONSTANT:
        return PLAIN
    if metric.unit in _SWITCHED_UNITS:
        return PLAIN
    if metric.unit in _NOISY_STEP_UNITS:
        return NOISY_STEPS
    if is_noisy(metric):
        return NOISE
    return STEPS


def is_noisy(metric: Metric) -> bool:
    """Tell whether successive values of a gauge share little but their width: fine ratios and byte rates."""
    if metric.type is not MetricType.GAUGE:
        return False
    return metric.unit.endswith("/s") or (metric.unit == "1" and metric.resolution < _PERCENT_RESOLUTION)
