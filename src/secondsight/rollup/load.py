"""Read from the store what a window of rollups is made of, and what is stored of it already."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.catalog.members import keeps_sketch, members
from secondsight.catalog.metric import Metric
from secondsight.catalog.secondary import MARK
from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.rollup.merge import KEY, Key
from secondsight.rollup.samples import SERIES
from secondsight.store.clusters import cluster_resolution
from secondsight.store.coarse import FINEST, MAPS, SOURCE_SAMPLES, Level, sketch_columns, window_bounds
from secondsight.store.schema import member_columns, raw_table, rollup_table
from secondsight.store.spec import quoted

FINAL = {"do_not_merge_across_partitions_select_final": 1}
_PLAIN_MAPS = tuple(name for name in MAPS if name != "samples_other")


@dataclass(frozen=True, slots=True)
class Work:
    """One window of one table and cluster.

    Attributes:
        kind: Whose rows.
        level: Resolution of the window.
        start_ms: Its start.
    """

    kind: EntityKind
    level: Level
    tenant: str
    cluster: str
    start_ms: int

    @property
    def table(self) -> str:
        """Return the table that the window's rows go to."""
        return rollup_table(self.kind, self.level.name)

    @property
    def cluster_table(self) -> str:
        """Return the table that the rows of its cluster go to, of kinds that have one."""
        return rollup_table(self.kind, cluster_resolution(self.level.name))

    @property
    def source(self) -> str:
        """Return the table that they are merged from."""
        return rollup_table(self.kind, self.level.source)

    @property
    def end_ms(self) -> int:
        """Return the end of the window."""
        return self.start_ms + self.level.width_ms


def hosts_of(store: Store, work: Work) -> list[tuple[str, int]]:
    """Return the hosts that have source rows in a window, and how many.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT host_id, count() AS rows FROM {work.source} WHERE {windows_of(work.level.source)} "  # noqa: S608 - names of the code
        "GROUP BY host_id ORDER BY host_id",
        _parameters(work),
    )
    return [(row["host_id"], row["rows"]) for row in rows.to_pylist()]


def source_rows(store: Store, work: Work, metrics: Sequence[Metric], hosts: Sequence[str]) -> Any:
    """Return the source rows of some hosts in a window, sorted by `KEY` and time.

    Raises:
        Retryable: The store is busy or away.
    """
    columns = _columns(metrics, finer=work.level.source != FINEST)
    return store.query(
        f"SELECT {', '.join(columns)} FROM {work.source} FINAL WHERE {windows_of(work.level.source)} "  # noqa: S608 - names from the catalogue
        f"AND host_id IN {{hosts:Array(String)}} AND samples > 0 ORDER BY {', '.join(KEY)}, window_start",
        _parameters(work) | {"hosts": list(hosts)},
        FINAL,
    )


def stored_rows(store: Store, work: Work, metrics: Sequence[Metric], hosts: Sequence[str] | None) -> Any:
    """Return the rows that are stored of a window, of some hosts or of all.

    Raises:
        Retryable: The store is busy or away.
    """
    among = "" if hosts is None else "AND host_id IN {hosts:Array(String)} "
    return store.query(
        f"SELECT {', '.join(_columns(metrics, finer=True))} FROM {work.table} FINAL "  # noqa: S608 - names from the catalogue
        f"WHERE {windows_of(work.level.name)} {among}AND samples > 0",
        _parameters(work) | ({} if hosts is None else {"hosts": list(hosts)}),
        FINAL,
    )


def products_of(store: Store, work: Work) -> dict[str, str]:
    """Return the product of each entity of a cluster that has one.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT entity, max(gpu_model) AS product FROM entities WHERE tenant_id = {tenant:String} "
        "AND cluster_id = {cluster:String} AND kind = {kind:String} AND gpu_model != '' GROUP BY entity",
        {"tenant": work.tenant, "cluster": work.cluster, "kind": work.kind.value},
    )
    return {row["entity"]: row["product"] for row in rows.to_pylist()}


