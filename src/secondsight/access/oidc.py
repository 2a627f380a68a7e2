"""Turn the claims of a person whom an issuer knows into a role, a tenant and grants, by rules of the settings.

The person is kept as an id; name and address come from the claims, lie in one table, and can be erased there. Grants
that rules gave are taken back when the claims no longer have them; grants that an admin gave stay.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import GRANTS, USERS, reading, writing
from secondsight.access.scope import Grant, add_grant, grant_of_row
from secondsight.errors import Rejected

RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
ASYMMETRIC = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})


@dataclass(frozen=True, slots=True)
class OidcRule:
    """What a claim gives; a person gets the highest role and all grants of the rules that fit.

    Attributes:
        claim, value: A claim, such as `groups`, and the value that it has, or that is in it.
        role: viewer, operator or admin.
        tenant: Whose data the grant shows.
        clusters, teams, jobs, models: Only these; empty for all.
        denied_metrics: Catalogue names that are not shown.
    """

    claim: str
    value: str
    role: str = "viewer"
    tenant: str = "default"
    clusters: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    denied_metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a role that nobody can have by a claim."""
        if self.role not in [role.value for role in RANK]:
            raise Rejected("bad_config", f"api.oidc.rules: {self.role!r} is no role", "viewer, operator or admin")

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Tell whether somebody with these claims gets what it gives; an address that is not verified gives nothing."""
        if self.claim == "email" and claims.get("email_verified", True) not in (True, "true"):
            return False
        told = claims.get(self.claim)
        return self.value in told if isinstance(told, list) else told == self.value

    def grant(self) -> Grant:
        """Return what it lets read."""
        sets = (self.clusters, self.teams, self.jobs, self.models)
        clusters, teams, jobs, models = (frozenset(names) or None for names in sets)
        return Grant(self.tenant, clusters, teams, jobs, models, frozenset(self.denied_metrics))


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """Sign-in of people by an OpenID Connect issuer.

    Attributes:
        issuer: Its address, as its tokens name it.
        client_id: Our name with it.
        client_secret_file: File that holds our secret with it; a public client has none.
        audience: Whom tokens have to be made for, where that is not `client_id`.
        algorithms: By which they may be signed; none that needs a shared secret.
        leeway_seconds: How far its clock may be from ours.
        redirect_url: Where it sends people back to, `https://.../v1/session/callback`.
        scopes: What is asked for.
        ca_file: Certificates to trust instead of the system's.
        name_claim: Where the name of a person stands.
        rules: What claims give; somebody without any may not sign in.
    """

    issuer: str
    client_id: str
    redirect_url: str = ""
    client_secret_file: Path | None = None
    audience: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    leeway_seconds: int = 30
    scopes: str = "openid profile email"
    ca_file: Path | None = None
    name_claim: str = "name"
    rules: tuple[OidcRule, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not safe."""
        parts = urlsplit(self.issuer)
        is_local = parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
            raise Rejected("bad_config", f"api.oidc.issuer: {self.issuer!r} is not https", "only loopback may be http")
        wrong = sorted(set(self.algorithms) - ASYMMETRIC)
        if wrong or not self.algorithms:
            hint = ", ".join(sorted(ASYMMETRIC))
            raise Rejected("bad_config", f"api.oidc.algorithms: {wrong or 'none'} cannot be taken", hint)


def identity_of(metadata: Engine, config: OidcConfig, claims: Mapping[str, Any], now_ms: int) -> Identity:
    """Return who the claims are of, and keep the grants of that person as the rules have them.

    Raises:
        Rejected(no_grant): No rule gives this person anything, or an admin shut the person out.
        Retryable: The store is away or busy.
    """
    rules = [rule for rule in config.rules if rule.fits(claims)]
    if not rules:
        raise Rejected("no_grant", "no rule lets you in", "ask an administrator for a group that does")
    user_id = _user(metadata, config, claims, now_ms)
    subject = f"user:{user_id}"
    _keep_grants(metadata, subject, [rule.grant() for rule in rules], now_ms)
    best = max(rules, key=lambda rule: RANK[Role(rule.role)])
    expires_ms = int(claims["exp"]) * 1000
    return Identity(subject, Role(best.role), best.tenant, _name(config, claims), expires_ms=expires_ms)


def user_identity(metadata: Engine, user_id: str, expires_ms: int) -> Identity:
    """Return a person by id, as at the last sign-in.

    Raises:
        Rejected(session_ended): There is none, or it was shut out.
    """
    with reading(metadata) as connection:
        row = connection.execute(select(USERS).where(USERS.c.user_id == user_id)).mappings().first()
    if row is None or row["disabled_ms"] is not None:
        raise Rejected("session_ended", "the session has ended", "sign in again")
    return Identity(f"user:{user_id}", Role(row["role"]), row["tenant_id"], row["name"], expires_ms=expires_ms)


def _user(metadata: Engine, config: OidcConfig, claims: Mapping[str, Any], now_ms: int) -> str:
    rules = [rule for rule in config.rules if rule.fits(claims)]
    best = max(rules, key=lambda rule: RANK[Role(rule.role)])
    digest = sha256(json.dumps([config.issuer, str(claims["sub"])]).encode()).digest()
    now = {"role": best.role, "tenant_id": best.tenant, "name": _name(config, claims), "seen_ms": now_ms}
    known = USERS.c.subject_sha256 == digest
    for _ in range(2):
        with writing(metadata) as connection:
            changed = connection.execute(update(USERS).where(known, USERS.c.disabled_ms.is_(None)).values(**now))
            row = connection.execute(select(USERS.c.user_id, USERS.c.disabled_ms).where(known)).first()
        if row is not None and not changed.rowcount:
            raise Rejected("no_grant", "an administrator shut you out", "ask an administrator")
        if row is not None:
            return str(row.user_id)
        try:
            with writing(metadata) as connection:
                row_values = {"user_id": secrets.token_hex(8), "subject_sha256": digest, "created_ms": now_ms, **now}
                connection.execute(insert(USERS).values(**row_values))
        except IntegrityError:
            continue
    with reading(metadata) as connection:
        return str(connection.execute(select(USERS.c.user_id).where(known)).scalar_one())


def _keep_grants(metadata: Engine, subject: str, wanted: Sequence[Grant], now_ms: int) -> None:
    live = select(GRANTS).where(GRANTS.c.subject == subject, GRANTS.c.source == "oidc", GRANTS.c.revoked_ms.is_(None))
    with reading(metadata) as connection:
        have = {row["grant_id"]: grant_of_row(row) for row in connection.execute(live).mappings().all()}
    gone = [grant_id for grant_id, grant in have.items() if grant not in wanted]
    if gone:
        with writing(metadata) as connection:
            connection.execute(update(GRANTS).where(GRANTS.c.grant_id.in_(gone)).values(revoked_ms=now_ms))
    for grant in dict.fromkeys(wanted):
        if grant not in have.values():
            add_grant(metadata, subject, grant, now_ms, source="oidc")


def _name(config: OidcConfig, claims: Mapping[str, Any]) -> str:
    return str(claims.get(config.name_claim, ""))[:200]
