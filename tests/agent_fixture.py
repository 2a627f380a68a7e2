"""A gateway that behaves, in memory and over HTTP, for tests of the agent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from secondsight.agent.client.connection import Answer
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Content, Entity, EntityTable, Frame, Group, ScalarBlock
from secondsight.wire.frame import decode, encode, split
from secondsight.wire.header import Stamp
from secondsight.wire.schema import Definitions, make_schema


@dataclass
class FakeGateway:
    """Takes bodies as a gateway does. `refuse` names a code for frames that it will never take.

    Attributes:
        is_busy: Only what is urgent is taken.
        urgent: Whether each body was said to be.
        script: Answers to give first, before anything is looked at: a status, an answer, or an error to raise.
    """

    refuse: Callable[[Frame], str | None] = lambda _frame: None
    script: list[int | Answer | Exception] = field(default_factory=list)
    definitions: Definitions = field(default_factory=Definitions)
    frames: list[Frame] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    now_ms: Callable[[], int] = lambda: 1_700_000_000_000
    body_limit_frames: int = 10_000
    closed: bool = False
    is_busy: bool = False
    urgent: list[bool] = field(default_factory=list)

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        answer = self._answer(body) if urgent or not self.is_busy else error_answer(429, "overloaded")
        self.statuses.append(answer.status)
        self.urgent.append(urgent)
        return answer

    def close(self) -> None:
        self.closed = True

    def _answer(self, body: bytes) -> Answer:
        if self.script:
            given = self.script.pop(0)
            if isinstance(given, Exception):
                raise given
            return given if isinstance(given, Answer) else error_answer(given, f"status_{given}")
        received_ms = self.now_ms()
        try:
            heads = split(body)
            if len(heads) > self.body_limit_frames:
                return error_answer(413, "body_too_large")
            frames = [decode(body, self.definitions, head.start) for head in heads]
        except Rejected as error:
            return error_answer(424 if error.code == "schema_unknown" else 400, error.code)
        for frame in frames:
            code = self.refuse(frame)
            if code is not None:
                return error_answer(400, code)
        self.frames += frames
        told = {"accepted": len(frames), "duplicate": 0, "rejected": [], "receivedMs": received_ms}
        return json_answer(200, told | {"sentMs": self.now_ms()})

    @property
    def ticks(self) -> list[tuple[str, int]]:
        """Return (collector, tick) of every row, in order of arrival, repeats included."""
        return [
            (frame.header.collector_id, int(frame.header.tick_times_ms[tick]))
            for frame in self.frames
            if frame.content.scalars is not None
            for tick in frame.content.scalars.tick_index
        ]


def json_answer(status: int, told: object, headers: dict[str, str] | None = None) -> Answer:
    return Answer(status, headers or {}, json.dumps(told).encode())


def error_answer(status: int, code: str, headers: dict[str, str] | None = None) -> Answer:
    return json_answer(status, {"error": {"code": code, "message": "no", "hint": ""}}, headers)


SCHEMA = make_schema(EntityKind.NODE, [Column("node_load1", "1", "u32", 0.01)])


def content_of(value: int = 100, host: str = "host-1") -> Content:
    return Content(SCHEMA, table_of(host), block_of(value))


def block_of(value: int) -> ScalarBlock:
    return ScalarBlock(
        entity_index=np.zeros(1, np.uint32),
        tick_index=np.zeros(1, np.uint16),
        observed_delta_ms=np.zeros(1, np.int32),
        groups=(Group(0, np.array([[value]], np.uint32), None),),
        quality_row=np.zeros(0, np.uint32),
        quality_column=np.zeros(0, np.uint16),
        quality=np.zeros(0, np.uint8),
    )


_TABLES: dict[str, EntityTable] = {}


def table_of(host: str) -> EntityTable:
    return _TABLES.setdefault(host, EntityTable(EntityKind.NODE, host, "", (Entity(host),)))


def frame_of(tick_ms: int, value: int = 100, collector: str = "host-1", host: str = "host-1") -> bytes:
    stamp = Stamp(collector, host, "host", 1, 0, 0, np.array([tick_ms], np.int64), 1000)
    return encode(stamp, content_of(value, host))


@contextmanager
def http_server(respond: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """Serve on a free port of loopback; `respond` gets the handler and the body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            respond(self, self.rfile.read(int(self.headers.get("content-length", 0))))

        do_POST = do_GET  # noqa: N815 # the name that http.server looks for

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer_over_http(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    handler.send_response(answer.status)
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(answer.body)))
    handler.end_headers()
    handler.wfile.write(answer.body)


def down() -> Retryable:
    return Retryable("gateway is away")
