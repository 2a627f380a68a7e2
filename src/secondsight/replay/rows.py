"""Turn rows that a store or the lake gave into rows that a store takes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secondsight.lake.rows import halves
from secondsight.lake.schema import ATTRIBUTION_VERSION, bare_type
from secondsight.store.spec import TableSpec

_COMPUTE: Any = pc
_FULLNESS_SHIFT = np.uint64(48)


def from_store(rows: Any) -> Any:
    """Return rows of a store with numbers of 128 bits as the halves that an insert wants."""
    for position, field in reversed(list(enumerate(rows.schema))):
        if pa.types.is_fixed_size_binary(field.type):
            low, high = halves(_flat(rows.column(position)))
            rows = _as_halves(rows.remove_column(position), field.name, low, high)
    return rows


def from_lake(rows: Any, spec: TableSpec) -> Any:
    """Return rows of the lake with the types of the hot store.

    Seconds have no version there. They get the least that their cells can have: what the hot store has of a key by
    itself, and is as full, stays.
    """
    types = {column.name: bare_type(column.type) for column in spec.columns}
    arrays = {
        name: _as_hot(_flat(rows.column(name)), types[name])
        for name in rows.column_names
        if types.get(name, "UInt128") != "UInt128"
    }
    made = pa.table(arrays)
    if "version" in rows.column_names:
        turned = _turned(_flat(rows.column("version"))) if types["version"] == "UInt128" else None
        return made if turned is None else _as_halves(made, "version", *turned)
    if types.get("version") != "UInt128":
        return made
    attribution = rows.column(ATTRIBUTION_VERSION).fill_null(0).to_numpy().astype(np.uint64)
    return _as_halves(made, "version", attribution, _fullness(rows, spec) << _FULLNESS_SHIFT)


def _fullness(rows: Any, spec: TableSpec) -> Any:
    """Return how many cells of each row have a value."""
    full = np.zeros(rows.num_rows, np.uint64)
    for column in spec.columns:
        if column.type.startswith("Nullable(") and column.name in rows.column_names:
            full += _flat(rows.column(column.name)).is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
    return full


def _as_hot(array: Any, hot_type: str) -> Any:
    if hot_type == "UInt64":
        return array.view(pa.uint64())
    if hot_type == "DateTime('UTC')":
        return array.cast(pa.timestamp("s", "UTC"))
    if hot_type.startswith("DateTime64"):
        return array.cast(pa.timestamp("ms", "UTC"))
    if pa.types.is_map(array.type):
        return array.cast(pa.map_(pa.string(), pa.uint8() if hot_type.endswith("UInt8)") else _map_value(hot_type)))
    return array


def _map_value(hot_type: str) -> Any:
    if hot_type.endswith("UInt32)"):
        return pa.uint32()
    return pa.uint64() if hot_type.endswith("UInt64)") else pa.string()


def _turned(array: Any) -> tuple[Any, Any]:
    """Return the halves of numbers whose greatest byte stands first."""
    words = np.frombuffer(array.buffers()[1], ">u8")[2 * array.offset : 2 * (array.offset + len(array))]
    return words[1::2].astype(np.uint64), words[0::2].astype(np.uint64)


def _as_halves(rows: Any, name: str, low: Any, high: Any) -> Any:
    return rows.append_column(f"{name}_hi", pa.array(high)).append_column(f"{name}_lo", pa.array(low))


def _flat(column: Any) -> Any:
    flat = column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], flat.type)
    return flat
