"""Turn weighted values into their exact 95th percentile by nearest rank: the least value whose share reaches 95 %."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]
PERCENT = 95


def weighted_p95(values: Values, weights: I64, starts: Rows, widths: Rows) -> Values:
    """Return the percentile of each segment.

    Args:
        values: Shape (columns, rows), sorted by segment.
        weights: Shape (rows,), > 0.
        starts: First row of each segment.
        widths: Number of rows of each segment.

    Returns:
        Shape (columns, segments).
    """
    answer = np.empty((values.shape[0], starts.size), values.dtype)
    least = np.minimum.reduceat(weights, starts)
    even = least == np.maximum.reduceat(weights, starts)
    for width in np.unique(widths[even]).tolist():
        chosen = np.flatnonzero(even & (widths == width))
        answer[:, chosen] = _evenly_weighted(values, starts[chosen], width)
    for width in np.unique(widths[~even]).tolist():
        chosen = np.flatnonzero(~even & (widths == width))
        answer[:, chosen] = _unevenly_weighted(values, weights, starts[chosen], width)
    return answer


def _evenly_weighted(values: Values, starts: Rows, width: int) -> Values:
    rank = (PERCENT * width + 99) // 100 - 1
    shaped = _shaped(values, starts, width)
    if width == 1:
        return shaped[..., 0]
    picked: Values = np.partition(shaped, rank, axis=2)[..., rank]
    return picked


def _shaped(values: Values, starts: Rows, width: int) -> Values:
    """Return segments of equally many rows, shape (columns, segments, rows)."""
    columns, rows = values.shape
    if starts.size * width == rows:
        return values.reshape(columns, starts.size, width)
    taken: Values = values[:, starts[:, None] + np.arange(width)]
    return taken


def _unevenly_weighted(values: Values, weights: I64, starts: Rows, width: int) -> Values:
    """Look from the greatest value down for the last one above which lies no more than the rest of the weight."""
    weight = weights[starts[:, None] + np.arange(width)]
    allowed = (100 - PERCENT) * weight.sum(axis=1)
    looked_at = int(np.minimum(_count_within(np.sort(weight, axis=1), allowed) + 1, width).max())
    shaped = _shaped(values, starts, width)
    top = np.stack([_greatest(column, looked_at) for column in shaped])
    above = np.take_along_axis(np.broadcast_to(weight, shaped.shape), top, 2)
    place = np.minimum(_count_within(above, allowed), looked_at - 1)
    picked = np.take_along_axis(top, place[..., None], 2)
    answer: Values = np.take_along_axis(shaped, picked, 2)[..., 0]
    return answer


def _count_within(weight: I64, allowed: I64) -> I64:
    """Return how many of the first weights of a segment are together at most what is allowed, in hundredths."""
    counted: I64 = (np.cumsum(weight, axis=-1) * 100 <= allowed[:, None]).sum(axis=-1)
    return counted


def _greatest(column: Values, count: int) -> Rows:
    """Return where the greatest values of each segment stand, greatest first; equal ones in any order.

    Args:
        column: Shape (segments, rows).
        count: How many of them.
    """
    width = column.shape[1]
    bits = width.bit_length()
    if column.dtype.kind == "f" or max(int(column.max()), -int(column.min())) >> (62 - bits):
        return np.argsort(column, axis=1)[:, : -count - 1 : -1]
    keys = np.sort(column.astype(np.int64) << np.int64(bits) | np.arange(width), axis=1)
    places: Rows = keys[:, : -count - 1 : -1] & ((1 << bits) - 1)
    return places
