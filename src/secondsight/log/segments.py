"""Keep one partition as segment files: a writer that syncs, a reader that passes damage.

Segments are named by the offset that comes first in them. Everything before the last one is never changed, only deleted
whole. What a crash left half-written at the end of the last one is cut when a writer opens the partition; what cannot
be read at all is set aside under another name, never deleted. Offsets are dense, so a reader counts what is missing.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from secondsight.contracts import LogRecord
from secondsight.log.disk import Disk
from secondsight.log.record import HEADER_BYTES, pack_record, scan

SUFFIX = ".log"
QUARANTINE_SUFFIX = ".quarantine"
NAME_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Committed:
    """Where readers must stop: `size_bytes` into segment `base`, before record `next_offset`."""

    base: int
    size_bytes: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing found: bytes cut off a torn end, segments set aside."""

    cut_bytes: int = 0
    quarantined: int = 0


def segment_path(folder: Path, base: int) -> Path:
    """Return the path of the segment that begins with offset `base`."""
    return folder / f"{base:0{NAME_DIGITS}d}{SUFFIX}"


def segment_bases(folder: Path, suffix: str = SUFFIX) -> list[int]:
    """Return the first offsets of the segments of a partition, ascending; a missing folder has none."""
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    return sorted(int(path.stem) for path in paths if path.suffix == suffix and path.stem.isdecimal())


@dataclass(frozen=True, slots=True)
class SegmentConfig:
    """When a new segment begins: at this size, or when its first record is this old."""

    max_bytes: int = 64 << 20
    max_age_seconds: float = 3600.0


