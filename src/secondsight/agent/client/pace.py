"""Say how long to wait and how much to send, from how the last sends went. Pure; reads no clock."""

from collections.abc import Callable

LEAST_WAIT_SECONDS = 0.05
LONGEST_TOLD_SECONDS = 600.0
"""A gateway that asks for more is asked again after this."""

QUICK_SECONDS = 1.0
SLOW_SECONDS = 5.0


class Backoff:
    """Waits after failures: full jitter under a bound that doubles, on top of what the gateway asked for.

    Jitter on top of it keeps agents apart that were all told the same.
    """

    def __init__(self, first_seconds: float, maximum_seconds: float, random: Callable[[], float]) -> None:
        self._first_seconds = first_seconds
        self._maximum_seconds = maximum_seconds
        self._random = random
        self.failures = 0

    def next_seconds(self, told_seconds: float | None) -> float:
        """Return how long to wait after a further failure; `told_seconds` is what the gateway asked for."""
        bound = min(self._first_seconds * float(2**self.failures), self._maximum_seconds)
        self.failures = min(self.failures + 1, 30)
        told = min(max(told_seconds or 0.0, 0.0), LONGEST_TOLD_SECONDS)
        return max(told + bound * self._random(), LEAST_WAIT_SECONDS)

    def reset(self) -> None:
        """Forget failures: something went well."""
        self.failures = 0


class BatchBytes:
    """How many bytes of records to send at once: little after a failure, twice as much after each quick success."""

    def __init__(self, least: int, most: int) -> None:
        self._least = min(least, most)
        self._most = most
        self.now = most

    def succeeded(self, seconds: float) -> None:
        """Take note that a batch took so long to be answered."""
        if seconds < QUICK_SECONDS:
            self.now = min(2 * self.now, self._most)
        elif seconds > SLOW_SECONDS:
            self.now = max(self.now // 2, self._least)

    def failed(self) -> None:
        """Take note that a batch was not taken."""
        self.now = self._least
