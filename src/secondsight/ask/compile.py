"""Turn a question into SQL over the curated views.

One statement for each view and each way of grouping; `run` puts their rows side by side by the key columns. A figure
that first adds up GPUs at each instant is read by instant and folded afterwards. Nothing of an author's text is in a
statement but names that are known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from secondsight.ask.figures import coverage, figure, instant_figure
from secondsight.ask.measures import UTILISATION, unit_of
from secondsight.ask.question import (
    BUSY_GPU_HOURS,
    COVERAGE,
    ERROR_EVENTS,
    GPUS,
    IDLE_GPU_HOURS,
    MISSING,
    Kind,
    Measure,
    Question,
    Range,
    Stat,
)
from secondsight.ask.sqltext import bucket_expression, bucket_name, held, number, query, scaled, within
from secondsight.ask.units import Shown, shown_in
from secondsight.ask.views import Views
from secondsight.guard.registry import View


class Fold(StrEnum):
    """What is done with the figures of a group's instants."""

    MEAN = "mean"
    MAX = "max"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result.

    Attributes:
        unit: Unit of its figures; "" for keys and plain counts.
        measure: The figure that it holds, or None for a key.
        fold: How instants become one figure, or None where they are one already.
        told: Words for the figure, such as `mean utilisation`.
    """

    name: str
    unit: str = ""
    measure: Measure | None = None
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement with the columns that it gives.

    Attributes:
        name: What it is for.
        keys: The first columns, by which rows of several statements go together.
        period: Words of the range it reads, where a question has several.
        days: Length of its range.
        instants: True where the last key is the instant, over which `run` folds.
    """

    name: str
    sql: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    view: str = ""
    period: str = ""
    days: float = 0.0
    instants: bool = False


def compile_figures(question: Question, views: Views) -> tuple[Statement, ...]:
    """Return the statements of measures by dimensions and buckets, one for each range and way of grouping.

    Raises:
        Rejected(not_measured): A view has no column that the question needs.
    """
    found: list[Statement] = []
    for one in question.ranges:
        period = one.words if len(question.ranges) > 1 else ""
        for view, levels, measures in _batches(question, views):
            statement = _statement(question, measures, one, view, views, levels=levels)
            found.append(replace(statement, period=period, days=one.seconds / 86_400))
    return (*found, *_overall(question, views), *_by_cluster(question, views))


def _by_cluster(question: Question, views: Views) -> tuple[Statement, ...]:
    """Return the figures of periods for each cluster as well, where no other cut was asked for."""
    if question.kind is not Kind.PERIODS or question.dimensions or question.filtered("cluster_id"):
        return ()
    cut = replace(question, kind=Kind.FIGURES, dimensions=("cluster_id",))
    return tuple(replace(one, name="by cluster") for one in compile_figures(cut, views))


def _overall(question: Question, views: Views) -> tuple[Statement, ...]:
    """Return the mean per GPU of all GPUs beside the figures of each, and all events beside those of each kind."""
    measures = tuple(measure for measure in question.measures if measure.stat is Stat.PER_GPU)
    events = question.dimensions[-1:] == ("kind",) and question.measures == (Measure(ERROR_EVENTS, Stat.COUNT),)
    per_gpu = measures and "gpu_id" in question.dimensions
    if question.bucket or question.ranking or not (per_gpu or events):
        return ()
    whole = replace(
        question,
        dimensions=question.dimensions[:-1] if events else (),
        conditions=(),
        measures=measures or question.measures,
    )
    return tuple(replace(one, name="over all") for one in compile_figures(whole, views))


def _batches(question: Question, views: Views) -> list[tuple[View, str, tuple[Measure, ...]]]:
    """Return which figures one statement gives: those of one view and one way of grouping."""
    found: dict[tuple[str, str], list[Measure]] = {}
    for measure in question.measures:
        view = views.events if measure.metric == ERROR_EVENTS else _view_of(question, views)
        found.setdefault((view.name, _levels(measure, view)), []).append(measure)
    return [(views.named(name), levels, tuple(measures)) for (name, levels), measures in found.items()]


def _view_of(question: Question, views: Views) -> View:
    chosen = views.named(question.view)
    return views.fine if chosen is views.events else chosen


