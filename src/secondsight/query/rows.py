"""Answer a small question from its rows: read them once for all metrics, and make the figures in numpy.

The same definitions as the statements of `compile.py`, cheaper where few rows are spread over many metrics: one GPU's
telemetry.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.process.counters import Increase, Pairs, increase_of
from secondsight.process.patterns import LOOKBACK_MS as PAIR_MAXIMUM_MS
from secondsight.query.aggregates import PAIRED, Aggregate
from secondsight.query.coverage import GAP_MS, GAP_SLOTS, Held, Key
from secondsight.query.plan import SeriesPlan, Situation, Span
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement
from secondsight.query.windows import FAR_MS, IDENTITY, LATE_MS, filter_predicates, raw_bounds
from secondsight.store.spec import quoted

ROWS_MAXIMUM = 50_000

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Values = NDArray[Any]
Bools = NDArray[np.bool_]

_AGGREGATES = frozenset(Aggregate) - {Aggregate.P50, Aggregate.P95, Aggregate.P99}
_EXTREMES: dict[Aggregate, Any] = {Aggregate.MIN: np.minimum, Aggregate.MAX: np.maximum}
_SERIES = (*IDENTITY, "collector_id")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `compile_rows` with what every metric of them shares; shape (rows,) each.

    Attributes:
        values: Gives, of a metric, the positions of the rows that have it, ascending, and its values.
        labels: Column -> name, by number of the entity.
        entity, series: Number of the entity and part, and of the same by one collector.
        rank: Order of collectors, the best one first; empty where one was promised.
        boot: Number of the host's boot, -1 where it is unknown; empty where no counter was asked for.
    """

    values: Callable[[str], tuple[NDArray[np.intp], Values]]
    labels: list[dict[str, str]]
    t: I64
    cadence_ms: I64
    late: I64
    entity: I64
    series: I64
    rank: I64
    boot: I64


@dataclass(frozen=True, slots=True)
class Figures:
    """What one plan gave.

    Attributes:
        cut: (Labels by column, window starts, figures as stored) per entity and part, in the order of their names.
        notes: What is to be said of them.
    """

    cut: list[tuple[dict[str, str], I64, F64]]
    held: dict[Key, Held]
    late: int
    rows: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Samples:
    """Samples of one metric that count, sorted by entity, window, time; shape (rows,) each.

    Attributes:
        row: Position in the rows read.
        starts: Where each (entity, output window) begins.
    """

    row: NDArray[np.intp]
    entity: I64
    t: I64
    v: Values
    cover_ms: I64
    bucket_ms: I64
    is_slot: Bools
    is_gap: Bools
    pair_ms: I64
    increase: Values
    is_pair: Bools
    is_reset: Bools
    is_change: Bools
    starts: NDArray[np.intp]


def suits_rows(plans: Sequence[SeriesPlan], situation: Situation) -> bool:
    """Tell whether plans of one request are few rows of single entities, read from 1 s rows alone."""
    if not situation.entities:
        return False
    alike = all(
        not plan.edges and plan.rollup is None and plan.raw is not None and plan.raw == plans[0].raw for plan in plans
    )
    single = all(
        set(plan.groups) == {Group.GPU, Group.PART} and plan.selected.aggregate in _AGGREGATES for plan in plans
    )
    range_ms = max(plan.span.to_ms - plan.span.from_ms for plan in plans)
    return alike and single and situation.entities * range_ms // situation.interval_ms <= ROWS_MAXIMUM


def compile_rows(plans: Sequence[SeriesPlan], scope: Scope, back_ms: int) -> Statement:
    """Return the statement for the rows that some plans over one range need, sorted by series and time.

    `back_ms` is how far before the range counters may begin. Of rows that were written again the newest counts. Where
    rows are narrowed by owner all of them have to be merged first, for a row may have changed hands; else sorting
    finds the newest of the few rows cheaper.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies one of the metrics.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    names = list(dict.fromkeys(plan.selected.metric.name for plan in plans))
    for name in names:
        tables.check_metric(name)
    first = plans[0]
    rewritten = any(plan.final_raw for plan in plans)
    owned = scope.is_attributed or first.filters.is_attributed
    span = Span(first.span.from_ms - back_ms, first.span.to_ms)
    some = " OR ".join(f"isNotNull({quoted(name)})" for name in names)
    columns = [
        *_SERIES,
        *(["source_rank"] if first.several_sources else []),
        *(["boot_id"] if any(plan.selected.aggregate in PAIRED for plan in plans) else []),
        "toUnixTimestamp64Milli(event_time) AS t",
        "toInt64(greatest(interval_ms, 1)) AS cadence_ms",
        f"toUnixTimestamp64Milli(ingest_time) - t > {LATE_MS} AS is_late",
        *map(quoted, names),
    ]
    where = [*raw_bounds(span, parameters), f"({some})", *filter_predicates(first.filters, tables, parameters)]
    order = [f"ORDER BY {', '.join([*_SERIES, 't', *(['version DESC'] if rewritten else [])])}"]
    if rewritten and not owned:
        order.append(f"LIMIT 1 BY {', '.join([*_SERIES, 't'])}")
    rows = tables.table(first.raw_table, columns, where, tail=order, final=rewritten and owned)
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def back_of(plans: Sequence[SeriesPlan]) -> int:
    """Return how far before the range the sample before a counter's first one may be."""
    return max(plan.lookback_ms for plan in plans)


