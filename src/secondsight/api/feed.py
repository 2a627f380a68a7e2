"""Share one reading of boards among all who watch the same, each at its own pace.

A feed reads a board every second while somebody watches, and keeps the boards of the last minutes. A viewer keeps the
number of the board that it has; what it is sent next is the difference to the newest board, however many lie between,
so nothing queues for a viewer that is slow. All of it lives in one event loop.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b

import numpy as np
import orjson

from secondsight.access.scope import Scope
from secondsight.api.admission import Throttled
from secondsight.api.feedbytes import changes_between, frames_of
from secondsight.catalog.metric import Metric
from secondsight.clock import Clock
from secondsight.errors import Retryable, SecondsightError
from secondsight.query.board import F64, Board, BoardSource, Cell
from secondsight.query.cache import anyone
from secondsight.query.newest import SECOND_MS, latest_second
from secondsight.query.request import Filters
from secondsight.query.times import format_time

KEPT_BOARDS = 120
SNAPSHOT_BOARDS = 10
"""A snapshot is of one of the last so many boards; what came after it follows as a difference."""
LINGER_SECONDS = 30.0
"""So long a feed is read after its last viewer left, who may only have lost its connection."""
DIGITS = 7


class Coding(StrEnum):
    """How figures are said: as numbers, or in one byte a cell."""

    NUMBERS = "numbers"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Form:
    """What a viewer is told in; of a `layout` that it has, snapshots leave the cells out."""

    coding: Coding = Coding.NUMBERS
    layout: str = ""


PLAIN = Form()


@dataclass(frozen=True, slots=True)
class Watched:
    """What a viewer watches."""

    metrics: tuple[Metric, ...]
    filters: Filters
    scope: Scope

    @property
    def key(self) -> Hashable:
        """Return what viewers have in common that may share a feed."""
        return (tuple(metric.name for metric in self.metrics), self.filters, anyone(self.scope))


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """How many viewers there may be."""

    streams: int
    tenant_streams: int


@dataclass(frozen=True, slots=True)
class Kept:
    """One board of a feed; `number` counts them."""

    number: int
    board: Board


@dataclass(slots=True, eq=False)
class Feed:
    """The boards of one `Watched`.

    Attributes:
        name: Tells apart feeds whose event ids must not be mixed up: other grants, other metrics.
        trouble: Why the newest board is old, or "".
    """

    watched: Watched
    name: str
    boards: "OrderedDict[int, Kept]" = field(default_factory=OrderedDict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    viewers: int = 0
    left_seconds: float = 0.0
    trouble: str = ""
    reading: "asyncio.Task[None] | None" = None
    snapshots: "dict[tuple[Coding, bool], tuple[int, bytes]]" = field(default_factory=dict)
    differences: "OrderedDict[tuple[Coding, int, int], bytes]" = field(default_factory=OrderedDict)

    @property
    def newest(self) -> Kept | None:
        """Return the newest board, or None before the first."""
        return next(reversed(self.boards.values())) if self.boards else None

    def add(self, board: Board) -> None:
        """Take in a board and wake the viewers."""
        newest = self.newest
        if newest is not None and newest.board.at_ms >= board.at_ms:
            return
        number = board.at_ms // SECOND_MS
        self.boards[number] = Kept(number, board)
        while len(self.boards) > KEPT_BOARDS:
            self.boards.popitem(last=False)
        self.wake()

    def wake(self) -> None:
        """Let every viewer look."""
        self.changed.set()
        self.changed = asyncio.Event()

    def event_id(self, number: int) -> str:
        """Return the id of the event after which a viewer has a board."""
        return f"{number}.{self.name}"

    def number_of(self, event_id: str) -> int | None:
        """Return the number of a board that a viewer says to have, None where it is of another feed or forgotten."""
        number, _, name = event_id.partition(".")
        if name != self.name or not (number.isascii() and number.isdecimal()) or len(number) > 15:
            return None
        return int(number) if int(number) in self.boards else None

    def next_for(self, has: int | None, form: Form = PLAIN) -> tuple[int, bytes] | None:
        """Return the number of the board that a viewer has next, with the event that takes it there; None for none."""
        newest = self.newest
        if newest is None or has == newest.number:
            return None
        kept = None if has is None else self.boards.get(has)
        if kept is None or kept.board.layout != newest.board.layout:
            return self._snapshot(newest, form)
        key = (form.coding, kept.number, newest.number)
        if key not in self.differences:
            data = difference_of(kept.board, newest.board, form.coding)
            self.differences[key] = encoded("delta", self.event_id(newest.number), data)
            while len(self.differences) > KEPT_BOARDS:
                self.differences.popitem(last=False)
        return newest.number, self.differences[key]

    def _snapshot(self, newest: Kept, form: Form) -> tuple[int, bytes]:
        """Return a snapshot, one made a moment ago where that is of the same layout, so that few are alive at once."""
        key = (form.coding, form.layout == newest.board.layout)
        found = self.snapshots.get(key)
        if found is not None:
            made = self.boards.get(found[0])
            is_near = made is not None and newest.number - made.number < SNAPSHOT_BOARDS
            if made is not None and is_near and made.board.layout == newest.board.layout:
                return found
        data = snapshot_of(newest.board, form)
        self.snapshots[key] = newest.number, encoded("snapshot", self.event_id(newest.number), data)
        return self.snapshots[key]


class Feeds:
    """The feeds that are watched."""

    def __init__(self, boards: BoardSource, clock: Clock, limits: FeedLimits) -> None:
        self._boards = boards
        self._clock = clock
        self._limits = limits
        self._feeds: dict[Hashable, Feed] = {}
        self._tenants: Counter[str] = Counter()
        self.is_stopping = False

    @property
    def viewers(self) -> int:
        """Return how many watch."""
        return self._tenants.total()

    @property
    def readings(self) -> int:
        """Return how many feeds there are."""
        return len(self._feeds)

    def check_room(self, tenant_id: str) -> None:
        """Refuse a viewer that there is no room for.

        Raises:
            Throttled(too_many_streams).
        """
        if self.viewers >= self._limits.streams or self._tenants[tenant_id] >= self._limits.tenant_streams:
            raise Throttled("too_many_streams", "too many live streams are open", 10.0)

    @asynccontextmanager
    async def watch(self, watched: Watched, tenant_id: str) -> AsyncIterator[Feed]:
        """Give the feed of what somebody watches; it is read while the block runs, and a moment longer."""
        feed = self._feeds.get(watched.key)
        if feed is None:
            feed = self._feeds[watched.key] = Feed(watched, _name(watched))
            feed.reading = asyncio.create_task(self._read(feed), context=Context())  # it outlives who came first
        feed.viewers += 1
        self._tenants[tenant_id] += 1
        try:
            yield feed
        finally:
            self._tenants[tenant_id] -= 1
            feed.viewers -= 1
            feed.left_seconds = self._clock.monotonic_seconds()

    def stop(self) -> None:
        """Let every viewer go, and take no more."""
        self.is_stopping = True
        for feed in self._feeds.values():
            feed.wake()

    async def close(self) -> None:
        """Stop reading; may be called twice."""
        tasks = [feed.reading for feed in self._feeds.values() if feed.reading is not None]
        self._feeds.clear()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def read_once(self, feed: Feed) -> None:
        """Read the board of the newest second, if the feed has not got it yet; no feed goes back."""
        now_ms, newest = self._clock.now_ms(), feed.newest
        after_ms = 0 if newest is None else newest.board.at_ms
        if after_ms >= latest_second(now_ms):
            return
        try:
            board = await asyncio.to_thread(self._newer, feed.watched, after_ms, now_ms)
        except SecondsightError as error:
            feed.trouble = "unavailable" if isinstance(error, Retryable) else "failed"
            logging.getLogger(__name__).warning("a live board could not be read: %s", error)
            feed.wake()
        else:
            feed.trouble = ""
            if board is not None:
                feed.add(board)

    def _newer(self, watched: Watched, after_ms: int, now_ms: int) -> Board | None:
        """Return the board of the newest second, None where there is none after some second; it blocks."""
        at_ms = self._boards.newest_ms(watched.filters, now_ms, watched.scope)
        if at_ms <= after_ms:
            return None
        board = self._boards.read(watched.metrics, watched.filters, at_ms, watched.scope)
        return replace(board, behind_ms=now_ms - at_ms)

    async def _read(self, feed: Feed) -> None:
        while feed.viewers or self._clock.monotonic_seconds() - feed.left_seconds < LINGER_SECONDS:
            await self.read_once(feed)
            now_ms = self._clock.now_ms()
            await asyncio.sleep(max((SECOND_MS - now_ms % SECOND_MS) / 1000, 0.05))
        self._feeds.pop(feed.watched.key, None)


def snapshot_of(board: Board, form: Form = PLAIN) -> dict[str, object]:
    """Return all of a board."""
    cells = None if form.layout == board.layout else [_cell(cell) for cell in board.cells]
    head = {**_head(board), "layout": board.layout, "cells": cells}
    if form.coding is Coding.BYTES:
        return head | frames_of(board)
    return head | {
        "values": {metric.name: listed(values) for metric, values in zip(board.metrics, board.values, strict=True)}
    }


def difference_of(before: Board, after: Board, coding: Coding = Coding.NUMBERS) -> dict[str, object]:
    """Return what changed between two boards of one layout: by metric, positions of cells and their values."""
    if coding is Coding.BYTES:
        return _head(after) | changes_between(before, after)
    changes: dict[str, object] = {}
    for metric, old, new in zip(after.metrics, before.values, after.values, strict=True):
        moved = np.flatnonzero((old != new) & ~(np.isnan(old) & np.isnan(new)))
        if moved.size:
            changes[metric.name] = {"cells": moved.tolist(), "values": listed(new[moved])}
    return {**_head(after), "changes": changes}


def listed(values: F64) -> list[float | None]:
    """Return figures with `DIGITS` significant digits, None for NaN."""
    known = ~np.isnan(values)
    rounded: list[float | None] = [float(f"{value:.{DIGITS}g}") for value in np.nan_to_num(values).tolist()]
    return [value if there else None for value, there in zip(rounded, known.tolist(), strict=True)]


def encoded(event: str, event_id: str, data: object) -> bytes:
    """Return one server-sent event."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.encode(), event_id.encode(), orjson.dumps(data))


def _head(board: Board) -> dict[str, object]:
    return {
        "at": format_time(board.at_ms),
        "behindMs": board.behind_ms,
        "units": {metric.name: metric.unit for metric in board.metrics},
    }


def _cell(cell: Cell) -> dict[str, object]:
    return {
        "tenantId": cell.tenant_id,
        "clusterId": cell.cluster_id,
        "rack": cell.rack,
        "hostId": cell.host_id,
        "gpuId": cell.gpu_id,
        "index": cell.index,
    }


def _name(watched: Watched) -> str:
    return blake2b(repr(_ordered(watched)).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _ordered(watched: Watched) -> tuple[object, ...]:
    """Return what is watched in a form that is written alike in every process."""
    sets = ("clusters", "teams", "jobs", "model_ids", "denied_metrics")
    boxes = sorted(
        repr((box.tenant_ids, *(sorted(names) if (names := getattr(box, name)) is not None else None for name in sets)))
        for box in watched.scope.boxes
    )
    return (tuple(metric.name for metric in watched.metrics), watched.filters, boxes)
