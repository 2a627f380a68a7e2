"""Store rows in a ClickHouse server, over its HTTP interface.

Reads and writes have connections of their own, so that questions never hold up what is stored. Reads are read-only to
the server as well. A statement that outlives its deadline is killed at the server. Rows travel as Arrow. An insert
carries a token of its own, by which the server knows it again where a broken connection had it sent twice.
"""

import json
import threading
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from secondsight.clock import Clock, SystemClock
from secondsight.errors import Rejected
from secondsight.store.cancel import ended_by
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.http import HttpConnections, Statement
from secondsight.store.clickhouse.text import insert_body, setting_texts, split_params
from secondsight.store.deployment import Deployment
from secondsight.store.failures import StoreBusy, failure_of
from secondsight.store.params import literal, parameter_texts
from secondsight.store.question import Question, Reply, filter_setting
from secondsight.store.schema import create_database
from secondsight.store.statement import (
    ANSWER_GRACE_SECONDS,
    DEADLINE_SECONDS,
    EXACT,
    KILL_GRACE_SECONDS,
    READ_PRIORITY,
    WAIT_FOR_READER_SECONDS,
    is_read,
    kill_after_seconds,
    kill_statement,
    marked,
)
from secondsight.store.views import shared_database
from secondsight.store.watchdog import Watchdog

WRITERS, QUESTIONS = 4, 16
_READS = {"priority": READ_PRIORITY, "readonly": 2, "cancel_http_readonly_queries_on_client_close": 1, **EXACT}
_ANSWERS = {"default_format": "ArrowStream", "output_format_arrow_compression_method": "none"}
_WRITES = {"optimize_on_insert": 0, "async_insert": 0, **EXACT}


