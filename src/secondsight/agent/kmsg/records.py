"""Turn what a source gives into lines that were not read before, and say how many were lost.

Every line is counted once: it is new, or it was read before. A record is known by its sequence and time together, and
where a kernel numbers several alike, by how many of those were read.
"""

from typing import NamedTuple

from secondsight.agent.kmsg.line import Line, parse_line
from secondsight.agent.kmsg.source import Source
from secondsight.agent.kmsg.state import Mark

LOST_MAXIMUM = 100_000_000
"""A greater step of the sequence is no loss but another way of counting."""


class Batch(NamedTuple):
    """What one look gave.

    Attributes:
        lines: New lines, in order.
        known: Lines that were read before.
        lost: Records that were overwritten before they were read.
        at_end: True if there is nothing more for now.
    """

    lines: list[Line]
    known: int
    lost: int
    at_end: bool


class Records:
    """Lines of one log, each once. Not shared between threads."""

    def __init__(self, source: Source, mark: Mark | None = None, *, rereads: bool = True) -> None:
        """Make records.

        Args:
            source: Where lines come from.
            mark: The newest that was read before, None if none was.
            rereads: True for a source that gives again what was read before.
        """
        self.source = source
        self.mark = mark
        self._to_skip = mark if rereads else None
        self._repeats = 0
        self._lost = 0
        self._newest_is_new = True

    def take(self, maximum: int) -> Batch:
        """Return the new ones of up to `maximum` lines.

        Raises:
            OSError: The log cannot be read.
        """
        taken = self.source.take(maximum)
        lost_before = self._lost
        lines = [line for line in map(parse_line, taken.lines) if self._is_part_of_new(line)]
        return Batch(lines, len(taken.lines) - len(lines), self._lost - lost_before, taken.at_end and not taken.gap)

    def _is_part_of_new(self, line: Line) -> bool:
        """Tell whether a line was not read before; what goes on with a record is as new as that."""
        if not line.indented:
            self._newest_is_new = self._is_new(line)
        return self._newest_is_new

    def _is_new(self, line: Line) -> bool:
        """Tell whether a line was not read before, and move the mark to it."""
        if line.sequence is None or line.monotonic_us is None:
            return True
        at = (line.sequence, line.monotonic_us)
        if self._to_skip is not None:
            before = (self._to_skip.sequence, self._to_skip.monotonic_us)
            if at < before:
                return False
            self._repeats += at == before
            if at == before and self._repeats <= self._to_skip.repeats:
                return False
            self._to_skip = None if at != before else self._to_skip
        if self.mark is not None:
            skipped = line.sequence - self.mark.sequence - 1
            self._lost += skipped if 0 < skipped <= LOST_MAXIMUM else 0
        same = self.mark is not None and at == (self.mark.sequence, self.mark.monotonic_us)
        self.mark = Mark(*at, self.mark.repeats + 1 if same and self.mark is not None else 1)
        return True
