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
    for segment in np.flatnonzero(~even).tolist():
        rows = slice(starts[segment], starts[segment] + widths[segment])
        answer[:, segment] = _unevenly_weighted(values[:, rows], weights[rows])
    return answer


def _evenly_weighted(values: Values, starts: Rows, width: int) -> Values:
    rank = (PERCENT * width + 99) // 100 - 1
    columns, rows = values.shape
    if starts.size * width == rows:
        shaped = values.reshape(columns, starts.size, width)
    else:
        shaped = values[:, starts[:, None] + np.arange(width)]
    if width == 1:
        return shaped[..., 0]
    picked: Values = np.partition(shaped, rank, axis=2)[..., rank]
    return picked


def _unevenly_weighted(values: Values, weights: I64) -> Values:
    order = np.argsort(values, axis=1, kind="stable")
    reached = np.cumsum(weights[order], axis=1) * 100 >= PERCENT * int(weights.sum())
    place = np.argmax(reached, axis=1)
    picked: Values = np.take_along_axis(values, np.take_along_axis(order, place[:, None], 1), 1)[:, 0]
    return picked
