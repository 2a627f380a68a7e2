"""Keep how far each collector's stream is complete, and tell which windows are closed for it.

The watermark follows the in-order lane alone, never goes back and is moved by nobody else. Times of admission are
those of the log, so that a processor that lags does not take its own lag for a collector's silence. A stamp ahead of
its admission moves the watermark no further than the admission: right stamps that follow are not late.
"""

from dataclasses import dataclass, field

from secondsight.process.cells import WINDOW_MS
from secondsight.process.sources import is_agents
from secondsight.wire.content import Header
from secondsight.wire.header import HeadView

AGENT_LATENESS_MS = 10_000
FOREIGN_INTERVALS = 2
IDLE_MS = 30_000
BACKLOG_MS = 60_000


@dataclass(slots=True)
class Progress:
    """How far a collector is.

    Attributes:
        watermark_ms: Event time up to which it is complete; 0 before its first in-order row.
        newest_ms: Newest event time, of any lane.
        ordered_ms: Newest event time of the in-order lane.
        seen_ms: Log time of its last record.
        ingest_ms: Admission of its last record.
        restored_ms: End of the last window that an earlier process may have written.
        written: Windows after the watermark that were written as they stood.
        through_ms: End of the last window rolled up.
        stored_ms: Watermark and `through_ms` as last stored.
        begun_ms: As last stored, before the rollups it speaks of were.
        new: No earlier process knew it.
        consulted: Kinds of which the carry holds all that is stored.
        changed: Differs from what was last stored.
        version: Version of the last stored row.
        idle: As last stored.
    """

    host_id: str
    partition: int
    watermark_ms: int = 0
    newest_ms: int = 0
    ordered_ms: int = 0
    seen_ms: int = 0
    ingest_ms: int = 0
    restored_ms: int = 0
    written: set[tuple[str, int]] = field(default_factory=set)
    through_ms: int = 0
    begun_ms: int = 0
    stored_ms: tuple[int, int] = (0, 0)
    new: bool = True
    consulted: set[str] = field(default_factory=set)
    changed: bool = True
    version: int = 0
    idle: bool = False

    def observe(self, header: Header | HeadView, newest_ms: int, ingest_ms: int, log_ms: int) -> None:
        """Take note of a frame; `newest_ms` is the newest event time that was taken from it, or 0."""
        self.seen_ms = max(self.seen_ms, log_ms)
        self.ingest_ms = max(self.ingest_ms, ingest_ms)
        self.newest_ms = max(self.newest_ms, newest_ms)
        self.changed = True
        if newest_ms and not header.live:
            reached_ms = min(newest_ms, ingest_ms)
            self.ordered_ms = max(self.ordered_ms, reached_ms)
            self.watermark_ms = max(self.watermark_ms, reached_ms - lateness_ms(header))

    def told_ms(self, waiting_ms: int | None) -> int:
        """Return the watermark that readers may be told, given the oldest event time that waits to be taken in."""
        if waiting_ms is None:
            return self.watermark_ms
        return max(self.stored_ms[0], min(self.watermark_ms, waiting_ms))

    def may_be_written(self, kind: str, start_ms: int) -> bool:
        """Tell whether some rows of a window may be in the store without being in memory."""
        end_ms = start_ms + WINDOW_MS
        return end_ms <= max(self.watermark_ms, self.restored_ms) or (kind, start_ms) in self.written

    def is_closed(self, start_ms: int) -> bool:
        """Tell whether the watermark has passed a window."""
        return start_ms + WINDOW_MS <= self.watermark_ms

    def note_written(self, kind: str, start_ms: int) -> None:
        """Take note that a window was written."""
        self.through_ms = max(self.through_ms, start_ms + WINDOW_MS)
        self.changed = True
        self.written.add((kind, start_ms))
        if len(self.written) > 64:
            self.written = {item for item in self.written if item[1] + WINDOW_MS > self.watermark_ms}

    def is_idle(self, log_ms: int) -> bool:
        """Tell whether nothing came for so long that nobody should wait."""
        return log_ms - self.seen_ms >= IDLE_MS

    def has_backlog(self) -> bool:
        """Tell whether older data is still on its way."""
        return self.ingest_ms - self.ordered_ms > BACKLOG_MS


def lateness_ms(header: Header | HeadView) -> int:
    """Return how long the in-order lane of a source is waited for."""
    if is_agents(header.source):
        return AGENT_LATENESS_MS
    return FOREIGN_INTERVALS * header.interval_ms
