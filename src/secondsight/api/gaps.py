"""Serve gaps with their reasons, and the planned work that makes some of them no findings."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import Field

from secondsight.access.audit import AuditEntry, write_entries
from secondsight.access.maintenance import (
    LENGTH_MAXIMUM_MS,
    PAST_MAXIMUM_MS,
    MaintenanceWindow,
    add_windows,
    end_window,
    windows_between,
)
from secondsight.access.scope import Scope
from secondsight.api.debug import Operator
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, Word, next_cursor, span_of, words_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.gapreader import Explained
from secondsight.query.gaps import Filled
from secondsight.query.hints import unknown_names
from secondsight.query.plan import Span
from secondsight.query.reasons import EXPECTED, Reason
from secondsight.query.request import Filters, parse_cursor, parse_limit
from secondsight.query.stories import Story, stories_of
from secondsight.query.times import format_time, parse_time

KINDS = {kind.value: kind for kind in (EntityKind.GPU, EntityKind.NODE, EntityKind.FABRIC_PORT)}

router = APIRouter(route_class=ReadRoute, tags=["gaps"], responses={422: {"model": ErrorAnswer}})


class GapAnswer(Shape):
    """A run of missing slots of one entity.

    `startTime` is the first missing slot, `endTime` the next one that is there, null while there is none.
    `expectedSamples` counts the missing slots inside the range; nothing is received in a gap. Of a gap that a backlog
    closed the slots were received, the last of them at `filledTime`. `expected` says that the reason is no finding.
    """

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str | None = None
    entity_id: str
    start_time: str
    end_time: str | None
    filled_time: str | None = None
    duration_seconds: float
    expected_samples: int
    received_samples: int
    reason: Reason
    expected: bool
    collector_id: str


class StoryAnswer(Shape):
    """One reason that befell more than half of a host, a rack or a cluster at a time; else one entity."""

    level: str
    tenant_id: str
    cluster_id: str
    rack: str | None
    host_id: str | None
    entity_id: str | None
    start_time: str
    end_time: str | None
    reason: Reason
    expected: bool
    entities: int
    hosts: int
    expected_samples: int


class GapPage(Shape):
    """A page of gaps, or of stories; `missing` and `shed` count slots of all of them.

    `tier` says where rows were read: `hot`, `cold` or `hot+cold`. `partial` says that a part of the range could not be
    read; gaps are told of the rest alone, and `warnings` say why.
    """

    gaps: list[GapAnswer]
    stories: list[StoryAnswer] | None = None
    total: int
    missing: int
    shed: int
    reasons: dict[str, int]
    tier: str = "hot"
    partial: bool = False
    warnings: list[str] = Field([])
    next_cursor: str | None


class GapParameters(PageParameters):
    """Which gaps."""

    cluster: Names = ""
    host: Names = ""
    gpu: Names = ""
    kind: Annotated[Word, Field(description="gpu, node or fabric_port.")] = "gpu"
    reason: Annotated[
        Names, Field(description="Only these reasons; `findings` leaves out those that are expected.")
    ] = ""
    from_: Annotated[Time, Field(alias="from")] = "now-1h"
    to: Time = "now"
    filled: Annotated[bool, Field(description="Gaps that are closed, as what was missing came late, instead.")] = False
    stories: Annotated[bool, Field(description="Gaps of one reason at one time as one story.")] = False


@router.get("/v1/telemetry/gaps")
def gaps(services: Shared, scope: Reader, asked: Annotated[GapParameters, Query()]) -> GapPage:
    """Return gaps with their reasons, in order of time."""
    kind = KINDS.get(asked.kind)
    if kind is None:
        raise Rejected("bad_kind", f"{asked.kind!r} is no kind of entity with gaps", f"one of {', '.join(KINDS)}")
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    if span.from_ms >= now_ms:
        raise Rejected("bad_range", "the range has not begun yet", "name an earlier from")
    span = Span(span.from_ms, min(span.to_ms, now_ms))
    filters = Filters(cluster=words_of(asked.cluster), host=words_of(asked.host), gpu=words_of(asked.gpu))
    start = parse_cursor(asked.cursor)
    end = start + parse_limit(asked.limit)
    if asked.filled:
        filled, tier, missing = services.gaps.filled(kind, filters, span, scope)
        read_from = _read_from(tier, missing, () if filled else _unknown(services, kind, filters, scope))
        return _filled_page(filled, kind, (start, end), read_from)
    wanted = _reasons(asked.reason)
    found = services.gaps.read(kind, filters, span, scope)
    mine = [one for one in found.gaps if one.reason in wanted]
    told = stories_of(mine, found.planned) if asked.stories else None
    items = told if told is not None else mine
    return GapPage(
        gaps=[] if told is not None else [_gap(one, kind) for one in mine[start:end]],
        stories=None if told is None else [_story(one) for one in told[start:end]],
        total=len(items),
        missing=sum(one.gap.expected for one in mine),
        shed=sum(one.gap.expected for one in mine if one.reason is Reason.SHED),
        reasons={reason: count for reason in Reason if (count := sum(one.reason is reason for one in mine))},
        **_read_from(found.tier, found.missing, () if mine else _unknown(services, kind, filters, scope)),
        next_cursor=next_cursor(end, len(items)),
    )


class MaintenanceRequest(Shape):
    """Planned work on a cluster, or on some of its hosts; it ends at `until`, or after `minutes`."""

    cluster: str = Field("", max_length=512)
    hosts: list[str] = Field([], max_length=1000, description="Hosts; none for the whole cluster.")
    start: str = Field("now", max_length=64, description="RFC 3339, epoch milliseconds, or relative.")
    until: str = Field("", max_length=64)
    minutes: float | None = Field(None, gt=0)
    reason: str = Field(max_length=500, min_length=1)


class MaintenanceAnswer(Shape):
    """Planned work; `hostId` is null for a whole cluster."""

    window_id: str
    tenant_id: str
    cluster_id: str
    host_id: str | None
    start: str
    until: str
    active: bool
    reason: str
    announced_by: str


class MaintenanceList(Shape):
    """Planned work that is under way, to come, or ended in the range; a page of it."""

    windows: list[MaintenanceAnswer]
    total: int
    next_cursor: str | None


@router.post("/v1/maintenance", status_code=201)
def announce(
    services: Shared, caller: Operator, scope: Reader, asked: Annotated[MaintenanceRequest, Body()]
) -> MaintenanceList:
    """Put planned work on record: nothing is expected of its hosts meanwhile."""
    now_ms = services.clock.now_ms()
    start_ms = parse_time(asked.start, now_ms)
    until_ms = _until(asked, start_ms, now_ms)
    tenant_id = _tenant(services, scope, asked)
    windows = [
        MaintenanceWindow(tenant_id, asked.cluster, host, start_ms, until_ms, asked.reason, caller.subject, now_ms)
        for host in (dict.fromkeys(asked.hosts) or [""])
    ]
    made = add_windows(services.metadata, windows)
    for window in made:
        _audit(services, window, "maintenance_start", caller.subject)
    return MaintenanceList(windows=[_window(one, now_ms) for one in made], total=len(made), next_cursor=None)


class MaintenanceParameters(PageParameters):
    """Which planned work."""

    from_: Annotated[Time, Field(alias="from")] = "now-1d"
    to: Annotated[Time, Field()] = "now+31d"


@router.get("/v1/maintenance")
def planned(services: Shared, scope: Reader, asked: Annotated[MaintenanceParameters, Query()]) -> MaintenanceList:
    """Return planned work in scope, oldest first."""
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    found = windows_between(services.metadata, scope.all_tenant_ids, span.from_ms, span.to_ms)
    mine = [one for one in found if scope.admits_cluster(one.tenant_id, one.cluster_id)]
    start = parse_cursor(asked.cursor)
    end = start + parse_limit(asked.limit)
    return MaintenanceList(
        windows=[_window(one, now_ms) for one in mine[start:end]],
        total=len(mine),
        next_cursor=next_cursor(end, len(mine)),
    )


@router.delete("/v1/maintenance/{window_id}")
def end(services: Shared, caller: Operator, scope: Reader, window_id: str) -> MaintenanceAnswer:
    """End planned work now; what has not begun never was."""
    now_ms = services.clock.now_ms()
    known = windows_between(
        services.metadata, scope.all_tenant_ids, now_ms - PAST_MAXIMUM_MS, now_ms + 366 * 86_400_000
    )
    mine = [one for one in known if scope.admits_cluster(one.tenant_id, one.cluster_id)]
    if not any(one.window_id == window_id for one in mine):
        raise Rejected("not_found", f"no planned work {window_id!r} is under way or to come", "GET /v1/maintenance")
    window = end_window(services.metadata, scope.all_tenant_ids, window_id, now_ms)
    _audit(services, window, "maintenance_end", caller.subject)
    return _window(window, now_ms)


def _until(asked: MaintenanceRequest, start_ms: int, now_ms: int) -> int:
    if bool(asked.until) == (asked.minutes is not None):
        raise Rejected("bad_maintenance", "planned work needs one end", "name until, or minutes")
    if asked.until:
        return parse_time(asked.until, now_ms)
    return start_ms + round(max(min((asked.minutes or 0) * 60_000, 2 * LENGTH_MAXIMUM_MS), 0))


def _tenant(services: Services, scope: Scope, asked: MaintenanceRequest) -> str:
    """Return whose cluster it is.

    Raises:
        Rejected(not_found, ambiguous_target, role_cannot_operate).
    """
    if scope.whole is None:
        message = "planned work is on hosts, and your grant shows only what is allocated to someone"
        raise Rejected("role_cannot_operate", message, "ask an administrator for a grant of whole clusters")
    rows = services.inventory.progress(scope).to_pylist()
    known = {(row["tenant_id"], row["host_id"]) for row in rows if row["cluster_id"] == asked.cluster}
    lacking = [host for host in asked.hosts if not any(host == each for _, each in known)]
    if not asked.cluster or not known or lacking:
        what = f"host {lacking[0][:100]!r} in" if lacking else ""
        raise Rejected(
            "not_found", f"there is no {what} cluster {asked.cluster[:100]!r} that you may see", "see /v1/clusters"
        )
    tenants: set[str] = {tenant for tenant, _ in known}
    if len(tenants) > 1:
        raise Rejected(
            "ambiguous_target", f"several tenants have a cluster {asked.cluster!r}", "use a token of one tenant"
        )
    return tenants.pop()


def _audit(services: Services, window: MaintenanceWindow, action: str, subject: str) -> None:
    target = f"host {window.host_id} in {window.cluster_id}" if window.host_id else f"cluster {window.cluster_id}"
    detail = (
        f"{window.window_id}: {target}, {format_time(window.start_ms)} to {format_time(window.to_ms)}: {window.reason}"
    )
    entry = AuditEntry(services.clock.now_ms(), subject, window.tenant_id, action, "ok", detail)
    write_entries(services.metadata, [entry])


def _window(window: MaintenanceWindow, now_ms: int) -> MaintenanceAnswer:
    return MaintenanceAnswer(
        window_id=window.window_id,
        tenant_id=window.tenant_id,
        cluster_id=window.cluster_id,
        host_id=window.host_id or None,
        start=format_time(window.start_ms),
        until=format_time(window.to_ms),
        active=window.start_ms <= now_ms < window.to_ms,
        reason=window.reason,
        announced_by=window.subject,
    )


def _reasons(text: str) -> frozenset[Reason]:
    if not text:
        return frozenset(Reason)
    found: set[Reason] = set()
    for word in words_of(text):
        if word == "findings":
            found |= set(Reason) - EXPECTED
        elif word in set(Reason):
            found.add(Reason(word))
        else:
            raise Rejected("bad_reason", f"{word!r} is no reason", f"one of findings, {', '.join(Reason)}")
    return frozenset(found)


def _gap(one: Explained, kind: EntityKind) -> GapAnswer:
    gap = one.gap
    tenant_id, cluster_id, host_id, entity, _ = gap.key.split("\0")
    return GapAnswer(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        rack=gap.rack,
        host_id=host_id,
        gpu_id=entity if kind is EntityKind.GPU else None,
        entity_id=entity,
        start_time=format_time(gap.start_ms),
        end_time=None if gap.is_open else format_time(gap.end_ms),
        duration_seconds=(gap.end_ms - gap.start_ms) / 1000,
        expected_samples=gap.expected,
        received_samples=0,
        reason=one.reason,
        expected=one.reason in EXPECTED,
        collector_id=gap.agent,
    )


def _unknown(services: Services, kind: EntityKind, filters: Filters, scope: Scope) -> tuple[str, ...]:
    """Return what is to be said of names of nothing, where nothing was ever to report of all that is named."""
    expected = services.inventory.expected(kind, filters, scope)
    return () if expected.num_rows else unknown_names(filters, services.inventory, scope)


def _read_from(tier: str, missing: str, unknown: Sequence[str]) -> dict[str, Any]:
    """Return what an answer says of where its rows were read, and of names of nothing."""
    return {"tier": tier, "partial": bool(missing), "warnings": [*filter(None, [missing]), *unknown]}


def _filled_page(
    found: Sequence[Filled], kind: EntityKind, page: tuple[int, int], read_from: dict[str, Any]
) -> GapPage:
    start, end = page
    return GapPage(
        gaps=[_filled(one, kind) for one in found[start:end]],
        total=len(found),
        missing=0,
        shed=0,
        reasons={Reason.NETWORK: len(found)} if found else {},
        **read_from,
        next_cursor=next_cursor(end, len(found)),
    )


def _filled(one: Filled, kind: EntityKind) -> GapAnswer:
    tenant_id, cluster_id, host_id, entity, _ = one.key.split("\0")
    return GapAnswer(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        rack="",
        host_id=host_id,
        gpu_id=entity if kind is EntityKind.GPU else None,
        entity_id=entity,
        start_time=format_time(one.start_ms),
        end_time=format_time(one.end_ms),
        filled_time=format_time(one.filled_ms),
        duration_seconds=(one.end_ms - one.start_ms) / 1000,
        expected_samples=one.slots,
        received_samples=one.slots,
        reason=Reason.NETWORK,
        expected=False,
        collector_id=one.agent,
    )


def _story(story: Story) -> StoryAnswer:
    return StoryAnswer(
        level=story.level,
        tenant_id=story.tenant_id,
        cluster_id=story.cluster_id,
        rack=story.rack or None,
        host_id=story.host_id or None,
        entity_id=story.entity or None,
        start_time=format_time(story.start_ms),
        end_time=None if story.is_open else format_time(story.end_ms),
        reason=story.reason,
        expected=story.reason in EXPECTED,
        entities=story.entities,
        hosts=story.hosts,
        expected_samples=story.missing,
    )
