"""Turn a sign-in into a session that can be ended, and a session's id into the identity of its token.

The id is shown once, to whoever signed in; the store keeps its SHA-256 only. Every look-up reads the store, so a
session ends for all processes at once when it is ended or its token is revoked.
"""

import secrets
from hashlib import sha256

from sqlalchemy import Engine, delete, insert, select

from secondsight.access.identity import Identity
from secondsight.access.metadata import SESSIONS, TOKENS, reading, writing
from secondsight.access.oidc import user_identity
from secondsight.access.tokens import identity_of_row, unexpired
from secondsight.errors import Rejected

SESSION_BYTES = 32
SESSION_LENGTH_MAXIMUM = 200
MS_PER_SECOND = 1000


def start_session(metadata: Engine, identity: Identity, now_ms: int, lasts_seconds: int) -> str:
    """Start a session of a token or a person and return its id, once; sessions that are over are forgotten."""
    session_id = secrets.token_urlsafe(SESSION_BYTES)
    kind, _, holder = identity.subject.partition(":")
    row = {
        "id_sha256": _digest(session_id),
        "token_id": holder if kind == "token" else "",
        "user_id": holder if kind == "user" else "",
        "created_ms": now_ms,
        "expires_ms": now_ms + lasts_seconds * MS_PER_SECOND,
    }
    with writing(metadata) as connection:
        connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_ms <= now_ms))
        connection.execute(insert(SESSIONS).values(**row))
    return session_id


def end_session(metadata: Engine, session_id: str) -> bool:
    """End a session; return False where there is no such session."""
    if not _may_be_id(session_id):
        return False
    with writing(metadata) as connection:
        return connection.execute(delete(SESSIONS).where(SESSIONS.c.id_sha256 == _digest(session_id))).rowcount == 1


def session_identity(metadata: Engine, session_id: str, now_ms: int) -> Identity:
    """Return who signed in.

    Raises:
        Rejected(session_ended): It was ended, has expired, never was, its token was revoked, or its person shut out.
        Rejected(token_expired).
    """
    if not _may_be_id(session_id):
        raise _ended()
    live = select(TOKENS).join(SESSIONS, SESSIONS.c.token_id == TOKENS.c.token_id)
    live = live.where(SESSIONS.c.id_sha256 == _digest(session_id), SESSIONS.c.expires_ms > now_ms)
    with reading(metadata) as connection:
        row = connection.execute(live.where(TOKENS.c.revoked_ms.is_(None))).mappings().first()
    if row is None:
        return _user_of(metadata, session_id, now_ms)
    return unexpired(identity_of_row(row), now_ms)


def _user_of(metadata: Engine, session_id: str, now_ms: int) -> Identity:
    """Return the person whose session it is."""
    mine = select(SESSIONS.c.user_id, SESSIONS.c.expires_ms).where(
        SESSIONS.c.id_sha256 == _digest(session_id), SESSIONS.c.expires_ms > now_ms, SESSIONS.c.user_id != ""
    )
    with reading(metadata) as connection:
        row = connection.execute(mine).first()
    if row is None:
        raise _ended()
    return user_identity(metadata, row.user_id, row.expires_ms)


def _digest(session_id: str) -> bytes:
    return sha256(session_id.encode("utf-8", "surrogatepass")).digest()


def _may_be_id(session_id: str) -> bool:
    return 0 < len(session_id) <= SESSION_LENGTH_MAXIMUM


def _ended() -> Rejected:
    return Rejected("session_ended", "the session has ended", "sign in again")
