"""Turn what a question names into the form that is answered: the planner that needs no model.

The rules stand in order; the first that fits decides. What a question leaves open is filled by what is usual and named
in the answer, or asked back where nothing is usual. No rule invents a metric.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.defaults import assumed_range, choose, natural_bucket
from secondsight.ask.diagnose import LIMITS
from secondsight.ask.measures import (
    CLOCK,
    ECC,
    ENERGY,
    QUANTILES,
    UTILISATION,
    base_unit,
    is_now,
    measures_of,
    metrics_of,
    with_units,
)
from secondsight.ask.question import (
    COVERAGE,
    ERROR_EVENTS,
    GPU_HOURS,
    GPUS,
    HOSTS,
    IDLE_GPU_HOURS,
    JOBS,
    MISSING,
    Bucket,
    Condition,
    Filter,
    Kind,
    Measure,
    Question,
    Range,
    Ranking,
    Stat,
    Treatment,
)
from secondsight.ask.reading import NAMED_COLUMNS, Reading
from secondsight.ask.rules import clarify, is_bare_errors, screen, unanswerable, vague
from secondsight.ask.units import shown_in
from secondsight.ask.views import Views
from secondsight.ask.vocabulary import Vocabulary

RANKING_ROWS = 10
IDLE_BELOW_RATIO = 0.05
STRAGGLER_BELOW_RATIO = 0.1
"""A straggler lies so far below the median of its job."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans questions of callers over one set of views; safe to share between threads."""

    views: Views
    vocabulary: Vocabulary

    def plan(self, reading: Reading, now_ms: int) -> Question:
        """Return the question that a reading means, or what is said instead."""
        verdict = screen(reading, self.views)
        if verdict is not None:
            return replace(verdict, context_used=reading.context_used)
        work = _Work(reading, self.views, self.vocabulary, now_ms)
        for rule in _RULES:
            question = rule(work)
            if question is not None:
                break
        else:
            question = _missing(work)
        if question.treatment is not Treatment.ANSWER:
            return replace(question, context_used=reading.context_used)
        return replace(choose(question, self.views, now_ms), context_used=reading.context_used)


