"""Turn the instants of a run's steps into its pace: time left, age of the last step, and whether it stands still.

Instants are seconds of a clock that never steps.
"""

from collections import deque

WINDOW_SECONDS = 900.0
SAMPLE_SECONDS = 10.0
STALL_STEPS = 10
STALL_SECONDS_MINIMUM = 60.0
"""A run is not said to stand still sooner, however fast its steps are."""


class Pace:
    """Follows the steps of one run. Not thread-safe."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._last: tuple[float, int] | None = None

    def see(self, now: float, step: int) -> None:
        """Take the number of the last step done; the same number again is no step, a lower one begins anew."""
        if self._last is not None and step == self._last[1]:
            return
        if self._last is not None and step < self._last[1]:
            self._samples.clear()
        self._last = (now, step)
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, step))
        while now - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()

    def age_seconds(self, now: float) -> float | None:
        """Return how long ago the last step was done."""
        return None if self._last is None else max(now - self._last[0], 0.0)

    @property
    def step_seconds(self) -> float | None:
        """Return the mean time of a step over the last 15 min, None before two samples are known."""
        if self._last is None or not self._samples or self._last[1] == self._samples[0][1]:
            return None
        return (self._last[0] - self._samples[0][0]) / (self._last[1] - self._samples[0][1])

    def is_still(self, now: float) -> bool:
        """Tell whether no step was done for 10 step times."""
        age = self.age_seconds(now)
        return age is not None and age > max(STALL_STEPS * (self.step_seconds or 0.0), STALL_SECONDS_MINIMUM)

    def eta_seconds(self, now: float, steps_planned: int | None) -> float | None:
        """Return how long the planned steps still take, None where nobody can tell."""
        seconds = self.step_seconds
        if steps_planned is None or self._last is None or seconds is None or self.is_still(now):
            return None
        return max(steps_planned - self._last[1], 0) * seconds
