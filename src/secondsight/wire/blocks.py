"""Turn the blocks of a frame's body into arrays and back.

A block is a kind, flags, a length and that many bytes. Every count is checked against the bytes that are there and the
limits before anything is allocated, and every fault is `Rejected("bad_frame")`.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, NoReturn

import numpy as np

from secondsight.errors import Rejected
from secondsight.wire.content import HistogramRows, Values
from secondsight.wire.header import Limits
from secondsight.wire.schema import KnownSchema

SCHEMA, ENTITIES, SCALARS, HISTOGRAM, EVENTS, INFOS = range(1, 7)


_BLOCK = Struct("<BBHI")
_HISTOGRAM_HEAD = Struct("<IHBx")
FLAG_GRID = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows may refer to, and how matrices are written."""

    known: KnownSchema
    ticks: int
    entities: int
    shuffled: bool
    limits: Limits


class BlockReader:
    """Takes pieces off a block, checking that they are there."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, size_bytes: int) -> memoryview:
        """Return the next bytes."""
        end = self._position + size_bytes
        if end > len(self._data):
            refuse("a block is shorter than what it announces")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def fields(self, layout: Struct) -> tuple[Any, ...]:
        """Return the next fields."""
        return layout.unpack(self.take(layout.size))

    def array(self, dtype: "str | np.dtype[Any]", count: int) -> Values:
        """Return the next numbers as an aligned array."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(count * kind.itemsize), kind).copy()

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._position != len(self._data):
            refuse("a block is longer than what it announces")


def refuse(message: str) -> NoReturn:
    """Raise `Rejected("bad_frame")`."""
    raise Rejected("bad_frame", message)


def pack_block(kind: int, data: bytes) -> bytes:
    """Return a block."""
    return _BLOCK.pack(kind, 0, 0, len(data)) + data


def split_blocks(raw: bytes) -> list[tuple[int, memoryview]]:
    """Return (kind, data) of every block of a body."""
    blocks = []
    view = memoryview(raw)
    position = 0
    while position < len(raw):
        if position + _BLOCK.size > len(raw):
            refuse("a block header is cut")
        kind, flags, reserved, length = _BLOCK.unpack_from(raw, position)
        position += _BLOCK.size
        if flags or reserved or position + length > len(raw):
            refuse("a block header is wrong")
        blocks.append((kind, view[position : position + length]))
        position += length
    return blocks


def shuffle(matrix: Values) -> bytes:
    """Return the bytes of a matrix with all first bytes first, then all second bytes, and so on."""
    width = matrix.dtype.itemsize
    if width == 1:
        return matrix.tobytes()
    return np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, width).T.tobytes()


def unshuffle(data: memoryview, dtype: "np.dtype[Any]") -> Values:
    """Return the flat array whose shuffled bytes these are."""
    planes = np.frombuffer(data, np.uint8)
    if dtype.itemsize == 1:
        return planes.view(dtype).copy()
    return np.array(planes.reshape(dtype.itemsize, -1).T, order="C").view(dtype).reshape(-1)


def write_histogram(rows: HistogramRows, shape: Shape) -> bytes:
    """Return the data of a histogram block."""
    count = len(rows.entity_index)
    grid = is_grid(rows.entity_index, rows.tick_index, shape)
    if rows.column >= len(shape.known.schema.histograms):
        refuse("a histogram has no column in the schema")
    width = len(shape.known.schema.histograms[rows.column].bounds) + 1
    lengths = {count, len(rows.tick_index), len(rows.sums), len(rows.start_times_ms), len(rows.buckets)}
    if lengths != {count} or rows.buckets.shape != (count, width):
        refuse("arrays of a histogram have different lengths")
    parts = [_HISTOGRAM_HEAD.pack(count, rows.column, grid * FLAG_GRID)]
    if not grid:
        check_row_keys(rows.entity_index, rows.tick_index, shape)
        parts += [rows.entity_index.astype("<u4").tobytes(), rows.tick_index.astype("<u2").tobytes()]
    for array, dtype in ((rows.start_times_ms, "<i8"), (rows.sums, "<f8"), (rows.buckets, "<u8")):
        exact = array.astype(dtype, copy=False)
        parts.append(shuffle(exact) if shape.shuffled else exact.tobytes())
    return b"".join(parts)


def read_histogram(data: memoryview, shape: Shape) -> HistogramRows:
    """Return the histogram rows of this data."""
    reader = BlockReader(data)
    rows, column, flags = reader.fields(_HISTOGRAM_HEAD)
    histograms = shape.known.schema.histograms
    if column >= len(histograms) or flags & ~FLAG_GRID:
        refuse("a histogram block names no column, or has unknown flags")
    width = len(histograms[column].bounds) + 1
    if rows > shape.limits.max_rows or rows * width > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {width} buckets")
    entity_index, tick_index = read_row_keys(reader, rows, bool(flags & FLAG_GRID), shape)
    starts = read_matrix(reader, np.dtype("<i8"), rows, shape.shuffled)
    sums = read_matrix(reader, np.dtype("<f8"), rows, shape.shuffled)
    buckets = read_matrix(reader, np.dtype("<u8"), rows * width, shape.shuffled)
    reader.finish()
    return HistogramRows(column, entity_index, tick_index, buckets.reshape(rows, width), sums, starts)


def is_grid(entity_index: Values, tick_index: Values, shape: Shape) -> bool:
    """Tell whether rows are every entity of the table at every tick, tick by tick, so that they need no keys."""
    if len(entity_index) != shape.ticks * shape.entities:
        return False
    entities, ticks = _grid(len(entity_index), shape)
    return bool((entity_index == entities).all() and (tick_index == ticks).all())


def _grid(rows: int, shape: Shape) -> tuple[Values, Values]:
    positions = np.arange(rows, dtype=np.uint32)
    entities = np.uint32(max(1, shape.entities))
    return positions % entities, (positions // entities).astype(np.uint16)


def check_row_keys(entity_index: Values, tick_index: Values, shape: Shape) -> None:
    """Check that row keys are in range and unique."""
    if not len(entity_index):
        return
    if int(entity_index.max()) >= shape.entities or int(tick_index.max()) >= shape.ticks:
        refuse("a row refers to an entity or tick that is not there")
    keys = np.sort(entity_index.astype(np.uint64) << np.uint64(16) | tick_index)
    if (keys[1:] == keys[:-1]).any():
        refuse("two rows have the same entity and tick")


def read_row_keys(reader: BlockReader, rows: int, grid: bool, shape: Shape) -> tuple[Values, Values]:
    """Return (entity_index, tick_index) of a block's rows."""
    if grid:
        if rows != shape.ticks * shape.entities:
            refuse("rows are not ticks x entities")
        return _grid(rows, shape)
    entity_index, tick_index = reader.array("<u4", rows), reader.array("<u2", rows)
    check_row_keys(entity_index, tick_index, shape)
    return entity_index, tick_index


def read_matrix(reader: BlockReader, dtype: "np.dtype[Any]", count: int, shuffled: bool) -> Values:
    """Return the next `count` numbers of a matrix, flat."""
    return unshuffle(reader.take(count * dtype.itemsize), dtype) if shuffled else reader.array(dtype, count)
