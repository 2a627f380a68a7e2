"""Read a store that another process owns, through its Flight server, and hand it rollups to write."""

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow import flight as untyped_flight

from secondsight.errors import Retryable
from secondsight.store.cancel import ended_by
from secondsight.store.failures import StoreBusy
from secondsight.store.messages import DROP, END, KILL, POSITION, decode_failure, encode_follow, encode_request
from secondsight.store.question import Question, Reply, encode_question, reply_of
from secondsight.store.statement import (
    ANSWER_GRACE_SECONDS,
    KILL_GRACE_SECONDS,
    WAIT_FOR_READER_SECONDS,
    kill_after_seconds,
)
from secondsight.store.tail import Told

KILL_PATIENCE_SECONDS = 15.0
"""How long the end of a question may take after it was killed."""
LIFE_SECONDS = 4.0
"""How long a server may take to say that it is alive, before it is asked anything that may take longer."""

_flight: Any = untyped_flight


class FlightStore:
    """A `contracts.Store` that writes only what its owner allows.

    Safe to call from several threads; survives restarts of the server.

    Args:
        address: `grpc+unix://...`, or the file `store.address`, which is read again at each new connection.
    """

    def __init__(self, address: str | Path) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._client: Any = None
        self._closed = False

    def insert(self, table: str, data: Any) -> None:
        """Have the owner insert an Arrow table.

        Raises:
            Rejected(read_only): The owner takes no rows for the table.
            Retryable: The server is away, stopped, restarting or busy; inserting the same rows again is right.
        """
        options = _flight.FlightCallOptions(timeout=_patience_seconds(None))
        with self._living() as client:
            writer, _ = client.do_put(_flight.FlightDescriptor.for_command(table.encode()), data.schema, options)
            with writer:
                writer.write_table(data)

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one read and return an Arrow table.

        Raises:
            Retryable: The server is away, stopped, restarting or busy.
            QueryLimited: The statement ran into a limit.
            Permanent: The statement is wrong, or writes.
        """
        marker = uuid.uuid4().hex
        ticket = _flight.Ticket(encode_request(sql, params, settings, marker))
        options = _flight.FlightCallOptions(timeout=_patience_seconds(settings))
        with ended_by(partial(self._end, marker)), self._living() as client:
            return client.do_get(ticket, options).read_all()

    def ask(self, question: Question) -> Reply:
        """Have the owner run a question of somebody outside.

        Raises:
            Retryable: The server is away, stopped, restarting or busy.
            QueryLimited: It ran into a limit, or was killed.
            Permanent: The engine refuses it.
        """
        options = _flight.FlightCallOptions(
            timeout=question.deadline_seconds + KILL_GRACE_SECONDS + KILL_PATIENCE_SECONDS
        )
        ticket = _flight.Ticket(encode_question(question))
        with ended_by(partial(self.kill, question.marker)), self._living() as client:
            return reply_of(client.do_get(ticket, options).read_all())

    def kill(self, marker: str) -> None:
        """End a question; returns once the engine does not run it any more.

        Raises:
            Retryable: The server is away, stopped or restarting.
        """
        self._act(KILL, marker)

    def drop_part(self, table: str, part: str) -> None:
        """Have the owner delete one part of a table whose old rows may go.

        Raises:
            Rejected(read_only): They may not.
            Retryable: The server is away, stopped, restarting or busy.
            Permanent: There is no such part.
        """
        self._act(DROP, f"{table}/{part}")

    def follow(self, wanted: Mapping[str, Sequence[str]]) -> Iterator[Told]:
        """Yield what the owner inserts from now on into some columns of some tables; see `tail.py`.

        The owner says at least once a second that it is there. Closing the iterator ends it.

        Raises:
            Retryable: While iterating: the server is away, stopped or restarting, or this reader was too slow.
        """
        ticket = _flight.Ticket(encode_follow(wanted))
        with self._living() as client:
            reader = client.do_get(ticket)
            try:
                for chunk in reader:
                    yield _told(chunk.data)
            finally:
                reader.cancel()

    def position(self) -> tuple[str, int]:
        """Return the life of the owner's tail and how many messages it has published.

        Raises:
            Retryable: The server is away, stopped or restarting.
        """
        life, _, number = self._act(POSITION, "")[0].decode().partition(" ")
        return life, int(number)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._closed = True
        self._forget(self._client)

    def _end(self, marker: str) -> None:
        self._act(END, marker)

    def _act(self, action: str, body: str) -> list[bytes]:
        options = _flight.FlightCallOptions(timeout=KILL_PATIENCE_SECONDS)
        with self._living() as client:
            return [one.body.to_pybytes() for one in client.do_action((action, body.encode()), options)]

    @contextmanager
    def _living(self) -> Iterator[Any]:
        """Give a client whose server says that it is alive; what fails of its calls becomes the project's errors."""
        client = self._connected()
        try:
            list(client.list_actions(_flight.FlightCallOptions(timeout=LIFE_SECONDS)))
            yield client
        except _flight.FlightServerError as error:
            raise decode_failure(error.extra_info) from None
        except (_flight.FlightError, OSError) as error:
            self._forget(client)
            raise StoreBusy(f"the store server is away: {type(error).__name__}", retry_after_seconds=1.0) from None

    def _connected(self) -> Any:
        with self._lock:
            if self._closed:
                raise Retryable("the store client is closed")
            if self._client is None:
                self._client = _flight.connect(self._read_address())
            return self._client

    def _read_address(self) -> str:
        if isinstance(self._address, str):
            return self._address
        try:
            return self._address.read_text()
        except OSError:
            raise StoreBusy("the store server has not started", retry_after_seconds=1.0) from None

    def _forget(self, client: Any) -> None:
        """Drop a connection, unless another thread replaced it already."""
        with self._lock:
            if client is not None and self._client is client:
                self._client = None


def _told(rows: Any) -> Told:
    kind, number, store, table, until_ms = (rows.column(place)[0].as_py() for place in range(5))
    return Told(kind, number, store, table, until_ms, rows.column(5)[0].as_buffer())


def _patience_seconds(settings: Mapping[str, Any] | None) -> float:
    """Return how long to wait for an answer: longer than the server's own deadline."""
    return kill_after_seconds(settings) + WAIT_FOR_READER_SECONDS + ANSWER_GRACE_SECONDS
