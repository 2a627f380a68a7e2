"""Serve what the platform knows of itself: the catalogue and the collectors."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from secondsight.api.models import CatalogAnswer, CollectorAnswer, CollectorPage, MetricAnswer
from secondsight.api.parameters import PageParameters, next_cursor
from secondsight.api.services import Reader, Shared
from secondsight.catalog.metric import Metric
from secondsight.query.aggregates import legal_aggregates
from secondsight.query.request import parse_cursor, parse_limit
from secondsight.query.times import format_time

router = APIRouter(tags=["reference"])


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
    """Return the collectors in scope, those furthest behind first."""
    rows = services.inventory.progress(scope).to_pylist()
    rows.sort(key=lambda row: (row["watermark_ms"], row["collector_id"]))
    start = parse_cursor(asked.cursor)
    end = start + parse_limit(asked.limit)
    now_ms = services.clock.now_ms()
    return CollectorPage(
        collectors=[_collector(row, now_ms) for row in rows[start:end]],
        total=len(rows),
        next_cursor=next_cursor(end, len(rows)),
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


def _collector(row: dict[str, Any], now_ms: int) -> CollectorAnswer:
    return CollectorAnswer(
        tenant_id=row["tenant_id"],
        cluster_id=row["cluster_id"],
        host_id=row["host_id"],
        collector_id=row["collector_id"],
        watermark=format_time(row["watermark_ms"]),
        newest_event_time=format_time(row["newest_event_time_ms"]),
        last_ingest_time=format_time(row["last_ingest_time_ms"]),
        rollup_through=format_time(row["rollup_through_ms"]),
        lag_ms=max(now_ms - row["newest_event_time_ms"], 0),
        idle=bool(row["idle"]),
        backlog=bool(row["backlog"]),
    )
