"""Combine two values: arithmetic, comparisons, and sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from secondsight.errors import Rejected
from secondsight.promql.matrix import F64, NAME, Bools, Labels, Matrix, Value, nothing, unique

_Key = tuple[tuple[str, str], ...]

ARITHMETIC: dict[str, Callable[[F64, F64], F64]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS: dict[str, Callable[[F64, F64], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}


@dataclass(frozen=True, slots=True)
class Matching:
    """How series of two vectors find each other.

    Attributes:
        names: Labels to match on, or with `is_on` false those to leave out.
        many: Which side may have several series for one of the other: "", "left" or "right".
        included: Labels that those take from the other side.
    """

    names: tuple[str, ...] = ()
    is_on: bool = False
    many: str = ""
    included: tuple[str, ...] = ()

    def key(self, labels: Labels) -> _Key:
        """Return what two series that match have in common."""
        chosen = frozenset(self.names)
        return tuple(sorted((n, v) for n, v in labels.items() if (n in chosen) == self.is_on and n != NAME))


def combined(operator: str, left: Value, right: Value, matching: Matching, *, as_bool: bool) -> Value:
    """Return what an operator makes of two values.

    Raises:
        Rejected(promql_matching): Several series match where one may.
        Rejected(promql_unsupported): The operator is not offered.
    """
    if operator in ("and", "or", "unless"):
        return _of_sets(operator, _vector(left), _vector(right), matching)
    if operator not in ARITHMETIC and operator not in COMPARISONS:
        raise Rejected("promql_unsupported", f"the operator {operator} is not offered")
    with np.errstate(all="ignore"):
        if isinstance(left, Matrix) and isinstance(right, Matrix):
            return _of_vectors(operator, left, right, matching, as_bool)
        if isinstance(left, Matrix):
            return _of_one(operator, left, (left.values, np.asarray(right)), as_bool)
        if isinstance(right, Matrix):
            return _of_one(operator, right, (np.asarray(left), right.values), as_bool)
        made = ARITHMETIC.get(operator) or COMPARISONS[operator]
        return np.asarray(made(left, right), np.float64)


def _vector(value: Value) -> Matrix:
    if isinstance(value, Matrix):
        return value
    raise Rejected("promql_parse", "and, or and unless combine vectors, and one side is a number")


def _of_one(operator: str, vector: Matrix, sides: tuple[F64, F64], as_bool: bool) -> Matrix:
    """Return a vector against a scalar; a comparison without bool keeps what fulfils it, and its value."""
    if operator in ARITHMETIC:
        return unique(vector.with_values(ARITHMETIC[operator](*sides)))
    fulfils = COMPARISONS[operator](*sides)
    if as_bool:
        return unique(vector.with_values(fulfils.astype(np.float64)))
    return Matrix(vector.labels, vector.values, vector.there & fulfils).present()


def _of_vectors(operator: str, left: Matrix, right: Matrix, matching: Matching, as_bool: bool) -> Matrix:
    many, one = (right, left) if matching.many == "right" else (left, right)
    others = _others(one, matching)
    pairs = [(mine, others[key]) for mine, labels in enumerate(many.labels) if (key := matching.key(labels)) in others]
    if not pairs:
        return nothing(left.values.shape[1])
    mine, theirs = (np.array(side, np.intp) for side in zip(*pairs, strict=True))
    if not matching.many:
        _require_one(many, [matching.key(many.labels[place]) for place in mine.tolist()], mine.tolist())
    values = many.values[mine], one.values[theirs]
    there = many.there[mine] & one.there[theirs]
    sides = values[::-1] if matching.many == "right" else values
    keeps_name = operator in COMPARISONS and not as_bool
    labels = [_labels(many.labels[m], one.labels[t], matching, keeps_name) for m, t in pairs]
    if operator in ARITHMETIC:
        return unique(Matrix(labels, ARITHMETIC[operator](*sides), there)).present()
    fulfils = COMPARISONS[operator](*sides)
    if as_bool:
        return unique(Matrix(labels, fulfils.astype(np.float64), there)).present()
    return unique(Matrix(labels, sides[0], there & fulfils)).present()


def _others(one: Matrix, matching: Matching) -> dict[_Key, int]:
    """Return the place of each series of the side that has one for every match."""
    keys = [matching.key(labels) for labels in one.labels]
    _require_one(one, keys, list(range(len(keys))))
    return {key: place for place, key in enumerate(keys)}


def _require_one(side: Matrix, keys: Sequence[_Key], places: Sequence[int]) -> None:
    seen: dict[_Key, int] = {}
    for key, place in zip(keys, places, strict=True):
        other = seen.setdefault(key, place)
        if other != place and (side.there[other] & side.there[place]).any():
            raise Rejected(
                "promql_matching",
                f"several series match on {dict(key)}",
                "match on more labels with on(), or say group_left or group_right",
            )


def _labels(many: Labels, one: Labels, matching: Matching, keeps_name: bool) -> Labels:
    if matching.many:
        kept = {n: v for n, v in many.items() if (keeps_name or n != NAME) and n not in matching.included}
        return kept | {n: one[n] for n in matching.included if n in one}
    if keeps_name:
        return {n: v for n, v in many.items() if (n in matching.names) == matching.is_on}
    return dict(matching.key(many))


def _of_sets(operator: str, left: Matrix, right: Matrix, matching: Matching) -> Matrix:
    mine, theirs = _presence(left, matching), _presence(right, matching)
    never = np.zeros(left.values.shape[1], np.bool_)
    if operator == "or":
        there = [
            right.there[place] & ~mine.get(key, never) for place, key in enumerate(map(matching.key, right.labels))
        ]
        rest = np.array(there, np.bool_).reshape(right.there.shape)
        values, present = np.concatenate([left.values, right.values]), np.concatenate([left.there, rest])
        return unique(Matrix([*left.labels, *right.labels], values, present)).present()
    other = np.array([theirs.get(matching.key(labels), never) for labels in left.labels], np.bool_)
    other = other.reshape(left.there.shape)
    return Matrix(left.labels, left.values, left.there & (other if operator == "and" else ~other)).present()


def _presence(side: Matrix, matching: Matching) -> dict[_Key, Bools]:
    found: dict[_Key, Bools] = {}
    for place, labels in enumerate(side.labels):
        key = matching.key(labels)
        found[key] = found[key] | side.there[place] if key in found else side.there[place]
    return found
