"""Quantiles of histograms whose buckets are series by `le`, by the rules of Prometheus."""

from collections.abc import Sequence

import numpy as np

from secondsight.promql.buckets import LE, bound_of
from secondsight.promql.matrix import F64, NAME, Bools, Labels, Matrix


def histogram_quantile(shares: F64, matrix: Matrix) -> Matrix:
    """Return a quantile of each histogram: of the series that differ in `le` alone. `shares` is one at each step."""
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    for place, one in enumerate(matrix.labels):
        bound = bound_of(one.get(LE, ""))
        if bound is not None:
            groups.setdefault(_rest(one), []).append((bound, place))
    steps = matrix.values.shape[1]
    values, there = np.full((len(groups), steps), np.nan), np.zeros((len(groups), steps), np.bool_)
    for row, buckets in enumerate(groups.values()):
        bounds, places = np.array([bound for bound, _ in buckets]), [place for _, place in buckets]
        there[row] = matrix.there[places].any(axis=0)
        values[row] = _of_group(shares, bounds, matrix.values[places], matrix.there[places])
    return Matrix([dict(key) for key in groups], values, there).present()


def _rest(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if name not in (LE, NAME)))


def _of_group(shares: F64, bounds: F64, counts: F64, there: Bools) -> F64:
    """Return the quantile at each step, of the buckets that are there at it."""
    found = np.full(shares.size, np.nan)
    patterns, which = np.unique(there, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        steps, rows = np.flatnonzero(which.ravel() == number), np.flatnonzero(patterns[:, number])
        if rows.size:
            found[steps] = quantiles(shares[steps], bounds[rows], counts[np.ix_(rows, steps)])
    return found


def quantiles(shares: F64, bounds: Sequence[float] | F64, counts: F64) -> F64:
    """Return the quantile at each step of buckets of these upper bounds, `counts` of shape (bounds, steps).

    A bound that is there twice is one bucket, and no bucket holds less than those below it.
    """
    edges, which = np.unique(bounds, return_inverse=True)
    below = np.zeros((edges.size, shares.size))
    np.add.at(below, which.ravel(), counts)
    below = np.fmax.accumulate(below, axis=0)
    if edges.size < 2 or not np.isposinf(edges[-1]):
        inside = np.full(shares.size, np.nan)
    else:
        with np.errstate(all="ignore"):
            inside = _inside(shares, edges, below)
    beyond = np.where(shares < 0, -np.inf, np.where(shares > 1, np.inf, inside))
    found: F64 = np.where(np.isnan(shares), np.nan, beyond)
    return found


def _inside(shares: F64, edges: F64, below: F64) -> F64:
    """Return the place of each rank on a straight line through its bucket; in the last one, the bound below it."""
    steps = np.arange(shares.size)
    rank = shares * below[-1]
    place = (below[:-1] < rank).sum(axis=0)
    start = np.where(place > 0, edges[place - 1], 0.0)
    before = np.where(place > 0, below[place - 1, steps], 0.0)
    on_line = start + (edges[place] - start) * ((rank - before) / (below[place, steps] - before))
    found = np.where((place == 0) & (edges[0] <= 0), edges[0], on_line)
    found = np.where(place == edges.size - 1, edges[-2], found)
    return np.where(below[-1] > 0, found, np.nan)
