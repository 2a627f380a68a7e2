"""Keep frames on disk until a gateway has acknowledged them, inside a bound, and declare what had to be dropped.

The spool is a folder of segment files and one preallocated cursor, so acknowledging needs no space and frees some. Its
id is random and made with the folder: sequences continue after a restart, and where they cannot the id is a new one, so
(spool id, sequence) never names two payloads. When the bound is reached, the oldest segment goes.
"""

import fcntl
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.log.disk import Disk
from secondsight.log.record import HEADER_BYTES, MAX_PAYLOAD_BYTES
from secondsight.log.segments import (
    Committed,
    SegmentConfig,
    SegmentReader,
    SegmentWriter,
    segment_bases,
    segment_path,
)
from secondsight.log.slots import SlotFile

SEGMENTS_PER_SPOOL = 16
MIN_SEGMENT_BYTES = 16 << 10
MAX_SEGMENT_BYTES = 8 << 20


class DropReason(StrEnum):
    """Why records never reached a gateway."""

    DISK_FULL = "disk_full"
    RETENTION = "retention"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Drop:
    """Records that will not be shipped.

    Attributes:
        first_sequence, last_sequence: Inclusive; both -1 where records were refused before they had one.
        dropped_bytes: Of payloads and record headers; 0 where unknown.
        first_ms, last_ms: When the records were appended, as far as known; 0 otherwise.
    """

    reason: DropReason
    records: int
    dropped_bytes: int
    first_sequence: int = -1
    last_sequence: int = -1
    first_ms: int = 0
    last_ms: int = 0


@dataclass(frozen=True, slots=True)
class SpoolRecord:
    """One payload as appended."""

    sequence: int
    append_time_ms: int
    payload: bytes


