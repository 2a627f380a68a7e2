"""Keep which windows of which collectors are open, since which record of the log, and when they are due.

A span is one collector's rows of one kind in one window. It is due when the collector's watermark has passed it, when
nothing came for it for so long that it is written as it stands, or, if it was opened again for late rows, soon after.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from secondsight.model import EntityKind
from secondsight.process.watermark import IDLE_MS, Progress

LATE_MS = 10_000
"""How long a window that was opened again waits for more late rows."""

SpanKey = tuple[EntityKind, int, int]
"""Kind, window start, collector."""


@dataclass(slots=True)
class Span:
    """One open window of one collector.

    Attributes:
        offsets: Partition -> offset of the first record that it holds rows of.
        partition: Of its last record.
        opened_ms, touched_ms: Log times of the first and last record.
        reopened: Some version of it was written before.
        loaded: Its stored rows are in memory; they must be before others are added.
        changed: A row is new or differs from what is stored.
        forced: It is computed again even if nothing changed.
        restamp: Its rows are written again, with the attribution known now.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    partition: int = 0
    opened_ms: int = 0
    touched_ms: int = 0
    reopened: bool = False
    loaded: bool = False
    changed: bool = False
    forced: bool = False
    restamp: bool = False

    def touch(self, partition: int, offset: int, log_ms: int) -> None:
        """Take note of a record that adds to it."""
        self.offsets[partition] = min(offset, self.offsets.get(partition, offset))
        self.partition = partition
        self.opened_ms = self.opened_ms or log_ms
        self.touched_ms = max(self.touched_ms, log_ms)


class OpenSpans:
    """All open spans. Those that are closed but not yet written hold back the commit as well."""

    def __init__(self) -> None:
        self.open: dict[SpanKey, Span] = {}
        self.closing: dict[SpanKey, Span] = {}

    def get(self, key: SpanKey) -> Span:
        """Return the open span of a key, new or known."""
        known = self.open.get(key)
        if known is None:
            known = self.open[key] = Span()
        return known

    def close(self, key: SpanKey) -> None:
        """Move a span to those that wait for their rollup to be written."""
        span = self.open.pop(key)
        waiting = self.closing.setdefault(key, span)
        for partition, offset in span.offsets.items():
            waiting.offsets[partition] = min(offset, waiting.offsets.get(partition, offset))

    def written(self) -> None:
        """Forget the closed spans: their rollups are written."""
        self.closing.clear()

    def first_offsets(self) -> dict[int, int]:
        """Return partition -> first record that something unwritten needs."""
        first: dict[int, int] = {}
        for span in (*self.open.values(), *self.closing.values()):
            for partition, offset in span.offsets.items():
                first[partition] = min(offset, first.get(partition, offset))
        return first

    def forget(self, partitions: Iterable[int], collectors: Collection[int] = ()) -> list[SpanKey]:
        """Drop spans of collectors, or that hold records of partitions, which another processor reads now."""
        gone = set(partitions)
        dropped = [key for key, span in self.open.items() if gone & span.offsets.keys() or key[2] in collectors]
        for key in dropped:
            del self.open[key]
        return dropped


def is_due(span: Span, progress: Progress, start_ms: int, log_ms: int) -> bool:
    """Tell whether a span shall be written.

    Args:
        span: Which.
        progress: Of its collector.
        start_ms: Start of its window.
        log_ms: Log time that its partition has been read up to.
    """
    if span.forced or log_ms - span.touched_ms >= IDLE_MS:
        return True
    if not progress.is_closed(start_ms):
        return False
    return not span.reopened or log_ms - span.opened_ms >= LATE_MS
