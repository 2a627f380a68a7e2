"""List people whom an issuer vouched for, and erase them: the name goes, the id stays where it stands.

Whoever is erased is shut out for good: sessions end, grants are revoked, tokens of the issuer are refused, and what
the person asked is forgotten but for its hashes.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields

from sqlalchemy import Engine, delete, select, update

from secondsight.access.identity import Role
from secondsight.access.metadata import GRANTS, QUESTION_TEXTS, QUESTIONS, SESSIONS, USERS, reading, writing
from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class Person:
    """What is known of a person; the name is "" once it is erased.

    Attributes:
        disabled_ms: When the person was erased, or None.
    """

    user_id: str
    role: Role
    tenant_id: str
    name: str
    created_ms: int
    seen_ms: int
    disabled_ms: int | None


def list_people(metadata: Engine, tenant_ids: Collection[str]) -> tuple[Person, ...]:
    """Return the people of some tenants, erased ones too, oldest first.

    Raises:
        Retryable: The store is away or busy.
    """
    columns = [USERS.c[part.name] for part in fields(Person)]
    mine = select(*columns).where(USERS.c.tenant_id.in_(sorted(tenant_ids)))
    with reading(metadata) as connection:
        rows = connection.execute(mine.order_by(USERS.c.created_ms, USERS.c.user_id)).all()
    return tuple(Person(**{**row._mapping, "role": Role(row.role)}) for row in rows)


def erase_person(metadata: Engine, user_id: str, tenant_ids: Collection[str], now_ms: int) -> str:
    """Forget the name of a person of some tenants, shut the person out, and return the tenant.

    Raises:
        Rejected(not_found): No such person of these tenants, or erased already.
        Retryable: The store is away or busy.
    """
    subject = f"user:{user_id}"
    mine = (USERS.c.user_id == user_id, USERS.c.tenant_id.in_(sorted(tenant_ids)), USERS.c.disabled_ms.is_(None))
    asked = select(QUESTIONS.c.question_id).where(QUESTIONS.c.subject == subject)
    with writing(metadata) as connection:
        if not connection.execute(update(USERS).where(*mine).values(name="", disabled_ms=now_ms)).rowcount:
            raise Rejected("not_found", f"there is no person {user_id[:100]!r} that you administer", "GET /v1/users")
        connection.execute(delete(SESSIONS).where(SESSIONS.c.user_id == user_id))
        live = update(GRANTS).where(GRANTS.c.subject == subject, GRANTS.c.revoked_ms.is_(None))
        connection.execute(live.values(revoked_ms=now_ms))
        connection.execute(delete(QUESTION_TEXTS).where(QUESTION_TEXTS.c.question_id.in_(asked)))
        return str(connection.execute(select(USERS.c.tenant_id).where(USERS.c.user_id == user_id)).scalar_one())
