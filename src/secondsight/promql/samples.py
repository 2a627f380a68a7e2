"""Functions of the single samples in the range behind each instant: seconds, or steps of a subquery."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from secondsight.errors import Rejected
from secondsight.promql.matrix import F64, I64
from secondsight.query.aggregates import Aggregate

CELLS_MAXIMUM = 20_000_000

Function = Callable[[F64, F64], F64]
"""Seconds from the step to each sample, shape (samples,), and values (series, samples), NaN where there is none; to a
figure of each series that has a value at all, NaN where it has too few."""


def at_each(function: Function, figures: F64, ends_ms: I64, times_ms: I64, bounds: tuple[I64, I64]) -> F64:
    """Return a function's figures at `times_ms`, shape (series, steps); `bounds` are the samples that each step sees.

    With an offset these are of another time than the step is.

    Raises:
        Rejected(promql_unsupported): It would look at too many samples.
    """
    starts, stops = bounds
    if int((stops - starts).sum()) * figures.shape[0] > CELLS_MAXIMUM:
        message = "the function would look at too many samples"
        raise Rejected("promql_unsupported", message, "name fewer GPUs, a shorter range or wider steps")
    found = np.full((figures.shape[0], starts.size), np.nan)
    with np.errstate(all="ignore"):
        for step, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            seen = figures[:, start:stop]
            rows = np.flatnonzero(~np.isnan(seen).all(axis=1))
            if rows.size:
                found[rows, step] = function((ends_ms[start:stop] - times_ms[step]) / 1000, seen[rows])
    return found


def quantile(share: float) -> Function:
    """Return the function that takes a quantile; shares beyond 0 and 1 give infinities, as they do in Prometheus."""

    def taken(_seconds: F64, values: F64) -> F64:
        if not 0 <= share <= 1:
            return np.full(values.shape[0], np.inf if share > 1 else -np.inf)
        ordered, rows = np.sort(values, axis=1), np.arange(values.shape[0])
        last = (~np.isnan(values)).sum(axis=1) - 1
        place = share * last
        low = np.floor(place).astype(np.intp)
        below, above, weight = ordered[rows, low], ordered[rows, np.minimum(low + 1, last)], place - low
        found: F64 = np.where(weight > 0, below * (1 - weight) + above * weight, below)
        return found

    return taken


def predicted(ahead_seconds: float) -> Function:
    """Return the function that extends the line of least squares so far beyond the step."""

    def taken(seconds: F64, values: F64) -> F64:
        slope, level = _line(seconds, values)
        return level + slope * ahead_seconds

    return taken


def _line(seconds: F64, values: F64) -> tuple[F64, F64]:
    """Return slope by second and level at the step of the line of least squares."""
    there = ~np.isnan(values)
    count = there.sum(axis=1)
    x = np.where(there, seconds, 0.0)
    x_mean = x.sum(axis=1) / count
    y_mean = np.where(there, values, 0.0).sum(axis=1) / count
    x_away = np.where(there, seconds - x_mean[:, np.newaxis], 0.0)
    y_away = np.where(there, values - y_mean[:, np.newaxis], 0.0)
    slope = np.where(count > 1, (x_away * y_away).sum(axis=1) / (x_away**2).sum(axis=1), np.nan)
    return slope, y_mean - slope * x_mean


def _slope(seconds: F64, values: F64) -> F64:
    return _line(seconds, values)[0]


def _delta(_seconds: F64, values: F64) -> F64:
    there = ~np.isnan(values)
    rows, last = np.arange(values.shape[0]), values.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    return np.where(there.sum(axis=1) > 1, values[rows, last] - values[rows, there.argmax(axis=1)], np.nan)


def _newest_two(seconds: F64, values: F64, *, is_counter: bool) -> F64:
    """Return what the newest value is above the one before; of a counter by second, and from 0 where it fell."""
    places = np.where(np.isnan(values), -1, np.arange(values.shape[1]))
    rows, newest = np.arange(values.shape[0]), places.max(axis=1)
    places[rows, newest] = -1
    before = places.max(axis=1)
    last, earlier = values[rows, newest], values[rows, before]
    if is_counter:
        change = np.where(last < earlier, last, last - earlier) / (seconds[newest] - seconds[before])
    else:
        change = last - earlier
    return np.where(before >= 0, change, np.nan)


def _spread(_seconds: F64, values: F64, *, power: int) -> F64:
    found: F64 = np.nanstd(values, axis=1) ** power
    return found


def _changes(_seconds: F64, values: F64) -> F64:
    there = ~np.isnan(values)
    newest = np.maximum.accumulate(np.where(there, np.arange(values.shape[1]), -1), axis=1)[:, :-1]
    before = np.take_along_axis(values, np.maximum(newest, 0), axis=1)
    found: F64 = (there[:, 1:] & (newest >= 0) & (values[:, 1:] != before)).sum(axis=1, dtype=np.float64)
    return found


def _newest(_seconds: F64, values: F64) -> F64:
    places = values.shape[1] - 1 - (~np.isnan(values))[:, ::-1].argmax(axis=1)
    found: F64 = values[np.arange(values.shape[0]), places]
    return found


def _count(_seconds: F64, values: F64) -> F64:
    found: F64 = (~np.isnan(values)).sum(axis=1, dtype=np.float64)
    return found


def _present(_seconds: F64, values: F64) -> F64:
    return np.ones(values.shape[0])


def _by(operation: Any) -> Function:
    def taken(_seconds: F64, values: F64) -> F64:
        found: F64 = operation(values, axis=1)
        return found

    return taken


OF_SECONDS: dict[str, tuple[Aggregate, Function]] = {
    "delta": (Aggregate.AVG, _delta),
    "deriv": (Aggregate.AVG, _slope),
    "idelta": (Aggregate.AVG, partial(_newest_two, is_counter=False)),
    "irate": (Aggregate.RATE, partial(_newest_two, is_counter=True)),
    "stddev_over_time": (Aggregate.AVG, partial(_spread, power=1)),
    "stdvar_over_time": (Aggregate.AVG, partial(_spread, power=2)),
}
"""Of a range of a metric: name -> (what has to have a meaning for the metric, what it makes of seconds)."""
OF_STEPS: dict[str, Function] = {
    "avg_over_time": _by(np.nanmean),
    "changes": _changes,
    "count_over_time": _count,
    "deriv": _slope,
    "idelta": partial(_newest_two, is_counter=False),
    "last_over_time": _newest,
    "max_over_time": _by(np.nanmax),
    "min_over_time": _by(np.nanmin),
    "present_over_time": _present,
    "stddev_over_time": partial(_spread, power=1),
    "stdvar_over_time": partial(_spread, power=2),
    "sum_over_time": _by(np.nansum),
}
"""Of a subquery: name -> what it makes of steps. What grows has its increase taken within."""
