"""Run one load of `_agents.py` against a new platform: what was stored, what it took, and how old it was."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import _fleetwatch
import _platform
import _processes
from secondsight.store.client import FlightStore

SETTLE_SECONDS = 180.0
MERGE_SECONDS = 120.0
QUIET_SECONDS = 3.0
RAW = ("gpu_1s", "node_1s", "platform_1s", "inference_1s")
MERGE_THREADS = ("MergeMutate",)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Attributes:
        seconds: Of the window.
        warm_up: Seconds of the same load before the window.
    """

    hosts: int
    seconds: float
    warm_up: float
    flat_out: bool = False
    split: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What stands at one instant: processor time by part, that of threads by (part, name), stored rows.

    Attributes:
        all_on: Processor time of everything that runs, stages of rollups, lake and retention included.
    """

    at: float
    parts: Mapping[str, float]
    threads: Mapping[tuple[str, str], float]
    rows: int
    all_on: float


def run(load: Load, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of one load."""
    with _platform.started(environment=environment) as running, _agents(load, running) as sender:
        assert sender.stdout is not None
        assert sender.stdin is not None
        store = FlightStore(running.data / "run" / "store.address")
        introduced = round(_told(sender.stdout)["introduced_values"])
        _settle(store, introduced)
        sender.stdin.write("begin\n")
        sender.stdin.flush()
        begun = _told(sender.stdout)
        watch = _fleetwatch.Watch(running, load.hosts, begun["sent_from"])
        watch.start()
        _sleep_until(begun["begin"])
        watch.begin()
        first = _moment(running, store)
        _sleep_until(begun["end"])
        last = _moment(running, store)
        sent = _told(sender.stdout)
        values = round(introduced + sent["values"])
        settled_at = _settle(store, values)
        watch.stop()
        stored = stored_values(store)
        _quiet(store)
        whole = _moment(running, store)
        figures = {
            **_used(first, last, stored / max(1, whole.rows), sent["requests_per_second"]),
            **{key: value for key, value in sent.items() if key != "values"},
            **watch.figures(),
            **table_bytes(store, stored),
            "offered_values_per_second": load.hosts * sent["values_per_batch"] / 5,
            "lag_seconds_at_end": max(0.0, settled_at - last.at),
            "values_sent": values,
            "values_stored": stored,
            "cpu_ns_per_value_settled": (sum(whole.parts.values()) - sum(first.parts.values()))
            / max(1, (whole.rows - first.rows) * stored / max(1, whole.rows))
            * 1e9,
            "hosts": load.hosts,
            "seconds": load.seconds,
        }
        store.close()
        if stored < values:
            print(f"only {stored:,} of {values:,} values were stored after {SETTLE_SECONDS:g} s", flush=True)
        return figures


def _agents(load: Load, running: _platform.Running) -> "subprocess.Popen[str]":
    host, port = running.gateway.removeprefix("http://").rsplit(":", 1)
    words = [host, port, "--hosts", str(load.hosts), "--seconds", str(load.seconds), "--warm-up", str(load.warm_up)]
    words += ["--split"] if load.split else ["--gpu-only"]
    words += ["--flat-out"] if load.flat_out else []
    token = (running.data / "tokens" / "collector").read_text().strip()
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_agents.py")), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "BENCH_TOKEN": token},
        text=True,
    )


def _told(stream: IO[str]) -> dict[str, float]:
    line = stream.readline()
    if not line:
        raise SystemExit("the generator ended early; see above")
    return dict(json.loads(line))


def _moment(running: _platform.Running, store: FlightStore) -> Moment:
    parts = running.cpu_seconds()
    threads = {
        (part, name): seconds
        for part, pid in running.pids().items()
        for name, seconds in _processes.cpu_seconds_by_thread(pid).items()
    }
    at = time.time()
    return Moment(at, parts, threads, _rows(store), _all_seconds(running.process.pid))


