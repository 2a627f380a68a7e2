"""The read API under viewers, and one client beside VictoriaMetrics on the same bodies in the same run.

Hosts of 8 GPUs send 15 minutes of remote write, the same bytes into both. Then 50 viewers ask what pages ask, one
question a second each, with kept answers and without. One client asks with `format=columns` for one GPU of 15 minutes
at 1 s, the average of a cluster in windows of 30 s, and the highest five over 5 minutes, each time about another GPU or
instant, so that nothing is kept. `quiet_ms` is what an eleventh tenant waits for while ten ask as much as they may, and
`alone_ms` what it waits for without them. Then the one client asks both again about 128 hosts that sent 8 minutes;
these figures end with the number of GPUs.
"""

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

import _fleet
import _platform
import _remotewrite
import _victoria
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.catalog.load import load_catalog
from secondsight.model import EntityKind
from secondsight.store.client import FlightStore

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "5" if QUICK else "30"))
HOSTS = int(os.environ.get("BENCH_HOSTS", "2" if QUICK else "32"))
HOSTS_LARGE = int(os.environ.get("BENCH_HOSTS_LARGE", "0" if QUICK else "128"))
SPAN_SECONDS = 300 if QUICK else 960
SPAN_SECONDS_LARGE = 300 if QUICK else 480
EACH_SECONDS = 30
VIEWERS = 50
REPEATS = 20 if QUICK else 50
SETTLE_SECONDS = 30 if QUICK else 240
METRICS = ("gpu_power_watts", "gpu_utilization_ratio", "gpu_temperature_celsius")
FOREIGN = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
}
Paths = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Whose samples are asked about: so many hosts, over a range that ends at `end_ms`."""

    hosts: int
    seconds: int
    end_ms: int

    @property
    def gpus(self) -> int:
        return self.hosts * _fleet.GPUS


class Client:
    """One kept-alive connection with a bearer token, or with none."""

    def __init__(self, address: str, token: str = "") -> None:
        parts = urlsplit(address)
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> tuple[int, float]:
        """Return status and milliseconds of a GET."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status, (time.perf_counter() - began) * 1000

    def close(self) -> None:
        self._connection.close()


def main() -> None:
    """Fill both, ask, and print one JSON line."""
    program = _victoria.binary()
    others = {"victoria-metrics": _victoria.version_of(program)}
    _platform.report("api", lambda folder: _measured(folder, program), others)


def _measured(folder: Path, program: Path) -> dict[str, Any]:
    figures = _small(folder / "small", program)
    if HOSTS_LARGE:
        figures |= _large(folder / "large", program)
    return figures


def _small(folder: Path, program: Path) -> dict[str, Any]:
    folder.mkdir()
    figures: dict[str, Any] = {}
    fleet, bodies = _made(HOSTS, SPAN_SECONDS)
    with _victoria.running(program, folder / "victoria") as victoria:
        _send(f"http://127.0.0.1:{victoria.port}", "", bodies)
        with _platform.started(folder=folder / "own") as running:
            _fill(running, fleet, bodies)
            token = (running.data / "tokens" / "admin").read_text().strip()
            figures |= _beside(running.address, token, f"http://127.0.0.1:{victoria.port}", fleet)
            figures |= _viewers(running.address, token, fleet)
            figures |= _tenants(running, fleet)
            figures |= {"rss_mib": running.rss_mib_by_part().get("api")}
        no_cache = {"SECONDSIGHT_API_CACHE_BYTES": "0"}
        with _platform.started(folder=folder / "own", environment=no_cache) as running:
            without = _viewers(running.address, token, fleet)
            figures |= {f"nocache_{name}": value for name, value in without.items()}
    return figures


def _large(folder: Path, program: Path) -> dict[str, Any]:
    """Ask both the same about more GPUs."""
    folder.mkdir()
    fleet, bodies = _made(HOSTS_LARGE, SPAN_SECONDS_LARGE)
    with _victoria.running(program, folder / "victoria") as victoria:
        _send(f"http://127.0.0.1:{victoria.port}", "", bodies)
        with _platform.started(folder=folder / "own") as running:
            _fill(running, fleet, bodies)
            token = (running.data / "tokens" / "admin").read_text().strip()
            figures = _beside(running.address, token, f"http://127.0.0.1:{victoria.port}", fleet)
    return {f"{name.removesuffix('_ms')}_{fleet.gpus}_ms": value for name, value in figures.items()}


