"""Plan questions about several ranges, and about how figures move: before and after, changes, extremes, forecasts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.measures import (
    base_unit,
    measures_of,
)
from secondsight.ask.question import (
    ERROR_EVENTS,
    GPUS,
    Bucket,
    Kind,
    Measure,
    Question,
    Range,
    Ranking,
    Stat,
    Treatment,
)
from secondsight.ask.rules import clarify
from secondsight.ask.work import Work, missing, question_of, ranking_of


def plan_forecast(work: Work) -> Question | None:
    """Plan a forecast of one metric."""
    if not work.says("forecast", "headroom"):
        return None
    metrics = work.metrics()
    if work.says("headroom") and not metrics:
        metrics = (GPUS,) if "gpu_id" in work.reading.nouns else ()
    if len(metrics) != 1:
        options = ("Forecast utilisation for the next four weeks",)
        return clarify("forecast_of", "A forecast of which metric, and how far ahead?", options)
    stat = Stat.MEAN if base_unit(metrics[0], work.views) not in ("J", "count", "h") else Stat.TOTAL
    if metrics[0] == GPUS:
        stat = Stat.PEAK_SUM
    ranges = work.usual("trend")
    question = question_of(work, Kind.FORECAST, ranges, "forecast", Measure(metrics[0], stat))
    caveat = (
        "Future values are a straight line through the whole weeks of the range, with the spread of those weeks "
        "around it (twice the standard error); they are model output, not measurements."
    )
    return replace(question, dimensions=(), bucket=Bucket.WEEK, caveats=(caveat,))


def plan_correlation(work: Work) -> Question | None:
    """Plan how two figures, or errors and a figure, go together."""
    if not work.says("correlate"):
        return None
    metrics = work.metrics()
    if work.has_event() and len(metrics) == 1:
        measures = (Measure(ERROR_EVENTS, Stat.COUNT), Measure(metrics[0], Stat.MEAN))
        ranges = work.usual("month")
    elif len(metrics) == 2:
        measures = (Measure(metrics[0], Stat.MEAN), Measure(metrics[1], Stat.MEAN))
        ranges = work.usual("week")
    else:
        options = ("Do Xid errors correlate with high temperature?",)
        return clarify("correlation_of", "Which two figures should be related?", options)
    question = question_of(work, Kind.CORRELATION, ranges, "correlation", *measures)
    caveat = "A correlation is no cause."
    return replace(question, filters=work.event_filters(), dimensions=(), caveats=(caveat,))


def plan_before_after(work: Work) -> Question | None:
    """Equal stretches before and after a day, without the day itself, whose hour is not known."""
    reading = work.reading
    if not reading.has("compare", "before_after"):
        return None
    measures = measures_of(reading, work.views, work.vocabulary) or missing(work)
    if isinstance(measures, Question):
        return measures
    if len(reading.times) != 1:
        return clarify("which_day", "Before and after which day?", ("12 November",))
    if work.has_event():
        others = (m for m in measures if m.metric != ERROR_EVENTS)
        measures = (Measure(ERROR_EVENTS, Stat.COUNT), *others, Measure(GPUS, Stat.COUNT))
    ranges = around(reading.times[0], work.now_ms)
    caveat = "The day itself is left out, as the hour of the change is not known."
    return Question(
        Treatment.ANSWER, Kind.PERIODS, measures, work.groups(), work.event_filters(), ranges=ranges,
        caveats=(caveat,), rule="before_after",
    )  # fmt: skip


def around(day: Range, now_ms: int, days: int = 7) -> tuple[Range, Range]:
    """Return the week that ends before a local day, and what of the week from that day on comes after the day."""
    calendar = Calendar(zone_of(day.zone), now_ms)
    first = datetime.fromtimestamp(day.from_ms / 1000, UTC).astimezone(calendar.zone).date()
    before = calendar.days(first - timedelta(days=days), days)
    later = calendar.days(first + timedelta(days=1), days - 1)
    end_ms = min(later.to_ms, now_ms)
    return (
        Range(before.from_ms, before.to_ms, f"the {days} days before", day.zone),
        Range(later.from_ms, max(end_ms, later.from_ms + 1), "the days after", day.zone),
    )


def plan_periods(work: Work) -> Question | None:
    """The same figures in several ranges: named ones, or one and the one before it."""
    reading = work.reading
    ranges = _compared(work)
    if len(ranges) < 2:
        return None
    measures = measures_of(reading, work.views, work.vocabulary) or missing(work)
    if isinstance(measures, Question):
        return measures
    return Question(
        Treatment.ANSWER, Kind.PERIODS, measures, work.groups(),
        work.event_filters(), ranges=ranges, bucket=None, rule="periods",
    )  # fmt: skip


def _compared(work: Work) -> tuple[Range, ...]:
    if work.reading.day_kinds:
        (one, *_) = work.usual("month")
        return tuple(
            replace(one, weekdays=days, words=f"{_DAY_KINDS.get(days, 'these days')} of {one.words}")
            for days in work.reading.day_kinds
        )
    named = [one for one in work.usual("week") if not one.assumed]
    if len(named) >= 2:
        return _apart(named)
    words = " ".join(work.reading.words)
    before = any(phrase in words for phrase in _ONE_BEFORE)
    if len(named) == 1 and work.reading.has("compare") and before:
        width = named[0].to_ms - named[0].from_ms
        return (
            Range(named[0].from_ms - width, named[0].from_ms, "the same time before", named[0].zone),
            named[0],
        )
    return ()


_DAY_KINDS = {frozenset({1, 2, 3, 4, 5}): "weekdays", frozenset({6, 7}): "weekends"}
_ONE_BEFORE = ("the one before", "the week before", "the day before", "the month before", "before that", "previous one")


def _apart(ranges: list[Range]) -> tuple[Range, ...]:
    """Return ranges that do not overlap: `the previous 30 days` beside `the last 30 days` means those before."""
    ordered = list(ranges)
    for index, one in enumerate(ordered):
        twins = [other for at, other in enumerate(ordered) if at < index and other.from_ms == one.from_ms]
        if twins and "previous" in one.words.lower():
            width = one.to_ms - one.from_ms
            ordered[index] = replace(one, from_ms=one.from_ms - width, to_ms=one.from_ms, open_ended=False)
    return tuple(sorted(ordered, key=lambda one: one.from_ms))


def plan_change(work: Work) -> Question | None:
    """The largest fall or rise from one window to the next."""
    rises = "increase" in work.reading.aggregates and work.reading.has("rank")
    if not work.says("drop", "jump") and not rises:
        return None
    falls = work.says("drop") and not work.says("jump")
    ranked = work.reading.has("rank") or work.reading.asked or work.says("when")
    if falls and work.says("trend") and not ranked:
        return None
    metrics = work.metrics()
    if len(metrics) != 1:
        return missing(work) if not metrics else clarify("one_metric", "A change of which one metric?", metrics)
    if base_unit(metrics[0], work.views) in ("J", "count", "h"):
        return None
    question = question_of(work, Kind.CHANGE, work.usual("day"), "change", Measure(metrics[0], Stat.MEAN))
    groups = work.groups() or (() if work.reading.names else ("cluster_id",))
    groups = ("host_id", "gpu_id") if groups == ("gpu_id",) else groups
    return replace(question, dimensions=groups, rising=not falls, ranking=ranking_of(work, descending=True))


def plan_extreme(work: Work) -> Question | None:
    """The highest or lowest value with its time and place."""
    reading = work.reading
    metrics = [name for name in work.metrics() if base_unit(name, work.views) not in ("J", "count", "h", "s")]
    if len(metrics) != 1 or (reading.bucket is not None and not work.says("spike")):
        return None
    timed = work.says("when") or (work.says("spike") and (reading.has("rank") or work.says("when")))
    if not timed or not (work.says("spike") or reading.has("rank") or {"max", "min"} & set(reading.aggregates)):
        return None
    low = "min" in reading.aggregates or (reading.ranking is not None and not reading.ranking.descending)
    stat = Stat.MIN if low else Stat.MAX
    question = question_of(work, Kind.EXTREME, work.usual("week"), "extreme", Measure(metrics[0], stat))
    rows = reading.ranking.count if reading.ranking and reading.ranking.count else 1
    groups = () if work.groups() in ((), ("gpu_id",), ("host_id",), ("host_id", "gpu_id")) else work.groups()
    return replace(question, dimensions=groups, ranking=Ranking(rows, descending=not low))
