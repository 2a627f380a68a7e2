"""Turn pieces of rows, in any order and any number of times, into the union of all that is known for each key.

A `Window` holds the rows of one entity kind whose event times lie in one span of 30 s. A row is (series, event_time);
its cells are one column of a matrix per stored type. Pieces that speak of rows not seen yet are appended at the end
without a lookup; others are settled cell by cell: the greater (quality rank, value bits) wins, whatever came first.
What describes the row (its `Origin`) is settled as well, by the smallest origin. No method reads time or does I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secondsight.model import QUALITY_RANK, Quality
from secondsight.process.columns import Layout
from secondsight.process.pieces import (
    I64,
    Block,
    Matrix,
    Origin,
    Piece,
    Pile,
    Rows,
    alike,
    full_quality,
    join,
    select_rows,
)
from secondsight.process.series import I32

WINDOW_MS = 30_000

RANK = np.zeros(256, np.uint8)
RANK[[int(quality) for quality in QUALITY_RANK]] = list(QUALITY_RANK.values())
"""Quality code -> rank; unknown codes claim nothing."""
VALUE_RANK = QUALITY_RANK[Quality.ESTIMATE]
"""Least rank of a cell with a value."""


@dataclass(slots=True)
class Lane:
    """Rows of one collector in one window.

    Attributes:
        ranges: Row ranges, in order of arrival.
        newest_ms: Newest event time; pieces wholly after it need no lookup.
        index: Key -> row, made when first needed.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    newest_ms: int = -1
    index: dict[int, int] | None = None

    def rows(self) -> Rows:
        """Return the positions of its rows."""
        return np.concatenate([np.arange(start, stop) for start, stop in self.ranges] or [np.empty(0, np.intp)])

    @property
    def size(self) -> int:
        """Return how many rows it has."""
        return sum(stop - start for start, stop in self.ranges)

    def add(self, start: int, stop: int) -> None:
        """Note that rows from `start` to `stop` are its own."""
        if self.ranges and self.ranges[-1][1] == start:
            self.ranges[-1] = (self.ranges[-1][0], stop)
        else:
            self.ranges.append((start, stop))


@dataclass(slots=True)
class Settled:
    """What applying pieces did."""

    appended: int = 0
    touched: int = 0
    changed: int = 0
    conflicts: int = 0


