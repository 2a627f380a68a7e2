"""Have rollups of a range made again by the stage that makes them, whatever it knows of their source.

What a window was made of is noted as nothing, by a greater version, and one of its source rows is written once more as
it is. The stage finds the insert, compares, and makes the window of all that is stored. Nothing is deleted, nobody
else writes rollups, and doing it twice makes the same figures twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.replay.rows import from_store
from secondsight.store.coarse import Level, window_bounds
from secondsight.store.rows import ColumnValues, arrow_table
from secondsight.store.schema import rollup_table
from secondsight.store.spec import TableSpec

AT_ONCE = 200
Progress = Callable[[str, int, int], None]
"""Is told: the table, windows that are handed over, windows in all."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One window whose rollups are to be made again."""

    tenant: str
    cluster: str
    start_s: int


class Forcer:
    """Hands windows over to the stage of rollups. For one thread."""

    def __init__(self, store: Store, notes: TableSpec, progress: Progress) -> None:
        self._store = store
        self._notes = notes
        self._progress = progress

    def run(self, kind: EntityKind, level: Level, span: tuple[int, int], made_ms: int) -> int:
        """Have the windows of a table made again that begin in [from, to); return how many.

        Args:
            kind: Whose rollups.
            level: Their resolution; rows of clusters are made with them.
            span: Epoch ms, widened to whole windows.
            made_ms: The time now.

        Raises:
            Retryable: The store is away; do it again.
        """
        table, source = rollup_table(kind, level.name), rollup_table(kind, level.source)
        windows = self._windows(source, level, span)
        for first in range(0, len(windows), AT_ONCE):
            some = windows[first : first + AT_ONCE]
            self._note(table, some, made_ms)
            self._touch(source, level, some)
            self._progress(table, first + len(some), len(windows))
        return len(windows)

    def _windows(self, source: str, level: Level, span: tuple[int, int]) -> list[Forced]:
        width = level.width_ms // 1000
        start, end = span[0] // level.width_ms * width, -(-span[1] // level.width_ms) * width
        rows = self._store.query(
            f"SELECT tenant_id, cluster_id, {_START} AS start FROM {source} "  # noqa: S608 - names of the code
            f"WHERE {_bounds(level)} GROUP BY ALL ORDER BY ALL",
            {"width": width, "start": start, "end": end},
        )
        return [Forced(row["tenant_id"], row["cluster_id"], row["start"]) for row in rows.to_pylist()]

    def _note(self, table: str, some: Sequence[Forced], made_ms: int) -> None:
        """Note that windows were made of nothing."""
        rows = self._store.query(
            "SELECT tenant_id, cluster_id, toInt64(toUnixTimestamp(window_start)) AS start, max(version) AS newest "
            "FROM rollups_made WHERE table_name = {table:String} AND toInt64(toUnixTimestamp(window_start)) IN "
            "{starts:Array(Int64)} GROUP BY ALL",
            {"table": table, "starts": sorted({each.start_s for each in some})},
        )
        newest = {(row["tenant_id"], row["cluster_id"], row["start"]): row["newest"] for row in rows.to_pylist()}
        versions = [newest.get((each.tenant, each.cluster, each.start_s), 0) + 1 for each in some]
        columns: dict[str, ColumnValues] = {
            "table_name": [table] * len(some),
            "tenant_id": [each.tenant for each in some],
            "cluster_id": [each.cluster for each in some],
            "window_start": np.array([each.start_s for each in some], np.int64),
            "source_rows": np.zeros(len(some), np.uint64),
            "source_version": np.zeros(len(some), np.uint64),
            "made_at": np.full(len(some), made_ms, np.int64),
            "version": np.array(versions, np.uint64),
        }
        self._store.insert("rollups_made", arrow_table(self._notes, columns))

    def _touch(self, source: str, level: Level, some: Sequence[Forced]) -> None:
        """Write a source row of each window once more, as it is, for the stage to find."""
        width = level.width_ms // 1000
        for tenant, cluster, starts in _by_cluster(some):
            rows = self._store.query(
                f"SELECT * EXCEPT (forced) FROM (SELECT *, {_START} AS forced FROM {source} "  # noqa: S608 - names of the code
                "WHERE tenant_id = {tenant:String} AND cluster_id = {cluster:String} AND "
                f"{_bounds(level)} AND forced IN {{starts:Array(Int64)}} ORDER BY version DESC LIMIT 1 BY forced)",
                {
                    "tenant": tenant,
                    "cluster": cluster,
                    "width": width,
                    "start": min(starts),
                    "end": max(starts) + width,
                    "starts": starts,
                },
            )
            self._store.insert(source, from_store(rows))


_START = "toInt64(intDiv(toUnixTimestamp(window_start), {width:UInt32}) * {width:UInt32})"


def _bounds(level: Level) -> str:
    """Return the predicates over source rows of windows that start in [start, end), in seconds."""
    start, end = (f"toDateTime({{{name}:UInt32}}, 'UTC')" for name in ("start", "end"))
    return " AND ".join(window_bounds(level.source, start, end))


def _by_cluster(some: Sequence[Forced]) -> Iterator[tuple[str, str, list[int]]]:
    places = sorted({(each.tenant, each.cluster) for each in some})
    for tenant, cluster in places:
        yield tenant, cluster, sorted(each.start_s for each in some if (each.tenant, each.cluster) == (tenant, cluster))
