"""Turn source values into stored values, and stored values into physical ones.

A stored scalar is an integer, physical value = stored x resolution, so what a source gave comes back as it was. The
order of the checks is fixed: sentinels on the source value, then the range, then the scale. Absent is never 0.
Scales and resolutions are decimal numbers, so factors are kept as exact fractions.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.dtype import NUMPY_DTYPES, dtype_limits
from secondsight.catalog.metric import Metric, MetricType, Source, Width
from secondsight.model import Quality

Cell = tuple[float | None, Quality]
"""A stored value, or None where the quality carries none."""

BLANK_VALUES = {Width.INT32: 0x7FFFFFF0, Width.INT64: 0x7FFFFFFFFFFFFFF0, Width.FP64: 2**47}
"""First sentinel of each width; not found, not supported and not permissioned follow it."""

SENTINEL_QUALITIES = (
    Quality.ABSENT_SOURCE_BLANK,
    Quality.ABSENT_SOURCE_BLANK,
    Quality.ABSENT_NOT_SUPPORTED,
    Quality.ABSENT_NO_PERMISSION,
)
"""What the sentinels of a width mean, in their order: blank, not found, not supported, not permissioned."""

INT64_AS_FLOAT = 2**63 - 1024
"""Greatest float below 2^63: every int64 sentinel rounds to a float at or above it."""

BOUNDED_UNITS = ("W", "Cel")
"""Units in which, as for ratios, no true value comes near 2^47, whatever the width of the source."""

CODE_RESOLUTION = 1.0
"""An event has no column, its code is checked as it is."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What one source of one metric needs to become a cell; make it once and keep it for a hot path.

    Bounds are in source units, the rest is in stored units. Stored = source value x numerator / denominator.
    """

    sentinel: float
    absent: tuple[float, ...]
    translate: tuple[tuple[float, float], ...]
    least: float
    greatest: float
    clamp_above: float
    clamp_stored: float
    cap: float | None
    numerator: int
    denominator: int
    factor: float
    dtype: str
    legal: tuple[int, ...]
    whole: bool
    quality: Quality

    def one(self, value: float) -> Cell:
        """Return the cell of one source value; integers are converted exactly."""
        quality = self._refusal(value)
        if quality is not None:
            return None, quality
        if self.translate:
            value = dict(self.translate)[value]
        if value > self.clamp_above:
            return self.clamp_stored, self.quality
        stored = self._stored(value)
        low, high = dtype_limits(self.dtype)
        if not low <= stored <= high or (self.legal and stored not in self.legal):
            return None, Quality.BAD_RANGE
        return stored, self.quality

    def many(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return stored values (0 where there is none) and quality codes of many source values.

        Args:
            values: Source values, an integer or float array; integers are converted exactly.
        """
        if self.translate:
            return self._each(values)
        quality = self._refusals(values)
        ok = quality == self.quality
        stored = self._stored_array(np.where(ok, values, 0))
        low, high = dtype_limits(self.dtype)
        quality[ok & ~((stored >= low) & (stored < high + 1) & self._is_legal(stored))] = Quality.BAD_RANGE
        stored = np.where(values > self.clamp_above, self.clamp_stored, stored)
        kept = np.where(quality == self.quality, stored, 0)
        return kept.astype(NUMPY_DTYPES[self.dtype]), quality

    def _refusal(self, value: float) -> Quality | None:
        """Return why a source value has no stored one, None if it has."""
        if math.isnan(value) or value in self.absent:
            return Quality.ABSENT_SOURCE_BLANK
        if value >= self.sentinel and not math.isinf(value):
            return self._sentinel_quality(value)
        if self.translate and value not in dict(self.translate):
            return Quality.BAD_RANGE
        if self.cap is not None and value == self.cap:
            return Quality.SATURATED
        legal = self.least <= value <= self.greatest and not math.isinf(value)
        if not legal or (self.whole and value != int(value)):
            return Quality.BAD_RANGE
        return None

    def _refusals(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        quality = np.full(values.shape, self.quality, np.uint8)
        quality[~((values >= self.least) & (values <= self.greatest) & np.isfinite(values))] = Quality.BAD_RANGE
        if self.whole:
            quality[values != np.trunc(values)] = Quality.BAD_RANGE
        if self.cap is not None:
            quality[values == self.cap] = Quality.SATURATED
        for index in np.flatnonzero((values >= self.sentinel) & np.isfinite(values)):
            quality[index] = self._sentinel_quality(values[index].item())
        for absent in self.absent:
            quality[values == absent] = Quality.ABSENT_SOURCE_BLANK
        quality[np.isnan(values)] = Quality.ABSENT_SOURCE_BLANK
        return quality

    def _is_legal(self, stored: NDArray[Any]) -> Any:
        return np.isin(stored, self.legal) if self.legal else True

    def _sentinel_quality(self, value: float) -> Quality:
        step = value - _first_sentinel(value)
        return SENTINEL_QUALITIES[int(step)] if step in (0, 1, 2, 3) else Quality.ABSENT_SOURCE_BLANK

    def _stored(self, value: float) -> float:
        if self.dtype == "f64":
            return value * self.factor
        if isinstance(value, int):
            return (value * self.numerator + self.denominator // 2) // self.denominator
        scaled = value * self.numerator / self.denominator
        return scaled if math.isinf(scaled) else round(scaled)

    def _stored_array(self, values: NDArray[Any]) -> Any:
        if self.dtype == "f64":
            return values * self.factor
        if values.dtype.kind not in "iu":
            return np.rint(values * self.numerator / self.denominator)
        wide = values.astype(np.int64 if values.dtype.kind == "i" else np.uint64)
        whole, rest = np.divmod(wide, self.denominator)
        return whole * self.numerator + (rest * self.numerator + self.denominator // 2) // self.denominator

    def _each(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        cells = [self.one(value) for value in values.tolist()]
        stored = np.array([value or 0 for value, _ in cells], NUMPY_DTYPES[self.dtype])
        return stored, np.array([quality for _, quality in cells], np.uint8)


@lru_cache(maxsize=4096)
def conversion(metric: Metric, source: Source) -> Conversion:
    """Return how values of a source become cells of a metric; the newest few thousand are remembered.

    Raises:
        ValueError: The metric is an info or a histogram, which have no cell.
    """
    if metric.type in (MetricType.INFO, MetricType.HISTOGRAM):
        raise ValueError(f"{metric.name} is {metric.type}, which has no cell")
    resolution = metric.resolution if metric.dtype else CODE_RESOLUTION
    scale = Fraction(1) if source.translate else _fraction(source.scale)
    factor = scale / _fraction(resolution) if resolution else scale
    clamp = metric.clamp_maximum
    return Conversion(
        sentinel=_sentinel(metric, source),
        absent=source.absent,
        translate=source.translate,
        least=-math.inf if source.translate else _in_source_units(metric.minimum, scale, -math.inf),
        greatest=math.inf if source.translate else _greatest(metric, scale, factor),
        clamp_above=_in_source_units(clamp, scale, math.inf),
        clamp_stored=to_stored(metric, clamp) if clamp is not None else 0,
        cap=None if metric.cap is None else _in_source_units(metric.cap, scale, 0),
        numerator=factor.numerator,
        denominator=factor.denominator,
        factor=float(factor),
        dtype=metric.dtype or "u64",
        legal=() if metric.bitmask else tuple(value for value, _ in metric.values),
        whole=metric.type in (MetricType.STATE, MetricType.EVENT) and not source.translate,
        quality=Quality.ESTIMATE if source.estimate else Quality.OK,
    )


def check(metric: Metric, value: float, source: Source) -> Cell:
    """Return (stored value, quality) of one source value; the stored value is None where the quality carries none.

    Args:
        metric: Metric that the source gives.
        value: Value as the source gave it, unscaled; an integer where the source has integers.
        source: The source.
    """
    return conversion(metric, source).one(value)


def source_for_help(source: Source, help_text: str) -> Source:
    """Return the source with the scale that the HELP line of a scrape asks for, where the catalogue heeds it."""
    for text, scale in source.help_scales:
        if text in help_text:
            return replace(source, scale=scale)
    return source


def to_stored(metric: Metric, physical: float) -> float:
    """Return the stored value nearest to a physical one: an integer, or the value itself at resolution 0."""
    if metric.resolution == 0:
        return physical
    factor = 1 / _fraction(metric.resolution)
    return round(physical * factor) if isinstance(physical, int) else round(_times(physical, factor))


def to_physical(metric: Metric, stored: float) -> float:
    """Return the physical value of a stored one, in the metric's unit; the nearest double to its decimal form."""
    if metric.resolution == 0:
        return stored
    step = _fraction(metric.resolution)
    return stored * step.numerator if step.denominator == 1 else stored * step.numerator / step.denominator


def stored_array(metric: Metric, physical: NDArray[Any]) -> NDArray[Any]:
    """Return the stored values nearest to physical ones, in the metric's dtype; the values must fit into it."""
    if metric.resolution == 0:
        return np.asarray(physical, NUMPY_DTYPES["f64"])
    factor = 1 / _fraction(metric.resolution)
    scaled = np.rint(_times(np.asarray(physical, np.float64), factor))
    return np.asarray(scaled).astype(NUMPY_DTYPES[metric.dtype])


def physical_array(metric: Metric, stored: NDArray[Any]) -> NDArray[np.float64]:
    """Return the physical values of stored ones, in the metric's unit."""
    values = np.asarray(stored, np.float64)
    if metric.resolution == 0:
        return values
    step = _fraction(metric.resolution)
    return values * float(step.numerator) / float(step.denominator)


def _fraction(number: float) -> Fraction:
    """Return the decimal number that a person wrote, not the double nearest to it."""
    return Fraction(str(number))


def _times(value: Any, factor: Fraction) -> Any:
    return value * factor.numerator / factor.denominator


def _in_source_units(bound: float | None, scale: Fraction, missing: float) -> float:
    if bound is None:
        return missing
    exact = _fraction(bound) / scale
    return int(exact) if exact.denominator == 1 else float(exact)


def _greatest(metric: Metric, scale: Fraction, factor: Fraction) -> float:
    """Return the greatest legal source value: the catalogue's, and not more than the dtype holds."""
    greatest = _in_source_units(metric.maximum, scale, math.inf)
    if metric.dtype in ("f64", ""):
        return greatest
    return min(greatest, int(dtype_limits(metric.dtype)[1] / factor))


def _sentinel(metric: Metric, source: Source) -> float:
    """Return the source value from which on there is none."""
    bounded = metric.unit in BOUNDED_UNITS or metric.name.endswith("_ratio")
    first = BLANK_VALUES.get(source.width, math.inf)
    if source.width is Width.INT64:
        first = INT64_AS_FLOAT
    return min(first, BLANK_VALUES[Width.FP64]) if bounded else first


def _first_sentinel(value: float) -> float:
    """Return the first sentinel of the width that a value at or above a sentinel belongs to."""
    return max((first for first in BLANK_VALUES.values() if first <= value), default=math.inf)