@dataclass(frozen=True, slots=True)
class _Work:
    """One reading on its way to a question."""

    reading: Reading
    views: Views
    vocabulary: Vocabulary
    now_ms: int

    def usual(self, name: str) -> tuple[Range, ...]:
        """Return the ranges that were named, or one that is usual; hours and weekdays narrow them."""
        reading = self.reading
        past = [one for one in reading.times if one.from_ms < self.now_ms]
        ranges = past or [assumed_range(name, reading.zone, self.now_ms)]
        return tuple(replace(one, hours=reading.hours, weekdays=reading.weekdays) for one in ranges)

    def filters(self) -> tuple[Filter, ...]:
        """Return the rows that names and kinds of events hold a question to."""
        named = [Filter(column, values) for column, values in self.reading.names.items()]
        without = [Filter(column, values, negated=True) for column, values in self.reading.without.items()]
        return (*named, *without)

    def event_filters(self) -> tuple[Filter, ...]:
        """Return those for events as well."""
        return (*self.filters(), *(Filter(column, values) for column, values in self.reading.events.items()))

    def groups(self) -> tuple[str, ...]:
        """Return the columns by which rows are cut: named after `by`, looked for, or of several names compared."""
        reading = self.reading
        chosen = dict.fromkeys(reading.dimensions)
        for column in reading.asked:
            if len(reading.names.get(column, ())) != 1:
                chosen[column] = None
        for column, values in reading.names.items():
            if len(values) > 1:
                chosen[column] = None
        compared = reading.has("compare", "compare") and len(reading.times) < 2
        if compared and not chosen:
            chosen |= dict.fromkeys(noun for noun in reading.nouns if noun in NAMED_COLUMNS and noun != "gpu_id")
        return tuple(chosen)

    def says(self, *analyses: str) -> bool:
        """Tell whether a word of one of these analyses was there."""
        return self.reading.has("analysis", *analyses)

    def has_event(self) -> bool:
        """Tell whether errors are asked for."""
        return bool(self.reading.events) or ERROR_EVENTS in self.reading.metrics

    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that were named."""
        return metrics_of(self.reading, self.views)

    def shown(self, *measures: Measure) -> tuple[Measure, ...] | Question:
        """Return figures with their units."""
        return with_units(measures, self.reading, self.views, self.vocabulary)


def _answer(work: _Work, kind: Kind, ranges: tuple[Range, ...], rule: str, *measures: Measure) -> Question:
    shown = work.shown(*measures)
    if isinstance(shown, Question):
        return shown
    return Question(
        Treatment.ANSWER, kind, shown, filters=work.filters(), ranges=ranges, dimensions=work.groups(), rule=rule
    )


def _gpu_by_index(work: _Work) -> Question | None:
    if not work.reading.gpu_index:
        return None
    options = ("the UUID of the GPU", "all GPUs of the host")
    return clarify("gpu_index", "Which GPU is meant? Positions are not kept; name its UUID.", options)


def _slow_job(work: _Work) -> Question | None:
    reading = work.reading
    about_job = "job_id" in reading.nouns or "job_id" in reading.names
    if not (work.says("slow") and (about_job or work.says("why"))) and not (work.says("why") and about_job):
        return None
    jobs = reading.names.get("job_id", ())
    if len(jobs) != 1:
        return clarify("which_job", "Which job do you mean? Name its id.", ("a job id",))
    question = _answer(work, Kind.SLOW_JOB, work.usual("day"), "slow_job", Measure(UTILISATION, Stat.MEAN))
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(LIMITS,))


def _why(work: _Work) -> Question | None:
    if not work.says("why"):
        return None
    options = ("What happened in that time?", "Why was job X slow?")
    message = "Causes I look for in jobs. Which job, or which figure and range, do you want to see?"
    return clarify("why", message, options)


def _stragglers(work: _Work) -> Question | None:
    holds_back = {"hold", "holds", "holding", "held"} & set(work.reading.words) and "back" in work.reading.words
    if not work.says("straggler") and not holds_back:
        return None
    if len(work.reading.names.get("job_id", ())) != 1:
        return clarify("which_job", "In which job? Name its id.", ("a job id",))
    stats = (Measure(UTILISATION, Stat.MEAN), Measure(CLOCK, Stat.MEAN), Measure(GPU_HOURS, Stat.TOTAL))
    question = _answer(work, Kind.STRAGGLERS, work.usual("day"), "stragglers", *stats)
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(_STRAGGLER_RULE,))


_STRAGGLER_RULE = (
    f"Rule used: a straggler is a GPU whose mean utilisation or clock lies more than {STRAGGLER_BELOW_RATIO:.0%} below "
    "the median of the job's GPUs. Held-back GPU-hours are what the job's GPUs lose if all wait for this one: an "
    "estimate."
)
_REPLACEMENT_RULE = (
    "Rule used (a policy, yours may differ): any uncorrected ECC error, or an Xid 48, 63, 64, 94 or 95, in the range."
)
_IDLE_RULE = f"Rule used: idle means windows of 30 s whose mean utilisation is below {IDLE_BELOW_RATIO:.0%}."


def _replacement(work: _Work) -> Question | None:
    if not work.says("replace"):
        return None
    metrics = [name for name in ("gpu_ecc_uncorrected_volatile_total",) if work.views.measures(name)]
    measures = (*(Measure(name, Stat.TOTAL) for name in metrics), Measure(ERROR_EVENTS, Stat.COUNT))
    question = _answer(work, Kind.REPLACEMENT, work.usual("month"), "replacement", *measures)
    return replace(question, dimensions=("host_id", "gpu_id"), caveats=(_REPLACEMENT_RULE,))


def _summary(work: _Work) -> Question | None:
    named = bool(work.metrics()) or work.has_event()
    if not work.says("summary") or named or work.reading.has("vague", "performance"):
        return None
    measures = (Measure(ERROR_EVENTS, Stat.COUNT), Measure(UTILISATION, Stat.MEAN))
    question = _answer(work, Kind.SUMMARY, work.usual("day"), "summary", *measures)
    return replace(question, dimensions=("cluster_id",))


def _recent_events(work: _Work) -> Question | None:
    """Single events: the newest, or the first of a range."""
    reading = work.reading
    first = work.has_event() and (work.says("first") or (work.says("when") and not reading.bucket))
    if not (work.says("recent") or first) or work.metrics():
        return None
    question = _answer(work, Kind.EVENTS, work.usual("month"), "recent_events", Measure(ERROR_EVENTS, Stat.COUNT))
    ranking = work.reading.ranking
    rows = ranking.count if ranking and ranking.count else RANKING_ROWS
    oldest = work.says("first")
    return replace(
        question, filters=work.event_filters(), dimensions=(), ranking=Ranking(rows, not oldest), rising=oldest
    )


def _completeness(work: _Work) -> Question | None:
    """Coverage by cluster, gaps by host."""
    reading = work.reading
    if MISSING in reading.metrics and not reading.events:
        question = _answer(work, Kind.FIGURES, work.usual("day"), "gaps", Measure(MISSING, Stat.TOTAL))
        groups = work.groups() or ("host_id",)
        silent = "A host that reported nothing at all in the range has no rows and is not listed."
        return replace(question, dimensions=groups, bucket=reading.bucket, caveats=(silent,))
    if COVERAGE not in reading.metrics and not work.says("complete"):
        return None
    question = _answer(work, Kind.FIGURES, work.usual("day"), "coverage", Measure(COVERAGE, Stat.MEAN))
    late = "Late data may still raise the coverage of the newest windows."
    groups = work.groups() or ("cluster_id",)
    return replace(question, dimensions=groups, bucket=reading.bucket, caveats=(late,))


def _waste(work: _Work) -> Question | None:
    reading = work.reading
    idle_hours = work.says("idle") and GPU_HOURS in reading.metrics
    if not work.says("waste") and IDLE_GPU_HOURS not in reading.metrics and not idle_hours:
        return None
    if work.says("waste") and ENERGY in reading.metrics:
        return clarify("waste", "Wasted by what measure: idle GPU-hours?", ("idle GPU-hours by cluster",))
    question = _answer(work, Kind.FIGURES, work.usual("month"), "waste", Measure(IDLE_GPU_HOURS, Stat.TOTAL))
    caveat = "Counted is the share of time without utilisation of GPUs that report; allocation is not looked at."
    groups = work.groups() or ("cluster_id",)
    return replace(question, dimensions=groups, bucket=reading.bucket, ranking=_rank(work), caveats=(caveat,))


def _idle(work: _Work) -> Question | None:
    """GPUs that were idle, with how long; a limit of utilisation or of time may be named."""
    reading = work.reading
    if not work.says("idle") or (reading.metrics and reading.metrics != (UTILISATION,)):
        return None
    measure = Measure(UTILISATION, Stat.SHARE_BELOW, threshold=_idle_below(reading), unit="%")
    question = _answer(work, Kind.IDLE, work.usual("day"), "idle", measure)
    groups = work.groups() or ("host_id", "gpu_id")
    groups = ("host_id", "gpu_id") if groups == ("gpu_id",) else groups
    rank = reading.ranking
    ranking = Ranking(rank.count) if rank and rank.count else None
    held = (Filter("job_id", ("",), negated=True),) if work.says("allocated") or "job_id" in reading.nouns else ()
    return replace(
        question,
        dimensions=groups,
        filters=(*question.filters, *held),
        caveats=(_idle_rule(reading),),
        ranking=ranking,
        conditions=_idle_hours(reading),
    )


def _idle_below(reading: Reading) -> float:
    limit = next((one for one in reading.limits if one.unit == "%" or (not one.unit and one.value <= 1)), None)
    if limit is None:
        return IDLE_BELOW_RATIO
    return limit.value / 100 if limit.unit == "%" else limit.value


def _idle_rule(reading: Reading) -> str:
    ratio = _idle_below(reading)
    return _IDLE_RULE if ratio == IDLE_BELOW_RATIO else _IDLE_RULE.replace(f"{IDLE_BELOW_RATIO:.0%}", f"{ratio:.4g}")


def _idle_hours(reading: Reading) -> tuple[Condition, ...]:
    """Return that the idle time of a group has to be longer than was named, in hours (figure 1 is idle hours)."""
    for limit in reading.limits:
        hours = {"h": 1.0, "min": 1 / 60, "s": 1 / 3600}.get(limit.unit)
        if hours is not None:
            return (Condition(1, limit.above, limit.value * hours),)
    return ()


def _forecast(work: _Work) -> Question | None:
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
    question = _answer(work, Kind.FORECAST, ranges, "forecast", Measure(metrics[0], stat))
    caveat = (
        "Future values are a straight line through the whole weeks of the range, with the spread of those weeks "
        "around it (twice the standard error); they are model output, not measurements."
    )
    return replace(question, dimensions=(), bucket=Bucket.WEEK, caveats=(caveat,))


def _correlation(work: _Work) -> Question | None:
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
    question = _answer(work, Kind.CORRELATION, ranges, "correlation", *measures)
    caveat = "A correlation is no cause."
    return replace(question, filters=work.event_filters(), dimensions=(), caveats=(caveat,))


def _before_after(work: _Work) -> Question | None:
    """Equal stretches before and after a day, without the day itself, whose hour is not known."""
    reading = work.reading
    if not reading.has("compare", "before_after"):
        return None
    measures = measures_of(reading, work.views, work.vocabulary)
    if isinstance(measures, Question):
        return measures
    if not measures:
        return _missing(work)
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


def _periods(work: _Work) -> Question | None:
    """The same figures in several ranges: named ones, or one and the one before it."""
    reading = work.reading
    ranges = _compared(work)
    if len(ranges) < 2:
        return None
    measures = measures_of(reading, work.views, work.vocabulary)
    if isinstance(measures, Question):
        return measures
    if not measures:
        return _missing(work)
    return Question(
        Treatment.ANSWER, Kind.PERIODS, measures, work.groups(),
        work.event_filters(), ranges=ranges, bucket=None, rule="periods",
    )  # fmt: skip


def _compared(work: _Work) -> tuple[Range, ...]:
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


def _lifetime(work: _Work) -> Question | None:
    reading = work.reading
    named = [column for column in reading.asked if column not in reading.names]
    named += [column for column in ("job_id", "host_id", "gpu_id", "workload_id") if reading.names.get(column)]
    if not work.says("lifetime") or work.metrics() or work.has_event():
        return None
    if not named and {"fresh", "freshness", "stale"} & set(reading.words):
        named = ["cluster_id"]
    if not named:
        asked = [column for column in work.groups() if column == "job_id"]
        if not asked and "job_id" not in reading.nouns:
            return None
        if not asked:
            return clarify("which_job", "Which job do you mean? Name its id.", ("a job id",))
        named = asked
    question = _answer(work, Kind.LIFETIME, work.usual("month"), "lifetime", Measure(GPUS, Stat.COUNT))
    return replace(question, dimensions=(named[0],))


def _change(work: _Work) -> Question | None:
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
        return _missing(work) if not metrics else clarify("one_metric", "A change of which one metric?", metrics)
    if base_unit(metrics[0], work.views) in ("J", "count", "h"):
        return None
    question = _answer(work, Kind.CHANGE, work.usual("day"), "change", Measure(metrics[0], Stat.MEAN))
    groups = work.groups() or (() if work.reading.names else ("cluster_id",))
    groups = ("host_id", "gpu_id") if groups == ("gpu_id",) else groups
    return replace(question, dimensions=groups, rising=not falls, ranking=_rank(work, descending=True))


def _allocated(work: _Work) -> Question | None:
    """GPUs that had a job: per hour, their highest number per day, week or month."""
    reading = work.reading
    if not work.says("allocated") or work.metrics():
        return None
    stat = Stat.SUM if "mean" in reading.aggregates else Stat.PEAK_SUM
    question = _answer(work, Kind.FIGURES, work.usual("trend"), "allocated", Measure(GPUS, stat))
    bucket = reading.bucket or (None if "mean" in reading.aggregates or reading.times else Bucket.DAY)
    caveat = "Allocated are GPUs in windows of 1 h that carry a job."
    ranking = Ranking(1) if work.says("when") else _rank(work)
    groups = tuple(column for column in work.groups() if column != "gpu_id")
    return replace(
        question, dimensions=groups, bucket=bucket, ranking=ranking if bucket else None,
        filters=(*question.filters, Filter("job_id", ("",), negated=True)), caveats=(caveat,),
    )  # fmt: skip


def _inventory(work: _Work) -> Question | None:
    """How many GPUs, hosts or jobs there are, or which."""
    reading = work.reading
    if work.metrics() or work.has_event() or reading.has("vague", "measure", "performance", "report", "comparison"):
        return None
    counted = {"gpu_id": GPUS, "host_id": HOSTS, "job_id": JOBS, "cluster_id": "clusters", "owner_team": "teams"}
    nouns = [noun for noun in reading.nouns if noun in counted and noun not in reading.dimensions]
    if (not work.says("inventory") and not (reading.asked and nouns)) or reading.limits or reading.has("rank"):
        return None
    if not nouns:
        return None
    if work.says("inventory"):
        question = _answer(work, Kind.FIGURES, work.usual("day"), "inventory", Measure(_counted(nouns[0]), Stat.COUNT))
        return replace(question, dimensions=reading.dimensions, bucket=reading.bucket)
    if not (reading.names or reading.times or len(reading.nouns) > 1):
        question = _answer(work, Kind.FIGURES, work.usual("day"), "inventory", Measure(GPUS, Stat.COUNT))
        return replace(question, dimensions=(nouns[0],)) if nouns[0] != "gpu_id" else None
    question = _answer(work, Kind.FIGURES, work.usual("day"), "inventory", Measure(GPUS, Stat.COUNT))
    return replace(question, dimensions=work.groups())


def _counted(noun: str) -> str:
    return {"gpu_id": GPUS, "host_id": HOSTS, "job_id": JOBS}.get(noun, noun)


def _extreme(work: _Work) -> Question | None:
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
    question = _answer(work, Kind.EXTREME, work.usual("week"), "extreme", Measure(metrics[0], stat))
    rows = reading.ranking.count if reading.ranking and reading.ranking.count else 1
    groups = () if work.groups() in ((), ("gpu_id",), ("host_id",), ("host_id", "gpu_id")) else work.groups()
    return replace(question, dimensions=groups, ranking=Ranking(rows, descending=not low))


def _vague_words(work: _Work) -> Question | None:
    reading = work.reading
    if work.metrics() or work.has_event():
        return None
    for word in ("report", "comparison", "performance", "measure", "usage", "entity"):
        if reading.has("vague", word):
            if word == "entity" and not reading.nouns:
                continue
            return vague(word)
    return None


def _figures(work: _Work) -> Question | None:
    """Measures by dimensions and buckets: what most questions are."""
    reading = work.reading
    if is_bare_errors(reading):
        message = "Which kind of errors, and over which range? The last 24 hours of all kinds, if you like."
        return clarify("which_errors", message, ("Errors by kind in the last 24 hours", "Xid errors this week"))
    if _counts_kinds(work):
        measures: tuple[Measure, ...] | Question = work.shown(Measure(ERROR_EVENTS, Stat.COUNT))
    else:
        measures = measures_of(reading, work.views, work.vocabulary)
    if isinstance(measures, Question):
        return measures
    if not measures:
        return None
    if _is_bare(work):
        message = "Of which cluster, host or job, and over which range? The fleet of the last 7 days, if you like."
        return clarify("bare_metric", message, ("of the fleet in the last 7 days", "by cluster yesterday"))
    if _compares_nothing(work):
        return clarify(
            "compare_what",
            "What should be compared: two ranges, or two things?",
            ("c1 and c2", "this week and last week"),
        )
    measures = _with_percentiles(measures)
    question = Question(
        Treatment.ANSWER,
        Kind.FIGURES,
        measures,
        filters=work.event_filters() if work.has_event() else work.filters(),
        rule="figures",
    )
    return _conditioned(_cut(question, work), work)


def _counts_kinds(work: _Work) -> bool:
    columns = {*work.reading.asked, *work.reading.dimensions}
    return bool(columns & {"kind", "code", "severity"}) and not work.metrics()


def _is_bare(work: _Work) -> bool:
    """Tell whether a metric stands alone: no thing, range, statistic or cut."""
    reading = work.reading
    cut = (
        reading.times, reading.dimensions, reading.names, reading.bucket, reading.aggregates, reading.ranking,
        reading.limits, reading.units, reading.hours, reading.weekdays, reading.day_kinds,
    )  # fmt: skip
    placed = set(reading.nouns) - {"gpu_id"} or reading.has("vague", "entity") or reading.has("link", "by")
    asks = reading.words[:1] in (("how",), ("what",), ("is",), ("are",), ("whats",))
    asks = asks and reading.words[1:2] != ("about",)
    return not any(cut) and not placed and not asks and not reading.has("analysis") and not reading.context_used


def _compares_nothing(work: _Work) -> bool:
    reading = work.reading
    return reading.has("compare", "compare") and not work.groups() and len(reading.times) < 2 and not reading.limits


def _with_percentiles(measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
    """Add the highest 95th percentile of any window beside one over windows: which is meant has to be said."""
    found = list(measures)
    for measure in measures:
        if measure.stat is Stat.QUANTILE and measure.quantile == QUANTILES["p95"]:
            found.append(replace(measure, stat=Stat.HIGHEST_P95))
    return tuple(found)


def _cut(question: Question, work: _Work) -> Question:
    """Return a question with groups, bucket, range and ranking."""
    reading = work.reading
    groups = work.groups()
    bucket = reading.bucket
    ranges = work.usual(_usual_range(question, work))
    if reading.has("cost", "each_second"):
        bucket = Bucket.SECOND
    series = bucket is None and _is_series(question, work)
    if series:
        bucket = Bucket.WEEK if work.says("trend") and not reading.times else natural_bucket(ranges)
    if bucket is None and not groups and _splits_by_gpu(question, work):
        groups = ("host_id", "gpu_id") if not reading.names.get("host_id") else ("gpu_id",)
    if bucket is None and not groups:
        groups = (*_held(reading), *_kinds(question, reading))
    groups = _whole_places(groups, reading)
    ranking = None if series else _rank(work)
    if ranking is None and groups == () and reading.has("rank") and bucket:
        ranking = Ranking(reading.ranking.count if reading.ranking else 0)
    counted = "count" in reading.aggregates and bool(reading.asked) and ranking is None and not bucket
    return replace(
        question, dimensions=groups, bucket=bucket, ranges=ranges, ranking=_sized(ranking, work), counted=counted
    )


def _kinds(question: Question, reading: Reading) -> tuple[str, ...]:
    """Return the cut of errors of no kind in particular: by their kinds."""
    events = all(measure.metric == ERROR_EVENTS for measure in question.measures)
    plain = not reading.events and not reading.limits and "count" not in reading.aggregates
    return ("kind",) if events and plain else ()


def _held(reading: Reading) -> tuple[str, ...]:
    """Return the column of the one thing that a question is about, so that its row says what it is of."""
    named = [column for column, values in reading.names.items() if len(values) == 1]
    return tuple(named) if len(named) == 1 else ()


def _whole_places(groups: tuple[str, ...], reading: Reading) -> tuple[str, ...]:
    """Return groups in which a GPU says its host."""
    if "gpu_id" in groups and "host_id" not in groups and not reading.names.get("host_id"):
        return tuple(part for column in groups for part in (("host_id", column) if column == "gpu_id" else (column,)))
    return groups


def _sized(ranking: Ranking | None, work: _Work) -> Ranking | None:
    if ranking is None or ranking.count:
        return ranking
    return replace(ranking, count=1 if work.says("when") else RANKING_ROWS)


def _usual_range(question: Question, work: _Work) -> str:
    """Return the name of the range that is usual for a question."""
    bucket = work.reading.bucket
    if work.says("trend") or bucket in (Bucket.WEEK, Bucket.MONTH):
        return "month" if work.reading.names.get("job_id") else "trend"
    if bucket in (Bucket.DAY, Bucket.HOUR_OF_DAY, Bucket.WEEKDAY):
        return "month"
    if any(measure.metric == ERROR_EVENTS for measure in question.measures):
        return "month"
    if any(measure.stat in (Stat.TOTAL, Stat.PER_GPU) for measure in question.measures):
        owners = {"job_id", "owner_team", "workload_id"}
        plain = all(base_unit(measure.metric, work.views) == "count" for measure in question.measures)
        return "month" if plain or owners & {*work.reading.names, *work.groups()} else "week"
    return _usual_of_gauges(work)


def _usual_of_gauges(work: _Work) -> str:
    names = work.reading.names
    if any(len(values) > 1 for values in names.values()):
        return "week"
    if names.get("host_id") or names.get("gpu_id"):
        return "hour"
    return "day" if {"host_id", "gpu_id"} & set(work.groups()) else "week"


def _is_series(question: Question, work: _Work) -> bool:
    """Tell whether figures over time are meant: a trend, or a metric named without a statistic or a group."""
    reading = work.reading
    if work.says("trend"):
        return True
    if reading.aggregates or reading.has("rank") or reading.limits or work.groups():
        return False
    if any(measure.stat in (Stat.TOTAL, Stat.COUNT, Stat.PER_GPU) for measure in question.measures):
        return False
    placed = reading.names.get("host_id") or reading.names.get("gpu_id")
    asks = bool(reading.words) and reading.words[0] in ("what", "how", "whats", "is", "was", "are")
    return bool(reading.times) and not placed and not asks and not is_now(reading)


def _splits_by_gpu(question: Question, work: _Work) -> bool:
    """Tell whether a host's figure without a statistic is given for each of its GPUs."""
    reading = work.reading
    gauges = all(measure.stat in (Stat.MEAN, Stat.MAX, Stat.HIGHEST_P95, Stat.LAST) for measure in question.measures)
    return bool(reading.names.get("host_id")) and gauges and not reading.aggregates and not reading.limits