def _levels(measure: Measure, view: View) -> str:
    """Return whether rows become figures at once, by a figure for each instant in SQL, or by instants folded here."""
    clusters = bool(view.grain_seconds) and view.get("gpus") is not None
    if measure.stat is Stat.QUANTILE and clusters:
        return "ranked"
    if measure.stat is Stat.PEAK_SUM or (measure.stat is Stat.SUM and measure.metric == GPUS):
        return "nested"
    if measure.stat is Stat.SUM:
        return "nested" if view.raw else "folded"
    return "folded" if measure.metric in (IDLE_GPU_HOURS, BUSY_GPU_HOURS) and clusters else "plain"


def _statement(
    question: Question, measures: Sequence[Measure], one: Range, view: View, views: Views, *, levels: str
) -> Statement:
    where = [*within(one, view), *held(question.filters, view)]
    dimensions = tuple(name for name in question.dimensions if view.get(name) is not None)
    keys = [*dimensions, *([bucket_name(question.bucket)] if question.bucket else [])]
    heads = [*dimensions]
    if question.bucket:
        heads.append(f"{bucket_expression(question.bucket, view, one.zone)} AS {bucket_name(question.bucket)}")
    match levels:
        case "plain":
            sql, columns = _plain(measures, view, views, heads, keys, where, question)
        case "folded":
            sql, columns = _by_instant(measures, view, views, heads, keys, where)
        case _:
            sql, columns = _nested(measures, view, views, heads, keys, where)
    named = tuple(Column(name) for name in keys)
    instants = levels == "folded"
    if instants:
        named = (*named, Column(view.time_column))
    return Statement("figures", sql, (*named, *columns), tuple(keys), view.name, instants=instants)


def _plain(  # noqa: PLR0913, PLR0917 - what a statement is made of
    measures: Sequence[Measure], view: View, views: Views, heads: list[str], keys: list[str], where: list[str],
    question: Question,
) -> tuple[str, tuple[Column, ...]]:  # fmt: skip
    pairs = [(measure_column(m, views), figure(m, view, views)) for m in measures]
    items = [
        *heads,
        *(
            f"{scaled(text, *_unit(m, views))} AS {column.name}"
            for m, (column, text) in zip(measures, pairs, strict=True)
        ),
    ]
    columns = tuple(column for column, _ in pairs)
    if view.grain_seconds and _has_weight(measures, view, views):
        items += [f"{coverage(view, views)} AS covered_share"]
        columns = (*columns, Column("covered_share", "1"))
    tail = [*_having(question, columns), *_order(question, columns, keys)]
    return query(items, view.name, where, group=keys, tail=tail), columns


def _having(question: Question, columns: Sequence[Column]) -> list[str]:
    """Return the condition on groups, where each figure it is about is in this statement."""
    found = []
    for condition in question.conditions:
        wanted = question.measures[condition.measure] if condition.measure < len(question.measures) else None
        name = next((column.name for column in columns if column.measure == wanted and wanted is not None), "")
        if name:
            found.append(f"{name} {'>' if condition.above else '<'} {number(condition.value)}")
    return [f"HAVING {' AND '.join(found)}"] if found else []


