"""Describe the query parameters of the read API. An unknown one is an error, so that a slip of the pen is seen."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from secondsight.errors import Rejected
from secondsight.query.plan import Span
from secondsight.query.request import Filters, QueryText, parse_cursor, parse_limit, values_of

T = TypeVar("T")

Names = Annotated[str, Field(max_length=40_000, description="One value, or several separated by commas.")]
Time = Annotated[str, Field(max_length=64, description="RFC 3339, epoch milliseconds, or relative: now-15m.")]
Word = Annotated[str, Field(max_length=200)]
_PART = "One part of an entity as answers name it, such as `link=3` or `mig=1,slice=a`; give it again for several."


class Parameters(BaseModel):
    """Base of all."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class PageParameters(Parameters):
    """Which page of a list."""

    limit: int | None = None
    cursor: Annotated[str, Field(max_length=16)] = ""


class GpuListParameters(PageParameters):
    """Which GPUs."""

    cluster: Names = ""
    host: Names = ""
    job: Names = ""
    team: Names = ""
    status: Annotated[str, Field(max_length=64, description="reporting, silent, lost, unknown")] = ""
    health: Annotated[str, Field(max_length=64, description="unavailable, degraded, unknown, healthy")] = ""


class PlaceParameters(Parameters):
    """Which rows; several values are separated by commas, except of `part`."""

    cluster: Names = ""
    host: Names = ""
    gpu: Names = ""
    part: Annotated[list[str], Field(max_length=1_000, description=_PART)] = []
    job: Names = ""
    team: Names = ""
    model: Annotated[str, Field(max_length=4_000, description="The AI model that runs.")] = ""
    gpu_model: Annotated[str, Field(alias="gpuModel", max_length=4_000, description="The product, such as H100.")] = ""

    def filters(self) -> dict[str, str | tuple[str, ...] | None]:
        """Return the filters by field name."""
        return {name: getattr(self, name) for name in Filters.__slots__} | {"part": tuple(self.part)}


class SeriesParameters(PlaceParameters):
    """A query for series."""

    metric: Names = ""
    metrics: Names = ""
    from_: Annotated[Time, Field(alias="from")] = ""
    to: Time = ""
    resolution: Annotated[
        str, Field(max_length=16, description="auto, range, a multiple of 1s such as 30s, 5m or 1d, or 1mo.")
    ] = ""
    timezone: Annotated[
        str,
        Field(max_length=64, description="Zone whose clocks windows of half an hour and more follow: Europe/Berlin."),
    ] = ""
    aggregate: Word = ""
    group_by: Annotated[Word, Field(alias="groupBy", description="Labels that tell series apart, by commas.")] = ""
    limit: int | None = None
    cursor: Annotated[str, Field(max_length=16)] = ""
    format: Annotated[str, Field(max_length=16, description="rows, columns, csv, arrow or parquet")] = ""

    def text(self) -> QueryText:
        """Return the query as it was written."""
        return QueryText(
            metrics=f"{self.metric},{self.metrics}",
            filters=self.filters(),
            from_=self.from_,
            to=self.to,
            resolution=self.resolution,
            aggregate=self.aggregate,
            group_by=self.group_by,
            limit=self.limit,
            cursor=self.cursor,
            format=self.format,
            timezone=self.timezone,
        )


class TelemetryParameters(Parameters):
    """A query for metrics of one GPU."""

    metric: Names = ""
    metrics: Names = ""
    from_: Annotated[Time, Field(alias="from")] = ""
    to: Time = ""
    resolution: Annotated[str, Field(max_length=16, description="auto, or a multiple of 1s.")] = ""
    aggregate: Word = ""
    format: Annotated[str, Field(max_length=16, description="rows, columns, csv, arrow or parquet")] = ""

    def text(self) -> QueryText:
        """Return the query as it was written; which GPU is said by the path."""
        return QueryText(
            metrics=f"{self.metric},{self.metrics}",
            filters={},
            from_=self.from_,
            to=self.to,
            resolution=self.resolution,
            aggregate=self.aggregate,
            limit=5_000,
            format=self.format,
        )


class TopParameters(PlaceParameters):
    """A ranking."""

    metric: Word
    window: Annotated[str, Field(max_length=16, description="Width of the sliding window: 1m, 5m, 1h.")] = "5m"
    n: Annotated[int, Field(ge=1, le=1_000)] = 5
    by: Annotated[Word, Field(description="Labels that tell the ranked apart, by commas.")] = "gpu"
    aggregate: Word = ""
    at: Annotated[Time, Field(description="Where the window ends.")] = "now"
    order: Annotated[str, Field(pattern="^(highest|lowest)$")] = "highest"

    def text(self) -> QueryText:
        """Return the query that ranks, as of `at`: one window as wide as asked that ends then."""
        return QueryText(
            metrics=self.metric,
            filters=self.filters(),
            from_=f"now-{self.window}",
            to="now",
            resolution="range",
            aggregate=self.aggregate,
            group_by=self.by,
            limit=5_000,
        )


def words_of(text: str) -> tuple[str, ...]:
    """Return the values that commas separate.

    Raises:
        Rejected(bad_filter): Too many, one that is too long, or nothing but commas.
    """
    return values_of("a filter", text) if text else ()


def span_of(from_ms: int, to_ms: int) -> Span:
    """Return a range of time that holds something.

    Raises:
        Rejected(bad_range): It ends before it begins.
    """
    if from_ms >= to_ms:
        raise Rejected("bad_range", "the range ends before it begins", "name an earlier from, or a later to")
    return Span(from_ms, to_ms)


def page_of(items: Sequence[T], asked: PageParameters) -> tuple[Sequence[T], str | None]:
    """Return the part of a list that is asked for, and the cursor of the next one.

    Raises:
        Rejected: A limit or cursor that is none.
    """
    start = parse_cursor(asked.cursor)
    end = start + parse_limit(asked.limit)
    return items[start:end], next_cursor(end, len(items))


def next_cursor(end: int, total: int) -> str | None:
    """Return where the page after one begins that ends at `end`, None after the last."""
    return str(end) if end < total else None
