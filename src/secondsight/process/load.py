"""Turn what the store holds back into pieces, last samples and rollup keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.contracts import Store
from secondsight.model import Quality
from secondsight.process.cells import WINDOW_MS
from secondsight.process.columns import MetricGroup
from secondsight.process.enrich import Attribution
from secondsight.process.kinds import CollectorKey, KindState
from secondsight.process.owners import root_column
from secondsight.process.patterns import LOOKBACK_MS
from secondsight.process.pieces import Block, Origin, Piece, select_rows, with_own_origins
from secondsight.process.series import I32
from secondsight.process.window import Priors, empty_priors
from secondsight.store.schema import raw_table, rollup_table
from secondsight.store.spec import quoted

FINAL = {"do_not_merge_across_partitions_select_final": 1}
BUCKET_MS = 600_000
HOUR_MS = 3_600_000
LOOKBACKS_MS = (90_000, LOOKBACK_MS)
"""How far back the last sample of a series is looked for: first the cheap way."""

_KEYS = ("region", "host_id", "entity", "part")
_TIMES = (
    "toUnixTimestamp64Milli(event_time) AS event_ms",
    "toUnixTimestamp64Milli(ingest_time) AS ingest_ms",
    "observed_delta_ms",
    "interval_ms",
    "quality",
)
_ORIGIN = ("spool_id", "sequence", "schema_id", "correction_ms", "boot_id", "source", "skew")


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored rollup row: its key and the recompute counter of its version."""

    start_ms: int
    collector: int
    series: int
    attribution: Attribution
    counter: int
    samples: int


def load_pieces(
    store: Store, state: KindState, collectors: Sequence[int], starts_ms: Sequence[int]
) -> list[tuple[int, Piece]]:
    """Return the stored rows of some collectors of one cluster in some windows, as (window start, piece).

    Raises:
        Retryable: The store is busy or away.
    """
    names = [metric.name for group in state.layout.groups for metric in group.metrics]
    columns = ", ".join([*_KEYS, "collector_id", *_TIMES, *_ORIGIN, *map(quoted, names)])
    place = state.collectors.items[collectors[0]]
    codes = {state.collectors.items[collector][-1]: collector for collector in collectors}
    rows = store.query(
        f"SELECT {columns} FROM {raw_table(state.kind)} FINAL WHERE {RANGE} "  # noqa: S608 - names from the catalogue
        f"AND collector_id IN {{collectors:Array(String)}} AND {START} IN {{starts:Array(Int64)}} ORDER BY event_ms",
        range_params(place[0], place[2], (min(starts_ms), max(starts_ms) + WINDOW_MS))
        | {"collectors": sorted(codes), "starts": sorted(set(starts_ms))},
        FINAL,
    )
    if not rows.num_rows:
        return []
    piece = _piece(rows.combine_chunks(), state, place)
    owner = np.array([codes[name] for name in rows.column("collector_id").to_pylist()], np.int64)
    starts = piece.time_ms - piece.time_ms % WINDOW_MS
    order = np.lexsort((starts, owner))
    heads = np.flatnonzero((np.diff(owner[order]) != 0) | (np.diff(starts[order]) != 0)) + 1
    return [
        (int(starts[rows[0]]), replace(with_own_origins(select_rows(piece, rows)), collector=int(owner[rows[0]])))
        for rows in np.split(order, heads)
    ]


def load_lasts(
    store: Store, state: KindState, collectors: Sequence[int], before_ms: int, lookback_ms: int
) -> tuple[I32, list[Priors]]:
    """Return (series, per group of the layout the last samples before an instant), of counters and states only.

    Raises:
        Retryable: The store is busy or away.
    """
    found: list[tuple[I32, list[Priors]]] = []
    for key, members in _by_cluster(state, collectors).items():
        rows = last_rows(store, state, (key, members), (before_ms - lookback_ms, before_ms), state.followed)
        if rows.num_rows:
            found.append(
                (
                    series_of(rows, state, key[0], key[1]),
                    [lasts_of(rows, group, state) for group in state.layout.groups],
                )
            )
    if not found:
        return np.zeros(0, np.int32), [lasts_of(None, group, state) for group in state.layout.groups]
    series = np.concatenate([each for each, _ in found])
    return series, [joined([lasts[group] for _, lasts in found]) for group in range(len(state.layout.groups))]


