"""Estimate whose records the unprocessed end of the log is, from what this gateway appended and how much waits.

The log is processed in about the order in which it was written, so what waits is what was appended last. What waits and
was not appended by this process, as after its start, is nobody's.
"""

from collections import Counter, deque
from collections.abc import Callable

from secondsight.gateway.shares import Entry, Holdings

SPANS_MAXIMUM = 1024


class Behind:
    """Unprocessed bytes by tenant and place.

    Args:
        weight_of: Weight of a tenant.
    """

    def __init__(self, weight_of: Callable[[str], int]) -> None:
        self._held = Holdings(weight_of)
        self._open: Counter[Entry] = Counter()
        self._spans: deque[Counter[Entry]] = deque()
        self.backlog_bytes = 0

    def appended(self, entry: Entry, size_bytes: int) -> None:
        """Note what was appended since the backlog was measured."""
        self._open[entry] += size_bytes
        self._held.take(entry, size_bytes)

    def measured(self, backlog_bytes: int) -> None:
        """Take a new measurement, and forget what it says was processed."""
        self.backlog_bytes = backlog_bytes
        if self._open:
            self._spans.append(self._open)
            self._open = Counter()
        while self._spans and self._held.total - self._spans[0].total() >= backlog_bytes:
            for entry, size_bytes in self._spans.popleft().items():
                self._held.give_back(entry, size_bytes)
        if len(self._spans) > SPANS_MAXIMUM:
            self._coarsen()

    def must_wait(self, entry: Entry, limit_bytes: int) -> bool:
        """Tell whether an entry must wait, given how much is to wait to be processed at most."""
        if self.backlog_bytes <= limit_bytes:
            return False
        return self._held.must_wait(entry, limit_bytes, max(self.backlog_bytes - self._held.total, 0))

    def by_tenant(self) -> dict[str, int]:
        """Return how many bytes of each tenant wait."""
        return self._held.by_tenant()

    def _coarsen(self) -> None:
        """Make one span of every two; a long backlog is known less exactly."""
        spans = list(self._spans)
        self._spans = deque(sum(spans[at : at + 2], Counter()) for at in range(0, len(spans), 2))
