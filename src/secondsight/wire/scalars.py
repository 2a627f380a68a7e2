"""Turn the scalar block of a frame into matrices and back.

Layout: rows and flags, row keys unless the rows are the grid ticks x entities, observed delays, one quality code per
column, a matrix of codes for the columns that have several, then the values of each dtype as one matrix. A code says
both whether a cell has a value and why, so no bytes can make the two disagree. What is given back is canonical: cells
without a value hold zero, `present` is None where every cell has one, qualities are listed by column, then row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

import numpy as np

from secondsight.errors import Rejected
from secondsight.model import Quality
from secondsight.wire.blocks import (
    FLAG_GRID,
    BlockReader,
    Shape,
    check_row_keys,
    is_grid,
    read_row_keys,
    refuse,
    write_matrix,
)
from secondsight.wire.content import U8, U16, U32, Bools, Group, ScalarBlock
from secondsight.wire.schema import WidthLayout

MIXED = 255
"""Code of a column whose cells have codes of their own."""

HEAD = Struct("<IB3x")
"""Rows and flags, with which a scalar block begins."""
FLAG_DELTA_SAME = 2
DELTA_BYTES = 4

_DELTA = Struct("<i")
_OK = int(Quality.OK)
_ESTIMATE = int(Quality.ESTIMATE)
_MAX_QUALITY = int(max(Quality))
_SMALL_CELLS = 1 << 14
_NO_QUALITY: tuple[U32, U16, U8] = (np.empty(0, np.uint32), np.empty(0, np.uint16), np.empty(0, np.uint8))
_NO_CELLS: Bools = np.empty((0, 0), np.bool_)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Which cells have a value, and the (row, column, quality) of those that need saying.

    Attributes:
        present, absent: Shape (columns, rows); empty where every cell has a value.
        absent_columns: One byte a column, 1 where a cell has no value; empty where every cell has one.
    """

    rows: int
    listed: tuple[U32, U16, U8]
    present: Bools
    absent: Bools
    absent_columns: bytes

    def lacks_in(self, first_column: int, end_column: int) -> bool:
        """Tell whether a cell of these columns has no value."""
        return 1 in self.absent_columns[first_column:end_column]


def write_scalars(block: ScalarBlock, shape: Shape) -> bytes:
    """Return the data of a scalar block."""
    rows = len(block.entity_index)
    grid = _check(block, shape)
    delta = block.observed_delta_ms
    same = rows > 0 and bool((delta == delta[0]).all())
    parts = [HEAD.pack(rows, grid * FLAG_GRID | same * FLAG_DELTA_SAME)]
    if not grid:
        parts += [block.entity_index.astype("<u4").tobytes(), block.tick_index.astype("<u2").tobytes()]
    parts.append(_DELTA.pack(int(delta[0])) if same else delta.astype("<i4").tobytes())
    parts += _write_codes(block, len(shape.known.schema.columns))
    parts += [_write_width(block, layout, shape.shuffled) for layout in shape.known.widths]
    return b"".join(parts)


def read_scalars(reader: BlockReader, shape: Shape) -> ScalarBlock:
    """Return the scalar block of this data."""
    rows, flags = reader.fields(HEAD)
    columns = len(shape.known.schema.columns)
    if rows > shape.limits.max_rows or rows * columns > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {columns} columns")
    if flags & ~(FLAG_GRID | FLAG_DELTA_SAME):
        refuse("unknown flags of a scalar block")
    entity_index, tick_index = read_row_keys(reader, rows, bool(flags & FLAG_GRID), shape)
    delta = reader.array("<i4", 1 if flags & FLAG_DELTA_SAME else rows)
    pattern = _read_pattern(reader, columns, rows)
    groups = tuple(group for layout in shape.known.widths for group in _read_width(reader, layout, pattern, shape))
    reader.finish()
    delta = np.repeat(delta, rows) if flags & FLAG_DELTA_SAME else delta
    return ScalarBlock(entity_index, tick_index, delta, groups, *pattern.listed)


def count_values(block: ScalarBlock) -> int:
    """Return the number of cells with a value."""
    return sum(
        group.values.size if group.present is None else int(np.count_nonzero(group.present)) for group in block.groups
    )


def _check(block: ScalarBlock, shape: Shape) -> bool:
    """Check that a block fits its schema; tell whether its rows are the grid."""
    rows = len(block.entity_index)
    if len(block.tick_index) != rows or len(block.observed_delta_ms) != rows:
        refuse("row arrays have different lengths")
    if rows > shape.limits.max_rows or rows * len(shape.known.schema.columns) > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {len(shape.known.schema.columns)} columns")
    if len(block.groups) != len(shape.known.groups):
        refuse("groups are not those of the schema")
    for group, layout in zip(block.groups, shape.known.groups, strict=True):
        expected = (layout.first_column, layout.dtype, (layout.columns, rows))
        if (group.first_column, group.values.dtype, group.values.shape) != expected:
            refuse(f"the group at column {layout.first_column} does not fit the schema")
    grid = is_grid(block.entity_index, block.tick_index, shape)
    if not grid:
        check_row_keys(block.entity_index, block.tick_index, shape)
    return grid