class Window:
    """Open rows of one kind and one span of 30 s.

    Attributes:
        size: Rows in use; all arrays are longer.
        dirty: Rows that differ from what was written.
        written: Rows of which some version was written.
        filled: Number of values of each row as written; -1 where it was not written since it is here.
    """

    def __init__(self, layout: Layout, start_ms: int, capacity: int = 256) -> None:
        self.layout = layout
        self.start_ms = start_ms
        self.size = 0
        self.lanes: dict[int, Lane] = {}
        self.origins: list[Origin] = []
        self._origin_codes: dict[Origin, int] = {}
        self.used = [np.zeros(len(group.metrics), np.bool_) for group in layout.groups]
        self.blemished = False
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        self.series = np.zeros(capacity, np.int32)
        self.time_ms = np.zeros(capacity, np.int64)
        self.observed_delta_ms = np.zeros(capacity, np.int32)
        self.interval_ms = np.zeros(capacity, np.int64)
        self.ingest_ms = np.zeros(capacity, np.int64)
        self.origin = np.zeros(capacity, np.int32)
        self.dirty = np.zeros(capacity, np.bool_)
        self.written = np.zeros(capacity, np.bool_)
        self.filled = np.full(capacity, -1, np.int32)
        self.values = [np.zeros((len(group.metrics), capacity), group.dtype) for group in self.layout.groups]
        self.quality = [np.zeros((len(group.metrics), capacity), np.uint8) for group in self.layout.groups]

    @property
    def bytes(self) -> int:
        """Return about how much memory the rows take."""
        per_row = 40 + sum(
            int(used.sum()) * (group.dtype.itemsize + 1)
            for used, group in zip(self.used, self.layout.groups, strict=True)
        )
        return self.size * per_row

    def lane(self, collector: int) -> Lane:
        """Return the lane of a collector, new or known."""
        known = self.lanes.get(collector)
        if known is None:
            known = self.lanes[collector] = Lane()
        return known

    def apply(self, pieces: Sequence[Piece]) -> Settled:
        """Take pieces in; those that share a schema should come together, their blocks alike."""
        done = Settled()
        pending: list[Piece] = []
        for piece in pieces:
            if not piece.rows:
                continue
            lane = self.lane(piece.collector)
            if int(piece.time_ms.min()) <= lane.newest_ms:
                self._append(pending, done)
                pending = []
                self._settle(piece, done)
            else:
                if pending and not alike(pending[0], piece):
                    self._append(pending, done)
                    pending = []
                pending.append(piece)
            lane.newest_ms = max(lane.newest_ms, int(piece.time_ms.max()))
        self._append(pending, done)
        return done

    def drop(self, collector: int) -> None:
        """Forget a collector's lane; its rows stay until the whole window goes."""
        self.lanes.pop(collector, None)

    def pile(self, pile: Pile) -> Settled:
        """Take a pile in: members that are newer than all of their collector's rows come to the end at once."""
        done = Settled()
        newer: list[int] = []
        others: list[int] = []
        for number, (collector, first_ms, last_ms) in enumerate(
            zip(pile.collectors, pile.first_ms, pile.last_ms, strict=True)
        ):
            lane = self.lane(collector)
            (newer if first_ms > lane.newest_ms else others).append(number)
            lane.newest_ms = max(lane.newest_ms, last_ms)
        if newer:
            chosen = pile if not others else pile.select(newer)
            self._put(chosen.piece, [(collector, chosen.member_rows) for collector in chosen.collectors], done)
        if others:
            self._settle_pile(pile.select(others) if newer else pile, done)
        return done

    def _settle_pile(self, pile: Pile, done: Settled) -> None:
        """Merge members into rows that are there already, all at once; where some are not, one after the other."""
        piece, size = pile.piece, pile.member_rows
        found = [
            self._find(collector, piece.series[start : start + size], piece.time_ms[start : start + size])
            for start, collector in zip(range(0, piece.rows, size), pile.collectors, strict=True)
        ]
        rows = np.concatenate(found)
        if rows.min() >= 0 and np.unique(rows).size == rows.size:
            self._merge(piece, rows, done)
            return
        for number in range(len(pile.collectors)):
            self._settle(pile.member(number), done)

    def _append(self, pieces: Sequence[Piece], done: Settled) -> None:
        """Add rows at the end; the pieces are alike."""
        if pieces:
            self._put(join(pieces), [(piece.collector, piece.rows) for piece in pieces], done)

    def _put(self, piece: Piece, parts: Sequence[tuple[int, int]], done: Settled) -> None:
        """Add rows at the end; `parts` says (collector, rows) of each run of them."""
        start, stop = self.size, self.size + piece.rows
        self._reserve(stop)
        self._describe(piece, slice(start, stop))
        for block in piece.blocks:
            self.used[block.group][block.columns] = True
            self.values[block.group][block.columns, start:stop] = block.values
            quality = Quality.OK if block.quality is None else block.quality
            self.quality[block.group][block.columns, start:stop] = quality
            self.blemished |= block.quality is not None
        self.size = stop
        done.appended += stop - start
        for collector, rows in parts:
            self._enter(self.lanes[collector], start, start + rows)
            start += rows

    def _describe(self, piece: Piece, rows: slice) -> None:
        self.series[rows] = piece.series
        self.time_ms[rows] = piece.time_ms
        self.observed_delta_ms[rows] = piece.observed_delta_ms
        self.interval_ms[rows] = piece.interval_ms
        self.ingest_ms[rows] = piece.ingest_ms
        self.origin[rows] = self._origins(piece)
        self.written[rows] = piece.stored
        self.dirty[rows] = not piece.stored

    def _origins(self, piece: Piece) -> I32:
        codes = np.array([self._origin_code(origin) for origin in piece.origins], np.int32)
        return codes[piece.origin_of] if codes.size > 1 else np.full(piece.rows, codes[0], np.int32)

    def _origin_code(self, origin: Origin) -> int:
        code = self._origin_codes.setdefault(origin, len(self.origins))
        if code == len(self.origins):
            self.origins.append(origin)
        return code

    def _enter(self, lane: Lane, start: int, stop: int) -> None:
        lane.add(start, stop)
        if lane.index is not None:
            keys = self._keys(self.series[start:stop], self.time_ms[start:stop])
            lane.index.update(zip(keys.tolist(), range(start, stop), strict=True))

    def _keys(self, series: I32, time_ms: I64) -> I64:
        return series.astype(np.int64) * WINDOW_MS + (time_ms - self.start_ms)

    def _settle(self, piece: Piece, done: Settled) -> None:
        """Merge a piece into rows that may be there already; append those that are not."""
        rows = self._find(piece.collector, piece.series, piece.time_ms)
        missing = np.flatnonzero(rows < 0)
        there = np.flatnonzero(rows >= 0)
        if there.size:
            self._merge(select_rows(piece, there) if missing.size else piece, rows[there], done)
        if missing.size:
            self._append([select_rows(piece, missing) if there.size else piece], done)

    def _find(self, collector: int, series: I32, time_ms: I64) -> Rows:
        """Return where rows of a collector are, -1 where they are not."""
        lane = self.lanes[collector]
        if lane.index is None:
            rows = lane.rows()
            lane.index = dict(
                zip(self._keys(self.series[rows], self.time_ms[rows]).tolist(), rows.tolist(), strict=True)
            )
        find = lane.index.get
        return np.array([find(key, -1) for key in self._keys(series, time_ms).tolist()], np.intp)

    def _merge(self, piece: Piece, rows: Rows, done: Settled) -> None:
        changed = self._merge_description(piece, rows)
        for block in piece.blocks:
            self.used[block.group][block.columns] = True
            changed |= self._merge_block(block, rows, done)
        done.touched += rows.size
        done.changed += int(changed.sum())
        if piece.stored:
            self.dirty[rows] |= True
            self.written[rows] = True
        else:
            self.dirty[rows] |= changed

    def _merge_block(self, block: Block, rows: Rows, done: Settled) -> NDArray[np.bool_]:
        at = np.ix_(block.columns, rows)
        old, old_quality = self.values[block.group][at], self.quality[block.group][at]
        new_quality = full_quality(block)
        old_rank, new_rank = RANK[old_quality], RANK[new_quality]
        old_bits, new_bits = _bits(old), _bits(block.values)
        both = (old_rank >= VALUE_RANK) & (new_rank >= VALUE_RANK) & (old_bits != new_bits)
        greater = (new_rank == old_rank) & both & (new_bits > old_bits)
        take = (new_rank > old_rank) | greater
        self.values[block.group][at] = np.where(take, block.values, old)
        self.quality[block.group][at] = np.where(take, new_quality, old_quality)
        self.blemished |= block.quality is not None
        done.conflicts += int(both.sum())
        changed: NDArray[np.bool_] = take.any(axis=0)
        return changed

    def _merge_description(self, piece: Piece, rows: Rows) -> NDArray[np.bool_]:
        new_code, old_code = self._origins(piece), self.origin[rows]
        wins = self._smaller(new_code, old_code)
        interval = np.maximum(piece.interval_ms, self.interval_ms[rows])
        ingest = np.minimum(piece.ingest_ms, self.ingest_ms[rows])
        changed: NDArray[np.bool_] = wins | (interval != self.interval_ms[rows]) | (ingest != self.ingest_ms[rows])
        same = new_code == old_code
        delta = np.where(wins, piece.observed_delta_ms, self.observed_delta_ms[rows])
        least = same & (piece.observed_delta_ms < delta)
        self.observed_delta_ms[rows] = np.where(least, piece.observed_delta_ms, delta)
        self.origin[rows] = np.where(wins, new_code, old_code)
        self.interval_ms[rows], self.ingest_ms[rows] = interval, ingest
        changed |= least
        return changed

    def _smaller(self, new_code: I32, old_code: I32) -> NDArray[np.bool_]:
        """Tell per row whether the new origin is smaller than the old one."""
        pairs = set(zip(new_code.tolist(), old_code.tolist(), strict=True))
        less = {pair: self.origins[pair[0]] < self.origins[pair[1]] for pair in pairs}
        return np.array([less[pair] for pair in zip(new_code.tolist(), old_code.tolist(), strict=True)], np.bool_)

    def _reserve(self, rows: int) -> None:
        capacity = self.series.size
        if rows <= capacity:
            return
        old, size, used = self.__dict__.copy(), self.size, self.used
        self._allocate(max(rows, 2 * capacity))
        for name in _DESCRIPTION:
            getattr(self, name)[:size] = old[name][:size]
        for group, columns in enumerate(used):
            for column in np.flatnonzero(columns):
                self.values[group][column, :size] = old["values"][group][column, :size]
                self.quality[group][column, :size] = old["quality"][group][column, :size]


_DESCRIPTION = (
    "series",
    "time_ms",
    "observed_delta_ms",
    "interval_ms",
    "ingest_ms",
    "origin",
    "dirty",
    "written",
    "filled",
)


def window_start(time_ms: int) -> int:
    """Return the start of the window that an instant lies in."""
    return time_ms - time_ms % WINDOW_MS


def _bits(values: Matrix) -> Matrix:
    """Return values as unsigned integers of the same width."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
