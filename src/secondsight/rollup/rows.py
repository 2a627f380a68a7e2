"""Turn merged rollups into rows of a table: a percentile beside each sketch, maps, and versions.

A version is (recompute counter of the row, covered milliseconds, or seconds where these are many). A row without
samples takes the place of one that is no longer true.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.catalog.members import P95
from secondsight.catalog.metric import Metric
from secondsight.rollup import wide
from secondsight.rollup.merge import Entries, Key, Merged, Sketches
from secondsight.rollup.sketch import quantile_bins
from secondsight.rollup.watch import Place
from secondsight.store.bins import figures_of
from secondsight.store.coarse import SOURCE_SAMPLES, sketch_columns
from secondsight.store.rows import ColumnValues, ListColumn, MapColumn, NullableColumn, arrow_table
from secondsight.store.spec import TableSpec

PERCENT = 95
_COUNTED = ("source_rank", "interval_ms", "gpus", "hosts", "samples", SOURCE_SAMPLES, "covered_ms", "expected_ms")
Values = NDArray[Any]


def rollup_rows(
    spec: TableSpec, place: Place, start_ms: int, merged: Merged, counters: Mapping[Key, int], metrics: Sequence[Metric]
) -> Any:
    """Return the Arrow table of one window's rows.

    Args:
        spec: The table.
        place: Whose rows.
        start_ms: Start of the window.
        merged: What was computed.
        counters: Recompute counter of each stored row of the window.
        metrics: Scalars of the kind.
    """
    counter = np.array([counters.get(key, -1) + 1 for key in merged.key_list()], np.uint64)
    columns = _key_columns(place, start_ms, merged.keys, merged.size) | merged.plain
    columns["version"] = counter << np.uint64(32) | _fullness(merged.plain["covered_ms"])
    types = {column.name: column.type for column in spec.columns}
    sums = {name: value for name, value in merged.members.items() if isinstance(value[0], wide.Wide)}
    for name, (values, present) in merged.members.items():
        if not isinstance(values, wide.Wide):
            columns[name] = NullableColumn(values, present)
    for metric in metrics:
        if metric.name in merged.sketches:
            columns |= _sketch_columns(metric, merged.sketches[metric.name], merged, types)
    columns |= {name: _map(entries, types[name]) for name, entries in merged.maps.items()}
    table = arrow_table(spec, columns)
    for name, (total, present) in sums.items():
        if isinstance(total, wide.Wide):
            table = table.append_column(name, wide.to_arrow(total, present))
    return table


def empty_rows(spec: TableSpec, place: Place, start_ms: int, key: Sequence[str], counters: Mapping[Key, int]) -> Any:
    """Return rows without samples in the place of stored ones.

    Args:
        spec: The table.
        place: Whose rows.
        start_ms: Start of the window.
        key: Columns that tell rows of one tenant, cluster and window apart.
        counters: Key of each row that goes -> its recompute counter.
    """
    rows = len(counters)
    keys = {name: [texts[place] for texts in counters] for place, name in enumerate(key)}
    moment = np.full(rows, start_ms, np.int64)
    types = {column.name: column.type for column in spec.columns}
    zeros = {name: np.zeros(rows, getattr(np, types[name].lower())) for name in _COUNTED if name in types}
    columns = _key_columns(place, start_ms, keys | {"region": keys.get("region", [""] * rows)}, rows) | zeros
    columns |= {
        "first_event_time": moment,
        "last_event_time": moment,
        "version": np.array([counter + 1 for counter in counters.values()], np.uint64) << np.uint64(32),
    }
    return arrow_table(spec, columns)


def _key_columns(place: Place, start_ms: int, keys: Mapping[str, list[str]], rows: int) -> dict[str, ColumnValues]:
    columns: dict[str, ColumnValues] = {
        "tenant_id": [place[0]] * rows,
        "cluster_id": [place[1]] * rows,
        "window_start": np.full(rows, start_ms // 1000, np.int64),
    }
    columns.update(keys)
    return columns


def joined_rows(tables: Sequence[Any]) -> Any:
    """Return tables of rows as one; lists that a table lacks are empty in it, other columns absent."""
    lists = {field.name: field.type for table in tables for field in table.schema if pa.types.is_list(field.type)}
    filled = []
    for table in tables:
        lacking = [name for name in lists if name not in table.column_names]
        for name in lacking:
            table = table.append_column(name, pa.array([[]] * table.num_rows, lists[name]))
        filled.append(table)
    return filled[0] if len(filled) == 1 else pa.concat_tables(filled, promote_options="default")


def portions(rows: Any, most: int) -> Iterator[Any]:
    """Give rows in tables of at most so many, each in memory of its own."""
    if rows.num_rows <= most:
        yield rows
        return
    for first in range(0, rows.num_rows, most):
        yield rows.take(np.arange(first, min(first + most, rows.num_rows)))


def _fullness(covered_ms: Values) -> NDArray[np.uint64]:
    """Return what of a version grows with the time covered, in 32 bits."""
    covered = covered_ms.astype(np.uint64)
    if covered_ms.dtype == np.uint32:
        return covered
    seconds: NDArray[np.uint64] = np.minimum(covered // np.uint64(1000), np.uint64(0xFFFFFFFF))
    return seconds


def _sketch_columns(
    metric: Metric, sketches: Sketches, merged: Merged, types: Mapping[str, str]
) -> dict[str, ColumnValues]:
    bins, weights = sketch_columns(metric)
    figure, known = quantile_bins(sketches.offsets, sketches.bins, sketches.weights, PERCENT)
    bounds = [merged.members[f"{metric.name}_{suffix}"][0] for suffix in ("min", "max")]
    return {
        bins: ListColumn(sketches.offsets, sketches.bins),
        weights: ListColumn(sketches.offsets, sketches.weights.astype(_unsigned(types[weights]))),
        P95.column(metric): NullableColumn(_within(figures_of(figure), bounds), known),
    }


def _within(figures: NDArray[np.float64], bounds: Sequence[Any]) -> Values:
    """Return figures in the type of a metric's values, between the least and the greatest of them."""
    low, high = bounds
    whole = low.dtype.kind != "f"
    limits = np.iinfo(low.dtype) if whole else np.finfo(low.dtype)
    held = np.clip(np.rint(figures) if whole else figures, float(limits.min), np.nextafter(float(limits.max), 0))
    clipped: Values = np.clip(held.astype(low.dtype), low, np.maximum(low, high))
    return clipped


def _unsigned(type_: str) -> Any:
    """Return the numpy type of the numbers in a column of lists or maps."""
    return np.uint64 if "UInt64" in type_ else np.uint32


def _map(entries: Entries, type_: str) -> MapColumn:
    codes = pa.array(entries.keys, pa.string()).dictionary_encode()
    return MapColumn(
        entries.rows,
        np.asarray(codes.indices.to_numpy()),
        codes.dictionary.to_pylist(),
        entries.numbers.astype(_unsigned(type_)),
    )