def _columns(metrics: Sequence[Metric], *, finer: bool) -> list[str]:
    """Return what rows are merged from; rows above the finest have sketches and counts of samples too."""
    own = [
        quoted(column.name)
        for metric in metrics
        for column in member_columns(metric)
        if not column.name.endswith("_p95")
    ]
    sketches = [quoted(name) for metric in metrics if keeps_sketch(metric) and finer for name in sketch_columns(metric)]
    return [
        *KEY,
        "region",
        "source_rank",
        "toUnixTimestamp64Milli(first_event_time) AS first_ms",
        "toUnixTimestamp64Milli(last_event_time) AS last_ms",
        "interval_ms",
        "samples",
        f"greatest({SOURCE_SAMPLES}, samples) AS told" if finer else "samples AS told",
        "covered_ms",
        "toInt64(toUnixTimestamp(window_start)) AS start_s",
        *(MAPS if finer else _PLAIN_MAPS),
        *own,
        *sketches,
    ]


def raw_rows(store: Store, work: Work, metrics: Sequence[Metric], hosts: Sequence[str]) -> Any:
    """Return the raw rows of some hosts in a window, sorted by series and time.

    Raises:
        Retryable: The store is busy or away.
    """
    names = [quoted(metric.name) for metric in metrics]
    columns = [*KEY, "source_rank", "toUnixTimestamp64Milli(event_time) AS event_ms", "interval_ms", *names]
    return store.query(
        f"SELECT {', '.join(columns)} FROM {raw_table(work.kind)} FINAL "  # noqa: S608 - names from the catalogue
        "WHERE tenant_id = {tenant:String} AND cluster_id = {cluster:String} "
        "AND toStartOfTenMinutes(event_time) >= toStartOfTenMinutes(toDateTime({start:UInt32}, 'UTC')) "
        "AND toStartOfTenMinutes(event_time) <= toDateTime({last:UInt32}, 'UTC') "
        "AND event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC') "
        "AND event_time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC') "
        f"AND host_id IN {{hosts:Array(String)}} AND position(part, '{MARK}') = 0 "
        f"ORDER BY {', '.join(SERIES)}, event_time",
        _parameters(work) | {"hosts": list(hosts)},
        FINAL,
    )


def stored_counters(
    store: Store, table: str, key: Sequence[str], work: Work, told: str = "samples"
) -> dict[Key, tuple[int, int]]:
    """Return the recompute counter and the samples of each row that a table has of a window, empty rows included.

    Args:
        store: Where the table is.
        table: Its name.
        key: Columns that tell its rows of a window apart.
        work: The window.
        told: Expression of the samples.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        f"SELECT {', '.join(key)}, toUInt64(bitShiftRight(max(version), 32)) AS counter, "  # noqa: S608 - names of the code
        f"argMax({told}, version) AS stored FROM {table} WHERE {windows_of(work.level.name)} GROUP BY ALL",
        _parameters(work),
    )
    return {tuple(row[name] for name in key): (row["counter"], row["stored"]) for row in rows.to_pylist()}


def sketched(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that have a sketch."""
    return [metric for metric in metrics if keeps_sketch(metric) and members(metric)]


def windows_of(resolution: str) -> str:
    """Return the condition for windows of a cluster that start in [start, end), in seconds; all four are parameters."""
    bounds = window_bounds(resolution, "toDateTime({start:UInt32}, 'UTC')", "toDateTime({end:UInt32}, 'UTC')")
    return " AND ".join(["tenant_id = {tenant:String}", "cluster_id = {cluster:String}", *bounds])


def _parameters(work: Work) -> dict[str, Any]:
    return {
        "tenant": work.tenant,
        "cluster": work.cluster,
        "start": work.start_ms // 1000,
        "end": work.end_ms // 1000,
        "last": (work.end_ms - 1) // 1000,
        "from_ms": work.start_ms,
        "to_ms": work.end_ms,
    }
