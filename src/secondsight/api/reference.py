"""Serve what the platform knows of itself: the catalogue and the collectors."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from secondsight.api.models import CatalogAnswer, CollectorAnswer, CollectorPage, MetricAnswer
from secondsight.api.parameters import PageParameters, next_cursor, page_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Shared
from secondsight.catalog.metric import Metric
from secondsight.query.aggregates import legal_aggregates
from secondsight.query.request import parse_cursor, parse_limit
from secondsight.query.times import format_time

router = APIRouter(route_class=ReadRoute, tags=["reference"])


@router.get("/v1/catalog")
def catalog(services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]) -> CatalogAnswer:
    """Return the metrics that the caller may read, all of them where no limit is named."""
    shown = [metric for metric in services.catalog.metrics if scope.shows(metric.name)]
    start = parse_cursor(asked.cursor)
    end = start + (parse_limit(asked.limit) if asked.limit is not None else len(shown))
    return CatalogAnswer(
        metrics=[_metric(metric) for metric in shown[start:end]],
        total=len(shown),
        next_cursor=next_cursor(end, len(shown)),
    )


@router.get("/v1/collectors")
def collectors(services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]) -> CollectorPage:
    """Return the collectors in scope, those furthest behind first, those without a sample last."""
    rows = services.inventory.progress(scope).to_pylist()
    rows.sort(key=lambda row: (row["watermark_ms"] <= 0, row["watermark_ms"], row["collector_id"]))
    page, cursor = page_of(rows, asked)
    now_ms = services.clock.now_ms()
    return CollectorPage(
        collectors=[collector_answer(row, now_ms) for row in page], total=len(rows), next_cursor=cursor
    )


def _metric(metric: Metric) -> MetricAnswer:
    return MetricAnswer(
        name=metric.name,
        kind=metric.kind.value,
        unit=metric.unit,
        type=metric.type.value,
        rollup=metric.rollup.value,
        priority=metric.priority.value,
        description=metric.description,
        aggregates=[aggregate.value for aggregate in legal_aggregates(metric)],
        aliases=list(metric.aliases),
        labels=list(metric.labels),
        minimum=metric.minimum,
        maximum=metric.maximum,
        values={str(value): meaning for value, meaning in metric.values},
        bitmask=metric.bitmask,
    )


def collector_answer(row: dict[str, Any], now_ms: int) -> CollectorAnswer:
    """Return how far a collector has come, by its row of `progress`."""
    newest_ms = row["newest_event_time_ms"]
    return CollectorAnswer(
        tenant_id=row["tenant_id"],
        cluster_id=row["cluster_id"],
        host_id=row["host_id"],
        collector_id=row["collector_id"],
        watermark=_time(row["watermark_ms"]),
        newest_event_time=_time(newest_ms),
        last_ingest_time=_time(row["last_ingest_time_ms"]),
        rollup_through=_time(row["rollup_through_ms"]),
        lag_ms=max(now_ms - newest_ms, 0) if newest_ms > 0 else None,
        idle=bool(row["idle"]),
        backlog=bool(row["backlog"]),
    )


def _time(time_ms: int) -> str | None:
    """Return an instant, or None where there was none yet."""
    return format_time(time_ms) if time_ms > 0 else None
