"""Turn frames of one shape into piles of rows: what `decode_rows` does for one frame, for many at once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.model import Quality
from secondsight.process.cells import WINDOW_MS, window_start
from secondsight.process.columns import SchemaPlan
from secondsight.process.deadletter import Position
from secondsight.process.decode import FUTURE_MS, Subjects, origin_of
from secondsight.process.pieces import I64, Block, Piece, Pile
from secondsight.process.sequences import FrameKey
from secondsight.wire.blocks import SCALARS
from secondsight.wire.content import U8, Bools
from secondsight.wire.envelope import Envelope
from secondsight.wire.frame import OpenFrame
from secondsight.wire.stacks import Stack, StackShape, finite, read_stack, sound, stack_shape, tick_times

MAX_MEMBERS = 128
"""Frames read at once, so that their matrices stay in the processor's caches."""


class Member(NamedTuple):
    """A frame that is read together with others.

    Attributes:
        key: See `sequences.frame_key`.
        data: Its scalar block.
        correction_ms: See `Header.correction_ms`.
    """

    envelope: Envelope
    position: Position
    opened: OpenFrame
    key: FrameKey
    data: bytes
    correction_ms: int

    @property
    def span_ms(self) -> tuple[int, int]:
        """Return its first and last event time."""
        view = self.opened.view
        return view.first_tick_ms + self.correction_ms, view.last_tick_ms + self.correction_ms


class Likeness(NamedTuple):
    """What frames read together have in common.

    Attributes:
        starts_ms: Start of the window of each tick; of all ticks where it is one.
    """

    shape: StackShape
    ticks: int
    starts_ms: tuple[int, ...]


def likeness(member: Member) -> Likeness | None:
    """Return what a frame must have in common with others, or None when it has to be taken alone."""
    view, known, table, blocks = member.opened
    first_ms, last_ms = member.span_ms
    if last_ms > member.envelope.ingest_time_ms + FUTURE_MS or any(block.kind == SCALARS for block in blocks[1:]):
        return None
    shape = stack_shape(member.data, view, known, len(table.entities))
    if shape is None:
        return None
    start_ms = window_start(first_ms)
    if last_ms - start_ms < WINDOW_MS:
        return Likeness(shape, view.ticks, (start_ms,))
    times = tick_times([member.envelope.body], [view])[0] + member.correction_ms
    return Likeness(shape, view.ticks, tuple((times - times % WINDOW_MS).tolist()))


def sound_members(members: Sequence[Member], shape: StackShape) -> Bools:
    """Tell which members hold what they announce, and numbers alone."""
    good = sound([member.data for member in members], [member.opened.view for member in members], shape)
    chosen = [members[number] for number in np.flatnonzero(good).tolist()]
    known = members[0].opened.known
    good[good] = finite([member.data for member in chosen], [member.opened.view for member in chosen], known, shape)
    return good


def piles_of(
    members: Sequence[Member], subjects: Sequence[Subjects], plan: SchemaPlan, alike: Likeness
) -> Iterator[tuple[int, Pile]]:
    """Give (window start, pile) of sound members."""
    views = [member.opened.view for member in members]
    stack = read_stack([member.data for member in members], views, members[0].opened.known, alike.shape)
    times = tick_times([member.envelope.body for member in members], views)
    times += np.array([member.correction_ms for member in members], np.int64)[:, None]
    piece = _piece(members, subjects, times)
    piece.blocks = _blocks(stack, plan)
    piece.observed_delta_ms = stack.delta_ms.reshape(-1)
    collectors = [each.collector for each in subjects]
    if len(alike.starts_ms) == 1:
        yield alike.starts_ms[0], Pile(piece, collectors, times[:, 0].tolist(), times[:, -1].tolist())
        return
    entities = alike.shape.rows // alike.ticks
    yield from _cut(Pile(piece, collectors, [], []), times, np.array(alike.starts_ms), entities)


def _cut(pile: Pile, times: I64, starts_ms: I64, entities: int) -> Iterator[tuple[int, Pile]]:
    """Give the part of a pile that lies in each window; rows are tick by tick."""
    rows = np.arange(pile.piece.rows).reshape(len(pile.collectors), -1, entities)
    for start_ms in np.unique(starts_ms).tolist():
        ticks = np.flatnonzero(starts_ms == start_ms)
        part = pile.rows(rows[:, ticks].ravel())
        part.first_ms, part.last_ms = times[:, ticks[0]].tolist(), times[:, ticks[-1]].tolist()
        yield start_ms, part


def _piece(members: Sequence[Member], subjects: Sequence[Subjects], times: I64) -> Piece:
    frames, ticks = times.shape
    series = np.concatenate([each.series for each in subjects]).reshape(frames, 1, -1)
    shape = (frames, ticks, series.shape[2])
    rows = ticks * series.shape[2]

    def each_row(numbers: list[int]) -> I64:
        return np.repeat(np.array(numbers, np.int64), rows)

    return Piece(
        collector=-1,
        series=np.broadcast_to(series, shape).reshape(-1),
        time_ms=np.broadcast_to(times[:, :, None], shape).reshape(-1),
        observed_delta_ms=np.zeros(0, np.int32),
        interval_ms=each_row([member.opened.view.interval_ms for member in members]),
        ingest_ms=each_row([member.envelope.ingest_time_ms for member in members]),
        origins=tuple(origin_of(member.opened.view) for member in members),
        origin_of=np.repeat(np.arange(frames, dtype=np.int32), rows),
        blocks=(),
    )


def _blocks(stack: Stack, plan: SchemaPlan) -> list[Block]:
    made = []
    first = 0
    for values, group in zip(stack.groups, plan.groups, strict=True):
        columns = len(values)
        quality = _quality(stack.codes, first, columns)
        made.append(Block(group.target, group.columns, values.reshape(columns, -1), quality))
        first += columns
    return made


def _quality(codes: U8 | None, first: int, columns: int) -> NDArray[np.uint8] | None:
    """Return the codes of a group's columns, or None where all are OK."""
    if codes is None or (codes[first : first + columns] == Quality.OK).all():
        return None
    return codes[first : first + columns].reshape(columns, -1)
