"""Measure what one value costs from log record to hot store: decode, cells, windows, insert.

Frames of `_fleet.py` are made first, then the real processor takes them from a log in memory into a real chDB store:
GPU rows of a hundred metrics, or with BENCH_KINDS the kinds it names (gpu,node,platform,inference are all of a host's)
with the metrics that the simulator has. What a host's first batch costs (definitions, series) is left out. CPU time is
told by stage of the processor's thread, and by the engine's threads: merges (MergeMutate), inserts (ThreadPool).
BENCH_TABLE_SETTINGS: further settings of the wide tables, as name=literal;name=literal. Ends with one JSON line.
"""

import contextlib
import json
import math
import os
import resource
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import _fleet
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import LogRecord, Polled
from secondsight.model import EntityKind
from secondsight.process.run import PACE_SECONDS, Processor, ProcessorConfig, spare_collector
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope
from secondsight.wire.header import read_view

QUICK = os.environ.get("BENCH_QUICK") == "1"
HOSTS = int(os.environ.get("BENCH_HOSTS", "200" if QUICK else "2000"))
BATCHES = int(os.environ.get("BENCH_BATCHES", "4" if QUICK else "9"))
KINDS = os.environ.get("BENCH_KINDS", "")
DATA = _fleet.Data(kinds=frozenset(map(EntityKind, KINDS.split(",")))) if KINDS else _fleet.HUNDRED
CATALOG = load_catalog() if KINDS else _fleet.hundred_catalog()
TABLE_SETTINGS = [each.split("=", 1) for each in os.environ.get("BENCH_TABLE_SETTINGS", "").split(";") if each]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
ENGINE_THREADS = ("MergeMutate", "ThreadPool")
BATCH_MS = _fleet.TICKS * 1000
T0 = 1_764_500_010_000


