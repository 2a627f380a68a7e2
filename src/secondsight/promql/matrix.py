"""Hold the values of an expression: series by steps, with what is there and what is not.

Absent and not-a-number are two things: a division of 0 by 0 is there and is no number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected

NAME = "__name__"

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """An instant vector at each step.

    Attributes:
        labels: Of each series; an empty value is left out.
        values: Shape (series, steps); anything where there is nothing.
        there: The same shape.
    """

    labels: Sequence[Labels]
    values: F64
    there: Bools

    def with_values(self, values: F64, there: Bools | None = None) -> "Matrix":
        """Return the same series with other values and without their name."""
        return Matrix(without_name(self.labels), values, self.there if there is None else there)

    def chosen(self, places: Sequence[int] | NDArray[np.intp]) -> "Matrix":
        """Return some of the series."""
        numbers = [int(place) for place in places]
        return Matrix([self.labels[number] for number in numbers], self.values[numbers], self.there[numbers])

    def present(self) -> "Matrix":
        """Return the series that are there at some step."""
        return self.chosen(np.flatnonzero(self.there.any(axis=1)))


Value = Matrix | F64
"""A vector, or a scalar at each step."""


def nothing(steps: int) -> Matrix:
    """Return a vector without series."""
    return Matrix([], np.zeros((0, steps)), np.zeros((0, steps), np.bool_))


def without_name(labels: Iterable[Mapping[str, str]]) -> list[Labels]:
    """Return labels without the metric's name."""
    return [{name: value for name, value in one.items() if name != NAME} for one in labels]


def unique(matrix: Matrix) -> Matrix:
    """Return the vector with series of the same labels united.

    Raises:
        Rejected(promql_duplicate): Two of them are there at one step.
    """
    places: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for place, one in enumerate(matrix.labels):
        places.setdefault(tuple(sorted(one.items())), []).append(place)
    if len(places) == len(matrix.labels):
        return matrix
    groups = list(places.values())
    for group in groups:
        if matrix.there[group].sum(axis=0).max(initial=0) > 1:
            raise Rejected(
                "promql_duplicate",
                "two series have the same labels once their name is gone",
                "name one metric, or aggregate by the labels that matter",
            )
    values = np.stack([np.where(matrix.there[group], matrix.values[group], 0.0).sum(axis=0) for group in groups])
    there = np.stack([matrix.there[group].any(axis=0) for group in groups])
    return Matrix([matrix.labels[group[0]] for group in groups], values, there)
