"""Turn a bearer secret into an identity.

A secret is shown once, when its token is made; the store keeps its SHA-256 only (the secret has 256 random bits, so a
slow hash would add nothing). Revoking a token takes effect within the authenticator's cache time.
"""

import hmac
import math
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from threading import Lock
from typing import Any

from sqlalchemy import Engine, RowMapping, and_, insert, or_, select, update

from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import ID_LENGTH_MAXIMUM, TOKENS, reading, writing
from secondsight.access.scope import Grant, add_grant
from secondsight.clock import Clock
from secondsight.errors import Rejected

SECRET_BYTES = 32
SECRET_LENGTH_MAXIMUM = 200
CACHE_SECONDS = 5.0
CACHE_ENTRIES = 20_000
CLOCKS_APART_MS = 3_600_000
"""The clock of who revokes a token may differ by that from the clock of who checks it."""

_SUBJECT_PREFIX = "token:"
ROLE_LETTERS: dict[Role, str] = {Role.VIEWER: "v", Role.OPERATOR: "o", Role.ADMIN: "a", Role.COLLECTOR: "c"}


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """A token to be made.

    Attributes:
        cluster_id, region: Where a collector writes to; a collector needs a cluster.
        collector_pattern: See `Identity`; a collector needs one.
        grants: What a viewer or operator may read. An admin without any gets its whole tenant.
        expires_ms: Epoch ms, or None for never.
        host_id: Of an enrolled agent: the only host that it may write of.
    """

    role: Role
    tenant_id: str
    name: str
    cluster_id: str = ""
    region: str = ""
    collector_pattern: str = ""
    grants: tuple[Grant, ...] = ()
    expires_ms: int | None = None
    host_id: str = ""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. The secret is kept nowhere else."""

    token_id: str
    subject: str
    secret: str = field(repr=False)


def create_token(metadata: Engine, spec: TokenSpec, now_ms: int) -> IssuedToken:
    """Make a token with its grants and return its secret, once.

    Raises:
        Rejected(token_spec_invalid): A collector without cluster or pattern, a field that its role cannot have, an id
            that is too long.
    """
    issued, row = new_token(spec, now_ms)
    whole_tenant = (Grant(spec.tenant_id),) if spec.role is Role.ADMIN else ()
    for grant in spec.grants or whole_tenant:
        add_grant(metadata, issued.subject, grant, now_ms)
    with writing(metadata) as connection:
        connection.execute(insert(TOKENS).values(**row))
    return issued


def new_token(spec: TokenSpec, now_ms: int) -> tuple[IssuedToken, dict[str, Any]]:
    """Return a token that is in no table yet, and its row.

    Raises:
        Rejected(token_spec_invalid): As `create_token`.
    """
    _check_spec(spec)
    token_id = secrets.token_hex(8)
    secret = new_secret(ROLE_LETTERS[spec.role])
    row = {
        "token_id": token_id,
        "secret_sha256": digest_of(secret),
        "role": spec.role.value,
        "tenant_id": spec.tenant_id,
        "name": spec.name,
        "region": spec.region,
        "cluster_id": spec.cluster_id,
        "collector_pattern": spec.collector_pattern,
        "created_ms": now_ms,
        "expires_ms": spec.expires_ms,
        "host_id": spec.host_id,
    }
    return IssuedToken(token_id, subject_of(token_id), secret), row


def new_secret(letter: str) -> str:
    """Return a random secret; the letter tells people what it is for."""
    return f"ss_{letter}{secrets.token_urlsafe(SECRET_BYTES)}"


def subject_of(token_id: str) -> str:
    """Return the name under which grants and the audit know a token."""
    return f"{_SUBJECT_PREFIX}{token_id}"


def token_id_of(identity: Identity) -> str:
    """Return the id of the token that an identity came from."""
    return identity.subject.removeprefix(_SUBJECT_PREFIX)


def revoke_token(metadata: Engine, token_id: str, now_ms: int) -> bool:
    """Revoke a token; return False where there is no such live token."""
    live = update(TOKENS).where(TOKENS.c.token_id == token_id, TOKENS.c.revoked_ms.is_(None))
    with writing(metadata) as connection:
        return connection.execute(live.values(revoked_ms=now_ms)).rowcount == 1


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What is known of a token; its secret is not."""

    token_id: str
    role: Role
    tenant_id: str
    name: str
    cluster_id: str
    region: str
    collector_pattern: str
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


