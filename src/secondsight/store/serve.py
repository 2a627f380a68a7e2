"""Answer reads of a store to other processes of the same user, as Arrow Flight on a Unix socket, and take rollups.

The socket lies in a folder that only its user may enter, and its address in `store.address` beside it. A request is a
ticket (`messages.py`); an answer is a stream of record batches. Statements that write are refused, and rows are taken
for the tables alone that the owner names. Parts whose rows may go are dropped (`retention.py`).
"""

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight as untyped_flight

from secondsight.errors import Rejected, SecondsightError
from secondsight.store.chdb import ChdbStore
from secondsight.store.messages import (
    DROP,
    END,
    KILL,
    POSITION,
    checked_marker,
    decode_follow,
    decode_request,
    encode_failure,
)
from secondsight.store.question import decode_question, with_cost
from secondsight.store.retention import drop_statement
from secondsight.store.statement import is_read
from secondsight.store.tail import Tail

ADDRESS_FILE = "store.address"
SOCKET_PATH_MAX_BYTES = 100
"""Unix socket paths end at 108 bytes; some room is left for what a library appends."""
_ADDRESSABLE = re.compile(r"[A-Za-z0-9/._~-]+")
"""What a path may hold to stand in an address as it is."""

TOLD = pa.schema(
    {
        "kind": pa.string(),
        "number": pa.int64(),
        "store": pa.string(),
        "table": pa.string(),
        "until_ms": pa.int64(),
        "body": pa.large_binary(),
    }
)
"""Columns of a stream of followed rows: one row a message, see `tail.Told`."""

_flight: Any = untyped_flight
_log = logging.getLogger(__name__)


class StoreServer:
    """A running server; made by `start_store_server`."""

    def __init__(self, server: Any, address: str, address_file: Path, folder: Path, tail: Tail) -> None:
        self._server = server
        self._tail = tail
        self._folder = folder
        self._address_file = address_file
        self.address = address
        self._thread = threading.Thread(target=server.serve, name="store-server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Refuse new requests, wait for running ones and take the address away; may be called twice."""
        if not self._folder.exists():
            return
        self._tail.close()
        self._server.shutdown()
        self._thread.join()
        self._address_file.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def start_store_server(store: ChdbStore, run_dir: Path, writable: frozenset[str] = frozenset()) -> StoreServer:
    """Serve `store` from threads of this process, and write the address to `run_dir`/store.address.

    Others may insert into the tables that are `writable`.

    The store is not closed with the server. What a killed predecessor left in `run_dir` is replaced: the owner of the
    store's folder owns the address too.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    folder = _private_folder(run_dir)
    socket_path = folder / "sock"
    socket_path.unlink(missing_ok=True)
    address = f"grpc+unix://{socket_path}"
    server = _handler_class()(store, address, writable)
    address_file = run_dir / ADDRESS_FILE
    _write_whole(address_file, address)
    return StoreServer(server, address, address_file, folder, store.tail)


def answer(store: ChdbStore, ticket: bytes) -> Any:
    """Run one request and return its Arrow table.

    Raises:
        Rejected: Not a request (bad_request), or not a read (read_only).
    """
    question = decode_question(ticket)
    if question is not None:
        return with_cost(store.ask(question))
    request = decode_request(ticket)
    if not is_read(request.sql):
        raise Rejected("read_only", "only the owner of the store writes")
    return store.query(request.sql, request.params, request.settings, marker=request.marker)


def told(tail: Tail, wanted: Mapping[str, Sequence[str]]) -> Iterator[Any]:
    """Yield what is inserted from now on, one record batch a message; see `TOLD`."""
    for one in tail.follow(wanted):
        ends = pa.py_buffer(np.array([0, len(one.body)], np.int64))
        body = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(one.body)])
        plain = (one.kind, one.number, one.store, one.table, one.until_ms)
        yield pa.record_batch([*(pa.array([value]) for value in plain), body], schema=TOLD)


def take(store: ChdbStore, table: str, rows: Any, writable: frozenset[str]) -> None:
    """Insert rows that another process made.

    Raises:
        Rejected(read_only): Others may not write to the table.
    """
    if table not in writable:
        raise Rejected("read_only", f"cannot insert into {table}: only the owner of the store writes")
    store.insert(table, rows.take(np.arange(rows.num_rows)))  # a copy, aligned as the engine wants it


def act(store: ChdbStore, action: str, body: str) -> list[bytes]:
    """End a question, or a read, or drop a part, or tell the position of the tail; return what is to be told.

    Raises:
        Rejected: Something else is wanted (bad_request), or a part whose rows are kept (read_only).
    """
    if action == POSITION:
        life, number = store.tail.position
        return [f"{life} {number}".encode()]
    if action == KILL:
        store.kill(body)
    elif action == END:
        store.end(checked_marker(body))
    elif action == DROP:
        store.query(drop_statement(*body.partition("/")[::2]))
    else:
        raise Rejected("bad_request", "no such action")
    return []


@contextmanager
def _telling() -> Iterator[None]:
    """Send the project's errors to whoever asked."""
    try:
        yield
    except SecondsightError as error:
        raise _flight.FlightServerError("refused", encode_failure(error)) from None


def _refusing(batches: Iterator[Any]) -> Iterator[Any]:
    with _telling():
        yield from batches


def _handler_class() -> Any:
    """Return the Flight server class; made late, because its base is untyped."""

    class Handler(_flight.FlightServerBase):  # type: ignore[misc] # the base is untyped
        def __init__(self, store: ChdbStore, address: str, writable: frozenset[str]) -> None:
            super().__init__(address)
            self._store = store
            self._writable = writable

        def list_actions(self, _context: Any) -> list[Any]:
            """Say that the server is alive."""
            return []

        def do_action(self, _context: Any, action: Any) -> list[Any]:
            with _telling():
                return act(self._store, action.type, action.body.to_pybytes().decode())

        def do_get(self, _context: Any, ticket: Any) -> Any:
            with _telling():
                wanted = decode_follow(ticket.ticket)
                if wanted is not None:
                    return _flight.GeneratorStream(TOLD, _refusing(told(self._store.tail, wanted)))
                return _flight.RecordBatchStream(answer(self._store, ticket.ticket))

        def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
            with _telling():
                take(self._store, descriptor.command.decode(), reader.read_all(), self._writable)

    return Handler


def _private_folder(run_dir: Path) -> Path:
    """Return a folder that only this user may enter, short and plain enough for a socket's address."""
    folder = run_dir.absolute() / "store"
    if len(os.fsencode(folder / "sock")) > SOCKET_PATH_MAX_BYTES or not _ADDRESSABLE.fullmatch(str(folder)):
        return Path(tempfile.mkdtemp(prefix="secondsight-"))
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)
