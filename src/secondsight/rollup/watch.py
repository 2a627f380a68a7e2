"""Find the windows whose source rows changed: by parts written since the last look, then by what the rows say.

A part is named by the numbers of the inserts in it, which only grow. A part that holds an insert not seen before is
looked at whole, so a merge may name windows that did not change; these are told by the count and versions of their
source rows, which `rollups_made` keeps of every window made.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.rollup.load import FINAL, Work, windows_of
from secondsight.store.blocks import BLOCK
from secondsight.store.clusters import cluster_resolution
from secondsight.store.coarse import Level
from secondsight.store.schema import rollup_table

AT_ONCE = 500
Place = tuple[str, str]
"""Tenant, cluster."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the source rows of a window say together; equal marks mean equal rows."""

    rows: int
    version: int


Note = tuple[Mark, int]
"""What a window was made of, and how often it was made."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a cluster."""

    tenant: str
    cluster: str
    start_ms: int


def changed_windows(store: Store, source: str, width_ms: int, seen: int) -> tuple[list[Window], int]:
    """Return the windows that parts newer than an insert speak of, and the newest insert.

    Raises:
        Retryable: The store is busy or away.
    """
    width = width_ms // 1000
    rows = store.query(
        "SELECT tenant_id, cluster_id, toInt64(intDiv(toUnixTimestamp(window_start), {width:UInt32})) AS number, "  # noqa: S608 - names of the code
        f"max({BLOCK}) AS block FROM {source} WHERE {BLOCK} > {{seen:Int64}} GROUP BY tenant_id, cluster_id, number",
        {"width": width, "seen": seen},
    ).to_pylist()
    windows = [Window(row["tenant_id"], row["cluster_id"], row["number"] * width_ms) for row in rows]
    return windows, max((row["block"] for row in rows), default=seen)


def written_through(store: Store) -> dict[Place, int]:
    """Return up to when all rollups of 30 s of each cluster are written, of its collectors that are not idle, in ms.

    A collector that fell idle a moment ago holds it back until its last rows are written.

    Raises:
        Retryable: The store is busy or away.
    """
    owing = (
        "NOT idle OR (newest_event_time > {now} - INTERVAL 15 MINUTE AND rollup_through <= newest_event_time)".format(
            now="(SELECT max(newest_event_time) FROM progress)"
        )
    )
    rows = store.query(
        "SELECT tenant_id, cluster_id, min(toInt64(toUnixTimestamp(rollup_through))) AS through "  # noqa: S608 - no names of others
        f"FROM progress FINAL WHERE {owing} GROUP BY tenant_id, cluster_id"
    )
    return {(row["tenant_id"], row["cluster_id"]): row["through"] * 1000 for row in rows.to_pylist()}


def source_marks(store: Store, works: Sequence[Work]) -> dict[Work, Mark]:
    """Return what the source rows of windows of one table say now; windows without rows are left out.

    Raises:
        Retryable: The store is busy or away.
    """
    found: dict[Work, Mark] = {}
    for some in _of_one_cluster(works):
        work = some[0]
        rows = store.query(
            "SELECT intDiv(toUnixTimestamp(window_start), {width:UInt32}) AS number, count() AS rows, "  # noqa: S608 - names of the code
            f"sumWithOverflow(version) AS version FROM {work.source} FINAL "
            f"WHERE {windows_of(work.level.source)} "
            "AND number IN {numbers:Array(UInt32)} GROUP BY number",
            _reach(some),
            FINAL,
        )
        marks = {row["number"]: Mark(row["rows"], row["version"]) for row in rows.to_pylist()}
        width_ms = work.level.width_ms
        found |= {each: marks[number] for each in some if (number := each.start_ms // width_ms) in marks}
    return found


def made_marks(store: Store, works: Sequence[Work]) -> dict[Work, Note]:
    """Return what the source rows of windows of one table said when they were made, and how often they were.

    Raises:
        Retryable: The store is busy or away.
    """
    found: dict[Work, Note] = {}
    for some in _of_one_cluster(works):
        rows = store.query(
            "SELECT toInt64(toUnixTimestamp(window_start)) AS start, source_rows, source_version, version "
            "FROM rollups_made FINAL WHERE table_name = {table:String} AND tenant_id = {tenant:String} "
            "AND cluster_id = {cluster:String} AND window_start >= toDateTime({start:UInt32}, 'UTC') "
            "AND window_start < toDateTime({end:UInt32}, 'UTC')",
            _reach(some) | {"table": some[0].table},
        )
        marks = {
            row["start"] * 1000: (Mark(row["source_rows"], row["source_version"]), row["version"])
            for row in rows.to_pylist()
        }
        found |= {each: marks[each.start_ms] for each in some if each.start_ms in marks}
    return found


def unpooled_windows(store: Store, kind: EntityKind, level: Level) -> list[tuple[Window, Note]]:
    """Return the windows that were made of entities and not of their clusters, and what they were made of.

    Raises:
        Retryable: The store is busy or away.
    """
    key = "tenant_id, cluster_id, window_start"
    rows = store.query(
        f"SELECT tenant_id, cluster_id, toInt64(toUnixTimestamp(window_start)) AS start, source_rows, source_version, "  # noqa: S608 - names of the code
        "version FROM rollups_made FINAL WHERE table_name = {table:String} "
        f"AND ({key}) NOT IN (SELECT {key} FROM rollups_made WHERE table_name = {{pooled:String}})",
        {"table": rollup_table(kind, level.name), "pooled": rollup_table(kind, cluster_resolution(level.name))},
    )
    return [
        (
            Window(row["tenant_id"], row["cluster_id"], row["start"] * 1000),
            (Mark(row["source_rows"], row["source_version"]), row["version"]),
        )
        for row in rows.to_pylist()
    ]


def _of_one_cluster(works: Iterable[Work]) -> Iterator[list[Work]]:
    groups: dict[tuple[str, str], list[Work]] = defaultdict(list)
    for work in works:
        groups[work.tenant, work.cluster].append(work)
    for group in groups.values():
        group.sort(key=lambda work: work.start_ms)
        for first in range(0, len(group), AT_ONCE):
            yield group[first : first + AT_ONCE]


def _reach(works: Sequence[Work]) -> dict[str, Any]:
    first, last = works[0], works[-1]
    width_ms = first.level.width_ms
    return {
        "tenant": first.tenant,
        "cluster": first.cluster,
        "start": first.start_ms // 1000,
        "end": last.end_ms // 1000,
        "width": width_ms // 1000,
        "numbers": [work.start_ms // width_ms for work in works],
    }