def _made(hosts: int, seconds: int) -> tuple[Fleet, list[list[bytes]]]:
    """Return a fleet whose range ends a moment ago, and the bodies that its hosts send."""
    prepared = _fleet.prepare(seconds // _fleet.TICKS, _fleet.Data(kinds=frozenset({EntityKind.GPU})))
    catalog = load_catalog()
    begin_ms = (int(time.time()) - seconds - 20) // 30 * 30_000
    fleet = Fleet(hosts, seconds, begin_ms + seconds * 1000)
    print(f"{fleet.gpus} GPUs, {seconds} s, a share of {prepared.noisy_share:.2f} of the columns noisy")
    return fleet, [list(_remotewrite.bodies(prepared, catalog, host, begin_ms, EACH_SECONDS)) for host in range(hosts)]


def _fill(running: _platform.Running, fleet: Fleet, bodies: list[list[bytes]]) -> None:
    _send(running.gateway, (running.data / "tokens" / "collector").read_text().strip(), bodies)
    _settle(running, fleet)


def _send(address: str, token: str, bodies: list[list[bytes]]) -> None:
    """Send every host's bodies in their order."""
    parts = urlsplit(address)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=120)
    headers = FOREIGN | ({"Authorization": f"Bearer {token}"} if token else {})
    for body in (body for together in zip(*bodies, strict=True) for body in together):
        while True:
            connection.request("POST", "/api/v1/write", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status in (200, 204):
                break
            if answer.status not in (429, 503):
                raise SystemExit(f"{address} answered {answer.status}: {text[:300]!r}")
            time.sleep(0.5)
    connection.close()


def _settle(running: _platform.Running, fleet: Fleet) -> None:
    """Wait until every row is stored, for a bounded time."""
    store, deadline = FlightStore(running.data / "run" / "store.address"), time.monotonic() + SETTLE_SECONDS
    wanted, rows = fleet.gpus * fleet.seconds, 0
    while rows < wanted and time.monotonic() < deadline:
        time.sleep(1)
        rows = store.query("SELECT count() AS rows FROM gpu_1s WHERE part = ''").to_pylist()[0]["rows"]
    store.close()
    print(f"{rows:,} of {wanted:,} rows of GPUs are stored", flush=True)


def _beside(address: str, token: str, peer: str, fleet: Fleet) -> dict[str, float]:
    """Ask both the same, one after the other."""
    own, other = Client(address, token), Client(peer)
    figures = {}
    for name, (ours, theirs) in _pairs(fleet).items():
        for number in range(3):
            own.get(ours(number))
            other.get(theirs(number))
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(3, 3 + REPEATS):
            for client, path, into in ((own, ours(number), taken[0]), (other, theirs(number), taken[1])):
                status, took = client.get(path)
                if status != 200:
                    raise SystemExit(f"{path}: {status}")
                into.append(took)
        figures |= {f"{name}_ms": statistics.median(taken[0]), f"peer_{name}_ms": statistics.median(taken[1])}
        mine, peers = figures[f"{name}_ms"], figures[f"peer_{name}_ms"]
        print(f"{name} of {fleet.gpus} GPUs: {mine:.2f} ms, VictoriaMetrics {peers:.2f} ms", flush=True)
    own.close()
    other.close()
    return figures


def _pairs(fleet: Fleet) -> dict[str, tuple[Paths, Paths]]:
    """Return question -> paths here and there, by number."""
    span_ms, end_ms, hosts = min(900_000, fleet.seconds * 1000), fleet.end_ms, fleet.hosts

    def gpu_here(number: int) -> str:
        gpu = _fleet.gpu_id(number % hosts, number % _fleet.GPUS)
        asked = {"metrics": METRICS[number % 3], "from": end_ms - span_ms, "to": end_ms, "resolution": "1s"}
        return f"/v1/gpus/{gpu}/telemetry?{urlencode(asked | {'format': 'columns'})}"

    def gpu_there(number: int) -> str:
        gpu = _fleet.gpu_id(number % hosts, number % _fleet.GPUS)
        return _promql(f'{METRICS[number % 3]}{{UUID="{gpu}"}}', end_ms - span_ms, end_ms - 1000, "1s")

    def cluster_here(number: int) -> str:
        to_ms = end_ms - number % 5 * 30_000
        asked = {"metric": METRICS[number % 3], "groupBy": "cluster", "resolution": "30s", "format": "columns"}
        return f"/v1/metrics/query?{urlencode(asked | {'from': to_ms - span_ms // 2, 'to': to_ms})}"

    def cluster_there(number: int) -> str:
        to_ms = end_ms - number % 5 * 30_000
        return _promql(f"avg(avg_over_time({METRICS[number % 3]}[30s]))", to_ms - span_ms // 2 + 30_000, to_ms, "30s")

    def top_here(number: int) -> str:
        at_ms = end_ms - number * 1000
        return f"/v1/top?{urlencode({'metric': METRICS[number % 3], 'window': '5m', 'n': 5, 'at': at_ms})}"

    def top_there(number: int) -> str:
        at_s = end_ms // 1000 - number
        asked = {"query": f"topk(5, avg_over_time({METRICS[number % 3]}[5m]))", "time": at_s, "nocache": 1}
        return f"/api/v1/query?{urlencode(asked)}"

    return {
        "gpu_15min": (gpu_here, gpu_there),
        "cluster_avg": (cluster_here, cluster_there),
        "top5": (top_here, top_there),
    }


def _promql(query: str, from_ms: int, to_ms: int, step: str) -> str:
    asked = {"query": query, "start": from_ms // 1000, "end": to_ms // 1000, "step": step, "nocache": 1}
    return f"/api/v1/query_range?{urlencode(asked)}"


def _common(fleet: Fleet) -> list[Paths]:
    """Return what pages ask, by number; dashboards show the same ranges to all."""
    pairs, end_ms = _pairs(fleet), fleet.end_ms
    fixed = {"from": end_ms - 240_000, "to": end_ms - 60_000, "resolution": "30s", "format": "columns"}
    return [
        lambda _: "/v1/fleet",
        lambda _: "/v1/clusters",
        lambda _: "/v1/gpus?limit=100",
        lambda n: f"/v1/metrics/query?{urlencode(fixed | {'metric': METRICS[n % 3], 'groupBy': 'cluster'})}",
        lambda n: f"/v1/metrics/query?{urlencode(fixed | {'metric': METRICS[n % 3], 'groupBy': 'host'})}",
        pairs["gpu_15min"][0],
        pairs["top5"][0],
    ]


def _viewers(address: str, token: str, fleet: Fleet) -> dict[str, float]:
    """Let viewers ask one question a second each; return percentiles of all of them."""
    ends = time.monotonic() + SECONDS

    def view(number: int) -> list[float]:
        client, took = Client(address, token), []
        time.sleep(number / VIEWERS)
        for turn in count(number):
            due = time.monotonic() + 1
            if due > ends:
                break
            questions = _common(fleet)
            status, milliseconds = client.get(questions[turn % len(questions)](turn))
            if status != 200:
                raise SystemExit(f"a viewer was answered {status}")
            took.append(milliseconds)
            time.sleep(max(due - time.monotonic(), 0))
        client.close()
        return took

    with ThreadPoolExecutor(VIEWERS) as pool:
        found = [each for one in pool.map(view, range(VIEWERS)) for each in one]
    shares = {f"p{share}_ms": float(np.percentile(found, share)) for share in (50, 95, 99)}
    print(f"{VIEWERS} viewers: {json.dumps(shares)}", flush=True)
    return shares | {"requests_per_second": len(found) / SECONDS}


def _tenants(running: _platform.Running, fleet: Fleet) -> dict[str, float]:
    """Return what an eleventh tenant waits for alone, and while ten ask as fast as they are answered."""
    metadata = open_metadata(str(running.data / "metadata.sqlite"))
    grants = (Grant("default"),)
    secrets = [
        create_token(metadata, TokenSpec(Role.VIEWER, f"tenant-{n}", "bench", grants=grants), 0).secret
        for n in range(11)
    ]
    metadata.dispose()
    question = _pairs(fleet)["gpu_15min"][0]
    alone = _asked(Client(running.address, secrets[10]), question)
    with _busy(running.address, secrets[:10], _pairs(fleet)["cluster_avg"][0]):
        time.sleep(1)
        beside = _asked(Client(running.address, secrets[10]), question)
    print(f"eleventh tenant: {alone:.2f} ms alone, {beside:.2f} ms beside ten", flush=True)
    return {"alone_ms": alone, "quiet_ms": beside}


def _asked(client: Client, question: Paths) -> float:
    took = [client.get(question(number))[1] for number in range(5, 5 + REPEATS)]
    client.close()
    return statistics.median(took)


@contextmanager
def _busy(address: str, secrets: list[str], question: Paths) -> Iterator[None]:
    """Ask for tenants from four connections each, until the block ends."""
    stop = threading.Event()

    def ask(secret: str, first: int) -> None:
        client = Client(address, secret)
        for number in count(first):
            if stop.is_set():
                break
            status, _ = client.get(question(number))
            if status == 429:
                time.sleep(0.2)
        client.close()

    threads = [threading.Thread(target=ask, args=(secret, first)) for secret in secrets for first in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
