"""Run what takes long in few threads, in an order in which no tenant waits for all that another one has sent."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from secondsight.gateway.shares import Entry

Result = TypeVar("Result")


class Turns:
    """Threads of its own, and who waits for one: what is urgent, then by how much a tenant had before, by its weight.

    Lives in one event loop.

    Args:
        threads: How many there are.
        weight_of: Weight of a tenant.
    """

    def __init__(self, threads: int, weight_of: Callable[[str], int]) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="read")
        self._all = self._free = threads
        self._weight_of = weight_of
        self._numbers = count()
        self._waiting: list[tuple[bool, float, int, asyncio.Future[None]]] = []
        self._ends: dict[str, float] = {}
        self._had = 0.0

    async def run(self, entry: Entry, size: int, work: Callable[[], Result]) -> Result:
        """Return what work in a thread returns, or raise what it raises.

        Args:
            entry: Whose work it is.
            size: How much it is, in proportion to the time that it takes.
            work: Called in a thread.
        """
        tenant_id = entry.flow.tenant_id
        begin = max(self._had, self._ends.get(tenant_id, 0.0))
        self._ends[tenant_id] = begin + size / self._weight_of(tenant_id)
        if self._free:
            self._free -= 1
        else:
            await self._turn(entry, begin)
        self._had = max(self._had, begin)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._pass_on()

    def close(self) -> None:
        """Wait for the threads; may be called twice."""
        self._threads.shutdown()

    async def _turn(self, entry: Entry, begin: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (not entry.urgent, begin, next(self._numbers), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a thread to who is next, if anybody waits."""
        while self._waiting:
            future = heappop(self._waiting)[3]
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
        if self._free == self._all:
            self._ends.clear()
            self._had = 0.0
