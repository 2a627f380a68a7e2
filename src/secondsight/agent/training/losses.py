"""Turn the losses of a run into what went wrong: not a number, infinite, far above what they were."""

import math
from collections import deque
from statistics import median

SPIKE_DEVIATIONS = 3.0
SPIKE_SHARE = 0.1
"""Noise alone passes three deviations now and then: a spike is also this share of the median above it."""
WINDOW = 64
LEAST = 16
"""Losses that must be known before any can be called a spike."""
DEVIATION_OF_MEDIAN = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""

NAN, INFINITE, SPIKE, STALL = 1, 2, 3, 4
"""Codes of `training_anomaly`."""


class LossWatch:
    """Watches the losses of one run. Not thread-safe."""

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=WINDOW)
        self._now = 0

    def see(self, loss: float) -> int | None:
        """Take the next loss; return the code of what has just gone wrong, None while it goes on or all is well."""
        before, self._now = self._now, self._code(loss)
        if math.isfinite(loss):
            self._window.append(loss)
        return self._now if self._now and self._now != before else None

    def _code(self, loss: float) -> int:
        if math.isnan(loss):
            return NAN
        if math.isinf(loss):
            return INFINITE
        return SPIKE if self._is_spike(loss) else 0

    def _is_spike(self, loss: float) -> bool:
        if len(self._window) < LEAST:
            return False
        middle = median(self._window)
        spread = DEVIATION_OF_MEDIAN * median(abs(other - middle) for other in self._window)
        return loss - middle > max(SPIKE_DEVIATIONS * spread, SPIKE_SHARE * abs(middle))
