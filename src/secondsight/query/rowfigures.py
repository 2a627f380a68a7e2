"""Make the figures of a small question from its rows, in numpy.

The same definitions as the statements of `compile.py`, cheaper where few rows are spread over many metrics: one GPU's
telemetry.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.process.counters import Increase, Pairs, increase_of
from secondsight.process.patterns import LOOKBACK_MS as PAIR_MAXIMUM_MS
from secondsight.query.aggregates import PAIRED, Aggregate
from secondsight.query.coverage import GAP_MS, GAP_SLOTS, Held, Key
from secondsight.query.plan import SeriesPlan
from secondsight.query.rows import F64, I64, Bools, Figures, Rows, Values
from secondsight.query.windows import FAR_MS

_EXTREMES: dict[Aggregate, Any] = {Aggregate.MIN: np.minimum, Aggregate.MAX: np.maximum}


@dataclass(frozen=True, slots=True)
class _Times:
    """When samples were taken, and what they cover: the same for every metric that the same rows have.

    Attributes:
        same: Of each row, whether the one before it is of its series.
        gap_ms: Of each row, the time since the one before it.
        order: Those that count, sorted by entity, window, time; what follows is theirs.
        starts: Where each (entity, output window) begins.
    """

    same: Bools
    gap_ms: I64
    order: NDArray[np.intp]
    entity: I64
    cover_ms: I64
    bucket_ms: I64
    starts: NDArray[np.intp]
    held: dict[Key, Held]
    late: int


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of one metric that count, by `times`; what pairs of them say is empty where no figure is made of it."""

    v: Values
    times: _Times
    pair_ms: I64
    increase: Values
    is_pair: Bools
    is_reset: Bools
    is_change: Bools


def figures_of(rows: Rows, plan: SeriesPlan) -> Figures:
    """Return the points of a plan and what they are worth, from the rows of `compile_rows`."""
    row, v = rows.values(plan.selected.metric.name)
    times = _shared(rows, plan, row)
    figures = np.asarray(_figures(_samples(rows, plan, times, row, v), plan.selected.aggregate), np.float64)
    starts_ms, codes = times.bucket_ms[times.starts], times.entity[times.starts]
    known = ~np.isnan(figures)
    cut = []
    for entity in np.unique(codes).tolist():
        there = known & (codes == entity)
        if there.any():
            cut.append((rows.labels[entity], starts_ms[there], figures[there]))
    return Figures(cut, times.held, times.late, times.order.size)


def _shared(rows: Rows, plan: SeriesPlan, row: NDArray[np.intp]) -> _Times:
    """Return what rows cover that have a metric, as it was found out for another metric that the same ones have."""
    windows = (plan.span, plan.base_ms, plan.resolution_ms, plan.whole, plan.several_sources, plan.due_ms)
    key = (None if row.size == rows.t.size else row.tobytes(), windows)
    found = rows.times.get(key)
    if found is None:
        found = rows.times[key] = _times_of(rows, plan, row)
    return found


