"""Turn query parameters into a checked request.

A request names metrics, a place, a time and a grouping. It says nothing of tables, tiers or permissions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import Metric
from secondsight.errors import Rejected
from secondsight.query.aggregates import Aggregate, choose_aggregate, is_histogram, mixes_parts
from secondsight.query.calendar import MONTH, Calendar, parse_zone
from secondsight.query.times import parse_time, parse_width

METRICS_MAXIMUM = 120
SELECTED_MAXIMUM = 240
FILTER_VALUES_MAXIMUM = 1_000
FILTER_LENGTH_MAXIMUM = 300
LIMIT_DEFAULT = 200
LIMIT_MAXIMUM = 5_000
MONTH_MS = 30 * 86_400_000
"""What a window of a month counts as where its width matters."""
RANGE_MAXIMUM_MS = 366 * 86_400_000


class Format(StrEnum):
    """Shape of an answer: JSON with rows or columns of points, CSV, an Arrow stream, or a Parquet file."""

    ROWS = "rows"
    COLUMNS = "columns"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


class Group(StrEnum):
    """A dimension that series can be told apart by."""

    REGION = "region"
    CLUSTER = "cluster"
    HOST = "host"
    GPU = "gpu"
    PART = "part"
    JOB = "job"
    WORKLOAD = "workload"
    TEAM = "team"
    MODEL = "model"
    GPU_MODEL = "gpuModel"
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rows; an empty tuple admits all. `model` is the AI model, `gpu_model` the product."""

    cluster: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()

    @property
    def is_attributed(self) -> bool:
        """Tell whether only allocated seconds can match."""
        return bool(self.job or self.team or self.model)


@dataclass(frozen=True, slots=True)
class Selected:
    """One metric with the aggregate to read it by."""

    metric: Metric
    aggregate: Aggregate


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """What is asked.

    Attributes:
        from_ms, to_ms: Half open, epoch ms.
        resolution_ms: Width of a window, or None for automatic; `whole` overrides both.
        whole: One window that is the whole range.
        calendar: Whose clocks windows of half an hour and more follow; None for UTC.
        group_by: Dimensions of a series, in ladder order; empty means one per entity and part.
        limit: Most series in the answer.
        offset: Series to pass over, in order of their labels.
    """

    selected: tuple[Selected, ...]
    filters: Filters
    from_ms: int
    to_ms: int
    resolution_ms: int | None = None
    whole: bool = False
    group_by: tuple[Group, ...] = ()
    limit: int = LIMIT_DEFAULT
    offset: int = 0
    format: Format = Format.ROWS
    calendar: Calendar | None = None

    def groups_of(self, selected: Selected) -> tuple[Group, ...]:
        """Return the dimensions of one metric's series: parts stay apart where adding them up would not be exact."""
        groups = self.group_by or (Group.GPU, Group.PART)
        if Group.PART in groups or mixes_parts(selected.metric, selected.aggregate):
            return groups
        return (*groups, Group.PART)


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query as it was written, every field still text; lists are separated by commas.

    A filter that is a tuple is taken value by value as it is; so are parts, whose names have commas in them.
    """

    metrics: str
    filters: Mapping[str, str | tuple[str, ...] | None]
    from_: str = ""
    to: str = ""
    resolution: str = ""
    aggregate: str = ""
    group_by: str = ""
    limit: int | None = None
    cursor: str = ""
    format: str = ""
    timezone: str = ""


def parse_query(text: QueryText, catalog: Catalog, now_ms: int) -> MetricQuery:
    """Return the request that a text means; the default range is the last 15 minutes.

    Raises:
        Rejected(unknown_metric, ambiguous_metric, illegal_aggregate, not_a_series, too_many_metrics, mixed_kinds).
        Rejected(bad_time, bad_timezone, range_too_wide, bad_resolution, bad_filter, bad_group, illegal_group,
            bad_limit, bad_cursor, bad_format).
    """
    from_ms, to_ms = parse_range(text.from_, text.to, now_ms)
    whole = text.resolution == "range"
    selected = select_metrics(text.metrics, text.aggregate, catalog)
    return MetricQuery(
        selected=selected,
        filters=parse_filters(text.filters),
        from_ms=from_ms,
        to_ms=to_ms,
        resolution_ms=None if whole else _resolution(text.resolution),
        calendar=_calendar(text),
        whole=whole,
        group_by=_checked_groups(_groups(text.group_by), selected),
        limit=parse_limit(text.limit),
        offset=parse_cursor(text.cursor),
        format=_format(text.format),
    )


def parse_range(from_text: str, to_text: str, now_ms: int) -> tuple[int, int]:
    """Return [from, to) in epoch ms, by default the last 15 minutes.

    Raises:
        Rejected(bad_time): Not a time, or the range is empty.
        Rejected(range_too_wide): Over a year.
    """
    to_ms = parse_time(to_text, now_ms) if to_text else now_ms
    from_ms = parse_time(from_text, now_ms) if from_text else to_ms - 900_000
    if from_ms >= to_ms:
        raise Rejected("bad_time", "the range is empty: from must be before to", "swap them, or widen the range")
    if to_ms - from_ms > RANGE_MAXIMUM_MS:
        raise Rejected("range_too_wide", "the range is wider than 366 days", "ask for a shorter range")
    return max(from_ms, 0), to_ms


def select_metrics(names: str, aggregate: str, catalog: Catalog) -> tuple[Selected, ...]:
    """Return the metrics of a comma-separated list, each with every aggregate asked for; all are of one entity kind."""
    metrics = list(dict.fromkeys(catalog.resolve(name) for name in _split(names)))
    if not metrics:
        raise Rejected("unknown_metric", "no metric is named", "add metric=gpu_utilization_ratio")
    if len(metrics) > METRICS_MAXIMUM:
        raise Rejected(
            "too_many_metrics", f"{len(metrics)} metrics are asked at once", f"ask {METRICS_MAXIMUM} at most"
        )
    if len({metric.kind for metric in metrics}) > 1:
        raise Rejected("mixed_kinds", "the metrics are of different entity kinds", "ask for each kind by itself")
    if len({is_histogram(metric) for metric in metrics}) > 1:
        raise Rejected("mixed_kinds", "histograms and other metrics are asked at once", "ask for each by itself")
    aggregates: list[str | None] = [*values_of("aggregate", aggregate)] if aggregate else [None]
    if len(metrics) * len(aggregates) > SELECTED_MAXIMUM:
        message = f"{len(metrics)} metrics by {len(aggregates)} aggregates are asked at once"
        raise Rejected("too_many_metrics", message, f"ask {SELECTED_MAXIMUM} of both at most")
    return tuple(Selected(metric, choose_aggregate(metric, asked)) for metric in metrics for asked in aggregates)


def parse_filters(written: Mapping[str, str | tuple[str, ...] | None]) -> Filters:
    """Return filters from comma-separated lists, by field name; a part is one value, commas and all.

    Raises:
        Rejected(bad_filter): Too many values, one that is too long, or nothing but commas.
    """
    known = {field.name for field in fields(Filters)}
    return Filters(**{name: values_of(name, text) for name, text in written.items() if name in known and text})


def parse_limit(limit: int | None) -> int:
    """Return how many series or items at most.

    Raises:
        Rejected(bad_limit): Not from 1 to LIMIT_MAXIMUM.
    """
    if limit is None:
        return LIMIT_DEFAULT
    if not 1 <= limit <= LIMIT_MAXIMUM:
        raise Rejected("bad_limit", f"limit {limit} is not between 1 and {LIMIT_MAXIMUM}", "page with cursor")
    return limit


def parse_cursor(cursor: str) -> int:
    """Return the position that a cursor stands for.

    Raises:
        Rejected(bad_cursor): It was not given by an earlier answer.
    """
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdecimal()) or len(cursor) > 9:
        raise Rejected("bad_cursor", "this cursor was not given by an earlier answer", "start without a cursor")
    return int(cursor)


def values_of(name: str, written: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of a filter, each once, of a text those that commas separate, except of a part.

    Raises:
        Rejected(bad_filter): As `parse_filters`.
    """
    if isinstance(written, str):
        values = [written] if name == "part" else _split(written)
        if not values:
            raise Rejected("bad_filter", f"{name} names no value", "name one, or leave the filter out")
    else:
        values = [value for value in written if value]
    if len(values) > FILTER_VALUES_MAXIMUM:
        raise Rejected("bad_filter", f"{name} names {len(values)} values", f"name {FILTER_VALUES_MAXIMUM} at most")
    if any(len(value) > FILTER_LENGTH_MAXIMUM for value in values):
        raise Rejected("bad_filter", f"a value of {name} is longer than {FILTER_LENGTH_MAXIMUM} characters")
    return tuple(dict.fromkeys(values))


