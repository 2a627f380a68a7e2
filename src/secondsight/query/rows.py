"""Read the rows of a small question once for all of its metrics; `rowfigures.py` makes figures of them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.query.aggregates import PAIRED, Aggregate
from secondsight.query.coverage import Held, Key
from secondsight.query.plan import SeriesPlan, Situation, Span
from secondsight.query.request import Group
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement
from secondsight.query.windows import IDENTITY, LATE_MS, filter_predicates, raw_bounds
from secondsight.store.spec import quoted

ROWS_MAXIMUM = 50_000
FEW_METRICS = 8
"""Rows that have none of more metrics than this are read and left out here: finding them costs the engine more."""

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Values = NDArray[Any]
Bools = NDArray[np.bool_]

_AGGREGATES = frozenset(Aggregate) - {Aggregate.P50, Aggregate.P95, Aggregate.P99}
_SERIES = (*IDENTITY, "collector_id")
_PARTS_OF_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `compile_rows` by series and time, with what every metric of them shares; shape (rows,) each.

    Attributes:
        values: Gives, of a metric, the positions of the rows that have it, ascending, and its values.
        labels: Column -> name, by number of the entity.
        entity, series: Number of the entity and part, and of the same by one collector.
        rank: Order of collectors, the best one first; empty where one was promised.
        boot: Number of the host's boot, -1 where it is unknown; empty where no counter was asked for.
        times: What was found out of rows that a metric has, for others that the same ones have.
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
    times: dict[Hashable, Any] = field(default_factory=dict)


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
    """Return the statement for the rows that some plans over one range need, in no order.

    `back_ms` is how far before the range counters may begin. `rows_of` takes the newest of rows written again; where
    they are narrowed by owner all have to be merged first, for a row may have changed hands. The columns are those of
    the table, as expressions take the engine longer than so few rows; of other entities nothing but the name is read.

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
    columns = [
        *_SERIES,
        *(["source_rank"] if first.several_sources else []),
        *(["boot_id"] if any(plan.selected.aggregate in PAIRED for plan in plans) else []),
        *(["version"] if rewritten and not owned else []),
        *("event_time", "interval_ms", "ingest_time"),
        *map(quoted, names),
    ]
    some = [f"({' OR '.join(f'isNotNull({quoted(name)})' for name in names)})"] if len(names) <= FEW_METRICS else []
    filters = replace(first.filters, gpu=())
    where = [*raw_bounds(span, parameters), *some, *filter_predicates(filters, tables, parameters)]
    before = parameters.among([("entity", first.filters.gpu)])
    rows = tables.table(first.raw_table, columns, where, before=before, final=rewritten and owned)
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def back_of(plans: Sequence[SeriesPlan]) -> int:
    """Return how far before the range the sample before a counter's first one may be."""
    return max(plan.lookback_ms for plan in plans)


def rows_of(table: Any) -> Rows:
    """Return the rows of `compile_rows`, by series and time, the newest of each, with their series numbered."""
    names = table.column_names
    texts = {name: _Texts.of(table, name) for name in _SERIES}
    series, t = _numbered([texts[name] for name in _SERIES]), _times_ms(table, "event_time")
    order = _newest(series, t, table["version"] if "version" in names else None)
    entity, t = _numbered([texts[name] for name in IDENTITY])[order], t[order]
    firsts = order[np.flatnonzero(np.diff(entity, prepend=-1))].tolist()
    none = np.empty(0, np.int64)
    return Rows(
        values=partial(_values, table, order),
        labels=[{name: texts[name].at(place) for name in IDENTITY} for place in firsts],
        t=t,
        cadence_ms=np.maximum(_integers(table, "interval_ms")[order], 1),
        late=(_times_ms(table, "ingest_time")[order] - t > LATE_MS).astype(np.int64),
        entity=entity,
        series=series[order],
        rank=_ranks(table)[order] if "source_rank" in names else none,
        boot=_boots(table)[order] if "boot_id" in names else none,
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


@dataclass(frozen=True, slots=True)
class _Texts:
    """A column of texts by number; equal numbers are equal texts, and they are ordered alike."""

    number: I64
    names: list[str]

    @classmethod
    def of(cls, table: Any, name: str) -> "_Texts":
        """Return a column of a table."""
        column = table[name].cast(pa.string()).combine_chunks().dictionary_encode()
        codes = column.indices.to_numpy()
        known = column.dictionary.to_pylist()
        names = sorted(known)
        place = {text: number for number, text in enumerate(names)}
        return cls(np.array([place[text] for text in known], np.int64)[codes], names)

    def at(self, row: int) -> str:
        """Return the text of a row."""
        return self.names[int(self.number[row])]


def _numbered(texts: Sequence[_Texts]) -> I64:
    """Number the distinct combinations of some columns, in the order of their texts."""
    found = texts[0].number
    for one in texts[1:]:
        if len(one.names) > 1:
            _, found = np.unique(found * len(one.names) + one.number, return_inverse=True)
    numbers: I64 = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return numbers


def _newest(series: I64, t: I64, version: Any) -> NDArray[np.intp]:
    """Return the rows by series and time; of those that were written again the one of the highest version."""
    if version is None:
        return np.lexsort((t, series))
    column = version.combine_chunks()
    halves = np.frombuffer(column.buffers()[1], "<u8").reshape(-1, 2)[column.offset :][: len(column)]
    order = np.lexsort((halves[:, 0], halves[:, 1], t, series))
    last = np.ones(order.size, np.bool_)
    last[:-1] = (np.diff(series[order]) != 0) | (np.diff(t[order]) != 0)
    return order[last]


def _values(table: Any, order: NDArray[np.intp], name: str) -> tuple[NDArray[np.intp], Values]:
    column = table[name].combine_chunks()
    values = (column.fill_null(0) if column.null_count else column).to_numpy()[order]
    if not column.null_count:
        return np.arange(order.size), values
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)[order])
    return there, values[there]


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


def _times_ms(rows: Any, name: str) -> I64:
    """Return a column of times in epoch ms, of which some engines tell finer units."""
    column = rows[name].combine_chunks()
    times: I64 = column.cast(pa.int64()).to_numpy() // _PARTS_OF_MS[column.type.unit]
    return times


def _integers(rows: Any, name: str) -> I64:
    values: I64 = rows[name].to_numpy().astype(np.int64)
    return values
