"""Turn a join token into a token that is bound to one agent, and renew or revoke that.

Who enrols is known by its machine: the same machine may enrol again, which rotates its token, and no other machine may
take its place. A token that was replaced stays good for a grace time, as the new one may not have arrived. A revoked
agent is not enrolled again until it is admitted again.
"""

import hmac
import secrets
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, and_, delete, insert, or_, select, update

from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import ENROLMENTS, JOIN_TOKENS, TOKENS, reading, writing
from secondsight.access.tokens import (
    IssuedToken,
    TokenSpec,
    digest_of,
    invalid_token,
    new_secret,
    new_token,
    revoke_token,
    subject_of,
)
from secondsight.errors import Rejected

JOIN_LETTER = "j"
JOIN_PREFIX = f"ss_{JOIN_LETTER}"


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join token to be made.

    Attributes:
        collector_pattern: Collectors that may enrol with it, see `Identity`.
        uses_maximum: How many agents may enrol with it; None for any number. Enrolling again costs none.
        expires_ms: Epoch ms, or None for never.
    """

    tenant_id: str
    name: str
    cluster_id: str
    region: str = ""
    collector_pattern: str = "*"
    uses_maximum: int | None = None
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinRecord:
    """What is known of a join token; its secret is not."""

    token_id: str
    tenant_id: str
    name: str
    cluster_id: str
    region: str
    collector_pattern: str
    uses_maximum: int | None
    uses: int
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who asks to be enrolled; `machine` is a text that only its machine knows to repeat."""

    collector_id: str
    host_id: str
    machine: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How long tokens of agents live, and how long a replaced one stays good."""

    lifetime_ms: int
    grace_ms: int


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A token for an agent, shown once."""

    token: IssuedToken
    tenant_id: str
    cluster_id: str
    expires_ms: int
    renewed: bool


def create_join_token(metadata: Engine, spec: JoinSpec, now_ms: int) -> IssuedToken:
    """Make a join token and return its secret, once.

    Raises:
        Rejected(token_spec_invalid): No agent could enrol with it.
    """
    if not (spec.tenant_id and spec.cluster_id and spec.collector_pattern.strip(" ,")):
        raise Rejected("token_spec_invalid", "a join token needs a tenant, a cluster and a pattern of collectors")
    if spec.uses_maximum is not None and spec.uses_maximum < 1:
        raise Rejected("token_spec_invalid", "a join token is for one agent at least")
    token_id, secret = secrets.token_hex(8), new_secret(JOIN_LETTER)
    row = {part.name: getattr(spec, part.name) for part in fields(spec)}
    with writing(metadata) as connection:
        named = {"token_id": token_id, "secret_sha256": digest_of(secret), "created_ms": now_ms}
        connection.execute(insert(JOIN_TOKENS).values(**row, **named))
    return IssuedToken(token_id, subject_of(token_id), secret)


def list_join_tokens(metadata: Engine, tenant_id: str) -> tuple[JoinRecord, ...]:
    """Return every join token of a tenant, oldest first."""
    columns = [JOIN_TOKENS.c[part.name] for part in fields(JoinRecord)]
    mine = select(*columns).where(JOIN_TOKENS.c.tenant_id == tenant_id).order_by(JOIN_TOKENS.c.created_ms)
    with reading(metadata) as connection:
        return tuple(JoinRecord(**row._mapping) for row in connection.execute(mine))


def enrol_by_join_token(metadata: Engine, secret: str, applicant: Applicant, terms: Terms, now_ms: int) -> Enrolled:
    """Give an agent a token of its own for a join token.

    Raises:
        Rejected(token_missing, token_invalid, token_expired, join_used_up, collector_not_allowed): The join token is
            not good, or not for this collector.
        Rejected(collector_taken, collector_revoked): Another machine has this collector id, or it was revoked.
    """
    join = _join_token(metadata, secret, now_ms)
    spec = _spec(join["tenant_id"], join["cluster_id"], join["region"], applicant, now_ms + terms.lifetime_ms)
    admitted = Identity("", Role.COLLECTOR, spec.tenant_id, "", collector_pattern=join["collector_pattern"])
    if not admitted.allows_collector(applicant.collector_id):
        message = f"the join token {join['name']!r} is not for collector {applicant.collector_id!r}"
        raise Rejected("collector_not_allowed", message, "make one whose pattern allows it")
    return _enrol(metadata, spec, applicant, (terms, now_ms), join["token_id"])


