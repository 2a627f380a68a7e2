"""Make the rows of one window from what is stored, and empty ones for stored rows that are no longer true."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.contracts import Store
from secondsight.rollup.load import Work, hosts_of, raw_rows, sketched, source_rows, stored_counters
from secondsight.rollup.merge import Key, merge_rows
from secondsight.rollup.rows import empty_rows, rollup_rows
from secondsight.rollup.samples import sketches_of
from secondsight.store.coarse import FINEST
from secondsight.store.spec import TableSpec

ROWS_AT_ONCE = 20_000
"""Source rows that are merged at once; ten of them stand for 300 raw rows of the finest cadence."""


def make_window(store: Store, catalog: Catalog, spec: TableSpec, work: Work) -> list[Any]:
    """Return Arrow tables of the rows that a window has now, and of empty ones for rows that it no longer has.

    Raises:
        Retryable: The store is busy or away.
    """
    metrics = catalog.scalars(work.kind)
    stored = stored_counters(store, work)
    counters = {key: counter for key, (counter, _) in stored.items()}
    made: list[Any] = []
    seen: set[Key] = set()
    for hosts in _portions(hosts_of(store, work)):
        found = _portion(store, spec, work, metrics, hosts, counters)
        if found is not None:
            made.append(found[0])
            seen.update(found[1])
    gone = {key: counter for key, (counter, samples) in stored.items() if key not in seen and samples}
    if gone:
        made.append(empty_rows(spec, (work.tenant, work.cluster), work.start_ms, gone))
    return made


def _portion(
    store: Store,
    spec: TableSpec,
    work: Work,
    metrics: Sequence[Metric],
    hosts: Sequence[str],
    counters: dict[Key, int],
) -> tuple[pa.Table, list[Key]] | None:
    source = source_rows(store, work, metrics, hosts)
    if not source.num_rows:
        return None
    merged = merge_rows(source, metrics)
    keys = merged.key_list()
    if work.level.source == FINEST:
        chosen = [metric for metric in sketched(metrics) if f"{metric.name}_last" in merged.members]
        if chosen:
            raw = raw_rows(store, work, chosen, hosts)
            merged.sketches = sketches_of(raw, chosen, {key: number for number, key in enumerate(keys)})
    place = (work.tenant, work.cluster)
    return rollup_rows(spec, place, work.start_ms, merged, counters, metrics), keys


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