def _rank(work: _Work, *, descending: bool | None = None) -> Ranking | None:
    ranking = work.reading.ranking
    if ranking is None:
        return None
    rows = ranking.count or RANKING_ROWS
    return Ranking(rows, ranking.descending if descending is None else descending)


def _conditioned(question: Question, work: _Work) -> Question:
    """Return a question whose groups have to lie above or below what was named."""
    conditions: list[Condition] = []
    for limit in work.reading.limits:
        index = _limited(question, limit.unit, work.views)
        if index is None:
            return clarify("limit", "Which figure should lie above or below that?", ("hosts above 80 °C",))
        measure = question.measures[index]
        if measure.stat not in (Stat.SHARE_ABOVE, Stat.SHARE_BELOW):
            conditions.append(
                Condition(index, limit.above, _in_shown_unit(limit.value, limit.unit, measure, work.views))
            )
    if not conditions:
        return _thresholds(question, work)
    measures = _extreme_first(question, conditions)
    nouns = [noun for noun in work.reading.nouns if noun in NAMED_COLUMNS and noun not in work.reading.names]
    groups = question.dimensions or (
        () if question.bucket else _whole_places(tuple(nouns[:1]) or ("gpu_id",), work.reading)
    )
    return replace(question, conditions=tuple(conditions), measures=measures, dimensions=groups)