def rows_of(table: Any) -> Rows:
    """Return the rows of `compile_rows` with their series numbered."""
    none = np.empty(0, np.int64)
    names = table.column_names
    entity = _codes(table, IDENTITY)
    firsts = np.flatnonzero(np.diff(entity, prepend=-1))
    return Rows(
        values=partial(_values, table),
        labels=table.select(list(IDENTITY)).take(pa.array(firsts)).to_pylist(),
        t=_integers(table, "t"),
        cadence_ms=_integers(table, "cadence_ms"),
        late=_integers(table, "is_late"),
        entity=entity,
        series=_codes(table, _SERIES),
        rank=_ranks(table) if "source_rank" in names else none,
        boot=_boots(table) if "boot_id" in names else none,
    )


def lacks_before(rows: Rows, plans: Sequence[SeriesPlan]) -> bool:
    """Tell whether some counter has samples in the range, and none in what was read before it."""
    inside = rows.t >= plans[0].span.from_ms
    for plan in plans:
        if plan.selected.aggregate in PAIRED:
            there, _ = rows.values(plan.selected.metric.name)
            series, is_inside = rows.series[there], inside[there]
            if not np.isin(series[is_inside], series[~is_inside]).all():
                return True
    return False


def figures_of(rows: Rows, plan: SeriesPlan) -> Figures:
    """Return the points of a plan and what they are worth, from the rows of `compile_rows`."""
    samples = _samples(rows, plan)
    late = rows.late[samples.row]
    figures = np.asarray(_figures(samples, plan.selected.aggregate), np.float64)
    times, codes = samples.bucket_ms[samples.starts], samples.entity[samples.starts]
    known = ~np.isnan(figures)
    cut = []
    for entity in np.unique(codes).tolist():
        there = known & (codes == entity)
        if there.any():
            cut.append((rows.labels[entity], times[there], figures[there]))
    held = dict(_held(rows, samples))
    return Figures(cut, held, int(late.sum()), samples.t.size)


def _held(rows: Rows, samples: _Samples) -> Iterator[tuple[Key, Held]]:
    """Yield what the tables hold of each entity and part."""
    starts = np.flatnonzero(np.diff(samples.entity, prepend=-1))
    ends = np.append(starts[1:], samples.t.size)[: starts.size]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key = "\0".join(rows.labels[int(samples.entity[start])].values())
        slots, gaps = int(samples.is_slot[start:end].sum()), int(samples.is_gap[start:end].sum())
        cadence_ms = int(rows.cadence_ms[samples.row[start]])
        reach_ms = cadence_ms + max(GAP_SLOTS * cadence_ms, GAP_MS)
        yield key, Held(slots, int(samples.t[start]), int(samples.t[end - 1]), gaps, reach_ms)


def _values(table: Any, name: str) -> tuple[NDArray[np.intp], Values]:
    column = table[name].combine_chunks()
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)), column.drop_null().to_numpy()


