"""Aggregate a vector over some of its labels."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected
from secondsight.promql.answer import figure
from secondsight.promql.matrix import F64, NAME, Bools, Labels, Matrix

_Reduce = Callable[[F64, Bools], F64]
VALUES_MAXIMUM = 10_000


def aggregated(name: str, matrix: Matrix, names: Sequence[str], *, keeps: bool) -> Matrix:
    """Return one series per group.

    `names` are the labels that tell groups apart, or with `keeps` false those that do not.

    Raises:
        Rejected(promql_unsupported): The operator is not offered.
    """
    if name not in _REDUCTIONS:
        raise Rejected("promql_unsupported", f"{name} is not offered", f"there are {', '.join(sorted(OFFERED))}")
    return _by_group(matrix, names, keeps, _REDUCTIONS[name])


def quantile(share: float, matrix: Matrix, names: Sequence[str], *, keeps: bool) -> Matrix:
    """Return a quantile over each group, between two values where it falls between them."""

    def reduce(values: F64, there: Bools) -> F64:
        if share < 0 or share > 1:
            return np.full(values.shape[1], np.inf if share > 1 else -np.inf)
        found = np.full(values.shape[1], np.nan)
        some = there.any(axis=0)
        found[some] = np.nanquantile(np.where(there, values, np.nan)[:, some], share, axis=0)
        return found

    return _by_group(matrix, names, keeps, reduce)


def count_values(label: str, matrix: Matrix, names: Sequence[str], *, keeps: bool) -> Matrix:
    """Return, for each group and each value that is there, how many series have it, the value as a label.

    Raises:
        Rejected(promql_unsupported): There are too many values.
    """
    found: dict[tuple[tuple[str, str], ...], F64] = {}
    steps = matrix.values.shape[1]
    for labels, places in _groups(matrix.labels, names, keeps):
        values, there = matrix.values[places], matrix.there[places]
        for value in np.unique(values[there]):
            same = there & ((values == value) | (np.isnan(value) & np.isnan(values)))
            told = {} if label in names and not keeps else {label: figure(float(value))}
            key = tuple(sorted((labels | told).items()))
            found[key] = found.get(key, np.zeros(steps)) + same.sum(axis=0)
            if len(found) > VALUES_MAXIMUM:
                message = f"count_values finds over {VALUES_MAXIMUM} values"
                raise Rejected("promql_unsupported", message, "round them first")
    counts = np.array(list(found.values())).reshape(len(found), steps)
    return Matrix([dict(key) for key in found], counts, counts > 0)


def ranked(count: int, matrix: Matrix, names: Sequence[str], *, keeps: bool, highest: bool) -> Matrix:
    """Return the series that rank first in their group, at each step by itself, highest first."""
    there = np.zeros_like(matrix.there)
    for _, places in _groups(matrix.labels, names, keeps):
        figures = np.where(matrix.there[places], matrix.values[places] * (-1.0 if highest else 1.0), np.inf)
        order = np.argsort(np.where(np.isnan(figures), np.inf, figures), axis=0, kind="stable")[: max(count, 0)]
        chosen = np.zeros(figures.shape, np.bool_)
        np.put_along_axis(chosen, order, values=True, axis=0)
        there[places] = chosen & matrix.there[places]
    found = Matrix(matrix.labels, matrix.values, there).present()
    if not found.labels or found.there.shape[1] > 1:
        return found
    order = np.argsort(found.values[:, 0] * (-1.0 if highest else 1.0), kind="stable")
    return found.chosen(order)


def _by_group(matrix: Matrix, names: Sequence[str], keeps: bool, reduce: _Reduce) -> Matrix:
    groups = _groups(matrix.labels, names, keeps)
    steps = matrix.values.shape[1]
    values, there = np.zeros((len(groups), steps)), np.zeros((len(groups), steps), np.bool_)
    for row, (_, places) in enumerate(groups):
        mine = matrix.there[places]
        values[row], there[row] = reduce(matrix.values[places], mine), mine.any(axis=0)
    return Matrix([labels for labels, _ in groups], values, there)


def _groups(labels: Sequence[Labels], names: Sequence[str], keeps: bool) -> list[tuple[Labels, NDArray[np.intp]]]:
    """Return the labels of each group with the places of its series."""
    chosen = frozenset(names)
    found: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for place, one in enumerate(labels):
        kept = ((n, v) for n, v in one.items() if (n in chosen) == keeps and (keeps or n != NAME))
        found.setdefault(tuple(sorted(kept)), []).append(place)
    return [(dict(key), np.array(places, np.intp)) for key, places in found.items()]


def _sum(values: F64, there: Bools) -> F64:
    total: F64 = np.where(there, values, 0.0).sum(axis=0)
    return total


def _count(_values: F64, there: Bools) -> F64:
    count: F64 = there.sum(axis=0).astype(np.float64)
    return count


def _mean(values: F64, there: Bools) -> F64:
    return _sum(values, there) / np.maximum(_count(values, there), 1.0)


def _deviation(values: F64, there: Bools) -> F64:
    return _sum((values - _mean(values, there)) ** 2, there) / np.maximum(_count(values, there), 1.0)


def _extreme(operation: np.ufunc) -> _Reduce:
    def reduce(values: F64, there: Bools) -> F64:
        found: F64 = operation.reduce(np.where(there, values, np.nan), axis=0)
        return found

    return reduce


_REDUCTIONS: dict[str, _Reduce] = {
    "avg": _mean,
    "count": _count,
    "group": lambda values, _there: np.ones(values.shape[1]),
    "max": _extreme(np.fmax),
    "min": _extreme(np.fmin),
    "stddev": lambda values, there: np.sqrt(_deviation(values, there)),
    "stdvar": _deviation,
    "sum": _sum,
}
OFFERED = frozenset(_REDUCTIONS) | {"count_values", "quantile", "topk", "bottomk"}
