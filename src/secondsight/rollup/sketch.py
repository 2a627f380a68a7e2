"""A quantile sketch that merges by adding: weights by bin (`store/bins.py`)."""

import numpy as np
from numpy.typing import NDArray

from secondsight.store.bins import Bins

I64 = NDArray[np.int64]
Rows = NDArray[np.intp]

DENSE_CELLS = 4
"""Cells of a table that adding up may cost for each value; where there would be more, values are sorted."""


def gather(groups: Rows, bins: Bins, weights: I64, count: int) -> tuple[I64, Bins, I64]:
    """Add up weights by group and bin.

    Args:
        groups: Group of each value, 0 to `count` - 1.
        bins: Bin of each.
        weights: Weight of each, more than 0.
        count: Number of groups.

    Returns:
        (offsets of each group, bins ascending within a group, weights).
    """
    if bins.size:
        low = int(bins.min())
        width = int(bins.max()) - low + 1
        if count * width <= DENSE_CELLS * bins.size:
            return _gather_densely(groups * width + (bins - low), weights, (count, width), low)
    keys = groups.astype(np.int64) << 16 | (bins.astype(np.int64) + 32768)
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    if not starts.size:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64)
    distinct = ranked[starts]
    offsets = np.searchsorted(distinct >> 16, np.arange(count + 1))
    return offsets, ((distinct & 0xFFFF) - 32768).astype(np.int16), np.add.reduceat(weights[order], starts)


def _gather_densely(cells: I64, weights: I64, shape: tuple[int, int], low: int) -> tuple[I64, Bins, I64]:
    """Add up weights in a table of all groups and bins; weights of a cell stay below 2^53."""
    count, width = shape
    table = np.bincount(cells, weights, count * width).astype(np.int64)
    filled = np.flatnonzero(table)
    offsets = np.searchsorted(filled, np.arange(count + 1) * width)
    return offsets, (filled % width + low).astype(np.int16), table[filled]


def quantile_bins(offsets: I64, bins: Bins, weights: I64, percent: int) -> tuple[Bins, NDArray[np.bool_]]:
    """Return the bin of a percentile of each group by nearest rank, and which groups have any weight."""
    known = np.diff(offsets) > 0
    answer = np.zeros(known.size, np.int16)
    if not known.any():
        return answer, known
    heads, tails = offsets[:-1][known], offsets[1:][known]
    running = np.cumsum(weights)
    before = running[heads] - weights[heads]
    total = running[tails - 1] - before
    wanted = before + -(-total * percent // 100)
    place = np.searchsorted(running, wanted)
    answer[known] = bins[place]
    return answer, known
