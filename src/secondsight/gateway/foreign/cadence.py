"""Learn at which cadence a sender samples, from the times of its samples."""

import numpy as np

from secondsight.gateway.foreign.points import I32, I64

DEFAULT_INTERVAL_MS = 15_000
"""Taken until two samples of one thing were seen."""
STEP_MS = 1_000
"""Cadences above it are whole seconds; scrapes jitter."""
LONGEST_MS = 600_000
REMEMBERED = 16
CHANGED_SHARE = 0.2


class Cadence:
    """The cadence of one collector's rows. Used by one thread at a time."""

    def __init__(self) -> None:
        self.interval_ms = DEFAULT_INTERVAL_MS
        self._last_ms = np.zeros(0, np.int64)
        self._steps: list[int] = []

    def see(self, rows: I32, times_ms: I64) -> int:
        """Take the times of rows, and return the cadence in milliseconds.

        Args:
            rows: Numbers of what was sampled; ascending in time where one comes several times.
            times_ms: One for each.
        """
        most = int(rows.max()) + 1
        if most > self._last_ms.size:
            self._last_ms = np.concatenate([self._last_ms, np.zeros(2 * most - self._last_ms.size, np.int64)])
        first = int(rows[0])
        mine = np.sort(times_ms[rows == first])
        times = np.concatenate([self._last_ms[first : first + 1], mine]) if self._last_ms[first] else mine
        steps = np.diff(times)
        steps = steps[(steps > 0) & (steps <= LONGEST_MS)]
        self._last_ms[rows] = np.maximum(self._last_ms[rows], times_ms)
        if steps.size:
            self._learn(steps[-REMEMBERED:].tolist())
        return self.interval_ms

    def _learn(self, steps: list[int]) -> None:
        self._steps = [*self._steps, *steps][-REMEMBERED:]
        middle = sorted(self._steps)[len(self._steps) // 2]
        told_ms = max(STEP_MS * round(middle / STEP_MS), STEP_MS) if middle >= STEP_MS * 0.9 else max(middle, 1)
        if abs(told_ms - self.interval_ms) > CHANGED_SHARE * self.interval_ms:
            self.interval_ms = told_ms
