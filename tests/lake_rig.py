"""A hot store, a lake and a clock for tests of the lake: rows go in as dictionaries and come out as such."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Store
from secondsight.lake.compact import compact_table
from secondsight.lake.config import CatalogConfig
from secondsight.lake.export import Means, Pace, TableExporter
from secondsight.lake.hot import hot_specs
from secondsight.lake.layout import LakeTable, lake_tables
from secondsight.lake.rewrite import Bound
from secondsight.lake.tables import Lake, open_lake
from secondsight.lake.watch import first_time
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.blocks import newest_blocks
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import tables
from secondsight.store.spec import TableSpec

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_790_035_200_000 // DAY_MS * DAY_MS
"""Midnight of the day that tests speak of."""
METRICS = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_energy_joules_total")
KEY = ("tenant_id", "cluster_id", "host_id", "entity", "part", "event_time", "collector_id")
PACE = Pace(settle_ms=0, patience_ms=0, recheck_seconds=0.0, commit_seconds=300.0, commit_bytes=256 << 20)
BOUND = Bound(portion_values=50_000, file_bytes=64 << 20)

Row = dict[str, Any]


def raw_row(at_ms: int, entity: str = "GPU-a", **cells: Any) -> Row:
    """Return a row of `gpu_1s` as a processor would write it; `job` and `stamp` say whose it is, `quality` why not."""
    job, stamp, quality = cells.pop("job", ""), cells.pop("stamp", 0), cells.pop("quality", {})
    place = {name: cells.pop(name) for name in ("tenant_id", "cluster_id", "host_id") if name in cells}
    host = place.get("host_id", f"host-{entity[-1]}")
    row: Row = {
        "tenant_id": "default",
        "region": "r",
        "cluster_id": "cedar",
        "host_id": host,
        "entity": entity,
        "part": "",
        "event_time": at_ms,
        "interval_ms": 1000,
        "ingest_time": at_ms + 700,
        "collector_id": host,
        "source": "simulate",
        "spool_id": 1 << 63,
        "sequence": at_ms // 1000,
        "job_id": job,
        "quality": quality,
        **place,
        **cells,
    }
    return row | dict(zip(("version_hi", "version_lo"), _version(cells, quality, stamp), strict=True))


def _version(cells: Mapping[str, Any], quality: Mapping[str, int], stamp: int) -> tuple[int, int]:
    values = [value for value in cells.values() if value is not None]
    bits = sum(value % (1 << 16) if value < 0 else value for value in values) & ((1 << 56) - 1)
    ranks = 9 * len(values) + len(quality)
    return len(values) << 48 | (ranks & 0xFFFFFF) << 24 | bits >> 32, (bits & 0xFFFFFFFF) << 32 | stamp


@dataclass(slots=True)
class Rig:
    """Everything that a test of the lake works with."""

    store: Store
    lake: Lake
    clock: ManualClock
    specs: dict[str, TableSpec]
    bound: Bound = BOUND
    pace: Pace = PACE
    exporters: dict[str, TableExporter] = field(default_factory=dict)
    metrics: SelfMetrics = field(default_factory=SelfMetrics)
    means: Means | None = None

    def shape(self, table: str = "gpu_1s") -> LakeTable:
        return lake_tables(hot_specs(self.store, {table: self.specs[table]}).values())[table]

    def shared(self) -> Means:
        if self.means is None:
            self.means = Means(self.store, self.lake, self.clock, self.metrics, self.bound, self.pace)
        return self.means

    def insert(self, rows: Iterable[Row], table: str = "gpu_1s") -> None:
        types = {column.name: column.type for column in self.specs[table].columns}
        listed = list(rows)
        names = list(dict.fromkeys(name for row in listed for name in row))
        columns = {name: _column(name, [row.get(name) for row in listed], types.get(name, "")) for name in names}
        self.store.insert(table, pa.table(columns))

    def copy(self, table: str = "gpu_1s") -> int:
        """Look for changes and copy all that is over."""
        shape = self.shape(table)
        exporter = self.exporters.setdefault(table, TableExporter(self.shared(), shape))
        exporter.look(shape, newest_blocks(self.store).get(table, 0), first_time(self.store, shape))
        return exporter.copy(exporter.due(lambda _table, _slice: 1 << 62), lambda: False)

    def compact(self, table: str = "gpu_1s") -> int:
        return compact_table(self.shared(), self.shape(table), self.clock.now_ms(), lambda: False)

    def restart(self) -> None:
        """Forget what a process would forget."""
        self.exporters.clear()
        self.means = None

    def clear(self, *tables: str) -> None:
        """Take tables out of the lake and their rows out of the store, and forget what a process would forget."""
        for name in tables:
            self.store.query(f"TRUNCATE TABLE {name}")
            if self.lake.table(name) is not None:
                self.lake.catalog.drop_table(("secondsight", name))
        self.restart()

    def in_lake(self, table: str = "gpu_1s") -> list[Row]:
        """Return the rows of the lake, as another reader of Iceberg gives them."""
        return lake_dicts(self.lake, table)

    def in_store(self, table: str = "gpu_1s") -> list[Row]:
        columns = {column.name: column.type for column in self.shape(table).spec.columns if column.name != "version"}
        seconds = {name for name, type_ in columns.items() if type_.startswith("DateTime(")}
        words = [f"toUnixTimestamp({name}) * 1000 AS {name}" if name in seconds else name for name in columns]
        rows = self.store.query(f"SELECT {', '.join(words)} FROM {table} FINAL").to_pylist()
        return sorted((plain(row) for row in rows), key=str)

    def files(self, table: str = "gpu_1s") -> int:
        found = self.lake.table(table)
        return 0 if found is None else len(list(found.scan().plan_files()))


def lake_dicts(lake: Lake, table: str) -> list[Row]:
    found = lake.table(table)
    if found is None:
        return []
    return sorted((plain(row) for row in found.scan().to_arrow().to_pylist()), key=str)


def plain(row: Mapping[str, Any]) -> Row:
    """Return a row without what is absent, in one form for both sides."""
    return {
        name: _value(value)
        for name, value in sorted(row.items())
        if value not in (None, [], {}, "", 0) and name not in ("version", "attribution_version")
    }


def _value(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    if isinstance(value, int):
        return value % (1 << 64)
    return sorted(value) if isinstance(value, list) else value


def _column(name: str, values: list[Any], hot_type: str) -> pa.Array:
    if "DateTime64" in hot_type:
        return pa.array(values, pa.timestamp("ms", "UTC"))
    if "DateTime" in hot_type:
        return pa.array([None if each is None else each // 1000 for each in values], pa.uint32())
    if hot_type.startswith("Map"):
        return pa.array([list((each or {}).items()) for each in values], pa.map_(pa.string(), pa.uint8()))
    if "UInt64" in hot_type or name.endswith(("_hi", "_lo")):
        return pa.array(values, pa.uint64())
    return pa.array(values)


@contextmanager
def opened(folder: Path, catalog: CatalogConfig | None = None, store: Store | None = None) -> Any:
    """Give a rig over a folder; the store is an embedded one unless another is given."""
    own = store or ChdbStore(folder / "hot")
    lake = open_lake(catalog or CatalogConfig(), folder)
    try:
        migrate(own, load_catalog())
        yield Rig(own, lake, ManualClock(START_MS + 3 * DAY_MS), {spec.name: spec for spec in tables(load_catalog())})
    finally:
        lake.close()
        if store is None:
            own.close()


def hour_of(rows: int, first_ms: int = START_MS, entities: str = "abc", **cells: Callable[[int], Any]) -> list[Row]:
    """Return rows of some GPUs, one a second; `cells` give a metric's value at a second."""
    return [
        raw_row(first_ms + 1000 * second, f"GPU-{letter}", **{name: of(second) for name, of in cells.items()})
        for letter in entities
        for second in range(rows)
    ]


def power(second: int) -> int:
    return 200_000 + second * 3
