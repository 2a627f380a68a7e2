"""Turn the scalar blocks of many frames of one shape into matrices at once.

Frames of one schema whose rows are the grid and whose columns have the same codes differ only in numbers, so one step
reads a matrix for all of them. Whatever is out of the ordinary has no shape: `frame.decode` reads it, or says why not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.model import Quality
from secondsight.wire.blocks import FLAG_GRID
from secondsight.wire.content import I64, U8, Bools, Values
from secondsight.wire.header import DEFAULT_LIMITS, HeadView
from secondsight.wire.scalars import DELTA_BYTES, FLAG_DELTA_SAME, HEAD, MIXED
from secondsight.wire.schema import KnownSchema, WidthLayout

_OK, _ESTIMATE, _MAX_QUALITY = int(Quality.OK), int(Quality.ESTIMATE), int(max(Quality))
_GRIDS = (FLAG_GRID, FLAG_GRID | FLAG_DELTA_SAME)


class StackShape(NamedTuple):
    """What scalar blocks have in common, beside their schema, that can be read at once.

    Attributes:
        delayed: Each row has an observed delay of its own; otherwise all have one.
        codes: Quality code of each column, or `MIXED`.
    """

    schema_hash: bytes
    shuffled: bool
    rows: int
    delayed: bool
    codes: bytes


@dataclass(frozen=True, slots=True)
class Stack:
    """Scalar rows of several frames of one shape.

    Attributes:
        delta_ms: Observed delays, int32, shape (frames, rows).
        codes: Quality codes, shape (columns, frames, rows), or None where every cell is OK.
        groups: Values by group of the schema, each of shape (columns, frames, rows); 0 where a cell has none.
    """

    delta_ms: NDArray[np.int32]
    codes: U8 | None
    groups: tuple[Values, ...]


def stack_shape(data: bytes, view: HeadView, known: KnownSchema, entities: int) -> StackShape | None:
    """Return the shape of a scalar block, or None when it has to be read alone."""
    if len(data) < HEAD.size:
        return None
    rows, flags = HEAD.unpack_from(data)
    columns = len(known.schema.columns)
    if flags not in _GRIDS or not rows or not rows == view.rows == view.ticks * entities:
        return None
    if rows > DEFAULT_LIMITS.max_rows or rows * columns > DEFAULT_LIMITS.max_cells:
        return None
    delayed = flags == FLAG_GRID
    start = HEAD.size + DELTA_BYTES * (rows if delayed else 1)
    codes = data[start : start + columns]
    if len(data) != start + columns + rows * (codes.count(MIXED) + known.row_bytes):
        return None
    return StackShape(known.hash, view.version > 1, rows, delayed, codes)


def read_stack(blocks: Sequence[bytes], views: Sequence[HeadView], known: KnownSchema, shape: StackShape) -> Stack:
    """Read scalar blocks of one shape, all of which are `sound`."""
    body = _table(blocks)
    deltas = body[:, HEAD.size : HEAD.size + DELTA_BYTES * (shape.rows if shape.delayed else 1)]
    delta_ms = np.broadcast_to(np.ascontiguousarray(deltas).view("<i4"), (len(views), shape.rows))
    codes = _cell_codes(body, shape)
    return Stack(delta_ms, codes, tuple(_groups(body, codes, known, shape)))


def sound(blocks: Sequence[bytes], views: Sequence[HeadView], shape: StackShape) -> Bools:
    """Tell which blocks hold what their headers count, in known codes; the others are to be read alone."""
    plain = np.frombuffer(shape.codes, np.uint8)
    plain = plain[plain != MIXED]
    if plain.size and int(plain.max()) > _MAX_QUALITY:
        return np.zeros(len(views), np.bool_)
    values, listed = (shape.rows * int(np.count_nonzero(cells)) for cells in (~_lacks(plain), plain > _OK))
    announced = np.array([(view.values, view.quality_cells) for view in views], np.int64)
    mixed = _mixed_codes(_table(blocks), shape)
    if not mixed.size:
        alike: Bools = (announced == (values, listed)).all(axis=1)
        return alike
    flat = mixed.reshape(len(views), -1)
    counted = np.stack([(~_lacks(flat)).sum(axis=1) + values, (flat > _OK).sum(axis=1) + listed], axis=1)
    good: Bools = (announced == counted).all(axis=1) & (flat <= _MAX_QUALITY).all(axis=1)
    return good


def finite(blocks: Sequence[bytes], views: Sequence[HeadView], known: KnownSchema, shape: StackShape) -> Bools:
    """Tell which of some `sound` blocks have no float that is no number; only widths that have floats are read."""
    good = np.ones(len(views), np.bool_)
    if not blocks or not any(map(_has_floats, known.widths)):
        return good
    body = _table(blocks)
    for values in _groups(body, _cell_codes(body, shape), known, shape, floats_alone=True):
        if values.dtype.kind == "f":
            good &= np.isfinite(values).all(axis=(0, 2))
    return good


def values_by_tick(blocks: Sequence[bytes], views: Sequence[HeadView], shape: StackShape) -> I64:
    """Return how many values blocks of one shape have of each tick, shape (frames, ticks)."""
    plain = np.frombuffer(shape.codes, np.uint8)
    plain = plain[plain != MIXED]
    rows = np.full((len(views), shape.rows), np.count_nonzero(~_lacks(plain)), np.int64)
    mixed = _mixed_codes(_table(blocks), shape)
    if mixed.size:
        rows += (~_lacks(mixed)).sum(axis=1)
    counted: I64 = rows.reshape(len(views), views[0].ticks, -1).sum(axis=2)
    return counted


def tick_times(buffers: Sequence[bytes], views: Sequence[HeadView]) -> I64:
    """Return the tick times of heads with equally many ticks, shape (frames, ticks)."""
    times = np.empty((len(views), views[0].ticks), np.int64)
    times[:] = np.array([view.first_tick_ms for view in views], np.int64)[:, None]
    if views[0].ticks > 1:
        steps = b"".join([buffer[view.steps_slice()] for buffer, view in zip(buffers, views, strict=True)])
        times[:, 1:] += np.frombuffer(steps, "<u4").reshape(len(views), -1)
    return times


def _groups(
    body: U8, codes: U8 | None, known: KnownSchema, shape: StackShape, *, floats_alone: bool = False
) -> Iterator[Values]:
    """Give the values of each group, shape (columns, frames, rows); of widths that have floats alone, if so wished."""
    position = body.shape[1] - shape.rows * known.row_bytes
    for layout in known.widths:
        size = shape.rows * layout.columns * layout.dtype.itemsize
        if not floats_alone or _has_floats(layout):
            values = _values(body[:, position : position + size], layout, shape)
            if codes is not None:
                values[_lacks(codes[layout.first_column : layout.end_column])] = 0
            for group in layout.groups:
                yield values[group.first_column - layout.first_column :][: group.columns].view(group.dtype)
        position += size


def _has_floats(layout: WidthLayout) -> bool:
    return any(group.dtype.kind == "f" for group in layout.groups)


def _table(blocks: Sequence[bytes]) -> U8:
    return np.frombuffer(b"".join(blocks), np.uint8).reshape(len(blocks), -1)


def _lacks(codes: U8) -> Bools:
    """Tell which cells have no value."""
    return codes - np.uint8(_OK) >= _ESTIMATE


def _mixed_codes(body: U8, shape: StackShape) -> U8:
    """Return the codes of the mixed columns, shape (frames, columns, rows)."""
    start = HEAD.size + DELTA_BYTES * (shape.rows if shape.delayed else 1) + len(shape.codes)
    mixed = shape.codes.count(MIXED)
    return body[:, start : start + mixed * shape.rows].reshape(len(body), mixed, shape.rows)


def _cell_codes(body: U8, shape: StackShape) -> U8 | None:
    if shape.codes.count(_OK) == len(shape.codes):
        return None
    columns = np.frombuffer(shape.codes, np.uint8)
    codes = np.empty((columns.size, len(body), shape.rows), np.uint8)
    codes[:] = columns[:, None, None]
    codes[columns == MIXED] = _mixed_codes(body, shape).transpose(1, 0, 2)
    return codes


def _values(body: U8, layout: WidthLayout, shape: StackShape) -> Values:
    """Return the matrix of one width; see `blocks.write_matrix` for how its bytes lie."""
    width, frames = layout.dtype.itemsize, len(body)
    cells = np.empty((layout.columns, frames, shape.rows, width), np.uint8)
    if shape.shuffled:
        planes = body.reshape(frames, width, layout.columns, shape.rows)
        for place in range(width):
            cells[..., place] = planes[:, place].transpose(1, 0, 2)
    else:
        cells[:] = body.reshape(frames, layout.columns, shape.rows, width).transpose(1, 0, 2, 3)
    return cells.view(layout.dtype)[..., 0]