def _times_of(rows: Rows, plan: SeriesPlan, row: NDArray[np.intp]) -> _Times:
    """Return what rows cover that have a metric, as `windows.samples` does."""
    t, interval, entity, series = rows.t[row], rows.cadence_ms[row], rows.entity[row], rows.series[row]
    same = np.concatenate([[False], series[1:] == series[:-1]]) if row.size else np.empty(0, np.bool_)
    before = np.where(same, np.roll(t, 1), 0)
    after = np.where(np.roll(same, -1), np.roll(t, -1), FAR_MS)
    window = t // plan.base_ms * plan.base_ms
    from_ms = plan.span.from_ms
    counted = t >= from_ms
    if plan.several_sources:
        counted &= _is_best(rows.rank[row], entity, window, counted)
    bucket = np.full(t.size, from_ms) if plan.whole else window // plan.resolution_ms * plan.resolution_ms
    order = np.flatnonzero(counted)
    if plan.several_sources:
        order = order[np.lexsort((t[order], bucket[order], entity[order]))]
    changes = np.concatenate([[True], (np.diff(entity[order]) != 0) | (np.diff(bucket[order]) != 0)])
    is_slot = (t // interval != before // interval) & (t < plan.due_ms)
    is_gap = (before >= from_ms) & (t - before > interval + np.maximum(GAP_SLOTS * interval, GAP_MS))
    cover_ms = np.minimum(np.minimum(interval, after - t), window + plan.base_ms - t)
    return _Times(
        same=same,
        gap_ms=t - before,
        order=order,
        entity=entity[order],
        cover_ms=cover_ms[order],
        bucket_ms=bucket[order],
        starts=np.flatnonzero(changes[: order.size]),
        held=dict(_held(rows, row[order], is_slot[order], is_gap[order])),
        late=int(rows.late[row[order]].sum()),
    )


def _held(rows: Rows, row: NDArray[np.intp], is_slot: Bools, is_gap: Bools) -> Iterator[tuple[Key, Held]]:
    """Yield what the tables hold of each entity and part."""
    entity, t = rows.entity[row], rows.t[row]
    starts = np.flatnonzero(np.diff(entity, prepend=-1))
    ends = np.append(starts[1:], t.size)[: starts.size]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key = "\0".join(rows.labels[int(entity[start])].values())
        cadence_ms = int(rows.cadence_ms[row[start]])
        reach_ms = cadence_ms + max(GAP_SLOTS * cadence_ms, GAP_MS)
        slots, gaps = int(is_slot[start:end].sum()), int(is_gap[start:end].sum())
        yield key, Held(slots, int(t[start]), int(t[end - 1]), gaps, reach_ms)


def _samples(rows: Rows, plan: SeriesPlan, times: _Times, row: NDArray[np.intp], v: Values) -> _Samples:
    """Return the samples of a plan's metric."""
    order, none = times.order, np.empty(0, np.bool_)
    if plan.selected.aggregate not in PAIRED:
        return _Samples(v[order], times, np.empty(0, np.int64), none, none, none, none)
    found = _pairs(rows, plan, row, v, times)
    is_near = times.same & (times.gap_ms <= PAIR_MAXIMUM_MS)
    return _Samples(
        v=v[order],
        times=times,
        pair_ms=np.where(found.counted, times.gap_ms, 0)[order],
        increase=found.increase[order],
        is_pair=found.counted[order],
        is_reset=found.reset[order],
        is_change=(is_near & (v != np.roll(v, 1)))[order],
    )


def _pairs(rows: Rows, plan: SeriesPlan, row: NDArray[np.intp], v: Values, times: _Times) -> Increase:
    """Return what each sample adds to the one before it; nothing where the aggregate does not ask."""
    if plan.selected.aggregate is Aggregate.CHANGES:
        nothing = np.zeros(row.size, np.bool_)
        return Increase(np.zeros(row.size), nothing, nothing, 0)
    boot, same = rows.boot[row], times.same
    new_epoch = same & (boot != np.roll(boot, 1)) & (boot >= 0) & (np.roll(boot, 1) >= 0)
    return increase_of(plan.selected.metric, Pairs(v, np.roll(v, 1), times.gap_ms, new_epoch, same))


def _is_best(rank: I64, entity: I64, window: I64, counted: Bools) -> Bools:
    """Tell which samples are of the collector that counts for their entity and window."""
    order = np.lexsort((rank, ~counted, window, entity))
    first = np.concatenate([[True], (np.diff(entity[order]) != 0) | (np.diff(window[order]) != 0)])[: order.size]
    best = np.empty(order.size, np.int64)
    best[order] = rank[order][first][np.cumsum(first) - 1] if order.size else 0
    is_best: Bools = rank == best
    return is_best


def _figures(samples: _Samples, aggregate: Aggregate) -> Any:
    """Return the figure of each output window, NaN where nothing is known."""
    if not samples.v.size:
        return np.empty(0)
    if aggregate in PAIRED:
        return _paired_figures(samples, aggregate)
    if aggregate in _EXTREMES:
        return _EXTREMES[aggregate].reduceat(samples.v, samples.times.starts).astype(np.float64)
    if aggregate is Aggregate.LAST:
        return samples.v[np.append(samples.times.starts[1:], samples.v.size) - 1].astype(np.float64)
    covered_ms = _sums(samples.times.cover_ms, samples)
    if aggregate is Aggregate.COUNT:
        return covered_ms / 1000
    return _ratio(_sums(_weighed(samples), samples), covered_ms)


def _weighed(samples: _Samples) -> Values:
    """Return values times what they cover; of so great ones that sums of 64 bits may overflow, in a wider float."""
    if samples.v.dtype == np.float64:
        return samples.v * samples.times.cover_ms
    greatest = max(abs(int(samples.v.max())), abs(int(samples.v.min())))
    is_great = greatest * int(samples.times.cover_ms.sum()) >= 1 << 63
    wide: Any = samples.v.astype(np.longdouble if is_great else np.int64)
    weighed: Values = wide * samples.times.cover_ms
    return weighed


def _paired_figures(samples: _Samples, aggregate: Aggregate) -> F64:
    if aggregate is Aggregate.RATE:
        return _ratio(_sums(samples.increase, samples) * 1000, _sums(samples.pair_ms, samples))
    if aggregate is Aggregate.INCREASE:
        known = _sums(samples.is_pair, samples) > 0
        return np.where(known, _sums(samples.increase, samples), np.nan)
    return _sums(samples.is_reset if aggregate is Aggregate.RESETS else samples.is_change, samples)


def _sums(values: Values, samples: _Samples) -> F64:
    wide = values.astype(np.int64) if values.dtype == np.bool_ else values
    sums: F64 = np.add.reduceat(wide, samples.times.starts).astype(np.float64)
    return sums


def _ratio(above: F64, below: F64) -> F64:
    ratio: F64 = np.divide(above, below, out=np.full(above.size, np.nan), where=below > 0)
    return ratio
