"""Store rows in chDB, the ClickHouse engine inside this process.

One process owns a folder. Within it one connection writes and a pool of connections reads, because a connection is a
mutex. Readers are read-only to the engine as well, so a read that hides a second statement cannot write. A connection
is thrown away after any exception: the engine would put rows of the failed query into the answer to the next one.
"""

import queue
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from secondsight.clock import Clock, SystemClock
from secondsight.store.asking import Asker
from secondsight.store.cancel import ended_by
from secondsight.store.connection import Connection, open_session
from secondsight.store.failures import StoreBusy, failure_of
from secondsight.store.params import parameter_texts
from secondsight.store.question import Question, Reply
from secondsight.store.schema import DATABASE
from secondsight.store.spec import quoted
from secondsight.store.statement import (
    DEADLINE_SECONDS,
    EXACT,
    READ_PRIORITY,
    WAIT_FOR_READER_SECONDS,
    insert_statement,
    is_read,
    kill_after_seconds,
    kill_statement,
    marked,
    without_blanks,
)
from secondsight.store.tail import Tail
from secondsight.store.watchdog import Watchdog

QUESTIONS = 2
_READER_SETTINGS: dict[str, Any] = {
    "output_format_arrow_compression_method": "none",
    "priority": READ_PRIORITY,
    "readonly": 2,
    **EXACT,
}
_WRITER_SETTINGS: dict[str, Any] = {"max_threads": 1, "optimize_on_insert": 0, **EXACT}


class ChdbStore:
    """A `contracts.Store` over one folder. Safe to call from several threads.

    Args:
        path: Folder; made when missing.
        readers: Queries that may run at once; further ones wait.
        database: Where unqualified table names are looked up; made when missing.
        clock: Source of deadlines.
        deadline_seconds: When a statement without `max_execution_time` is killed.
        questions: Questions of people outside that may run at once; further ones are sent away.

    Attributes:
        tail: Tells followers of every row that is inserted here.

    Raises:
        Retryable: Another process owns the folder.
    """

    def __init__(
        self,
        path: str | Path,
        readers: int = 4,
        *,
        database: str = DATABASE,
        clock: Clock | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        questions: int = QUESTIONS,
    ) -> None:
        self._path = Path(path).absolute()
        self._path.mkdir(parents=True, exist_ok=True)
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._closed = False
        self.tail = Tail()
        self._anchor = open_session(self._path)
        self._anchor.query(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
        self._kill_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._writer: Connection | None = None
        self._readers: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(readers):
            self._readers.put(None)
        self._reader_count = readers
        self._watchdog = Watchdog(self._kill, clock or SystemClock())
        self._asker = Asker(self._path, database, questions, clock or SystemClock())

    @property
    def readers(self) -> int:
        """Return how many queries may run at once."""
        return self._reader_count

    def insert(self, table: str, data: Any, settings: Mapping[str, Any] | None = None) -> None:
        """Insert an Arrow table; columns X_hi and X_lo of uint64 make the column X of type UInt128.

        Blocks until the rows are written. On an error none or, when they span partitions, some of the rows are in the
        table; inserting all of them again is right.

        Raises:
            Retryable: Busy, closed or out of memory.
            Permanent: The table or a column does not exist, or a type does not fit.
        """
        if data.num_rows == 0:
            return
        rows = data.unify_dictionaries().combine_chunks()
        with self._writing() as connection, self._telling(table, rows):
            said = without_blanks(rows)
            connection.insert(insert_statement(table, said.schema), said, settings or {})

    def query(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        marker: str = "",
    ) -> Any:
        """Run one statement; reads run beside each other, all else runs on the writer.

        `settings` bind this statement alone. With `max_execution_time` (seconds) the statement is killed one second
        after it, otherwise at the store's deadline. `marker` (32 hex digits) is what `end` knows it by.

        Raises:
            Retryable: Closed, or no reader came free in time.
            QueryLimited: The statement ran into a limit.
            StatementFailed: The statement is wrong.
        """
        use = self._reading() if is_read(sql) else self._changing(sql)
        limits = dict(settings or {})
        marker = marker or uuid.uuid4().hex
        deadline_seconds = kill_after_seconds(limits, self._deadline_seconds)
        ending = ended_by(partial(self.end, marker))
        with use as connection, self._watchdog.watching(marker, deadline_seconds), ending:
            return connection.run(marked(sql, marker), parameter_texts(params), limits)

    def end(self, marker: str) -> None:
        """End the statement that a marker is of, if it runs.

        Raises:
            Retryable, Permanent: The engine refuses.
        """
        self._kill(marker)

    def ask(self, question: Question) -> Reply:
        """Run a question of somebody outside, on a connection of its own.

        Raises:
            StoreBusy: Closed, or too many run.
            QueryLimited: It ran into a limit, or was killed.
            StatementFailed: The engine refuses it.
        """
        self._refuse_when_closed()
        return self._asker.ask(question)

    def kill(self, marker: str) -> None:
        """End a question; returns once the engine does not run it any more."""
        self._asker.kill(marker)

    def close(self) -> None:
        """Wait for running statements, then close all connections; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._asker.close()
        for _ in range(self._reader_count):
            _close(self._readers.get())
        with self._write_lock:
            _close(self._writer)
            self._writer = None
        self._watchdog.close()
        self._anchor.close()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._refuse_when_closed()
        try:
            connection = self._readers.get(timeout=WAIT_FOR_READER_SECONDS)
        except queue.Empty:
            raise StoreBusy(f"all {self._reader_count} readers are busy", retry_after_seconds=1.0) from None
        try:
            connection = connection or self._connect(_READER_SETTINGS)
            yield connection
        finally:
            self._readers.put(_kept(connection))

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._write_lock:
            self._refuse_when_closed()
            self._writer = self._writer or self._connect(_WRITER_SETTINGS)
            try:
                yield self._writer
            finally:
                self._writer = _kept(self._writer)

    @contextmanager
    def _changing(self, sql: str) -> Iterator[Connection]:
        with self._writing() as connection:
            try:
                yield connection
            finally:
                self.tail.lost_by(sql)

    @contextmanager
    def _telling(self, table: str, rows: Any) -> Iterator[None]:
        """Tell followers of rows that an insert writes, in the order of the inserts."""
        try:
            yield
        except BaseException:
            self.tail.lost(table)  # some of them may have been written
            raise
        self.tail.publish(table, rows)

    def _connect(self, settings: Mapping[str, Any]) -> Connection:
        return Connection(open_session(self._path), self._database, settings)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreBusy("the store is closed")

    def _kill(self, marker: str) -> None:
        try:
            with self._kill_lock:
                self._anchor.query(kill_statement(marker))
        except RuntimeError as error:
            raise failure_of(str(error)) from None


def _kept(connection: Connection | None) -> Connection | None:
    """Return the connection, or None after closing a broken one."""
    if connection is None or not connection.broken:
        return connection
    connection.close()
    return None


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