class BenchLog:
    """Records that are all there from the start, given out like a log does."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.records: list[LogRecord] = []
        self.next = 0

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:  # noqa: ARG002 - nothing to wait for
        taken, size = [], 0
        while self.next < len(self.records) and size < max_bytes:
            record = self.records[self.next]
            if record.append_time_ms > self.clock.now_ms():
                break
            taken.append(record)
            size += len(record.value)
            self.next += 1
        return Polled(tuple(taken), (0,))

    def commit(self, offsets: Mapping[int, int]) -> None:
        pass

    def close(self) -> None:
        pass


class TimedStore:
    """Counts the CPU time that inserts and queries take in the calling thread; engine threads are the remainder."""

    def __init__(self, store: ChdbStore, times: dict[str, float]) -> None:
        self.store = store
        self.times = times

    def insert(self, table: str, data: Any) -> None:
        start = time.thread_time()
        self.store.insert(table, data)
        self.times["insert_raw" if table.endswith("_1s") else "insert_other"] += time.thread_time() - start

    def query(self, sql: str, params: Any = None, settings: Any = None) -> Any:
        start = time.thread_time()
        found = self.store.query(sql, params, settings)
        self.times["query"] += time.thread_time() - start
        return found

    def close(self) -> None:
        pass


def make_frames() -> tuple[list[LogRecord], list[Counter[EntityKind]]]:
    """Return the records of all hosts and batches, and the numbers of frames and of values after the first batch."""
    fleet = _fleet.prepare(BATCHES, DATA)
    records: list[LogRecord] = []
    frames, values = Counter[EntityKind](), Counter[EntityKind]()
    for batch in range(BATCHES):
        make = _fleet.host_frames if batch else _fleet.first_frames
        for host in range(HOSTS):
            at_ms = T0 + batch * BATCH_MS + host * BATCH_MS // HOSTS
            ingest_ms = at_ms + BATCH_MS - 900
            for body in make(fleet, host, batch, at_ms):
                view = read_view(body)
                frames[view.kind] += bool(batch)
                values[view.kind] += view.values if batch else 0
                envelope = Envelope(RecordType.FRAME, "t", "eu", f"k{host % 4}", ingest_ms, body)
                records.append(LogRecord(0, len(records), ingest_ms, encode_envelope(envelope)))
    return records, [frames, values]


def _in_store(times: Mapping[str, float]) -> float:
    return sum(times.get(each, 0.0) for each in ("insert_raw", "insert_other", "query"))


def staged(processor: Processor, times: dict[str, float]) -> None:
    """Count the CPU time of the processor's stages in its own thread."""

    def timed(owner: Any, name: str, stage: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            start, nested = time.thread_time(), _in_store(times)
            try:
                return inner(*args, **kwargs)
            finally:
                deeper = _in_store(times) - nested
                times[stage] += time.thread_time() - start - deeper

        setattr(owner, name, outer)

    timed(processor._intake, "_decode_waiting", "decode")
    timed(processor._intake, "_take_together", "stacks")
    timed(processor._intake._applier, "apply", "cells")
    timed(processor.world, "write_raw", "raw_rows")
    timed(processor._settler, "_close_window", "windows")
    timed(processor._settler, "flush", "rest_of_rows")


def engine_seconds() -> Counter[str]:
    """Return the CPU time of this process's threads by their name."""
    used: Counter[str] = Counter()
    for stat in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            head, _, fields = stat.read_text().rpartition(")")
            user, system = fields.split()[11:13]
            used[head.partition("(")[2]] += (int(user) + int(system)) / TICKS_PER_SECOND
    return used


def run(processor: Processor, clock: ManualClock, seconds: float) -> None:
    """Step through some time as a processor does that polls every 200 ms."""
    for _ in range(math.ceil(seconds / PACE_SECONDS)):
        clock.move(PACE_SECONDS)
        while processor.step():
            pass


def main() -> None:
    pa.array(["what pyarrow imports at its first text is not counted"])
    clock = ManualClock(T0)
    records, counts = make_frames()
    folder = tempfile.mkdtemp(prefix="bench-process-")
    store = ChdbStore(folder)
    migrate(store, CATALOG)
    for table in ("gpu_1s", "gpu_30s"):
        for name, literal in TABLE_SETTINGS:
            store.query(f"ALTER TABLE {table} MODIFY SETTING {name} = {literal}")
    times: dict[str, float] = defaultdict(float)
    log = BenchLog(clock)
    log.records = records
    processor = Processor(log, lambda: BenchLog(clock), TimedStore(store, times), CATALOG, clock, ProcessorConfig())
    staged(processor, times)
    run(processor, clock, 2 * BATCH_MS / 1000 - 0.9)
    processor.checkpoint()
    spare_collector()
    times.clear()
    before, merged = engine_seconds(), merged_rows(store)
    used = [-time.process_time(), -time.thread_time()]
    run(processor, clock, (BATCHES - 1) * BATCH_MS / 1000)
    processor.checkpoint()
    used = [used[0] + time.process_time(), used[1] + time.thread_time()]
    engine = engine_seconds() - before
    report(store, times, used, counts, {name: engine[name] for name in ENGINE_THREADS}, merged_rows(store) - merged)
    processor.close()
    store.close()
    shutil.rmtree(folder, ignore_errors=True)


def merged_rows(store: ChdbStore) -> int:
    """Return how many rows the engine has read to merge them."""
    found = store.query("SELECT value FROM system.events WHERE event = 'MergedRows'").to_pylist()
    return int(found[0]["value"]) if found else 0


def report(
    store: ChdbStore,
    times: dict[str, float],
    used: list[float],
    counts: list[Counter[EntityKind]],
    engine: Mapping[str, float],
    merged: int,
) -> None:
    """Print the figures."""
    values, frames = counts[1].total(), counts[0].total()
    rows = store.query("SELECT count() AS n FROM gpu_1s").column("n").to_pylist()[0]
    figures = {
        "hosts": HOSTS,
        "values": values,
        "frames": {kind.value: count for kind, count in counts[0].items()},
        "cpu_ns_per_value": round(used[0] / values * 1e9, 1),
        "thread_ns_per_value": round(used[1] / values * 1e9, 1),
        "thread_us_per_frame": round(used[1] / frames * 1e6, 1),
        "thread_us_per_frame_without_store": round((used[1] - _in_store(times)) / frames * 1e6, 1),
        **{f"{stage}_ns_per_value": round(seconds / values * 1e9, 1) for stage, seconds in times.items()},
        **{f"{stage}_us_per_frame": round(seconds / frames * 1e6, 1) for stage, seconds in times.items()},
        **{f"engine_{name}_ns_per_value": round(seconds / values * 1e9, 1) for name, seconds in engine.items()},
        "raw_rows": rows,
        "merged_rows_per_raw_row": round(merged / rows, 2),
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps({"name": "process", "figures": figures}))


if __name__ == "__main__":
    main()
