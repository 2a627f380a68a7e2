"""Functions of instant vectors and scalars."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from secondsight.errors import Rejected
from secondsight.promql.histograms import histogram_quantile
from secondsight.promql.matrix import F64, Bools, Labels, Matrix, Value, unique
from secondsight.promql.patterns import replacements, whole

_ELEMENTWISE: dict[str, Callable[[F64], F64]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "sgn": np.sign,
    "sqrt": np.sqrt,
}
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def applied(name: str, arguments: Sequence[Value | str], times_ms: F64) -> Value:
    """Return a function of its arguments, evaluated at these times.

    Raises:
        Rejected(promql_unsupported): The function is not offered.
    """
    with np.errstate(all="ignore"):
        if name in _ELEMENTWISE:
            return _mapped(_matrix(arguments[0]), _ELEMENTWISE[name])
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](arguments, times_ms)
    offered = ", ".join(sorted([*_ELEMENTWISE, *_FUNCTIONS]))
    raise Rejected("promql_unsupported", f"{name}() is not offered", f"of vectors there are {offered}")


def absent(matrix: Matrix, labels: Labels) -> Matrix:
    """Return one series that is there at the steps at which nothing else is."""
    there: Bools = np.logical_not(matrix.there.any(axis=0))[np.newaxis]
    return Matrix([labels], np.ones(there.shape), there).present()


def _matrix(value: Value | str) -> Matrix:
    if not isinstance(value, Matrix):
        raise Rejected("promql_parse", "the function takes a vector")
    return value


def _number(value: Value | str) -> F64:
    if isinstance(value, Matrix | str):
        raise Rejected("promql_parse", "the function takes a number here")
    return value


def _text(value: Value | str) -> str:
    if not isinstance(value, str):
        raise Rejected("promql_parse", "the function takes a text here")
    return value


def _mapped(matrix: Matrix, operation: Callable[[F64], F64]) -> Matrix:
    return unique(matrix.with_values(operation(matrix.values)))


def _clamp(arguments: Sequence[Value | str], _times: F64) -> Value:
    low, high = _number(arguments[1]), _number(arguments[2])
    matrix = _matrix(arguments[0])
    there = matrix.there & ~np.greater(low, high)
    return unique(matrix.with_values(np.minimum(np.maximum(matrix.values, low), high), there)).present()


def _clamp_max(arguments: Sequence[Value | str], _times: F64) -> Value:
    high = _number(arguments[1])
    return _mapped(_matrix(arguments[0]), lambda values: np.minimum(values, high))


def _clamp_min(arguments: Sequence[Value | str], _times: F64) -> Value:
    low = _number(arguments[1])
    return _mapped(_matrix(arguments[0]), lambda values: np.maximum(values, low))


def _round(arguments: Sequence[Value | str], _times: F64) -> Value:
    per_one = 1 / (_number(arguments[1]) if len(arguments) > 1 else np.ones(1))
    return _mapped(_matrix(arguments[0]), lambda values: np.floor(values * per_one + 0.5) / per_one)


def _scalar(arguments: Sequence[Value | str], times_ms: F64) -> Value:
    matrix = _matrix(arguments[0])
    one = matrix.there.sum(axis=0) == 1
    values = np.where(matrix.there, matrix.values, 0.0).sum(axis=0) if matrix.labels else np.zeros(times_ms.size)
    return np.where(one, values, np.nan)


def _vector(arguments: Sequence[Value | str], times_ms: F64) -> Value:
    values = np.broadcast_to(_number(arguments[0]), (1, times_ms.size)).copy()
    return Matrix([{}], values, np.ones(values.shape, np.bool_))


def _sorted(direction: float) -> Callable[[Sequence[Value | str], F64], Value]:
    def order(arguments: Sequence[Value | str], _times: F64) -> Value:
        matrix = _matrix(arguments[0])
        if matrix.values.shape[1] != 1:
            return matrix
        return matrix.chosen(np.argsort(matrix.values[:, 0] * direction, kind="stable"))

    return order


def _histogram_quantile(arguments: Sequence[Value | str], _times: F64) -> Value:
    return histogram_quantile(_number(arguments[0]), _matrix(arguments[1]))


def _label_replace(arguments: Sequence[Value | str], _times: F64) -> Value:
    matrix = _matrix(arguments[0])
    target, replacement, source, pattern = map(_text, arguments[1:5])
    if not LABEL.fullmatch(target):
        raise Rejected("promql_parse", f"{target!r} is no name of a label")
    told = replacements(whole(pattern), replacement, [one.get(source, "") for one in matrix.labels])
    made = [_replaced(one, target, told.get(one.get(source, ""))) for one in matrix.labels]
    return unique(Matrix(made, matrix.values, matrix.there))


def _label_join(arguments: Sequence[Value | str], _times: F64) -> Value:
    matrix = _matrix(arguments[0])
    target, separator, *sources = map(_text, arguments[1:])
    if not LABEL.fullmatch(target):
        raise Rejected("promql_parse", f"{target!r} is no name of a label")
    made = [_labelled(one, target, separator.join(one.get(name, "") for name in sources)) for one in matrix.labels]
    return unique(Matrix(made, matrix.values, matrix.there))


def _replaced(labels: Labels, target: str, value: str | None) -> Labels:
    return labels if value is None else _labelled(labels, target, value)


def _labelled(labels: Labels, target: str, value: str) -> Labels:
    rest = {name: each for name, each in labels.items() if name != target}
    return rest | {target: value} if value else rest


_FUNCTIONS: dict[str, Callable[[Sequence[Value | str], F64], Value]] = {
    "clamp": _clamp,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp_min,
    "histogram_quantile": _histogram_quantile,
    "label_join": _label_join,
    "label_replace": _label_replace,
    "round": _round,
    "scalar": _scalar,
    "sort": _sorted(1.0),
    "sort_desc": _sorted(-1.0),
    "time": lambda _arguments, times_ms: times_ms / 1000,
    "vector": _vector,
}