def _samples(rows: Rows, plan: SeriesPlan) -> _Samples:
    """Return the samples of a plan's metric with what they cover, as `windows.samples` does."""
    row, v = rows.values(plan.selected.metric.name)
    t, interval, entity, series = rows.t[row], rows.cadence_ms[row], rows.entity[row], rows.series[row]
    same = np.concatenate([[False], series[1:] == series[:-1]]) if row.size else np.empty(0, np.bool_)
    before = np.where(same, np.roll(t, 1), 0)
    after = np.where(np.roll(same, -1), np.roll(t, -1), FAR_MS)
    window = t // plan.base_ms * plan.base_ms
    found = _pairs(rows, plan, row, v, t - before, same)
    from_ms = plan.span.from_ms
    counted = t >= from_ms
    if plan.several_sources:
        counted &= _is_best(rows.rank[row], entity, window, counted)
    bucket = np.full(t.size, from_ms) if plan.whole else window // plan.resolution_ms * plan.resolution_ms
    order = np.flatnonzero(counted)
    if plan.several_sources:
        order = order[np.lexsort((t[order], bucket[order], entity[order]))]
    changes = np.concatenate([[True], (np.diff(entity[order]) != 0) | (np.diff(bucket[order]) != 0)])
    return _Samples(
        row=row[order],
        entity=entity[order],
        t=t[order],
        v=v[order],
        cover_ms=np.minimum(np.minimum(interval, after - t), window + plan.base_ms - t)[order],
        bucket_ms=bucket[order],
        is_slot=(t // interval != before // interval)[order] & (t[order] < plan.due_ms),
        is_gap=((before >= from_ms) & (t - before > interval + np.maximum(GAP_SLOTS * interval, GAP_MS)))[order],
        pair_ms=np.where(found.counted, t - before, 0)[order],
        increase=found.increase[order],
        is_pair=found.counted[order],
        is_reset=found.reset[order],
        is_change=(same & (t - before <= PAIR_MAXIMUM_MS) & (v != np.roll(v, 1)))[order],
        starts=np.flatnonzero(changes[: order.size]),
    )


def _pairs(rows: Rows, plan: SeriesPlan, row: NDArray[np.intp], v: Values, gap_ms: I64, same: Bools) -> Increase:
    """Return what each sample adds to the one before it; nothing where the aggregate does not ask."""
    if plan.selected.aggregate not in PAIRED or plan.selected.aggregate is Aggregate.CHANGES:
        nothing = np.zeros(row.size, np.bool_)
        return Increase(np.zeros(row.size), nothing, nothing, 0)
    boot = rows.boot[row]
    new_epoch = same & (boot != np.roll(boot, 1)) & (boot >= 0) & (np.roll(boot, 1) >= 0)
    return increase_of(plan.selected.metric, Pairs(v, np.roll(v, 1), gap_ms, new_epoch, same))


def _boots(table: Any) -> I64:
    """Number the boots of some rows; -1 is an unknown one."""
    names = table["boot_id"].cast(pa.string()).combine_chunks().dictionary_encode()
    codes: I64 = names.indices.to_numpy().astype(np.int64)
    unknown = [code for code, name in enumerate(names.dictionary.to_pylist()) if name == ""]
    return np.where(np.isin(codes, unknown), -1, codes)


def _ranks(table: Any) -> I64:
    """Number the collectors of some rows, that of the least rank, then name, first."""
    names = table["collector_id"].cast(pa.string()).to_numpy(zero_copy_only=False).astype(str)
    _, collector = np.unique(names, return_inverse=True)
    ranks: I64 = _integers(table, "source_rank") * (collector.max(initial=0) + 1) + collector
    return ranks


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
    if not samples.t.size:
        return np.empty(0)
    if aggregate in PAIRED:
        return _paired_figures(samples, aggregate)
    if aggregate in _EXTREMES:
        return _EXTREMES[aggregate].reduceat(samples.v, samples.starts).astype(np.float64)
    if aggregate is Aggregate.LAST:
        return samples.v[np.append(samples.starts[1:], samples.v.size) - 1].astype(np.float64)
    covered_ms = _sums(samples.cover_ms, samples)
    if aggregate is Aggregate.COUNT:
        return covered_ms / 1000
    return _ratio(_sums(_weighed(samples), samples), covered_ms)


def _weighed(samples: _Samples) -> Values:
    """Return values times what they cover; of so great ones that sums of 64 bits may overflow, in a wider float."""
    if samples.v.dtype == np.float64:
        return samples.v * samples.cover_ms
    greatest = max(abs(int(samples.v.max())), abs(int(samples.v.min())))
    is_great = greatest * int(samples.cover_ms.sum()) >= 1 << 63
    wide: Any = samples.v.astype(np.longdouble if is_great else np.int64)
    weighed: Values = wide * samples.cover_ms
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
    sums: F64 = np.add.reduceat(wide, samples.starts).astype(np.float64)
    return sums


def _ratio(above: F64, below: F64) -> F64:
    ratio: F64 = np.divide(above, below, out=np.full(above.size, np.nan), where=below > 0)
    return ratio


def _codes(rows: Any, names: Sequence[str]) -> I64:
    """Number the distinct combinations of some columns of sorted rows, in their order."""
    changed = np.zeros(max(rows.num_rows - 1, 0), np.bool_)
    for name in names:
        codes = rows[name].cast(pa.string()).combine_chunks().dictionary_encode().indices.to_numpy()
        changed |= codes[1:] != codes[:-1]
    return np.concatenate([[0], np.cumsum(changed)])[: rows.num_rows].astype(np.int64)


def _integers(rows: Any, name: str) -> I64:
    values: I64 = rows[name].to_numpy().astype(np.int64)
    return values
