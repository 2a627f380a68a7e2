"""An hour at 1 s of one GPU from 30 days ago, out of the lake, by the questions of the read side.

The rows of `layout.py` (256 GPUs, an hour, all metrics) go through a hot store into a lake by the product's own stage,
and leave the hot store: its floor lies behind them. Then the hour of one GPU is asked again and again, about another
GPU and metric each time, as the api asks it, with a process of cold reads that is warm. `first` is a question whose
files were not planned before; a cluster's average by minutes stands beside it.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

import _platform
import layout
from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_pool import ColdPool
from secondsight.lake.config import LakeConfig
from secondsight.lake.serve import stage_of
from secondsight.lake.tables import open_lake
from secondsight.query.answer import Answer
from secondsight.query.cold import ColdTier
from secondsight.query.inventory import Inventory
from secondsight.query.request import QueryText, parse_query
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.rows import arrow_table
from secondsight.store.schema import table

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
REPEATS = 10 if layout.QUICK else 60
NOW_MS = layout.START_MS + 30 * DAY_MS
METRICS = ("gpu_power_watts", "gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_memory_used_bytes")
END_MS = layout.START_MS + layout.SECONDS * 1000


def _measured(folder: Path) -> dict[str, float]:
    store = ChdbStore(folder / "hot")
    migrate(store, load_catalog())
    spec = table(load_catalog(), "gpu_1s")
    rows = 0
    for columns in layout.batches(layout.SECONDS):
        batch = arrow_table(spec, columns)
        store.insert("gpu_1s", batch)
        rows += batch.num_rows
    store.insert("entities", _entities())
    _copy(store, folder)
    store.query("TRUNCATE TABLE gpu_1s")
    pool = ColdPool(ColdConfig(), folder)
    try:
        return {"rows": rows, **_asked(store, pool)}
    finally:
        pool.close()
        store.close()


def _entities() -> Any:
    """Return what the store knows of each GPU, told since before the rows."""
    gpus = range(layout.GPUS)
    hosts = [number // layout.GPUS_PER_HOST for number in gpus]
    times = pa.array([layout.START_MS] * layout.GPUS, pa.timestamp("ms", "UTC"))
    names = {
        "tenant_id": ["tenant-00000"] * layout.GPUS,
        "region": ["region-00000"] * layout.GPUS,
        "cluster_id": [f"cluster-{host % layout.CLUSTERS:05d}" for host in hosts],
        "host_id": [f"host-{host:05d}" for host in hosts],
        "kind": ["gpu"] * layout.GPUS,
        "entity": [gpu_name(number) for number in gpus],
        "collector_id": [f"collector-{host:05d}" for host in hosts],
    }
    figures = {
        "interval_ms": pa.array([1000] * layout.GPUS, pa.uint32()),
        "version": pa.array([1] * layout.GPUS, pa.uint64()),
    }
    return pa.table({**names, **figures, "from_time": times, "last_seen": times})


def gpu_name(number: int) -> str:
    """Return the id of a GPU as `layout.py` has it."""
    return f"GPU-{number:08x}-6d2c-5a3b-9c1d-0123456789ab"


def _copy(store: ChdbStore, folder: Path) -> None:
    """Copy everything into a lake in the folder, as the stage does once its hours are over."""
    config = LakeConfig(folder, settle_seconds=0, recheck_seconds=0.001, compact_hours=0, tables=("gpu_1s",))
    lake = open_lake(config.catalog, folder)
    stage_of(config, store, lake, ManualClock(NOW_MS), SelfMetrics()).step(Event())
    lake.close()


def _asked(store: ChdbStore, pool: ColdPool) -> dict[str, float]:
    def gpu(number: int) -> dict[str, str | tuple[str, ...]]:
        host = number % layout.GPUS // layout.GPUS_PER_HOST
        entity = gpu_name(number % layout.GPUS)
        return {"gpu": (entity,), "host": (f"host-{host:05d}",), "cluster": (f"cluster-{host % layout.CLUSTERS:05d}",)}

    def hour(number: int) -> Answer:
        text = QueryText(
            METRICS[number % 4], gpu(number * 7), from_=str(END_MS - HOUR_MS), to=str(END_MS), resolution="1s"
        )
        return _ask(store, pool, text)

    def every(number: int) -> Answer:
        names = ",".join(metric.name for metric in layout.gpu_metrics()[:40])
        text = QueryText(names, gpu(number * 7), from_=str(END_MS - 600_000), to=str(END_MS), resolution="1s")
        return _ask(store, pool, text)

    def cluster(number: int) -> Answer:
        place = {"cluster": (f"cluster-{number % layout.CLUSTERS:05d}",)}
        text = QueryText(
            METRICS[number % 4], place, from_=str(END_MS - HOUR_MS), to=str(END_MS), resolution="1m", group_by="cluster"
        )
        return _ask(store, pool, text)

    first = _timed(hour, 1)
    found = {"lake_hour": _timed(hour, REPEATS), "lake_gpu_40_metrics": _timed(every, REPEATS // 2)}
    found["lake_cluster_hour"] = _timed(cluster, REPEATS // 2)
    figures = {"first_ms": first[0]}
    for name, times in found.items():
        figures |= {f"{name}_p50_ms": statistics.median(times), f"{name}_p95_ms": statistics.quantiles(times, n=20)[-1]}
    return figures


def _ask(store: ChdbStore, pool: ColdPool, text: QueryText) -> Answer:
    clock = ManualClock(NOW_MS)
    inventory = _inventories.setdefault(id(store), Inventory(store, clock))
    cold = ColdTier(pool, lambda: {"gpu_1s": layout.START_MS + DAY_MS}, inventory)
    scope = Scope(("tenant-00000",), None, None, None, frozenset(), "bench", Role.VIEWER)
    answer = QueryRunner(store, clock, inventory, cold=cold).run(parse_query(text, load_catalog(), NOW_MS), scope)
    if answer.tier != "cold" or not answer.series or answer.partial:
        raise SystemExit(f"not what was asked: {answer.tier}, {len(answer.series)} series, {answer.warnings}")
    return answer


_inventories: dict[int, Inventory] = {}


def _timed(ask: Callable[[int], Answer], times: int) -> list[float]:
    """Return milliseconds of each question, the first of several left out."""
    taken = []
    for number in range(times + (1 if times > 1 else 0)):
        began = time.perf_counter()
        ask(number)
        taken.append((time.perf_counter() - began) * 1000)
    return taken[1:] if times > 1 else taken


if __name__ == "__main__":
    _platform.report("cold", _measured)
    os._exit(0)  # the engine's threads have nothing left to do
