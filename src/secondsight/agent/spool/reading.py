"""Read records of one spool's segments, wherever they lie."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.spool.tally import Tally, split_tally
from secondsight.log.segments import Committed, SegmentReader

WALK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One frame as appended.

    Attributes:
        before: Tally of all that was spooled before it; None in spools of an earlier layout.
    """

    sequence: int
    append_time_ms: int
    payload: bytes
    before: Tally | None = None


class RecordReader:
    """Reads what is committed. Not safe to call from several threads; raises OSError."""

    def __init__(self, folder: Path, limit: Callable[[], Committed | None]) -> None:
        self._reader = SegmentReader(folder, limit)

    @property
    def next_sequence(self) -> int:
        """Return the sequence after the last one that was read or found missing."""
        return self._reader.next_offset

    def read(self, first: int, records: int, max_bytes: int) -> list[SpoolRecord]:
        """Return sound records from `first` on; together at most `max_bytes`, but at least one if one is there."""
        if self._reader.next_offset != first:
            self._reader.seek(first)
        return [
            SpoolRecord(record.offset, record.append_time_ms, frame, before)
            for record in self._reader.read(max_bytes, records)
            for before, frame in (split_tally(record.value),)
        ]

    def peek(self, sequence: int) -> SpoolRecord | None:
        """Return one record, or None where it is not sound."""
        found = self.read(sequence, 1, 1)
        return found[0] if found and found[0].sequence == sequence else None

    def walk(self, first: int, end: int) -> Iterator[SpoolRecord]:
        """Give the sound records [first, end)."""
        while first < end:
            found = self.read(first, 1 << 30, WALK_BYTES)
            yield from (record for record in found if record.sequence < end)
            if not found:
                return
            first = found[-1].sequence + 1

    def close(self) -> None:
        """Close the file; reading goes on after it. May be called twice."""
        self._reader.close()
