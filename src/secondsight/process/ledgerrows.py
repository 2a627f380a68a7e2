"""Carry the ledger to the store and back, and count what windows hold."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

import numpy as np

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.process.cells import Window
from secondsight.process.kinds import CollectorKey
from secondsight.process.ledger import RECEIVED, STORED, Account, Counts, LedgerRow, read_records
from secondsight.process.raw import count_values
from secondsight.process.series import Interner
from secondsight.process.spans import SpanKey
from secondsight.store.rows import arrow_table
from secondsight.store.spec import TableSpec

FEW_RANGES = 256
HOUR_MS = 3_600_000


def stored_counts(window: Window, collectors: Collection[int]) -> dict[int, Counts]:
    """Return rows and values that each of some collectors has in a window; all its rows are written."""
    lanes = [(number, window.lanes[number].ranges) for number in collectors if number in window.lanes]
    ranges = np.array([each for _, some in lanes for each in some], np.int64).reshape(-1, 2)
    if not len(ranges):
        return {}
    sums = _sums(window, ranges)
    starts = np.cumsum([0, *(len(some) for _, some in lanes[:-1])])
    rows = np.add.reduceat(ranges[:, 1] - ranges[:, 0], starts).tolist()
    values = np.add.reduceat(sums, starts).tolist()
    return {number: counts for (number, _), counts in zip(lanes, zip(rows, values, strict=True), strict=True)}


def _sums(window: Window, ranges: Any) -> Any:
    """Return the number of values in each of some ranges of rows."""
    filled = window.filled[: window.size]
    if (filled < 0).any():
        rows = np.fromiter(chain.from_iterable(range(start, stop) for start, stop in ranges.tolist()), np.intp)
        unknown = rows[filled[rows] < 0]
        if unknown.size:
            filled[unknown] = count_values(window, np.sort(unknown))[np.argsort(np.argsort(unknown))]
    if len(ranges) < FEW_RANGES:
        return np.array([int(filled[start:stop].sum()) for start, stop in ranges.tolist()], np.int64)
    upto = np.concatenate([[0], np.cumsum(filled, dtype=np.int64)])
    return upto[ranges[:, 1]] - upto[ranges[:, 0]]


def ledger_table(spec: TableSpec, rows: Sequence[LedgerRow]) -> Any:
    """Return the Arrow table of some rows."""
    places, *columns = zip(*rows, strict=True)
    tenants, clusters, hosts, collectors = zip(*places, strict=True)
    spools, kinds, windows, outcomes, reasons, items, counted_rows, counted_values, lasts, records, versions = columns
    return arrow_table(
        spec,
        {
            "tenant_id": tenants,
            "cluster_id": clusters,
            "host_id": hosts,
            "collector_id": collectors,
            "spool_id": np.array(spools, np.uint64),
            "kind": kinds,
            "window_start": np.array(windows, np.int64) // 1000,
            "outcome": outcomes,
            "reason": reasons,
            "item": items,
            "rows": np.array(counted_rows, np.uint64),
            "values": np.array(counted_values, np.uint64),
            "last_time": np.array(lasts, np.int64),
            "records": records,
            "version": np.array(versions, np.uint64),
        },
    )


def load_accounts(
    store: Store, collectors: Interner[CollectorKey], kind: EntityKind, keys: Sequence[SpanKey]
) -> dict[SpanKey, dict[int, Account]]:
    """Return what is stored of the accounts of some spans of one cluster.

    Raises:
        Retryable: The store is busy or away.
    """
    tenant, _, cluster, _ = collectors.items[keys[0][2]]
    names = {collectors.items[collector][3]: collector for _, _, collector in keys}
    starts_ms = sorted({start_ms for _, start_ms, _ in keys})
    found = store.query(
        "SELECT collector_id, spool_id, toUnixTimestamp(window_start) AS start, outcome, reason, rows, `values`, "
        "records FROM ledger FINAL WHERE tenant_id = {tenant:String} AND cluster_id = {cluster:String} "
        "AND toStartOfHour(window_start) >= toDateTime({hour:UInt32}, 'UTC') "
        "AND window_start <= toDateTime({last:UInt32}, 'UTC') AND kind = {kind:String} "
        "AND collector_id IN {collectors:Array(String)} AND toUnixTimestamp(window_start) IN {starts:Array(UInt32)} "
        "AND outcome != {stored:String} AND item = '' SETTINGS do_not_merge_across_partitions_select_final = 1",
        {
            "tenant": tenant,
            "cluster": cluster,
            "hour": (starts_ms[0] - starts_ms[0] % HOUR_MS) // 1000,
            "last": starts_ms[-1] // 1000,
            "kind": kind.value,
            "collectors": sorted(names),
            "starts": [start_ms // 1000 for start_ms in starts_ms],
            "stored": STORED,
        },
    ).to_pylist()
    accounts: defaultdict[SpanKey, dict[int, Account]] = defaultdict(dict)
    wanted = set(keys)
    for row in found:
        key: SpanKey = (kind, int(row["start"]) * 1000, names[row["collector_id"]])
        if key not in wanted:
            continue
        account = accounts[key].setdefault(row["spool_id"], Account())
        counts = (row["rows"], row["values"])
        if row["outcome"] == RECEIVED:
            account.rows, account.values = counts
            account.records = read_records(row["records"])
        else:
            account.refused[row["outcome"], row["reason"]] = counts
    return dict(accounts)
