"""Measure the choices that freeze the stored format: order key, value types, codecs, keys, versions, parts.

Seeded rows of GPUs in the catalogue's own columns go into one table per variant, with merges stopped; then the parts
are merged into one and questions are asked. Every figure is CPU time of this process, which other load on the machine
moves little, except query times, which are medians of wall time.

    python bench/layout.py [FOLDER]          about three minutes
    BENCH_QUICK=1 python bench/layout.py     some twenty seconds, figures only roughly right
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import Metric, MetricType, RollupSet
from secondsight.model import EntityKind
from secondsight.store import codecs
from secondsight.store.chdb import ChdbStore
from secondsight.store.layout import NAME, RAW_ORDER
from secondsight.store.rows import ColumnValues, DictionaryColumn, MapColumn, NullableColumn, WideColumn, arrow_table
from secondsight.store.schema import raw_table, table
from secondsight.store.spec import ColumnSpec, TableSpec

QUICK = bool(os.environ.get("BENCH_QUICK"))
GPUS = 32 if QUICK else 256
SECONDS = 900 if QUICK else 3600
BATCH_SECONDS = 300
GPUS_PER_HOST = 8
CLUSTERS = 4
START_MS = 1_767_225_600_000
SEED = 20260101
REPEATS = 5
ROUNDS = 1 if QUICK else 2
NO_BACKGROUND_MERGES = {"max_bytes_to_merge_at_max_space_in_pool": "1"}
BUCKET = "toStartOfTenMinutes(event_time)"
NUMPY_TYPES = {"f64": "f8"} | {f"{sign}{bits}": f"{sign}{bits // 8}" for sign in "ui" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to store the rows.

    Attributes:
        prepare: Changes the columns of a batch to fit the changed table.
        settings: Settings of the insert.
    """

    name: str
    spec: TableSpec
    prepare: Callable[[dict[str, ColumnValues]], dict[str, ColumnValues]] = dict
    settings: dict[str, Any] = field(default_factory=dict)
    bucketed: bool = True


