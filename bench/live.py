"""The window in memory at the rate of a whole fleet: what it costs the owner of the store and the api, and memory.

Rows of BENCH_GPUS (80,000) GPUs with a hundred metrics are told to followers as if they had been inserted, at 1 Hz, as
insert after insert of a processor has them: each holds 5 s of a fifth of the hosts, and each fifth second 30 s windows
of a sixth of them. An api in a process of its own follows over the socket, within its default budget. With
BENCH_LAG_SECONDS the rows are so old, as those of a processor that is behind. Nothing is inserted: the figures are
those of telling, sending and holding alone. BENCH_SECONDS: how long (90). A question a second stands for the dashboard.
"""

import json
import multiprocessing
import os
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import _fleet
import _platform
from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.clock import SystemClock
from secondsight.live.config import LiveConfig
from secondsight.live.window import LiveWindow
from secondsight.model import EntityKind
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.migrate import migrate
from secondsight.store.rows import ColumnValues, DictionaryColumn, MapColumn, WideColumn, arrow_table, constant
from secondsight.store.schema import member_columns, raw_table, rollup_table, table
from secondsight.store.serve import start_store_server

QUICK = os.environ.get("BENCH_QUICK") == "1"
GPUS = int(os.environ.get("BENCH_GPUS", "8000" if QUICK else "80000"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "20" if QUICK else "90"))
LAG_MS = 1000 * int(os.environ.get("BENCH_LAG_SECONDS", "0"))
PHASES, WINDOWS = 5, 6
CATALOG = _fleet.hundred_catalog()
KIND = EntityKind.GPU
RAW, ROLLUP = raw_table(KIND), rollup_table(KIND)
METRICS = CATALOG.scalars(KIND)
HUNDRED = [metric for metric in METRICS if not metric.labels][:100]
SCOPE = Scope(("default",), None, None, None, frozenset(), subject="token:bench", role=Role.VIEWER)


def main() -> None:
    """Tell rows at their pace, and print one JSON line."""
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        store = ChdbStore(Path(folder) / "hot")
        migrate(store, CATALOG)
        server = start_store_server(store, Path(folder) / "run")
        here, there = multiprocessing.Pipe()
        api = multiprocessing.get_context("spawn").Process(
            target=hold, args=(there, str(Path(folder) / "run")), daemon=True
        )
        api.start()
        here.recv()
        began, used = time.time(), time.process_time()
        publishing = told = 0.0
        making = Rows(round(began) * 1000 - LAG_MS)
        cpu_of_making = 0.0
        for second in range(SECONDS):
            start = time.thread_time()
            tables = making.of(second)
            between = time.thread_time()
            for name, rows in tables:
                store.tail.publish(name, rows)
                told += rows.num_rows * (name == RAW)
            cpu_of_making += between - start
            publishing += time.thread_time() - between
            time.sleep(max(0.0, began + second + 1 - time.time()))
        owner = time.process_time() - used - cpu_of_making
        here.send(None)
        figures = here.recv()
        api.join()
        values = told * len(HUNDRED)
        server.close()
        store.close()
    figures |= {
        "gpus": GPUS,
        "seconds": SECONDS,
        "lag_seconds": LAG_MS / 1000,
        "owner_ns_per_value": owner / values * 1e9,
        "owner_telling_ns_per_value": publishing / values * 1e9,
        "api_ns_per_value": figures["api_cpu_seconds"] / values * 1e9,
        "load_average": _platform.load_average(),
    }
    print(json.dumps({"name": "live", "figures": {name: _rounded(value) for name, value in figures.items()}}))


def hold(link: Connection, run_dir: str) -> None:
    """Be the api: hold a window, ask it something each second, and tell what that took."""
    metrics, stop, config = SelfMetrics(), threading.Event(), LiveConfig()
    window = LiveWindow(FlightStore(Path(run_dir) / "store.address"), CATALOG, SystemClock(), config, metrics)
    before = _rss_mib()
    thread = threading.Thread(target=window.run, args=(stop,))
    thread.start()
    time.sleep(2.0)
    link.send(None)
    used, peak, beside, asked, settled = time.process_time(), before, 0.0, [], 0
    while not link.poll(1.0):
        rss = _rss_mib()
        peak, beside = max(peak, rss), max(beside, rss - before - metrics.value("live_bytes") / 2**20)
        began = time.thread_time()
        window.settle()
        found = window.table(RAW)
        settled += found is not None
        if found is not None:
            from_ms = round(time.time() * 1000) - LAG_MS - 20_000
            reading = found.reading(SCOPE, ["gpu_power_watts"], {}, from_ms, from_ms + 60_000)
            for block in reading.blocks if reading is not None else ():
                block.column("gpu_power_watts")
        asked.append(time.thread_time() - began)
    stop.set()
    cpu = time.process_time() - used
    names = ("live_bytes", "live_rows", "live_seconds", "live_narrow", "live_rows_total")
    link.send(
        {
            "api_cpu_seconds": cpu,
            "rss_before_mib": before,
            "rss_peak_mib": peak,
            "rss_end_mib": _rss_mib(),
            "rss_beside_rows_mib": beside,
            "budget_mib": config.mib,
            "settled_share": settled / max(1, len(asked)),
            "question_cpu_p50_ms": float(np.median(asked)) * 1000,
            "question_cpu_worst_ms": max(asked) * 1000,
            **{name: metrics.value(name) for name in names},
            **{f"restarts_{why}": metrics.value("live_restarts_total", reason=why) for why in ("stale", "cut off")},
        }
    )
    thread.join(10)


