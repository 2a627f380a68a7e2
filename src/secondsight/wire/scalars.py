"""Turn the scalar block of a frame into matrices and back.

What is given back is canonical: cells without a value hold zero, `present` is None where every cell has one, and
listed qualities are sorted by column, then row.
"""

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
    read_matrix,
    read_row_keys,
    refuse,
    shuffle,
)
from secondsight.wire.content import Bools, Group, ScalarBlock, Values

ALL_PRESENT, NONE_PRESENT, SOME_PRESENT = range(3)
"""Modes of a column: every cell has a value; none has and all share one quality; a bitmap tells which have."""

_HEAD = Struct("<IB3x")
_COUNT = Struct("<I")
_DELTA = Struct("<i")
_FLAG_DELTA_SAME = 2
_MAX_QUALITY = max(Quality)


def write_scalars(block: ScalarBlock, shape: Shape) -> bytes:
    """Return the data of a scalar block."""
    rows = len(block.entity_index)
    _check_written(block, shape)
    grid = is_grid(block.entity_index, block.tick_index, shape)
    delta = block.observed_delta_ms
    same = rows > 0 and bool((delta == delta[0]).all())
    parts = [_HEAD.pack(rows, grid * FLAG_GRID | same * _FLAG_DELTA_SAME)]
    if not grid:
        parts += [block.entity_index.astype("<u4").tobytes(), block.tick_index.astype("<u2").tobytes()]
    parts.append(_DELTA.pack(int(delta[0])) if same else delta.astype("<i4").tobytes())
    present = presence_of(block, len(shape.known.schema.columns))
    parts += _write_presence(block, present)
    parts += [_write_matrix(group, shape.shuffled) for group in block.groups]
    return b"".join(parts)


def read_scalars(data: memoryview, shape: Shape) -> ScalarBlock:
    """Return the scalar block of this data."""
    reader = BlockReader(data)
    rows, flags = reader.fields(_HEAD)
    columns = len(shape.known.schema.columns)
    if rows > shape.limits.max_rows or rows * columns > shape.limits.max_cells:
        raise Rejected("frame_too_large", f"{rows} rows of {columns} columns")
    if flags & ~(FLAG_GRID | _FLAG_DELTA_SAME):
        refuse("unknown flags of a scalar block")
    entity_index, tick_index = read_row_keys(reader, rows, bool(flags & FLAG_GRID), shape)
    delta = _read_delta(reader, rows, bool(flags & _FLAG_DELTA_SAME))
    modes = reader.array("u1", columns)
    if columns and int(modes.max()) > SOME_PRESENT:
        refuse("unknown column mode")
    whole = modes == NONE_PRESENT
    whole_quality = _read_whole_quality(reader, int(whole.sum()))
    present = _read_presence(reader, modes, whole, rows)
    quality = _read_quality(reader, present, whole, rows)
    groups = _read_groups(reader, present, modes, rows, shape)
    reader.finish()
    quality = _with_whole(quality, np.flatnonzero(whole), whole_quality, rows)
    return ScalarBlock(entity_index, tick_index, delta, groups, *quality)


def count_values(block: ScalarBlock) -> int:
    """Return the number of cells with a value."""
    return sum(
        group.values.size if group.present is None else int(np.count_nonzero(group.present)) for group in block.groups
    )


def presence_of(block: ScalarBlock, columns: int) -> Bools | None:
    """Return which cells have a value as one matrix (columns, rows), or None when all have."""
    if all(group.present is None for group in block.groups):
        return None
    present = np.ones((columns, len(block.entity_index)), np.bool_)
    for group in block.groups:
        if group.present is not None:
            present[group.first_column : group.first_column + len(group.values)] = group.present
    return present


def _check_written(block: ScalarBlock, shape: Shape) -> None:
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
    if not is_grid(block.entity_index, block.tick_index, shape):
        check_row_keys(block.entity_index, block.tick_index, shape)


def _read_delta(reader: BlockReader, rows: int, same: bool) -> Values:
    if not same:
        return reader.array("<i4", rows)
    return np.full(rows, reader.fields(_DELTA)[0], np.int32)


def _write_presence(block: ScalarBlock, present: Bools | None) -> list[bytes]:
    columns = sum(len(group.values) for group in block.groups)
    rows = len(block.entity_index)
    quality = _sorted_quality(block)
    _check_quality(quality, present, np.zeros(columns, np.bool_), rows)
    if present is None:
        return [bytes(columns), *_pack_quality(*quality)]
    count = np.count_nonzero(present, axis=1)
    uniform, shared_quality = _uniform_columns(quality, columns, rows)
    whole = uniform & (count == 0)
    modes = np.where(count == rows, ALL_PRESENT, SOME_PRESENT).astype(np.uint8)
    modes[whole] = NONE_PRESENT
    return [
        modes.tobytes(),
        shared_quality[whole].tobytes(),
        np.packbits(present[modes == SOME_PRESENT], axis=1).tobytes(),
        *_pack_quality(*(array[~whole[quality[1]]] for array in quality)),
    ]


