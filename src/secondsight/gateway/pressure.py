"""Decide when senders must wait: too much unprocessed log, or too many bodies in memory."""

import asyncio
from collections.abc import Callable

from secondsight.clock import Clock
from secondsight.errors import Retryable

CHECK_SECONDS = 0.25


class Overloaded(Retryable):
    """The sender shall come back later; nothing was stored."""


class Pressure:
    """Watches a backlog and the bytes of bodies in memory. Lives in one event loop.

    Args:
        measure_backlog_bytes: May block; called from a thread, at most every 250 ms.
    """

    def __init__(
        self,
        measure_backlog_bytes: Callable[[], int],
        backlog_bytes: int,
        in_flight_bytes: int,
        retry_after_seconds: float,
        clock: Clock,
    ) -> None:
        self._measure = measure_backlog_bytes
        self._backlog_limit_bytes = backlog_bytes
        self._in_flight_limit_bytes = in_flight_bytes
        self._retry_after_seconds = retry_after_seconds
        self._clock = clock
        self._checked_seconds: float | None = None
        self._checking = asyncio.Lock()
        self.backlog_bytes = 0
        self.in_flight_bytes = 0

    async def require_room(self) -> None:
        """Return if the backlog is within its limit.

        Raises:
            Overloaded: It is not.
            Retryable: It cannot be measured.
        """
        if self._is_stale() and not self._checking.locked():
            async with self._checking:
                self.backlog_bytes = await asyncio.to_thread(self._measure)
                self._checked_seconds = self._clock.monotonic_seconds()
        if self.backlog_bytes > self._backlog_limit_bytes:
            raise Overloaded(
                f"{self.backlog_bytes >> 20} MiB wait to be processed", retry_after_seconds=self._retry_after_seconds
            )

    def take(self, body_bytes: int) -> None:
        """Count bytes that a request now holds; give them back with `give_back`.

        Raises:
            Overloaded: The limit is reached; the bytes are counted none the less.
        """
        self.in_flight_bytes += body_bytes
        if self.in_flight_bytes > self._in_flight_limit_bytes:
            raise Overloaded("too many bodies are in memory", retry_after_seconds=self._retry_after_seconds)

    def give_back(self, body_bytes: int) -> None:
        """Stop counting bytes that a request held."""
        self.in_flight_bytes -= body_bytes

    def _is_stale(self) -> bool:
        return self._checked_seconds is None or self._clock.monotonic_seconds() - self._checked_seconds >= CHECK_SECONDS
