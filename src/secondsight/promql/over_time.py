"""Evaluate selectors, and functions of ranges, from windows on a grid."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secondsight.errors import Rejected
from secondsight.promql import samples
from secondsight.promql.matrix import F64, I64, Bools, Matrix, unique, without_name
from secondsight.promql.read import Reader, Wanted, Windows
from secondsight.query.aggregates import QUANTILES, Aggregate

_SECONDS_PER_MS = 1e-3


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of the range behind each instant.

    Attributes:
        reads: Aggregates of windows that it needs.
        evaluate: What it makes of them, shape (series, instants), NaN where there is nothing.
        meant: An aggregate that has to have a meaning for the metric without being read.
    """

    name: str
    reads: tuple[Aggregate, ...]
    evaluate: Callable[[Windows, Wanted], F64]
    meant: Aggregate | None = None
    keeps_name: bool = False


def latest(reader: Reader, wanted: Wanted) -> Matrix:
    """Return the newest value of each series at each instant, no older than the range."""
    return _each(reader, wanted, _Function("the value", (Aggregate.LAST,), _last, keeps_name=True))


def newest_times(reader: Reader, wanted: Wanted) -> Matrix:
    """Return of when the newest value of each series is, in epoch seconds; it looks at single seconds."""

    def evaluate(windows: Windows, wanted: Wanted) -> F64:
        ends = windows.ends_ms * _SECONDS_PER_MS
        return _last_of(np.where(np.isnan(windows.figures[Aggregate.LAST]), np.nan, ends), windows, wanted)

    return _each(reader, replace(wanted, by_second=True), _Function("timestamp", (Aggregate.LAST,), evaluate))


def over_time(reader: Reader, name: str, wanted: Wanted) -> Matrix:
    """Return a function of the range behind each instant.

    Raises:
        Rejected(promql_unsupported): The function has no meaning for a metric of this type, or is not offered.
    """
    if name in samples.OF_SECONDS:
        meant, function = samples.OF_SECONDS[name]
        return _of_seconds(reader, wanted, name, function, meant)
    if name not in _FUNCTIONS:
        others = ("absent_over_time", "predict_linear", "quantile_over_time")
        offered = ", ".join(sorted([*_FUNCTIONS, *samples.OF_SECONDS, *others]))
        raise Rejected("promql_unsupported", f"{name}() is not offered", f"of ranges there are {offered}")
    reads, evaluate = _FUNCTIONS[name]
    return _each(reader, wanted, _Function(name, reads, evaluate, keeps_name=name == "last_over_time"))


def quantile_over_time(reader: Reader, share: float, wanted: Wanted) -> Matrix:
    """Return a quantile of the seconds in the range behind each instant.

    Raises:
        Rejected(promql_unsupported): It would need too many seconds, or percentiles that are not kept.
    """
    kept = {share: aggregate for aggregate, share in QUANTILES.items()}
    if reader.steps.is_single and share in kept:
        aggregate = kept[share]
        return _each(
            reader,
            wanted,
            _Function("quantile_over_time", (aggregate,), lambda windows, _: windows.figures[aggregate]),
        )
    return _of_seconds(reader, wanted, "quantile_over_time", samples.quantile(share), Aggregate.AVG)


def predict_linear(reader: Reader, ahead_seconds: float, wanted: Wanted) -> Matrix:
    """Return the value at a time after each instant, by the line through the seconds in the range behind it.

    Raises:
        Rejected(promql_unsupported): As `over_time`, or it would need too many seconds.
    """
    return _of_seconds(reader, wanted, "predict_linear", samples.predicted(ahead_seconds), Aggregate.AVG)


def _of_seconds(reader: Reader, wanted: Wanted, name: str, function: samples.Function, meant: Aggregate) -> Matrix:
    def evaluate(windows: Windows, wanted: Wanted) -> F64:
        values = windows.figures[Aggregate.LAST]
        return samples.at_each(function, values, windows.ends_ms, reader.steps.times_ms, _bounds(windows, wanted))

    return _each(reader, replace(wanted, by_second=True), _Function(name, (Aggregate.LAST,), evaluate, meant))


def _each(reader: Reader, wanted: Wanted, function: _Function) -> Matrix:
    """Evaluate every metric that the selector names, and put their series together."""
    steps = reader.steps.times_ms.size
    labels, values = [], [np.zeros((0, steps))]
    for reading in reader.readings(wanted.name, wanted.matchers):
        legal = reading.aggregates
        needed = function.reads if function.meant is None else (*function.reads, function.meant)
        if not set(needed) <= set(legal):
            message = f"{function.name} of {reading.name} has no meaning: it is a {reading.metric.type.value}"
            raise Rejected("promql_unsupported", message, f"it has {', '.join(legal)}")
        windows = reader.windows(wanted, reading, function.reads)
        labels += windows.labels
        values.append(function.evaluate(windows, wanted))
    together = np.concatenate(values)
    found = Matrix(labels if function.keeps_name else without_name(labels), together, ~np.isnan(together))
    return unique(found).present()


