"""Add integers of 128 bits: sums of values x milliseconds that may leave 64."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_LIMB = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
TYPE = pa.decimal128(38, 0)


@dataclass(frozen=True, slots=True)
class Wide:
    """Two's complement integers: high x 2^64 + low."""

    high: I64
    low: U64


def widened(values: NDArray[Any]) -> Wide:
    """Return integers of 64 bits, signed or not, as wide ones."""
    if values.dtype.kind == "u":
        return Wide(np.zeros(values.size, np.int64), values.astype(np.uint64))
    signed = values.astype(np.int64)
    return Wide(signed >> 63, signed.view(np.uint64))


def of_arrow(column: Any) -> tuple[Wide, NDArray[np.bool_]]:
    """Return the integers of a decimal column, 0 where absent, and where it has any."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    words = np.frombuffer(array.buffers()[1], np.uint64)
    pairs = words[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
    low = np.where(present, pairs[:, 0], 0)
    high = np.where(present, pairs[:, 1], 0)
    return Wide(high.view(np.int64), low), present


def to_arrow(wide: Wide, present: NDArray[np.bool_]) -> Any:
    """Return a decimal column."""
    words = np.ascontiguousarray(np.stack([wide.low, wide.high.view(np.uint64)], axis=1))
    mask = np.packbits(present, bitorder="little")
    return pa.Array.from_buffers(TYPE, present.size, [pa.py_buffer(mask), pa.py_buffer(words)])


def add_by(wide: Wide, starts: NDArray[np.intp]) -> Wide:
    """Add up runs of fewer than 2^31 integers; `starts` as of `reduceat`."""
    limbs = [
        (wide.low & _LIMB).view(np.int64),
        (wide.low >> _HALF).view(np.int64),
        wide.high & 0xFFFFFFFF,
        wide.high >> 32,
    ]
    first, second, third, fourth = (np.add.reduceat(limb, starts) for limb in limbs)
    second += first >> 32
    third += second >> 32
    fourth += third >> 32
    low = (first & 0xFFFFFFFF) | (second & 0xFFFFFFFF) << 32
    return Wide(fourth << 32 | (third & 0xFFFFFFFF), low.view(np.uint64))
