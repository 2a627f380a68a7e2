"""Write values the way Prometheus' HTTP API does."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from secondsight.promql.matrix import I64, Matrix, Value


def instant(value: Value | str, times_ms: I64) -> dict[str, Any]:
    """Return the data of an answer about one instant."""
    at = _seconds(int(times_ms[0]))
    if isinstance(value, str):
        return {"resultType": "string", "result": [at, value]}
    if not isinstance(value, Matrix):
        return {"resultType": "scalar", "result": [at, figure(float(value[0]))]}
    rows = [
        {"metric": labels, "value": [at, figure(float(value.values[place, 0]))]}
        for place, labels in enumerate(value.labels)
        if value.there[place, 0]
    ]
    return {"resultType": "vector", "result": rows}


def ranged(value: Value | str, times_ms: I64) -> dict[str, Any]:
    """Return the data of an answer about many instants; a scalar is one series without labels."""
    if isinstance(value, str):
        value = Matrix([], np.zeros((0, times_ms.size)), np.zeros((0, times_ms.size), np.bool_))
    if not isinstance(value, Matrix):
        value = Matrix([{}], value[np.newaxis], np.ones((1, times_ms.size), np.bool_))
    times = [_seconds(time_ms) for time_ms in times_ms.tolist()]
    rows = [
        {"metric": labels, "values": _points(times, value.values[place].tolist(), value.there[place].tolist())}
        for place, labels in enumerate(value.labels)
    ]
    return {"resultType": "matrix", "result": [row for row in rows if row["values"]]}


def figure(value: float) -> str:
    """Return a number as text: the shortest that means it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")


def _points(times: Sequence[float], values: Sequence[float], there: Sequence[bool]) -> list[list[float | str]]:
    return [[at, figure(value)] for at, value, is_there in zip(times, values, there, strict=True) if is_there]


def _seconds(time_ms: int) -> float:
    return time_ms // 1000 if time_ms % 1000 == 0 else time_ms / 1000
