"""Find the slices of the hot store that changed: by parts written since the last look.

A part is named by the numbers of the inserts in it, which only grow. A part that holds an insert not seen before names
the slices of all its rows, so a merge may name some that did not change; marks tell these.
"""

from typing import Any

from secondsight.contracts import Store
from secondsight.lake.hot import between, number_of, time_ms_of
from secondsight.lake.layout import LakeTable, Slice
from secondsight.store.blocks import BLOCK
from secondsight.store.spec import quoted

Place = tuple[str, str]
"""Tenant, cluster."""
_SETTINGS = {"max_execution_time": 300, "max_threads": 2}


def changed_slices(store: Store, table: LakeTable, seen: int) -> tuple[list[Slice], int]:
    """Return the slices that parts newer than an insert speak of, and the newest insert.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT tenant_id, cluster_id, {number_of(table)} AS number, max({BLOCK}) AS block "  # noqa: S608 - names of the code
        f"FROM {quoted(table.name)} WHERE {BLOCK} > {{seen:Int64}} GROUP BY tenant_id, cluster_id, number",
        {"seen": seen},
        _SETTINGS,
    ).to_pylist()
    slices = [table.slice_of(row["number"] * table.slice_ms, row["tenant_id"], row["cluster_id"]) for row in rows]
    return slices, max((row["block"] for row in rows), default=seen)


def slices_within(store: Store, table: LakeTable, start_ms: int, end_ms: int) -> list[Slice]:
    """Return the slices of a range that have rows.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT tenant_id, cluster_id, {number_of(table)} AS number FROM {quoted(table.name)} "  # noqa: S608 - names of the code
        f"WHERE {between(table)} GROUP BY tenant_id, cluster_id, number",
        {"start_ms": start_ms, "end_ms": end_ms},
        _SETTINGS,
    ).to_pylist()
    found = [table.slice_of(row["number"] * table.slice_ms, row["tenant_id"], row["cluster_id"]) for row in rows]
    return sorted(found)


def first_time(store: Store, table: LakeTable) -> int:
    """Return the time of the first row that the hot store has of a table, in ms; 0 where it has none.

    Raises:
        Retryable: The store is busy or away.
    """
    first = f"if(count() = 0, 0, {time_ms_of(table, 'min')})"
    rows = store.query(f"SELECT {first} AS first FROM {quoted(table.name)}").to_pylist()  # noqa: S608 - names of the code
    return int(rows[0]["first"])


def written_through(store: Store) -> dict[Place, int]:
    """Return up to when all rows of each cluster are written, of its collectors that are not idle, in ms.

    Raises:
        Retryable: The store is busy or away.
    """
    newest = "(SELECT max(newest_event_time) FROM progress)"
    owing = f"NOT idle OR (newest_event_time > {newest} - INTERVAL 15 MINUTE AND rollup_through <= newest_event_time)"
    rows = store.query(
        "SELECT tenant_id, cluster_id, min(toInt64(toUnixTimestamp(rollup_through))) AS through "  # noqa: S608 - no names of others
        f"FROM progress FINAL WHERE {owing} GROUP BY tenant_id, cluster_id"
    )
    return {(row["tenant_id"], row["cluster_id"]): row["through"] * 1000 for row in rows.to_pylist()}


def rolled_through(store: Store) -> dict[tuple[str, Place], int]:
    """Return up to when the coarse rollups of each (table, cluster) are all made, in ms.

    Raises:
        Retryable: The store is busy or away.
    """
    rows: list[dict[str, Any]] = store.query(
        "SELECT table_name, tenant_id, cluster_id, toInt64(toUnixTimestamp(through)) AS through "
        "FROM rollups_through FINAL"
    ).to_pylist()
    return {(row["table_name"], (row["tenant_id"], row["cluster_id"])): row["through"] * 1000 for row in rows}
