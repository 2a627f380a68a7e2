"""Turn computed rollups into rows of a rollup table."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.process.enrich import Allocations
from secondsight.process.raw import attribution_columns
from secondsight.process.series import I32, Interner, SeriesTable, series_columns
from secondsight.process.window import Rollup, Sparse
from secondsight.store.rows import ColumnValues, MapColumn, NullableColumn


def rollup_columns(
    rollup: Rollup, start_ms: int, table: SeriesTable, allocations: Allocations, ranks: NDArray[np.uint8]
) -> dict[str, ColumnValues]:
    """Return the columns of rollup rows; the recompute counter of `version` is 0.

    Args:
        rollup: What was computed.
        start_ms: Start of its window.
        table: Names of the series.
        allocations: Names of the attributions.
        ranks: Source rank of each row.
    """
    rows = rollup.series.size
    columns = key_columns(rollup.series, rollup.attribution, start_ms, table, allocations)
    columns |= {
        "source_rank": ranks,
        "first_event_time": rollup.first_ms,
        "last_event_time": rollup.last_ms,
        "interval_ms": rollup.interval_ms.astype(np.uint32),
        "samples": rollup.samples.astype(np.uint32),
        "covered_ms": rollup.covered_ms.astype(np.uint32),
        "version": rollup.covered_ms.astype(np.uint64),
    }
    for name in ("covered_other", "increase_other", "resets", "changes", "state_ms"):
        columns[name] = _map(getattr(rollup, name), rows)
    for name, (values, present) in rollup.members.items():
        columns[name] = values if present is None else NullableColumn(values, present)
    return columns


def tombstone_columns(
    series: I32, attribution: I32, start_ms: int, table: SeriesTable, allocations: Allocations
) -> dict[str, ColumnValues]:
    """Return rows without samples, which take the place of rows that are no longer true."""
    rows = series.size
    zeros = np.zeros(rows, np.uint32)
    moment = np.full(rows, start_ms, np.int64)
    return key_columns(series, attribution, start_ms, table, allocations) | {
        "source_rank": np.zeros(rows, np.uint8),
        "first_event_time": moment,
        "last_event_time": moment,
        "interval_ms": zeros,
        "samples": zeros,
        "covered_ms": zeros,
        "version": np.zeros(rows, np.uint64),
    }


def key_columns(
    series: I32, attribution: I32, start_ms: int, table: SeriesTable, allocations: Allocations
) -> dict[str, ColumnValues]:
    """Return the key of rollup rows."""
    columns: dict[str, ColumnValues] = dict(series_columns(table, series))
    columns |= attribution_columns(attribution, allocations)
    columns["window_start"] = np.full(series.size, start_ms // 1000, np.int64)
    return columns


def _map(sparse: Sparse, rows: int) -> MapColumn:
    """Return the entries as a map column; entries of one row are sorted by key, so that equal rollups look alike."""
    if not sparse.rows:
        return MapColumn(np.zeros(0, np.intp), np.zeros(0, np.intp), (), np.zeros(0, np.uint32))
    names: Interner[str] = Interner()
    keys = np.concatenate([_codes(names, key, each.size) for key, each in zip(sparse.keys, sparse.rows, strict=True)])
    words = sorted(names.items)
    places = {word: place for place, word in enumerate(words)}
    ranked = np.array([places[word] for word in names.items], np.int64)[keys]
    row = np.concatenate(sparse.rows)
    order = np.argsort(row * len(words) + ranked, kind="stable")
    numbers = np.concatenate(sparse.numbers).astype(np.uint32)
    if int(row.max()) >= rows:
        raise ValueError("an entry lies outside the rows")
    return MapColumn(row[order], ranked[order], words, numbers[order])


def _codes(names: Interner[str], key: str | Sequence[str], count: int) -> NDArray[np.int64]:
    if isinstance(key, str):
        return np.full(count, names.code(key), np.int64)
    return np.array([names.code(each) for each in key], np.int64)
