"""Say when a reader's next tick is: at wall-clock multiples of its interval plus a phase that is the host's own.

Ticks are computed from the wall clock each time, so they do not drift; the monotonic clock tells a step of the wall
clock from the passing of time. After a step the schedule starts anew from the new time. A tick that could not be taken
in time is skipped and counted, never taken later together with others. Pure: waits for nothing, reads no clock.
"""

import hashlib
from dataclasses import dataclass

STEP_MS = 1000
"""A wall clock that moved by so much more or less than the monotonic one was stepped."""


def phase_ms(host_id: str, interval_ms: int) -> int:
    """Return where in the interval a host's ticks lie, spread over hosts and the same after a restart."""
    digest = hashlib.blake2b(host_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % interval_ms


@dataclass(frozen=True, slots=True)
class Due:
    """What a look at the clocks gave.

    Attributes:
        tick_ms: The tick to take now, or None.
        skipped: Earlier ticks that it is too late for.
        wait_seconds: Until the next look.
        stepped: The wall clock was stepped since the last look.
    """

    tick_ms: int | None
    skipped: int
    wait_seconds: float
    stepped: bool


class Schedule:
    """The ticks of one reader."""

    def __init__(self, interval_ms: int, phase: int) -> None:
        self._interval_ms = interval_ms
        self._phase_ms = phase
        self._next_ms: int | None = None
        self._anchor: tuple[int, float] | None = None

    def look(self, now_ms: int, monotonic_seconds: float) -> Due:
        """Return the tick that is due. The first look starts the schedule at the next tick."""
        stepped = self._is_stepped(now_ms, monotonic_seconds)
        self._anchor = (now_ms, monotonic_seconds)
        if self._next_ms is None or stepped:
            self._next_ms = self._last_at(now_ms) + self._interval_ms
        if now_ms < self._next_ms:
            return Due(None, 0, (self._next_ms - now_ms) / 1000, stepped)
        tick_ms = max(self._last_at(now_ms), self._next_ms)
        skipped = (tick_ms - self._next_ms) // self._interval_ms
        self._next_ms = tick_ms + self._interval_ms
        return Due(tick_ms, skipped, (self._next_ms - now_ms) / 1000, stepped)

    def _is_stepped(self, now_ms: int, monotonic_seconds: float) -> bool:
        if self._anchor is None:
            return False
        expected_ms = self._anchor[0] + (monotonic_seconds - self._anchor[1]) * 1000
        return abs(now_ms - expected_ms) > STEP_MS

    def _last_at(self, now_ms: int) -> int:
        """Return the newest tick at or before `now_ms`."""
        return (now_ms - self._phase_ms) // self._interval_ms * self._interval_ms + self._phase_ms
