"""Measure what one value costs from log record to hot store: decode, cells, windows, insert.

Frames of 8 GPUs x 5 ticks x 100 metrics (ints of 16, 32 and 64 bits, a third of the columns noisy, seeded) are made
first, then the real processor takes them from a log in memory into a real chDB store. Ends with one JSON line.
"""

import json
import os
import resource
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.clock import ManualClock
from secondsight.contracts import LogRecord, Polled
from secondsight.model import EntityKind
from secondsight.process.run import Processor, ProcessorConfig
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock, Schema
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import NUMPY_TYPES, group_layouts, make_schema

QUICK = os.environ.get("BENCH_QUICK") == "1"
HOSTS = int(os.environ.get("BENCH_HOSTS", "100" if QUICK else "1000"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "60" if QUICK else "90"))
GPUS, TICKS = 8, 5
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


def bench_metrics() -> list[Metric]:
    metrics = [
        metric for metric in load_catalog().scalars(EntityKind.GPU) if metric.dtype in ("u16", "u32", "u64", "u8")
    ]
    return metrics[:100]


def column_values(metric: Metric, number: int, rng: np.random.Generator, shape: tuple[int, int, int]) -> Any:
    """Return stored values of one metric for (seconds, hosts, gpus)."""
    seconds = np.arange(shape[0])[:, None, None]
    top = min(2 ** (8 * NUMPY_TYPES[metric.dtype].itemsize) - 1, 100)
    if metric.rollup is RollupSet.INCREASE:
        steps = rng.integers(0, 700, shape) if number % 3 == 0 else np.zeros(shape, np.int64)
        return 1000 + np.cumsum(steps, axis=0)
    if metric.rollup in (RollupSet.STATE, RollupSet.CONSTANT):
        return np.full(shape, min(3, top))
    if number % 3 == 0 and metric.dtype != "u8":
        return rng.integers(0, 60_000 if metric.dtype == "u16" else 700_000, shape)
    return np.full(shape, top // 2) + seconds // 40 % 2


def make_frames(clock: ManualClock) -> tuple[list[LogRecord], int]:
    metrics = bench_metrics()
    schema = make_schema(
        EntityKind.GPU, [Column(metric.name, metric.unit, metric.dtype, metric.resolution) for metric in metrics]
    )
    by_name = {metric.name: metric for metric in metrics}
    rng = np.random.default_rng(1)
    shape = (SECONDS, HOSTS, GPUS)
    values = {
        column.metric: column_values(by_name[column.metric], number, rng, shape).astype(NUMPY_TYPES[column.dtype])
        for number, column in enumerate(schema.columns)
    }
    tables = [
        EntityTable(EntityKind.GPU, f"host-{host}", "r", tuple(Entity(f"GPU-{host}-{gpu}") for gpu in range(GPUS)))
        for host in range(HOSTS)
    ]
    records: list[LogRecord] = []
    for start in range(0, SECONDS, TICKS):
        for host, table in enumerate(tables):
            body = host_frame(schema, table, (start, host), values)
            ingest_ms = T0 + (start + TICKS) * 1000 + 5 * host * 1000 // HOSTS
            value = encode_envelope(Envelope(RecordType.FRAME, "t", "eu", f"k{host % 4}", ingest_ms, body))
            records.append(LogRecord(0, len(records), ingest_ms, value))
    clock.step_wall(0)
    return records, SECONDS * HOSTS * GPUS * len(metrics)


def host_frame(schema: Schema, table: EntityTable, where: tuple[int, int], values: Mapping[str, Any]) -> bytes:
    start, host = where
    rows = TICKS * GPUS
    groups = tuple(
        Group(
            layout.first_column,
            np.stack(
                [
                    values[column.metric][start : start + TICKS, host].reshape(rows)
                    for column in schema.columns[layout.first_column : layout.first_column + layout.columns]
                ]
            ),
            None,
        )
        for layout in group_layouts(schema)
    )
    nothing = np.zeros(0, np.uint32)
    block = ScalarBlock(
        np.tile(np.arange(GPUS, dtype=np.uint32), TICKS),
        np.repeat(np.arange(TICKS, dtype=np.uint16), GPUS),
        np.full(rows, 12, np.int32),
        groups,
        nothing,
        nothing.astype(np.uint16),
        nothing.astype(np.uint8),
    )
    times = T0 + 1000 * np.arange(start, start + TICKS, dtype=np.int64)
    sequence = start // TICKS + 1
    stamp = Stamp(f"c-{host}", f"host-{host}", "nvml", host + 1, sequence, sequence, times, 1000, "", None, 0, False)
    return encode(stamp, Content(schema, table, block), inline=start == 0)


def staged(processor: Processor, times: dict[str, float]) -> None:
    """Count the CPU time of the processor's stages in its own thread."""

    def timed(owner: Any, name: str, stage: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            start, nested = time.thread_time(), sum(times[each] for each in ("insert_raw", "insert_other", "query"))
            try:
                return inner(*args, **kwargs)
            finally:
                deeper = sum(times[each] for each in ("insert_raw", "insert_other", "query")) - nested
                times[stage] += time.thread_time() - start - deeper

        setattr(owner, name, outer)

    timed(processor._intake, "_decode", "decode")
    timed(processor._intake, "_apply", "cells")
    timed(processor._settler, "flush_raw", "raw_rows")
    timed(processor._settler, "_close_window", "windows")


def main() -> None:
    pa.array(["what pyarrow imports at its first text is not counted"])
    clock = ManualClock(T0)
    records, value_count = make_frames(clock)
    folder = tempfile.mkdtemp(prefix="bench-process-")
    store = ChdbStore(folder)
    migrate(store, load_catalog())
    times: dict[str, float] = defaultdict(float)
    log = BenchLog(clock)
    log.records = records
    processor = Processor(
        log,
        lambda: BenchLog(clock),
        TimedStore(store, times),
        load_catalog(),
        clock,
        ProcessorConfig(raw_rows=100_000, raw_seconds=5.0, rollup_seconds=30.0),
    )
    staged(processor, times)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range((SECONDS + 12) * 2):
        clock.move(0.5)
        while processor.step():
            pass
    processor.checkpoint()
    clock.move(60)
    while processor.step():
        pass
    processor.checkpoint()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    report(store, times, (cpu, wall, value_count))
    processor.close()
    store.close()
    shutil.rmtree(folder, ignore_errors=True)


def report(store: ChdbStore, times: dict[str, float], totals: tuple[float, float, int]) -> None:
    cpu, wall, value_count = totals
    rows = store.query("SELECT count() AS n FROM gpu_1s").column("n").to_pylist()[0]
    rolled = store.query("SELECT count() AS n, sum(samples) AS s FROM gpu_30s").to_pylist()[0]
    known = {f"{stage}_ns_per_value": round(seconds / value_count * 1e9, 1) for stage, seconds in times.items()}
    figures = {
        "values": value_count,
        "cpu_ns_per_value": round(cpu / value_count * 1e9, 1),
        "values_per_second": round(value_count / wall),
        **known,
        "engine_threads_and_other_ns_per_value": round((cpu - sum(times.values())) / value_count * 1e9, 1),
        "raw_rows": rows,
        "rollup_rows": rolled["n"],
        "rollup_samples": rolled["s"],
        "rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps({"name": "process", "figures": figures}))


if __name__ == "__main__":
    main()