def _write_codes(block: ScalarBlock, columns: int) -> list[bytes]:
    if not len(block.quality) and all(group.present is None for group in block.groups):
        return [bytes((_OK,)) * columns]
    codes = _codes(block, columns)
    if not codes.shape[1]:
        return [bytes((_OK,)) * columns]
    column_codes = codes[:, 0].copy()
    mixed = (codes != codes[:, :1]).any(axis=1)
    column_codes[mixed] = MIXED
    return [column_codes.tobytes(), codes[mixed].tobytes()]


def _codes(block: ScalarBlock, columns: int) -> U8:
    """Return the quality code of every cell, shape (columns, rows)."""
    codes = np.full((columns, len(block.entity_index)), _OK, np.uint8)
    for group in block.groups:
        if group.present is not None:
            codes[group.first_column : group.first_column + len(group.values)] = group.present
    row, column, quality = block.quality_row, block.quality_column, block.quality
    if len(row):
        _check_quality(block, codes)
        codes[column, row] = quality
    if np.count_nonzero(codes > _OK) != len(row):
        refuse("a quality is given twice for one cell")
    return codes


def _check_quality(block: ScalarBlock, codes: U8) -> None:
    row, column, quality = block.quality_row, block.quality_column, block.quality
    if not len(row) == len(column) == len(quality):
        refuse("quality arrays have different lengths")
    if int(row.max()) >= codes.shape[1] or int(column.max()) >= codes.shape[0]:
        refuse("a quality is given for a cell that is not there")
    if int(quality.min()) < _ESTIMATE or int(quality.max()) > _MAX_QUALITY:
        refuse("a quality is listed that is unknown, or need not be listed")
    if ((quality == _ESTIMATE) != (codes[column, row] == _OK)).any():
        refuse("a quality does not fit the presence of its value")


def _read_pattern(reader: BlockReader, columns: int, rows: int) -> _Pattern:
    column_codes = reader.text(columns)
    mixed = column_codes.count(MIXED)
    if not mixed:
        small = columns * rows <= _SMALL_CELLS
        return _small_uniform_pattern(column_codes, rows) if small else _uniform_pattern(column_codes, rows)
    per_column = np.frombuffer(column_codes, np.uint8)
    codes = np.repeat(per_column, rows).reshape(columns, rows)
    codes[per_column == MIXED] = reader.array("u1", mixed * rows).reshape(mixed, rows)
    return _pattern(codes)


def _uniform_pattern(column_codes: bytes, rows: int) -> _Pattern:
    """Return the pattern of columns that have one code each."""
    if column_codes.count(_OK) == len(column_codes):
        return _Pattern(rows, _NO_QUALITY, _NO_CELLS, _NO_CELLS, b"")
    pattern = _pattern(np.repeat(np.frombuffer(column_codes, np.uint8), rows).reshape(len(column_codes), rows))
    for array in (pattern.present, pattern.absent, *pattern.listed):
        array.flags.writeable = False
    return pattern


_small_uniform_pattern = lru_cache(maxsize=128)(_uniform_pattern)
"""Frames of one host repeat their pattern, as what a device supports does not change."""


def _pattern(codes: U8) -> _Pattern:
    if codes.size and int(codes.max()) > _MAX_QUALITY:
        refuse("unknown quality code")
    rows = codes.shape[1]
    cells = np.flatnonzero(codes > _OK)
    column = cells // max(1, rows)
    row = cells - column * rows
    listed = (row.astype(np.uint32), column.astype(np.uint16), codes.ravel()[cells])
    absent = codes - _OK >= _ESTIMATE
    return _Pattern(rows, listed, ~absent, absent, absent.any(axis=1).tobytes())


def _write_width(block: ScalarBlock, layout: WidthLayout, shuffled: bool) -> bytes:
    groups = [group for group in block.groups if layout.first_column <= group.first_column < layout.end_column]
    matrices = [
        group.values if group.present is None else np.where(group.present, group.values, group.values.dtype.type(0))
        for group in groups
    ]
    values = np.concatenate([matrix.view(layout.dtype) for matrix in matrices]) if len(matrices) > 1 else matrices[0]
    return write_matrix(values, shuffled)


def _read_width(reader: BlockReader, layout: WidthLayout, pattern: _Pattern, shape: Shape) -> Iterator[Group]:
    first, end = layout.first_column, layout.end_column
    values = reader.matrix(layout.dtype, (layout.columns, pattern.rows), shape.shuffled)
    if pattern.lacks_in(first, end):
        np.copyto(values, 0, where=pattern.absent[first:end])
    for group in layout.groups:
        start, stop = group.first_column, group.first_column + group.columns
        present = pattern.present[start:stop] if pattern.lacks_in(start, stop) else None
        yield Group(start, values[start - first : stop - first].view(group.dtype), present)
