"""Say when senders that were asked to wait shall come back, so that they do not all come at once."""

from secondsight.clock import Clock

GOLDEN_RATIO = 0.6180339887498949
"""Its multiples without their whole part are spread evenly, however many are taken."""

LONGEST_SECONDS = 300.0


class Returns:
    """Gives each sender a time of its own. Lives in one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_seconds = 0.0
        self._number = 0

    def after(self, seconds: float, gap_seconds: float) -> float:
        """Return in how many seconds a sender shall come back.

        Senders are `gap_seconds` apart from each other on average, and up to twice as late as need be: the last of many
        waits for longer, the first of few do not come together. After the longest wait it begins anew.

        Args:
            seconds: How long it has to wait at least.
            gap_seconds: What is needed to serve one of them.
        """
        now = self._clock.monotonic_seconds()
        earliest = now + min(seconds, LONGEST_SECONDS)
        if not earliest <= self._next_seconds <= now + LONGEST_SECONDS:
            self._next_seconds = earliest
        at, self._next_seconds = self._next_seconds, self._next_seconds + gap_seconds
        late = min(seconds, LONGEST_SECONDS) * (self._number * GOLDEN_RATIO % 1)
        self._number += 1
        return at - now + late
