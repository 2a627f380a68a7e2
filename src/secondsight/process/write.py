"""Write to the store, in an order that lets a crash at any point be repaired by reading the log again.

Ranges in which rows may be there twice are announced first, then raw rows, then rollups, then all the rest. Every
method may be called again after `Retryable`: what was not written is still waiting.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from secondsight.catalog.index import Catalog
from secondsight.contracts import Store
from secondsight.process.cells import WINDOW_MS, Window
from secondsight.process.enrich import Allocations
from secondsight.process.kinds import KindState
from secondsight.process.land import Landing
from secondsight.process.pieces import Rows
from secondsight.process.raw import filled, raw_columns
from secondsight.process.series import CLUSTER, I32, TENANT
from secondsight.process.stamps import Stamps
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.rows import ColumnValues, arrow_table
from secondsight.store.schema import raw_table, rollup_table, tables
from secondsight.store.spec import TableSpec

MAX_INSERT_ROWS = 200_000
ANNOUNCE_AGAIN_MS = 60_000
Place = tuple[str, str]
"""Tenant, cluster."""


class Writer:
    """Owns what waits to be written, except dirty rows of open windows."""

    def __init__(self, store: Store, catalog: Catalog, metrics: SelfMetrics) -> None:
        self._store = store
        self._specs = {spec.name: spec for spec in tables(catalog)}
        self._metrics = metrics
        self._rollups: dict[str, list[Any]] = {}
        self.rollup_rows = 0
        self._unsure: set[str] = set()
        self.landing = Landing(self._specs)
        self._announced: dict[tuple[str, Place, int], int] = {}

    def spec(self, table: str) -> TableSpec:
        """Return the description of a table."""
        return self._specs[table]

    def announce(self, table: str, places: Iterable[Place], start_ms: int, now_ms: int) -> None:
        """Note that rows of a window may be in the store twice; written by the next flush before anything else."""
        for tenant, cluster in places:
            key = (table, (tenant, cluster), start_ms)
            if now_ms - self._announced.get(key, -ANNOUNCE_AGAIN_MS) < ANNOUNCE_AGAIN_MS:
                continue
            if len(self._announced) > 1 << 16:
                self._announced.clear()
            self._announced[key] = now_ms
            row = {"table_name": table, "tenant_id": tenant, "cluster_id": cluster}
            times = {"from_time": start_ms, "to_time": start_ms + WINDOW_MS, "written_at": now_ms}
            self.landing.add("rewrites", row | times, now_ms)

    def flush_raw(self, state: KindState, allocations: Allocations, stamps: Stamps, now_ms: int) -> None:
        """Write the dirty rows of a kind.

        Raises:
            Retryable: The store is busy or away.
        """
        batch = [(window, np.flatnonzero(window.dirty[: window.size])) for window in state.windows.values()]
        batch = [(window, rows) for window, rows in batch if rows.size]
        if not batch:
            return
        self._announce_rewritten(state, batch, now_ms)
        for window, rows in batch:
            window.written[rows] = True  # an insert that fails may have written some: the next one announces them
        spec = self._specs[raw_table(state.kind)]
        made = []
        for window, rows in _in_parts(batch):
            marks = stamps.of(window.series[rows], window.time_ms[rows])
            columns = raw_columns(window, rows, state.series, allocations, marks)
            window.filled[rows] = filled(columns)
            made.append(arrow_table(spec, columns))
            if sum(each.num_rows for each in made) >= MAX_INSERT_ROWS:
                self._insert(spec.name, made)
                made = []
        self._insert(spec.name, made)
        for window, rows in batch:
            window.dirty[rows] = False

    def add_rollups(self, state: KindState, columns: Mapping[str, ColumnValues]) -> None:
        """Take in rollup rows."""
        table = rollup_table(state.kind)
        rows = arrow_table(self._specs[table], columns)
        self._rollups.setdefault(table, []).append(rows)
        self.rollup_rows += rows.num_rows

    def flush_rollups(self, now_ms: int) -> None:
        """Write the rollup rows that wait.

        Raises:
            Retryable: The store is busy or away.
        """
        for table in self._unsure & self._rollups.keys():
            for place, start_ms in {each for rows in self._rollups[table] for each in _windows(rows)}:
                self.announce(table, (place,), start_ms, now_ms)
        self.flush_landing("rewrites")
        for table in list(self._rollups):
            rows = self._rollups[table]
            self._unsure.add(table)  # an insert that fails may have written some: the next one announces them
            self._insert(table, rows)
            self._unsure.discard(table)
            self.rollup_rows -= sum(each.num_rows for each in rows)
            del self._rollups[table]

    def flush_landing(self, *only: str) -> None:
        """Write what else waits, of all tables or of some.

        Raises:
            Retryable: The store is busy or away.
        """
        for table, rows in self.landing.take(*only):
            self._insert(table, [rows])
            self.landing.done(table)

    def _announce_rewritten(self, state: KindState, batch: list[tuple[Window, Rows]], now_ms: int) -> None:
        for window, rows in batch:
            again = rows[window.written[rows]]
            if again.size:
                self._metrics.count("processor_rows_rewritten_total", again.size)
                self.announce(raw_table(state.kind), places_of(state, window.series[again]), window.start_ms, now_ms)
        self.flush_landing("rewrites")

    def _insert(self, table: str, parts: list[Any]) -> None:
        if not parts:
            return
        rows = parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="default")
        self._store.insert(table, rows)
        self._metrics.count("processor_rows_written_total", rows.num_rows, table=table)


def _windows(rows: Any) -> Iterable[tuple[Place, int]]:
    """Return the place and start of each window that some rollup rows are of."""
    few = rows.select(["tenant_id", "cluster_id", "window_start"]).group_by(["tenant_id", "cluster_id", "window_start"])
    for row in few.aggregate([]).to_pylist():
        yield (row["tenant_id"], row["cluster_id"]), round(row["window_start"].timestamp() * 1000)


def places_of(state: KindState, series: I32) -> list[Place]:
    """Return the distinct tenants and clusters of some series."""
    tenants, clusters = state.series.codes(TENANT)[series], state.series.codes(CLUSTER)[series]
    pairs = np.unique(np.stack([tenants, clusters], axis=1), axis=0)
    names = state.series.names
    return [(names[TENANT].items[tenant], names[CLUSTER].items[cluster]) for tenant, cluster in pairs.tolist()]


def _in_parts(batch: list[tuple[Window, Rows]]) -> Iterable[tuple[Window, Rows]]:
    for window, rows in batch:
        for start in range(0, rows.size, MAX_INSERT_ROWS):
            yield window, rows[start : start + MAX_INSERT_ROWS]
