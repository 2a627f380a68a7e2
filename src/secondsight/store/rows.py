"""Turn numpy columns into the Arrow table that a store inserts.

Nothing is copied but masks: values go to the engine as they lie in memory, so they must stay unchanged until the
insert is done. Columns that are not given take the table's default (NULL for a metric).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.store.spec import TableSpec

Ints = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DictionaryColumn:
    """Texts by code: row r holds values[codes[r]].

    Attributes:
        codes: int32, shape (rows,).
    """

    codes: NDArray[np.int32]
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class NullableColumn:
    """Values, some of them absent.

    Attributes:
        values: Shape (rows,), of the column's stored type; anything where absent.
        present: bool, shape (rows,).
    """

    values: NDArray[Any]
    present: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WideColumn:
    """128-bit integers in two halves, each uint64 of shape (rows,)."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A map per row, given as its entries in row order.

    Attributes:
        rows: Row of each entry, ascending.
        key_codes: Position of each entry's key in `keys`.
        values: Value of each entry: numpy, or texts.
    """

    rows: Ints
    key_codes: Ints
    keys: Sequence[str]
    values: NDArray[Any] | Sequence[str]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A list per row: row r holds items[offsets[r]:offsets[r + 1]]."""

    offsets: Ints
    items: NDArray[Any]


ColumnValues = NDArray[Any] | DictionaryColumn | NullableColumn | WideColumn | MapColumn | ListColumn | Sequence[str]

_TIME_UNITS = {"DateTime64(3, 'UTC')": "ms", "DateTime('UTC')": "s"}


def constant(value: str, rows: int) -> DictionaryColumn:
    """Return a column that holds one text in every row."""
    return DictionaryColumn(np.zeros(rows, np.int32), (value,))


def arrow_table(spec: TableSpec, columns: Mapping[str, ColumnValues]) -> pa.Table:
    """Return the Arrow table of `columns`, each converted to its column's type in `spec`.

    Times are int64: epoch ms for `DateTime64(3)`, epoch s for `DateTime`.

    Raises:
        KeyError: The table has no such column.
        ValueError: Columns differ in length, or values do not fit a type.
    """
    rows = _row_count(columns)
    types = {column.name: column.type for column in spec.columns}
    arrays: dict[str, pa.Array] = {}
    for name, values in columns.items():
        arrays |= _arrays(name, types[name], values, rows)
    return pa.table(arrays)


def _row_count(columns: Mapping[str, ColumnValues]) -> int:
    """Return how many rows the columns have; maps do not know their own."""
    counts = {_length(values) for values in columns.values() if not isinstance(values, MapColumn)}
    if len(counts) != 1:
        raise ValueError(f"columns of {sorted(counts)} rows make no table")
    return counts.pop()


def _length(values: ColumnValues) -> int:
    match values:
        case DictionaryColumn():
            return len(values.codes)
        case NullableColumn():
            return len(values.values)
        case WideColumn():
            return len(values.low)
        case ListColumn():
            return len(values.offsets) - 1
        case MapColumn():
            raise TypeError("a map does not know its number of rows")
        case _:
            return len(values)


def _arrays(name: str, type_: str, values: ColumnValues, rows: int) -> dict[str, pa.Array]:
    if isinstance(values, WideColumn):
        return {f"{name}_hi": pa.array(values.high, pa.uint64()), f"{name}_lo": pa.array(values.low, pa.uint64())}
    return {name: _array(type_, values, rows)}


def _array(type_: str, values: ColumnValues, rows: int) -> pa.Array:
    match values:
        case DictionaryColumn():
            return _texts(values.codes, values.values)
        case MapColumn():
            return _map_array(values, rows)
        case ListColumn():
            return pa.ListArray.from_arrays(pa.array(values.offsets, pa.int32()), pa.array(values.items))
        case NullableColumn():
            return _plain_array(type_, values.values, values.present)
        case np.ndarray():
            return _plain_array(type_, values, None)
        case _:
            return pa.array(values, pa.string())


def _texts(codes: Ints, values: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))


def _map_array(column: MapColumn, rows: int) -> pa.MapArray:
    offsets = np.searchsorted(column.rows, np.arange(rows + 1)).astype(np.int32)
    keys = pa.array(column.keys, pa.string()).take(pa.array(column.key_codes, pa.int64()))
    texts = None if isinstance(column.values, np.ndarray) else pa.string()
    return pa.MapArray.from_arrays(pa.array(offsets), keys, pa.array(column.values, texts))


def _plain_array(type_: str, values: NDArray[Any], present: NDArray[np.bool_] | None) -> pa.Array:
    """Wrap a numpy array without copying it; times become timestamps."""
    flat = np.ascontiguousarray(values)
    mask = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(_arrow_type(type_, flat), len(flat), [mask, pa.py_buffer(flat)])


def _arrow_type(type_: str, values: NDArray[Any]) -> pa.DataType:
    unit = _TIME_UNITS.get(type_.removeprefix("Nullable(").removesuffix(")") if "Nullable" in type_ else type_)
    if unit is None:
        return pa.from_numpy_dtype(values.dtype)
    if values.dtype != np.int64:
        raise ValueError(f"times are int64, not {values.dtype}")
    return pa.timestamp(unit, "UTC")
