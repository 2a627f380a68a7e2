"""Learn at which cadence a sender samples, from the times of its samples."""

from itertools import pairwise

import numpy as np

from secondsight.gateway.foreign.points import I32, I64

DEFAULT_INTERVAL_MS = 15_000
"""Taken until two samples of one thing were seen."""
STEP_MS = 1_000
"""Cadences above it are whole seconds; scrapes jitter."""
LONGEST_MS = 600_000
REMEMBERED = 16
ROWS_MAXIMUM = 10_000
CHANGED_SHARE = 0.2


class Cadence:
    """The cadence of one collector's rows. Used by one thread at a time."""

    def __init__(self) -> None:
        self.interval_ms = DEFAULT_INTERVAL_MS
        self._last_ms: dict[int, int] = {}
        self._steps: list[int] = []

    def see(self, rows: I32, times_ms: I64) -> int:
        """Take the times of rows, and return the cadence in milliseconds: of the first row, as one stands for all.

        Args:
            rows: Numbers of what was sampled.
            times_ms: One for each.
        """
        row = int(rows[0])
        last_ms = self._last_ms.get(row, 0)
        times = [int(times_ms[0])]
        if int(times_ms[-1]) != times[0]:
            times = np.unique(times_ms[rows == row]).tolist()
        steps = [after - before for before, after in pairwise([last_ms or times[0], *times])]
        if len(self._last_ms) >= ROWS_MAXIMUM:
            self._last_ms.clear()
        self._last_ms[row] = max(last_ms, times[-1])
        steps = [step for step in steps if 0 < step <= LONGEST_MS]
        if steps:
            self._learn(steps[-REMEMBERED:])
        return self.interval_ms

    def _learn(self, steps: list[int]) -> None:
        self._steps = [*self._steps, *steps][-REMEMBERED:]
        middle = sorted(self._steps)[len(self._steps) // 2]
        told_ms = max(STEP_MS * round(middle / STEP_MS), STEP_MS) if middle >= STEP_MS * 0.9 else max(middle, 1)
        if abs(told_ms - self.interval_ms) > CHANGED_SHARE * self.interval_ms:
            self.interval_ms = told_ms
