"""Turn the blocks of a frame's body into arrays and back.

A block is a kind, flags, a length and that many bytes. Every count is checked against the bytes that are there and the
limits before anything is allocated, and every fault is `Rejected("bad_frame")`.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Any, NoReturn

import numpy as np

from secondsight.errors import Rejected
from secondsight.wire.content import HistogramRows, Values
from secondsight.wire.header import Limits
from secondsight.wire.schema import KnownSchema

SCHEMA, ENTITIES, SCALARS, HISTOGRAM, EVENTS, INFOS = range(1, 7)
FLAG_GRID = 1

_BLOCK = Struct("<BBHI")
_HISTOGRAM_HEAD = Struct("<IHBx")
_SMALL_GRID_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows may refer to, and how matrices are written."""

    known: KnownSchema
    ticks: int
    entities: int
    shuffled: bool
    limits: Limits


class BlockReader:
    """Takes pieces off one block of a body, checking that they are there."""

    __slots__ = ("_end", "_position", "_raw", "kind")

    def __init__(self, kind: int, raw: bytes, start: int, end: int) -> None:
        self.kind = kind
        self._raw = raw
        self._position = start
        self._end = end

    def skip(self, size_bytes: int) -> int:
        """Step over the next bytes and return their position in the body."""
        position = self._position
        self._position += size_bytes
        if self._position > self._end:
            refuse("a block is shorter than what it announces")
        return position

    def fields(self, layout: Struct) -> tuple[Any, ...]:
        """Return the next fields."""
        return layout.unpack_from(self._raw, self.skip(layout.size))

    def text(self, size_bytes: int) -> bytes:
        """Return the next bytes."""
        position = self.skip(size_bytes)
        return self._raw[position : position + size_bytes]

    def array(self, dtype: "str | np.dtype[Any]", count: int) -> Values:
        """Return the next numbers as an aligned array of its own."""
        kind = np.dtype(dtype)
        return np.frombuffer(self._raw, kind, count, self.skip(count * kind.itemsize)).copy()

    def matrix(self, dtype: "np.dtype[Any]", shape: tuple[int, ...], shuffled: bool) -> Values:
        """Return the next numbers as an array of this shape; see `write_matrix`."""
        width, count = dtype.itemsize, math.prod(shape)
        position = self.skip(count * width)
        if not shuffled or width == 1:
            return np.frombuffer(self._raw, dtype, count, position).reshape(shape).copy()
        planes = np.frombuffer(self._raw, np.uint8, count * width, position).reshape(width, count)
        cells = np.empty((count, width), np.uint8)
        for place in range(width):  # one strided copy a byte is up to five times as fast as copying the transpose
            cells[:, place] = planes[place]
        return cells.view(dtype).reshape(shape)

    @property
    def data(self) -> bytes:
        """All bytes of a block of which nothing was taken."""
        return self._raw[self._position : self._end]

    def rest(self) -> bytes:
        """Return all that is left."""
        return self.text(self._end - self._position)

    def finish(self) -> None:
        """Check that nothing is left."""
        if self._position != self._end:
            refuse("a block is longer than what it announces")


def refuse(message: str) -> NoReturn:
    """Raise `Rejected("bad_frame")`."""
    raise Rejected("bad_frame", message)


def pack_block(kind: int, data: bytes) -> bytes:
    """Return a block."""
    return _BLOCK.pack(kind, 0, 0, len(data)) + data


def split_blocks(raw: bytes) -> list[BlockReader]:
    """Return a reader of every block of a body."""
    blocks = []
    position = 0
    while position < len(raw):
        if position + _BLOCK.size > len(raw):
            refuse("a block header is cut")
        kind, flags, reserved, length = _BLOCK.unpack_from(raw, position)
        position += _BLOCK.size
        if flags or reserved or position + length > len(raw):
            refuse("a block header is wrong")
        blocks.append(BlockReader(kind, raw, position, position + length))
        position += length
    return blocks


def write_matrix(values: Values, shuffled: bool) -> bytes:
    """Return the bytes of an array: in order, or all first bytes first, then all second bytes, and so on."""
    width = values.dtype.itemsize
    if not shuffled or width == 1:
        return values.tobytes()
    return np.ascontiguousarray(values).view(np.uint8).reshape(values.size, width).T.tobytes()


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
        parts.append(write_matrix(array.astype(dtype, copy=False), shape.shuffled))
    return b"".join(parts)


def read_histogram(reader: BlockReader, shape: Shape) -> HistogramRows:
    """Return the histogram rows of a block."""
    rows, column, flags = reader.fields(_HISTOGRAM_HEAD)
    histograms = shape.known.schema.histograms
    if column >= len(histograms) or flags & ~FLAG_GRID:
        refuse("a histogram block names no column, or has unknown flags")
    width = len(histograms[column].bounds) + 1
    if rows > shape.limits.max_rows or rows * width > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {width} buckets")
    entity_index, tick_index = read_row_keys(reader, rows, bool(flags & FLAG_GRID), shape)
    starts = reader.matrix(np.dtype("<i8"), (rows,), shape.shuffled)
    sums = reader.matrix(np.dtype("<f8"), (rows,), shape.shuffled)
    buckets = reader.matrix(np.dtype("<u8"), (rows, width), shape.shuffled)
    reader.finish()
    return HistogramRows(column, entity_index, tick_index, buckets, sums, starts)


def is_grid(entity_index: Values, tick_index: Values, shape: Shape) -> bool:
    """Tell whether rows are every entity of the table at every tick, tick by tick, so that they need no keys."""
    if len(entity_index) != shape.ticks * shape.entities:
        return False
    entities, ticks = _grid(shape.ticks, shape.entities)
    return bool((entity_index == entities).all() and (tick_index == ticks).all())


def _grid(ticks: int, entities: int) -> tuple[Values, Values]:
    return _small_grid(ticks, entities) if ticks * entities <= _SMALL_GRID_ROWS else _new_grid(ticks, entities)


def _new_grid(ticks: int, entities: int) -> tuple[Values, Values]:
    entity_index = np.tile(np.arange(entities, dtype=np.uint32), ticks)
    tick_index = np.repeat(np.arange(ticks, dtype=np.uint16), entities)
    entity_index.flags.writeable = tick_index.flags.writeable = False
    return entity_index, tick_index


_small_grid = lru_cache(maxsize=256)(_new_grid)


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
        return _grid(shape.ticks, shape.entities)
    entity_index, tick_index = reader.array("<u4", rows), reader.array("<u2", rows)
    check_row_keys(entity_index, tick_index, shape)
    return entity_index, tick_index
