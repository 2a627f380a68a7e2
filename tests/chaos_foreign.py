"""Foreign senders beside a fleet under blows: scrapes in pieces, twice and in disorder, until each is acknowledged.

They write to a cluster of their own, so what they sent is compared apart, by what the tables hold of it.
"""

import http.client
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from chaos_fleet import CATALOG, Story
from chaos_rig import AGAIN, ANSWER_SECONDS, PATIENCE_SECONDS, Cuttable
from foreign_index import SecondRequest, first_request, series_message, snappy
from foreign_rig import FIRST, JSON, SECOND
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.catalog.scale import to_physical
from secondsight.store.schema import raw_table, rollup_table
from up_rig import Platform

CLUSTER = "foreign"
HOSTS, EVERY_SECONDS = 3, 15
METRICS = ("node_load1", "gpu_temperature_celsius", "gpu_utilization_ratio")


class Piece(NamedTuple):
    """One request and when its turn is, in seconds of the story."""

    turn: float
    path: str
    headers: dict[str, str]
    body: bytes


class Place(NamedTuple):
    """Where a value is to be found."""

    metric: str
    host: str
    entity: str
    time_ms: int


@dataclass(repr=False)
class Foreigners:
    """One thread that sends what Prometheus and OpenTelemetry would.

    Attributes:
        wanted: What the tables are to hold.
    """

    story: Story
    proxy: Cuttable
    pace_seconds: float
    wanted: dict[Place, float] = field(default_factory=dict)
    sent: int = 0
    faults: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, running: Platform) -> None:
        metadata = open_metadata(str(running.data / "metadata.sqlite"))
        spec = TokenSpec(Role.COLLECTOR, "default", "prom-a", cluster_id=CLUSTER, collector_pattern="prom-a,*")
        secret = create_token(metadata, spec, time.time_ns() // 1_000_000).secret
        metadata.dispose()
        self._thread = threading.Thread(target=self._send_all, args=(self._pieces(), secret), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        assert self._thread is not None
        self._thread.join(PATIENCE_SECONDS)
        assert not self.faults, self.faults[:5]
        assert not self._thread.is_alive(), f"nothing of foreign senders is taken any more, {self.sent} were"

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(ANSWER_SECONDS + 5)

    def differences(self, query: Callable[[str], Any]) -> list[str]:
        """Return what the tables hold otherwise than it was sent, some of it."""
        found = {place: value for metric in METRICS for place, value in _held(query, metric)}
        wrong = [
            f"{place}: {found.get(place)}, not {value}"
            for place, value in self.wanted.items()
            if found.get(place) != value
        ]
        wrong += [f"{place} should not be" for place in found.keys() - self.wanted.keys()]
        return wrong + [words for metric in METRICS for words in self._wrong_windows(query, metric)]

    def _wrong_windows(self, query: Callable[[str], Any], metric: str) -> list[str]:
        """The windows of 30 s count each value once; the newest ones may be open."""
        until_ms = (self.story.end - 60) * 1000
        wanted = sum(place.metric == metric and place.time_ms < until_ms for place in self.wanted)
        table = rollup_table(CATALOG.get(metric).kind)
        where = f"cluster_id = '{CLUSTER}' AND collector_id LIKE '%{_JOBS[metric]}'"
        where += f" AND window_start < toDateTime({until_ms // 1000}, 'UTC')"
        held = query(f"SELECT sum(samples) AS n FROM {table} FINAL WHERE {where}").to_pylist()[0]["n"] or 0
        return [] if held == wanted else [f"{metric}: {held} samples in windows, not {wanted}"]

    def _pieces(self) -> list[Piece]:
        chance = random.Random(f"foreign {self.story.seed}")
        made: list[Piece] = []
        for second in range(0, self.story.seconds, EVERY_SECONDS):
            for number in range(HOSTS):
                for piece in self._scrape(number, second):
                    made += [piece._replace(turn=second + chance.uniform(0, 60))] * chance.choice((1, 1, 1, 2))
        return sorted(made, key=lambda piece: piece.turn)

    def _scrape(self, number: int, second: int) -> list[Piece]:
        host, gpu, time_ms = f"foreign-{number}", f"GPU-foreign-{number}", (self.story.start + second) * 1000
        load, heat, busy = (second + number) % 400 / 4, 30 + (second + number) % 50, (second + number) % 100 / 100
        self.wanted |= {
            Place("node_load1", host, host, time_ms): load,
            Place("gpu_temperature_celsius", host, gpu, time_ms): float(heat),
            Place("gpu_utilization_ratio", host, gpu, time_ms): busy,
        }
        node = [("__name__", "node_load1"), ("instance", f"{host}:9100"), ("job", "node")]
        dcgm = [("__name__", "DCGM_FI_DEV_GPU_TEMP"), ("Hostname", host), ("UUID", gpu), ("job", "dcgm")]
        second_request = SecondRequest()
        series = second_request.series(dcgm, samples=[(float(heat), time_ms)])
        first = snappy(first_request(series_message(node, [(load, time_ms)])))
        return [
            Piece(0, "/api/v1/write", FIRST, first),
            Piece(0, "/api/v1/write", SECOND, snappy(second_request.bytes(series))),
            Piece(0, "/v1/metrics", JSON, orjson.dumps(_otlp(host, gpu, busy, time_ms))),
        ]

    def _send_all(self, pieces: list[Piece], secret: str) -> None:
        began = time.monotonic()
        for piece in pieces:
            turn = min(piece.turn / self.story.seconds, 1.0) * self.pace_seconds
            self._stop.wait(max(0.0, began + turn - time.monotonic()))
            while not self._stop.is_set() and not self._sent(piece, secret):
                self._stop.wait(0.2)

    def _sent(self, piece: Piece, secret: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=ANSWER_SECONDS)
        try:
            headers = piece.headers | {"Authorization": f"Bearer {secret}"}
            connection.request("POST", piece.path, piece.body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if status in AGAIN:
            return False
        if status not in (200, 204) or b"rejected" in text:
            self.faults.append(f"{piece.path} was answered {status} {text[:300]!r}")
        self.sent += 1
        return True


_JOBS = dict(zip(METRICS, ("node", "dcgm", "trainer"), strict=True))


def _held(query: Callable[[str], Any], metric: str) -> list[tuple[Place, float]]:
    known = CATALOG.get(metric)
    columns = f"host_id, entity, toUnixTimestamp64Milli(event_time) AS at, {metric} AS value"
    where = f"cluster_id = '{CLUSTER}' AND isNotNull({metric})"
    rows = query(f"SELECT {columns} FROM {raw_table(known.kind)} FINAL WHERE {where}").to_pylist()
    return [(Place(metric, row["host_id"], row["entity"], row["at"]), to_physical(known, row["value"])) for row in rows]


def _otlp(host: str, gpu: str, value: float, time_ms: int) -> dict[str, Any]:
    names = {"host.name": host, "service.name": "trainer"}
    resource = {"attributes": [{"key": name, "value": {"stringValue": text}} for name, text in names.items()]}
    attributes = [{"key": "hw.id", "value": {"stringValue": gpu}}]
    point = {"timeUnixNano": f"{time_ms}000000", "asDouble": value, "attributes": attributes}
    metric = {"name": "hw.gpu.utilization", "unit": "1", "gauge": {"dataPoints": [point]}}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}
