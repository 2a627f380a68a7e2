"""Turn microseconds since boot into wall time.

The anchor (wall time of boot) is measured once and kept, also over restarts of the agent, so that a line read twice has
the same time twice. It is measured anew only when the wall clock was stepped. The kernel's log clock drifts against the
wall clock: a time that cannot be, given when the line arrived, is replaced by the time of arrival.
"""

from dataclasses import dataclass

ANCHOR_STEP_MS = 100
"""The anchor is rounded to this, so that even without a memory a second agent finds the same one."""

STEPPED_MS = 1000
SKEW_LIMIT_MS = 2000


@dataclass(frozen=True, slots=True)
class Arrival:
    """Between which wall times lines arrived.

    Attributes:
        earliest_ms: When the log was last seen empty; None where it never was, as at the start.
        latest_ms: Now.
    """

    earliest_ms: int | None
    latest_ms: int


class BootTime:
    """Wall time of boot as the log's clock counts from it."""

    def __init__(self, anchor_ms: int | None = None) -> None:
        self.anchor_ms = anchor_ms

    def look(self, now_ms: int, monotonic_seconds: float) -> int:
        """Compare both clocks, once a look; return by how many milliseconds the wall clock was stepped since."""
        measured = round((now_ms - monotonic_seconds * 1000) / ANCHOR_STEP_MS) * ANCHOR_STEP_MS
        if self.anchor_ms is None:
            self.anchor_ms = measured
        step_ms = measured - self.anchor_ms
        if abs(step_ms) <= STEPPED_MS:
            return 0
        self.anchor_ms = measured
        return step_ms

    def of(self, monotonic_us: int) -> int:
        """Return the wall time of a moment since boot, in epoch milliseconds."""
        return (self.anchor_ms or 0) + monotonic_us // 1000


def settle_time(stated_ms: int | None, arrival: Arrival) -> tuple[int, bool]:
    """Return (time of a line in epoch milliseconds, whether it is its own and not that of arrival)."""
    if stated_ms is None or stated_ms > arrival.latest_ms + SKEW_LIMIT_MS:
        return arrival.latest_ms, False
    if arrival.earliest_ms is not None and stated_ms < arrival.earliest_ms - SKEW_LIMIT_MS:
        return arrival.latest_ms, False
    return stated_ms, True
