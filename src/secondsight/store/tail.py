"""Give rows, once they are inserted, to whoever follows the tables of samples.

A follower has a queue of its own that is bounded in bytes: one that is slow is cut off, told why, and begins again; it
never holds up an insert. Rows are written out as they are published, for the memory they lie in is used again. Without
followers nothing is done.

A stream begins with `BEGIN`: rows whose insert ends after it are in the stream, and all other rows can be read by then.
`LOST` says that rows of a table were changed otherwise, so that what was followed of it does not hold any more.
"""

import re
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from secondsight.model import EntityKind
from secondsight.store.failures import StoreBusy
from secondsight.store.schema import raw_table, rollup_table

TABLES = frozenset(made(kind) for kind in EntityKind for made in (raw_table, rollup_table))
QUEUE_BYTES = 256 << 20
"""What may wait for one follower."""
ALIVE_SECONDS = 1.0
"""After so long without rows a follower is told that there are none, which also finds out whether it is still there."""
FOLLOWERS_MAXIMUM = 16
FOREVER_MS = 1 << 62

BEGIN, ROWS, LOST, ALIVE = "begin", "rows", "lost", "alive"
_NAMED = re.compile(r"\w+_(?:1s|30s)\b")
_OLD_PART = re.compile(r"DROP PART '(\d{8})-")


@dataclass(frozen=True, slots=True)
class Told:
    """One message of a stream.

    Attributes:
        number: How many were published before it and by it, counted by the store.
        store: Which life of the store counted; another one begins anew.
        until_ms: Of `LOST`: rows of earlier times than this may be gone or changed.
        body: Of `ROWS`: an Arrow stream of the rows.
    """

    kind: str
    number: int
    store: str = ""
    table: str = ""
    until_ms: int = 0
    body: Any = b""


class Following:
    """What one follower has not read yet. Iterate over it from one thread; close it from any.

    Raises:
        StoreBusy: While iterating: it was too slow and is cut off, or the store is closing.
    """

    def __init__(self, tail: "Tail", wanted: Mapping[str, Sequence[str]], most_bytes: int) -> None:
        self._tail = tail
        self.wanted = {table: frozenset(columns) for table, columns in wanted.items()}
        self._most_bytes = most_bytes
        self._ready = threading.Condition()
        self._waiting: deque[Told] = deque()
        self._bytes = 0
        self._end = ""

    def __iter__(self) -> Iterator[Told]:
        """Yield messages until it is closed, cut off, or the store closes."""
        try:
            while True:
                yield self._next()
        finally:
            self.close()

    def give(self, told: Told) -> None:
        """Add a message, or cut the follower off."""
        with self._ready:
            self._bytes += len(told.body)
            if self._bytes > self._most_bytes:
                self._end = f"cut off: {self._bytes >> 20} MiB of rows waited to be read"
                self._waiting.clear()
                self._tail.cut(self)
            else:
                self._waiting.append(told)
            self._ready.notify()

    def end(self, reason: str) -> None:
        """Have the follower stop."""
        with self._ready:
            self._end = reason
            self._ready.notify()

    def close(self) -> None:
        """Follow no longer; may be called twice."""
        self._tail.drop(self)
        self.end("closed")

    def _next(self) -> Told:
        with self._ready:
            if not self._waiting and not self._end:
                self._ready.wait(ALIVE_SECONDS)
            if self._end:
                raise StoreBusy(self._end, retry_after_seconds=1.0)
            if not self._waiting:
                return Told(ALIVE, 0)
            told = self._waiting.popleft()
            self._bytes -= len(told.body)
            return told


class Tail:
    """Followers of one store. Safe to call from several threads."""

    def __init__(self, most_bytes: int = QUEUE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.RLock()
        self._followers: tuple[Following, ...] = ()
        self._number = 0
        self._is_closed = False
        self.cut_off = 0
        self.store = uuid.uuid4().hex

    @property
    def position(self) -> tuple[str, int]:
        """Return the life of the store and how many messages were published."""
        with self._lock:
            return self.store, self._number

    def follow(self, wanted: Mapping[str, Sequence[str]]) -> Following:
        """Return a stream of some columns of some tables, from now on.

        Raises:
            StoreBusy: The store is closing, or too many follow it.
        """
        following = Following(self, wanted, self._most_bytes)
        with self._lock:
            if self._is_closed or len(self._followers) >= FOLLOWERS_MAXIMUM:
                raise StoreBusy("the store takes no more followers", retry_after_seconds=5.0)
            following.give(Told(BEGIN, self._number, self.store))
            self._followers = (*self._followers, following)
        return following

    def publish(self, table: str, rows: Any) -> None:
        """Give rows that were inserted to their followers."""
        if not self._followers or table not in TABLES:
            return
        with self._lock:
            self._number += 1
            made: dict[frozenset[str], Any] = {}
            for following in self._followers:
                if table in following.wanted:
                    columns = following.wanted[table]
                    body = made.get(columns)
                    if body is None:
                        body = made[columns] = _written(rows, columns)
                    following.give(Told(ROWS, self._number, self.store, table, body=body))

    def lost(self, table: str, until_ms: int = FOREVER_MS) -> None:
        """Say that rows of a table may have been changed by something else than `publish` told."""
        if not self._followers or table not in TABLES:
            return
        with self._lock:
            self._number += 1
            for following in self._followers:
                following.give(Told(LOST, self._number, self.store, table, until_ms))

    def lost_by(self, sql: str) -> None:
        """Say what a statement that is no read may have changed."""
        if self._followers:
            old = _OLD_PART.search(sql)
            until_ms = FOREVER_MS if old is None else _end_of_day_ms(old.group(1))
            for table in sorted(set(_NAMED.findall(sql)) & TABLES):
                self.lost(table, until_ms)

    def drop(self, following: Following) -> None:
        """Forget a follower; may be called twice."""
        with self._lock:
            self._followers = tuple(each for each in self._followers if each is not following)

    def cut(self, following: Following) -> None:
        """Forget a follower that is too slow."""
        self.cut_off += 1
        self.drop(following)

    def close(self) -> None:
        """Have every follower stop, and take no more; may be called twice."""
        with self._lock:
            self._is_closed = True
        for following in self._followers:
            following.end("the store is closing")


def _written(rows: Any, columns: frozenset[str]) -> Any:
    """Return some columns of rows as the bytes of an Arrow stream, in memory of just that size."""
    some = rows.select([name for name in rows.column_names if name in columns])
    measured = pa.MockOutputStream()
    with pa.ipc.new_stream(measured, some.schema) as writer:
        writer.write_table(some)
    made = pa.allocate_buffer(measured.size())
    with pa.FixedSizeBufferWriter(made) as sink, pa.ipc.new_stream(sink, some.schema) as writer:
        writer.write_table(some)
    return made


def _end_of_day_ms(day: str) -> int:
    end = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC) + timedelta(days=1)
    return round(end.timestamp() * 1000)