class Spool:
    """The frames of one agent that are not acknowledged. Safe to call from threads; calls may block on the disk."""

    def __init__(self, folder: Path, max_bytes: int, clock: Clock, disk: Disk | None = None) -> None:
        """Open a spool, making it when it is not there.

        Raises:
            Permanent: Another process has it open.
            Retryable: The file system refuses.
        """
        self._folder = folder
        self._max_bytes = max_bytes
        self._clock = clock
        self._disk = disk or Disk()
        self._mutex = threading.RLock()
        self._drops: list[Drop] = []
        self._dropped_records = 0
        self._dropped_bytes = 0
        self._oldest: tuple[int, int] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _take_lock(folder / "lock")
            self._open()
        except OSError as error:
            raise Retryable(f"spool {folder} cannot be opened: {error}") from error

    @property
    def spool_id(self) -> int:
        """Return the random 64-bit id of this spool."""
        return self._spool_id

    @property
    def next_sequence(self) -> int:
        """Return the sequence that the next record gets."""
        return self._writer.committed.next_offset

    @property
    def acked_through(self) -> int:
        """Return the sequence before which everything is acknowledged or dropped: the first that is still owed."""
        return self._acked

    @property
    def records(self) -> int:
        """Return how many records are not acknowledged."""
        return self.next_sequence - self._acked

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the segments take on disk."""
        with self._mutex:
            return sum(self._segment_bytes(base) for base in self._bases)

    @property
    def oldest_age_seconds(self) -> float:
        """Return the age of the oldest record that is not acknowledged; 0 when there is none."""
        with self._mutex:
            if not self.records:
                return 0.0
            if self._oldest is None or self._oldest[0] != self._acked:
                self._oldest = (self._acked, self._append_time_ms(self._acked) or self._clock.now_ms())
            return max(0.0, (self._clock.now_ms() - self._oldest[1]) / 1000)

    @property
    def dropped_records(self) -> int:
        """Return how many records were dropped since the spool was opened."""
        return self._dropped_records

    @property
    def dropped_bytes(self) -> int:
        """Return how many bytes were dropped since the spool was opened."""
        return self._dropped_bytes

    def append(self, payload: bytes) -> int:
        """Append one payload durably and return its sequence. See `append_many`."""
        return self.append_many([payload])[0]

    def append_many(self, payloads: Sequence[bytes]) -> range:
        """Append payloads with one sync and return their sequences.

        Raises:
            Retryable: The disk is full or fails; the payloads are counted as dropped.
            Permanent: The payloads are larger than the whole spool; they are counted as dropped.
        """
        size_bytes = sum(HEADER_BYTES + len(payload) for payload in payloads)
        with self._mutex:
            if size_bytes > min(self._max_bytes, MAX_PAYLOAD_BYTES):
                self._declare(Drop(DropReason.DISK_FULL, len(payloads), size_bytes))
                raise Permanent(f"{size_bytes} bytes do not fit a spool of {self._max_bytes}")
            try:
                self._make_room(size_bytes)
                return self._append(payloads)
            except OSError as error:
                self._writer.abandon()
                self._refresh()
                self._declare(Drop(DropReason.DISK_FULL, len(payloads), size_bytes))
                raise Retryable(f"spool cannot be written: {error}") from error

    def read(self, max_records: int, max_bytes: int, start: int | None = None) -> list[SpoolRecord]:
        """Return records in order from the first that is not acknowledged, or from sequence `start` if that is later.

        Raises:
            Retryable: The disk fails.
        """
        with self._mutex:
            first = max(self._acked, start or 0)
            if self._reader.next_offset != first:
                self._reader.seek(first)
            try:
                records = self._reader.read(max_bytes, max_records)
            except OSError as error:
                raise Retryable(f"spool cannot be read: {error}") from error
            self._declare_missing(first, [record.offset for record in records] + [self._reader.next_offset])
            return [SpoolRecord(record.offset, record.append_time_ms, record.value) for record in records]

    def ack(self, sequence: int) -> None:
        """Acknowledge every record up to and including `sequence`; needs no space. Repeating it is fine.

        Raises:
            Retryable: The disk fails; the records may come again.
        """
        with self._mutex:
            acked = min(sequence + 1, self.next_sequence)
            if acked <= self._acked:
                return
            try:
                self._move_cursor(acked)
            except OSError as error:
                raise Retryable(f"spool cursor cannot be written: {error}") from error

    def expire(self, older_than_ms: int) -> None:
        """Drop whole segments whose records were all appended before `older_than_ms`; what a gateway would refuse.

        Raises:
            Retryable: The disk fails.
        """
        with self._mutex:
            try:
                while self.records and self._newest_ms_of_oldest_segment() < older_than_ms:
                    self._drop_oldest(DropReason.RETENTION)
            except OSError as error:
                raise Retryable(f"spool cannot be cut: {error}") from error

    def drops(self) -> tuple[Drop, ...]:
        """Return the drops that were not returned before."""
        with self._mutex:
            drops, self._drops = tuple(self._drops), []
            return drops

    def close(self) -> None:
        """Close all files; may be called twice."""
        with self._mutex:
            self._reader.close()
            self._writer.close()
            self._cursor.close()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _open(self) -> None:
        self._cursor = SlotFile(self._folder / "cursor", self._disk)
        numbers = self._cursor.numbers
        self._spool_id, self._acked, occupied = numbers if len(numbers) == 3 else (0, 0, 0)
        wiped = bool(occupied) and not segment_bases(self._folder)
        segment_bytes = min(max(self._max_bytes // SEGMENTS_PER_SPOOL, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES)
        config = SegmentConfig(segment_bytes)
        self._writer = SegmentWriter(self._folder, config, self._disk, Committed(-1, 0, self._acked))
        if wiped or self._writer.recovery.quarantined or not self._spool_id:
            self._spool_id = secrets.randbits(64) or 1
        self._missing_through = self._acked
        self._reader = SegmentReader(self._folder, lambda: self._writer.committed, self._acked)
        self._refresh()
        self._cursor.write((self._spool_id, self._acked, bool(self._bases)))

    def _append(self, payloads: Sequence[bytes]) -> range:
        if not self._bases:
            self._cursor.write((self._spool_id, self._acked, 1))
        self._writer.stage(payloads, self._clock.now_ms())
        self._writer.commit()
        self._refresh()
        end = self._writer.committed.next_offset
        return range(end - len(payloads), end)

    def _make_room(self, size_bytes: int) -> None:
        while self._bases and self.size_bytes + size_bytes > self._max_bytes:
            self._drop_oldest(DropReason.DISK_FULL)

    def _drop_oldest(self, reason: DropReason) -> None:
        base, end = self._bases[0], (self._bases[1:] or [self.next_sequence])[0]
        first = max(base, self._acked)
        if end > first:
            size_bytes = self._segment_bytes(base) * (end - first) // (end - base)
            first_ms, last_ms = self._append_time_ms(first), self._append_time_ms(end - 1)
            self._declare(Drop(reason, end - first, size_bytes, first, end - 1, first_ms, last_ms))
        self._missing_through = max(self._missing_through, end)
        self._move_cursor(max(end, self._acked))

    def _move_cursor(self, acked: int) -> None:
        """Set the cursor, then delete the segments before it."""
        emptied = acked >= self.next_sequence
        self._cursor.write((self._spool_id, acked, not emptied))
        self._acked = acked
        if emptied:
            self._writer.release(acked)
        for base, end in zip(self._bases, [*self._bases[1:], self.next_sequence], strict=True):
            if end <= acked:
                self._reader.close()  # an open file keeps its blocks after it is unlinked
                segment_path(self._folder, base).unlink(missing_ok=True)
        self._refresh()

    def _refresh(self) -> None:
        self._bases = segment_bases(self._folder)

    def _segment_bytes(self, base: int) -> int:
        try:
            return segment_path(self._folder, base).stat().st_size
        except FileNotFoundError:
            return 0

    def _newest_ms_of_oldest_segment(self) -> int:
        following = self._bases[1] if len(self._bases) > 1 else self.next_sequence - 1
        return self._append_time_ms(following) or self._clock.now_ms()

    def _append_time_ms(self, sequence: int) -> int:
        """Return when a record was appended, or the one after it where it is damaged; 0 when unknown."""
        reader = SegmentReader(self._folder, lambda: self._writer.committed, sequence)
        try:
            records = reader.read(1, 1)
        finally:
            reader.close()
        return records[0].append_time_ms if records else 0

    def _declare(self, drop: Drop) -> None:
        self._drops.append(drop)
        self._dropped_records += drop.records
        self._dropped_bytes += drop.dropped_bytes

    def _declare_missing(self, first: int, following: Sequence[int]) -> None:
        """Declare the sequences that are not in `following`, once; a read ahead declares nothing."""
        if first > self._missing_through:
            return
        expected = self._missing_through
        for sequence in following:
            if sequence > expected:
                self._declare(Drop(DropReason.DAMAGED, sequence - expected, 0, expected, sequence - 1))
            expected = max(expected, sequence + 1)
        self._missing_through = max(self._missing_through, following[-1])


def _take_lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise Permanent(f"another process has the spool {path.parent} open") from error
    return fd
