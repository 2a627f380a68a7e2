"""Keep who did what, append-only.

Reads are gathered and written in batches by whoever calls `flush` (within a second); refusals and changes are written
before `record` returns.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from threading import Lock

from sqlalchemy import Engine, insert

from secondsight.access.metadata import AUDIT, writing

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
