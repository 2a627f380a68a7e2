"""Turn one log into what it says and when: findings with their times, every line accounted for.

The three lines that say that a GPU is off the bus become one finding. A log that cannot be read is left alone for a
while.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from secondsight.agent.kmsg.findings import Named, OffBus, OffBusFirst, OffBusLast, Report, finding_of
from secondsight.agent.kmsg.line import Line, stated_time_ms
from secondsight.agent.kmsg.pci import Address
from secondsight.agent.kmsg.records import Batch, Records
from secondsight.agent.kmsg.when import Arrival, BootTime, settle_time

OFF_BUS_LINES = 4
"""Lines after the first of the three within which the last one must come."""

RETRY_MS = 60_000
SKEW_AT_BOOT_MS = 60_000


class Said(NamedTuple):
    """What one line says.

    Attributes:
        own_time: False if `time_ms` is when the line arrived, as it states no time or an impossible one.
    """

    finding: Report | Named
    line: Line
    time_ms: int
    own_time: bool


class Feed:
    """One log. Not shared between threads.

    Attributes:
        read_to_ms: Up to which wall time the log was read.
        tally: What became of lines: `read` of them all, `known` and `ignored` and `detail` here; the rest is said.
    """

    def __init__(self, path: Path, records: Records, *, fresh: bool) -> None:
        """Make a feed.

        Args:
            path: As in the settings, for messages.
            records: The lines.
            fresh: True if it was never read before; then what is older than this boot is left out.
        """
        self.path = path
        self.records = records
        self.read_to_ms = 0
        self.tally: Counter[str] = Counter()
        self.lost = 0
        self._fresh = fresh
        self._empty_ms: int | None = None
        self._retry_ms = 0
        self._first: Address | None = None
        self._since_first = 0
        self._failed_by: int | None = None

    def take(self, maximum: int, boot: BootTime, now_ms: int) -> Iterator[Said]:
        """Give what up to `maximum` new lines say; exhaust it before the next call.

        Raises:
            OSError: The log cannot be read; nothing is tried for a minute.
        """
        if now_ms < self._retry_ms <= now_ms + RETRY_MS:
            self.read_to_ms = now_ms
            return
        try:
            batch = self.records.take(maximum)
        except OSError:
            self._retry_ms, self.read_to_ms = now_ms + RETRY_MS, now_ms
            raise
        self.tally.update(read=len(batch.lines) + batch.known, known=batch.known)
        self.lost += batch.lost
        yield from self._said(batch, boot, Arrival(self._empty_ms, now_ms))
        if batch.at_end:
            self._empty_ms = self.read_to_ms = now_ms
            self._fresh = False

    def clock_stepped(self, step_ms: int) -> None:
        """Take note that the wall clock was stepped."""
        if self._empty_ms is not None:
            self._empty_ms += step_ms

    def is_first_failure(self, error: OSError) -> bool:
        """Tell whether the log fails in a way that it did not fail before."""
        before, self._failed_by = self._failed_by, error.errno
        return before != error.errno

    def _said(self, batch: Batch, boot: BootTime, arrival: Arrival) -> Iterator[Said]:
        before: Line | None = None
        for line in batch.lines:
            if line.indented and line.monotonic_us is None and before is not None:
                line = line._replace(monotonic_us=before.monotonic_us)  # it goes on with the line before
            before = line
            finding = self._finding(line)
            if finding is not None:
                yield from self._timed(finding, line, boot, arrival)
        if before is not None and before.monotonic_us is not None:
            self.read_to_ms = min(boot.of(before.monotonic_us), arrival.latest_ms)

    def _finding(self, line: Line) -> Report | Named | None:
        """Return what a line says by itself or as the last of three; counts it if that is nothing."""
        finding = finding_of(line.text)
        self._since_first += 1
        if isinstance(finding, OffBusFirst):
            self._first, self._since_first = finding.address, 0
            self.tally["detail"] += 1
            return None
        if isinstance(finding, OffBusLast):
            address, self._first = self._first, None
            finding = OffBus(address) if address is not None and self._since_first <= OFF_BUS_LINES else None
        if finding is None:
            self.tally["ignored"] += 1
        return finding

    def _timed(self, finding: Report | Named, line: Line, boot: BootTime, arrival: Arrival) -> Iterator[Said]:
        stated_ms = _stated_ms(line, boot, arrival.latest_ms)
        oldest_ms = (boot.anchor_ms or 0) - SKEW_AT_BOOT_MS
        if self._fresh and stated_ms is not None and stated_ms < oldest_ms:
            self.tally["ignored"] += 1
            return
        time_ms, own_time = settle_time(stated_ms, arrival)
        yield Said(finding, line, time_ms, own_time)


def _stated_ms(line: Line, boot: BootTime, now_ms: int) -> int | None:
    if line.monotonic_us is not None:
        return boot.of(line.monotonic_us)
    return stated_time_ms(line.text, now_ms)
