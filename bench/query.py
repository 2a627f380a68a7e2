"""Questions over HTTP, on a store that is shaped like a year: quiet, and again while a live fleet is stored.

32 simulated hosts send 16 minutes through the gateway; `_year.py` makes of it 1,000 GPUs with 1 h rollups of three
months, 30 s of a day and 1 s of an hour, a tenth of the newest rows twice. One client asks each question 50 times, or
as often as half a minute allows, about another GPU, cluster or metric each time, with `format=columns`. Then
BENCH_HOSTS hosts (4,000) send live beside it; what is refused then for its cost is told. Processor time is that of api
and processor, whatever else they do. The lake holds an hour of 30 days ago; the stage that fills it is off, as it would
copy the whole year meanwhile. The filled folder is kept in `.build/bench-query`, so that a second run begins with the
questions.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

import _fleet
import _platform
import _year
from secondsight.catalog.load import load_catalog
from secondsight.model import EntityKind
from secondsight.query.aggregates import legal_aggregates
from secondsight.store.client import FlightStore

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "10" if QUICK else "60"))
HOSTS = int(os.environ.get("BENCH_HOSTS", "4000"))
SHAPE = _year.QUICK if QUICK else _year.YEAR
FILL_HOSTS = _fleet.TEMPLATES
FILL_SECONDS = 960
REPEATS = 50
WARM_UP = 2 if QUICK else 5
QUIET_SECONDS = 1.5 if QUICK else 30
PAGE_METRICS = 17
"""How many metrics the page of a GPU follows."""
SETTLE_SECONDS = 600
TOO_MUCH = 422
TOP_METRICS = ("gpu_power_watts", "gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_memory_used_bytes")


@dataclass(frozen=True, slots=True)
class Asked:
    """What one question took.

    Attributes:
        cpu_ms: Mean processor time of api and processor a repetition, whatever else they did meanwhile.
        answer_bytes: Size of the last answer.
    """

    seconds: tuple[float, ...]
    cpu_ms: float
    answer_bytes: int

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the wall time."""
        return float(np.percentile(np.array(self.seconds), share) * 1000)


class Refused(Exception):
    """A question was refused for what it would cost."""


class Client:
    """One kept-alive connection to an api."""

    def __init__(self, running: _platform.Running) -> None:
        parts = urlsplit(running.address)
        self._connection = HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        token = (running.data / "tokens" / "admin").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> bytes:
        """Return the body of a GET; anything else than 200 ends the run.

        Raises:
            Refused: The question would cost more than one may, as it can with the load's hosts beside the others.
        """
        self._connection.request("GET", path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status == TOO_MUCH:
            raise Refused(body[:300].decode())
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:300]!r}")
        return body


def _measured(folder: Path) -> dict[str, Any]:
    """Return the figures of all questions on a store in a folder, which is empty."""
    filled = _filled(folder)
    with _platform.started("--no-lake", folder=folder) as running:
        client, questions = Client(running), _questions(filled)
        quiet = _ask_all(running, client, questions, "quiet", QUIET_SECONDS)
        load, loaded = _under_load(running, client, questions)
    figures: dict[str, Any] = {}
    for name in questions:
        figures |= {
            f"{name}_p50_ms": quiet[name].percentile_ms(50),
            f"{name}_p95_ms": quiet[name].percentile_ms(95),
            f"{name}_loaded_p95_ms": loaded[name].percentile_ms(95) if name in loaded else None,
        }
    return figures | {f"{name}_cpu_ms": asked.cpu_ms for name, asked in quiet.items()} | load


def _filled(folder: Path) -> _year.Filled:
    """Return what is in the folder, which is filled as an earlier run left it, or made and kept for the next one."""
    kept = _year.kept_folder(SHAPE)
    if kept.exists():
        print(f"data: as kept in {kept}", flush=True)
        return _year.take(kept, folder)
    with _platform.started("--no-lake", folder=folder) as running:
        _fill(running)
    filled = _year.grow(folder, SHAPE)
    _year.keep(folder, filled, kept)
    return filled