def _order(question: Question, columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    names = [column.name for column in columns if column.measure is not None]
    if question.ranking is not None and names and len(question.measures) and columns[0].measure == question.measures[0]:
        direction = " DESC" if question.ranking.descending else ""
        order = [f"{names[0]}{direction}", *keys]
        return [f"ORDER BY {', '.join(order)}", f"LIMIT {question.ranking.count}"]
    if names and is_by_size(question):
        sizes = " + ".join(f"ifNull({name}, 0)" for name in names)
        return [f"ORDER BY {sizes} DESC, {', '.join(keys)}"]
    return [f"ORDER BY {', '.join(keys)}"] if keys else []


def is_by_size(question: Question) -> bool:
    """Tell whether GPUs are listed by what their counters grew by, all together: most of them have 0."""
    counted = all(measure.stat is Stat.TOTAL for measure in question.measures)
    return counted and "gpu_id" in question.dimensions and question.bucket is None and len(question.ranges) == 1


def _by_instant(
    measures: Sequence[Measure], view: View, views: Views, heads: list[str], keys: list[str], where: list[str]
) -> tuple[str, tuple[Column, ...]]:  # fmt: skip
    columns = tuple(
        replace(measure_column(m, views), fold=Fold.MEAN if m.stat is Stat.SUM else Fold.SUM) for m in measures
    )
    figures = [
        f"{scaled(instant_figure(m, view, views), *_unit(m, views))} AS {column.name}"
        for m, column in zip(measures, columns, strict=True)
    ]
    grouped = [*keys, view.time_column]
    items = [*heads, view.time_column, *figures]
    order = f"ORDER BY {', '.join(grouped)}"
    return query(items, view.name, where, group=grouped, tail=[order]), columns


def _nested(
    measures: Sequence[Measure], view: View, views: Views, heads: list[str], keys: list[str], where: list[str]
) -> tuple[str, tuple[Column, ...]]:  # fmt: skip
    columns = tuple(measure_column(m, views) for m in measures)
    inner = [f"{_inner_figure(m, view, views)} AS at_{index}" for index, m in enumerate(measures)]
    outer = [
        f"{scaled(f'{_outer(m)}(at_{index})', *_unit(m, views))} AS {column.name}"
        for index, (m, column) in enumerate(zip(measures, columns, strict=True))
    ]
    rows = query([*heads, view.time_column, *inner], view.name, where, group=[*keys, view.time_column])
    tail = [f"ORDER BY {', '.join(keys)}"] if keys else []
    return query([*keys, *outer], f"({rows}) AS instants", group=keys, tail=tail), columns


def _outer(measure: Measure) -> str:
    match measure.stat:
        case Stat.QUANTILE:
            return f"quantile({measure.quantile})"
        case Stat.SUM:
            return "avg"
        case _:
            return "max"


def _inner_figure(measure: Measure, view: View, views: Views) -> str:
    if measure.stat is Stat.QUANTILE:
        return figure(replace(measure, stat=Stat.MEAN), view, views)
    return instant_figure(measure, view, views)


def _has_weight(measures: Sequence[Measure], view: View, views: Views) -> bool:
    known = view.get("coverage_ratio") is not None or views.holds(UTILISATION, view)
    return known and not any(m.metric in (COVERAGE, MISSING) for m in measures) and not view.raw


def measure_column(measure: Measure, views: Views) -> Column:
    """Return the column that a figure goes to."""
    named = measure.stat.value
    if measure.stat is Stat.QUANTILE:
        named = f"p{measure.quantile * 100:g}".replace(".", "_")
    return Column(f"{named}_of_{measure.metric}", measure.unit or _plain_unit(measure, views), measure)


def _plain_unit(measure: Measure, views: Views) -> str:
    unit = unit_of(measure, views)
    return "" if unit == "count" else unit


def _unit(measure: Measure, views: Views) -> tuple[float, float]:
    """Return factor and offset to the unit that a figure is given in."""
    shown = shown_in(unit_of(measure, views), measure.unit) if measure.unit else Shown("", 1.0)
    return (shown.factor, shown.offset) if shown else (1.0, 0.0)


def compile_listing(question: Question, views: Views) -> tuple[Statement, ...]:
    """Return the statement for the highest or lowest windows themselves, each with its time and place."""
    view, measure = views.named(question.view), question.measures[0]
    ranking = question.ranking
    descending = ranking is None or ranking.descending
    value = views.column(measure.metric, "max" if descending else "min", view)
    column = measure_column(measure, views)
    places = [name for name in ("cluster_id", "host_id", "gpu_id") if view.get(name) is not None]
    where = [*within(question.range, view), *held(question.filters, view), f"{value} IS NOT NULL"]
    shown = scaled(value, *_unit(measure, views))
    order = f"{value} {'DESC' if descending else 'ASC'}, {view.time_column}, {', '.join(places)}"
    rows = f"LIMIT {ranking.count if ranking else 1}"
    if question.dimensions:
        rows = f"LIMIT 1 BY {', '.join(question.dimensions)}"
    items = [*places, view.time_column, f"{shown} AS {column.name}"]
    sql = query(items, view.name, where, tail=[f"ORDER BY {order}", rows])
    columns = (*(Column(name) for name in places), Column(view.time_column), column)
    return (Statement("extreme", sql, columns, (*places, view.time_column), view.name),)
