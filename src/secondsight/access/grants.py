"""List grants by tenant, and revoke one by its id. Grants are never deleted."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Engine, select, update

from secondsight.access.metadata import GRANTS, NAME_LENGTH_MAXIMUM, reading, writing
from secondsight.access.scope import Grant, grant_of_row
from secondsight.errors import Rejected

PREFIXES = ("token:", "user:")


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """One grant on record; `revoked_ms` is None while it is in force."""

    grant_id: int
    subject: str
    grant: Grant
    created_ms: int
    revoked_ms: int | None


def list_grants(metadata: Engine, tenant_ids: Collection[str]) -> tuple[GrantRecord, ...]:
    """Return every grant to read some tenants, revoked ones too, oldest first."""
    mine = select(GRANTS).where(GRANTS.c.tenant_id.in_(sorted(tenant_ids))).order_by(GRANTS.c.grant_id)
    with reading(metadata) as connection:
        rows = connection.execute(mine).mappings().all()
    return tuple(
        GrantRecord(row["grant_id"], row["subject"], grant_of_row(row), row["created_ms"], row["revoked_ms"])
        for row in rows
    )


def revoke_grant(metadata: Engine, grant_id: int, tenant_ids: Collection[str], now_ms: int) -> None:
    """Revoke a grant to read one of some tenants; readers follow within seconds.

    Raises:
        Rejected(not_found): There is no such grant in force.
    """
    live = update(GRANTS).where(
        GRANTS.c.grant_id == grant_id, GRANTS.c.tenant_id.in_(sorted(tenant_ids)), GRANTS.c.revoked_ms.is_(None)
    )
    with writing(metadata) as connection:
        revoked = connection.execute(live.values(revoked_ms=now_ms)).rowcount
    if not revoked:
        raise Rejected("not_found", f"there is no grant {grant_id} in force that you may revoke", "list grants")


def checked_subject(subject: str) -> str:
    """Return a subject that grants can be of.

    Raises:
        Rejected(bad_subject): It is neither of a token nor of a person.
    """
    if not subject.startswith(PREFIXES) or subject in PREFIXES or len(subject) > NAME_LENGTH_MAXIMUM:
        raise Rejected("bad_subject", f"{subject[:100]!r} is no subject", "write token:ID or user:ID")
    return subject
