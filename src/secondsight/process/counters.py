"""Turn consecutive samples of a counter into increases: never negative, never a wrap, unknown where nobody can tell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind
from secondsight.process.patterns import LOOKBACK_MS

Bools = NDArray[np.bool_]
STEP_SLACK_SECONDS = 1.0
"""Readings jitter against their ticks, so a step limit is granted this much more time."""
JITTER_SHIFT = 30
"""A fall by less than 2^-30 of the value is rounding at the source, not a reset."""
KEPT_ACROSS_BOOTS = ("aggregate", "remapped", "retired", "lifetime")
"""Words in names of counters that live in the device's own memory and do not start at zero with a boot."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A sample and the one before it, per row; shape (rows,) each.

    Attributes:
        gap_ms: Time between the two.
        new_epoch: They are from different boots.
        known: There is one before.
    """

    values: NDArray[Any]
    before: NDArray[Any]
    gap_ms: NDArray[np.int64]
    new_epoch: Bools
    known: Bools


@dataclass(frozen=True, slots=True)
class Increase:
    """What each row adds.

    Attributes:
        increase: 0 where it is not counted; uint64, int64 or float64.
        counted: The pair is known and plausible, so its increase and its time count.
        reset: The counter fell within one boot.
        implausible: Pairs left out because they exceed the metric's greatest step.
    """

    increase: NDArray[Any]
    counted: Bools
    reset: Bools
    implausible: int


def starts_at_zero(metric: Metric) -> bool:
    """Tell whether a counter is known to start at zero with a new boot."""
    if metric.kind not in (EntityKind.GPU, EntityKind.NODE, EntityKind.FABRIC_PORT, EntityKind.PROCESS_JOB):
        return False
    return not any(word in metric.name for word in KEPT_ACROSS_BOOTS)


def increase_of(metric: Metric, pairs: Pairs) -> Increase:
    """Apply the counter rule to each pair."""
    values, before = widened(pairs.values), widened(pairs.before)
    near = pairs.known & (pairs.gap_ms <= LOOKBACK_MS)
    fell = near & ~pairs.new_epoch & (values < before)
    reset = fell & ~_is_jitter(values, before) if fell.any() else fell
    from_zero = reset | pairs.new_epoch
    increase = np.where(from_zero, values, np.where(fell, 0, values - before))
    counted = near & _moves(metric, values)
    if not starts_at_zero(metric):
        counted &= ~pairs.new_epoch
    within = _plausible(metric, increase, pairs.gap_ms)
    implausible = int((counted & ~within).sum()) if within is not None else 0
    if within is not None:
        counted = counted & within
    return Increase(np.where(counted, increase, increase.dtype.type(0)), counted, reset, implausible)


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the type of increases."""
    wide = {"u": np.uint64, "i": np.int64, "f": np.float64}[values.dtype.kind]
    return values.astype(wide, copy=False)


def _is_jitter(values: NDArray[Any], before: NDArray[Any]) -> Bools:
    fall = np.where(values < before, before - values, 0)
    small: Bools = (
        fall <= np.abs(before / 2.0**JITTER_SHIFT) if before.dtype.kind != "u" else fall <= before >> JITTER_SHIFT
    )
    return small


def _moves(metric: Metric, values: NDArray[Any]) -> Bools:
    """Tell where the counter is below its cap."""
    if metric.cap is None:
        return np.ones(values.shape, np.bool_)
    below: Bools = values < stored(metric, metric.cap)
    return below


def _plausible(metric: Metric, increase: NDArray[Any], gap_ms: NDArray[np.int64]) -> Bools | None:
    """Tell where an increase is within the metric's greatest step; None where it has none."""
    if metric.step_maximum is None:
        return None
    within: Bools = increase <= stored(metric, metric.step_maximum) * (gap_ms / 1000 + STEP_SLACK_SECONDS)
    return within


def stored(metric: Metric, physical: float) -> float:
    """Return a physical amount in the units that are stored."""
    return physical / metric.resolution if metric.resolution else physical