def _calendar(text: QueryText) -> Calendar | None:
    if text.resolution == MONTH:
        return Calendar(parse_zone(text.timezone or "UTC"), months=1)
    return Calendar(parse_zone(text.timezone)) if text.timezone else None


def _resolution(text: str) -> int | None:
    if text in ("", "auto"):
        return None
    if text == MONTH:
        return MONTH_MS
    width_ms = parse_width(text)
    if width_ms % 1000:
        raise Rejected("bad_resolution", f"{text!r} is not a multiple of 1s", "the finest stored resolution is 1s")
    return width_ms


def _groups(text: str) -> tuple[Group, ...]:
    names = ["gpu" if name == "entity" else name for name in values_of("groupBy", text)] if text else []
    unknown = [name for name in names if name not in list(Group)]
    if unknown:
        legal = ", ".join(Group)
        raise Rejected("bad_group", f"groupBy cannot be {unknown[0][:80]!r}", f"legal: {legal}")
    return tuple(group for group in Group if group.value in names)


def _checked_groups(groups: tuple[Group, ...], selected: tuple[Selected, ...]) -> tuple[Group, ...]:
    """Refuse groups of several entities where the figure is that of one: the last value of each cannot be merged."""
    last = [item.metric.name for item in selected if item.aggregate is Aggregate.LAST]
    if groups and last and Group.GPU not in groups:
        hint = "add gpu to groupBy, or ask for another aggregate"
        raise Rejected("illegal_group", f"last of {last[0]} is a figure of one entity, not of a group", hint)
    return groups


def _format(text: str) -> Format:
    if text and text not in list(Format):
        raise Rejected("bad_format", f"format cannot be {text[:80]!r}", f"legal: {', '.join(Format)}")
    return Format(text or Format.ROWS)


def _split(text: str) -> list[str]:
    return [piece.strip() for piece in text.split(",") if piece.strip()]
