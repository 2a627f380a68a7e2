"""Keep who did what, append-only.

Reads are gathered and written in batches by whoever calls `flush` (within a second), and nobody who reads waits for
that; refusals and changes are written before `record` returns. A process that is killed loses the reads of its last
second, and `AuditMark` says so at the next start.
"""

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
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
        self._writing = Lock()

    def note(self, entry: AuditEntry) -> bool:
        """Keep an entry until the next flush; return False where so many wait that a flush is due. Never blocks."""
        with self._lock:
            self._waiting.append(entry)
            return len(self._waiting) < WAITING_MAXIMUM

    def record(self, entry: AuditEntry) -> None:
        """Keep an entry. A plain read waits for the next flush; anything else is durable when this returns."""
        has_room = self.note(entry)
        if not has_room or entry.action != "read" or entry.outcome != "ok":
            self.flush()

    def flush(self) -> int:
        """Write what waits and return how many entries that were. What cannot be written keeps waiting, and raises."""
        with self._writing:
            with self._lock:
                batch = list(self._waiting)
            if batch:
                write_entries(self._metadata, batch)
            with self._lock:
                for _ in batch:
                    self._waiting.popleft()
        return len(batch)

    def close(self) -> None:
        """Write what waits."""
        self.flush()


class AuditMark:
    """A file that is there while reads may wait to be written: one that is left says that its process was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> int | None:
        """Set the mark; return when a process that left one last wrote what it had, epoch ms, else None."""
        left_ms = int(self._path.stat().st_mtime * 1000) if self._path.exists() else None
        self.written()
        return left_ms

    def written(self) -> None:
        """Note that all that was read until now is written; where there is no folder for it, there is no mark."""
        with suppress(OSError):
            self._path.touch()

    def end(self) -> None:
        """Take the mark away: nothing waits."""
        self._path.unlink(missing_ok=True)
