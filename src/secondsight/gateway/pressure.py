"""Decide when senders must wait: too much unprocessed log, too little room on its disk, too many bodies in memory.

Under pressure each tenant, and each cluster of it, has its share: who is within it goes on, whatever others do. What is
urgent goes on for longer than everything else. Senders that must wait are told different times to come back.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.gateway.behind import Behind
from secondsight.gateway.returns import Returns
from secondsight.gateway.shares import NOBODY, Entry, Holdings

CHECK_SECONDS = 0.25
FLOOR_PART = 50
"""The floor of the disk is at most one part in so many of it."""


class Overloaded(Retryable):
    """The sender shall come back later; nothing was stored.

    Attributes:
        reason: For counts: what there is too much of.
    """

    code: ClassVar[str] = "overloaded"

    def __init__(self, message: str, *, reason: str, retry_after_seconds: float) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Gauges:
    """How the log is measured. Both may block, and are called from a thread, at most every 250 ms.

    Attributes:
        backlog_bytes: How much of it is not processed.
        disk_bytes: (Free, in all) of its disk; None where it has none.
    """

    backlog_bytes: Callable[[], int]
    disk_bytes: Callable[[], tuple[int, int] | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Limits:
    """When senders are told to wait.

    Attributes:
        backlog_bytes: From so much on only those within their shares of it go on.
        disk_floor_bytes: Least free space of the log's disk.
        in_flight_requests: Likewise of requests that are not answered.
        in_flight_bytes: Likewise of bodies in memory. There may be twice as much of each, as all shares add up to it.
        retry_after_seconds: Least time to come back after.
        returns_per_second: Senders that are told to come back in one second, on average.
    """

    backlog_bytes: int
    disk_floor_bytes: int
    in_flight_requests: int
    in_flight_bytes: int
    retry_after_seconds: float
    returns_per_second: float


class Pressure:
    """Watches a backlog, a disk, and the bytes of bodies in memory. Lives in one event loop.

    Args:
        weight_of: Weight of a tenant among the others.

    Attributes:
        waits: Requests that were told to come back, by tenant and reason.
        waited: When one last was, monotonic seconds.
    """

    def __init__(self, gauges: Gauges, limits: Limits, weight_of: Callable[[str], int], clock: Clock) -> None:
        self._gauges = gauges
        self._limits = limits
        self._clock = clock
        self._returns = Returns(clock)
        self._checked_seconds: float | None = None
        self._checking = asyncio.Lock()
        self._disk_bytes: tuple[int, int] | None = None
        self.behind = Behind(weight_of)
        self.in_flight = Holdings(weight_of)
        self.requests = Holdings(weight_of)
        self.waits: Counter[tuple[str, str]] = Counter()
        self.waited: dict[tuple[str, str], float] = {}

    @property
    def is_stale(self) -> bool:
        """Tell whether the log is to be measured again."""
        return self._checked_seconds is None or self._clock.monotonic_seconds() - self._checked_seconds >= CHECK_SECONDS

    async def measure(self) -> None:
        """Measure the log, unless somebody does.

        Raises:
            Retryable: It cannot be measured.
        """
        if not self._checking.locked():
            async with self._checking:
                backlog_bytes, self._disk_bytes = await asyncio.to_thread(self._measure)
                self.behind.measured(backlog_bytes)
                self._checked_seconds = self._clock.monotonic_seconds()

    def require_room(self, entry: Entry = NOBODY) -> None:
        """Return if the log had room, when it was measured, for what a request brings.

        Raises:
            Overloaded: It had not.
        """
        self._require_disk(entry)
        if self.behind.must_wait(entry, self._limits.backlog_bytes):
            raise self._overloaded(entry, f"{self.behind.backlog_bytes >> 20} MiB wait to be processed", "backlog")

    def enter(self, entry: Entry) -> None:
        """Count a request that has a body, until `leave`.

        Raises:
            Overloaded: There are too many; it is not counted.
        """
        self.requests.take(entry, 1)
        limit = self._limits.in_flight_requests
        if self.requests.total > limit and self.requests.must_wait(entry, limit):
            self.requests.give_back(entry, 1)
            raise self._overloaded(entry, "too many requests are not answered yet", "requests")

    def leave(self, entry: Entry, body_bytes: int) -> None:
        """Stop counting a request and the bytes that it held."""
        self.requests.give_back(entry, 1)
        self.in_flight.give_back(entry, body_bytes)

    def take(self, entry: Entry, body_bytes: int) -> None:
        """Count bytes that a request now holds, until `leave`.

        Raises:
            Overloaded: There are too many; the bytes are counted none the less.
        """
        self.in_flight.take(entry, body_bytes)
        limit_bytes = self._limits.in_flight_bytes
        if self.in_flight.total > limit_bytes and self.in_flight.must_wait(entry, limit_bytes):
            raise self._overloaded(entry, "too many bodies are in memory", "memory")

    def appended(self, entry: Entry, size_bytes: int) -> None:
        """Note what was written to the log."""
        self.behind.appended(entry, size_bytes)

    def later(self, seconds: float) -> float:
        """Return when a sender shall come back that has to wait for `seconds` at least, so that it is not all alike."""
        return self._returns.after(seconds, 1 / self._limits.returns_per_second)

    def _overloaded(self, entry: Entry, message: str, reason: str) -> Overloaded:
        self.waits[entry.flow.tenant_id, reason] += 1
        self.waited[entry.flow.tenant_id, reason] = self._clock.monotonic_seconds()
        seconds = self.later(self._limits.retry_after_seconds)
        return Overloaded(message, reason=reason, retry_after_seconds=seconds)

    def _require_disk(self, entry: Entry) -> None:
        if self._disk_bytes is None or entry.urgent:
            return
        free_bytes, all_bytes = self._disk_bytes
        if free_bytes < min(self._limits.disk_floor_bytes, all_bytes // FLOOR_PART):
            raise self._overloaded(entry, f"{free_bytes >> 20} MiB are free on the disk of the log", "disk")

    def _measure(self) -> tuple[int, tuple[int, int] | None]:
        return self._gauges.backlog_bytes(), self._gauges.disk_bytes()
