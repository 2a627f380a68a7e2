"""Measure what one value costs from log record to hot store: decode, cells, windows, insert.

Frames of `_fleet.py`, as the ingest benchmark sends them (GPU, node, platform and inference kinds of every host), are
made first, then the real processor takes them from a log in memory into a real chDB store. What a host's first batch
costs (definitions, series) is left out. Ends with one JSON line.
"""

import json
import math
import os
import resource
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
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
KINDS = frozenset(map(EntityKind, os.environ.get("BENCH_KINDS", "gpu,node,platform,inference").split(",")))
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
    fleet = _fleet.prepare(BATCHES)
    records: list[LogRecord] = []
    frames, values = Counter[EntityKind](), Counter[EntityKind]()
    for batch in range(BATCHES):
        make = _fleet.host_frames if batch else _fleet.first_frames
        for host in range(HOSTS):
            at_ms = T0 + batch * BATCH_MS + host * BATCH_MS // HOSTS
            ingest_ms = at_ms + BATCH_MS - 900
            for body in make(fleet, host, batch, at_ms):
                view = read_view(body)
                if view.kind in KINDS:
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

    timed(processor._intake, "_decode", "decode")
    timed(processor._intake._applier, "_apply", "cells")
    timed(processor._settler, "flush_raw", "raw_rows")
    timed(processor._settler, "_close_window", "windows")


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
    migrate(store, load_catalog())
    times: dict[str, float] = defaultdict(float)
    log = BenchLog(clock)
    log.records = records
    processor = Processor(
        log, lambda: BenchLog(clock), TimedStore(store, times), load_catalog(), clock, ProcessorConfig()
    )
    staged(processor, times)
    run(processor, clock, 2 * BATCH_MS / 1000 - 0.9)
    processor.checkpoint()
    spare_collector()
    times.clear()
    used = [-time.process_time(), -time.thread_time()]
    run(processor, clock, (BATCHES - 1) * BATCH_MS / 1000)
    processor.checkpoint()
    used = [used[0] + time.process_time(), used[1] + time.thread_time()]
    report(store, times, used, counts)
    processor.close()
    store.close()
    shutil.rmtree(folder, ignore_errors=True)


def report(store: ChdbStore, times: dict[str, float], used: list[float], counts: list[Counter[EntityKind]]) -> None:
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
        "raw_rows": rows,
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps({"name": "process", "figures": figures}))


if __name__ == "__main__":
    main()