def values_of(metric: Metric, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[Any]:
    """Return stored values of one metric that behave as its class does, shape (seconds, gpus)."""
    level = rng.uniform(0.3, 0.8, shape[1])
    noise = rng.normal(0, 0.06, shape)
    if metric.unit == "Hz" or metric.rollup in (RollupSet.STATE, RollupSet.CONSTANT):
        values = 1980 - 15 * (rng.random(shape) < 0.01) if metric.unit == "Hz" else np.ones(shape)
    elif metric.type is MetricType.COUNTER:
        per_second = np.abs(400_000 * (level + noise)) if is_busy(metric) else rng.random(shape) < 0.0005
        values = 1e6 + np.cumsum(per_second, axis=0)
    elif metric.unit.endswith("/s") or (metric.unit == "1" and metric.resolution < 1e-4):
        values = np.clip(level + noise, 0, 1) * (1e6 if metric.unit == "1" else 2e9 / (metric.resolution or 1))
    elif metric.unit == "W":
        values = (500 + 250 * level + 100 * noise) / metric.resolution
    elif metric.unit == "By":
        values = np.floor(60e9 * level / 2**20) * 2**20 + np.cumsum(rng.random(shape) < 0.01, axis=0) * 2**20
    else:
        values = np.clip(50 + np.cumsum(rng.integers(-1, 2, shape) * (rng.random(shape) < 0.1), axis=0), 0, 100)
    kind = np.dtype(NUMPY_TYPES[metric.dtype])
    ceiling = float(np.iinfo(kind).max) if kind.kind in "iu" else np.inf
    return np.clip(values, 0, ceiling / 2).astype(kind)


def is_busy(metric: Metric) -> bool:
    """Tell whether a counter moves every second."""
    return metric.unit in {"By", "J"} or metric.name.endswith("bytes_total")


@cache
def matrices() -> dict[str, NDArray[Any]]:
    """Return the values of each metric, shape (seconds, gpus); every sixth metric is absent throughout."""
    rng = np.random.default_rng(SEED)
    present = (metric for index, metric in enumerate(gpu_metrics()) if index % 6 != 5)
    return {metric.name: values_of(metric, (SECONDS, GPUS), rng) for metric in present}


def gpu_metrics() -> tuple[Metric, ...]:
    """Return the metrics that the rows hold."""
    return load_catalog().scalars(EntityKind.GPU)


def batches(seconds: int, *, by_host: bool = True) -> Iterator[dict[str, ColumnValues]]:
    """Yield the columns of each insert: all GPUs for BATCH_SECONDS."""
    rng = np.random.default_rng(SEED)
    for first in range(0, seconds, BATCH_SECONDS):
        yield _batch(first, by_host, rng)


def _batch(first: int, by_host: bool, rng: np.random.Generator) -> dict[str, ColumnValues]:
    def flat(matrix: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(matrix.T if by_host else matrix).reshape(-1)

    shape = (BATCH_SECONDS, GPUS)
    rows = BATCH_SECONDS * GPUS
    seconds = np.broadcast_to(np.arange(first, first + BATCH_SECONDS)[:, None], shape)
    gpus = flat(np.broadcast_to(np.arange(GPUS), shape))
    times = flat(START_MS + 1000 * seconds).astype(np.int64)
    keys = _keys(rows, gpus, times, flat(seconds), rng)
    cells: dict[str, ColumnValues] = {
        name: NullableColumn(flat(matrix[first : first + BATCH_SECONDS]), np.ones(rows, bool))
        for name, matrix in matrices().items()
    }
    return keys | cells | {"version": version_of(cells, rows)}


def version_of(cells: dict[str, ColumnValues], rows: int) -> WideColumn:
    """Return versions as the processor makes them: count of values, their ranks, the sum of their bits."""
    total = np.zeros(rows, np.uint64)
    for column in cells.values():
        if isinstance(column, NullableColumn) and column.values.dtype.kind in "iu":
            total += column.values.astype(np.uint64)
    total &= np.uint64((1 << 56) - 1)
    high = np.uint64((len(cells) << 48) | (len(cells) * 9 << 24)) | (total >> np.uint64(32))
    return WideColumn(high, total << np.uint64(32))


def _keys(
    rows: int, gpus: NDArray[Any], times: NDArray[np.int64], seconds: NDArray[Any], rng: np.random.Generator
) -> dict[str, ColumnValues]:
    hosts = gpus // GPUS_PER_HOST

    def names(codes: NDArray[Any], prefix: str, count: int) -> DictionaryColumn:
        return DictionaryColumn(codes.astype(np.int32), [f"{prefix}{i:05d}" for i in range(count)])

    zeros = np.zeros(rows, np.int32)
    bad = np.flatnonzero(rng.random(rows) < 0.002)
    return {
        "tenant_id": names(zeros, "tenant-", 1),
        "region": names(zeros, "region-", 1),
        "cluster_id": names(hosts % CLUSTERS, "cluster-", CLUSTERS),
        "host_id": names(hosts, "host-", GPUS // GPUS_PER_HOST),
        "entity": DictionaryColumn(
            gpus.astype(np.int32), [f"GPU-{i:08x}-6d2c-5a3b-9c1d-0123456789ab" for i in range(GPUS)]
        ),
        "part": DictionaryColumn(zeros, [""]),
        "event_time": times,
        "observed_delta_ms": rng.integers(0, 20, rows, np.int32),
        "interval_ms": np.full(rows, 1000, np.uint32),
        "ingest_time": times + 1500 - times % 5000,
        "collector_id": names(hosts, "collector-", GPUS // GPUS_PER_HOST),
        "source": DictionaryColumn(zeros, ["nvml"]),
        "spool_id": (hosts * 2654435761).astype(np.uint64),
        "sequence": (seconds // 5).astype(np.uint64),
        "boot_id": names(hosts, "2f1f5e0c-8d5b-4b5e-a5f0-", GPUS // GPUS_PER_HOST),
        "schema_id": np.full(rows, 77, np.uint64),
        "job_id": names(hosts // 4, "job-", GPUS // GPUS_PER_HOST // 4 + 1),
        "owner_team": names(hosts // 8, "team-", GPUS // GPUS_PER_HOST // 8 + 1),
        "quality": MapColumn(bad, np.zeros(len(bad), np.int32), ["gpu_power_watts"], np.full(len(bad), 6, np.uint8)),
    }


def variants(base: TableSpec, metrics: tuple[Metric, ...]) -> Iterator[Variant]:
    """Yield each variant; the first is the one in use."""
    scalars = {metric.name: metric for metric in metrics}
    yield Variant("in use", base)
    no_bucket = tuple(part for part in RAW_ORDER if part != BUCKET)
    yield Variant("order key without the ten-minute bucket", replace(base, order=no_bucket), bucketed=False)
    yield Variant("Float32 ZSTD(1)", _recolumned(base, _as_float, scalars), prepare=_float_cells(scalars))
    yield Variant(
        "Nullable without sparse serialisation", _with_settings(base, nullable_serialization_version="'basic'")
    )
    yield Variant("plain integers, absent is 0", _recolumned(base, _as_plain, scalars), prepare=_plain_cells)
    yield Variant("ZSTD(1) everywhere", _recolumned(base, _as_zstd, scalars))
    yield Variant("noise as T64", _recolumned(base, _without_steps(codecs.NOISE, "T64('bit'),ZSTD(1)"), scalars))
    yield Variant(
        "noise as Delta,T64", _recolumned(base, _without_steps(codecs.NOISE, "Delta,T64('bit'),ZSTD(1)"), scalars)
    )
    yield Variant("keys as String", _recolumned(base, _as_string, {}))
    yield Variant("version UInt64", _recolumned(base, _as_short_version, {}), prepare=_short_version)
    yield Variant("no quality map given", base, prepare=lambda columns: _without(columns, "quality"))
    yield Variant("partition by day alone", replace(base, partition=base.partition[:1]))
    yield Variant("rows of four retention classes", base, prepare=_four_classes)
    yield Variant("min_bytes_for_wide_part 10 MiB", _with_settings(base, min_bytes_for_wide_part=str(10 << 20)))
    yield Variant("min_bytes_for_wide_part 1 GiB", _with_settings(base, min_bytes_for_wide_part=str(1 << 30)))
    yield Variant("optimize_on_insert 1", base, settings={"optimize_on_insert": 1})
    yield Variant("rows by time, then host", base)


def _recolumned(
    base: TableSpec, change: Callable[[ColumnSpec, Metric | None], ColumnSpec], scalars: dict[str, Metric]
) -> TableSpec:
    return replace(base, columns=tuple(change(column, scalars.get(column.name)) for column in base.columns))


def _with_settings(base: TableSpec, **changed: str) -> TableSpec:
    return replace(base, settings=tuple((dict(base.settings) | changed).items()))


def _as_float(column: ColumnSpec, metric: Metric | None) -> ColumnSpec:
    return replace(column, type="Nullable(Float32)", codec="ZSTD(1)") if metric else column


def _as_plain(column: ColumnSpec, metric: Metric | None) -> ColumnSpec:
    return replace(column, type=metric.clickhouse_type) if metric else column


def _as_zstd(column: ColumnSpec, metric: Metric | None) -> ColumnSpec:
    return replace(column, codec="ZSTD(1)") if metric else column


def _without_steps(codec: str, other: str) -> Callable[[ColumnSpec, Metric | None], ColumnSpec]:
    return lambda column, _metric: replace(column, codec=other) if column.codec == codec else column


def _as_string(column: ColumnSpec, _metric: Metric | None) -> ColumnSpec:
    return replace(column, type="String") if column.type == NAME else column


def _as_short_version(column: ColumnSpec, _metric: Metric | None) -> ColumnSpec:
    return replace(column, type="UInt64") if column.name == "version" else column


def _float_cells(scalars: dict[str, Metric]) -> Callable[[dict[str, ColumnValues]], dict[str, ColumnValues]]:
    def prepare(columns: dict[str, ColumnValues]) -> dict[str, ColumnValues]:
        return {name: _physical(cells, scalars.get(name)) for name, cells in columns.items()}

    return prepare


def _physical(cells: ColumnValues, metric: Metric | None) -> ColumnValues:
    if metric is None or not isinstance(cells, NullableColumn):
        return cells
    return replace(cells, values=(cells.values * (metric.resolution or 1.0)).astype(np.float32))


def _plain_cells(columns: dict[str, ColumnValues]) -> dict[str, ColumnValues]:
    return {name: cells.values if isinstance(cells, NullableColumn) else cells for name, cells in columns.items()}


def _short_version(columns: dict[str, ColumnValues]) -> dict[str, ColumnValues]:
    version = columns["version"]
    return columns | {"version": version.low} if isinstance(version, WideColumn) else columns


def _without(columns: dict[str, ColumnValues], name: str) -> dict[str, ColumnValues]:
    return {key: cells for key, cells in columns.items() if key != name}


def _four_classes(columns: dict[str, ColumnValues]) -> dict[str, ColumnValues]:
    entities = columns["entity"]
    return (
        columns | {"retention_class": (entities.codes % 4).astype(np.uint8)}
        if isinstance(entities, DictionaryColumn)
        else columns
    )


def questions(variant: Variant) -> dict[str, str]:
    """Return what dashboards and late data ask."""
    end = START_MS // 1000 + SECONDS

    def during(seconds: int) -> str:
        since = end - seconds
        bucket = f"AND {BUCKET} >= toStartOfTenMinutes(toDateTime({since}, 'UTC'))" if variant.bucketed else ""
        return f"event_time >= toDateTime64({since}, 3, 'UTC') AND event_time < toDateTime64({end}, 3, 'UTC') {bucket}"

    place = "tenant_id = 'tenant-00000'"
    gpu = f"{place} AND cluster_id = 'cluster-00001' AND host_id = 'host-00001' AND entity LIKE 'GPU-00000009%'"
    cluster = f"{place} AND cluster_id = 'cluster-00001'"
    power = "gpu_power_watts"
    window = "toStartOfInterval(event_time, INTERVAL 30 SECOND)"
    top = f"{place} AND {during(300)} GROUP BY entity ORDER BY v DESC LIMIT 5"
    return {
        "top 5, 5 min": f"SELECT entity, avg({power}) AS v FROM t WHERE {top}",
        "one GPU, 15 min": f"SELECT event_time, {power} FROM t WHERE {gpu} AND {during(900)} ORDER BY event_time",
        "cluster, 1 h": f"SELECT {window} AS w, avg({power}) FROM t WHERE {cluster} AND {during(3600)} GROUP BY w",
        "5 min, all columns": f"SELECT * FROM t FINAL WHERE {cluster} AND {during(300)}",
    }


def measure(store: ChdbStore, variant: Variant) -> dict[str, float]:
    """Return the figures of one variant: CPU ns and bytes per value, ms per question."""
    values, insert_ns = fill(store, variant, SECONDS)
    figures = {"insert": insert_ns / values}
    figures |= {f"{name} (unmerged)": ms for name, ms in _ask(store, variant).items()}
    figures["merge"] = merge(store) / values
    size = store.query("SELECT sum(bytes_on_disk) AS bytes FROM system.parts WHERE table = 't' AND active")
    figures["bytes"] = size.to_pylist()[0]["bytes"] / values
    return figures | _ask(store, variant)


def fill(store: ChdbStore, variant: Variant, seconds: int) -> tuple[int, int]:
    """Make the table anew, insert every batch and return (values, CPU ns)."""
    spec = replace(_with_settings(variant.spec, **NO_BACKGROUND_MERGES), name="t")
    store.query("DROP TABLE IF EXISTS t SYNC")
    store.query(spec.create_statement("secondsight"))
    values = spent_ns = 0
    for columns in batches(seconds, by_host=not variant.name.startswith("rows by time")):
        rows = arrow_table(spec, variant.prepare(columns))
        values += rows.num_rows * len(matrices())
        started = time.process_time_ns()
        store.insert("t", rows, variant.settings)
        spent_ns += time.process_time_ns() - started
    return values, spent_ns


def merge(store: ChdbStore) -> int:
    """Merge all parts into one at once and return the CPU ns it took."""
    started = time.process_time_ns()
    store.query("OPTIMIZE TABLE t FINAL", settings={"max_execution_time": 300})
    return time.process_time_ns() - started


def _ask(store: ChdbStore, variant: Variant) -> dict[str, float]:
    """Return the median wall time of each question in ms."""
    answers = {}
    for name, sql in questions(variant).items():
        walls = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            store.query(sql)
            walls.append((time.perf_counter() - started) * 1e3)
        answers[name] = statistics.median(walls)
    return answers


def main() -> None:
    """Print each variant's figures, the better of two rounds."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="layout-"))
    base = table(load_catalog(), raw_table(EntityKind.GPU))
    store = ChdbStore(folder)
    print(f"{GPUS} GPUs x {SECONDS} s x {len(gpu_metrics())} metrics, {os.cpu_count()} cores, seed {SEED}")
    measure(store, Variant("warm-up", base))
    for variant in variants(base, gpu_metrics()):
        rounds = [measure(store, variant) for _ in range(ROUNDS)]
        best = {name: round(min(figures[name] for figures in rounds), 3) for name in rounds[0]}
        print(json.dumps({"variant": variant.name} | best), flush=True)
    store.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