def _bounds(windows: Windows, wanted: Wanted) -> tuple[I64, I64]:
    """Return the first window that each instant sees, and the one behind its last."""
    ends = windows.ends_ms
    starts = np.searchsorted(ends, wanted.times_ms - windows.range_ms, side="right")
    return starts.astype(np.int64), np.searchsorted(ends, wanted.times_ms, side="right").astype(np.int64)


def _reduced(operation: Any, figures: F64, windows: Windows, wanted: Wanted) -> F64:
    """Return an operation over the windows that each instant sees; a figure of NaN is none."""
    starts, stops = _bounds(windows, wanted)
    padded = np.concatenate([figures, np.full((figures.shape[0], 1), np.nan)], axis=1)
    edges = np.stack([starts, stops], axis=1).ravel()
    there = ~np.isnan(padded)
    filled = np.where(there, padded, 0.0) if operation is np.add else padded
    found: F64 = operation.reduceat(filled, edges, axis=1)[:, ::2]
    seen = np.add.reduceat(there.astype(np.int64), edges, axis=1)[:, ::2] > 0
    return np.where(seen & (stops > starts), found, np.nan)


def _sum(windows: Windows, wanted: Wanted, figures: F64) -> F64:
    return _reduced(np.add, figures, windows, wanted)


def _last(windows: Windows, wanted: Wanted) -> F64:
    return _last_of(windows.figures[Aggregate.LAST], windows, wanted)


def _last_of(figures: F64, windows: Windows, wanted: Wanted) -> F64:
    starts, stops = _bounds(windows, wanted)
    if not figures.shape[1]:
        return np.full((figures.shape[0], starts.size), np.nan)
    places = np.where(np.isnan(figures), -1, np.arange(figures.shape[1]))
    newest = np.maximum.accumulate(places, axis=1)[:, np.maximum(stops - 1, 0)]
    seen = (newest >= starts) & (stops > 0)
    return np.where(seen, np.take_along_axis(figures, np.maximum(newest, 0), axis=1), np.nan)


def _mean(windows: Windows, wanted: Wanted) -> F64:
    weights = windows.figures[Aggregate.COUNT]
    return _sum(windows, wanted, windows.figures[Aggregate.AVG] * weights) / _sum(windows, wanted, weights)


def _total(windows: Windows, wanted: Wanted) -> F64:
    return _sum(windows, wanted, windows.figures[Aggregate.AVG] * windows.figures[Aggregate.COUNT])


def _rate(windows: Windows, wanted: Wanted) -> F64:
    """Return increase by the seconds that its pairs span, so that a gap inflates nothing."""
    increases = windows.figures[Aggregate.INCREASE]
    seconds = windows.spans_ms * _SECONDS_PER_MS if windows.spans_ms is not None else _seconds(windows)
    return _sum(windows, wanted, increases) / _sum(windows, wanted, np.where(np.isnan(increases), np.nan, seconds))


def _seconds(windows: Windows) -> F64:
    """Return the seconds that increases took, by what they are a second; of none, the window's own."""
    increases, rates = windows.figures[Aggregate.INCREASE], windows.figures[Aggregate.RATE]
    with np.errstate(all="ignore"):
        found: F64 = np.where(rates > 0, increases / rates, windows.width_ms * _SECONDS_PER_MS)
    return found


def _of(aggregate: Aggregate, operation: Any = np.add) -> Callable[[Windows, Wanted], F64]:
    return lambda windows, wanted: _reduced(operation, windows.figures[aggregate], windows, wanted)


def _present(windows: Windows, wanted: Wanted) -> F64:
    seen: Bools = ~np.isnan(_last(windows, wanted))
    return np.where(seen, 1.0, np.nan)


_FUNCTIONS: dict[str, tuple[tuple[Aggregate, ...], Callable[[Windows, Wanted], F64]]] = {
    "avg_over_time": ((Aggregate.AVG, Aggregate.COUNT), _mean),
    "changes": ((Aggregate.CHANGES,), _of(Aggregate.CHANGES)),
    "count_over_time": ((Aggregate.COUNT,), _of(Aggregate.COUNT)),
    "increase": ((Aggregate.INCREASE,), _of(Aggregate.INCREASE)),
    "last_over_time": ((Aggregate.LAST,), _last),
    "max_over_time": ((Aggregate.MAX,), _of(Aggregate.MAX, np.fmax)),
    "min_over_time": ((Aggregate.MIN,), _of(Aggregate.MIN, np.fmin)),
    "present_over_time": ((Aggregate.LAST,), _present),
    "rate": ((Aggregate.INCREASE, Aggregate.RATE), _rate),
    "resets": ((Aggregate.RESETS,), _of(Aggregate.RESETS)),
    "sum_over_time": ((Aggregate.AVG, Aggregate.COUNT), _total),
}
"""Name -> (figures of windows that it needs, what it makes of them)."""
