"""State what the seams promise: readers, logs, stores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from secondsight.wire.content import Content


@dataclass(frozen=True, slots=True)
class Tick:
    """What one reader took at one scheduled instant: contents of one or more kinds, each of exactly one tick.

    Attributes:
        collector: Suffix of the collector id for this source ("" for the agent's own readers).
        source: What frames call the source, where it is not the reader's name.
        earlier: (epoch ms, contents) of instants before this tick, from a source that tells several at once.
        interval_ms: Cadence of these rows where it is not the reader's own; 0 where it is.
        live: The ticks are older than others that were delivered, and hold nothing up.
    """

    contents: tuple[Content, ...]
    collector: str = ""
    source: str = ""
    earlier: tuple[tuple[int, tuple[Content, ...]], ...] = ()
    interval_ms: int = 0
    live: bool = False


class Reader(Protocol):
    """A source of samples. One thread at a time calls it; may block up to its deadline, after which it is left alone.

    A reader that has nothing returns an empty tick; one that failed raises, and is counted and called again next time.
    """

    name: str
    interval_ms: int

    def read(self, tick_ms: int) -> Tick:
        """Take every sample due at `tick_ms` (epoch ms, host clock)."""
        ...

    def close(self) -> None:
        """Free what the reader holds; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as read back.

    Attributes:
        offset: Position within the partition; strictly increasing, not always dense.
        append_time_ms: Wall time of the append, by the appending process.
    """

    partition: int
    offset: int
    append_time_ms: int
    value: bytes


class LogWriter(Protocol):
    """Appends to a topic. Safe to call from several threads."""

    def append(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Append (key, value) pairs; equal keys share a partition and keep their order. Durable when it returns.

        Raises:
            Retryable: Nothing is promised about any item; appending all of them again is right.
        """
        ...

    def close(self) -> None:
        """Make everything durable and close; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll gave.

    Attributes:
        records: In offset order within each partition.
        assigned: Partitions this consumer holds now.
        fresh: Those of them that it did not hold all the time since the last poll: another member may have read them.
        damaged: Records skipped since the last poll because their bytes were damaged.
    """

    records: tuple[LogRecord, ...]
    assigned: tuple[int, ...]
    damaged: int = 0
    fresh: tuple[int, ...] = ()


class LogConsumer(Protocol):
    """Reads a topic as one member of a group, from the committed offset on. One thread uses it."""

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records (at least one if any is there), waiting up to `wait_seconds` for one.

        Raises:
            Retryable: The log is away; poll again.
        """
        ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Durably store partition -> next offset to read after a restart. Never moves backwards.

        Raises:
            Retryable: The log is away; commit again.
        """
        ...

    def close(self) -> None:
        """Leave the group without committing; may be called twice."""
        ...


class Store(Protocol):
    """A hot store that speaks ClickHouse SQL. Tables are `pyarrow.Table`s.

    Implementations discard the engine connection after any exception: rows of a failed query must never appear in
    the answer to the next one.
    """

    def insert(self, table: str, data: Any) -> None:
        """Insert an Arrow table whose columns are named as in `table`; all or nothing.

        Raises:
            Retryable: Busy or away; inserting the same data again is safe for the tables of this project.
        """
        ...

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one statement and return an Arrow table (empty for DDL). Parameters are written `{name:Type}` in SQL.

        Raises:
            Retryable: Busy or away.
            Permanent: The statement is wrong, or ran into a limit of `settings`.
        """
        ...

    def close(self) -> None:
        """Close all connections; may be called twice."""
        ...
