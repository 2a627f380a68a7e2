"""Turn rows of an open window into rows of a raw table, with their versions."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.model import QUALITY_RANK, Quality
from secondsight.process.cells import RANK, VALUE_RANK, Rows, Window
from secondsight.process.enrich import FIELDS, Allocations
from secondsight.process.series import I32, SeriesTable, dictionary_column, series_columns
from secondsight.store.rows import ColumnValues, MapColumn, NullableColumn, WideColumn

Selection = Rows | slice
Taken = tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.uint8]]

SOURCE_RANKS: dict[str, int] = {"nvml": 0, "host": 0, "simulate": 0, "dcgm": 1, "scrape": 2}
"""Which of several sources of one entity counts: the lowest. Others rank as `OTHER_SOURCE_RANK`."""
OTHER_SOURCE_RANK = 3

_BITS_MASK = np.uint64((1 << 56) - 1)
_LOW = np.uint64(0xFFFF_FFFF)


def source_rank(source: str) -> int:
    """Return the rank of a source; lower counts first."""
    return SOURCE_RANKS.get(source, OTHER_SOURCE_RANK)


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
    columns |= _metrics(window, taken)
    return columns


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
    """Return used columns' values, presence and quality."""
    used = np.flatnonzero(window.used[group])
    take: Any = used if used.size < window.used[group].size else slice(None)
    quality = window.quality[group][take][:, rows]
    present = RANK[quality] >= VALUE_RANK if window.blemished else quality.view(np.bool_)
    return window.values[group][take][:, rows], present, quality


def _description(window: Window, rows: Selection) -> dict[str, ColumnValues]:
    origins = window.origins
    code = window.origin[rows]
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
    """Return fullness (16 bits), quality ranks (24), value bits (56), allocation version (32)."""
    rows = allocation.size
    fullness, ranks, bits = (np.zeros(rows, np.uint64) for _ in range(3))
    for values, present, quality in taken:
        full = np.add.reduce(present, axis=0, dtype=np.uint16).astype(np.uint64)
        fullness += full
        rank = np.add.reduce(RANK[quality], axis=0, dtype=np.uint32) if blemished else full * QUALITY_RANK[Quality.OK]
        ranks += rank.astype(np.uint64)
        bits += _bits(values)
    bits &= _BITS_MASK
    high = np.minimum(fullness, 0xFFFF) << 48 | (ranks & np.uint64(0xFF_FFFF)) << 24 | bits >> 32
    return WideColumn(high, (bits & _LOW) << 32 | allocation.astype(np.uint64) & _LOW)


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the sum of value bits of each row; of a float only the upper ones, so that few rows wrap around."""
    unsigned = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    if values.dtype.kind == "f":
        unsigned = unsigned >> np.uint64(16)
    total: NDArray[np.uint64] = np.add.reduce(unsigned, axis=0, dtype=np.uint64)
    return total


def _quality_map(window: Window, taken: list[Taken]) -> MapColumn:
    """Return metric -> quality of cells that are neither OK nor NONE."""
    names, rows, keys, codes = [], [], [], []
    for group, (_, _, quality) in enumerate(taken):
        used = np.flatnonzero(window.used[group]).tolist()
        if window.blemished:
            metric, row = np.nonzero(quality > Quality.OK)
            rows.append(row)
            keys.append(metric + len(names))
            codes.append(quality[metric, row])
        names += [window.layout.groups[group].metrics[column].name for column in used]
    return map_column(rows, keys, names, codes, np.uint8)


def map_column(rows: list[Any], keys: list[Any], names: list[str], numbers: list[Any], dtype: Any) -> MapColumn:
    """Return a map column of entries in any order."""
    if not rows:
        return MapColumn(np.zeros(0, np.intp), np.zeros(0, np.intp), (), np.zeros(0, dtype))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return MapColumn(row[order], np.concatenate(keys)[order], names, np.concatenate(numbers).astype(dtype)[order])


def _metrics(window: Window, taken: list[Taken]) -> Mapping[str, ColumnValues]:
    columns: dict[str, ColumnValues] = {}
    for group, (values, present, _) in enumerate(taken):
        used = np.flatnonzero(window.used[group]).tolist()
        some, every = present.any(axis=1), present.all(axis=1)
        for place, column in enumerate(used):
            if some[place]:
                name = window.layout.groups[group].metrics[column].name
                whole = values[place]
                columns[name] = whole if every[place] else NullableColumn(whole, present[place])
    return columns
