"""Serve debug sessions: operators have hosts, GPUs, jobs or clusters sampled every second for a bounded time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query

from secondsight.access.audit import AuditEntry, write_entries
from secondsight.access.debug import (
    MINUTE_MS,
    Budget,
    DebugSession,
    Hosts,
    budget_of,
    sessions_since,
    start_session,
    stop_session,
)
from secondsight.access.identity import Identity, Role
from secondsight.access.sampling import COARSE_MS, FULL_MS, live_rules, metric_stages
from secondsight.access.scope import Scope
from secondsight.api.models import DebugAnswer, DebugList, DebugRequest, ErrorAnswer
from secondsight.api.parameters import PageParameters, next_cursor
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Caller, Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.gateway.policy import Tables, told_to
from secondsight.model import EntityKind
from secondsight.query.request import Filters, parse_cursor, parse_limit
from secondsight.query.targets import Reporting, one_place, reporting
from secondsight.query.times import format_time

DAY_MS = 86_400_000
YEAR_MINUTES = 525_600.0
OPERATORS = (Role.OPERATOR, Role.ADMIN)
ADDED_SHARE = 1 - FULL_MS / COARSE_MS
"""Of the values of one second, what every second adds to a row of 30 s."""

router = APIRouter(
    route_class=ReadRoute, tags=["debug"], responses={404: {"model": ErrorAnswer}, 429: {"model": ErrorAnswer}}
)


def operator(caller: Caller) -> Identity:
    """Return who sent a request, if that may operate.

    Raises:
        Rejected(role_cannot_operate).
    """
    if caller.role not in OPERATORS:
        message = f"the role {caller.role} cannot start or stop debug sessions"
        raise Rejected("role_cannot_operate", message, "use a token of the role operator or admin")
    return caller


Operator = Annotated[Identity, Depends(operator)]


@router.post("/v1/debug", status_code=201)
def start(services: Shared, caller: Operator, scope: Reader, asked: Annotated[DebugRequest, Body()]) -> DebugAnswer:
    """Sample something every second for a while, and fetch the seconds before as far as they are still there."""
    target_kind, target = _target(asked)
    now_ms = services.clock.now_ms()
    found = reporting(services.inventory, _filters(asked), scope, now_ms)
    tenant_id, cluster_id = one_place(found, f"{target_kind} {target}")
    added = _added(services, found, now_ms)
    session = DebugSession(
        tenant_id=tenant_id,
        cluster_id=cluster_id,
        target_kind=target_kind,
        target=target,
        hosts={} if target_kind == "cluster" else _hosts(found, whole=target_kind == "host"),
        start_ms=now_ms,
        until_ms=now_ms + _ms(asked.minutes),
        back_ms=_ms(asked.back_minutes),
        values_per_second=sum(added.values()),
        subject=caller.subject,
    )
    try:
        session = start_session(services.metadata, session, _budget(services, tenant_id, added))
    except Rejected as error:
        _audit(services, session, "debug_start", error.code)
        raise
    _audit(services, session, "debug_start")
    notes = [] if session.values_per_second else ["all of this is sampled every second already"]
    return _answer(session, now_ms, notes)


@router.get("/v1/debug")
def sessions(services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]) -> DebugList:
    """Return the debug sessions in scope, those that run first."""
    first = parse_cursor(asked.cursor)
    end = first + parse_limit(asked.limit)
    now_ms = services.clock.now_ms()
    mine = [one for one in sessions_since(services.metadata, now_ms - DAY_MS) if _is_in(one, scope)]
    active = [one for one in mine if one.is_active(now_ms)]
    budget = sum(
        budget_of(services.metadata, tenant_id, services.config.debug_values_per_second)
        for tenant_id in scope.all_tenant_ids
    )
    used = sum(one.values_per_second for one in active)
    ordered = sorted(mine, key=lambda one: (not one.is_active(now_ms), -one.start_ms))
    return DebugList(
        sessions=[_answer(one, now_ms) for one in ordered[first:end]],
        total=len(ordered),
        next_cursor=next_cursor(end, len(ordered)),
        budget_values_per_second=budget,
        free_values_per_second=max(budget - used, 0),
    )


@router.delete("/v1/debug/{session_id}")
def stop(services: Shared, _caller: Operator, scope: Reader, session_id: str) -> DebugAnswer:
    """End a debug session now; the window of 30 s that it is in is still sampled to its end."""
    now_ms = services.clock.now_ms()
    known = [one for one in sessions_since(services.metadata, now_ms) if one.session_id == session_id]
    if not any(_is_in(one, scope) for one in known):
        raise Rejected("not_found", f"no debug session {session_id!r} is running", "GET /v1/debug names them")
    session = stop_session(services.metadata, scope.all_tenant_ids, session_id, now_ms)
    _audit(services, session, "debug_stop", subject=scope.subject)
    return _answer(session, now_ms)


def _target(asked: DebugRequest) -> tuple[str, str]:
    named = [(kind, getattr(asked, kind)) for kind in ("host", "gpu", "job") if getattr(asked, kind)]
    if not named and asked.cluster:
        return "cluster", asked.cluster
    if len(named) != 1:
        raise Rejected("bad_target", "name one of host, gpu, job or cluster", "a cluster may go with one of the others")
    return named[0]


def _ms(minutes: float) -> int:
    """Return ms of what was asked for; of what no session may last, infinity too, a time that can be written."""
    return round(min(minutes, YEAR_MINUTES) * MINUTE_MS)


def _filters(asked: DebugRequest) -> Filters:
    named = {kind: (getattr(asked, kind),) for kind in ("cluster", "host", "gpu", "job") if getattr(asked, kind)}
    return Filters(**named)


def _hosts(found: Sequence[Reporting], *, whole: bool) -> Hosts:
    gpus: dict[str, set[str]] = defaultdict(set)
    for one in found:
        gpus[one.host_id].add(one.entity)
    return {host: None if whole else tuple(sorted(names)) for host, names in sorted(gpus.items())}


def _added(services: Services, found: Sequence[Reporting], now_ms: int) -> dict[tuple[str, str], int]:
    """Return (host, entity) -> values a second that sampling it every second adds to what it sends now."""
    tables = Tables(live_rules(services.metadata), metric_stages(services.metadata))
    names = {kind: tuple(metric.name for metric in services.catalog.of_kind(kind)) for kind in EntityKind}
    coarse: dict[str, set[EntityKind]] = {}
    for one in found:
        if one.host_id not in coarse:
            told = told_to(tables, (one.tenant_id, one.cluster_id, one.host_id), names, now_ms)
            coarse[one.host_id] = {kind for kind, each in told.kinds.items() if (each.interval_ms or 0) >= COARSE_MS}
    added: dict[tuple[str, str], int] = defaultdict(int)
    for one in found:
        if one.kind in coarse[one.host_id]:
            added[one.host_id, one.entity] += round(one.values * ADDED_SHARE)
    return dict(added)


def _budget(services: Services, tenant_id: str, added: dict[tuple[str, str], int]) -> Budget:
    by_host: dict[str, int] = defaultdict(int)
    for (host, _), values in added.items():
        by_host[host] += values
    return Budget(
        budget_of(services.metadata, tenant_id, services.config.debug_values_per_second),
        per_host=max([*by_host.values(), 1]),
        per_gpu=max([*added.values(), 1]),
    )


def _is_in(session: DebugSession, scope: Scope) -> bool:
    mine = session.subject == scope.subject and session.tenant_id in scope.all_tenant_ids
    return mine or scope.admits_cluster(session.tenant_id, session.cluster_id)


def _audit(services: Services, session: DebugSession, action: str, outcome: str = "ok", subject: str = "") -> None:
    detail = (
        f"{session.session_id or 'no session'}: {session.target_kind} {session.target} in {session.cluster_id}, "
        f"until {format_time(session.until_ms)}, {session.values_per_second} values/s"
    )
    entry = AuditEntry(services.clock.now_ms(), subject or session.subject, session.tenant_id, action, outcome, detail)
    write_entries(services.metadata, [entry])


def _answer(session: DebugSession, now_ms: int, notes: Sequence[str] = ()) -> DebugAnswer:
    return DebugAnswer(
        session_id=session.session_id,
        tenant_id=session.tenant_id,
        cluster_id=session.cluster_id,
        target_kind=session.target_kind,
        target=session.target,
        hosts=list(session.hosts),
        start=format_time(session.start_ms),
        until=format_time(min(session.until_ms, session.stopped_ms or session.until_ms)),
        back_minutes=session.back_ms / MINUTE_MS,
        values_per_second=session.values_per_second,
        active=session.is_active(now_ms),
        started_by=session.subject,
        notes=list(notes),
    )