def _extreme_first(question: Question, conditions: list[Condition]) -> tuple[Measure, ...]:
    """Return the figures; one that has to exceed a limit at some time is its highest or lowest, unless said."""
    measures = list(question.measures)
    for condition in conditions:
        measure = measures[condition.measure]
        if measure.stat is Stat.MEAN and len(question.measures) > 1:
            measures[condition.measure] = replace(measure, stat=Stat.MAX if condition.above else Stat.MIN)
    first = measures[conditions[0].measure]
    return (first, *(measure for measure in measures[1:] if measure != first))


def _limited(question: Question, unit: str, views: Views) -> int | None:
    for index, measure in enumerate(question.measures):
        base = base_unit(measure.metric, views)
        if not unit or shown_in(base, unit) is not None:
            return index
    return None


def _in_shown_unit(value: float, unit: str, measure: Measure, views: Views) -> float:
    base = base_unit(measure.metric, views)
    named, shown = shown_in(base, unit or measure.unit), shown_in(base, measure.unit)
    if named is None or shown is None:
        return value
    if measure.unit == "%" and not unit and value <= 1:
        return value * 100
    return shown.of(named.back(value))


def _thresholds(question: Question, work: _Work) -> Question:
    """Return the figures with thresholds in the unit of the views."""
    done: list[Measure] = []
    for measure in question.measures:
        limit = work.reading.limits[0] if work.reading.limits else None
        if measure.threshold is not None and limit is not None:
            base = work.views.unit(measure.metric)
            usual = work.vocabulary.usual_units.get(base, "")
            fits = shown_in(base, limit.unit or ("" if limit.value <= 1 else usual))
            value = fits.back(limit.value) if fits else limit.value
            done.append(replace(measure, threshold=value, unit="%"))
        else:
            done.append(measure)
    return replace(question, measures=tuple(done))


