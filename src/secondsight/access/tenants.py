"""Keep the tenants: whose collectors write, and whose data a grant speaks of."""

from dataclasses import dataclass

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import TENANTS, TOKENS, reading, writing
from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant."""

    tenant_id: str
    name: str
    created_ms: int


def add_tenant(metadata: Engine, tenant: Tenant) -> None:
    """Store a new tenant.

    Raises:
        Rejected(tenant_exists, tenant_invalid)
    """
    if not tenant.tenant_id or "\0" in tenant.tenant_id:
        raise Rejected("tenant_invalid", "a tenant id is a text of at least one character")
    row = {"tenant_id": tenant.tenant_id, "name": tenant.name, "created_ms": tenant.created_ms}
    try:
        with writing(metadata) as connection:
            connection.execute(insert(TENANTS).values(**row))
    except IntegrityError as error:
        raise Rejected("tenant_exists", f"there is a tenant {tenant.tenant_id!r} already") from error


def list_tenants(metadata: Engine) -> tuple[Tenant, ...]:
    """Return every tenant by id."""
    query = select(TENANTS.c.tenant_id, TENANTS.c.name, TENANTS.c.created_ms).order_by(TENANTS.c.tenant_id)
    with reading(metadata) as connection:
        return tuple(Tenant(row.tenant_id, row.name, row.created_ms) for row in connection.execute(query))


def tenant_ids(metadata: Engine) -> frozenset[str]:
    """Return every tenant that is on record or has a token."""
    with reading(metadata) as connection:
        named = connection.execute(select(TENANTS.c.tenant_id).union(select(TOKENS.c.tenant_id)))
        return frozenset(row.tenant_id for row in named)
