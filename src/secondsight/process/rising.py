"""Add up counters that only rose: the last sample of a segment minus the one before its first, without a step each.

It is the counter rule of `counters.py` for what nearly all counters do nearly always; where it might not hold for some
row of a metric, there is no answer, and the rule is applied row by row.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.process.counters import STEP_SLACK_SECONDS, stored, widened
from secondsight.process.patterns import I64, LOOKBACK_MS, Bools, Pattern

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Gaps:
    """What lies between each row of a pattern and the sample before it; shape (rows,), or (metrics, rows) each.

    Attributes:
        gap_ms: Time between the two.
        new_epoch: They are from different boots.
        known: There is one before.
    """

    gap_ms: I64
    new_epoch: Bools
    known: Bools

    def of(self, number: int) -> tuple[I64, Bools, Bools]:
        """Return those of one metric."""
        if self.gap_ms.ndim == 1:
            return self.gap_ms, self.new_epoch, self.known
        return self.gap_ms[number], self.new_epoch[number], self.known[number]

    def all_count(self, pattern: Pattern) -> bool:
        """Tell whether every pair counts, of every metric alike, and segments are runs of rows."""
        if self.gap_ms.ndim > 1 or pattern.order is not None or not self.known.all() or self.new_epoch.any():
            return False
        return int(self.gap_ms.max()) <= LOOKBACK_MS


def rise_of(metric: Metric, values: Values, first: Values, pattern: Pattern, gaps: Gaps) -> Values | None:
    """Return the increase of each segment, or None where the counter did not only rise.

    Args:
        metric: Whose.
        values: Shape (rows of the pattern,).
        first: The sample before the first row of each series present.
        pattern: Of these rows.
        gaps: Theirs, of which all pairs count.
    """
    if values.dtype.kind == "f" or _fell(values, first, pattern) or _is_capped(metric, values):
        return None
    if metric.step_maximum is not None and not _is_plausible(metric, values, first, pattern, gaps):
        return None
    before = values[pattern.starts - 1]
    before[np.searchsorted(pattern.starts, pattern.heads)] = first
    rise: Values = widened(values[pattern.ends]) - widened(before)
    return rise


def _fell(values: Values, first: Values, pattern: Pattern) -> bool:
    fell = values[1:] < values[:-1]
    fell[pattern.heads[1:] - 1] = False
    return bool(fell.any() or (values[pattern.heads] < first).any())


def _is_capped(metric: Metric, values: Values) -> bool:
    return metric.cap is not None and float(values.max()) >= stored(metric, metric.cap)


def _is_plausible(metric: Metric, values: Values, first: Values, pattern: Pattern, gaps: Gaps) -> bool:
    """Tell whether even the greatest step would be within the limit in the shortest time."""
    steps = widened(values[1:]) - widened(values[:-1])
    steps[pattern.heads[1:] - 1] = 0
    greatest = max(int(steps.max(initial=0)), int((widened(values[pattern.heads]) - widened(first)).max()))
    seconds = int(gaps.gap_ms.min()) / 1000 + STEP_SLACK_SECONDS
    return greatest <= stored(metric, metric.step_maximum or 0.0) * seconds