def list_tokens(metadata: Engine, tenant_id: str) -> tuple[TokenRecord, ...]:
    """Return every token of a tenant, revoked ones too, oldest first."""
    columns = [TOKENS.c[part.name] for part in fields(TokenRecord)]
    mine = select(*columns).where(TOKENS.c.tenant_id == tenant_id).order_by(TOKENS.c.created_ms, TOKENS.c.token_id)
    with reading(metadata) as connection:
        rows = connection.execute(mine).all()
    return tuple(TokenRecord(**{**row._mapping, "role": Role(row.role)}) for row in rows)


class Authenticator:
    """Checks secrets against the metadata store, and remembers good ones. Safe from many threads.

    Every few seconds what was revoked or given another end is read in one go, however many secrets are remembered, as
    each agent of a fleet has its own. Refused secrets are not remembered: a token works from the
    moment it is made.
    """

    def __init__(self, metadata: Engine, clock: Clock, cache_seconds: float = CACHE_SECONDS) -> None:
        self._metadata = metadata
        self._clock = clock
        self._cache_seconds = cache_seconds
        self._cache: OrderedDict[bytes, Identity] = OrderedDict()
        self._lock = Lock()
        self._looked_seconds = -math.inf
        self._looking = Lock()

    def authenticate(self, secret: str) -> Identity:
        """Return who holds a secret; may read the store.

        Raises:
            Rejected(token_missing, token_invalid, token_expired): The text never holds the secret.
        """
        return self.authenticate_digest(digest_of(secret))

    def authenticate_digest(self, digest: bytes) -> Identity:
        """Return who holds the secret of this digest; see `authenticate`."""
        self._look_again()
        identity = self._remembered(digest)
        if identity is None:
            identity = _read_identity(self._metadata, digest)
            self._remember(digest, identity)
        return unexpired(identity, self._clock.now_ms())

    def remembered(self, secret: str) -> Identity | None:
        """Return who holds a secret where that needs no reading of the store, else None; never blocks.

        Raises:
            Rejected(token_missing, token_invalid, token_expired): The text never holds the secret.
        """
        return self.remembered_digest(digest_of(secret))

    def remembered_digest(self, digest: bytes) -> Identity | None:
        """Return who holds the secret of this digest; see `remembered`."""
        identity = self._remembered(digest)
        if identity is None or identity.expires_ms is None:
            return identity
        return unexpired(identity, self._clock.now_ms())

    def forget_all(self) -> None:
        """Look every secret up again."""
        with self._lock:
            self._cache.clear()

    def _remembered(self, digest: bytes) -> Identity | None:
        with self._lock:
            if self._is_stale() or digest not in self._cache:
                return None
            self._cache.move_to_end(digest)
            return self._cache[digest]

    def _remember(self, digest: bytes, identity: Identity) -> None:
        with self._lock:
            self._cache[digest] = identity
            self._cache.move_to_end(digest)
            if len(self._cache) > CACHE_ENTRIES:
                self._cache.popitem(last=False)

    def _is_stale(self) -> bool:
        return self._clock.monotonic_seconds() - self._looked_seconds >= self._cache_seconds

    def _look_again(self) -> None:
        """Read what was revoked or given another end, where that was not done for some seconds."""
        with self._looking:
            if not self._is_stale():
                return
            began = self._clock.monotonic_seconds()
            if (began - self._looked_seconds) * 1000 >= CLOCKS_APART_MS:
                self.forget_all()  # a change may lie further back than is looked
            changes = _read_changes(self._metadata, self._clock.now_ms()) if self._cache else []
            with self._lock:
                for digest, revoked_ms, expires_ms in changes:
                    known = self._cache.get(digest)
                    if known is not None and revoked_ms is not None:
                        del self._cache[digest]
                    elif known is not None and known.expires_ms != expires_ms:
                        self._cache[digest] = replace(known, expires_ms=expires_ms)
                self._looked_seconds = began