class ClickHouseStore:
    """A `contracts.Store` over one server. Safe to call from several threads; outlives restarts of the server.

    Args:
        readers: Queries that may run at once; further ones wait.
        read_only: Refuse whatever writes, and make no database.
        clock: Source of deadlines.
        deadline_seconds: When a statement without `max_execution_time` is killed.

    Raises:
        Rejected: `bad_config`: a file of the settings cannot be used.
    """

    def __init__(
        self,
        config: ClickHouseConfig,
        readers: int = 4,
        *,
        read_only: bool = False,
        clock: Clock | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._config = config
        self._read_only = read_only
        self._deadline_seconds = deadline_seconds
        self._closed = False
        self._reading = HttpConnections(config, readers)
        self._writing = HttpConnections(config, WRITERS)
        self._asking = HttpConnections(config.of_questions(), QUESTIONS)
        self._making = threading.Lock()
        self._made = read_only
        self._watchdog = Watchdog(self._kill, clock or SystemClock())

    @property
    def deployment(self) -> Deployment:
        """Return how tables are made here."""
        config = self._config
        credentials = f" USER {literal(config.user)} PASSWORD {literal(config.password())}"
        return Deployment(server=True, cluster=config.cluster, definer=config.view_user, credentials=credentials)

    def insert(self, table: str, data: Any, settings: Mapping[str, Any] | None = None) -> None:
        """Insert an Arrow table; columns X_hi and X_lo of uint64 make the column X of type UInt128.

        Blocks until the rows are written. After `Retryable` none, some or all of the rows are in the table; inserting
        all of them again is right.

        Raises:
            Retryable: Away, busy, closed or out of memory.
            Permanent: The table or a column does not exist, or a type does not fit.
        """
        self._refuse_writes(f"cannot insert into {table}")
        if data.num_rows == 0:
            return
        self._make_database()
        told = {**_WRITES, "insert_deduplication_token": uuid.uuid4().hex, **(settings or {})}
        body = insert_body(table, data)
        with self._writing.turn(self._config.insert_seconds):
            self._writing.send(Statement(body, self._told(told), self._config.insert_seconds, inserting=True))

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one statement and return an Arrow table.

        `settings` bind this statement alone. With `max_execution_time` (seconds) the statement is killed one second
        after it, otherwise at the store's deadline.

        Raises:
            Retryable: Away, busy or closed.
            Rejected: `read_only`, `store_refused`, `store_untrusted`.
            QueryLimited: The statement ran into a limit.
            StatementFailed: The statement is wrong.
        """
        reads = is_read(sql)
        if not reads:
            self._refuse_writes("cannot run a statement that writes")
        self._make_database()
        limits = dict(settings or {})
        marker = uuid.uuid4().hex
        deadline_seconds = kill_after_seconds(limits, self._deadline_seconds)
        whole, fields = split_params(sql, parameter_texts(params))
        told = {**(_READS if reads else _WRITES), **_ANSWERS, **limits, "max_query_size": len(whole) + (1 << 18)}
        patience_seconds = max(deadline_seconds, 0.0) + ANSWER_GRACE_SECONDS
        statement = Statement(marked(whole, marker).encode(), self._told(told), patience_seconds, fields)
        connections = self._reading if reads else self._writing
        ending = ended_by(partial(self._kill, marker))
        with connections.turn(WAIT_FOR_READER_SECONDS), self._watchdog.watching(marker, deadline_seconds), ending:
            answer = connections.send(statement)
        return pa.ipc.open_stream(answer).read_all() if answer else pa.table({})

    def ask(self, question: Question) -> Reply:
        """Run a question of somebody outside, as the user of questions.

        The server's row policies read whose rows may be seen from `log_comment`, which no word of the statement can
        change, as `readonly` goes with it.

        Raises:
            Rejected(sql_not_offered): There is no such user.
            Retryable, QueryLimited, StatementFailed: As `query`.
        """
        if not self._config.question_user:
            raise Rejected("sql_not_offered", "no user asks the server in SQL", "set clickhouse.question_user")
        if not is_read(question.sql):
            raise failure_of("Code: 164. only reads are asked (READONLY)")
        home = shared_database(self._config.database) if question.shared else self._config.database
        told = {
            "database": home,
            **setting_texts({**_ANSWERS, "cancel_http_readonly_queries_on_client_close": 1, **question.limits}),
            "additional_table_filters": filter_setting(question.filters),
            "log_comment": json.dumps(dict(question.scope)),
            "quota_key": question.quota,
            "readonly": "1",
        }
        deadline_seconds = question.deadline_seconds + KILL_GRACE_SECONDS
        patience_seconds = max(deadline_seconds, 0.0) + ANSWER_GRACE_SECONDS
        statement = Statement(marked(question.sql, question.marker).encode(), told, patience_seconds)
        with (
            ended_by(partial(self._kill, question.marker, sync=True)),
            self._asking.turn(0.0),
            self._watchdog.watching(question.marker, deadline_seconds),
        ):
            answer, cost = self._asking.send_counted(statement)
        rows = pa.ipc.open_stream(answer).read_all() if answer else pa.table({})
        return Reply(rows, cost.get("read_rows", 0), cost.get("read_bytes", 0))

    def close(self) -> None:
        """Close all connections; may be called twice."""
        self._closed = True
        self._asking.close()
        self._watchdog.close()
        self._reading.close()
        self._writing.close()

    def _make_database(self) -> None:
        """Make the database before the first statement that needs it."""
        if self._closed:
            raise StoreBusy("the store is closed")
        with self._making:
            if not self._made:
                statement = create_database(self._config.database, self.deployment)
                self._writing.send(Statement(statement.encode(), {}, self._config.insert_seconds))
                self._made = True

    def _refuse_writes(self, what: str) -> None:
        if self._read_only:
            raise Rejected("read_only", f"{what}: this store is only read here")

    def _told(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {"database": self._config.database, **setting_texts(settings)}

    def _kill(self, marker: str, *, sync: bool = False) -> None:
        kill = kill_statement(marker, Deployment(cluster=self._config.cluster).on_cluster, sync=sync)
        self._writing.send(Statement(kill.encode(), {}, self._config.connect_seconds + ANSWER_GRACE_SECONDS))
