"""Plan what most questions are: measures by dimensions, in buckets of time, ranked and held to limits."""

from dataclasses import replace

from secondsight.ask.defaults import natural_bucket
from secondsight.ask.known import NAMED_COLUMNS
from secondsight.ask.measures import (
    QUANTILES,
    base_unit,
    is_now,
    measures_of,
)
from secondsight.ask.question import (
    ERROR_EVENTS,
    Bucket,
    Condition,
    Kind,
    Measure,
    Question,
    Ranking,
    Stat,
    Treatment,
)
from secondsight.ask.reading import Reading
from secondsight.ask.rules import clarify, is_bare_errors
from secondsight.ask.units import shown_in
from secondsight.ask.views import Views
from secondsight.ask.work import RANKING_ROWS, Work, ranking_of


def plan_figures(work: Work) -> Question | None:
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


def _counts_kinds(work: Work) -> bool:
    columns = {*work.reading.asked, *work.reading.dimensions}
    return bool(columns & {"kind", "code", "severity"}) and not work.metrics()


def _is_bare(work: Work) -> bool:
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


def _compares_nothing(work: Work) -> bool:
    reading = work.reading
    return reading.has("compare", "compare") and not work.groups() and len(reading.times) < 2 and not reading.limits


def _with_percentiles(measures: tuple[Measure, ...]) -> tuple[Measure, ...]:
    """Add the highest 95th percentile of any window beside one over windows: which is meant has to be said."""
    found = list(measures)
    for measure in measures:
        if measure.stat is Stat.QUANTILE and measure.quantile == QUANTILES["p95"]:
            found.append(replace(measure, stat=Stat.HIGHEST_P95))
    return tuple(found)


def _cut(question: Question, work: Work) -> Question:
    """Return a question with groups, bucket, range and ranking."""
    reading = work.reading
    groups = work.groups()
    bucket = reading.bucket
    ranges = work.usual(_usual_range(question, work))
    if reading.has("cost", "each_second"):
        bucket = Bucket.SECOND
    if bucket is None and _is_peak_of_increase(question, work):
        bucket = natural_bucket(ranges)
    series = bucket is None and _is_series(question, work)
    if series:
        bucket = Bucket.WEEK if work.says("trend") and not reading.times else natural_bucket(ranges)
    if bucket is None and not groups and _splits_by_gpu(question, work):
        groups = ("host_id", "gpu_id") if not reading.names.get("host_id") else ("gpu_id",)
    if bucket is None and not groups:
        groups = (*_held(reading), *_kinds(question, reading))
    groups = _whole_places(groups, reading)
    ranking = None if series else ranking_of(work)
    if ranking is None and groups == () and reading.has("rank") and bucket:
        ranking = Ranking(reading.ranking.count if reading.ranking else 0)
    counted = "count" in reading.aggregates and bool(reading.asked) and ranking is None and not bucket
    return replace(
        question, dimensions=groups, bucket=bucket, ranges=ranges, ranking=_sized(ranking, work), counted=counted
    )


def _is_peak_of_increase(question: Question, work: Work) -> bool:
    """Tell whether the piece of time is asked for in which a counter rose most: `when was the energy peak?`."""
    extreme = work.says("spike") or work.reading.has("rank") or {"max", "min"} & set(work.reading.aggregates)
    totals = all(measure.stat is Stat.TOTAL for measure in question.measures)
    return work.says("when") and bool(extreme) and totals


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


def _sized(ranking: Ranking | None, work: Work) -> Ranking | None:
    if ranking is None or ranking.count:
        return ranking
    return replace(ranking, count=1 if work.says("when") else RANKING_ROWS)


def _usual_range(question: Question, work: Work) -> str:
    """Return the name of the range that is usual for a question."""
    bucket = work.reading.bucket
    if work.says("trend") or bucket in (Bucket.WEEK, Bucket.MONTH, Bucket.QUARTER):
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


def _usual_of_gauges(work: Work) -> str:
    names = work.reading.names
    if any(len(values) > 1 for values in names.values()):
        return "week"
    if names.get("host_id") or names.get("gpu_id"):
        return "hour"
    return "day" if {"host_id", "gpu_id"} & set(work.groups()) else "week"


def _is_series(question: Question, work: Work) -> bool:
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


def _splits_by_gpu(question: Question, work: Work) -> bool:
    """Tell whether a host's figure without a statistic is given for each of its GPUs."""
    reading = work.reading
    gauges = all(measure.stat in (Stat.MEAN, Stat.MAX, Stat.HIGHEST_P95, Stat.LAST) for measure in question.measures)
    return bool(reading.names.get("host_id")) and gauges and not reading.aggregates and not reading.limits


def _conditioned(question: Question, work: Work) -> Question:
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


def _thresholds(question: Question, work: Work) -> Question:
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
