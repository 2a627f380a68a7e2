"""Turn the times of exchanges with a gateway into how far this host's clock is from the gateway's.

One exchange bounds the offset to half of the time that it spent on the way. The best exchange of the last minutes
counts, its bound growing with age as clocks drift apart; a new one replaces it only when it is better, so the offset
does not flicker. A step of this host's clock makes all earlier exchanges worthless.
"""

import math
import threading
from dataclasses import dataclass

from secondsight.wire.content import clock_correction_ms

DRIFT_MS_PER_SECOND = 0.1
"""Two undisciplined clocks drift apart by up to 100 parts per million."""

FORGET_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """The four times of one request: sent and answered by this host's clock, received and replied by the gateway's."""

    sent_ms: float
    received_ms: float
    replied_ms: float
    answered_ms: float

    @property
    def offset_ms(self) -> float:
        """Return this host's clock minus the gateway's."""
        return (self.sent_ms + self.answered_ms - self.received_ms - self.replied_ms) / 2

    @property
    def uncertainty_ms(self) -> float:
        """Return half of the time on the way, plus the millisecond that rounding may hide."""
        return max(self.answered_ms - self.sent_ms - (self.replied_ms - self.received_ms), 0.0) / 2 + 1.0


class ClockOffset:
    """The best estimate so far. Safe to call from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._best: tuple[Exchange, float] | None = None

    def learn(self, exchange: Exchange, monotonic_seconds: float) -> None:
        """Take one exchange that ended at `monotonic_seconds`; one that took negative time was cut by a step."""
        if exchange.answered_ms < exchange.sent_ms:
            return
        with self._lock:
            if self._best is None or exchange.uncertainty_ms <= self._grown(monotonic_seconds):
                self._best = (exchange, monotonic_seconds)

    def forget(self) -> None:
        """Drop everything learnt: this host's clock was stepped."""
        with self._lock:
            self._best = None

    def now(self, monotonic_seconds: float) -> tuple[int | None, int]:
        """Return (offset, uncertainty) in ms; (None, 0) while there is no exchange younger than half an hour."""
        with self._lock:
            if self._best is None or monotonic_seconds - self._best[1] > FORGET_SECONDS:
                return None, 0
            return round(self._best[0].offset_ms), math.ceil(self._grown(monotonic_seconds))

    def correction_ms(self, monotonic_seconds: float) -> int:
        """Return what frames add now to times of this host."""
        return clock_correction_ms(*self.now(monotonic_seconds))

    def _grown(self, monotonic_seconds: float) -> float:
        if self._best is None:
            return float("inf")
        exchange, at_seconds = self._best
        return exchange.uncertainty_ms + (monotonic_seconds - at_seconds) * DRIFT_MS_PER_SECOND
