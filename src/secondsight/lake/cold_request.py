"""Say what a cold read is asked, and turn questions and answers into bytes on a pipe and back.

A message is its length in eight bytes and the message; a question is JSON, then the small tables that it brings along
as Arrow streams. An answer begins with one byte: rows follow, or the reason why there are none.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import pyarrow as pa

from secondsight.errors import Retryable, SecondsightError
from secondsight.store.messages import decode_failure, encode_failure

ROWS, FAILURE = b"r", b"f"
_LENGTH = struct.Struct(">Q")
MESSAGE_BYTES_MAXIMUM = 8 << 30


@dataclass(frozen=True, slots=True)
class Reach:
    """Which files can hold rows of a question; the question itself says which rows. Empty names admit all.

    Attributes:
        from_ms, to_ms: Half open, epoch ms, with all that is looked at before and behind the range asked about.
    """

    from_ms: int
    to_ms: int
    tenants: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColdRequest:
    """One statement of the read side, to be answered from the lake.

    Attributes:
        tables: Name -> Arrow table, of what the lake does not have.
    """

    sql: str
    params: Mapping[str, Any]
    reach: Reach
    tables: Mapping[str, Any] = field(default_factory=dict)


def encode_request(request: ColdRequest) -> bytes:
    """Return the bytes of a question."""
    out = io.BytesIO()
    head = {"sql": request.sql, "params": dict(request.params), "reach": asdict(request.reach)}
    _put(out, json.dumps(head | {"tables": list(request.tables)}).encode())
    for table in request.tables.values():
        _put(out, _stream(table))
    return out.getvalue()


def decode_request(message: bytes) -> ColdRequest:
    """Return the question that bytes hold."""
    pieces = io.BytesIO(message)
    head = json.loads(_take(pieces))
    reach: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in head["reach"].items()
    }
    tables = {name: pa.ipc.open_stream(_take(pieces)).read_all() for name in head["tables"]}
    return ColdRequest(head["sql"], head["params"], Reach(**reach), tables)


def encode_answer(rows: Any) -> bytes:
    """Return the bytes of an answer."""
    return ROWS + _stream(rows)


def encode_refusal(error: SecondsightError) -> bytes:
    """Return the bytes of a reason why there is no answer."""
    return FAILURE + encode_failure(error)


def decode_answer(message: bytes) -> Any:
    """Return the rows of an answer.

    Raises:
        SecondsightError: What went wrong there.
    """
    if message[:1] == FAILURE:
        raise decode_failure(message[1:])
    return pa.ipc.open_stream(pa.py_buffer(message)[1:]).read_all()


def send(stream: IO[bytes], message: bytes) -> None:
    """Write a message.

    Raises:
        OSError: Nobody reads any more.
    """
    _put(stream, message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None where the other side ended.

    Raises:
        Retryable: It ended in the middle of one.
    """
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (-1,)
    message = stream.read(length) if 0 <= length <= MESSAGE_BYTES_MAXIMUM else b""
    if len(message) != length:
        raise Retryable("the process of cold reads ended while it answered")
    return message


def _put(stream: Any, message: bytes) -> None:
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)


def _take(stream: io.BytesIO) -> bytes:
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    return stream.read(length)


def _stream(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