def _uniform_columns(quality: tuple[Values, Values, Values], columns: int, rows: int) -> tuple[Bools, Values]:
    """Return which columns have one quality in every row, or none in any, and that quality."""
    _, column, code = quality
    count = np.bincount(column, minlength=columns)
    shared = np.zeros(columns, np.uint8)
    shared[column[::-1]] = code[::-1]
    differing = np.bincount(column[code != shared[column]], minlength=columns)
    return (count == 0) | ((count == rows) & (differing == 0)), shared


def _sorted_quality(block: ScalarBlock) -> tuple[Values, Values, Values]:
    row, column, code = block.quality_row, block.quality_column, block.quality
    if not len(row) == len(column) == len(code):
        refuse("quality arrays have different lengths")
    keys = column.astype(np.int64) * max(1, len(block.entity_index)) + row
    if (keys[1:] > keys[:-1]).all():
        return row, column, code
    order = np.lexsort((row, column))
    return row[order], column[order], code[order]


def _pack_quality(row: Values, column: Values, code: Values) -> list[bytes]:
    return [_COUNT.pack(len(row)), row.astype("<u4").tobytes(), column.astype("<u2").tobytes(), code.tobytes()]


def _check_quality(quality: tuple[Values, Values, Values], present: Bools | None, closed: Bools, rows: int) -> None:
    row, column, code = quality
    if not len(row):
        return
    if int(row.max()) >= rows or int(column.max()) >= len(closed) or bool(closed[column].any()):
        refuse("a quality is given for a cell that is not there, or twice")
    keys = column.astype(np.int64) * rows + row
    if not (keys[1:] > keys[:-1]).all():
        refuse("qualities are not sorted and unique")
    if int(code.min()) < Quality.ESTIMATE or int(code.max()) > _MAX_QUALITY:
        refuse("unknown quality code")
    has_value = True if present is None else present[column, row]
    if not ((code == Quality.ESTIMATE) == has_value).all():
        refuse("a quality does not fit the presence of its value")


def _read_whole_quality(reader: BlockReader, count: int) -> Values:
    codes = reader.array("u1", count)
    if not ((codes == Quality.NONE) | ((codes > Quality.ESTIMATE) & (codes <= _MAX_QUALITY))).all():
        refuse("unknown quality code of a column")
    return codes


def _read_presence(reader: BlockReader, modes: Values, whole: Bools, rows: int) -> Bools | None:
    if not modes.any():
        return None
    some = modes == SOME_PRESENT
    row_bytes = (rows + 7) // 8
    count = int(some.sum())
    packed = np.frombuffer(reader.take(count * row_bytes), np.uint8).reshape(count, row_bytes)
    present = np.ones((len(modes), rows), np.bool_)
    present[whole] = False
    if count:
        present[some] = np.unpackbits(packed, axis=1, count=rows).view(np.bool_)
    return present


def _read_quality(reader: BlockReader, present: Bools | None, whole: Bools, rows: int) -> tuple[Values, Values, Values]:
    (count,) = reader.fields(_COUNT)
    quality = (reader.array("<u4", count), reader.array("<u2", count), reader.array("u1", count))
    _check_quality(quality, present, whole, rows)
    return quality


def _with_whole(
    quality: tuple[Values, Values, Values], whole: Values, whole_quality: Values, rows: int
) -> tuple[Values, Values, Values]:
    stated = whole_quality != Quality.NONE
    if not stated.any():
        return quality
    columns = whole[stated].astype(np.uint16)
    row = np.concatenate([quality[0], np.tile(np.arange(rows, dtype=np.uint32), len(columns))])
    column = np.concatenate([quality[1], np.repeat(columns, rows)])
    code = np.concatenate([quality[2], np.repeat(whole_quality[stated], rows)])
    if not len(quality[0]):
        return row, column, code
    order = np.argsort(column, kind="stable")
    return row[order], column[order], code[order]


def _write_matrix(group: Group, shuffled: bool) -> bytes:
    values = (
        group.values if group.present is None else np.where(group.present, group.values, group.values.dtype.type(0))
    )
    return shuffle(values) if shuffled else values.tobytes()


def _read_groups(
    reader: BlockReader, present: Bools | None, modes: Values, rows: int, shape: Shape
) -> tuple[Group, ...]:
    groups = []
    for layout in shape.known.groups:
        columns = slice(layout.first_column, layout.first_column + layout.columns)
        flat = read_matrix(reader, layout.dtype, layout.columns * rows, shape.shuffled)
        values = flat.reshape(layout.columns, rows)
        some = present[columns] if present is not None and modes[columns].any() else None
        if some is not None and some.all():
            some = None
        if some is not None:
            np.copyto(values, 0, where=~some)
        groups.append(Group(layout.first_column, values, some))
    return tuple(groups)
