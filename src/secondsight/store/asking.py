"""Run questions of people outside in the process that owns the engine, a few at once, and kill them for good."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from secondsight.clock import Clock
from secondsight.store.connection import open_session, setting_statement
from secondsight.store.failures import QueryLimited, StoreBusy, failure_of
from secondsight.store.question import Question, Reply, filter_setting
from secondsight.store.spec import quoted
from secondsight.store.statement import KILL_GRACE_SECONDS, is_read, kill_statement, marked
from secondsight.store.views import shared_database
from secondsight.store.watchdog import Watchdog

KILL_TRIES = 40
KILL_AGAIN_SECONDS = 0.05
_KILLED = 394

_log = logging.getLogger(__name__)


class Asker:
    """Runs questions on connections that are thrown away. Safe to call from several threads.

    Args:
        path: Folder of the engine, which this process has open.
        database: Of the tables, and of the views over them.
        at_once: Questions that may run at once; the next one is sent away.
        clock: Source of deadlines.
    """

    def __init__(self, path: Path, database: str, at_once: int, clock: Clock) -> None:
        self._path = path
        self._database = database
        self._clock = clock
        self._free = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._unwanted: set[str] = set()
        self._watchdog = Watchdog(self.kill, clock)

    def ask(self, question: Question) -> Reply:
        """Run a question and return what it gave; blocks until then.

        Raises:
            StoreBusy: Too many run.
            QueryLimited: It ran into a limit, or was killed.
            StatementFailed: The engine refuses it.
        """
        if not is_read(question.sql):
            raise failure_of("Code: 164. only reads are asked (READONLY)")
        if not self._free.acquire(blocking=False):
            raise StoreBusy("too many questions run", retry_after_seconds=1.0)
        try:
            with self._noted(question.marker), self._connected(question) as session:
                return self._run(session, question)
        finally:
            self._free.release()

    def kill(self, marker: str) -> None:
        """End a question and return once the engine does not run it any more; one that comes later is not begun."""
        with self._lock:
            if marker not in self._running:
                return
            self._unwanted.add(marker)
        for _ in range(KILL_TRIES):
            self._kill_once(marker)
            if not self._runs(marker):
                return
            self._clock.sleep(KILL_AGAIN_SECONDS)
        _log.error("a question goes on in the store although it was killed; its place stays taken until it ends")

    def close(self) -> None:
        """Kill what runs and stop watching; may be called twice."""
        for marker in tuple(self._running):
            self.kill(marker)
        self._watchdog.close()

    def _run(self, session: Any, question: Question) -> Reply:
        text = marked(question.sql, question.marker)
        with self._watchdog.watching(question.marker, question.deadline_seconds + KILL_GRACE_SECONDS):
            if question.marker in self._unwanted:
                raise QueryLimited(_KILLED)
            try:
                answer = session.query(text, "ArrowStream")
                body = answer.bytes()
            except RuntimeError as error:
                raise failure_of(str(error)) from None
        rows = pa.ipc.open_stream(body).read_all() if body else pa.table({})
        return Reply(rows, int(answer.storage_rows_read()), int(answer.storage_bytes_read()))

    @contextmanager
    def _connected(self, question: Question) -> Iterator[Any]:
        """Give a new connection that can only read, within the limits of a question; close it whatever happens."""
        session = open_session(self._path)
        try:
            home = shared_database(self._database) if question.shared else self._database
            session.query(f"USE {quoted(home)}")
            for name, value in question.limits.items():
                session.query(setting_statement(name, value))
            if question.filters:
                session.query(f"SET additional_table_filters = {filter_setting(question.filters)}")
            session.query("SET readonly = 1")
            yield session
        except RuntimeError as error:
            raise failure_of(str(error)) from None
        finally:
            session.close()

    @contextmanager
    def _noted(self, marker: str) -> Iterator[None]:
        with self._lock:
            self._running.add(marker)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(marker)
                self._unwanted.discard(marker)

    def _runs(self, marker: str) -> bool:
        with self._lock:
            return marker in self._running

    def _kill_once(self, marker: str) -> None:
        session = open_session(self._path)
        try:
            session.query(kill_statement(marker, sync=True))
        except RuntimeError as error:
            raise failure_of(str(error)) from None
        finally:
            session.close()