def _missing(work: _Work) -> Question:
    """Return what is asked where no figure was named."""
    reading = work.reading
    options = ("GPU utilisation", "temperature", "power", "errors")
    if reading.has("compare"):
        return clarify("compare_what", "What should be compared, and by which metric?", options)
    if reading.has("vague"):
        return vague(reading.terms["vague"][0])
    if reading.nouns or reading.names or reading.times or reading.has("rank") or work.says("trend", "when"):
        return clarify("which_metric", "Which metric do you mean?", options)
    if not reading.words:
        return clarify("empty", "What would you like to know?", options)
    return clarify("which_metric", "Which metric, of what, over which range?", options)


def _mean_of_percentiles(work: _Work) -> Question | None:
    """`average p95` would be a mean of percentiles, which means nothing."""
    words = list(work.reading.words)
    for first, second in pairwise(words):
        if first in ("average", "mean", "avg", "averaged") and (
            second in QUANTILES or second in ("median", "percentile")
        ):
            options = ("the highest 95th percentile of any window", "the 95th percentile over the whole range")
            return clarify("mean_of_percentiles", "A mean of percentiles means nothing. Which of these?", options)
    return None


def _ecc_trend(work: _Work) -> Question | None:
    """A question for errors of the memory that names no kind of figure."""
    if ECC not in work.reading.metrics or work.metrics():
        return None
    return unanswerable("not_measured", "ECC counters are not among the metrics of the views here.")


_RULES: tuple[Callable[[_Work], Question | None], ...] = (
    _gpu_by_index, _ecc_trend, _slow_job, _stragglers, _replacement, _why, _summary, _recent_events, _completeness,
    _waste, _idle, _mean_of_percentiles, _forecast, _correlation, _before_after, _periods, _lifetime, _change,
    _allocated, _extreme, _inventory, _vague_words, _figures,
)  # fmt: skip