def renew(metadata: Engine, identity: Identity, applicant: Applicant, terms: Terms, now_ms: int) -> Enrolled:
    """Give an enrolled agent another token for the one that it has.

    Raises:
        Rejected(collector_not_allowed): The token is not that of an enrolled agent, or of another one, or the agent was
            admitted anew since.
        Rejected(collector_taken, collector_revoked): As `enrol_by_join_token`.
    """
    bound = identity.host_id and identity.collector_pattern == applicant.collector_id
    if not bound or identity.host_id != applicant.host_id:
        message = f"the token {identity.name!r} is not that of the enrolled collector {applicant.collector_id!r}"
        raise Rejected("collector_not_allowed", message, "enrol with a join token")
    spec = _spec(identity.tenant_id, identity.cluster_id, identity.region, applicant, now_ms + terms.lifetime_ms)
    return _enrol(metadata, spec, applicant, (terms, now_ms), None)


def revoke(metadata: Engine, tenant_id: str, token_id: str, now_ms: int) -> str:
    """Revoke a token of any sort and return what it was; of an enrolled agent all tokens go, and it stays out.

    Raises:
        Rejected(not_found): The tenant has no such live token.
    """
    with writing(metadata) as connection:
        mine = and_(JOIN_TOKENS.c.token_id == token_id, JOIN_TOKENS.c.tenant_id == tenant_id)
        live = update(JOIN_TOKENS).where(mine, JOIN_TOKENS.c.revoked_ms.is_(None))
        if connection.execute(live.values(revoked_ms=now_ms)).rowcount:
            return "join token"
        row = connection.execute(
            select(TOKENS).where(TOKENS.c.token_id == token_id, TOKENS.c.tenant_id == tenant_id)
        ).mappings()
        token = row.first()
    if token is None or token["revoked_ms"] is not None:
        raise Rejected("not_found", f"there is no live token {token_id!r}", "`secondsight tokens list` has them")
    if not token["host_id"]:
        revoke_token(metadata, token_id, now_ms)
        return f"{token['role']} token"
    _revoke_agent(metadata, token, now_ms)
    return f"agent {token['collector_pattern']}"


def readmit(metadata: Engine, tenant_id: str, collector_id: str, now_ms: int) -> bool:
    """Forget that a collector was enrolled or revoked, so that any machine may enrol as it; False where none was.

    Its tokens are revoked: the machine that had them is no longer it.
    """
    mine = and_(ENROLMENTS.c.tenant_id == tenant_id, ENROLMENTS.c.collector_id == collector_id)
    tokens = and_(TOKENS.c.tenant_id == tenant_id, TOKENS.c.collector_pattern == collector_id, TOKENS.c.host_id != "")
    with writing(metadata) as connection:
        if not connection.execute(delete(ENROLMENTS).where(mine)).rowcount:
            return False
        live = update(TOKENS).where(tokens, TOKENS.c.revoked_ms.is_(None))
        connection.execute(live.values(revoked_ms=now_ms))
        return True


def tenant_of_join_token(metadata: Engine, secret: str) -> str:
    """Return whose join token a secret is, of one that is over too; "" where it is nobody's."""
    found = select(JOIN_TOKENS.c.tenant_id).where(JOIN_TOKENS.c.secret_sha256 == digest_of(secret))
    with reading(metadata) as connection:
        return connection.execute(found).scalar() or ""


def _join_token(metadata: Engine, secret: str, now_ms: int) -> RowMapping:
    digest = digest_of(secret)
    with reading(metadata) as connection:
        found = select(JOIN_TOKENS).where(JOIN_TOKENS.c.secret_sha256 == digest)
        row = connection.execute(found).mappings().first()
    if row is None or row["revoked_ms"] is not None or not hmac.compare_digest(row["secret_sha256"], digest):
        raise invalid_token()
    if row["expires_ms"] is not None and now_ms >= row["expires_ms"]:
        raise Rejected("token_expired", f"the join token {row['name']!r} has expired", "make a new one")
    return row


def _spec(tenant_id: str, cluster_id: str, region: str, applicant: Applicant, expires_ms: int) -> TokenSpec:
    return TokenSpec(
        Role.COLLECTOR,
        tenant_id,
        f"agent {applicant.collector_id}",
        cluster_id,
        region,
        applicant.collector_id,
        expires_ms=expires_ms,
        host_id=applicant.host_id,
    )


