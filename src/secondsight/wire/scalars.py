"""Turn the scalar block of a frame into matrices and back.

Layout: rows and flags, row keys unless the rows are the grid ticks x entities, observed delays, one quality code per
column, a matrix of codes for the columns that have several, then the values of each dtype as one matrix. A code says
both whether a cell has a value and why, so no bytes can make the two disagree. What is given back is canonical: cells
without a value hold zero, `present` is None where every cell has one, qualities are listed by column, then row.
"""

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
from secondsight.wire.schema import GroupLayout

MIXED = 255
"""Code of a column whose cells have codes of their own."""

_HEAD = Struct("<IB3x")
_DELTA = Struct("<i")
_FLAG_DELTA_SAME = 2
_OK = int(Quality.OK)
_ESTIMATE = int(Quality.ESTIMATE)
_MAX_QUALITY = int(max(Quality))
_SMALL_CELLS = 1 << 14
_NO_QUALITY: tuple[U32, U16, U8] = (np.empty(0, np.uint32), np.empty(0, np.uint16), np.empty(0, np.uint8))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Which cells have a value (None: all), and the (row, column, quality) of those that need saying."""

    rows: int
    present: Bools | None
    listed: tuple[U32, U16, U8]


def write_scalars(block: ScalarBlock, shape: Shape) -> bytes:
    """Return the data of a scalar block."""
    rows = len(block.entity_index)
    grid = _check(block, shape)
    delta = block.observed_delta_ms
    same = rows > 0 and bool((delta == delta[0]).all())
    parts = [_HEAD.pack(rows, grid * FLAG_GRID | same * _FLAG_DELTA_SAME)]
    if not grid:
        parts += [block.entity_index.astype("<u4").tobytes(), block.tick_index.astype("<u2").tobytes()]
    parts.append(_DELTA.pack(int(delta[0])) if same else delta.astype("<i4").tobytes())
    parts += _write_codes(block, len(shape.known.schema.columns))
    for group in block.groups:
        values = group.values if group.present is None else np.where(group.present, group.values, 0)
        parts.append(write_matrix(values.astype(group.values.dtype, copy=False), shape.shuffled))
    return b"".join(parts)


def read_scalars(reader: BlockReader, shape: Shape) -> ScalarBlock:
    """Return the scalar block of this data."""
    rows, flags = reader.fields(_HEAD)
    columns = len(shape.known.schema.columns)
    if rows > shape.limits.max_rows or rows * columns > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {columns} columns")
    if flags & ~(FLAG_GRID | _FLAG_DELTA_SAME):
        refuse("unknown flags of a scalar block")
    entity_index, tick_index = read_row_keys(reader, rows, bool(flags & FLAG_GRID), shape)
    delta = reader.array("<i4", 1 if flags & _FLAG_DELTA_SAME else rows)
    pattern = _read_pattern(reader, columns, rows)
    groups = tuple(_read_group(reader, layout, pattern, shape.shuffled) for layout in shape.known.groups)
    reader.finish()
    delta = np.repeat(delta, rows) if flags & _FLAG_DELTA_SAME else delta
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
        return _Pattern(rows, None, _NO_QUALITY)
    pattern = _pattern(np.repeat(np.frombuffer(column_codes, np.uint8), rows).reshape(len(column_codes), rows))
    for array in (pattern.present, *pattern.listed):
        if array is not None:
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
    present = codes - _OK < _ESTIMATE
    return _Pattern(rows, present, listed)


def _read_group(reader: BlockReader, layout: GroupLayout, pattern: _Pattern, shuffled: bool) -> Group:
    values = reader.matrix(layout.dtype, (layout.columns, pattern.rows), shuffled)
    if pattern.present is None:
        return Group(layout.first_column, values, None)
    present = pattern.present[layout.first_column : layout.first_column + layout.columns]
    if present.all():
        return Group(layout.first_column, values, None)
    np.copyto(values, 0, where=~present)
    return Group(layout.first_column, values, present)
