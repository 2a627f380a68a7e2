"""Fill in what a question leaves open: the range, the bucket, the view, the chart. Every such choice is named."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from secondsight.ask.calendar import Calendar, zone_of
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
    Chart,
    Kind,
    Question,
    Range,
    Stat,
)
from secondsight.ask.views import PLACE_COLUMNS, Views
from secondsight.guard.registry import MetricKind, View

DAY_SECONDS = 86_400
NOW_SECONDS = 600
"""So short a range may lie before the newest window of clusters."""
RAW_SECONDS = 3_600
"""A question about hosts or GPUs over at most so long reads seconds."""
RAW_AGE_SECONDS = DAY_SECONDS
"""Seconds are read back to here: older ones may be in the lake alone."""
FIVE_MINUTES_AGE_SECONDS = 13 * DAY_SECONDS
"""Windows of 5 min are read back to here; before it those of 1 h stand."""
FIVE_MINUTES_SECONDS = 7 * DAY_SECONDS + 3_600

ASSUMED: dict[str, tuple[str, float, str]] = {
    "trend": ("month", 3, "the last three months"),
    "month": ("day", 30, "the last 30 days"),
    "week": ("day", 7, "the last 7 days"),
    "day": ("hour", 24, "the last 24 hours"),
    "hour": ("hour", 1, "the last hour"),
}
"""Ranges that are usual where none is named: unit, count, words."""


def assumed_range(name: str, zone: str, now_ms: int) -> Range:
    """Return a usual range, marked as assumed."""
    unit, count, words = ASSUMED[name]
    stretch = Calendar(zone_of(zone), now_ms).rolling(unit, count)
    return Range(stretch.from_ms, stretch.to_ms, words, zone, assumed=True, open_ended=True)


def choose(question: Question, views: Views, now_ms: int) -> Question:
    """Return a question with the view that answers it within limits, and a chart that fits."""
    view = question.view or choose_view(question, views, now_ms).name
    chosen = replace(question, view=view)
    return replace(chosen, chart=choose_chart(chosen))


def choose_view(question: Question, views: Views, now_ms: int) -> View:
    """Return the coarsest view that has the columns asked for and windows narrow enough."""
    if all(measure.metric == ERROR_EVENTS for measure in question.measures) and question.measures:
        return views.events
    if question.kind in (Kind.EVENTS, Kind.SUMMARY):
        return views.events
    if needs_places(question):
        return _of_gpus(question, views, now_ms)
    return _of_clusters(question, views, now_ms)


def needs_places(question: Question) -> bool:
    """Tell whether hosts or GPUs have to be told apart, or jobs, whose GPUs change."""
    columns = {*question.dimensions, *(one.column for one in question.filters if any(one.values))}
    if columns & PLACE_COLUMNS or (question.kind is Kind.FIGURES and question.range.seconds <= NOW_SECONDS):
        return True
    if question.kind in (Kind.IDLE, Kind.QUIET, Kind.STRAGGLERS, Kind.REPLACEMENT, Kind.CORRELATION, Kind.SLOW_JOB):
        return True
    if question.kind is Kind.EXTREME and question.measures[0].metric not in (GPUS, GPU_HOURS, COVERAGE):
        return not any(column in columns for column in ("cluster_id",)) or question.range.seconds <= 31 * DAY_SECONDS
    hours = any(measure.metric in (GPU_HOURS, IDLE_GPU_HOURS, COVERAGE) for measure in question.measures)
    counted = any(m.metric in (GPUS, HOSTS, JOBS) and m.stat is Stat.COUNT for m in question.measures)
    missing = any(measure.metric == MISSING for measure in question.measures)
    per_gpu = any(measure.stat in _OF_EACH_GPU for measure in question.measures)
    jobs = "job_id" in columns and not hours
    return counted or missing or per_gpu or jobs or _is_distribution(question)


_OF_EACH_GPU = frozenset({Stat.PER_GPU, Stat.PER_GPU_DAY, Stat.SHARE_ABOVE, Stat.SHARE_BELOW})


def _is_distribution(question: Question) -> bool:
    """Tell whether a percentile over GPUs is asked for that no window of clusters holds."""
    wanted = [m for m in question.measures if m.stat is Stat.QUANTILE]
    ratio = all(m.metric.endswith("_ratio") for m in wanted)
    return bool(wanted) and not ratio and question.range.seconds <= 8 * DAY_SECONDS


def _of_gpus(question: Question, views: Views, now_ms: int) -> View:
    young = now_ms - question.range.from_ms <= RAW_AGE_SECONDS * 1000
    short = question.range.seconds <= RAW_SECONDS + 1 and young
    if question.kind is not Kind.FIGURES or not short:
        return views.fine
    plain = all(_is_of_seconds(measure.metric, measure.stat, views) for measure in question.measures)
    return views.raw if plain and question.measures else views.fine


def _is_of_seconds(metric: str, stat: Stat, views: Views) -> bool:
    fits = stat in (Stat.MEAN, Stat.MIN, Stat.MAX, Stat.LAST, Stat.QUANTILE, Stat.SUM, Stat.PEAK_SUM)
    gauge = views.kind(metric) is MetricKind.GAUGE and views.holds(metric, views.raw)
    return (fits and gauge) or (stat is Stat.HIGHEST_P95 and gauge)


def _of_clusters(question: Question, views: Views, now_ms: int) -> View:
    fine, coarse = views.clusters[0], views.clusters[-1]
    if cuts_half_hours(question):
        return fine
    if question.bucket is Bucket.FIVE_MINUTES:
        return fine
    if question.kind is Kind.FORECAST or any(m.metric == GPU_HOURS for m in question.measures):
        return coarse
    young = now_ms - question.range.from_ms <= FIVE_MINUTES_AGE_SECONDS * 1000
    short = question.range.seconds <= FIVE_MINUTES_SECONDS
    peak_of_gpus = any(measure.metric == GPUS for measure in question.measures)
    return fine if young and short and not peak_of_gpus else coarse


def cuts_half_hours(question: Question) -> bool:
    """Tell whether a bound or a bucket of local time falls between two whole hours of UTC."""
    if not question.ranges:
        return False
    zone = zone_of(question.zone)
    for one in question.ranges:
        for time_ms, whole in ((one.from_ms, True), (one.to_ms, False)):
            offset = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(zone).utcoffset()
            if offset is not None and offset.seconds % 3600 and (question.bucket or (whole and not one.assumed)):
                return True
    return False


def choose_chart(question: Question) -> Chart:
    """Return a form that fits what a question gives."""
    fixed = {
        Kind.FORECAST: Chart.BAND,
        Kind.CORRELATION: Chart.SCATTER,
        Kind.STRAGGLERS: Chart.BAR,
        Kind.CHANGE: Chart.BAR,
        Kind.PERIODS: Chart.GROUPED_BAR,
        Kind.EXTREME: Chart.VALUE if not question.dimensions and not question.ranking else Chart.BAR,
    }
    if question.kind in fixed:
        return fixed[question.kind]
    if question.kind is not Kind.FIGURES:
        return Chart.TABLE
    return _of_figures(question)


def _of_figures(question: Question) -> Chart:
    counts = all(measure.stat in (Stat.COUNT, Stat.TOTAL) for measure in question.measures)
    if question.bucket is not None:
        return Chart.BAR if counts or question.bucket in (Bucket.HOUR_OF_DAY, Bucket.WEEKDAY) else Chart.LINE
    if all(len(question.filtered(name)) == 1 for name in question.dimensions):
        return Chart.VALUE if len(question.measures) == 1 else Chart.TABLE
    several = any(len(one.values) > 1 for one in question.filters if one.column in question.dimensions)
    if several:
        return Chart.GROUPED_BAR
    return Chart.BAR if len({measure.metric for measure in question.measures}) == 1 else Chart.TABLE


def natural_bucket(ranges: Sequence[Range]) -> Bucket:
    """Return the bucket that cuts a range into some tens of pieces."""
    seconds = sum(one.seconds for one in ranges)
    if seconds <= 2 * 3_600:
        return Bucket.FIVE_MINUTES
    if seconds <= 3 * DAY_SECONDS:
        return Bucket.HOUR
    if seconds <= 45 * DAY_SECONDS:
        return Bucket.DAY
    return Bucket.WEEK if seconds <= 400 * DAY_SECONDS else Bucket.MONTH
