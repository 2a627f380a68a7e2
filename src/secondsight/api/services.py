"""Hold what the routes share, and turn a request into the scope of whoever sent it."""

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from secondsight.access.audit import AuditLog
from secondsight.access.identity import Identity
from secondsight.access.issuer import Issuer, is_jwt
from secondsight.access.maintenance import MaintenanceWindow, windows_between
from secondsight.access.oidc import identity_of as identity_of_claims
from secondsight.access.retention import read_floors
from secondsight.access.scope import Scope, scope_of
from secondsight.access.sessions import session_identity
from secondsight.access.tokens import Authenticator, unexpired
from secondsight.api.admission import Admission, Limits, Throttled, asks_much
from secondsight.api.attempts import TOKEN, Attempts, address_of
from secondsight.api.config import ApiConfig
from secondsight.api.feed import FeedLimits, Feeds
from secondsight.ask.models import make_model
from secondsight.ask.service import AskService
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Rejected
from secondsight.guard.execute import Executor
from secondsight.guard.floor import Floors
from secondsight.guard.quality import QualityReader
from secondsight.guard.register import Register
from secondsight.guard.service import SqlService
from secondsight.lake.cold_pool import ColdPool
from secondsight.live.run import open_window
from secondsight.live.window import LiveWindow
from secondsight.query.board import BoardSource, StoreBoards
from secondsight.query.cache import AnswerCache, CachedRunner
from secondsight.query.cold import ColdTier
from secondsight.query.cold_gaps import TieredGaps
from secondsight.query.fleet import FleetReader
from secondsight.query.gapreader import GapReader
from secondsight.query.health import HealthReader
from secondsight.query.inventory import Inventory
from secondsight.query.liveboard import LiveBoards
from secondsight.query.plan import Span
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.question import asked_of
from secondsight.store.statement import MUCH_PRIORITY
from secondsight.store.views import tables_below

COOKIE = "secondsight_session"
SCOPE_SECONDS = 5.0
ISSUER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """What the routes share; made once per process."""

    config: ApiConfig
    store: Store
    metadata: Engine
    catalog: Catalog
    clock: Clock
    authenticator: Authenticator
    inventory: Inventory
    runner: CachedRunner
    gaps: TieredGaps
    fleet: FleetReader
    health: HealthReader
    selfmetrics: SelfMetrics
    audit: AuditLog
    attempts: Attempts
    admission: Admission
    sql: SqlService
    ask: AskService
    boards: BoardSource
    live: LiveWindow | None
    issuer: Issuer | None
    feeds: Feeds
    cold: ColdPool

    def renew(self) -> None:
        """Go by what the catalogue has now, which was renewed in place."""
        self.sql.renew(self.catalog)
        self.ask.renew(self.catalog)
        self.cold.renew()


def make_services(config: ApiConfig, store: Store, metadata: Engine, catalog: Catalog, clock: Clock) -> Services:
    """Return the services of an api over a store and a metadata store."""
    metrics = SelfMetrics()
    live = open_window(store, catalog, clock, config.live, metrics)
    admission = Admission(_limits(config), clock)
    settle = _nothing if live is None else live.settle
    inventory = Inventory(store, clock, settle, partial(_manners, admission, config))

    def planned(scope: Scope, span: Span) -> tuple[MaintenanceWindow, ...]:
        return windows_between(metadata, scope.all_tenant_ids, span.from_ms, span.to_ms)

    audit = AuditLog(metadata)
    stored = StoreBoards(inventory)
    boards: BoardSource = stored if live is None else LiveBoards(inventory, live, stored)
    pool = ColdPool(config.cold, config.data)
    if read_floors(metadata):
        pool.warm()
    cold = ColdTier(pool, lambda: read_floors(metadata), inventory)
    gaps = TieredGaps(GapReader(inventory, clock, planned), inventory, cold)
    runner = QueryRunner(store, clock, inventory, gaps, cold, live)
    statements = SqlService(
        Executor(asked_of(store), config.sql, tables_below(catalog, config.database)),
        Register(metadata, config.sql, clock, metrics),
        QualityReader(inventory, clock),
        Floors(catalog, config.database, lambda: read_floors(metadata)),
        catalog,
        clock,
    )
    return Services(
        cold=pool,
        config=config,
        store=store,
        metadata=metadata,
        catalog=catalog,
        clock=clock,
        authenticator=Authenticator(metadata, clock),
        inventory=inventory,
        runner=CachedRunner(runner, AnswerCache(config.cache_bytes, clock), clock, planned, metrics),
        gaps=gaps,
        fleet=FleetReader(inventory, catalog, clock),
        health=HealthReader(inventory, catalog, clock, planned),
        selfmetrics=metrics,
        audit=audit,
        attempts=Attempts(config.sign_in_address_failures, config.sign_in_account_failures, audit, metrics, clock),
        admission=admission,
        sql=statements,
        ask=AskService(statements, inventory, metadata, catalog, clock, make_model(config.model, os.environ)),
        boards=boards,
        live=live,
        issuer=None if config.oidc is None else Issuer(config.oidc, clock),
        feeds=Feeds(boards, clock, FeedLimits(config.live_streams, config.tenant_live_streams)),
    )