class SegmentWriter:
    """Appends to one partition. Not thread-safe.

    `stage` and `commit` may raise OSError; `abandon` then takes back what is not committed, and the writer goes on.
    """

    def __init__(self, folder: Path, config: SegmentConfig, disk: Disk, known: Committed | None = None) -> None:
        """Open a partition, making its folder, and repair what a crash left.

        Args:
            folder: Of the partition.
            config: When a new segment begins.
            disk: File system.
            known: What was committed before, as far as that was kept; never cut and never numbered again.
        """
        self._folder = folder
        self._config = config
        self._disk = disk
        self._fd = -1
        self._sealed = True
        self._began_ms: int | None = None
        self._written_bytes = 0
        self._written_offset = 0
        self._dirty = False
        folder.mkdir(parents=True, exist_ok=True)
        empty = known.base if known and known.size_bytes == 0 else None
        bases = [base for base in segment_bases(folder) if base != empty]
        quarantined = sum(_quarantine_unreadable(folder, base, disk) for base in bases)
        self.committed, cut_bytes = self._recover(known)
        self.recovery = Recovery(cut_bytes, quarantined)
        self._rewind()

    @property
    def staged_records(self) -> int:
        """Return how many records are written and not committed."""
        return self._written_offset - self.committed.next_offset

    def is_deleted(self) -> bool:
        """Tell whether somebody deleted the file that is written to."""
        return self._fd >= 0 and os.fstat(self._fd).st_nlink == 0

    def stage(self, payloads: Sequence[bytes], now_ms: int) -> None:
        """Write records after those that are there, without making them durable.

        Raises:
            OSError: Call `abandon`.
        """
        if self._is_full(now_ms):
            self._roll()
        if self._began_ms is None:
            self._began_ms = now_ms
        first = self._written_offset
        data = b"".join(pack_record(first + index, now_ms, payload) for index, payload in enumerate(payloads))
        self._disk.write_at(self._fd, data, self._written_bytes)
        self._written_bytes += len(data)
        self._written_offset += len(payloads)

    def commit(self, *, durable: bool = True) -> None:
        """Show readers what is staged; durable when it returns, unless that is left to a later `sync`.

        Raises:
            OSError: Call `abandon`; after a failed sync the segment is not written to again.
        """
        if not self.staged_records:
            return
        self._dirty = True
        if durable:
            self.sync()
        self.committed = Committed(self.committed.base, self._written_bytes, self._written_offset)

    def sync(self) -> None:
        """Make durable what was committed without.

        Raises:
            OSError: As `commit`.
        """
        if not self._dirty:
            return
        try:
            self._disk.sync(self._fd)
        except OSError:
            self._sealed = True
            raise
        self._dirty = False

    def abandon(self) -> None:
        """Take back what is not committed."""
        try:
            if self._fd >= 0:
                self._disk.truncate(self._fd, self.committed.size_bytes)
        except OSError:
            self._sealed = True
        self._rewind()

    def release(self, next_offset: int) -> None:
        """Give up the last segment, so that it can be deleted; the next record is at least `next_offset`."""
        self.close()
        self._sealed = True
        self._dirty = False
        last = self.committed
        self.committed = Committed(last.base, last.size_bytes, max(next_offset, last.next_offset))
        self._rewind()

    def close(self) -> None:
        """Close the file; what is staged is not made durable. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _is_full(self, now_ms: int) -> bool:
        age_ms = now_ms - self._began_ms if self._began_ms is not None else 0
        old = age_ms >= self._config.max_age_seconds * 1000
        return self._sealed or old or self._written_bytes >= self._config.max_bytes

    def _rewind(self) -> None:
        self._written_bytes = self.committed.size_bytes
        self._written_offset = self.committed.next_offset

    def _roll(self) -> None:
        if self.staged_records:
            self.commit()
        self.sync()
        base = self.committed.next_offset
        if segment_path(self._folder, base).exists():
            base += 1
        fd = self._disk.open(segment_path(self._folder, base), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self.close()
        self._fd = fd
        self.committed = Committed(base, 0, base)
        self._sealed = True
        self._began_ms = None
        self._rewind()
        self._disk.sync_folder(self._folder)
        self._sealed = False

    def _recover(self, known: Committed | None) -> tuple[Committed, int]:
        bases = segment_bases(self._folder)
        least = known.next_offset if known else 0
        if not bases:
            return Committed(least, 0, least), 0
        base = bases[-1]
        self._fd = self._disk.open(segment_path(self._folder, base), os.O_RDWR)
        size_bytes = os.fstat(self._fd).st_size
        end, next_offset = _sound_end(self._fd, size_bytes, base)
        if next_offset == base and len(bases) > 1:
            least = max(least, self._end_of(bases[-2]))
        lost = known is not None and known.base == base and end < known.size_bytes
        self._sealed = lost or next_offset < least
        if end < size_bytes and not lost:
            self._disk.truncate(self._fd, end)
        self._disk.sync(self._fd)
        kept_bytes = size_bytes if lost else end
        return Committed(base, kept_bytes, max(next_offset, least)), size_bytes - kept_bytes

    def _end_of(self, base: int) -> int:
        """Return the offset after the last sound record of a segment."""
        fd = self._disk.open(segment_path(self._folder, base), os.O_RDONLY)
        try:
            return _sound_end(fd, os.fstat(fd).st_size, base)[1]
        finally:
            os.close(fd)


class SegmentReader:
    """Reads one partition from an offset on, up to what is committed. Not thread-safe.

    Attributes:
        next_offset: The next record to be returned, unless it is gone.
        damaged: Records whose bytes were damaged, so far.
        expired: Records that were deleted before they could be read, so far.
    """

    def __init__(
        self, folder: Path, limit: Callable[[], Committed | None], next_offset: int = 0, partition: int = 0
    ) -> None:
        self.next_offset = next_offset
        self.damaged = 0
        self.expired = 0
        self._folder = folder
        self._limit = limit
        self._partition = partition
        self._fd = -1
        self._base = -1
        self._position = 0

    def read(self, max_bytes: int, max_records: int = 1 << 30) -> list[LogRecord]:
        """Return the next records, together at most `max_bytes`, but at least one if one is there.

        Raises:
            OSError: A segment cannot be read.
        """
        records: list[LogRecord] = []
        limit = self._limit()
        room = max_bytes
        while limit is not None and self.next_offset < limit.next_offset and room > 0 and len(records) < max_records:
            if not self._open_segment(limit):
                break
            room = self._read_segment(limit, records, room, max_records)
        return records

    def seek(self, offset: int) -> None:
        """Go on reading at `offset`."""
        self.close()
        self.next_offset = offset

    def close(self) -> None:
        """Close the file; reading goes on after it. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
        self._base = -1
        self._position = 0

    def _open_segment(self, limit: Committed) -> bool:
        if self._fd >= 0:
            return True
        bases = [base for base in segment_bases(self._folder) if base <= limit.base]
        starts = [base for base in bases if base <= self.next_offset]
        if starts:
            base = starts[-1]
        elif bases:
            base = bases[0]
            self._pass_missing(base)
        else:
            self._pass_missing(limit.next_offset)
            return False
        try:
            self._fd = os.open(segment_path(self._folder, base), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._open_segment(limit)
        self._base = base
        return True

    def _read_segment(self, limit: Committed, records: list[LogRecord], room: int, max_records: int) -> int:
        """Add records of the open segment and return the room that is left; close it when it is read to its end."""
        active = self._base == limit.base
        end = limit.size_bytes if active else os.fstat(self._fd).st_size
        last = limit.next_offset if active else self._following_base(limit)
        for item in scan(self._fd, self._position, end, self.next_offset):
            if item.offset >= last:
                break
            size_bytes = HEADER_BYTES + len(item.payload or b"")
            if records and (size_bytes > room or len(records) >= max_records):
                return 0
            self._advance(item.offset, item.end)
            if item.payload is None:
                self.damaged += 1
                continue
            records.append(LogRecord(self._partition, item.offset, item.append_time_ms, item.payload))
            room -= size_bytes
            if room <= 0 or len(records) >= max_records:
                return 0
        self.damaged += last - self.next_offset
        self.next_offset = last
        self._position = end
        if not active:
            self.close()
        return room

    def _advance(self, offset: int, position: int) -> None:
        self.damaged += offset - self.next_offset
        self.next_offset = offset + 1
        self._position = position

    def _pass_missing(self, offset: int) -> None:
        """Go on at `offset`, as no segment holds what is before it: deleted, or set aside as unreadable."""
        aside = segment_bases(self._folder, QUARANTINE_SUFFIX)
        if any(self.next_offset <= base < offset for base in aside):
            self.damaged += offset - self.next_offset
        else:
            self.expired += offset - self.next_offset
        self.next_offset = offset

    def _following_base(self, limit: Committed) -> int:
        later = [base for base in segment_bases(self._folder) if self._base < base <= limit.base]
        return later[0] if later else limit.next_offset


def _sound_end(fd: int, size_bytes: int, base: int) -> tuple[int, int]:
    """Return (position, offset) after the last record that has a sound header."""
    end, next_offset = 0, base
    for item in scan(fd, 0, size_bytes):
        end, next_offset = item.end, max(next_offset, item.offset + 1)
    return end, next_offset


def _quarantine_unreadable(folder: Path, base: int, disk: Disk) -> bool:
    """Set a segment aside that has bytes and no sound record; tell whether it was."""
    path = segment_path(folder, base)
    fd = disk.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(fd).st_size
        if size_bytes < HEADER_BYTES or next(scan(fd, 0, size_bytes), None) is not None:
            return False
    finally:
        os.close(fd)
    path.rename(path.with_suffix(QUARANTINE_SUFFIX))
    disk.sync_folder(folder)
    return True
