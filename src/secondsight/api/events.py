"""Serve events and facts: what happened, to whom, and when."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from secondsight.access.scope import Scope
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, Word, next_cursor, span_of, words_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.events import EVENTS, HISTORY, INFOS, Asked, EventReader, Page
from secondsight.query.hints import unknown_names
from secondsight.query.request import Filters, parse_cursor, parse_limit
from secondsight.query.times import format_time, parse_time

router = APIRouter(route_class=ReadRoute, tags=["events"], responses={422: {"model": ErrorAnswer}})


class FactAnswer(Shape):
    """Facts about an entity that hold from a time on.

    `gpuId` is set where the entity is a GPU. Owners are those at that time, as far as they are known.
    """

    metric: str
    kind: str
    tenant_id: str
    cluster_id: str
    host_id: str
    entity_id: str
    gpu_id: str | None
    part: str
    time: str
    version: int
    job_id: str
    workload_id: str
    team: str
    model: str
    attributes: dict[str, str]
    collector_id: str
    source: str
    ingest_time: str


class EventAnswer(FactAnswer):
    """One thing that happened; of an interval `endTime` is null while it lasts. `meaning` is the code in words."""

    end_time: str | None
    code: int
    meaning: str | None
    severity: str


class _Quality(Shape):
    total: int
    next_cursor: str | None
    complete_through: str | None
    data_freshness_ms: int | None
    partial: bool
    warnings: list[str]


class EventPage(_Quality):
    """A page of events, newest first.

    `completeThrough` is up to where every collector of these places that is not idle has delivered; what happened later
    may still be on its way.
    """

    events: list[EventAnswer]


class FactPage(_Quality):
    """A page of facts, newest first."""

    facts: list[FactAnswer]


class FactParameters(PageParameters):
    """Which ones; several values are separated by commas."""

    metric: Names = ""
    kind: Annotated[Names, Field(description="gpu, node, fabric_port, process_job, training, inference, platform.")] = (
        ""
    )
    cluster: Names = ""
    host: Names = ""
    gpu: Names = ""
    entity: Annotated[Names, Field(description="What they are about, of any kind.")] = ""
    job: Names = ""
    team: Names = ""
    model: Names = ""
    from_: Annotated[Time, Field(alias="from")] = "now-1h"
    to: Time = "now"


class EventParameters(FactParameters):
    """Which events."""

    code: Names = ""
    severity: Word = ""
    history: Annotated[bool, Field(description="Every version that was ever told, the newest of each time first.")] = (
        False
    )


@router.get("/v1/events")
def events(services: Shared, scope: Reader, asked: Annotated[EventParameters, Query()]) -> EventPage:
    """Return events by the time at which they happened or began, newest first."""
    table = HISTORY if asked.history else EVENTS
    wanted = _asked(services, asked, table, codes=_codes(asked.code), severities=words_of(asked.severity))
    page, quality = _read(services, scope, wanted)
    return EventPage(events=[_event(row, services) for row in page.rows], **quality)


@router.get("/v1/infos")
def infos(services: Shared, scope: Reader, asked: Annotated[FactParameters, Query()]) -> FactPage:
    """Return facts by the time from which they hold, newest first."""
    page, quality = _read(services, scope, _asked(services, asked, INFOS))
    return FactPage(facts=[FactAnswer(**_fact(row)) for row in page.rows], **quality)


def _asked(services: Services, asked: FactParameters, table: str, **more: Any) -> Asked:
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    kinds = words_of(asked.kind)
    known = [kind.value for kind in EntityKind]
    if not set(kinds) <= set(known):
        raise Rejected("bad_kind", f"{asked.kind!r} names no kind of entity", f"one of {', '.join(known)}")
    places = {name: words_of(getattr(asked, name)) for name in ("cluster", "host", "gpu", "job", "team", "model")}
    return Asked(
        span,
        Filters(**places),
        table,
        metrics=tuple(services.catalog.resolve(name).name for name in words_of(asked.metric)),
        kinds=kinds,
        entities=words_of(asked.entity),
        limit=parse_limit(asked.limit),
        offset=parse_cursor(asked.cursor),
        **more,
    )


def _read(services: Services, scope: Scope, asked: Asked) -> tuple[Page, dict[str, Any]]:
    now_ms = services.clock.now_ms()
    page = EventReader(services.inventory).read(asked, scope, now_ms)
    end, progress = asked.offset + len(page.rows), page.progress
    late = progress.complete_through_ms is None or progress.complete_through_ms < min(asked.span.to_ms, now_ms)
    return page, {
        "total": page.total,
        "next_cursor": next_cursor(end, page.total),
        "complete_through": None if progress.complete_through_ms is None else format_time(progress.complete_through_ms),
        "data_freshness_ms": None if progress.newest_ms is None else max(0, now_ms - progress.newest_ms),
        "partial": False,
        "warnings": [
            *(["events of the newest seconds may still be on their way"] if late else []),
            *(() if page.total else unknown_names(asked.filters, services.inventory, scope)),
        ],
    }


def _fact(row: Mapping[str, Any]) -> dict[str, Any]:
    entity = row["entity"]
    return {
        "metric": row["metric"],
        "kind": row["kind"],
        "tenant_id": row["tenant_id"],
        "cluster_id": row["cluster_id"],
        "host_id": row["host_id"],
        "entity_id": entity,
        "gpu_id": entity if entity.startswith("GPU-") else None,
        "part": row["part"],
        "time": format_time(row["time_ms"]),
        "version": row["event_version"],
        "job_id": row["job_id"],
        "workload_id": row["workload_id"],
        "team": row["owner_team"],
        "model": row["model_id"],
        "attributes": dict(row["attributes"]),
        "collector_id": row["collector_id"],
        "source": row["source"],
        "ingest_time": format_time(row["taken_ms"]),
    }


def _event(row: Mapping[str, Any], services: Services) -> EventAnswer:
    metric = services.catalog.get(row["metric"]) if row["metric"] in services.catalog else None
    return EventAnswer(
        **_fact(row),
        end_time=None if row["end_ms"] is None else format_time(row["end_ms"]),
        code=row["code"],
        meaning=dict(metric.values).get(row["code"]) if metric else None,
        severity=row["severity"],
    )


def _codes(text: str) -> tuple[int, ...]:
    words = words_of(text)
    if not all(word.isascii() and word.removeprefix("-").isdecimal() and len(word) < 19 for word in words):
        raise Rejected("bad_code", f"{text!r} is no list of codes", "codes are whole numbers")
    return tuple(map(int, words))
