"""Carry rows of frames to their window: pieces of one collector, and piles of such pieces of many collectors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.model import Quality
from secondsight.process.series import I32

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Matrix = NDArray[Any]
Rows = NDArray[np.intp]


class Origin(NamedTuple):
    """Which record a row's description is taken from; the smallest of all pieces is kept."""

    spool_id: int
    sequence: int
    schema_id: int
    correction_ms: int
    boot_id: str
    source: str
    suspect: bool


@dataclass(slots=True)
class Block:
    """Cells of some columns of one group, for the rows of a piece.

    Attributes:
        values: Shape (columns, rows).
        quality: Same shape, or None where every cell is OK.
    """

    group: int
    columns: NDArray[np.intp]
    values: Matrix
    quality: U8 | None


@dataclass(slots=True)
class Piece:
    """Rows of one collector, kind and window, each (series, event_time) at most once, and some of their cells.

    Attributes:
        origins: One per row (`origin_of` indexes `origins`).
        stored: The rows were read from the store and need not be written again.
    """

    collector: int
    series: I32
    time_ms: I64
    observed_delta_ms: I32
    interval_ms: I64
    ingest_ms: I64
    origins: Sequence[Origin]
    origin_of: I32
    blocks: Sequence[Block]
    stored: bool = False

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return self.series.size


@dataclass(slots=True)
class Pile:
    """Pieces of several collectors as one, each of equally many rows.

    Attributes:
        piece: Their rows, one member after the other; its own collector means nothing.
        collectors: Of each member; one may stand several times.
        first_ms, last_ms: First and last event time of each member.
    """

    piece: Piece
    collectors: list[int]
    first_ms: list[int]
    last_ms: list[int]

    @property
    def member_rows(self) -> int:
        """Return the number of rows of each member."""
        return self.piece.rows // len(self.collectors)

    def member(self, number: int) -> Piece:
        """Return one member alone."""
        piece = self.select([number]).piece
        piece.collector = self.collectors[number]
        piece.origins = (piece.origins[piece.origin_of[0]],)
        piece.origin_of = np.zeros_like(piece.origin_of)
        return piece

    def rows(self, rows: Rows) -> "Pile":
        """Return some rows, equally many of each member; its times are those of the whole."""
        return Pile(select_rows(self.piece, rows), self.collectors, self.first_ms, self.last_ms)

    def select(self, numbers: Sequence[int]) -> "Pile":
        """Return some of the members."""
        rows = np.arange(self.piece.rows).reshape(len(self.collectors), -1)[list(numbers)].ravel()
        picked = ([items[number] for number in numbers] for items in (self.collectors, self.first_ms, self.last_ms))
        return Pile(select_rows(self.piece, rows), *picked)


def with_own_origins(piece: Piece) -> Piece:
    """Return a piece without the origins that none of its rows has."""
    codes, origin_of = np.unique(piece.origin_of, return_inverse=True)
    own = tuple(piece.origins[code] for code in codes.tolist())
    return replace(piece, origins=own, origin_of=origin_of.astype(np.int32))


def alike(left: Piece, right: Piece) -> bool:
    """Tell whether two pieces can be joined: they have the same columns in the same order."""
    return (
        left.stored == right.stored
        and len(left.blocks) == len(right.blocks)
        and all(
            a.group == b.group and (a.columns is b.columns or np.array_equal(a.columns, b.columns))
            for a, b in zip(left.blocks, right.blocks, strict=True)
        )
    )


def join(pieces: Sequence[Piece]) -> Piece:
    """Return pieces that are alike as one; its collector is that of the first."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *(len(piece.origins) for piece in pieces[:-1])])
    return Piece(
        pieces[0].collector,
        np.concatenate([piece.series for piece in pieces]),
        np.concatenate([piece.time_ms for piece in pieces]),
        np.concatenate([piece.observed_delta_ms for piece in pieces]),
        np.concatenate([piece.interval_ms for piece in pieces]),
        np.concatenate([piece.ingest_ms for piece in pieces]),
        tuple(chain.from_iterable(piece.origins for piece in pieces)),
        np.concatenate([piece.origin_of + start for piece, start in zip(pieces, starts, strict=True)], dtype=np.int32),
        [_join_blocks(blocks) for blocks in zip(*(piece.blocks for piece in pieces), strict=True)],
        pieces[0].stored,
    )


def joined_runs(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Give pieces again, in their order, those of one collector that follow each other as one where no row is twice."""
    run: list[Piece] = []
    for piece in pieces:
        if run and not (run[0].collector == piece.collector and alike(run[0], piece)):
            yield from _joined(run)
            run = []
        run.append(piece)
    yield from _joined(run)


def _joined(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) < 2:
        return pieces
    whole = join(pieces)
    keys = np.stack([whole.series.astype(np.int64), whole.time_ms])
    return [whole] if np.unique(keys, axis=1).shape[1] == whole.rows else pieces


def _join_blocks(blocks: Sequence[Block]) -> Block:
    quality = None
    if any(block.quality is not None for block in blocks):
        quality = np.concatenate([full_quality(block) for block in blocks], axis=1)
    values = np.concatenate([block.values for block in blocks], axis=1)
    return Block(blocks[0].group, blocks[0].columns, values, quality)


def full_quality(block: Block) -> U8:
    """Return the quality code of every cell."""
    return np.full(block.values.shape, Quality.OK, np.uint8) if block.quality is None else block.quality


def select_rows(piece: Piece, rows: Rows) -> Piece:
    """Return some rows of a piece."""
    blocks = [
        Block(
            block.group,
            block.columns,
            block.values[:, rows],
            None if block.quality is None else block.quality[:, rows],
        )
        for block in piece.blocks
    ]
    return Piece(
        piece.collector,
        piece.series[rows],
        piece.time_ms[rows],
        piece.observed_delta_ms[rows],
        piece.interval_ms[rows],
        piece.ingest_ms[rows],
        piece.origins,
        piece.origin_of[rows],
        blocks,
        piece.stored,
    )