class Rows:
    """Makes the inserts of a second.

    Args:
        start_ms: Event time of the first second.
    """

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._noise = np.random.default_rng(7)
        self._raw, self._rollup = (table(CATALOG, name) for name in (RAW, ROLLUP))
        self._names = [_fleet.gpu_id(gpu // _fleet.GPUS, gpu % _fleet.GPUS) for gpu in range(GPUS)]
        self._hosts = [_fleet.host_name(host) for host in range(-(-GPUS // _fleet.GPUS))]

    def of(self, second: int) -> list[tuple[str, Any]]:
        """Return (table, rows) of what is inserted in one second."""
        made = [(RAW, self._seconds(second))]
        if second % PHASES == 0:
            made.append((ROLLUP, self._windows(second)))
        return made

    def _seconds(self, second: int) -> Any:
        phase = second % PHASES
        gpus = np.arange(GPUS * phase // PHASES, GPUS * (phase + 1) // PHASES)
        gpu = np.repeat(gpus, PHASES)
        tick = np.tile(np.arange(PHASES), gpus.size)
        t = self._start_ms + (second + tick - PHASES) * 1000
        columns = self._place(gpus, gpu) | {
            "event_time": t,
            "interval_ms": np.full(gpu.size, 1000, np.uint32),
            "ingest_time": t + 300,
            "source_rank": np.zeros(gpu.size, np.uint8),
            "boot_id": constant("boot", gpu.size),
            "version": WideColumn(np.full(gpu.size, 100 << 48, np.uint64), np.zeros(gpu.size, np.uint64)),
        }
        for metric in HUNDRED:
            columns[metric.name] = self._values(gpu.size, metric.clickhouse_type)
        return arrow_table(self._raw, columns)

    def _windows(self, second: int) -> Any:
        place = second // PHASES % WINDOWS
        gpus = np.arange(GPUS * place // WINDOWS, GPUS * (place + 1) // WINDOWS)
        start_ms = (self._start_ms + second * 1000) // 30_000 * 30_000 - 30_000
        none = MapColumn(np.zeros(0, np.intp), np.zeros(0, np.intp), (), np.zeros(0, np.uint32))
        columns = self._place(gpus, gpus) | {
            "window_start": np.full(gpus.size, start_ms // 1000, np.int64),
            "source_rank": np.zeros(gpus.size, np.uint8),
            "first_event_time": np.full(gpus.size, start_ms),
            "last_event_time": np.full(gpus.size, start_ms + 29_000),
            "version": np.full(gpus.size, 30_000, np.uint64),
            **{name: np.full(gpus.size, 1000, np.uint32) for name in ("interval_ms", "samples", "covered_ms")},
            **dict.fromkeys(("covered_other", "increase_other", "resets", "changes", "state_ms"), none),
        }
        for metric in HUNDRED:
            for member in member_columns(metric):
                columns[member.name] = self._values(gpus.size, member.type)
        return arrow_table(self._rollup, columns)

    def _place(self, gpus: Any, of_row: Any) -> dict[str, ColumnValues]:
        rows, host = of_row.size, of_row // _fleet.GPUS
        hosts = self._hosts[gpus[0] // _fleet.GPUS : gpus[-1] // _fleet.GPUS + 1]
        local = (host - gpus[0] // _fleet.GPUS).astype(np.int32)
        by_host = DictionaryColumn(local, hosts)
        entity = DictionaryColumn((of_row - gpus[0]).astype(np.int32), self._names[gpus[0] : gpus[-1] + 1])
        empty = ("part", "region", "job_id", "workload_id", "owner_team", "model_id")
        return {
            "tenant_id": constant("default", rows),
            "cluster_id": constant("local", rows),
            "host_id": by_host,
            "collector_id": by_host,
            "entity": entity,
            **{name: constant("", rows) for name in empty},
        }

    def _values(self, rows: int, stored: str) -> Any:
        """Return figures of a stored type; they are small, as what they are costs nothing here."""
        dtype = np.dtype(stored.removeprefix("Nullable(").removesuffix(")").lower())
        return self._noise.integers(0, 100, rows, np.uint8).astype(dtype)


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _platform.PAGE_BYTES / 2**20


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
