"""Find, in the samples of a window, what the rules of `catalog.findings` call a finding: a pure function, order-free.

The rollup of the window says which series to look at, so that a quiet window costs a look at its sums. What lasts is a
maximal run of samples that hold; the run before the window is an input. What grew or fell is counted per window.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.findings import FindingRule
from secondsight.catalog.metric import Metric
from secondsight.process.counters import Increase, Pairs, increase_of
from secondsight.process.patterns import pairs_before
from secondsight.process.series import I32, distinct
from secondsight.process.window import Rollup, Samples, gaps_before

Bools = NDArray[np.bool_]
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]
Noted = dict[FindingRule, set[int]]
"""Series by rule."""


@dataclass(frozen=True, slots=True)
class Episode:
    """What a window has of one lasting finding of one series.

    Attributes:
        off_ms: First sample that does not hold, which ends what held before the window; None where all hold.
        begin_ms: First sample that holds after one that does not; None where nothing begins.
        count: How often it begins.
        end_ms: First sample that does not hold after the last beginning.
        holds: The last sample holds.
    """

    rule: FindingRule
    series: int
    off_ms: int | None
    begin_ms: int | None
    count: int
    end_ms: int | None
    holds: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """What a window has of a counter that grew or fell: how much, or how often, from which sample to which."""

    rule: FindingRule
    series: int
    first_ms: int
    last_ms: int
    count: int
    metric: str


@dataclass(frozen=True, slots=True)
class _Picked:
    """The samples of one metric of some series, sorted by (series, time).

    Attributes:
        at: Where the metric is: position among the cells, column.
        rows: Their rows in the window.
        series: Distinct ones; none is without samples.
        heads: First sample of each.
    """

    at: tuple[int, int]
    rows: Rows
    series: I32
    heads: Rows
    times_ms: I64
    values: NDArray[Any]

    def only(self, flags: Bools) -> "_Picked":
        """Return some of the samples; series without any are left out."""
        if flags.all():
            return self
        numbers = np.repeat(self.series, np.diff(np.append(self.heads, self.rows.size)))[flags]
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        return _Picked(self.at, self.rows[flags], numbers[heads], heads, self.times_ms[flags], self.values[flags])


class Detector:
    """The rules of one kind, by what of a rollup shows that a series may have one."""

    def __init__(self, rules: Sequence[FindingRule]) -> None:
        self.rules = {rule.name: rule for rule in rules}
        self._states: dict[str, list[FindingRule]] = defaultdict(list)
        for rule in rules:
            for key in _state_keys(rule):
                self._states[key].append(rule)
        self._gauges = [rule for rule in rules if rule.least is not None or rule.most is not None]
        self._counters = [rule for rule in rules if rule.grows]
        self._restarts = {metric.name: rule for rule in rules if rule.restarts for metric in rule.metrics}

    def noted(self, rollup: Rollup) -> Noted:
        """Return which series may have which finding."""
        found: Noted = defaultdict(set)
        self._note_states(rollup, found)
        for rule in self._gauges:
            self._note_gauge(rollup, rule, found)
        for rule in self._counters:
            values, present = rollup.members.get(f"{rule.metrics[0].name}_increase", (None, None))
            if values is not None:
                _add(found, rule, rollup.series, (values > 0) if present is None else (values > 0) & present)
        for rows, key in zip(rollup.resets.rows, rollup.resets.keys, strict=True):
            if isinstance(key, str) and key in self._restarts:
                found[self._restarts[key]].update(rollup.series[rows].tolist())
        return found

    def _note_states(self, rollup: Rollup, found: Noted) -> None:
        if not self._states:
            return
        for rows, key in zip(rollup.state_ms.rows, rollup.state_ms.keys, strict=True):
            if isinstance(key, str):
                for rule in self._states.get(key, ()):
                    found[rule].update(rollup.series[rows].tolist())
                continue
            for row, each in zip(rows.tolist(), key, strict=True):
                for rule in self._states.get(each, ()):
                    found[rule].add(int(rollup.series[row]))

    def _note_gauge(self, rollup: Rollup, rule: FindingRule, found: Noted) -> None:
        member = "max" if rule.least is not None else "min"
        values, present = rollup.members.get(f"{rule.metrics[0].name}_{member}", (None, None))
        if values is not None:
            holds = holding(rule, values)
            _add(found, rule, rollup.series, holds if present is None else holds & present)


def _add(found: Noted, rule: FindingRule, series: I32, flags: Bools) -> None:
    if flags.any():
        found[rule].update(series[flags].tolist())


def _state_keys(rule: FindingRule) -> list[str]:
    name = rule.metrics[0].name
    bits = [1 << bit for bit in range(rule.bits.bit_length()) if rule.bits >> bit & 1]
    return [*(f"{name}={value}" for value in rule.values), *(f"{name}&{bit}" for bit in bits)]


def holding(rule: FindingRule, values: NDArray[Any]) -> Bools:
    """Tell which values hold."""
    if rule.values:
        held: Bools = np.isin(values, rule.values)
    elif rule.bits:
        held = (values & values.dtype.type(rule.bits) != 0) & (values & values.dtype.type(rule.unless) == 0)
    elif rule.least is not None:
        held = values >= rule.least
    else:
        held = values <= rule.most
    return held


def telling(rule: FindingRule, values: NDArray[Any]) -> Bools:
    """Tell which values say something: between the bound and `until` of a rule none does."""
    if rule.until is None:
        return np.ones(values.shape, np.bool_)
    over: Bools = values <= rule.until if rule.least is not None else values >= rule.until
    return holding(rule, values) | over


def episodes(rule: FindingRule, samples: Samples, series: Sequence[int], held: Callable[[int], bool]) -> list[Episode]:
    """Return what a window has of a lasting finding.

    A series all of whose samples say nothing goes on as before.

    Args:
        rule: Which.
        samples: Of the window, with priors.
        series: To look at.
        held: Whether a series held right before the window.
    """
    whole = _pick(samples, rule.metrics[0], series)
    if whole is None:
        return []
    picked = whole.only(telling(rule, whole.values))
    told, mute = picked.series.tolist(), sorted(set(whole.series.tolist()) - set(picked.series.tolist()))
    going_on = [Episode(rule, number, None, None, 0, None, held(number)) for number in mute]
    if not told:
        return going_on
    holds = holding(rule, picked.values)
    held_before = np.array([held(number) for number in told], np.bool_)
    if rule.change:
        held_before = held_before | _was_not_off(rule, samples, picked)
    begins = holds & ~pairs_before(holds, picked.heads, held_before)
    tails = np.append(picked.heads[1:], holds.size)
    return going_on + [
        _episode(rule, number, picked.times_ms[head:tail], holds[head:tail], begins[head:tail])
        for number, head, tail in zip(told, picked.heads.tolist(), tails.tolist(), strict=True)
    ]


def growths(rule: FindingRule, samples: Samples, series: Sequence[int]) -> Iterator[Growth]:
    """Give what a window has of counters that grew, or fell, by at least so many as the rule asks for."""
    for metric in rule.metrics:
        picked = _pick(samples, metric, series)
        if picked is None:
            continue
        found = increase_of(metric, _pairs(samples, picked))
        amounts = _amounts(rule, metric, found)
        totals = np.add.reduceat(amounts, picked.heads)
        tails = np.append(picked.heads[1:], amounts.size)
        for place in np.flatnonzero(totals >= max(1, rule.levels[0][0])).tolist():
            some = np.flatnonzero(amounts[picked.heads[place] : tails[place]]) + picked.heads[place]
            first_ms, last_ms = int(picked.times_ms[some[0]]), int(picked.times_ms[some[-1]])
            yield Growth(rule, int(picked.series[place]), first_ms, last_ms, int(totals[place]), metric.name)


def _amounts(rule: FindingRule, metric: Metric, found: Increase) -> NDArray[Any]:
    if rule.restarts:
        return found.reset.astype(np.int64)
    return found.increase if metric.resolution in (0, 1) else found.increase * metric.resolution


def _episode(rule: FindingRule, series: int, times_ms: I64, holds: Bools, begins: Bools) -> Episode:
    offs, starts = np.flatnonzero(~holds), np.flatnonzero(begins)
    later = offs[offs > starts[-1]] if starts.size else offs[:0]
    return Episode(
        rule,
        series,
        int(times_ms[offs[0]]) if offs.size else None,
        int(times_ms[starts[0]]) if starts.size else None,
        starts.size,
        int(times_ms[later[0]]) if later.size else None,
        bool(holds[-1]),
    )


def _pick(samples: Samples, metric: Metric, series: Sequence[int]) -> _Picked | None:
    """Return the samples that some series have of a metric, None where there are none."""
    at = next(
        ((place, cells.metrics.index(metric)) for place, cells in enumerate(samples.cells) if metric in cells.metrics),
        None,
    )
    if at is None or not len(series):
        return None
    wanted = np.array(sorted(series), np.int32)
    first = np.searchsorted(samples.series, wanted, "left")
    last = np.searchsorted(samples.series, wanted, "right")
    rows = np.concatenate([np.arange(start, stop) for start, stop in zip(first.tolist(), last.tolist(), strict=True)])
    rows = rows[samples.cells[at[0]].present[at[1], rows]]
    if not rows.size:
        return None
    numbers = samples.series[rows]
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    values = samples.cells[at[0]].values[at[1], rows]
    return _Picked(at, rows, numbers[heads], heads, samples.time_ms[rows], values)


def _prior_places(samples: Samples, picked: _Picked) -> Rows:
    """Return where the priors of the picked series stand."""
    return np.searchsorted(distinct(samples.series), picked.series)


def _was_not_off(rule: FindingRule, samples: Samples, picked: _Picked) -> Bools:
    """Tell of which series no sample before the window is known, or one that holds."""
    prior, series = samples.priors[picked.at[0]], _prior_places(samples, picked)
    unknown: Bools = prior.time_ms[picked.at[1], series] == 0
    return unknown | holding(rule, prior.values[picked.at[1], series])


def _pairs(samples: Samples, picked: _Picked) -> Pairs:
    (place, column), series = picked.at, _prior_places(samples, picked)
    prior, heads, epoch = samples.priors[place], picked.heads, samples.epoch[picked.rows]
    gaps = gaps_before(picked.times_ms, epoch, heads, prior.time_ms[column, series], prior.epoch[column, series])
    before = pairs_before(picked.values, heads, prior.values[column, series])
    return Pairs(picked.values, before, *gaps.of(0))
