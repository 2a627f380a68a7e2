"""Turn many small concurrent requests for one slow call into few calls.

What arrives while a call runs, and in a short pause before it, makes one call: with a log, concurrent posts share one
write and one fdatasync per partition. The pause costs a few milliseconds and saves most of the calls. What does not fit
into a call waits for a later one: what is urgent goes first, then each tenant and place in turn, whatever others sent.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from secondsight.gateway.shares import NOBODY, Entry, Flow

PAUSE_SECONDS = 0.008
LONG_PAUSE_SECONDS, MANY = 0.04, 12
"""The pause after a call that had so many submissions or more: a call costs about the same whatever it takes."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Waiting(Generic[Item, Result]):
    items: Sequence[Item]
    size: int
    entry: Entry
    future: "asyncio.Future[Result]"


class Gatherer(Generic[Item, Result]):
    """Runs `work` over gathered items, in a thread of its own, one call at a time. Lives in one event loop.

    What one submitter submits one after the other is worked on in that order.

    Args:
        work: Takes the items of several submitters and returns or raises what all of them get.
        size: Weight of an item; a call gets at most `call_size` of it, but at least one submission.
        weight_of: Weight of a tenant when not all fits into one call.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Item]], Result],
        size: Callable[[Item], int],
        call_size: int,
        weight_of: Callable[[str], int] = lambda _tenant_id: 1,
    ) -> None:
        self._work = work
        self._size = size
        self._call_size = call_size
        self._weight_of = weight_of
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: list[_Waiting[Item, Result]] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item], entry: Entry = NOBODY) -> Result:
        """Return what the call that has these items returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append(_Waiting(items, sum(map(self._size, items)), entry, future))
        if self._runner is None:
            self._runner = loop.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Finish what was submitted; may be called twice."""
        if self._runner is not None:
            await self._runner
        self._threads.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_seconds = PAUSE_SECONDS
        try:
            while self._waiting:
                await asyncio.sleep(pause_seconds)
                taken = self._take()
                items = [item for one in taken for item in one.items]
                call = loop.run_in_executor(self._threads, self._work, items)
                await asyncio.wait((call,))
                _settle([one.future for one in taken], call)
                pause_seconds = LONG_PAUSE_SECONDS if len(taken) >= MANY else PAUSE_SECONDS
        finally:
            self._runner = None

    def _take(self) -> list[_Waiting[Item, Result]]:
        waiting = self._waiting
        if sum(one.size for one in waiting) > self._call_size:
            waiting = _in_turn(waiting, self._weight_of)
        size = count = 0
        for one in waiting:
            size += one.size
            if count and size > self._call_size:
                break
            count += 1
        taken, self._waiting = waiting[:count], waiting[count:]
        return taken


def _in_turn(
    waiting: Sequence[_Waiting[Item, Result]], weight_of: Callable[[str], int]
) -> list[_Waiting[Item, Result]]:
    """Return what waits as fair queueing has it: by how much of its tenant, and of its place, stands before its end."""
    places: defaultdict[tuple[bool, Flow], int] = defaultdict(int)
    ends: list[tuple[bool, int, _Waiting[Item, Result]]] = []
    for one in waiting:
        key = (one.entry.urgent, one.entry.flow)
        places[key] += one.size
        ends.append((not one.entry.urgent, places[key], one))
    ends.sort(key=lambda end: end[:2])
    tenants: defaultdict[tuple[bool, str], float] = defaultdict(float)
    turns: list[tuple[bool, float, _Waiting[Item, Result]]] = []
    for is_common, _, one in ends:
        tenant_id = one.entry.flow.tenant_id
        tenants[is_common, tenant_id] += one.size / weight_of(tenant_id)
        turns.append((is_common, tenants[is_common, tenant_id], one))
    turns.sort(key=lambda turn: turn[:2])
    return [one for _, _, one in turns]


def _settle(futures: Sequence["asyncio.Future[Result]"], call: "asyncio.Future[Result]") -> None:
    error = call.exception()
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(call.result())
        else:
            future.set_exception(error)