def _fill(running: _platform.Running) -> None:
    """Send the backlog, and wait until two windows of 5 min are made of all of it."""
    sent = json.loads(_send(running, FILL_HOSTS, FILL_SECONDS // _fleet.TICKS, "--since", str(FILL_SECONDS))[0])
    store, deadline, stored = (
        FlightStore(running.data / "run" / "store.address"),
        time.monotonic() + SETTLE_SECONDS,
        {"rows": 0, "windows": 0},
    )
    whole = (
        "SELECT window_start FROM gpu_5m FINAL WHERE part = '' GROUP BY window_start"
        f" HAVING countIf(samples = {_year.STEP_S}) = {FILL_HOSTS * _fleet.GPUS}"
    )
    sql = (
        "SELECT toUInt64(sum(bitShiftRight(version, 112))) AS values, count() AS rows,"
        f" (SELECT count() FROM ({whole})) AS windows FROM gpu_1s"
    )
    wanted = FILL_HOSTS * FILL_SECONDS * _fleet.GPUS
    while stored["rows"] < wanted or stored["windows"] < 2:
        if time.monotonic() > deadline:
            raise SystemExit(f"the templates were not made within {SETTLE_SECONDS} s: {stored}")
        time.sleep(1)
        stored = store.query(sql).to_pylist()[0]
    store.close()
    print(
        f"templates: {FILL_HOSTS} hosts x {_fleet.GPUS} GPUs x {FILL_SECONDS} s: {stored['rows']:,} rows of GPUs with"
        f" {stored['values']:,} values, {stored['windows']} whole windows of 5 min; sent in {sent['seconds']:.0f} s",
        flush=True,
    )


def _questions(filled: _year.Filled) -> dict[str, Callable[[], Iterator[str]]]:
    """Return question -> paths without end, each about another GPU, metric or instant."""
    every, end_ms = _metric_names(), filled.end_ms
    cold = {"from": filled.cold_ms, "to": filled.cold_ms + 3_600_000, "resolution": "1s", "format": "columns"}
    quarter = {"from": end_ms - 900_000, "to": end_ms, "resolution": "1s", "format": "columns"}
    tail = quarter | {"from": end_ms - 15_000, "metrics": ",".join(every[:PAGE_METRICS])}
    bands = {"metrics": ",".join(TOP_METRICS), "groupBy": "total", "format": "columns", "resolution": "30s"}

    def of_gpu(number: int, asked: dict[str, Any]) -> str:
        return f"/v1/gpus/{_gpu(number)}/telemetry?{urlencode(asked)}"

    def cold_hour(number: int) -> str:
        gpu = _fleet.gpu_id(number * 7 % min(_year.HOSTS_OF_CLUSTER, SHAPE.hosts), number % _fleet.GPUS)
        return f"/v1/gpus/{gpu}/telemetry?{urlencode(cold | {'metrics': TOP_METRICS[number % 4]})}"

    def top(number: int) -> str:
        asked = {"window": "5m", "n": 5, "metric": TOP_METRICS[number % 4], "at": end_ms - number * 1000}
        return f"/v1/top?{urlencode(asked)}"

    def hour(number: int, aggregates: str) -> str:
        at_ms = end_ms - number * 1000
        asked = bands | {"aggregate": aggregates, "from": at_ms - 3_600_000, "to": at_ms}
        return f"/v1/metrics/query?{urlencode(asked)}"

    def months(number: int, aggregate: str, metric: str, **more: Any) -> str:
        asked = {"metric": metric, "aggregate": aggregate, "groupBy": "cluster", "format": "columns", **more}
        at_ms = end_ms - number * 1000
        return f"/v1/metrics/query?{urlencode(asked | {'from': at_ms - SHAPE.days * 86_400_000, 'to': at_ms})}"

    def trend(number: int) -> str:
        cluster = f"bench-{number % (-(-SHAPE.hosts // _year.HOSTS_OF_CLUSTER))}"
        return months(number, "avg", TOP_METRICS[number % 4], cluster=cluster)

    return {
        "trend_3mo": lambda: (trend(n) for n in count()),
        "p95_temp_3mo": lambda: (months(n, "p95", "gpu_temperature_celsius", resolution="1d") for n in count()),
        "gpu_15min": lambda: (of_gpu(n, quarter | {"metrics": TOP_METRICS[n % 4]}) for n in count()),
        "gpu_all_metrics": lambda: (of_gpu(n, quarter | {"metrics": ",".join(every)}) for n in count(3)),
        "fleet_top5": lambda: (top(n) for n in count()),
        "fleet_bands": lambda: (hour(n, "avg,min,max") for n in count()),
        "fleet_p95_bands": lambda: (hour(n, "p95") for n in count()),
        "lake_hour": lambda: (cold_hour(n) for n in count()),
        "gpu_tail": lambda: (of_gpu(n % 4, tail) for n in count()),
    }


def _metric_names() -> list[str]:
    """Return the metrics of a GPU that the fleet sends and that have points."""
    catalog, names = load_catalog(), set()
    for content in _fleet.prepare(1).templates[0].contents[0]:
        if content.schema.kind is EntityKind.GPU:
            names |= {column.metric for column in content.schema.columns}
    return sorted(name for name in names if legal_aggregates(catalog.get(name)))


def _gpu(number: int) -> str:
    return _fleet.gpu_id(number * 7 % SHAPE.hosts, number % _fleet.GPUS)


def _under_load(
    running: _platform.Running, client: Client, questions: dict[str, Callable[[], Iterator[str]]]
) -> tuple[dict[str, float], dict[str, Asked]]:
    """Ask while a live fleet is stored; return what load was reached, and what was answered."""
    batches = max(SECONDS // _fleet.TICKS, 2) + 3
    sender = _sending(running, HOSTS, batches)
    time.sleep(_fleet.TICKS + 5)
    loaded = _ask_all(running, client, questions, "loaded", SECONDS / len(questions))
    out, _ = sender.communicate(timeout=300)
    sent = json.loads(out.splitlines()[-1])
    reached = sent["values"] / (sent["seconds"] - _fleet.TICKS)
    print(f"load: {HOSTS} hosts, {reached:,.0f} values/s offered and acknowledged, {sent['retries']} retries")
    return {"load_values_per_second": reached, "load_hosts": HOSTS}, loaded


def _ask_all(
    running: _platform.Running,
    client: Client,
    questions: dict[str, Callable[[], Iterator[str]]],
    name: str,
    seconds: float,
) -> dict[str, Asked]:
    found = {}
    for question, paths in questions.items():
        try:
            found[question] = asked = _ask(running, client, paths(), seconds)
        except Refused as refused:
            print(f"{name}: {question:16} {refused}", flush=True)
            continue
        print(
            f"{name}: {question:16} p50 {asked.percentile_ms(50):7.1f} ms, p95 {asked.percentile_ms(95):7.1f} ms,"
            f" cpu {asked.cpu_ms:6.1f} ms, {len(asked.seconds)} times, {asked.answer_bytes:,} bytes;"
            f" load average {_platform.load_average():.1f}",
            flush=True,
        )
    return found


def _ask(running: _platform.Running, client: Client, paths: Iterator[str], seconds: float) -> Asked:
    body = b""
    for _ in range(WARM_UP):
        body = client.get(next(paths))
    took: list[float] = []
    before, began = running.cpu_seconds(), time.perf_counter()
    while len(took) < REPEATS and (time.perf_counter() - began < seconds or len(took) < REPEATS // 5):
        asked = time.perf_counter()
        body = client.get(next(paths))
        took.append(time.perf_counter() - asked)
    after = running.cpu_seconds()
    used = sum(after[part] - before[part] for part in ("api", "processor"))
    return Asked(tuple(took), used / len(took) * 1000, len(body))


def _send(running: _platform.Running, hosts: int, batches: int, *more: str) -> list[bytes]:
    out, _ = _sending(running, hosts, batches, *more).communicate(timeout=600)
    return list(out.splitlines()[-1:])


def _sending(running: _platform.Running, hosts: int, batches: int, *more: str) -> "subprocess.Popen[bytes]":
    script, token = Path(__file__).with_name("_load.py"), running.data / "tokens" / "collector"
    words = [running.gateway, str(token), "--hosts", str(hosts), "--batches", str(batches), *more]
    return subprocess.Popen([sys.executable, str(script), *words], stdout=subprocess.PIPE)


if __name__ == "__main__":
    _platform.report("query", _measured)
