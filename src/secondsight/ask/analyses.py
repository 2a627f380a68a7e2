"""Turn the questions that are no plain figures into SQL: changes, correlations, stragglers, idle GPUs, summaries."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from secondsight.ask.compile import Column, Statement, compile_figures, compile_listing
from secondsight.ask.defaults import choose_view
from secondsight.ask.diagnose import compile_diagnosis
from secondsight.ask.figures import weighted_mean
from secondsight.ask.measures import UTILISATION, unit_of
from secondsight.ask.question import ERROR_EVENTS, Filter, Kind, Measure, Question, Ranking, Stat
from secondsight.ask.sqltext import held, number, query, scaled, within
from secondsight.ask.units import shown_in
from secondsight.ask.views import Views
from secondsight.guard.registry import MetricKind

REPLACEMENT_XIDS = ("48", "63", "64", "94", "95")
BEFORE_EVENT_SECONDS = 3_600
"""The window that stands for the time before an event is at most so old."""
ROWS = 10_000
EVENT_COLUMNS = frozenset({"kind", "code", "severity"})


def compile_question(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """Return the statements that answer a question; none for what the catalogue answers.

    Raises:
        Rejected(not_measured): A view has no column that the question needs.
    """
    special = _SPECIAL.get(question.kind)
    if special is not None:
        return special(question, views, now_ms)
    if question.kind is Kind.EXTREME:
        return compile_listing(question, views)
    return compile_figures(question, views)


def _change(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """The largest step between two windows that follow each other; windows that are missing make no step."""
    del now_ms
    view, measure = views.named(question.view), question.measures[0]
    dims = list(question.dimensions)
    where = [*within(question.range, view), *held(question.filters, view)]
    mean = _shown(weighted_mean(measure.metric, view, views), measure, views)
    windows = query(
        [*dims, "window_start AS started", f"{mean} AS level"], view.name, where, group=[*dims, "window_start"]
    )
    over = f"({'PARTITION BY ' + ', '.join(dims) + ' ' if dims else ''}ORDER BY started)"
    started = "toUnixTimestamp(started)"
    steps = query(
        [
            *dims, "started", "level", f"lagInFrame(level) OVER {over} AS level_before",
            f"{started} - lagInFrame({started}) OVER {over} AS apart",
        ],
        f"({windows}) AS windows",
    )  # fmt: skip
    best, pick = ("max", "argMax") if question.rising else ("min", "argMin")
    step = "level - level_before"
    name = "largest_rise" if question.rising else "largest_drop"
    picked = [f"{pick}({one}, {step}) AS {alias}" for one, alias in _PICKED]
    tail = [f"ORDER BY {name}{' DESC' if question.rising else ''}", f"LIMIT {_rows(question.ranking)}"]
    apart = [f"apart = {view.grain_seconds}"]
    sql = query([*dims, f"{best}({step}) AS {name}", *picked], f"({steps}) AS steps", apart, group=dims, tail=tail)
    unit = measure.unit or unit_of(measure, views)
    figures = (Column(name, unit, measure), Column("step_at"), Column("from_level", unit), Column("to_level", unit))
    return (Statement("change", sql, (*(Column(one) for one in dims), *figures), tuple(dims), view.name),)


_PICKED = (("started", "step_at"), ("level_before", "from_level"), ("level", "to_level"))


def _rows(ranking: Ranking | None) -> int:
    return ranking.count if ranking is not None and ranking.count else ROWS


def _shown(expression: str, measure: Measure, views: Views) -> str:
    base = unit_of(measure, views)
    shown = shown_in(base, measure.unit or base)
    return scaled(expression, shown.factor, shown.offset) if shown else expression


def _correlation(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    del now_ms
    if question.measures[0].metric == ERROR_EVENTS:
        return (_before_events(question, views), _baseline(question, views))
    first, second = (views.column(one.metric, _member(one.metric, views), views.fine) for one in question.measures)
    where = [*within(question.range, views.fine), *held(question.filters, views.fine)]
    sql = query([f"corr({first}, {second}) AS coefficient", "count() AS windows"], views.fine.name, where)
    columns = (Column("coefficient", "1"), Column("windows"))
    return (Statement("correlation", sql, columns, (), views.fine.name),)


def _member(metric: str, views: Views) -> str:
    return "increase" if views.kind(metric) is MetricKind.COUNTER else "avg"


def _before_events(question: Question, views: Views) -> Statement:
    """The mean of the last window before each event of its GPU."""
    events, fine, measure = views.events, views.fine, question.measures[1]
    mean = _shown(weighted_mean(measure.metric, fine, views, "t."), measure, views)
    where = [
        *within(question.range, events, "e."),
        *held(question.filters, events, "e."),
        *within(question.range, fine, "t."),
        f"dateDiff('second', t.window_start, e.event_time) <= {BEFORE_EVENT_SECONDS}",
    ]
    joined = (
        f"{events.name} AS e ASOF LEFT JOIN {fine.name} AS t ON e.gpu_id = t.gpu_id AND e.event_time >= t.window_start"
    )
    sql = query(["count() AS events", f"{mean} AS mean_before_events"], joined, where)
    columns = (Column("events"), Column("mean_before_events", measure.unit or unit_of(measure, views), measure))
    return Statement("before events", sql, columns, (), events.name)


def _baseline(question: Question, views: Views) -> Statement:
    measure = question.measures[1]
    mean = _shown(weighted_mean(measure.metric, views.fine, views), measure, views)
    where = [*within(question.range, views.fine), *held(question.filters, views.fine)]
    sql = query([f"{mean} AS mean_of_all_windows", "count() AS windows"], views.fine.name, where)
    columns = (Column("mean_of_all_windows", measure.unit or unit_of(measure, views), measure), Column("windows"))
    return Statement("baseline", sql, columns, (), views.fine.name)


def _replacement(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """Uncorrected errors and telling Xids, GPU by GPU."""
    del now_ms
    counted = tuple(measure for measure in question.measures if measure.metric != ERROR_EVENTS)
    kinds = (Filter("kind", ("xid",)), Filter("code", REPLACEMENT_XIDS))
    events = replace(question, measures=(Measure(ERROR_EVENTS, Stat.COUNT),), filters=(*question.filters, *kinds))
    found = compile_figures(replace(events, kind=Kind.FIGURES), views)
    if counted:
        errors = replace(question, kind=Kind.FIGURES, measures=counted, view=views.fine.name)
        found = (*compile_figures(errors, views), *found)
    return found


def _quiet(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """What reports and is named by no event of some kinds: a list, or how many that are."""
    del now_ms
    view, events, column = views.fine, views.events, question.dimensions[-1]
    of_events = [one for one in question.filters if one.column in EVENT_COLUMNS]
    places = [one for one in question.filters if one.column not in EVENT_COLUMNS]
    told = [*within(question.range, events), *held((*places, *of_events), events)]
    noisy = query([column], events.name, told)
    where = [*within(question.range, view), *held(places, view), f"{column} != ''", f"{column} NOT IN ({noisy})"]
    if question.counted:
        columns: tuple[Column, ...] = (Column("number_without"),)
        sql = query([f"uniqExact({column}) AS number_without"], view.name, where)
        return (Statement("quiet", sql, columns, (), view.name),)
    tail = [f"ORDER BY {', '.join(question.dimensions)}", f"LIMIT {_rows(question.ranking)}"]
    sql = query(question.dimensions, view.name, where, group=question.dimensions, tail=tail)
    return (Statement("quiet", sql, tuple(map(Column, question.dimensions)), question.dimensions, view.name),)


def _idle(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """The idle share and the idle hours of each group, longest first; groups without idle time are left out."""
    del now_ms
    view = views.fine
    threshold = question.measures[0].threshold or 0.0
    mean, count = views.column(UTILISATION, "avg", view), views.column(UTILISATION, "count", view)
    idle = f"sumIf({count}, {mean} < {number(threshold)})"
    conditions = [f"idle_hours {'>' if one.above else '<'} {number(one.value)}" for one in question.conditions]
    items = [
        *question.dimensions, f"{idle} / 3600 AS idle_hours", f"{idle} / sum({count}) AS idle_share",
        f"sum({count}) / 3600 AS covered_hours", "uniqExact(gpu_id) AS gpus_seen",
    ]  # fmt: skip
    tail = [
        f"HAVING {' AND '.join(conditions or ['idle_hours > 0'])}",
        f"ORDER BY idle_hours DESC, {', '.join(question.dimensions)}",
        f"LIMIT {_rows(question.ranking)}",
    ]
    where = [*within(question.range, view), *held(question.filters, view)]
    sql = query(items, view.name, where, group=question.dimensions, tail=tail)
    columns = (
        *(Column(name) for name in question.dimensions),
        Column("idle_hours", "h", question.measures[0]),
        Column("idle_share", "1"),
        Column("covered_hours", "h"),
        Column("gpus_seen"),
    )
    return (Statement("idle", sql, columns, question.dimensions, view.name),)


def _summary(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    """Errors by cluster and kind, and utilisation and temperature by cluster."""
    errors = replace(
        question, kind=Kind.FIGURES, measures=(Measure(ERROR_EVENTS, Stat.COUNT),), dimensions=("cluster_id", "kind")
    )
    metrics = [
        Measure(name, stat)
        for name, stat in ((UTILISATION, Stat.MEAN), ("gpu_temperature_celsius", Stat.MAX))
        if views.measures(name)
    ]
    levels = replace(question, kind=Kind.FIGURES, measures=tuple(metrics), view="")
    levels = replace(levels, view=choose_view(levels, views, now_ms).name)
    found = (*compile_figures(errors, views), *compile_figures(levels, views))
    return tuple(replace(one, name=name) for one, name in zip(found, ("errors", "levels"), strict=False))


def _lifetime(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    del now_ms
    view, column = views.fine, question.dimensions[0]
    order = "ASC" if question.rising else "DESC"
    where = [*within(question.range, view), *held(question.filters, view), f"{column} != ''"]
    items = [
        column, "min(window_start) AS first_seen", "max(window_start) AS last_seen",
        "uniqExact(gpu_id) AS gpus_seen", "uniqExact(host_id) AS hosts_seen",
    ]  # fmt: skip
    sql = query(items, view.name, where, group=[column], tail=[f"ORDER BY last_seen {order}, {column}"])
    columns = tuple(Column(name) for name in (column, "first_seen", "last_seen", "gpus_seen", "hosts_seen"))
    return (Statement("lifetime", sql, columns, (column,), view.name),)


def _events(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    del now_ms
    view = views.events
    names = ("event_time", "cluster_id", "host_id", "gpu_id", "kind", "code", "severity", "message")
    where = [*within(question.range, view), *held(question.filters, view)]
    order = "ASC" if question.rising else "DESC"
    tail = [f"ORDER BY event_time {order}, host_id, gpu_id", f"LIMIT {_rows(question.ranking)}"]
    sql = query(names, view.name, where, tail=tail)
    return (Statement("events", sql, tuple(Column(name) for name in names), ("event_time", "gpu_id"), view.name),)


def _stragglers(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    del now_ms
    return compile_figures(replace(question, kind=Kind.FIGURES), views)


def _none(question: Question, views: Views, now_ms: int) -> tuple[Statement, ...]:
    del question, views, now_ms
    return ()


_SPECIAL: Mapping[Kind, Callable[[Question, Views, int], tuple[Statement, ...]]] = {
    Kind.CHANGE: _change,
    Kind.CORRELATION: _correlation,
    Kind.REPLACEMENT: _replacement,
    Kind.QUIET: _quiet,
    Kind.IDLE: _idle,
    Kind.SUMMARY: _summary,
    Kind.LIFETIME: _lifetime,
    Kind.EVENTS: _events,
    Kind.STRAGGLERS: _stragglers,
    Kind.SLOW_JOB: compile_diagnosis,
    Kind.CATALOGUE: _none,
}
