"""Read the tables of a running platform as a test does: by SQL, through the processor's own socket."""

import time
from collections.abc import Callable
from typing import Any

from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.model import EntityKind, Quality
from secondsight.store.client import FlightStore
from up_rig import Platform

Row = dict[str, Any]
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.25


class Tables:
    """The tables of one platform; values of raw rows come back in the catalogue's units."""

    def __init__(self, platform: Platform, store: Store | None = None) -> None:
        """Read a platform's tables, through its processor or from a store that is reached otherwise."""
        self.catalog = load_catalog()
        self._store = store or FlightStore(platform.data / "run" / "store.address")

    def rows(self, sql: str, **params: object) -> list[Row]:
        """Run one statement; a store that is busy or restarting is asked again."""
        found: list[Row] = self.table(sql, **params).to_pylist()
        return found

    def table(self, sql: str, **params: object) -> Any:
        """Return the same as an Arrow table."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._store.query(sql, params)
            except Retryable:
                assert time.monotonic() < end, f"the store is away: {sql}"
                time.sleep(POLL_SECONDS)

    def wait(self, sql: str, enough: Callable[[list[Row]], bool], **params: object) -> list[Row]:
        """Run a statement until its rows are enough; give back the last rows in any case, for the caller to judge."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.rows(sql, **params)
            if enough(found) or time.monotonic() > end:
                return found
            time.sleep(POLL_SECONDS)

    def raw(self, kind: EntityKind, where: str, **params: object) -> list[Row]:
        """Return raw rows of a kind in the order of their event time; see `physical`."""
        names = ", ".join(f"`{metric.name}`" for metric in self.catalog.scalars(kind))
        columns = f"entity, part, toUnixTimestamp64Milli(event_time) AS at, quality, skew, correction_ms, {names}"
        found = self.rows(f"SELECT {columns} FROM {kind}_1s FINAL WHERE {where} ORDER BY at, entity, part", **params)
        return [self.physical(row) for row in found]

    def physical(self, row: Row) -> Row:
        """Return a raw row with `values` (metric -> physical) and `quality` (metric -> Quality) in place of columns."""
        metrics = {name: row[name] for name in row if name in self.catalog}
        rest = {name: value for name, value in row.items() if name not in metrics}
        values = {name: to_physical(self.catalog.get(name), v) for name, v in metrics.items() if v is not None}
        quality = {name: Quality(code) for name, code in dict(row["quality"]).items()}
        return rest | {"values": values, "quality": quality}

    def dead_letters(self, collector: str) -> list[Row]:
        """Return the dead letters of a collector."""
        return self.rows(
            "SELECT stage, code, metric, rows, values, host_id, toUnixTimestamp64Milli(first_time) AS first_ms"
            " FROM dead_letters FINAL WHERE collector_id = {collector:String} ORDER BY code, metric",
            collector=collector,
        )

    def close(self) -> None:
        """Close the connection."""
        self._store.close()
