"""Keep the records of one class on disk until they are settled: acknowledged, or declared lost.

A folder of segment files and one preallocated cursor, so settling needs no space and frees some. Records may be settled
out of order: the cursor holds the first that is owed and the ranges beyond it that are not. The spool's id is random
and made with the folder; sequences continue after a restart, and where they cannot the id is a new one, so
(spool id, sequence) never names two payloads. What is missing or damaged is found by reading and named in `missing`.
"""

import errno
import os
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from secondsight.agent.spool.cursor import Cursor
from secondsight.agent.spool.lock import take_lock
from secondsight.agent.spool.ranges import Span, between, owed_spans, with_span
from secondsight.agent.spool.reading import RecordReader, SpoolRecord
from secondsight.agent.spool.tally import NOTHING, Tally, head_of, minus, pack_tally, plus, tally_of
from secondsight.clock import Clock
from secondsight.log.disk import Disk
from secondsight.log.segments import (
    QUARANTINE_SUFFIX,
    Committed,
    SegmentConfig,
    SegmentWriter,
    segment_bases,
    segment_path,
)
from secondsight.wire.header import HeadView

REMEMBERED_APPENDS = 256
SYNC_SECONDS = 5.0
KEPT_BYTES = 256 << 10
"""A segment smaller than this stays when everything in it is settled, and is written on."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class _Append(NamedTuple):
    """An append of this process: its first sequence, when it was, and the tally before it."""

    first: int
    time_ms: int
    before: Tally


class Spool:
    """The records of one class. Not safe to call from several threads. Calls block on the disk and raise OSError.

    Attributes:
        newest_ms: When the newest record was appended that was there when it was opened, 0 for none.
    """

    def __init__(
        self, folder: Path, config: SegmentConfig, clock: Clock, disk: Disk, *, syncs_late: bool = False
    ) -> None:
        """Open a spool, making it when it is not there.

        Args:
            folder: Of this spool alone.
            config: When a new segment begins.
            clock: Clock of the host.
            disk: File system.
            syncs_late: Appends are made durable when they are read, or after `SYNC_SECONDS`: a power cut may cost
                them, the end of the process does not.

        Raises:
            Permanent: Another process has it open.
            OSError: The file system refuses.
        """
        self.folder = folder
        self.missing: list[Span] = []
        self.newest_ms = 0
        self._clock = clock
        self._disk = disk
        self._syncs_late = syncs_late
        self._segment_bytes = config.max_bytes
        self._synced_at = clock.monotonic_seconds()
        self._appends: deque[_Append] = deque(maxlen=REMEMBERED_APPENDS)
        self._oldest: tuple[int, int] | None = None
        self._end = self._owed = NOTHING
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(folder / "lock")
        with ExitStack() as undo:
            undo.callback(os.close, self._lock)
            self._cursor = Cursor(folder / "cursor", disk)
            undo.callback(self._cursor.close)
            self.was_wiped = self._cursor.was_occupied and not segment_bases(folder)
            self._writer = SegmentWriter(folder, config, disk, Committed(-1, 0, self._cursor.last_settled))
            undo.callback(self._writer.close)
            self._start()
            undo.pop_all()

    @property
    def spool_id(self) -> int:
        """Return the random 64-bit id of this spool."""
        return self._cursor.spool_id

    @property
    def next_sequence(self) -> int:
        """Return the sequence that the next record gets."""
        return self._writer.committed.next_offset

    @property
    def first_owed(self) -> int:
        """Return the sequence before which everything is settled."""
        return self._cursor.acked

    @property
    def records(self) -> int:
        """Return how many records are owed."""
        return self.next_sequence - self._cursor.acked - sum(end - first for first, end in self._cursor.ahead)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the segments take on disk."""
        active = self._writer.committed
        return sum(active.size_bytes if base == active.base else size for base, size in self._sizes.items())

    @property
    def segments(self) -> int:
        """Return how many segments there are."""
        return len(self._sizes)

    @property
    def cut_bytes(self) -> int:
        """Return how many bytes of a torn end were cut when it was opened."""
        return self._writer.recovery.cut_bytes

    @property
    def produced(self) -> Tally:
        """Return the tally of everything that this folder ever took."""
        return self._end

    @property
    def owed(self) -> Tally:
        """Return the tally of what is owed."""
        return self._owed

    @property
    def oldest_ms(self) -> int | None:
        """Return when the first owed record was appended, or the next sound one; None when nothing is owed."""
        if not self.records:
            return None
        known = next((append for append in reversed(self._appends) if append.first <= self._cursor.acked), None)
        if known is not None:
            return known.time_ms
        if self._oldest is None or self._oldest[0] != self._cursor.acked:
            records = self._peeker.read(self._cursor.acked, 1, 1)
            self._oldest = (self._cursor.acked, records[0].append_time_ms if records else self._clock.now_ms())
        return self._oldest[1]

    def is_deleted(self) -> bool:
        """Tell whether somebody deleted the files under this spool."""
        return self._cursor.is_deleted() or self._writer.is_deleted()

    def appended_since(self, time_ms: int) -> int:
        """Return the first sequence that is known to be appended at `time_ms` or later."""
        return next((append.first for append in self._appends if append.time_ms >= time_ms), self.next_sequence)

    def append_many(self, payloads: Sequence[bytes], time_ms: int | None = None) -> range:
        """Append payloads with one sync, as of now or of a time; return their sequences; all are there, or none."""
        end, packed = self._end, []
        for payload in payloads:
            packed.append(pack_tally(end) + payload)
            end = plus(end, tally_of(payload))
        now_ms = self._clock.now_ms() if time_ms is None else time_ms
        try:
            self._writer.stage(packed, now_ms)
            if not self._sizes:
                self._cursor.write(is_occupied=True)
            self._commit()
        except OSError:
            self._writer.abandon()
            self._refresh()
            raise
        if self._writer.committed.base not in self._sizes:
            self._refresh()
        first = self.next_sequence - len(packed)
        self._appends.append(_Append(first, now_ms, self._end))
        self._owed, self._end = plus(self._owed, minus(end, self._end)), end
        return range(first, self.next_sequence)

    def _commit(self) -> None:
        now = self._clock.monotonic_seconds()
        is_due = not self._syncs_late or now - self._synced_at >= SYNC_SECONDS
        self._writer.commit(durable=is_due)
        self._synced_at = now if is_due else self._synced_at

    def read(self, max_records: int, max_bytes: int, start: int = 0) -> list[SpoolRecord]:
        """Return owed records in order from `start` on; what is found missing among them is added to `missing`."""
        self._writer.sync()
        taken: list[SpoolRecord] = []
        for first, end in owed_spans(max(self._cursor.acked, start), self.next_sequence, self._cursor.ahead):
            room = max_bytes - sum(len(record.payload) for record in taken)
            if len(taken) >= max_records or room <= 0:
                break
            found = self._reader.read(first, max_records - len(taken), room)
            reached = min(self._reader.next_sequence, end)
            taken += [record for record in found if record.sequence < end]
            self.missing += between(first, [record.sequence for record in found if record.sequence < end], reached)
            if reached < end:
                break
        return taken

    def walk(self, first: int, end: int) -> Iterator[SpoolRecord]:
        """Give the readable records of a range that are owed."""
        for start, stop in owed_spans(max(first, self._cursor.acked), min(end, self.next_sequence), self._cursor.ahead):
            yield from self._peeker.walk(start, stop)

    def settle(self, first: int, end: int) -> None:
        """Settle the records [first, end); repeating it is fine. The files follow even when the cursor cannot.

        Raises:
            OSError: The cursor was not written; after a crash the records come again.
        """
        end = min(end, self.next_sequence)
        if end <= max(first, self._cursor.acked):
            return
        known = [
            self._known_tally(*span) for span in owed_spans(max(first, self._cursor.acked), end, self._cursor.ahead)
        ]
        acked, ahead = with_span(self._cursor.acked, self._cursor.ahead, (first, end))
        self._cursor.tally = self._tally_at(acked)
        self._cursor.acked, self._cursor.ahead = acked, ahead
        if self.next_sequence == acked:
            self._cursor.tally, self._owed = self._end, NOTHING
        elif None in known:  # damaged records side by side: what is left can be counted, what went cannot
            self._owed = self.owed_in(self._cursor.acked, self.next_sequence)[0]
        else:
            self._owed = reduce(minus, filter(None, known), self._owed)
        self._write_and_cut()

    def compact(self) -> None:
        """Delete the newest segment too, when everything in it is settled."""
        self._write_and_cut(least_bytes=0)

    def oldest_segment(self) -> Span:
        """Return the sequences of the oldest segment, [first, end)."""
        bases = sorted(self._sizes)
        return bases[0], (bases[1:] or [self.next_sequence])[0]

    def newest_ms_of_oldest_segment(self) -> int:
        """Return a time that no record of the oldest segment was appended after; now when it is not known."""
        _, end = self.oldest_segment()
        records = self._peeker.read(min(end, self.next_sequence - 1), 1, 1)
        return records[0].append_time_ms if records else self._clock.now_ms()

    def tally_of_span(self, first: int, end: int) -> Tally:
        """Return what the records [first, end) hold, as far as it can be known, damaged ones included."""
        known = self._known_tally(first, end)
        if known is not None:
            return known
        found = NOTHING
        for record in self._peeker.walk(first, end):
            found = plus(found, tally_of(record.payload))
        return found

    def _known_tally(self, first: int, end: int) -> Tally | None:
        """Return what the records [first, end) hold, None where no record around them tells it."""
        before, after = self._before(first), self._before(end)
        return None if before is None or after is None else minus(after, before)

    def owed_in(self, first: int, end: int) -> tuple[Tally, int]:
        """Return tally and number of the records of a range that are owed."""
        spans = list(owed_spans(max(first, self._cursor.acked), min(end, self.next_sequence), self._cursor.ahead))
        tally = reduce(plus, (self.tally_of_span(*span) for span in spans), NOTHING)
        return tally, sum(stop - start for start, stop in spans)

    def newest_records(self) -> list[SpoolRecord]:
        """Return what can be read of the newest segment, settled or not."""
        return list(self._peeker.walk(max(self._sizes, default=0), self.next_sequence)) if self._sizes else []

    def heads_around(self, first: int, end: int) -> list[HeadView]:
        """Return the heads of the records just before and after a range, as far as they can be read."""
        records = [self._peeker.peek(first - 1), self._peeker.peek(end)]
        heads = [head_of(record.payload) for record in records if record is not None]
        return [head for head in heads if head is not None]

    def drop_quarantined(self) -> bool:
        """Delete what was set aside as unreadable; tell whether there was anything."""
        paths = list(self.folder.glob(f"*{QUARANTINE_SUFFIX}"))
        for path in paths:
            self._disk.unlink(path)
        return bool(paths)

    def close(self) -> None:
        """Close all files; may be called twice."""
        with suppress(OSError):
            self._writer.sync()
        self._reader.close()
        self._peeker.close()
        self._writer.close()
        self._cursor.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _start(self) -> None:
        if self.was_wiped or self._writer.recovery.quarantined or not self._cursor.spool_id:
            self._cursor.spool_id = secrets.randbits(64) or 1
        self._reader = RecordReader(self.folder, lambda: self._writer.committed)
        self._peeker = RecordReader(self.folder, lambda: self._writer.committed)
        self._refresh()
        if self._cursor.was_empty and self._sizes:
            first = min(self._sizes)
            self._cursor.tally, self._cursor.acked = self._tally_at(first), first
        self._end = self._recovered_end()
        self._owed = self.owed_in(self._cursor.acked, self.next_sequence)[0]
        self._write_and_cut()

    def _recovered_end(self) -> Tally:
        """Return the tally after the last record: that of the last sound one, and what it and its followers hold."""
        end = self._cursor.tally
        for record in self._last_records():
            end = plus(end if record.before is None else record.before, tally_of(record.payload))
            self.newest_ms = max(self.newest_ms, record.append_time_ms)
        return end

    def _last_records(self) -> list[SpoolRecord]:
        """Return the records of the newest segment that has any; all of them in a spool of the earlier layout."""
        for base in sorted(self._sizes, reverse=True):
            records = list(self._peeker.walk(max(self._cursor.acked, base), self.next_sequence))
            if records and records[0].before is not None:
                return records
            if records:
                break
        return list(self._peeker.walk(self._cursor.acked, self.next_sequence))

    def _tally_at(self, sequence: int) -> Tally:
        """Return the tally before a sequence that is not before the cursor."""
        known = self._before(sequence)
        return plus(self._cursor.tally, self.tally_of_span(self._cursor.acked, sequence)) if known is None else known

    def _before(self, sequence: int) -> Tally | None:
        """Return the tally before a sequence, or None where no record tells it."""
        if sequence == self.next_sequence:
            return self._end
        if sequence == self._cursor.acked:
            return self._cursor.tally
        known = next((append.before for append in reversed(self._appends) if append.first == sequence), None)
        if known is not None:
            return known
        found = self._peeker.peek(sequence)
        if found is not None and found.before is not None:
            return found.before
        previous = self._peeker.peek(sequence - 1)
        if previous is None or previous.before is None:
            return None
        return plus(previous.before, tally_of(previous.payload))

    def _write_and_cut(self, least_bytes: int = KEPT_BYTES) -> None:
        """Write the cursor, then delete the segments before it; where there is no space, the other way round."""
        doomed = self._doomed(least_bytes)
        is_occupied = len(doomed) < len(self._sizes)
        try:
            self._cursor.write(is_occupied=is_occupied, durable=bool(doomed))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._cut(doomed)
            self._cursor.write(is_occupied=is_occupied)
        self._cut(doomed)

    def _doomed(self, least_bytes: int) -> list[int]:
        """Return the segments in which everything is settled; the newest one only from a size on."""
        active, bases = self._writer.committed, sorted(self._sizes)
        settled = [base for base, end in pairwise(bases) if end <= self._cursor.acked]
        is_spent = self._cursor.acked >= self.next_sequence and active.size_bytes >= min(
            least_bytes, self._segment_bytes
        )
        return [*settled, bases[-1]] if bases and is_spent else settled

    def _cut(self, bases: Sequence[int]) -> None:
        if not bases:
            return
        if self._writer.committed.base in bases:
            self._writer.release(self._cursor.acked)
        self._reader.close()  # an open file keeps its blocks after it is unlinked
        self._peeker.close()
        for base in bases:
            self._disk.unlink(segment_path(self.folder, base))
        self._refresh()

    def _refresh(self) -> None:
        self._sizes = {base: _size_of(segment_path(self.folder, base)) for base in segment_bases(self.folder)}


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