def _enrol(
    metadata: Engine, spec: TokenSpec, applicant: Applicant, when: tuple[Terms, int], join_id: str | None
) -> Enrolled:
    (terms, now_ms), (issued, row) = when, new_token(spec, when[1])
    machine = sha256(applicant.machine.encode("utf-8", "surrogatepass")).digest()
    with writing(metadata) as connection:
        connection.execute(insert(TOKENS).values(**row))
        known = connection.execute(select(ENROLMENTS).where(_key(spec, applicant)).with_for_update()).mappings().first()
        _check_known(known, machine, applicant)
        enrolment = _enrolment(spec, applicant, machine, issued, now_ms)
        if known is not None:
            _let_expire(connection, known["token_id"], now_ms + terms.grace_ms)
            connection.execute(update(ENROLMENTS).where(_key(spec, applicant)).values(**enrolment))
        elif join_id is not None:
            _use(connection, join_id)
            connection.execute(insert(ENROLMENTS).values(**enrolment))
        else:
            message = f"collector {applicant.collector_id!r} is not enrolled any more"
            raise Rejected("collector_not_allowed", message, "enrol with a join token")
    expires_ms = spec.expires_ms or now_ms + terms.lifetime_ms
    return Enrolled(issued, spec.tenant_id, spec.cluster_id, expires_ms, renewed=known is not None)


def _check_known(known: RowMapping | None, machine: bytes, applicant: Applicant) -> None:
    if known is None:
        return
    if known["revoked_ms"] is not None:
        message = f"collector {applicant.collector_id!r} was revoked"
        raise Rejected("collector_revoked", message, "an administrator admits it with `secondsight tokens readmit`")
    same = hmac.compare_digest(known["machine_sha256"], machine)
    if not same or known["host_id"] != applicant.host_id:
        message = f"collector {applicant.collector_id!r} is enrolled from another machine"
        hint = "give this agent a collector_id of its own, or admit it with `secondsight tokens readmit`"
        raise Rejected("collector_taken", message, hint)


def _use(connection: Connection, join_id: str) -> None:
    left = or_(JOIN_TOKENS.c.uses_maximum.is_(None), JOIN_TOKENS.c.uses < JOIN_TOKENS.c.uses_maximum)
    once = update(JOIN_TOKENS).where(JOIN_TOKENS.c.token_id == join_id, left).values(uses=JOIN_TOKENS.c.uses + 1)
    if not connection.execute(once).rowcount:
        raise Rejected("join_used_up", "as many agents as the join token allows have enrolled", "make a new one")


def _let_expire(connection: Connection, token_id: str, at_ms: int) -> None:
    later = or_(TOKENS.c.expires_ms.is_(None), TOKENS.c.expires_ms > at_ms)
    connection.execute(update(TOKENS).where(TOKENS.c.token_id == token_id, later).values(expires_ms=at_ms))


def _key(spec: TokenSpec, applicant: Applicant) -> Any:
    return and_(
        ENROLMENTS.c.tenant_id == spec.tenant_id,
        ENROLMENTS.c.cluster_id == spec.cluster_id,
        ENROLMENTS.c.collector_id == applicant.collector_id,
    )


def _enrolment(
    spec: TokenSpec, applicant: Applicant, machine: bytes, issued: IssuedToken, now_ms: int
) -> dict[str, Any]:
    return {
        "tenant_id": spec.tenant_id,
        "cluster_id": spec.cluster_id,
        "collector_id": applicant.collector_id,
        "host_id": applicant.host_id,
        "machine_sha256": machine,
        "token_id": issued.token_id,
        "enrolled_ms": now_ms,
    }


def _revoke_agent(metadata: Engine, token: RowMapping, now_ms: int) -> None:
    collector_id = token["collector_pattern"]
    same = ("tenant_id", "cluster_id", "collector_pattern", "host_id")
    siblings = and_(*(TOKENS.c[name] == token[name] for name in same), TOKENS.c.revoked_ms.is_(None))
    mine = and_(
        ENROLMENTS.c.tenant_id == token["tenant_id"],
        ENROLMENTS.c.cluster_id == token["cluster_id"],
        ENROLMENTS.c.collector_id == collector_id,
    )
    with writing(
        metadata
    ) as connection:  # the enrolment first: a renewal under way is waited for, and its token goes too
        connection.execute(update(ENROLMENTS).where(mine).values(revoked_ms=now_ms))
        connection.execute(update(TOKENS).where(siblings).values(revoked_ms=now_ms))