def _read_changes(metadata: Engine, now_ms: int) -> list[tuple[bytes, int | None, int | None]]:
    """Return (digest, revoked, expires) of the tokens that were revoked lately, and of those that have an end."""
    since_ms = now_ms - CLOCKS_APART_MS
    ends = and_(TOKENS.c.revoked_ms.is_(None), TOKENS.c.expires_ms >= since_ms)
    columns = (TOKENS.c.secret_sha256, TOKENS.c.revoked_ms, TOKENS.c.expires_ms)
    with reading(metadata) as connection:
        rows = connection.execute(select(*columns).where(or_(TOKENS.c.revoked_ms >= since_ms, ends))).all()
    return [(row[0], row[1], row[2]) for row in rows]


def _check_spec(spec: TokenSpec) -> None:
    if not spec.tenant_id or any(_is_no_id(text) for text in (spec.tenant_id, spec.cluster_id, spec.region)):
        message = (
            f"a token needs a tenant; tenant, cluster and region are texts of at most {ID_LENGTH_MAXIMUM} characters"
        )
        raise Rejected("token_spec_invalid", message)
    writes = spec.role is Role.COLLECTOR
    if writes and not (spec.cluster_id and spec.collector_pattern):
        raise Rejected("token_spec_invalid", "a collector token needs a cluster and a collector pattern")
    if writes and spec.grants:
        raise Rejected("token_spec_invalid", "a collector token only writes and has no grants")
    if not writes and (spec.cluster_id or spec.collector_pattern):
        raise Rejected(
            "token_spec_invalid", "only a collector token has a cluster and a collector pattern", "use grants"
        )


def _is_no_id(text: str) -> bool:
    return len(text) > ID_LENGTH_MAXIMUM or "\0" in text


def digest_of(secret: str) -> bytes:
    """Return what is stored of a secret.

    Raises:
        Rejected(token_missing, token_invalid): No secret is like this.
    """
    if not secret:
        raise Rejected("token_missing", "the request has no bearer token", "send Authorization: Bearer <token>")
    if len(secret) > SECRET_LENGTH_MAXIMUM:
        raise invalid_token()
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _read_identity(metadata: Engine, digest: bytes) -> Identity:
    with reading(metadata) as connection:
        row = connection.execute(select(TOKENS).where(TOKENS.c.secret_sha256 == digest)).mappings().first()
    if row is None or row["revoked_ms"] is not None or not hmac.compare_digest(row["secret_sha256"], digest):
        raise invalid_token()
    return identity_of_row(row)


def identity_of_row(row: RowMapping) -> Identity:
    """Return the identity that a row of the table of tokens stands for."""
    return Identity(
        subject=subject_of(row["token_id"]),
        role=Role(row["role"]),
        tenant_id=row["tenant_id"],
        name=row["name"],
        cluster_id=row["cluster_id"],
        region=row["region"],
        collector_pattern=row["collector_pattern"],
        expires_ms=row["expires_ms"],
        host_id=row["host_id"],
    )


def unexpired(identity: Identity, now_ms: int) -> Identity:
    """Return an identity whose token has not expired.

    Raises:
        Rejected(token_expired).
    """
    if identity.expires_ms is not None and now_ms >= identity.expires_ms:
        raise Rejected("token_expired", f"the token {identity.name!r} has expired", "make a new token")
    return identity


def invalid_token() -> Rejected:
    """Return the refusal of a secret that is nobody's."""
    return Rejected("token_invalid", "the bearer token is unknown or was revoked", "check the token, or make a new one")