def _manners(admission: Admission, config: ApiConfig) -> dict[str, Any]:
    """Return how a statement runs beside others: on its share of the cores, and after those who ask little."""
    found: dict[str, Any] = {"priority": MUCH_PRIORITY} if asks_much() else {}
    if config.clickhouse is None and admission.running > 1:
        found["max_threads"] = max((os.cpu_count() or 1) // admission.running, 1)
    return found


def _nothing() -> None:
    """Do nothing: no window in memory follows."""


def _limits(config: ApiConfig) -> Limits:
    return Limits(
        requests_per_second=config.requests_per_second,
        requests_burst=config.requests_burst,
        at_once=config.queries_at_once,
        tenant_at_once=config.tenant_queries,
        tenant_waiting=config.tenant_queries_waiting,
        tenant_seconds_per_minute=config.tenant_query_seconds,
        wait_seconds=config.query_wait_seconds,
    )


async def services_of(request: Request) -> Services:
    """Return the services of the app that a request came to."""
    services: Services = request.app.state.services
    return services


async def identity_of(request: Request, services: Annotated[Services, Depends(services_of)]) -> Identity:
    """Return who sent a request: the holder of its bearer token, else whoever its session cookie is of.

    A token that was looked up a moment ago costs no change of threads.

    Raises:
        Rejected(token_missing, token_invalid, token_expired, session_ended).
        Throttled(rate_limited).
    """
    found = _remembered(request, services)
    if found is None:
        found = await run_in_threadpool(authenticated, request, services)
    request.state.caller = found
    return found


def _remembered(request: Request, services: Services) -> Identity | None:
    """Return who sent a request where that needs no look at a store, else None; refusals are `authenticated`'s."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return None
    with suppress(Rejected):
        return services.authenticator.remembered(secret.strip())
    return None


def authenticated(request: Request, services: Services) -> Identity:
    """Return who sent a request, by what is known of it now; see `identity_of`."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    session_id = request.cookies.get(COOKIE, "")
    if kind.lower() != "bearer" and session_id:
        return session_identity(services.metadata, session_id, services.clock.now_ms())
    secret = secret.strip() if kind.lower() == "bearer" else ""
    if not secret:
        return services.authenticator.authenticate(secret)
    with services.attempts.of(address_of(request, services.config.proxies), secret, TOKEN):
        if services.issuer is not None and is_jwt(secret):
            return _of_issuer(secret, services, services.issuer)
        return services.authenticator.authenticate(secret)


def _of_issuer(secret: str, services: Services, issuer: Issuer) -> Identity:
    """Return who an issuer's token is of; good ones are remembered for a moment."""
    config = services.config.oidc
    assert config is not None  # noqa: S101 - there is an issuer by its settings

    def make() -> Identity:
        return identity_of_claims(services.metadata, config, issuer.claims(secret), services.clock.now_ms())

    key = ("issuer", sha256(secret.encode("utf-8", "surrogatepass")).digest())
    identity: Identity = services.inventory.remember(key, ISSUER_SECONDS, make)
    return unexpired(identity, services.clock.now_ms())


async def admitted(
    request: Request,
    identity: Annotated[Identity, Depends(identity_of)],
    services: Annotated[Services, Depends(services_of)],
) -> AsyncIterator[None]:
    """Hold a turn of the caller's tenant while a route reads.

    Raises:
        Throttled(rate_limited, query_budget, too_many_queries).
    """
    try:
        services.admission.check_rate(identity.subject)
        async with services.admission.turn(identity.tenant_id):
            yield
    except Throttled as error:
        path = getattr(request.scope.get("route"), "path", "other")
        services.selfmetrics.count("api_rate_limited_total", limit=error.code, route=path, tenant=identity.tenant_id)
        raise


async def read_scope(
    identity: Annotated[Identity, Depends(identity_of)],
    services: Annotated[Services, Depends(services_of)],
    _turn: Annotated[None, Depends(admitted, scope="function")],
) -> Scope:
    """Return what the sender of a request may see; grants are read again after a few seconds.

    Raises:
        Rejected(role_cannot_read, no_grant).
    """
    kept: Scope | None = services.inventory.remembered(("scope", identity), SCOPE_SECONDS)
    return await run_in_threadpool(scope_now, identity, services) if kept is None else kept


def scope_now(identity: Identity, services: Services) -> Scope:
    """Return what an identity may see by its grants of a few seconds ago; see `read_scope`."""
    key = ("scope", identity)
    scope: Scope = services.inventory.remember(key, SCOPE_SECONDS, lambda: scope_of(identity, services.metadata))
    return scope


Shared = Annotated[Services, Depends(services_of)]
Reader = Annotated[Scope, Depends(read_scope)]
Caller = Annotated[Identity, Depends(identity_of)]
