"""Read time: the only module that does."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of wall time, monotonic time and waiting, passed to whatever needs one."""

    def now_ms(self) -> int:
        """Return wall time as epoch milliseconds, UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Return seconds of a clock that never steps."""
        ...

    def processor_seconds(self) -> float:
        """Return for how long the calling thread was on a processor."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds` (nothing for <= 0)."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return wall time as epoch milliseconds, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Return seconds of a clock that never steps."""
        return time.monotonic()

    def processor_seconds(self) -> float:
        """Return for how long the calling thread was on a processor."""
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        if seconds > 0:
            time.sleep(seconds)


class ManualClock:
    """A clock for tests: stands still until told to move; sleeping moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_seconds = 0.0

    def now_ms(self) -> int:
        """Return the set wall time as epoch milliseconds."""
        return self._now_ms

    def monotonic_seconds(self) -> float:
        """Return seconds moved since the clock was made."""
        return self._monotonic_seconds

    def processor_seconds(self) -> float:
        """Return 0: waiting costs nothing here."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Move both clocks forward instead of waiting."""
        self.move(seconds)

    def move(self, seconds: float) -> None:
        """Move wall and monotonic time forward by `seconds` >= 0."""
        self._now_ms += round(seconds * 1000)
        self._monotonic_seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Step wall time alone, forward or back, as a clock correction does."""
        self._now_ms += round(seconds * 1000)
