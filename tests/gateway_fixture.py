"""A real gateway on loopback over a real log, frames to send to it, and a view of what it stored."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from secondsight.access.identity import Role
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock, ManualClock
from secondsight.contracts import LogWriter
from secondsight.errors import Retryable
from secondsight.gateway.app import Gateway, Stores
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.run import make_server, open_listening, open_stores
from secondsight.log.tail import Tail
from secondsight.log.topics import DEFINITIONS_TOPIC, INGEST_TOPIC
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.envelope import Envelope, decode_envelope
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import NUMPY_TYPES, make_schema

NOW_MS = 1_700_000_000_000
FRAMES = "application/x-secondsight-frame"
GPU_METRICS = ("gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_power_watts")


def column(metric: str, **changes: Any) -> Column:
    """A column as the catalogue has it, or as `changes` say; unknown metrics need all of them."""
    catalog = load_catalog()
    if metric in catalog:
        known = catalog.get(metric)
        return replace(Column(metric, known.unit, known.dtype or "u32", known.resolution or 1.0), **changes)
    return replace(Column(metric, "1", "u32", 1.0), **changes)


def content(
    host_id: str = "host-1",
    columns: Sequence[Column] | None = None,
    kind: EntityKind = EntityKind.GPU,
    entities: int = 2,
    ticks: int = 1,
) -> Content:
    """Dense cells of `entities` x `ticks` rows."""
    schema = make_schema(kind, [column(name) for name in GPU_METRICS] if columns is None else columns)
    table = EntityTable(kind, host_id, "rack-1", tuple(Entity(f"GPU-{host_id}-{index}") for index in range(entities)))
    rows = entities * ticks
    groups, first = [], 0
    for dtype, numpy_type in NUMPY_TYPES.items():
        width = sum(item.dtype == dtype for item in schema.columns)
        if width:
            values = (np.arange(width * rows).reshape(width, rows) % 100).astype(numpy_type)
            groups.append(Group(first, values, None))
            first += width
    block = ScalarBlock(
        entity_index=np.tile(np.arange(entities, dtype=np.uint32), ticks),
        tick_index=np.repeat(np.arange(ticks, dtype=np.uint16), entities),
        observed_delta_ms=np.zeros(rows, np.int32),
        groups=tuple(groups),
        quality_row=np.empty(0, np.uint32),
        quality_column=np.empty(0, np.uint16),
        quality=np.empty(0, np.uint8),
    )
    return Content(schema, table, block)


def stamp(host_id: str = "host-1", sequence: int = 1, newest_ms: int = NOW_MS, ticks: int = 1, **changes: Any) -> Stamp:
    """The stamp of a collector named as its host, whose newest tick is `newest_ms`."""
    times = newest_ms - 1000 * np.arange(ticks - 1, -1, -1, dtype=np.int64)
    made = Stamp(host_id, host_id, "nvml", 77, sequence, sequence + ticks - 1, times, 1000)
    return replace(made, **changes)


def frame(host_id: str = "host-1", sequence: int = 1, *, inline: bool = True, newest_ms: int = NOW_MS) -> bytes:
    """One plain frame."""
    return encode(stamp(host_id, sequence, newest_ms), content(host_id), inline=inline)


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass(slots=True)
class Running:
    """A gateway that serves, with its parts."""

    gateway: Gateway
    port: int
    config: GatewayConfig
    stores: Stores
    clock: Clock

    def token(self, pattern: str = "*", role: Role = Role.COLLECTOR, **changes: Any) -> str:
        writes = role is Role.COLLECTOR
        spec = TokenSpec(role, "t1", "test", "c1" if writes else "", "eu" if writes else "", pattern if writes else "")
        return create_token(self.stores.metadata, replace(spec, **changes), NOW_MS).secret

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())
        finally:
            connection.close()

    def post(self, body: bytes, token: str, **headers: str) -> Reply:
        named = {"Content-Type": FRAMES, "Authorization": f"Bearer {token}"}
        return self.call("POST", "/v1/frames", body, named | {k.replace("_", "-"): v for k, v in headers.items()})

    def records(self) -> list[Envelope]:
        return read_ingest(self.config.data)


def read_topic(data: Path, topic: str) -> list[bytes]:
    tail = Tail(data / "log", topic, ManualClock(), start={})
    try:
        found: list[bytes] = []
        while taken := tail.poll(1 << 24, 0).records:
            found += [record.value for record in taken]
        return found
    finally:
        tail.close()


def read_ingest(data: Path) -> list[Envelope]:
    return [decode_envelope(value) for value in read_topic(data, INGEST_TOPIC)]


def read_definitions(data: Path) -> list[bytes]:
    return read_topic(data, DEFINITIONS_TOPIC)


class FlakyLog:
    """A log that is away while told to be."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self.away = False
        self.calls = 0

    def append(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        self.calls += 1
        if self.away:
            raise Retryable("log is away", retry_after_seconds=7)
        self._log.append(items)

    def close(self) -> None:
        self._log.close()


@contextlib.contextmanager
def serving(
    data: Path, clock: Clock | None = None, change: Callable[[Stores], Stores] = lambda stores: stores, **settings: Any
) -> Iterator[Running]:
    """Serve a gateway in a thread; `change` may replace a store by one that behaves otherwise."""
    config = GatewayConfig(data=data, listen="127.0.0.1:0", **settings)
    used = clock or ManualClock(NOW_MS)
    stores = change(open_stores(config, used))
    gateway = Gateway(config, stores, load_catalog(config.catalogue), used)
    listening = open_listening(config.listen)
    server = make_server(gateway, config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield Running(gateway, listening.getsockname()[1], config, stores, used)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()
    assert not thread.is_alive()
