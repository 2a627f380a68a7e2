"""Answer small questions from the newest minutes in memory, with the rows that the store would give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.live.block import Column, LiveBlock
from secondsight.live.reading import LiveReading
from secondsight.live.table import LiveTable
from secondsight.query.aggregates import PAIRED
from secondsight.query.plan import SeriesPlan
from secondsight.query.request import Filters
from secondsight.query.rows import Rows
from secondsight.query.windows import IDENTITY, LATE_MS

I64 = NDArray[np.int64]
Positions = NDArray[np.intp]


class LiveTables(Protocol):
    """Where tables in memory come from."""

    def table(self, name: str) -> LiveTable | None:
        """Return a table, or None while it may lack rows that the store has shown."""
        ...

    def holds(self, name: str, from_ms: int) -> bool:
        """Tell whether all rows of a table are there from some time on."""
        ...

    def count(self, *, held: bool) -> None:
        """Count a question that it could answer, or could not."""
        ...


class NoLiveTables:
    """Stands for a store whose inserts nobody follows."""

    def table(self, _name: str) -> LiveTable | None:
        """Return nothing."""
        return None

    def holds(self, _name: str, _from_ms: int) -> bool:
        """Say no."""
        return False

    def count(self, *, held: bool) -> None:
        """Count nothing."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of one block.

    Attributes:
        rows: Their positions, ascending.
        start: How many rows of earlier blocks were taken.
    """

    block: LiveBlock
    rows: Positions
    start: int


def where_of(filters: Filters) -> dict[str, tuple[str, ...]] | None:
    """Return filters by the columns of live tables; None where a table alone does not know what they mean."""
    if filters.gpu_model:
        return None
    return {
        "cluster_id": filters.cluster,
        "host_id": filters.host,
        "entity": filters.gpu,
        "part": filters.part,
        "job_id": filters.job,
        "owner_team": filters.team,
        "model_id": filters.model,
    }


def live_rows(tables: LiveTables, plans: Sequence[SeriesPlan], scope: Scope, back_ms: int) -> Rows | None:
    """Return the rows that `compile_rows` gives, or None where they are not all in memory.

    Raises:
        TypeError: There is no scope.
        Rejected(forbidden_metric): The scope denies one of the metrics.
    """
    first = plans[0]
    table, where = tables.table(first.raw_table), where_of(first.filters)
    if table is None or where is None:
        return None
    names = list(dict.fromkeys(plan.selected.metric.name for plan in plans))
    reading = table.reading(scope, names, where, first.span.from_ms - back_ms, first.span.to_ms)
    if reading is None:
        return None
    boots = [] if not any(plan.selected.aggregate in PAIRED for plan in plans) else table.texts["boot_id"].items
    return _rows(reading, several_sources=first.several_sources, boots=boots)


def _rows(reading: LiveReading, *, several_sources: bool, boots: Sequence[str]) -> Rows:
    few = reading.visible.few
    labels = [reading.series.labels(number) for number in few.tolist()]
    by_name = sorted(range(few.size), key=labels.__getitem__)
    taken = _taken(reading)
    series = _joined([np.searchsorted(few, one.block.series[one.rows]) for one in taken], np.int64)
    rank = np.empty(few.size, np.int64)
    rank[by_name] = np.arange(few.size)
    series = rank[series]
    order = np.argsort(series, kind="stable") if few.size > 1 else None
    arranged = [labels[place] for place in by_name]
    places = [one[:5] for one in arranged]
    entity = _numbered(places)

    def column(name: str) -> NDArray[Any]:
        found = _joined([one.block.values(name)[one.rows] for one in taken], np.int64).astype(np.int64)
        return found if order is None else found[order]

    t = _joined([one.block.t[one.rows] for one in taken], np.int64)
    t, series = (t, series) if order is None else (t[order], series[order])
    none = np.empty(0, np.int64)
    return Rows(
        values=lambda name: _values(taken, name, order),
        labels=[dict(zip(IDENTITY, one, strict=True)) for one in dict.fromkeys(places)],
        t=t,
        cadence_ms=np.maximum(column("interval_ms"), 1),
        late=(column("ingest_time") - t > LATE_MS).astype(np.int64),
        entity=entity[series],
        series=series,
        rank=_ranked(column("source_rank"), [one[5] for one in arranged], series) if several_sources else none,
        boot=_boots(column("boot_id"), boots) if boots else none,
    )


def _taken(reading: LiveReading) -> list[Taken]:
    """Return the rows of each block that a reader may see."""
    found, start = [], 0
    for block in reading.blocks:
        rows = _rows_of(block, reading)
        if rows.size:
            found.append(Taken(block, rows, start))
            start += rows.size
    return found


def _rows_of(block: LiveBlock, reading: LiveReading) -> Positions:
    few = reading.visible.few
    if few.size == 1:
        rows = np.arange(*block.range_of(int(few[0])))
    else:
        place = block.codes.searchsorted(few)
        place = place[block.codes[np.minimum(place, block.codes.size - 1)] == few] if block.codes.size else place[:0]
        rows = _ranges(block.starts[place], block.starts[place + 1])
    if block.start_ms < reading.from_ms or block.end_ms > reading.to_ms:
        t = block.t[rows]
        rows = rows[(t >= reading.from_ms) & (t < reading.to_ms)]
    if not reading.visible.is_by_owner:
        return rows
    return rows[reading.visible.admits(block.series[rows], block.owner[rows])]


def _ranges(starts: I64, ends: I64) -> Positions:
    """Return the positions of several ranges, one after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    found: Positions = np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
    return found


def _values(taken: Sequence[Taken], name: str, order: Positions | None) -> tuple[Positions, NDArray[Any]]:
    """Return the rows that have a metric, ascending, and its values."""
    rows, values = [], []
    for one in taken:
        there, some = some_values(one.block.column(name), one.rows)
        if some.size:
            rows.append(there + one.start)
            values.append(some)
    row, value = _joined(rows, np.intp), _joined(values, np.int64)
    if order is None or not row.size:
        return row, value
    place = np.empty(order.size, np.intp)
    place[order] = np.arange(order.size)
    moved = place[row]
    by_place = np.argsort(moved, kind="stable")
    return moved[by_place], value[by_place]


def some_values(column: Column, rows: Positions) -> tuple[Positions, NDArray[Any]]:
    """Return which of some rows have a value, and these values."""
    if column.rows is None:
        return np.arange(rows.size), column.values[rows]
    if not column.rows.size:
        return np.empty(0, np.intp), column.values
    place = np.minimum(np.searchsorted(column.rows, rows), column.rows.size - 1)
    there = np.flatnonzero(column.rows[place] == rows)
    return there, column.values[place[there]]


def _numbered(labels: Sequence[tuple[str, ...]]) -> I64:
    """Number sorted labels, equal ones alike."""
    changed = [place > 0 and labels[place] != labels[place - 1] for place in range(len(labels))]
    return np.cumsum(np.array(changed, np.int64))


def _ranked(source_rank: I64, collectors: Sequence[str], series: I64) -> I64:
    """Number the collectors of some rows, that of the least rank, then name, first."""
    names = sorted(set(collectors))
    collector = np.array([names.index(name) for name in collectors], np.int64)
    ranks: I64 = source_rank * len(names) + collector[series]
    return ranks


def _boots(codes: I64, texts: Sequence[str]) -> I64:
    """Number the boots of some rows; -1 is an unknown one."""
    unknown = [code for code in np.unique(codes).tolist() if texts[code] == ""]
    return np.where(np.isin(codes, unknown), -1, codes) if unknown else codes


def _joined(arrays: Sequence[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
