"""Turn the raw rows of one kind and window into its 30 s rollup rows: a pure function, exact and order-free.

Every member is computed in stored integers. A sample weighs the milliseconds it covers inside the window. What a
counter or a state did between two samples belongs to the window of the later one, so the last sample before the window
(`Priors`) is an input. One row comes out per (series, attribution).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric, RollupSet
from secondsight.process.counters import Pairs, increase_of
from secondsight.process.patterns import (
    I32,
    I64,
    LOOKBACK_MS,
    Frame,
    Pattern,
    Patterns,
    Rows,
    group_columns,
    pairs_before,
)
from secondsight.process.percentile import weighted_p95
from secondsight.process.rising import Gaps, rise_of
from secondsight.process.states import bit_durations, state_durations

Values = NDArray[Any]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of metrics of one stored type.

    Attributes:
        values: Shape (metrics, rows).
        present: Same shape; True where the cell has a value.
    """

    metrics: tuple[Metric, ...]
    values: Values
    present: Bools


@dataclass(frozen=True, slots=True)
class Priors:
    """Last sample before the window, per metric of a `Cells` and distinct series; shapes (metrics, series).

    Attributes:
        time_ms: 0 where there is none.
    """

    values: Values
    time_ms: I64
    epoch: I32


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw rows of one kind and window, sorted by (series, event time), each pair once.

    Attributes:
        start_ms, end_ms: The window, half open.
        series: Row -> series id.
        attribution: Row -> attribution code.
        cells: One per stored type.
        priors: One per item of `cells`.
    """

    start_ms: int
    end_ms: int
    series: I32
    time_ms: I64
    interval_ms: I64
    epoch: I32
    attribution: I32
    cells: tuple[Cells, ...]
    priors: tuple[Priors, ...]


@dataclass(slots=True)
class Sparse:
    """Entries of a map column: (rollup row, key) -> number."""

    rows: list[Rows] = field(default_factory=list)
    keys: list[str | Sequence[str]] = field(default_factory=list)
    numbers: list[I64] = field(default_factory=list)

    def add(self, rows: Rows, key: str | Sequence[str], numbers: I64) -> None:
        """Add one entry per row; `key` is shared or one per row."""
        if rows.size:
            self.rows.append(rows)
            self.keys.append(key)
            self.numbers.append(numbers)


@dataclass(slots=True)
class Rollup:
    """Rollup rows of one window.

    Attributes:
        members: Column name -> (values, present); `present` None means everywhere.
        lasts: Per item of `Samples.cells`: values, times and epochs of the last sample of each metric and distinct
            series, as the next window's `Priors`; time 0 where the window has none.
    """

    series: I32
    attribution: I32
    samples: I64
    covered_ms: I64
    first_ms: I64
    last_ms: I64
    interval_ms: I64
    members: dict[str, tuple[Values, Bools | None]]
    covered_other: Sparse
    increase_other: Sparse
    resets: Sparse
    changes: Sparse
    state_ms: Sparse
    lasts: tuple[Priors, ...]
    implausible: int = 0


def roll_up(samples: Samples) -> Rollup:
    """Compute the rollup rows of a window; `samples` has at least one row."""
    frame, segment_rows = _frame(samples)
    patterns = Patterns(frame)
    rollup = _rows(samples, patterns.full, segment_rows)
    for cells, prior, last in zip(samples.cells, samples.priors, rollup.lasts, strict=True):
        for key, columns in group_columns(cells.present):
            _roll_group(rollup, _Part(cells, prior, last, columns, patterns.get(key)))
    return rollup


@dataclass(frozen=True, slots=True)
class _Part:
    """Metrics of one `Cells` that are present in the same rows."""

    cells: Cells
    prior: Priors
    last: Priors
    columns: Rows
    pattern: Pattern

    def of(self, *sets: RollupSet) -> list[tuple[int, Metric]]:
        """Return (position in the columns, metric) of the metrics with one of these rollup sets."""
        named = ((place, self.cells.metrics[column]) for place, column in enumerate(self.columns.tolist()))
        return [(place, metric) for place, metric in named if metric.rollup in sets]


def _frame(samples: Samples) -> tuple[Frame, Rows]:
    """Number series and segments; return the frame and a first row of each segment."""
    number = np.cumsum(np.concatenate([[0], samples.series[1:] != samples.series[:-1]]))
    combined = number * (int(samples.attribution.max()) + 1) + samples.attribution
    rising = bool((combined[1:] >= combined[:-1]).all())
    first, segment = (
        _runs(combined.astype(np.int64)) if rising else np.unique(combined, return_index=True, return_inverse=True)[1:]
    )
    interval = np.maximum(samples.interval_ms, 1)
    frame = Frame(
        samples.time_ms,
        interval,
        samples.epoch,
        segment.astype(np.intp),
        first.size,
        number.astype(np.intp),
        samples.end_ms,
    )
    return frame, first


def _runs(numbers: I64) -> tuple[Rows, Rows]:
    """Number runs of equal numbers; return where each starts, and the run of each row."""
    begins = np.concatenate([[True], numbers[1:] != numbers[:-1]])
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def _rows(samples: Samples, full: Pattern, first: Rows) -> Rollup:
    """Make the rollup rows without members."""
    interval = full.by_segment(samples.interval_ms)
    time_ms = full.by_segment(samples.time_ms)
    series_count = full.series.size
    return Rollup(
        samples.series[first],
        samples.attribution[first],
        full.widths.astype(np.int64),
        full.segment_covered_ms,
        time_ms[full.starts],
        time_ms[full.ends],
        np.maximum.reduceat(interval, full.starts),
        {},
        Sparse(),
        Sparse(),
        Sparse(),
        Sparse(),
        Sparse(),
        tuple(no_priors(cells, series_count) for cells in samples.cells),
    )


def no_priors(cells: Cells, series: int) -> Priors:
    """Return priors of the metrics of some cells that know nothing."""
    return empty_priors(len(cells.metrics), series, cells.values.dtype)


def empty_priors(metrics: int, series: int, dtype: "np.dtype[Any]") -> Priors:
    """Return priors that know nothing."""
    shape = (metrics, series)
    return Priors(np.zeros(shape, dtype), np.zeros(shape, np.int64), np.zeros(shape, np.int32))


def _roll_group(rollup: Rollup, part: _Part) -> None:
    pattern = part.pattern
    values = pattern.take(
        part.cells.values if len(part.columns) == len(part.cells.metrics) else part.cells.values[part.columns]
    )
    _note_lasts(part, values)
    _note_coverage(rollup, part)
    ordered = pattern.by_segment(values)
    _last(rollup, part, ordered)
    _gauges(rollup, part, ordered)
    _counters(rollup, part, values, ordered)
    _states(rollup, part, values, ordered)


def _note_lasts(part: _Part, values: Values) -> None:
    pattern = part.pattern
    at = np.ix_(part.columns, pattern.series)
    part.last.values[at] = values[:, pattern.tails]
    part.last.time_ms[at] = pattern.time_ms[pattern.tails]
    part.last.epoch[at] = pattern.epoch[pattern.tails]


def _note_coverage(rollup: Rollup, part: _Part) -> None:
    """List what a metric covers where it is not what the row covers."""
    pattern = part.pattern
    other = pattern.segment_covered_ms != rollup.covered_ms[pattern.segments]
    if other.any():
        for column in part.columns.tolist():
            name = part.cells.metrics[column].name
            rollup.covered_other.add(pattern.segments[other], name, pattern.segment_covered_ms[other])


def _put(rollup: Rollup, pattern: Pattern, name: str, values: Values, present: Bools | None = None) -> None:
    """Set a member of the segments of a pattern."""
    total = rollup.series.size
    if pattern.segments.size == total:
        rollup.members[name] = (values, present)
        return
    spread = np.zeros(total, values.dtype)
    spread[pattern.segments] = values
    there = np.zeros(total, np.bool_)
    there[pattern.segments] = True if present is None else present
    rollup.members[name] = (spread, there)


def _last(rollup: Rollup, part: _Part, ordered: Values) -> None:
    lasts = ordered[:, part.pattern.ends]
    for place, column in enumerate(part.columns.tolist()):
        _put(rollup, part.pattern, f"{part.cells.metrics[column].name}_last", lasts[place])


def _gauges(rollup: Rollup, part: _Part, ordered: Values) -> None:
    chosen = part.of(RollupSet.DISTRIBUTION, RollupSet.LEVEL)
    if not chosen:
        return
    pattern = part.pattern
    values = _picked(ordered, chosen)
    weights = pattern.by_segment(pattern.covered_ms)
    members = {
        "sum": np.add.reduceat(_weighted(values, weights), pattern.starts, axis=1),
        "min": np.minimum.reduceat(values, pattern.starts, axis=1),
        "max": np.maximum.reduceat(values, pattern.starts, axis=1),
    }
    for number, (_, metric) in enumerate(chosen):
        for member, table in members.items():
            _put(rollup, pattern, f"{metric.name}_{member}", table[number])
    _percentiles(rollup, part, ordered, weights)


def _weighted(values: Values, weights: I64) -> Values:
    if values.dtype == np.float64:
        return values * weights
    product: Values = values.astype(np.int64) * weights
    return product


def _percentiles(rollup: Rollup, part: _Part, ordered: Values, weights: I64) -> None:
    chosen = part.of(RollupSet.DISTRIBUTION)
    if chosen:
        p95 = weighted_p95(_picked(ordered, chosen), weights, part.pattern.starts, part.pattern.widths)
        for number, (_, metric) in enumerate(chosen):
            _put(rollup, part.pattern, f"{metric.name}_p95", p95[number])


def _counters(rollup: Rollup, part: _Part, values: Values, ordered: Values) -> None:
    chosen = part.of(RollupSet.INCREASE)
    if not chosen:
        return
    for place, metric in chosen:
        _put(rollup, part.pattern, f"{metric.name}_first", ordered[place, part.pattern.starts])
    gaps, first = _gaps(part, chosen), _first(part, chosen)
    even_ms = np.add.reduceat(gaps.gap_ms, part.pattern.starts) if gaps.all_count(part.pattern) else None
    for number, (place, metric) in enumerate(chosen):
        rise = None if even_ms is None else rise_of(metric, values[place], first[number], part.pattern, gaps)
        if rise is None or even_ms is None:
            before = pairs_before(values[place], part.pattern.heads, first[number])
            _counter(rollup, part.pattern, metric, Pairs(values[place], before, *gaps.of(number)))
        else:
            _increase(rollup, part.pattern, metric.name, rise, even_ms, None)


def _counter(rollup: Rollup, pattern: Pattern, metric: Metric, pairs: Pairs) -> None:
    found = increase_of(metric, pairs)
    counted = pattern.by_segment(found.counted)
    milliseconds = np.add.reduceat(np.where(counted, pattern.by_segment(pairs.gap_ms), 0), pattern.starts)
    increase = np.add.reduceat(pattern.by_segment(found.increase), pattern.starts)
    _increase(rollup, pattern, metric.name, increase, milliseconds, np.logical_or.reduceat(counted, pattern.starts))
    rollup.implausible += found.implausible
    if found.reset.any():
        _count(rollup.resets, pattern, metric.name, found.reset)


def _increase(
    rollup: Rollup, pattern: Pattern, name: str, increase: Values, milliseconds: I64, known: Bools | None
) -> None:
    _put(rollup, pattern, f"{name}_increase", increase, known)
    other = milliseconds != rollup.covered_ms[pattern.segments]
    if known is not None:
        other &= known
    rollup.increase_other.add(pattern.segments[other], name, milliseconds[other])


def _states(rollup: Rollup, part: _Part, values: Values, ordered: Values) -> None:
    chosen = part.of(RollupSet.STATE)
    if not chosen:
        return
    pattern = part.pattern
    weights = pattern.by_segment(pattern.covered_ms)
    gaps, first = _gaps(part, chosen), _first(part, chosen)
    for number, (place, metric) in enumerate(chosen):
        gap_ms, _, known = gaps.of(number)
        changed = values[place] != pairs_before(values[place], pattern.heads, first[number])
        if changed.any():
            changed &= known & (gap_ms <= LOOKBACK_MS)
        if changed.any():
            _count(rollup.changes, pattern, metric.name, changed)
        durations = bit_durations if metric.bitmask else state_durations
        for which, key, milliseconds in durations(metric.name, ordered[place], weights, pattern.starts, pattern.ends):
            rollup.state_ms.add(pattern.segments[which], key, milliseconds)


def _count(target: Sparse, pattern: Pattern, name: str, flags: Bools) -> None:
    counts = np.add.reduceat(pattern.by_segment(flags).astype(np.int64), pattern.starts)
    some = np.flatnonzero(counts)
    target.add(pattern.segments[some], name, counts[some])


def _first(part: _Part, chosen: Sequence[tuple[int, Metric]]) -> Values:
    """Return the value before the first row of each series present, per chosen metric."""
    first: Values = part.prior.values[np.ix_(_chosen_columns(part, chosen), part.pattern.series)]
    return first


def _gaps(part: _Part, chosen: Sequence[tuple[int, Metric]]) -> Gaps:
    """Return what lies between rows and the samples before them, once where it is the same for all chosen metrics."""
    pattern = part.pattern
    at = np.ix_(_chosen_columns(part, chosen), pattern.series)
    first_ms, first_epoch = part.prior.time_ms[at], part.prior.epoch[at]
    if (first_ms == first_ms[0]).all() and (first_epoch == first_epoch[0]).all():
        first_ms, first_epoch = first_ms[0], first_epoch[0]
    return gaps_before(pattern.time_ms, pattern.epoch, pattern.heads, first_ms, first_epoch)


def gaps_before(time_ms: I64, epoch: I32, heads: Rows, first_ms: I64, first_epoch: I32) -> Gaps:
    """Return what lies between rows and the samples before them; `heads` and what stands before as `pairs_before`."""
    before_ms, before = pairs_before(time_ms, heads, first_ms), pairs_before(epoch, heads, first_epoch)
    new_epoch = (before != epoch) & (before != 0) & (epoch != 0)
    return Gaps(time_ms - before_ms, new_epoch, before_ms > 0)


def _chosen_columns(part: _Part, chosen: Sequence[tuple[int, Metric]]) -> Rows:
    return part.columns[[place for place, _ in chosen]]


def _picked(values: Values, chosen: Sequence[tuple[int, Metric]]) -> Values:
    return values if len(chosen) == values.shape[0] else values[[place for place, _ in chosen]]
