"""Serve the ledger: what collectors told, minute by minute, and what became of it."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, next_cursor, span_of, words_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Shared
from secondsight.process.deadletter import DEAD_LETTER, QUARANTINE
from secondsight.process.ledger import SHED
from secondsight.query.hints import unknown_names
from secondsight.query.ledger import Asked, Count, Entry, LedgerReader, SpoolCounts, Waiting
from secondsight.query.request import Filters, parse_cursor, parse_limit
from secondsight.query.said import SaidReader, Short, State
from secondsight.query.times import format_time, parse_time

router = APIRouter(route_class=ReadRoute, tags=["custody"], responses={422: {"model": ErrorAnswer}})


class CountAnswer(Shape):
    """Tick rows and values that are not null."""

    rows: int
    values: int


class ReasonAnswer(CountAnswer):
    """What was not stored for one reason."""

    reason: str


class SpoolAnswer(Shape):
    """What one spool told; 0 is what no spool told, such as what a gateway could not read."""

    spool_id: str
    produced: CountAnswer
    shed: list[ReasonAnswer]
    quarantined: list[ReasonAnswer]
    dead_lettered: list[ReasonAnswer]


class EntryAnswer(Shape):
    """One minute of event time of a collector.

    produced = stored + merged + shed + quarantined + deadLettered + inFlight. Rows are counted in every class of which
    they have a cell, so rows of several spools are merged into one; `merged` counts those. `balanced` is false where a
    difference is left, or one between ledger and tables was reported.
    """

    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    minute: str
    produced: CountAnswer
    stored: CountAnswer
    merged: CountAnswer
    shed: list[ReasonAnswer]
    quarantined: list[ReasonAnswer]
    dead_lettered: list[ReasonAnswer]
    in_flight: CountAnswer
    difference: CountAnswer
    incidents: int
    balanced: bool
    spools: list[SpoolAnswer]


class WaitingAnswer(Shape):
    """What an agent said that its spools hold: in flight as well, of minutes that only its rows will tell."""

    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    told: str
    records: int
    bytes: int
    oldest_seconds: float


class ShortAnswer(Shape):
    """A minute of event time of which less came of an entity kind than an agent says, all its sources together.

    `lost` is what nobody has; `waiting` is in its spool still, as far as is known; `declared` lies in a range of time
    of which something was declared lost or refused.
    """

    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    kind: str
    minute: str
    said: CountAnswer
    came: CountAnswer
    missing: CountAnswer
    state: State


class LedgerPage(Shape):
    """A page of minutes, newest first, and what the agents of its hosts have in their spools now.

    `short` are the minutes of the range, a thousand at most, of which less came than agents say; `said` counts the
    minutes that agents said. `warnings` name what is asked for and is nowhere.
    """

    entries: list[EntryAnswer]
    waiting: list[WaitingAnswer]
    short: list[ShortAnswer]
    said: int
    total: int
    warnings: list[str] = Field([])
    next_cursor: str | None


class LedgerParameters(PageParameters):
    """Which minutes of which collectors."""

    cluster: Names = ""
    host: Names = ""
    collector: Names = ""
    from_: Annotated[Time, Field(alias="from")] = "now-15m"
    to: Time = "now"
    unbalanced: Annotated[bool, Field(description="Only minutes in which something does not add up.")] = False


@router.get("/v1/ledger")
def ledger(services: Shared, scope: Reader, asked: Annotated[LedgerParameters, Query()]) -> LedgerPage:
    """Return per collector and minute what was told and what became of it."""
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    start, limit = parse_cursor(asked.cursor), parse_limit(asked.limit)
    wanted = Asked(
        span,
        clusters=words_of(asked.cluster),
        hosts=words_of(asked.host),
        collectors=words_of(asked.collector),
        limit=limit,
        offset=start,
        unbalanced=asked.unbalanced,
    )
    page = LedgerReader(services.inventory).read(wanted, scope, now_ms)
    said = SaidReader(services.inventory).read(wanted, scope, now_ms)
    end = start + len(page.entries)
    places = Filters(cluster=wanted.clusters, host=wanted.hosts)
    is_known = page.total or said.minutes
    return LedgerPage(
        entries=[_entry(one) for one in page.entries],
        waiting=[_waiting(one) for one in page.waiting],
        short=[_short(one) for one in said.shorts],
        said=said.minutes,
        total=page.total,
        warnings=[] if is_known else [*unknown_names(places, services.inventory, scope, wanted.collectors)],
        next_cursor=next_cursor(end, page.total),
    )


def _entry(one: Entry) -> EntryAnswer:
    tenant_id, cluster_id, host_id, collector_id, minute_ms = one.key
    return EntryAnswer(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        host_id=host_id,
        collector_id=collector_id,
        minute=format_time(minute_ms),
        produced=_count(one.produced),
        stored=_count(one.stored),
        merged=_count(one.merged - one.unexplained),
        shed=_reasons(one.of_reason(SHED)),
        quarantined=_reasons(one.of_reason(QUARANTINE)),
        dead_lettered=_reasons(one.of_reason(DEAD_LETTER)),
        in_flight=_count(one.in_flight),
        difference=_count(one.unexplained),
        incidents=one.incidents,
        balanced=one.is_balanced,
        spools=[_spool(spool_id, spool) for spool_id, spool in one.spools.items()],
    )


def _waiting(one: Waiting) -> WaitingAnswer:
    tenant_id, cluster_id, host_id, collector_id = one.key
    return WaitingAnswer(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        host_id=host_id,
        collector_id=collector_id,
        told=format_time(one.told_ms),
        records=one.records,
        bytes=one.bytes,
        oldest_seconds=one.oldest_seconds,
    )


def _short(one: Short) -> ShortAnswer:
    tenant_id, cluster_id, host_id, collector_id = one.agent
    missing = one.said - one.came
    return ShortAnswer(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        host_id=host_id,
        collector_id=collector_id,
        kind=one.kind,
        minute=format_time(one.minute_ms),
        said=_count(one.said),
        came=_count(one.came),
        missing=CountAnswer(rows=max(missing.rows, 0), values=max(missing.values, 0)),
        state=one.state,
    )


def _spool(spool_id: int, spool: SpoolCounts) -> SpoolAnswer:
    def of(outcome: str) -> list[ReasonAnswer]:
        return _reasons({reason: count for (each, reason), count in spool.reasons.items() if each == outcome})

    return SpoolAnswer(
        spool_id=f"{spool_id:016x}",
        produced=_count(spool.produced),
        shed=of(SHED),
        quarantined=of(QUARANTINE),
        dead_lettered=of(DEAD_LETTER),
    )


def _count(count: Count) -> CountAnswer:
    return CountAnswer(rows=count.rows, values=count.values)


def _reasons(found: dict[str, Count]) -> list[ReasonAnswer]:
    return [ReasonAnswer(reason=name, rows=count.rows, values=count.values) for name, count in sorted(found.items())]