def _all_seconds(pid: int) -> float:
    """Return the processor time so far of a supervisor and its parts."""
    return sum(map(_processes.cpu_seconds, _processes.family(pid)))


def _used(first: Moment, last: Moment, values_per_row: float, requests_per_second: float) -> dict[str, Any]:
    """Return rates and processor time per stored value of the time between two moments."""
    seconds = last.at - first.at
    values = max(1.0, (last.rows - first.rows) * values_per_row)
    parts = {part: cpu - first.parts.get(part, 0.0) for part, cpu in last.parts.items()}
    threads: Counter[tuple[str, str]] = Counter(dict(last.threads))
    threads.subtract(first.threads)
    merging = sum(cpu for (_, name), cpu in threads.items() if name.startswith(MERGE_THREADS))
    by_thread = {
        f"{part}/{name}": round(cpu / values * 1e9, 1) for (part, name), cpu in threads.most_common(12) if cpu > 0
    }
    return {
        "values_per_second": values / seconds,
        "cpu_ns_per_value": sum(parts.values()) / values * 1e9,
        "cores_used": sum(parts.values()) / seconds,
        "cores_used_all_on": (last.all_on - first.all_on) / seconds,
        **{f"{part}_ns_per_value": cpu / values * 1e9 for part, cpu in parts.items()},
        "merge_ns_per_value": merging / values * 1e9,
        "gateway_us_per_request": parts["gateway"] / seconds / max(1.0, requests_per_second) * 1e6,
        "threads_ns_per_value": by_thread,
    }


def _settle(store: FlightStore, values: int) -> float:
    """Wait until every value is stored, for a bounded time, and return when it was seen."""
    deadline, per_row = time.monotonic() + SETTLE_SECONDS, 0.0
    while time.monotonic() < deadline:
        rows = _rows(store)
        per_row = per_row or stored_values(store) / max(1, rows)
        if rows * per_row >= values:
            per_row = stored_values(store) / rows
            if rows * per_row >= values:
                break
        time.sleep(0.5)
    return time.time()


def _quiet(store: FlightStore) -> None:
    """Wait until no merge has run for a while, for a bounded time: what was inserted costs that much too."""
    deadline, quiet_since = time.monotonic() + MERGE_SECONDS, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < QUIET_SECONDS:
        if merging(store):
            quiet_since = time.monotonic()
        time.sleep(0.5)


def merging(store: FlightStore) -> bool:
    """Tell whether a merge runs."""
    return bool(int(store.query("SELECT toUInt64(count()) AS n FROM system.merges").to_pylist()[0]["n"]))


def _rows(store: FlightStore) -> int:
    union = " UNION ALL ".join(f"SELECT count() AS n FROM {table}" for table in RAW)
    return int(store.query(f"SELECT toUInt64(sum(n)) AS n FROM ({union})").to_pylist()[0]["n"])


def stored_values(store: FlightStore) -> int:
    """Return the number of values in the raw tables: their rows' fullness, kept in the version's top 16 bits."""
    union = " UNION ALL ".join(f"SELECT sum(bitShiftRight(version, 112)) AS n FROM {table}" for table in RAW)
    return int(store.query(f"SELECT toUInt64(sum(n)) AS n FROM ({union})").to_pylist()[0]["n"])


def table_bytes(store: FlightStore, values: int) -> dict[str, float]:
    """Return what the active parts of raw rows and rollups take per value."""
    sql = (
        "SELECT toUInt64(sumIf(bytes_on_disk, table LIKE '%_1s')) AS raw,"
        " toUInt64(sumIf(bytes_on_disk, table LIKE '%_30s')) AS rollup,"
        " toUInt64(countIf(table = 'gpu_1s')) AS parts FROM system.parts WHERE active"
    )
    found = store.query(sql).to_pylist()[0]
    return {
        "bytes_per_value": found["raw"] / max(1, values),
        "rollup_bytes_per_value": found["rollup"] / max(1, values),
        "gpu_parts": found["parts"],
    }


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))
