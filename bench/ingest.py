"""End to end over HTTP: frames into gateway, log, processor, raw rows and 30 s rollups.

Two runs. `load`: BENCH_HOSTS hosts (4,000: about 2 million values/s) at 1 Hz in real time. `fleet`: 200 hosts x 8 GPUs,
whose samples are watched until a query returns them: freshness is that moment minus the sample's time, so it holds the
5 s that a batch takes. Values are those of simulated GPUs without the catalogue's constants; ticks have a phase per
host.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import _fleet
import _platform
from secondsight.store.client import FlightStore

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "20" if QUICK else "90"))
HOSTS = int(os.environ.get("BENCH_HOSTS", "4000"))
FLEET_HOSTS = 200
SETTLE_SECONDS = 60


def main() -> None:
    """Run both loads and print one JSON line."""
    fleet = _fleet.prepare(2)
    print(f"versions {json.dumps(_platform.versions())}")
    print(f"load average before {_platform.load_average():.2f}")
    print(
        f"data: {fleet.values_per_batch / _fleet.TICKS:.0f} values a host and second,"
        f" {fleet.noisy_share:.0%} of columns noisy, {fleet.bytes_per_value:.2f} bytes/value on the wire"
    )
    watched = _run(FLEET_HOSTS, SECONDS // 2, "fleet")
    loaded = _run(HOSTS, SECONDS, "load")
    figures = {
        "values_per_second": loaded["values_per_second"],
        "cpu_ns_per_value": loaded["cpu_ns_per_value"],
        "freshness_p50_ms": watched["freshness_p50_ms"],
        "freshness_p99_ms": watched["freshness_p99_ms"],
        "bytes_per_value": loaded["bytes_per_value"],
        "rss_mib": loaded["rss_mib"],
        "freshness_loaded_p50_ms": loaded["freshness_p50_ms"],
        "freshness_loaded_p99_ms": loaded["freshness_p99_ms"],
        "ack_p50_ms": loaded["ack_p50_ms"],
        "ack_p99_ms": loaded["ack_p99_ms"],
        "offered_values_per_second": loaded["offered_values_per_second"],
        "cores_used": loaded["cores_used"],
        "generator_cores": loaded["generator_cores"],
        "wire_bytes_per_value": loaded["wire_bytes_per_value"],
        "hosts": HOSTS,
    }
    print(json.dumps({"name": "ingest", "figures": figures}))


def _run(hosts: int, seconds: int, name: str) -> dict[str, Any]:
    """Send `seconds` of a fleet and return its figures."""
    with _platform.started() as running:
        watch = _Watch(running, hosts)
        watch.start()
        before, began = running.cpu_seconds(), time.time()
        sent = _send(running, hosts, max(2, seconds // _fleet.TICKS))
        stored = _settle(running, sent["values"])
        elapsed = time.time() - began - _fleet.TICKS  # the first batch is sent when its last tick has passed
        used = {part: cpu - before[part] for part, cpu in running.cpu_seconds().items()}
        watch.stop()
        figures = {
            "values_per_second": stored / elapsed,
            "offered_values_per_second": sent["values"] / (sent["seconds"] - _fleet.TICKS),
            "cpu_ns_per_value": sum(used.values()) / max(1, stored) * 1e9,
            "cores_used": sum(used.values()) / elapsed,
            "generator_cores": sent["generator_cpu_seconds"] / sent["seconds"],
            "bytes_per_value": _table_bytes(running) / max(1, stored),
            "rss_mib": watch.rss_mib,
            **watch.freshness(),
            **{key: sent[key] for key in ("ack_p50_ms", "ack_p99_ms", "wire_bytes_per_value")},
        }
        parts = ", ".join(f"{part} {cpu / max(1, stored) * 1e9:.0f}" for part, cpu in used.items())
        print(f"{name}: {hosts} hosts, {sent['values']:,} values sent, {stored:,} stored; CPU ns/value: {parts}")
        print(f"{name}: {json.dumps({key: round(value, 3) for key, value in figures.items()})}")
        return figures


def _send(running: _platform.Running, hosts: int, batches: int) -> dict[str, Any]:
    script = Path(__file__).with_name("_load.py")
    words = [
        running.gateway,
        str(running.data / "tokens" / "collector"),
        "--hosts",
        str(hosts),
        "--batches",
        str(batches),
    ]
    done = subprocess.run([sys.executable, str(script), *words], check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _settle(running: _platform.Running, values: int) -> int:
    """Wait until every value is stored, at most a minute, and return how many are."""
    store, deadline, stored = FlightStore(running.data / "run" / "store.address"), time.monotonic() + SETTLE_SECONDS, 0
    try:
        while stored < values and time.monotonic() < deadline:
            stored = _stored_values(store)
            time.sleep(0.5)
    finally:
        store.close()
    return stored


def _stored_values(store: FlightStore) -> int:
    """Return the number of values in the raw tables: their rows' fullness, kept in the version's top 16 bits."""
    tables = ("gpu_1s", "node_1s", "platform_1s", "inference_1s")
    union = " UNION ALL ".join(f"SELECT sum(bitShiftRight(version, 112)) AS n FROM {table}" for table in tables)
    return int(store.query(f"SELECT toUInt64(sum(n)) AS n FROM ({union})").to_pylist()[0]["n"])


def _table_bytes(running: _platform.Running) -> int:
    store = FlightStore(running.data / "run" / "store.address")
    try:
        sql = "SELECT sum(bytes_on_disk) AS n FROM system.parts WHERE active AND table LIKE '%_1s'"
        return int(store.query(sql).to_pylist()[0]["n"])
    finally:
        store.close()


class _Watch:
    """Polls the newest stored second of up to 200 hosts and notes when it moves."""

    def __init__(self, running: _platform.Running, hosts: int) -> None:
        self._running = running
        self._names = [_fleet.host_name(host) for host in range(0, hosts, max(1, hosts // FLEET_HOSTS))]
        self._newest: dict[str, int] = {}
        self._ages: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self.rss_mib = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def freshness(self) -> dict[str, float]:
        """Return percentiles over samples of (first returned by a query) - (event time)."""
        ages = np.array(self._ages or [float("nan")])
        return {"freshness_p50_ms": float(np.percentile(ages, 50)), "freshness_p99_ms": float(np.percentile(ages, 99))}

    def _poll(self) -> None:
        store = FlightStore(self._running.data / "run" / "store.address")
        names = ", ".join(f"'{name}'" for name in self._names)
        sql = (
            "SELECT host_id, toUnixTimestamp64Milli(max(event_time)) AS at FROM gpu_1s"
            " WHERE toStartOfTenMinutes(event_time) >= toStartOfTenMinutes(now() - 60)"
            f" AND host_id IN ({names}) AND event_time > now() - 60 GROUP BY host_id"
        )
        while not self._stop.wait(0.2):
            rows = store.query(sql).to_pylist()
            now_ms = time.time() * 1000
            for row in rows:
                self._note(row["host_id"], int(row["at"]), now_ms)
            self.rss_mib = max(self.rss_mib, self._running.rss_mib())
        store.close()

    def _note(self, host: str, at_ms: int, now_ms: float) -> None:
        before = self._newest.get(host, at_ms - 1000)
        self._ages += [now_ms - tick for tick in range(at_ms, before, -1000)]
        self._newest[host] = max(at_ms, before)


if __name__ == "__main__":
    main()
