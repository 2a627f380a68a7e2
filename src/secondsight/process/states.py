"""Turn the values of a state over a window into milliseconds per value, or per bit of a bitmask."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]
Durations = Iterator[tuple[Rows, str | Sequence[str], I64]]


def state_durations(name: str, values: Values, weights: I64, starts: Rows, ends: Rows) -> Durations:
    """Yield (segments, key `name=value`, milliseconds), each segment and value once.

    Args:
        name: Metric.
        values: Shape (rows,), sorted by segment.
        weights: Milliseconds that each row covers.
        starts: First row of each segment.
        ends: Last row of each segment.
    """
    least = np.minimum.reduceat(values, starts)
    steady = least == np.maximum.reduceat(values, starts)
    total = np.add.reduceat(weights, starts)
    for value in np.unique(least[steady]).tolist():
        segments = np.flatnonzero(steady & (least == value))
        yield segments, f"{name}={value}", total[segments]
    for segment in np.flatnonzero(~steady).tolist():
        rows = slice(starts[segment], ends[segment] + 1)
        seen, which = np.unique(values[rows], return_inverse=True)
        sums = np.bincount(which, weights[rows]).astype(np.int64)
        yield np.full(seen.size, segment), [f"{name}={value}" for value in seen.tolist()], sums


def bit_durations(name: str, values: Values, weights: I64, starts: Rows, ends: Rows) -> Durations:  # noqa: ARG001
    """Yield (segments, key `name&bit`, milliseconds with that bit set), bit being its value: 1, 2, 4, 8."""
    union = int(np.bitwise_or.reduce(values))
    for number in range(union.bit_length()):
        bit = 1 << number
        if union & bit:
            milliseconds = np.add.reduceat(np.where(values & values.dtype.type(bit), weights, 0), starts)
            segments = np.flatnonzero(milliseconds)
            yield segments, f"{name}&{bit}", milliseconds[segments]