def load_rollup_keys(
    store: Store, state: KindState, collectors: Sequence[int], starts_ms: Sequence[int]
) -> list[Stored]:
    """Return the keys of the stored rollup rows of some collectors of one cluster in some windows, empty rows included.

    Raises:
        Retryable: The store is busy or away.
    """
    tenant, _, cluster, _ = state.collectors.items[collectors[0]]
    codes = {state.collectors.items[collector][-1]: collector for collector in collectors}
    rows = store.query(
        "SELECT toUnixTimestamp(window_start) AS start, region, host_id, entity, part, collector_id, "  # noqa: S608 - names of the code
        "job_id, workload_id, owner_team, model_id, "
        f"toUInt64(max(bitShiftRight(version, 32))) AS counter, argMax(samples, version) AS samples "
        f"FROM {rollup_table(state.kind)} WHERE tenant_id = {{tenant:String}} AND cluster_id = {{cluster:String}} "
        "AND toStartOfHour(window_start) >= toDateTime({hour:UInt32}, 'UTC') "
        "AND window_start <= toDateTime({last:UInt32}, 'UTC') "
        "AND toUnixTimestamp(window_start) IN {starts:Array(UInt32)} AND collector_id IN {collectors:Array(String)} "
        "GROUP BY ALL",
        {
            "tenant": tenant,
            "cluster": cluster,
            "hour": (min(starts_ms) - min(starts_ms) % HOUR_MS) // 1000,
            "last": max(starts_ms) // 1000,
            "starts": sorted({start_ms // 1000 for start_ms in starts_ms}),
            "collectors": sorted(codes),
        },
    )
    found = rows.to_pylist()
    series = series_of(rows, state, tenant, cluster).tolist() if found else []
    return [
        Stored(
            int(row["start"]) * 1000,
            codes[row["collector_id"]],
            number,
            (row["job_id"], row["workload_id"], row["owner_team"], row["model_id"]),
            row["counter"],
            row["samples"],
        )
        for row, number in zip(found, series, strict=True)
    ]


def next_rows(
    store: Store, state: KindState, collectors: Sequence[int], metrics: Sequence[str], reach_ms: tuple[int, int]
) -> list[tuple[str, tuple[str, str, str], int, list[int]]]:
    """Return (collector, entity, window, per metric whether it has a sample there) of stored rows.

    Raises:
        Retryable: The store is busy or away.
    """
    if not metrics:
        return []
    flags = ", ".join(f"max(isNotNull({quoted(name)}))" for name in metrics)
    tenant, _, cluster, _ = state.collectors.items[collectors[0]]
    rows = store.query(
        f"SELECT collector_id, host_id, entity, part, {START} AS start, [{flags}] AS flags "  # noqa: S608 - names from the catalogue
        f"FROM {raw_table(state.kind)} WHERE {RANGE} AND collector_id IN {{collectors:Array(String)}} GROUP BY ALL",
        range_params(tenant, cluster, reach_ms)
        | {"collectors": [state.collectors.items[collector][-1] for collector in collectors]},
    )
    return [
        (row["collector_id"], (row["host_id"], row["entity"], row["part"]), int(row["start"]), row["flags"])
        for row in rows.to_pylist()
    ]


def collectors_of(
    store: Store, state: KindState, place: tuple[str, str], reach_ms: Mapping[str, tuple[int, int]]
) -> list[tuple[str, str, CollectorKey, int]]:
    """Return the distinct (root, host, collector, window start) of stored rows of some roots.

    Args:
        store: Where they are.
        state: Of their kind.
        place: Tenant and cluster.
        reach_ms: Root, which rows are looked up by -> range of time.

    Raises:
        Retryable: The store is busy or away.
    """
    start_ms, end_ms = min(start for start, _ in reach_ms.values()), max(end for _, end in reach_ms.values())
    rows = store.query(
        f"SELECT DISTINCT host_id, region, collector_id, {root_column(state.kind)} AS root, {START} AS start "  # noqa: S608 - names of the code
        f"FROM {raw_table(state.kind)} WHERE {RANGE} AND root IN {{roots:Array(String)}}",
        range_params(*place, (start_ms, end_ms)) | {"roots": sorted(reach_ms)},
    )
    return [
        (row["root"], row["host_id"], (place[0], row["region"], place[1], row["collector_id"]), int(row["start"]))
        for row in rows.to_pylist()
        if reach_ms[row["root"]][0] < row["start"] + WINDOW_MS and row["start"] < reach_ms[row["root"]][1]
    ]


START = f"intDiv(toUnixTimestamp64Milli(event_time), {WINDOW_MS}) * {WINDOW_MS}"
"""Window of a row."""
RANGE = (
    "tenant_id = {tenant:String} AND cluster_id = {cluster:String} "
    "AND toStartOfTenMinutes(event_time) >= toDateTime({bucket_from:UInt32}, 'UTC') "
    "AND toStartOfTenMinutes(event_time) <= toDateTime({bucket_to:UInt32}, 'UTC') "
    "AND event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC') "
    "AND event_time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')"
)
"""Rows of a cluster in a range of time, found by the primary key."""


def range_params(tenant: str, cluster: str, reach_ms: tuple[int, int]) -> dict[str, Any]:
    """Return the parameters of `RANGE`, for a half open range of time."""
    start_ms, end_ms = reach_ms
    return {
        "tenant": tenant,
        "cluster": cluster,
        "bucket_from": (start_ms - start_ms % BUCKET_MS) // 1000,
        "bucket_to": (end_ms - 1) // 1000,
        "from_ms": start_ms,
        "to_ms": end_ms,
    }


def series_of(rows: Any, state: KindState, tenant: str, cluster: str) -> I32:
    """Return the series of some stored rows."""
    names = zip(*(rows.column(name).to_pylist() for name in (*_KEYS, "collector_id")), strict=True)
    return np.array(
        [
            state.series.id_of((tenant, region, cluster, host, entity, part, collector))
            for region, host, entity, part, collector in names
        ],
        np.int32,
    )


def _piece(rows: Any, state: KindState, place: CollectorKey) -> Piece:
    origins, origin_of = _origins(rows)
    return Piece(
        -1,
        series_of(rows, state, place[0], place[2]),
        _numbers(rows, "event_ms", np.int64),
        _numbers(rows, "observed_delta_ms", np.int32),
        _numbers(rows, "interval_ms", np.int64),
        _numbers(rows, "ingest_ms", np.int64),
        origins,
        origin_of,
        _blocks(rows, state),
        stored=True,
    )


def _origins(rows: Any) -> tuple[list[Origin], I32]:
    found: dict[Origin, int] = {}
    codes = [
        found.setdefault(Origin._make((*fields[:-1], bool(fields[-1]))), len(found))
        for fields in zip(*(rows.column(name).to_pylist() for name in _ORIGIN), strict=True)
    ]
    return list(found), np.array(codes, np.int32)


def _blocks(rows: Any, state: KindState) -> list[Block]:
    listed = _listed_qualities(rows)
    blocks = []
    for number, group in enumerate(state.layout.groups):
        columns = [
            column
            for column, metric in enumerate(group.metrics)
            if metric.name in listed or rows.column(metric.name).null_count < rows.num_rows
        ]
        if columns:
            blocks.append(_block(rows, number, group, columns, listed))
    return blocks


def _block(
    rows: Any, number: int, group: MetricGroup, columns: list[int], listed: dict[str, list[tuple[int, int]]]
) -> Block:
    values = np.zeros((len(columns), rows.num_rows), group.dtype)
    quality = np.zeros(values.shape, np.uint8)
    for place, column in enumerate(columns):
        name = group.metrics[column].name
        values[place], present = _nullable(rows, name, group.dtype)
        quality[place] = present * np.uint8(Quality.OK)
        for row, code in listed.get(name, ()):
            quality[place, row] = code
    return Block(number, np.array(columns, np.intp), values, quality)


def _listed_qualities(rows: Any) -> dict[str, list[tuple[int, int]]]:
    listed: dict[str, list[tuple[int, int]]] = {}
    for row, entries in enumerate(rows.column("quality").to_pylist()):
        for name, code in entries:
            listed.setdefault(name, []).append((row, code))
    return listed


def _numbers(rows: Any, name: str, dtype: Any) -> NDArray[Any]:
    return np.asarray(rows.column(name).to_numpy()).astype(dtype)


def _nullable(rows: Any, name: str, dtype: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    column = rows.column(name)
    present = np.asarray(column.is_valid().to_numpy(), np.bool_)
    return np.asarray(pc.fill_null(column, 0).to_numpy()).astype(dtype, copy=False), present


def _by_cluster(state: KindState, collectors: Sequence[int]) -> dict[tuple[str, str], list[str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for collector in collectors:
        tenant, _, cluster, name = state.collectors.items[collector]
        groups.setdefault((tenant, cluster), []).append(name)
    return groups


def last_rows(
    store: Store,
    state: KindState,
    whose: tuple[tuple[str, str], list[str]],
    reach_ms: tuple[int, int],
    metrics: Sequence[str],
    by: str = "",
) -> Any:
    """Return the last samples of metrics in a range of each series, or of each series and what is selected first.

    Raises:
        Retryable: The store is busy or away.
    """
    (tenant, cluster), collectors = whose
    names = [quoted(name) for name in metrics]
    aggregates = [
        f"argMaxIf({name}, event_time, isNotNull({name})) AS {name[:-1]}.v{name[-1]}, "
        f"maxIf(toUnixTimestamp64Milli(event_time), isNotNull({name})) AS {name[:-1]}.t{name[-1]}, "
        f"argMaxIf(boot_id, event_time, isNotNull({name})) AS {name[:-1]}.b{name[-1]}"
        for name in names
    ]
    return store.query(
        f"SELECT {by}region, host_id, entity, part, collector_id{''.join(f', {each}' for each in aggregates)} "  # noqa: S608 - names from the catalogue
        f"FROM {raw_table(state.kind)} FINAL WHERE {RANGE} "
        "AND collector_id IN {collectors:Array(String)} GROUP BY ALL",
        range_params(tenant, cluster, reach_ms) | {"collectors": collectors},
        FINAL,
    )


def lasts_of(rows: Any, group: MetricGroup, state: KindState) -> Priors:
    """Return the samples of some of `last_rows`, of the metrics of a group; none of those that were not asked for."""
    count = rows.num_rows if rows is not None else 0
    lasts = empty_priors(len(group.metrics), count, group.dtype)
    for place, metric in enumerate(group.metrics):
        if count and f"{metric.name}.v" in rows.column_names:
            lasts.values[place] = _nullable(rows, f"{metric.name}.v", group.dtype)[0]
            lasts.time_ms[place] = _nullable(rows, f"{metric.name}.t", np.int64)[0]
            boots = rows.column(f"{metric.name}.b").combine_chunks().dictionary_encode()
            codes = np.array([state.epochs.code(boot or "") for boot in boots.dictionary.to_pylist()] or [0], np.int32)
            lasts.epoch[place] = codes[boots.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return lasts


def joined(lasts: Sequence[Priors]) -> Priors:
    """Return the last samples of some series after those of others."""
    return Priors(
        np.concatenate([each.values for each in lasts], axis=1),
        np.concatenate([each.time_ms for each in lasts], axis=1),
        np.concatenate([each.epoch for each in lasts], axis=1),
    )
