"""Turn rows of an open window into rows of a raw table, with their versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.model import QUALITY_RANK, Quality
from secondsight.process.cells import RANK, VALUE_RANK, Window
from secondsight.process.enrich import FIELDS, Allocations
from secondsight.process.pieces import Rows
from secondsight.process.series import I32, SeriesTable, compact, dictionary_column, series_columns
from secondsight.process.sources import source_rank
from secondsight.store.rows import ColumnValues, MapColumn, NullableColumn, WideColumn

Selection = Rows | slice


@dataclass(frozen=True, slots=True)
class Taken:
    """Used columns of one group, at some rows.

    Attributes:
        names: Metric of each column.
        values: Values of each column; a view where the rows are a run.
        quality: Shape (columns, rows).
        present: Same shape, or None where every cell has a value.
    """

    names: list[str]
    values: list[NDArray[Any]]
    quality: NDArray[np.uint8]
    present: NDArray[np.bool_] | None


_GREAT = 1 << 47
"""Values below it are so few in a row that their sum has 64 bits."""
_LOW, _HIGH = np.uint64(0xFFFF_FFFF), np.uint64((1 << 35) - 1)
_RANKS, _FULLEST = np.uint64(0x1FFF), np.uint64(0xFFFF)
_32, _35, _48 = np.uint64(32), np.uint64(35), np.uint64(48)
_OK_RANK = np.uint64(QUALITY_RANK[Quality.OK])


def selection_of(rows: Rows) -> Selection:
    """Return ascending rows as a slice where they are a run, so that taking them copies nothing."""
    run = rows.size > 0 and int(rows[-1]) - int(rows[0]) + 1 == rows.size
    return slice(int(rows[0]), int(rows[-1]) + 1) if run else rows


def raw_columns(
    window: Window, rows: Rows, table: SeriesTable, allocations: Allocations, stamps: tuple[I32, NDArray[np.int64]]
) -> dict[str, ColumnValues]:
    """Return the columns of some rows.

    Args:
        window: Where they lie.
        rows: Ascending positions.
        table: Names of their series.
        allocations: Names of their attributions.
        stamps: Attribution code and allocation version of each row.
    """
    chosen = selection_of(rows)
    taken = [_taken(window, group, chosen) for group in range(len(window.values))]
    columns: dict[str, ColumnValues] = dict(series_columns(table, window.series[chosen]))
    columns |= _description(window, chosen)
    columns |= attribution_columns(stamps[0], allocations)
    columns["version"] = _version(taken, window.blemished, stamps[1])
    columns["quality"] = _quality_map(window, taken)
    columns |= _metrics(taken)
    return columns


def filled(columns: Mapping[str, ColumnValues]) -> NDArray[np.int32]:
    """Return how many values each of the rows has that `raw_columns` made."""
    version = columns["version"]
    return (version.high >> _48).astype(np.int32) if isinstance(version, WideColumn) else np.zeros(0, np.int32)


def count_values(window: Window, rows: Rows) -> NDArray[np.int32]:
    """Return how many values some rows of a window have."""
    taken = [_taken(window, group, rows) for group in range(len(window.values))]
    counted = np.zeros(rows.size, np.int32)
    for group in taken:
        full = len(group.names) if group.present is None else group.present.sum(axis=0, dtype=np.int32)
        counted += np.int32(full)
    return counted


def attribution_columns(codes: I32, allocations: Allocations) -> dict[str, ColumnValues]:
    """Return the attribution columns of rows."""
    items = allocations.attributions.items
    used, local = np.unique(codes, return_inverse=True)
    columns: dict[str, ColumnValues] = {}
    for place, field in enumerate(FIELDS):
        texts = [items[code][place] for code in used.tolist()]
        words = sorted(set(texts))
        columns[field] = dictionary_column(np.array([words.index(text) for text in texts], np.int32)[local], words)
    return columns


def _taken(window: Window, group: int, rows: Selection) -> Taken:
    """Return the used columns of a group at some rows."""
    used = np.flatnonzero(window.used[group])
    metrics = window.layout.groups[group].metrics
    matrix, quality = window.values[group], window.quality[group]
    codes = quality[:, rows] if used.size == len(metrics) else _picked(quality, used, rows)
    present = RANK[codes] >= VALUE_RANK if window.blemished else codes.view(np.bool_)
    return Taken(
        [metrics[column].name for column in used.tolist()],
        [matrix[column, rows] for column in used.tolist()],
        codes,
        None if present.all() else present,
    )


def _picked(quality: NDArray[np.uint8], columns: Rows, rows: Selection) -> NDArray[np.uint8]:
    return quality[columns, rows] if isinstance(rows, slice) else quality[columns[:, None], rows]


def _description(window: Window, rows: Selection) -> dict[str, ColumnValues]:
    code, members = compact(window.origin[rows], len(window.origins))
    origins = [window.origins[member] for member in members.tolist()]
    time_ms, ingest_ms = window.time_ms[rows], window.ingest_ms[rows]
    suspect = np.array([origin.suspect for origin in origins], np.bool_)[code]

    def numbers(name: str, dtype: Any) -> NDArray[Any]:
        return np.array([getattr(origin, name) for origin in origins], dtype)[code]

    def texts(name: str) -> ColumnValues:
        words = sorted({getattr(origin, name) for origin in origins})
        places = {word: place for place, word in enumerate(words)}
        return dictionary_column(np.array([places[getattr(item, name)] for item in origins], np.int32)[code], words)

    ranks = np.array([source_rank(origin.source) for origin in origins], np.uint8)
    return {
        "event_time": time_ms,
        "observed_delta_ms": window.observed_delta_ms[rows],
        "correction_ms": numbers("correction_ms", np.int32),
        "interval_ms": window.interval_ms[rows].astype(np.uint32),
        "ingest_time": ingest_ms,
        "source": texts("source"),
        "source_rank": ranks[code],
        "spool_id": numbers("spool_id", np.uint64),
        "sequence": numbers("sequence", np.uint64),
        "boot_id": texts("boot_id"),
        "schema_id": numbers("schema_id", np.uint64),
        "skew": (suspect | (time_ms > ingest_ms)).astype(np.uint8),
    }


def _version(taken: list[Taken], blemished: bool, allocation: NDArray[np.int64]) -> WideColumn:
    """Return fullness (16 bits), quality ranks (13), sum of value bits (67), allocation version (32).

    Each holds all that a row can have, so that what knows more has the greater version.
    """
    fullness, ranks, high, low = (np.zeros(allocation.size, np.uint64) for _ in range(4))
    for group in taken:
        full = len(group.names) if group.present is None else np.add.reduce(group.present, axis=0, dtype=np.uint64)
        fullness += np.uint64(full)
        ranks += np.add.reduce(RANK[group.quality], axis=0, dtype=np.uint64) if blemished else full * _OK_RANK
        for values in map(_bits, group.values):
            if values.itemsize == 8 and int(values.max(initial=0)) >= _GREAT:
                high += values >> _32
                low += values & _LOW
            else:
                low += values
    high += low >> _32
    high, low = np.minimum(high, _HIGH), np.where(high > _HIGH, _LOW, low & _LOW)
    upper = np.minimum(fullness, _FULLEST) << _48 | np.minimum(ranks, _RANKS) << _35 | high
    return WideColumn(upper, low << _32 | allocation.astype(np.uint64) & _LOW)


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    """Return value bits as unsigned integers; of a float only the upper ones, so that sums of many stay small."""
    unsigned = values.view(f"u{values.dtype.itemsize}")
    return unsigned >> np.uint64(16) if values.dtype.kind == "f" else unsigned


def _quality_map(window: Window, taken: list[Taken]) -> MapColumn:
    """Return metric -> quality of cells that are neither OK nor NONE."""
    names: list[str] = []
    rows, keys, codes = [], [], []
    for group in taken:
        if window.blemished:
            metric, row = np.nonzero(group.quality > Quality.OK)
            rows.append(row)
            keys.append(metric + len(names))
            codes.append(group.quality[metric, row])
        names += group.names
    return map_column(rows, keys, names, codes)


def map_column(rows: list[Rows], keys: list[Rows], names: list[str], numbers: list[NDArray[np.uint8]]) -> MapColumn:
    """Return a map column of entries in any order."""
    if not rows:
        return MapColumn(np.zeros(0, np.intp), np.zeros(0, np.intp), (), np.zeros(0, np.uint8))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return MapColumn(row[order], np.concatenate(keys)[order], names, np.concatenate(numbers)[order])


def _metrics(taken: list[Taken]) -> Mapping[str, ColumnValues]:
    columns: dict[str, ColumnValues] = {}
    for group in taken:
        if group.present is None:
            columns |= dict(zip(group.names, group.values, strict=True))
            continue
        for name, values, present in zip(group.names, group.values, group.present, strict=True):
            if present.any():
                columns[name] = values if present.all() else NullableColumn(values, present)
    return columns
