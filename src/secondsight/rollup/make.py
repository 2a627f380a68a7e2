"""Make the rows of one window from what is stored, those of its cluster, and empty ones for rows no longer true.

Samples never become fewer but by retention. So where a host's source has fewer than were rolled up, its source is gone,
at least in part, and its rows are left as they are; so they are where raw rows are gone that sketches were made of.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.contracts import Store
from secondsight.rollup.load import (
    Work,
    hosts_of,
    products_of,
    raw_rows,
    sketched,
    source_rows,
    stored_counters,
    stored_rows,
)
from secondsight.rollup.merge import KEY, ROW, Key, merge_rows
from secondsight.rollup.pool import pool_rows
from secondsight.rollup.rows import empty_rows, joined_rows, rollup_rows
from secondsight.rollup.samples import sketches_of
from secondsight.rollup.sources import one_source
from secondsight.store.clusters import CLUSTER_KEY, CLUSTER_KINDS, entities_column
from secondsight.store.coarse import FINEST, SOURCE_SAMPLES
from secondsight.store.spec import TableSpec

ROWS_AT_ONCE = 20_000
"""Source rows that are merged at once; ten of them stand for 300 raw rows of the finest cadence."""
Stored = Mapping[Key, tuple[int, int]]
"""Key of a stored row -> its recompute counter and its samples."""
_COMPUTE: Any = pc


@dataclass(slots=True)
class Made:
    """What a window has now.

    Attributes:
        rows: Table -> Arrow tables of rows for it.
        left: Hosts whose rows were left as they are, as their source is gone.
    """

    rows: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    left: set[str] = field(default_factory=set)

    @property
    def row_count(self) -> int:
        """Return the number of rows of all tables."""
        return sum(table.num_rows for tables in self.rows.values() for table in tables)


def make_window(store: Store, catalog: Catalog, specs: Mapping[str, TableSpec], work: Work) -> Made:
    """Return the rows that a window and its cluster have now, and empty ones for rows that they no longer have.

    Raises:
        Retryable: The store is busy or away.
    """
    metrics = catalog.scalars(work.kind)
    stored = stored_counters(store, work.table, KEY, work, f"greatest({SOURCE_SAMPLES}, samples)")
    made, seen = Made(), set[Key]()
    hosts = hosts_of(store, work)
    made.left |= _held(stored).keys() - {host for host, _ in hosts}
    for portion in _portions(hosts):
        found = _portion(store, specs[work.table], work, metrics, portion, stored)
        made.left |= found.left
        seen.update(found.keys)
        made.rows[work.table] += found.tables
    gone = {
        key: counter
        for key, (counter, samples) in stored.items()
        if key not in seen and samples and key[0] not in made.left
    }
    true = list(made.rows[work.table])
    if gone:
        made.rows[work.table].append(
            empty_rows(specs[work.table], (work.tenant, work.cluster), work.start_ms, KEY, gone)
        )
    if work.kind in CLUSTER_KINDS:
        left = [stored_rows(store, work, metrics, sorted(made.left))] if made.left else []
        made.rows[work.cluster_table] = _pooled(
            store, specs[work.cluster_table], work, metrics, [*map(_as_source, true), *left]
        )
    return made


def pool_window(store: Store, catalog: Catalog, specs: Mapping[str, TableSpec], work: Work) -> Made:
    """Return the rows of a cluster from the stored ones of its window, as they are.

    Raises:
        Retryable: The store is busy or away.
    """
    metrics = catalog.scalars(work.kind)
    rows = stored_rows(store, work, metrics, None)
    return Made({work.cluster_table: _pooled(store, specs[work.cluster_table], work, metrics, [rows])})


@dataclass(slots=True)
class _Portion:
    """Rows of some hosts: Arrow tables, their keys, and hosts that were left as they are."""

    tables: list[Any] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    left: set[str] = field(default_factory=set)


def _portion(
    store: Store, spec: TableSpec, work: Work, metrics: Sequence[Metric], hosts: Sequence[str], stored: Stored
) -> _Portion:
    source = source_rows(store, work, metrics, hosts)
    there, held = _samples_by_host(source), _held(stored)
    left = {host for host in hosts if there[host] < held[host]}
    raw, chosen = (
        None,
        [metric for metric in sketched(metrics) if source[f"{metric.name}_last"].null_count < source.num_rows],
    )
    if work.level.source == FINEST and chosen:
        raw = raw_rows(store, work, chosen, [host for host in hosts if host not in left])
        lacking = {host for host, rows in _rows_by_host(raw, hosts).items() if rows < there[host]}
        left |= {host for host in lacking if held[host]}
        raw = _without(raw, lacking)
    source = _without(source, left)
    if not source.num_rows:
        return _Portion(left=left)
    merged = merge_rows(*one_source(source, metrics), metrics)
    keys = merged.key_list()
    if raw is not None:
        merged.sketches = sketches_of(raw, chosen, dict(zip(merged.key_list(ROW), range(len(keys)), strict=True)))
    counters = {key: counter for key, (counter, _) in stored.items()}
    return _Portion(
        [rollup_rows(spec, (work.tenant, work.cluster), work.start_ms, merged, counters, metrics)], keys, left
    )


def _pooled(store: Store, spec: TableSpec, work: Work, metrics: Sequence[Metric], tables: Sequence[Any]) -> list[Any]:
    """Return the rows of a cluster from those of its entities, and empty ones in the place of others."""
    place, found = (work.tenant, work.cluster), [table for table in tables if table.num_rows]
    stored = stored_counters(store, spec.name, CLUSTER_KEY, work)
    counters = {key: counter for key, (counter, _) in stored.items()}
    made: list[Any] = []
    seen: set[Key] = set()
    if found:
        products = products_of(store, work)
        merged = pool_rows(joined_rows(found), products, metrics, work.end_ms, entities_column(work.kind))
        seen.update(merged.key_list())
        made.append(rollup_rows(spec, place, work.start_ms, merged, counters, metrics))
    gone = {key: counter for key, (counter, samples) in stored.items() if key not in seen and samples}
    return [*made, empty_rows(spec, place, work.start_ms, CLUSTER_KEY, gone)] if gone else made


def _as_source(rows: Any) -> Any:
    """Return rows for a table with their times as those that are read from one."""
    for name, column in (("first_ms", "first_event_time"), ("last_ms", "last_event_time")):
        rows = rows.append_column(name, rows[column].cast(pa.int64()))
    return rows


def _held(stored: Stored) -> Counter[str]:
    """Return the samples of each host that are rolled up."""
    held: Counter[str] = Counter()
    for key, (_, samples) in stored.items():
        held[key[0]] += samples
    return +held


def _samples_by_host(rows: Any) -> Counter[str]:
    hosts = rows["host_id"].cast(pa.string()).combine_chunks().dictionary_encode()
    sums = np.bincount(hosts.indices.to_numpy(), rows["told"].to_numpy(), len(hosts.dictionary))
    return Counter({host: int(total) for host, total in zip(hosts.dictionary.to_pylist(), sums, strict=True)})


def _rows_by_host(rows: Any, hosts: Sequence[str]) -> dict[str, int]:
    counts = {item["values"]: item["counts"] for item in _COMPUTE.value_counts(rows["host_id"]).to_pylist()}
    return {host: counts.get(host, 0) for host in hosts}


def _without(rows: Any, hosts: set[str]) -> Any:
    if not hosts:
        return rows
    named = _COMPUTE.is_in(rows["host_id"].cast(pa.string()), value_set=pa.array(sorted(hosts), pa.string()))
    return rows.filter(_COMPUTE.invert(named))


def _portions(hosts: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Divide hosts so that each portion has few rows, one host at least."""
    names: list[str] = []
    total = 0
    for host, rows in hosts:
        if names and total + rows > ROWS_AT_ONCE:
            yield names
            names, total = [], 0
        names.append(host)
        total += rows
    if names:
        yield names
