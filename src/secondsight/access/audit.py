"""Keep who did what, append-only.

Reads are gathered and written in batches by whoever calls `flush` (within a second); refusals and changes are written
before `record` returns.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from threading import Lock

from sqlalchemy import Engine, insert, select

from secondsight.access.metadata import AUDIT, reading, writing

WAITING_MAXIMUM = 10_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that somebody did or was refused.

    Attributes:
        action: `read`, `token_create`, `grant_create`, ...
        outcome: `ok`, or the code of the refusal.
        detail: What of, as text; never a secret.
    """

    time_ms: int
    subject: str
    tenant_id: str
    action: str
    outcome: str = "ok"
    detail: str = ""


def write_entries(metadata: Engine, entries: Sequence[AuditEntry]) -> None:
    """Store entries, all or none.

    Raises:
        Retryable: The store is away or busy.
    """
    with writing(metadata) as connection:
        connection.execute(insert(AUDIT), [asdict(entry) for entry in entries])


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """Which entries; empty filters admit all. `before_id` is the id of the last entry of the page before.

    Attributes:
        from_ms, to_ms: Half open, epoch ms.
    """

    from_ms: int
    to_ms: int
    subjects: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    before_id: int | None = None
    limit: int = 200


def read_entries(
    metadata: Engine, tenant_ids: Collection[str], asked: AuditQuestion
) -> tuple[tuple[int, AuditEntry], ...]:
    """Return (id, entry) of some tenants, newest first.

    Raises:
        Retryable: The store is away or busy.
    """
    named = ((AUDIT.c.subject, asked.subjects), (AUDIT.c.action, asked.actions), (AUDIT.c.outcome, asked.outcomes))
    mine = select(AUDIT).where(AUDIT.c.tenant_id.in_(sorted(tenant_ids)))
    mine = mine.where(AUDIT.c.time_ms >= asked.from_ms, AUDIT.c.time_ms < asked.to_ms)
    mine = mine.where(*(column.in_(values) for column, values in named if values))
    if asked.before_id is not None:
        mine = mine.where(AUDIT.c.audit_id < asked.before_id)
    with reading(metadata) as connection:
        rows = connection.execute(mine.order_by(AUDIT.c.audit_id.desc()).limit(asked.limit)).mappings().all()
    names = [one.name for one in fields(AuditEntry)]
    return tuple((row["audit_id"], AuditEntry(**{name: row[name] for name in names})) for row in rows)


class AuditLog:
    """Writes audit entries. Safe from many threads; `close` may be called twice."""

    def __init__(self, metadata: Engine) -> None:
        self._metadata = metadata
        self._waiting: deque[AuditEntry] = deque()
        self._lock = Lock()

    def record(self, entry: AuditEntry) -> None:
        """Keep an entry. A plain read waits for the next flush; anything else is durable when this returns."""
        with self._lock:
            self._waiting.append(entry)
            full = len(self._waiting) >= WAITING_MAXIMUM
        if full or entry.action != "read" or entry.outcome != "ok":
            self.flush()

    def flush(self) -> int:
        """Write what waits and return how many entries that were. What cannot be written keeps waiting, and raises."""
        with self._lock:
            batch = list(self._waiting)
            if batch:
                write_entries(self._metadata, batch)
                self._waiting.clear()
        return len(batch)

    def close(self) -> None:
        """Write what waits."""
        self.flush()
