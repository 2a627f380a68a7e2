"""Judge the times of samples, and say what is wrong with one in the unit that its sender writes."""

from typing import NamedTuple

from secondsight.gateway.foreign.points import OTLP, TIME_MS_MAXIMUM, TIME_MS_MINIMUM

NANOSECONDS_PER_MS = 1_000_000
_UNITS = (("nanoseconds", 10**17), ("microseconds", 10**14), ("milliseconds", 10**11), ("seconds", 10**8))
"""From which number on an epoch time of our days is most likely in a unit."""


class Times(NamedTuple):
    """Which times one sender may write.

    Attributes:
        future_ms, past_ms: How far from the gateway's clock a reading may be.
        protocol: In which it writes.
    """

    future_ms: int
    past_ms: int
    protocol: str

    def fault(self, time_ms: int, now_ms: int) -> str:
        """Return the code of why a reading of this time is refused, "" where it is not."""
        if not TIME_MS_MINIMUM <= time_ms < TIME_MS_MAXIMUM:
            return "time_unit"
        if time_ms > now_ms + self.future_ms:
            return "future_time"
        return "too_old" if time_ms < now_ms - self.past_ms else ""

    def words(self, time_ms: int, now_ms: int) -> str:
        """Return how far off a time is, for a person who looks after its sender."""
        is_otlp = self.protocol == OTLP
        unit, told = ("nanoseconds", time_ms * NANOSECONDS_PER_MS) if is_otlp else ("milliseconds", time_ms)
        off = (time_ms - now_ms) / 1000
        likely = next((name for name, least in _UNITS if told >= least), unit)
        guess = f", and this looks like {likely}" if likely != unit else ""
        return (
            f"a sample has the time {told}, which is {abs(off):.0f} s {'ahead' if off > 0 else 'old'}; "
            f"times are epoch {unit}{guess}; check the sender's clock and unit"
        )
