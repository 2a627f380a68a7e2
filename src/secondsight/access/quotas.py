"""Keep how much each tenant may send: what an operator set, and what holds where nobody did."""

from dataclasses import asdict, dataclass, fields

from sqlalchemy import Engine, delete, insert, select

from secondsight.access.metadata import TENANT_QUOTAS, reading, writing
from secondsight.errors import Rejected

UNLIMITED = 0
NUMBER_MAXIMUM = 10**15


@dataclass(frozen=True, slots=True)
class Quota:
    """What one gateway takes of a tenant. 0 stands for any number.

    Attributes:
        values_per_second: Non-null values, lastingly.
        bytes_per_second: Of bodies as they come, lastingly.
        burst_seconds: So many seconds' worth of both may come at once.
        active_series: Series (entity, part and metric) that were written within the last hour.
        new_series_per_minute: Series that were not among them, lastingly; as many at once.
        weight: Share of the gateway when it is under pressure, beside the weights of the others.
    """

    values_per_second: int = UNLIMITED
    bytes_per_second: int = UNLIMITED
    burst_seconds: int = 60
    active_series: int = 20_000_000
    new_series_per_minute: int = 10_000_000
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be kept to."""
        if not all(0 <= number <= NUMBER_MAXIMUM for number in asdict(self).values()):
            raise Rejected("bad_quota", f"a quota is a whole number up to {NUMBER_MAXIMUM}, 0 for no limit")
        if not 1 <= self.burst_seconds <= 86_400 or not 1 <= self.weight <= 1000:
            raise Rejected("bad_quota", "burst_seconds are 1 to 86400, a weight is 1 to 1000")


DEFAULT_QUOTA = Quota()
"""A fleet of 10,000 hosts of 8 GPUs and 100 metrics has 8 million series, all of them new when it starts."""

NAMES = tuple(part.name for part in fields(Quota))


def set_quota(metadata: Engine, tenant_id: str, changes: dict[str, int | None], now_ms: int) -> Quota:
    """Change parts of a tenant's quota and return what holds then; None brings back the default.

    Raises:
        Rejected(bad_quota): It cannot be kept to; nothing is changed.
    """
    mine = TENANT_QUOTAS.c.tenant_id == tenant_id
    with writing(metadata) as connection:
        connection.execute(delete(TENANT_QUOTAS).where(mine, TENANT_QUOTAS.c.changed_ms < 0))  # locks before it reads
        before = connection.execute(select(TENANT_QUOTAS).where(mine)).mappings().first()
        kept = {name: before[name] for name in NAMES} if before is not None else {}
        stored = {name: value for name, value in (kept | changes).items() if value is not None}
        quota = Quota(**stored)
        connection.execute(delete(TENANT_QUOTAS).where(mine))
        if stored:
            connection.execute(insert(TENANT_QUOTAS).values(tenant_id=tenant_id, changed_ms=now_ms, **stored))
    return quota


def read_quotas(metadata: Engine) -> dict[str, Quota]:
    """Return the quotas of the tenants that have one of their own."""
    with reading(metadata) as connection:
        rows = connection.execute(select(TENANT_QUOTAS)).mappings().all()
    return {row["tenant_id"]: Quota(**{name: row[name] for name in NAMES if row[name] is not None}) for row in rows}
