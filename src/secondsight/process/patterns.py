"""Turn the presence of a metric in a window's rows into what its rollup needs: weights, pairs and segments.

Metrics that are present in the same rows share one `Pattern`, so that weights and pairs are computed once for them.
Rows are sorted by (series, event time). A segment is the part of one series under one attribution.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]
LOOKBACK_MS = 3_600_000
"""Samples further apart than this are no pair: their increase is unknown."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of one kind and window, sorted by (series, event time).

    Attributes:
        interval_ms: Cadence of each row, >= 1.
        epoch: Code of the row's boot, 0 where it is unknown.
        segment: Row -> segment, in the order of (series, attribution).
        segments: Number of segments.
        series_number: Row -> position of its series among the window's distinct series.
        end_ms: End of the window.
    """

    time_ms: I64
    interval_ms: I64
    epoch: I32
    segment: Rows
    segments: int
    series_number: Rows
    end_ms: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """Rows in which some metrics have a value.

    Attributes:
        rows: Positions in the frame; None stands for all rows.
        heads, tails: Positions, among these rows, of the first and last row of each series present.
        series: Series number of each head.
        covered_ms: Milliseconds that each row's sample covers inside the window.
        order: These rows sorted by segment, or None where they are already.
        starts, ends: First and last position of each segment present, in that order.
        segments: Which segments these are.
        segment_covered_ms: Sum of `covered_ms` of each.
        widths: Rows of each.
    """

    rows: Rows | None
    size: int
    time_ms: I64
    epoch: I32
    heads: Rows
    tails: Rows
    series: Rows
    covered_ms: I64
    order: Rows | None
    starts: Rows
    ends: Rows
    segments: Rows
    segment_covered_ms: I64
    widths: Rows

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the columns of values (columns, all rows) of these rows."""
        return values if self.rows is None else values[:, self.rows]

    def by_segment(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return columns of these rows, sorted by segment."""
        return values if self.order is None else values[..., self.order]


def pattern_of(frame: Frame, present: Bools | None) -> Pattern:
    """Work out the pattern of metrics that are present where `present` is true (everywhere for None)."""
    rows = None if present is None else np.flatnonzero(present)
    time_ms, epoch = _of(frame.time_ms, rows), _of(frame.epoch, rows)
    series = _of(frame.series_number, rows)
    heads = _starts(series)
    tails = np.append(heads[1:], series.size) - 1
    covered = _covered(time_ms, _of(frame.interval_ms, rows), tails, frame.end_ms)
    segment = _of(frame.segment, rows)
    order = None if bool((segment[1:] >= segment[:-1]).all()) else np.argsort(segment, kind="stable")
    sorted_segment = segment if order is None else segment[order]
    starts = _starts(sorted_segment)
    weights = covered if order is None else covered[order]
    ends = np.append(starts[1:], segment.size) - 1
    return Pattern(
        rows,
        series.size,
        time_ms,
        epoch,
        heads,
        tails,
        series[heads],
        covered,
        order,
        starts,
        ends,
        sorted_segment[starts],
        np.add.reduceat(weights, starts),
        ends - starts + 1,
    )


def group_columns(present: NDArray[np.bool_]) -> list[tuple[bytes, Rows]]:
    """Group columns that are present in the same rows: (key of the pattern, columns); absent ones are left out.

    Args:
        present: Shape (columns, rows).
    """
    packed = np.packbits(present, axis=1)
    groups: dict[bytes, list[int]] = {}
    for column in np.flatnonzero(present.any(axis=1)).tolist():
        groups.setdefault(packed[column].tobytes(), []).append(column)
    return [(key, np.array(columns, np.intp)) for key, columns in groups.items()]


class Patterns:
    """Patterns of one frame by their key."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._full = bytes(np.packbits(np.ones(frame.time_ms.size, np.bool_)))
        self._known: dict[bytes, Pattern] = {}

    @property
    def full(self) -> Pattern:
        """Return the pattern of a metric that is present in every row."""
        return self.get(self._full)

    def get(self, key: bytes) -> Pattern:
        """Return the pattern of a key of `group_columns`."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = pattern_of(self._frame, None if key == self._full else self._unpack(key))
        return known

    def _unpack(self, key: bytes) -> Bools:
        bits = np.unpackbits(np.frombuffer(key, np.uint8), count=self._frame.time_ms.size)
        return bits.astype(np.bool_)


def pairs_before(values: NDArray[Any], heads: Rows, first: NDArray[Any]) -> NDArray[Any]:
    """Return, for each of some rows that are sorted by series, the value of the sample before it in its series.

    Args:
        values: Shape (columns, rows) or (rows,).
        heads: First row of each series.
        first: What stands before these, shape (columns, series) or (series,).
    """
    before = np.empty_like(values, shape=np.broadcast_shapes(values.shape, (*first.shape[:-1], values.shape[-1])))
    before[..., 1:] = values[..., :-1]
    before[..., heads] = first
    return before


def _covered(time_ms: I64, interval_ms: I64, tails: Rows, end_ms: int) -> I64:
    """Return how long each sample counts: until the next of its series, its interval's end, or the window's end."""
    following = np.empty_like(time_ms)
    following[:-1] = time_ms[1:]
    following[tails] = end_ms
    limit = np.minimum(interval_ms, end_ms - time_ms)
    covered: I64 = np.minimum(limit, following - time_ms)
    return covered


def _starts(numbers: Rows) -> Rows:
    """Return where runs of equal numbers start; `numbers` is not empty."""
    return np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1]).astype(np.intp)


def _of(values: NDArray[Any], rows: Rows | None) -> NDArray[Any]:
    return values if rows is None else values[rows]
