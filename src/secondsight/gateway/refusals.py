"""Put refused callers on record: who was refused what, and how often, once a second at most.

Counted before written, so that whoever tries secrets fills neither memory nor the audit table.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from secondsight.access.audit import AuditEntry
from secondsight.errors import Retryable

WRITE_SECONDS = 1.0
DISTINCT_MAXIMUM = 200
"""Different refusals of one second; what exceeds them is counted as of callers unnamed."""


class Refusals:
    """Refusals since the last write. Lives in one event loop.

    Args:
        write: Makes entries durable or raises Retryable, after which they are tried again; blocks.
        now_ms: Returns the time.
    """

    def __init__(self, write: Callable[[Sequence[AuditEntry]], None], now_ms: Callable[[], int]) -> None:
        self._write = write
        self._now_ms = now_ms
        self._counts: Counter[AuditEntry] = Counter()
        self._closing = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def note(self, subject: str, tenant_id: str, code: str, route: str) -> None:
        """Count one refusal; it is written within a second."""
        entry = AuditEntry(0, subject, tenant_id, f"ingest {route}", code)
        if entry not in self._counts and len(self._counts) >= DISTINCT_MAXIMUM:
            entry = AuditEntry(0, "", "", "ingest", code)
        self._counts[entry] += 1
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_later())

    async def close(self) -> None:
        """Write what waits, if that can be done at once; may be called twice."""
        self._closing.set()
        if self._writer is not None:
            await self._writer

    async def _write_later(self) -> None:
        try:
            while self._counts:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), WRITE_SECONDS)
                if not await self._written() and self._closing.is_set():
                    return
        finally:
            self._writer = None

    async def _written(self) -> bool:
        taken, self._counts = self._counts, Counter()
        now_ms = self._now_ms()
        entries = [replace(entry, time_ms=now_ms, detail=f"{count} times") for entry, count in taken.items()]
        try:
            await asyncio.to_thread(self._write, entries)
        except Retryable:
            self._counts.update(taken)
            return False
        return True
