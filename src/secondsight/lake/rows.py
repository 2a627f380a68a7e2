"""Turn rows as the hot store gives them into rows of the lake, and tell what the former say together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.lake.schema import ATTRIBUTION_VERSION, LakeColumn

U64 = NDArray[np.uint64]
_LOW_32 = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Mark:
    """What the rows of a slice say together; equal marks mean equal rows.

    Attributes:
        rows: How many there are.
        digest: Sum of their versions, folded into 64 bits.
    """

    rows: int
    digest: int


def mark_of(rows: int, version_sum: int) -> Mark:
    """Return the mark of rows whose versions add up to a sum, modulo 2^128."""
    return Mark(rows, (version_sum & _MASK_64) ^ (version_sum >> 64 & _MASK_64))


def version_sum(column: Any) -> int:
    """Return the sum of a column of versions, of any width, modulo 2^128."""
    flat = _flat(column)
    if not len(flat):
        return 0
    if pa.types.is_fixed_size_binary(flat.type):
        low, high = halves(flat)
        return (_sum(low) + (_sum(high) << 64)) & ((1 << 128) - 1)
    return _sum(flat.cast(pa.uint64()).to_numpy(zero_copy_only=False))


def halves(column: Any) -> tuple[U64, U64]:
    """Return the lower and upper 64 bits of a column of 16 bytes, the least first."""
    words = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    return words[0::2], words[1::2]


def lake_rows(hot: Any, columns: tuple[LakeColumn, ...], schema: pa.Schema) -> pa.Table:
    """Return rows of the hot store as rows of the lake.

    Args:
        hot: Rows, with the hot store's names and types; columns that it lacks are left out.
        columns: What the lake has.
        schema: Arrow schema of the table in the lake; it says the types.
    """
    arrays, fields = [], []
    for column in columns:
        source = "version" if column.name == ATTRIBUTION_VERSION else column.name
        if source not in hot.column_names:
            continue
        field = schema.field(column.name)
        arrays.append(_converted(_flat(hot.column(source)), column, field.type))
        fields.append(field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _flat(column: Any) -> Any:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat.dictionary_decode() if pa.types.is_dictionary(flat.type) else flat


def _converted(array: Any, column: LakeColumn, wanted: pa.DataType) -> Any:
    if column.name == ATTRIBUTION_VERSION and pa.types.is_fixed_size_binary(array.type):
        return pa.array((halves(array)[0] & _LOW_32).astype(np.int64)).cast(wanted)
    if column.hot_type == "UInt128":
        return _reversed_bytes(array, wanted)
    if column.hot_type.startswith("DateTime"):
        return _microseconds(array, wanted)
    if pa.types.is_map(wanted) or pa.types.is_list(wanted):
        return _nested(array, wanted)
    return _plain(array, wanted)


def _plain(array: Any, wanted: pa.DataType) -> Any:
    """Return numbers and texts in another type; unsigned 64 bits stay the bits they are."""
    if pa.types.is_uint64(array.type) and pa.types.is_int64(wanted):
        return array.view(wanted)
    return array.cast(wanted)


def _microseconds(array: Any, wanted: pa.DataType) -> Any:
    """Return times that come as such, or as seconds."""
    if pa.types.is_timestamp(array.type):
        return array.cast(wanted)
    return pc.multiply(array.cast(pa.int64()), 1_000_000).cast(wanted)


def _reversed_bytes(array: Any, wanted: pa.DataType) -> Any:
    words = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset : 16 * (array.offset + len(array))]
    turned = np.ascontiguousarray(words.reshape(-1, 16)[:, ::-1])
    return pa.Array.from_buffers(wanted, len(array), [None, pa.py_buffer(turned)])


def _nested(array: Any, wanted: Any) -> Any:
    """Return a map or list whose items have other types; absent ones are empty."""
    offsets = array.offsets
    if pa.types.is_map(wanted):
        keys, items = array.keys, array.items
        return pa.MapArray.from_arrays(offsets, keys.cast(wanted.key_type), _plain(items, wanted.item_type), wanted)
    return pa.ListArray.from_arrays(offsets, _plain(array.values, wanted.value_type), wanted)


def _sum(values: NDArray[Any]) -> int:
    numbers = values.astype(np.uint64, copy=False)
    return int((numbers & _LOW_32).sum(dtype=np.uint64)) + (int((numbers >> _HALF).sum(dtype=np.uint64)) << 32)
