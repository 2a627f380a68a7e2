"""Put together what the statements of a question gave: ranked, scaled, labelled, a page of it, with its warnings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from secondsight.catalog.scale import physical_array
from secondsight.query.aggregates import is_scaled, unit_of
from secondsight.query.answer import F64, I64, Answer, Series, cut_series, named_labels
from secondsight.query.compile import label_columns
from secondsight.query.coverage import Coverage, Held, Key, held_of
from secondsight.query.grouped import Grouped
from secondsight.query.plan import SeriesPlan
from secondsight.query.progress import Progress
from secondsight.query.request import MetricQuery
from secondsight.query.rows import Figures

_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class Best:
    """Which points of a ranking are wanted."""

    count: int
    highest: bool


class SeriesInMemory(Sequence[Series]):
    """The series of a plan that was answered out of memory; each is made when it is looked at."""

    def __init__(self, found: Grouped) -> None:
        self._found = found

    def __len__(self) -> int:
        """Return how many series there are."""
        return self._found.order.size

    @overload
    def __getitem__(self, place: int) -> Series: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Series]: ...
    def __getitem__(self, place: int | slice) -> Series | Sequence[Series]:
        """Return the series at a place, or those of a range."""
        if isinstance(place, slice):
            return _made(self._found.plan, self._found.cut(self._found.order[place]))
        return _made(self._found.plan, self._found.cut(self._found.order[[place]]))[0]

    def __iter__(self) -> Iterator[Series]:
        """Yield every series."""
        return iter(self[:])


@dataclass(frozen=True, slots=True)
class Part:
    """What one metric of a request gave.

    Attributes:
        held: What the tables hold by entity and part; empty where `found` says it in arrays.
        found: What memory gave.
    """

    series: Sequence[Series]
    plan: SeriesPlan
    held: dict[Key, Held]
    newest_ms: int | None
    late: int
    rows: int
    notes: tuple[str, ...] = ()
    found: Grouped | None = None


def part_of(plan: SeriesPlan, found: Figures | Grouped | pa.Table, best: Best | None) -> Part:
    """Return what a plan gave as a part of an answer; with `best`, only the points that rank first."""
    if isinstance(found, Grouped):
        shown = found if best is None else found.best(best.count, highest=best.highest)
        return Part(SeriesInMemory(shown), plan, {}, found.newest_ms, found.late, found.rows, (), found)
    if not isinstance(found, Figures):
        found = _figures_of_table(found, plan, best)
    newest_ms = max((one.last_ms for one in found.held.values()), default=None)
    return Part(_made(plan, found.cut), plan, found.held, newest_ms, found.late, found.rows, found.notes)


def with_objects(part: Part) -> Part:
    """Return a part with what the tables hold by entity and part, wherever it came from."""
    return part if part.found is None else replace(part, held=part.found.as_figures().held, found=None)


def as_figures(plan: SeriesPlan, found: Figures | Grouped | pa.Table) -> Figures:
    """Return what a plan gave, with every point of it."""
    if isinstance(found, Grouped):
        return found.as_figures()
    return found if isinstance(found, Figures) else _figures_of_table(found, plan, None)


def _figures_of_table(rows: pa.Table, plan: SeriesPlan, best: Best | None) -> Figures:
    is_entity = rows["is_entity"].to_numpy() == 1
    stored, points = rows.filter(pa.array(is_entity)), rows.filter(pa.array(~is_entity))
    cut = cut_series(points if best is None else _ranked(points, best, label_columns(plan.groups)), plan.groups)
    return Figures(cut, held_of(stored), _total(stored, "late"), _total(stored, "rows"))


def _ranked(points: pa.Table, best: Best, labels: Sequence[str]) -> pa.Table:
    """Return the points that rank first, of equal ones those first by name; those without a figure rank nowhere."""
    figures = points["figure"].to_numpy(zero_copy_only=False).astype(np.float64)
    ranked = -figures if best.highest else figures
    order = np.argsort(ranked, kind="stable")[: best.count]
    equal = np.flatnonzero(ranked == ranked[order[-1]]) if order.size else order
    if equal.size < 2:
        return points.take(pa.array(order))
    better = order[ranked[order] != ranked[order[-1]]]
    names = [_COMPUTE.fill_null(points[label].cast(pa.string()), "").take(pa.array(equal)) for label in labels]
    by_name = _COMPUTE.sort_indices(pa.table(names, list(labels)), [(label, "ascending") for label in labels])
    return points.take(pa.array(np.append(better, equal[by_name.to_numpy()])[: best.count]))


def _made(plan: SeriesPlan, cut: Sequence[tuple[dict[str, str], I64, F64]]) -> tuple[Series, ...]:
    metric, aggregate = plan.selected.metric, plan.selected.aggregate
    scaled = is_scaled(aggregate)
    unit = unit_of(metric, aggregate)
    made = []
    for labels, times, values in cut:
        figures = physical_array(metric, values) if scaled else values
        made.append(Series(metric.name, unit, aggregate.value, named_labels(labels, metric.kind), times, figures))
    return tuple(made)


def assembled(query: MetricQuery, parts: list[Part], progress: Progress, now_ms: int, coverage: Coverage) -> Answer:
    """Return the answer that the parts of one request make, a page of it."""
    total = sum(len(part.series) for part in parts)
    page = _page(parts, query.offset, query.offset + query.limit)
    end = query.offset + len(page)
    rows = sum(part.rows for part in parts)
    newest = [ms for ms in (progress.newest_ms, *(part.newest_ms for part in parts)) if ms is not None]
    return Answer(
        metric=",".join(dict.fromkeys(part.plan.selected.metric.name for part in parts)),
        unit=_common([_unit(part) for part in parts if part.series] or [_unit(parts[0])]),
        aggregate=_common([part.plan.selected.aggregate.value for part in parts]),
        series=tuple(page),
        span=parts[0].plan.span,
        resolution_ms=parts[0].plan.resolution_ms,
        timezone=query.calendar.zone if query.calendar else "",
        edges=parts[0].plan.edges,
        coverage=coverage,
        complete_through_ms=progress.complete_through_ms,
        freshness_ms=max(now_ms - max(newest), 0) if newest else None,
        late_ratio=sum(part.late for part in parts) / rows if rows else None,
        warnings=(*_warnings(progress, coverage), *(note for part in parts for note in part.notes)),
        series_total=total,
        next_cursor=str(end) if end < total else "",
    )


def _page(parts: Sequence[Part], start: int, end: int) -> list[Series]:
    """Return some of the series of all parts, one part after the other."""
    page: list[Series] = []
    for part in parts:
        page += part.series[max(start, 0) : max(end, 0)]
        start, end = start - len(part.series), end - len(part.series)
    return page


def together(query: MetricQuery, answers: Sequence[Answer]) -> Answer:
    """Return the answer that several give about different metrics of one request, a page of it."""
    order = {one.metric.name: position for position, one in enumerate(query.selected)}
    series = sorted((one for answer in answers for one in answer.series), key=lambda one: order[one.metric])
    first = answers[0]
    end = min(query.offset + query.limit, len(series))
    known = [answer.complete_through_ms for answer in answers]
    ages = [answer.freshness_ms for answer in answers if answer.freshness_ms is not None]
    starts = [answer.expected_from_ms for answer in answers if answer.expected_from_ms is not None]
    late = [answer.late_ratio for answer in answers if answer.late_ratio is not None]
    return replace(
        first,
        metric=",".join(dict.fromkeys(one.metric.name for one in query.selected)),
        unit=_common([answer.unit for answer in answers]),
        aggregate=_common([answer.aggregate for answer in answers]),
        series=tuple(series[query.offset : end]),
        coverage=reduce(Coverage.plus, [answer.coverage for answer in answers]),
        expected_from_ms=min(starts, default=None),
        complete_through_ms=None if None in known else min(time for time in known if time is not None),
        freshness_ms=min(ages, default=None),
        late_ratio=max(late, default=None),
        partial=any(answer.partial for answer in answers),
        warnings=tuple(dict.fromkeys(text for answer in answers for text in answer.warnings)),
        series_total=len(series),
        next_cursor=str(end) if end < len(series) else "",
    )


def _warnings(progress: Progress, coverage: Coverage) -> tuple[str, ...]:
    warnings = []
    if progress.idle:
        warnings.append(f"{progress.idle} of {progress.collectors} collectors in scope are silent")
    if not coverage.expected:
        warnings.append("nothing was expected in this scope and range")
    return tuple(warnings)


def _unit(part: Part) -> str:
    return unit_of(part.plan.selected.metric, part.plan.selected.aggregate)


def _common(values: list[str]) -> str:
    """Return the one value, or "" where there are several."""
    return values[0] if len(set(values)) == 1 else ""


def _total(rows: pa.Table, name: str) -> int:
    return int(np.sum(rows[name].to_numpy()))
