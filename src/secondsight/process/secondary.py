"""Put what secondary rows say in the place of what a rollup made of plain rows: see `catalog.secondary`.

A window that was shipped as one row of 30 s then has the sums, extremes and percentiles of all its polls. What it knows
of the polls does not change when their seconds arrive after all, so their order and number never matter.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric, RollupSet
from secondsight.catalog.secondary import WINDOW_SECONDS, Statistic, split_part
from secondsight.process.cells import RANK, VALUE_RANK, Window
from secondsight.process.pieces import Rows
from secondsight.process.series import I32, PART, SeriesTable
from secondsight.process.window import Rollup, Samples, Sparse

POLL_MS = 1000
GAUGES = (RollupSet.LEVEL, RollupSet.DISTRIBUTION)


class SecondaryBook:
    """Which series of a kind are secondary, and to which other series; learns new series as they come."""

    def __init__(self, table: SeriesTable) -> None:
        self._table = table
        self._known = 0
        self._of: dict[int, tuple[int, Statistic | None]] = {}

    def split(self, series: I32) -> NDArray[np.bool_] | None:
        """Tell which rows are of secondary series; None where none is."""
        self._learn()
        if not self._of:
            return None
        found = np.isin(series, np.fromiter(self._of, np.int32, len(self._of)))
        return found if found.any() else None

    def of(self, series: int) -> tuple[int, Statistic | None]:
        """Return the series that a secondary one speaks of, and what it holds of it."""
        return self._of[series]

    def _learn(self) -> None:
        while self._known < len(self._table):
            names = self._table.names_of(self._known)
            part, statistic = split_part(names[PART])
            if part != names[PART]:
                self._of[self._known] = (self._table.id_of((*names[:5], part, names[6])), statistic)
            self._known += 1


@dataclass(slots=True)
class Told:
    """What the secondary rows of one window say of one series: metric -> figures, in stored integers.

    Attributes:
        polls: Number of polls.
        total: Sum of the polls.
    """

    least: dict[str, Any] = field(default_factory=dict)
    greatest: dict[str, Any] = field(default_factory=dict)
    p95: dict[str, Any] = field(default_factory=dict)
    total: dict[str, Any] = field(default_factory=dict)
    polls: dict[str, int] = field(default_factory=dict)


def told_of(window: Window, rows: Rows, book: SecondaryBook) -> dict[int, Told]:
    """Return what some secondary rows of a window say, by the series that they speak of.

    A window in which an agent was started anew has rows of both; they add up, and of percentiles the greater counts.
    """
    instants: dict[tuple[int, int], dict[Statistic, int]] = defaultdict(dict)
    for row in rows.tolist():
        series, statistic = book.of(int(window.series[row]))
        if statistic is not None:
            instants[series, int(window.time_ms[row])][statistic] = row
    found: dict[int, Told] = defaultdict(Told)
    for (series, _), by_statistic in sorted(instants.items()):
        _add(found[series], {statistic: _values(window, row) for statistic, row in by_statistic.items()})
    return dict(found)


def fold(rollup: Rollup, told: Mapping[int, Told], samples: Samples) -> None:
    """Set the members of gauges in rollup rows to what secondary rows say of them; `samples` made the rollup."""
    lasts = _Lasts(rollup, samples)
    segments: dict[int, list[int]] = defaultdict(list)
    for row, series in enumerate(rollup.series.tolist()):
        if series in told:
            segments[series].append(row)
    corrected: dict[str, dict[int, int]] = defaultdict(dict)
    for series, rows in segments.items():
        for row, share in _shares(rollup, rows):
            rollup.samples[row] = 1
            for name in told[series].total:
                covered_ms = _fold_metric(rollup, (row, share), told[series], lasts.of(name, series))
                if covered_ms is not None:
                    corrected[name][row] = covered_ms
    _correct(rollup, corrected)


def _values(window: Window, row: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group, metrics in enumerate(window.layout.groups):
        there = np.flatnonzero(RANK[window.quality[group][:, row]] >= VALUE_RANK)
        for column in there.tolist():
            found[metrics.metrics[column].name] = window.values[group][column, row].item()
    return found


def _add(told: Told, rows: Mapping[Statistic, Mapping[str, Any]]) -> None:
    counts, rests = rows.get(Statistic.COUNT, {}), rows.get(Statistic.REST, {})
    for name, mean in rows.get(Statistic.AVG, {}).items():
        polls = int(counts.get(name, WINDOW_SECONDS))
        told.total[name] = told.total.get(name, 0) + mean * polls + rests.get(name, 0)
        told.polls[name] = told.polls.get(name, 0) + polls
    for statistic, target, better in (
        (Statistic.MIN, told.least, min),
        (Statistic.MAX, told.greatest, max),
        (Statistic.P95, told.p95, max),
    ):
        for name, value in rows.get(statistic, {}).items():
            target[name] = better(value, target.get(name, value))


def _shares(rollup: Rollup, rows: Sequence[int]) -> Iterator[tuple[int, float | None]]:
    """Give each row of one series with its share of the window; None where it is alone and has all of it."""
    if len(rows) == 1:
        yield rows[0], None
        return
    whole = sum(int(rollup.covered_ms[row]) for row in rows) or 1
    for row in rows:
        yield row, int(rollup.covered_ms[row]) / whole


def _fold_metric(
    rollup: Rollup, place: tuple[int, float | None], told: Told, last: tuple[Metric, Any, int] | None
) -> int | None:
    """Set the members of one gauge in one row; return the milliseconds that its polls cover, None for no gauge.

    The last poll is cut off where the window ends, as any sample is.
    """
    row, share = place
    if last is None or last[0].rollup not in GAUGES or not _has(rollup, f"{last[0].name}_sum", row):
        return None
    metric, value, cut_ms = last
    name = metric.name
    covered_ms = POLL_MS * told.polls[name] - cut_ms
    total = POLL_MS * told.total[name] - cut_ms * value
    if share is not None:
        covered_ms, total = round(covered_ms * share), round(total * share) if metric.dtype != "f64" else total * share
    figures = {"sum": total, "min": told.least.get(name), "max": told.greatest.get(name), "p95": told.p95.get(name)}
    for suffix, figure in figures.items():
        member = f"{name}_{suffix}"
        if figure is not None and member in rollup.members:
            rollup.members[member][0][row] = figure
    return covered_ms


class _Lasts:
    """The last sample of each metric and series of a window."""

    def __init__(self, rollup: Rollup, samples: Samples) -> None:
        self._rollup = rollup
        self._end_ms = samples.end_ms
        self._row = {series: row for row, series in enumerate(np.unique(samples.series).tolist())}
        self._column = {
            metric.name: (group, column, metric)
            for group, cells in enumerate(samples.cells)
            for column, metric in enumerate(cells.metrics)
        }

    def of(self, name: str, series: int) -> tuple[Metric, Any, int] | None:
        """Return a metric, its last value and what the end of the window cuts off of that, None where it has none."""
        found = self._column.get(name)
        if found is None:
            return None
        group, column, metric = found
        lasts, row = self._rollup.lasts[group], self._row[series]
        return (
            metric,
            lasts.values[column, row].item(),
            max(int(lasts.time_ms[column, row]) + POLL_MS - self._end_ms, 0),
        )


def _has(rollup: Rollup, member: str, row: int) -> bool:
    values = rollup.members.get(member)
    return values is not None and (values[1] is None or bool(values[1][row]))


def _correct(rollup: Rollup, corrected: Mapping[str, Mapping[int, int]]) -> None:
    """List what gauges cover where it is not what their row covers, in place of what was listed of them."""
    listed = Sparse()
    for rows, key, numbers in zip(
        rollup.covered_other.rows, rollup.covered_other.keys, rollup.covered_other.numbers, strict=True
    ):
        mine = corrected.get(key, {}) if isinstance(key, str) else {}
        kept = np.array([row not in mine for row in rows.tolist()], np.bool_)
        listed.add(rows[kept], key, numbers[kept])
    for name, by_row in corrected.items():
        other = [(row, covered) for row, covered in by_row.items() if covered != int(rollup.covered_ms[row])]
        rows, numbers = (np.array([pair[place] for pair in other], np.int64) for place in (0, 1))
        listed.add(rows.astype(np.intp), name, numbers)
    rollup.covered_other = listed
