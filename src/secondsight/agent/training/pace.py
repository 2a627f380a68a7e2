"""Turn the instants of a run's steps into its pace: time left, age of the last step, and whether it stands still.

Instants are seconds of a clock that never steps.
"""

from collections import deque

from secondsight.agent.training.measures import Key

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

    def gauges(self, now: float, steps_planned: int | None, step_seconds: float | None = None) -> dict[Key, float]:
        """Return what follows from the steps: age of the last one, share that is done, time left.

        Args:
            now: Monotonic seconds.
            steps_planned: None where nobody knows, and then neither share nor time left are.
            step_seconds: What a step takes, where steps were not followed long enough to know.
        """
        if self._last is None:
            return {}
        found: dict[Key, float] = {("step_age_seconds", ""): max(now - self._last[0], 0.0)}
        if steps_planned and not self.is_still(now):
            found["progress", ""] = min(self._last[1] / steps_planned, 1.0)
            seconds = self.step_seconds or step_seconds
            if seconds:
                found["eta_seconds", ""] = max(steps_planned - self._last[1], 0) * seconds
        return found
