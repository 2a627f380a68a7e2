"""Serve administration: who may read what. Admins alone, each for the tenants that its own grants hold whole."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query
from pydantic import Field

from secondsight.access.audit import AuditEntry, AuditQuestion, read_entries
from secondsight.access.enrolment import revoke
from secondsight.access.grants import GrantRecord, checked_subject, list_grants, revoke_grant
from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import ID_LENGTH_MAXIMUM
from secondsight.access.scope import Grant, Scope, add_grant
from secondsight.access.tenants import Tenant, add_tenant, list_tenants, tenant_ids
from secondsight.access.tokens import TokenRecord, TokenSpec, create_token, list_tokens, token_id_of
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Time, page_of, span_of, words_of
from secondsight.api.services import Caller, Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.query.request import parse_cursor, parse_limit
from secondsight.query.times import format_time, parse_time

Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH_MAXIMUM)]
IdSet = Annotated[list[str] | None, Field(max_length=1_000, description="Null admits all, an empty list none.")]

_ERRORS: dict[int | str, dict[str, type[ErrorAnswer]]] = {code: {"model": ErrorAnswer} for code in (400, 404, 422)}
router = APIRouter(tags=["administration"], responses=_ERRORS)


class GrantFields(Shape):
    """What may be read: rows that are inside of every list."""

    tenant_id: Id
    clusters: IdSet = None
    teams: IdSet = None
    jobs: IdSet = None
    model_ids: IdSet = None
    denied_metrics: tuple[str, ...] = Field((), max_length=1_000)

    def grant(self) -> Grant:
        """Return the grant that is meant."""
        sets = {
            name: None if getattr(self, name) is None else frozenset(getattr(self, name))
            for name in ("clusters", "teams", "jobs", "model_ids")
        }
        return Grant(self.tenant_id, **sets, denied_metrics=frozenset(self.denied_metrics))


class GrantRequest(GrantFields):
    """A grant to be given to `token:ID` or `user:ID`."""

    subject: Annotated[str, Field(max_length=512)]


class GrantAnswer(GrantFields):
    """A grant on record."""

    grant_id: int
    subject: str
    created: str
    revoked: str | None


class GrantPage(Shape):
    """A page of grants, oldest first."""

    grants: list[GrantAnswer]
    total: int
    next_cursor: str | None


class TenantRequest(Shape):
    """A tenant to be put on record."""

    tenant_id: Id
    name: Annotated[str, Field(max_length=200)] = ""


class TenantAnswer(Shape):
    """A tenant; `created` is null where it is known by its tokens alone."""

    tenant_id: str
    name: str
    created: str | None


class TenantPage(Shape):
    """A page of tenants, by id."""

    tenants: list[TenantAnswer]
    total: int
    next_cursor: str | None


class TokenRequest(Shape):
    """A token to be made.

    A viewer or operator without `grants` reads nothing until it is given some; an admin without any reads its tenant.
    A collector writes to `cluster`, as the collectors that `collector` names.
    """

    role: Role
    name: Annotated[str, Field(min_length=1, max_length=200)]
    tenant_id: Annotated[str, Field(max_length=ID_LENGTH_MAXIMUM)] = ""
    grants: tuple[GrantFields, ...] = Field((), max_length=100)
    expires: Annotated[str, Field(max_length=64, description="Such as now+90d; never without it.")] = ""
    cluster: Annotated[str, Field(max_length=ID_LENGTH_MAXIMUM)] = ""
    region: Annotated[str, Field(max_length=ID_LENGTH_MAXIMUM)] = ""
    collector: Annotated[str, Field(max_length=1_000)] = ""


class TokenAnswer(Shape):
    """A token on record."""

    token_id: str
    subject: str
    role: str
    tenant_id: str
    name: str
    cluster_id: str
    region: str
    collector_pattern: str
    created: str
    expires: str | None
    revoked: str | None


class IssuedAnswer(TokenAnswer):
    """A token that was made now; its secret is shown this once."""

    secret: str


class TokenPage(Shape):
    """A page of tokens, oldest first."""

    tokens: list[TokenAnswer]
    total: int
    next_cursor: str | None


class AuditAnswer(Shape):
    """One thing that somebody did or was refused."""

    audit_id: int
    time: str
    subject: str
    tenant_id: str
    action: str
    outcome: str
    detail: str


class AuditPage(Shape):
    """A page of entries, newest first."""

    entries: list[AuditAnswer]
    next_cursor: str | None


class AuditParameters(PageParameters):
    """Which entries; several values are separated by commas."""

    subject: Names = ""
    action: Names = ""
    outcome: Names = ""
    from_: Annotated[Time, Field(alias="from")] = "now-1d"
    to: Time = "now+1m"


def admin(caller: Caller) -> Identity:
    """Return who sent a request, if that is an admin.

    Raises:
        Rejected(role_cannot_administer).
    """
    if caller.role is not Role.ADMIN:
        message = f"the role {caller.role} cannot administer"
        raise Rejected("role_cannot_administer", message, "use a token of the role admin")
    return caller


Admin = Annotated[Identity, Depends(admin)]


@router.get("/v1/tenants")
def tenants(services: Shared, _caller: Admin, scope: Reader, asked: Annotated[PageParameters, Query()]) -> TenantPage:
    """Return the tenants that the caller administers."""
    known = {tenant.tenant_id: tenant for tenant in list_tenants(services.metadata)}
    mine = sorted(tenant for tenant in tenant_ids(services.metadata) | set(scope.all_tenant_ids) if scope.owns(tenant))
    page, cursor = page_of(mine, asked)
    found = [_tenant(known.get(name) or Tenant(name, "", 0)) for name in page]
    return TenantPage(tenants=found, total=len(mine), next_cursor=cursor)


@router.post("/v1/tenants", status_code=201)
def create_tenant(services: Shared, caller: Admin, asked: Annotated[TenantRequest, Body()]) -> TenantAnswer:
    """Put a new tenant on record; whoever makes it may read and administer it."""
    now_ms = services.clock.now_ms()
    if asked.tenant_id in tenant_ids(services.metadata):
        raise Rejected("tenant_exists", f"there is a tenant {asked.tenant_id[:100]!r} already", "choose another id")
    made = Tenant(asked.tenant_id, asked.name, now_ms)
    add_tenant(services.metadata, made)
    add_grant(services.metadata, caller.subject, Grant(asked.tenant_id), now_ms)
    _audit(services, caller, asked.tenant_id, "tenant_create", asked.name)
    services.inventory.forget(("scope", caller))
    return _tenant(made)


@router.get("/v1/grants")
def grants(services: Shared, _caller: Admin, scope: Reader, asked: Annotated[PageParameters, Query()]) -> GrantPage:
    """Return grants to read tenants that the caller administers, revoked ones too."""
    found = list_grants(services.metadata, administered(scope))
    page, cursor = page_of(found, asked)
    return GrantPage(grants=[_grant(one) for one in page], total=len(found), next_cursor=cursor)


@router.post("/v1/grants", status_code=201)
def create_grant(services: Shared, caller: Admin, scope: Reader, asked: Annotated[GrantRequest, Body()]) -> GrantAnswer:
    """Let a token or a person read something; readers follow within seconds."""
    now_ms = services.clock.now_ms()
    _check_owned(scope, asked.tenant_id)
    subject = checked_subject(asked.subject)
    grant = _checked(services, asked)
    grant_id = add_grant(services.metadata, subject, grant, now_ms)
    _audit(services, caller, grant.tenant_id, "grant_create", f"{grant_id} to {subject}: {_in_words(grant)}")
    return _grant(GrantRecord(grant_id, subject, grant, now_ms, None))


@router.delete("/v1/grants/{grant_id}", status_code=204)
def delete_grant(services: Shared, caller: Admin, scope: Reader, grant_id: int) -> None:
    """Revoke a grant; readers follow within seconds."""
    owned = administered(scope)
    if not -(2**63) <= grant_id < 2**63:
        raise Rejected("not_found", f"there is no grant {grant_id}", "GET /v1/grants")
    record = next((one for one in list_grants(services.metadata, owned) if one.grant_id == grant_id), None)
    revoke_grant(services.metadata, grant_id, owned, services.clock.now_ms())
    tenant_id = record.grant.tenant_id if record else caller.tenant_id
    _audit(services, caller, tenant_id, "grant_revoke", str(grant_id))


@router.get("/v1/tokens")
def tokens(services: Shared, _caller: Admin, scope: Reader, asked: Annotated[PageParameters, Query()]) -> TokenPage:
    """Return the tokens of tenants that the caller administers, without secrets, revoked ones too."""
    found = [one for tenant_id in administered(scope) for one in list_tokens(services.metadata, tenant_id)]
    page, cursor = page_of(found, asked)
    return TokenPage(tokens=[_token(one) for one in page], total=len(found), next_cursor=cursor)


@router.post("/v1/tokens", status_code=201)
def issue_token(services: Shared, caller: Admin, scope: Reader, asked: Annotated[TokenRequest, Body()]) -> IssuedAnswer:
    """Make a token with its grants and return its secret, once."""
    now_ms = services.clock.now_ms()
    tenant_id = asked.tenant_id or caller.tenant_id
    for wanted in (tenant_id, *(one.tenant_id for one in asked.grants)):
        _check_owned(scope, wanted)
    expires_ms = parse_time(asked.expires, now_ms) if asked.expires else None
    if expires_ms is not None and expires_ms <= now_ms:
        raise Rejected("bad_expiry", "the token would have expired already", "write such as now+90d")
    spec = TokenSpec(
        role=asked.role,
        tenant_id=tenant_id,
        name=asked.name,
        cluster_id=asked.cluster,
        region=asked.region,
        collector_pattern=asked.collector,
        grants=tuple(_checked(services, one) for one in asked.grants),
        expires_ms=expires_ms,
    )
    issued = create_token(services.metadata, spec, now_ms)
    _audit(services, caller, tenant_id, "token_create", f"{asked.role} token {issued.token_id} {asked.name!r}")
    record = next(one for one in list_tokens(services.metadata, tenant_id) if one.token_id == issued.token_id)
    return IssuedAnswer(**_token(record).model_dump(), secret=issued.secret)


@router.delete("/v1/tokens/{token_id}", status_code=204)
def revoke_one(services: Shared, caller: Admin, scope: Reader, token_id: str) -> None:
    """Revoke a token, or an agent by its token; it is refused within seconds."""
    now_ms = services.clock.now_ms()
    for tenant_id in administered(scope):
        try:
            what = revoke(services.metadata, tenant_id, token_id, now_ms)
        except Rejected as error:
            if error.code != "not_found":
                raise
            continue
        _audit(services, caller, tenant_id, "token_revoke", f"{what}, token {token_id}")
        if token_id == token_id_of(caller):
            services.authenticator.forget_all()
        return
    raise Rejected("not_found", f"there is no live token {token_id[:100]!r}", "GET /v1/tokens")


@router.get("/v1/audit")
def audit(services: Shared, _caller: Admin, scope: Reader, asked: Annotated[AuditParameters, Query()]) -> AuditPage:
    """Return who did and read what in tenants that the caller administers, newest first."""
    now_ms = services.clock.now_ms()
    span = span_of(parse_time(asked.from_, now_ms), parse_time(asked.to, now_ms))
    limit = parse_limit(asked.limit)
    services.audit.flush()
    question = AuditQuestion(
        span.from_ms,
        span.to_ms,
        subjects=words_of(asked.subject),
        actions=words_of(asked.action),
        outcomes=words_of(asked.outcome),
        before_id=parse_cursor(asked.cursor) if asked.cursor else None,
        limit=limit + 1,
    )
    found = read_entries(services.metadata, administered(scope), question)
    page = found[:limit]
    return AuditPage(
        entries=[_entry(audit_id, entry) for audit_id, entry in page],
        next_cursor=str(page[-1][0]) if len(found) > limit else None,
    )


def administered(scope: Scope) -> list[str]:
    """Return the tenants that a scope administers."""
    return [tenant_id for tenant_id in scope.all_tenant_ids if scope.owns(tenant_id)]


def _check_owned(scope: Scope, tenant_id: str) -> None:
    if not scope.owns(tenant_id):
        message = f"there is no tenant {tenant_id[:100]!r} that you administer"
        raise Rejected("not_found", message, "GET /v1/tenants names them")


def _checked(services: Services, asked: GrantFields) -> Grant:
    """Return a grant whose denied metrics are catalogue names; aliases are taken too.

    Raises:
        Rejected(unknown_metric, ambiguous_metric).
    """
    denied = frozenset(services.catalog.resolve(name).name for name in asked.denied_metrics)
    return replace(asked.grant(), denied_metrics=denied)


def _audit(services: Services, caller: Identity, tenant_id: str, action: str, detail: str) -> None:
    services.audit.record(AuditEntry(services.clock.now_ms(), caller.subject, tenant_id, action, "ok", detail))


def _in_words(grant: Grant) -> str:
    sets = (("clusters", grant.clusters), ("teams", grant.teams), ("jobs", grant.jobs), ("models", grant.model_ids))
    told = [f"{name} {','.join(sorted(names)) or 'none'}" for name, names in sets if names is not None]
    told += [f"without {','.join(sorted(grant.denied_metrics))}"] if grant.denied_metrics else []
    return "; ".join([f"tenant {grant.tenant_id}", *told])


def _tenant(tenant: Tenant) -> TenantAnswer:
    created = format_time(tenant.created_ms) if tenant.created_ms else None
    return TenantAnswer(tenant_id=tenant.tenant_id, name=tenant.name, created=created)


def _grant(record: GrantRecord) -> GrantAnswer:
    grant = record.grant
    return GrantAnswer(
        grant_id=record.grant_id,
        subject=record.subject,
        tenant_id=grant.tenant_id,
        clusters=_sorted(grant.clusters),
        teams=_sorted(grant.teams),
        jobs=_sorted(grant.jobs),
        model_ids=_sorted(grant.model_ids),
        denied_metrics=tuple(sorted(grant.denied_metrics)),
        created=format_time(record.created_ms),
        revoked=None if record.revoked_ms is None else format_time(record.revoked_ms),
    )


def _sorted(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _token(record: TokenRecord) -> TokenAnswer:
    return TokenAnswer(
        token_id=record.token_id,
        subject=f"token:{record.token_id}",
        role=record.role.value,
        tenant_id=record.tenant_id,
        name=record.name,
        cluster_id=record.cluster_id,
        region=record.region,
        collector_pattern=record.collector_pattern,
        created=format_time(record.created_ms),
        expires=None if record.expires_ms is None else format_time(record.expires_ms),
        revoked=None if record.revoked_ms is None else format_time(record.revoked_ms),
    )


def _entry(audit_id: int, entry: AuditEntry) -> AuditAnswer:
    return AuditAnswer(
        audit_id=audit_id,
        time=format_time(entry.time_ms),
        subject=entry.subject,
        tenant_id=entry.tenant_id,
        action=entry.action,
        outcome=entry.outcome,
        detail=entry.detail,
    )
