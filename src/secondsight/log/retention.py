"""Delete old segments of a topic, and tell how far its groups are behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from secondsight.log.embedded import cursor_path
from secondsight.log.record import HEADER_BYTES, parse_head
from secondsight.log.segments import Committed, segment_bases, segment_path
from secondsight.log.slots import SLOT_BYTES, newest_slot
from secondsight.log.tail import partition_numbers, read_committed


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What was deleted.

    Attributes:
        unread_records: Group -> deleted records that it had not committed; groups without any are not named.
    """

    segments: int = 0
    dropped_bytes: int = 0
    dropped_records: int = 0
    unread_records: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that is not written to any more.

    Attributes:
        newest_ms: Append time of the first record after it, which bounds its own; None when unknown.
    """

    partition: int
    path: Path
    base: int
    next_base: int
    size_bytes: int
    newest_ms: int | None


def enforce_retention(root: Path, topic: str, now_ms: int, max_age_seconds: float, max_bytes: int) -> RetentionReport:
    """Delete whole segments, oldest first, that are older than `max_age_seconds` or lie beyond `max_bytes` of a topic.

    The segment that is written to is always kept. Age alone never deletes what a group has not committed: a store that
    is away for days costs disk, not samples. The bound in bytes does, and the report counts it. Safe while others read
    and write.

    Raises:
        OSError: A segment cannot be deleted.
    """
    folder = root / topic
    sealed = sorted(_sealed_segments(folder), key=lambda segment: (segment.newest_ms or 0, segment.base))
    excess_bytes = topic_bytes(root, topic) - max_bytes
    oldest_ms = now_ms - max_age_seconds * 1000
    cursors = list(_all_cursors(folder).values())
    dropped: list[SealedSegment] = []
    for segment in sealed:
        is_read = all(offsets.get(segment.partition, 0) >= segment.next_base for offsets in cursors)
        too_old = is_read and segment.newest_ms is not None and segment.newest_ms < oldest_ms
        if too_old or excess_bytes > 0:
            segment.path.unlink(missing_ok=True)
            dropped.append(segment)
            excess_bytes -= segment.size_bytes
    return _report(folder, dropped)


def topic_bytes(root: Path, topic: str) -> int:
    """Return the bytes that the segments of a topic take."""
    return sum(
        _size_bytes(segment_path(folder, base))
        for folder in (root / topic / str(number) for number in partition_numbers(root / topic))
        for base in segment_bases(folder)
    )


def group_offsets(root: Path, topic: str, group: str) -> dict[int, int]:
    """Return partition -> committed offset of a group; empty when it never committed."""
    newest = _read_cursor(cursor_path(root / topic, group))
    return dict(enumerate(newest))


def backlog_bytes(root: Path, topic: str, group: str) -> int:
    """Return about how many bytes a group has not committed.

    Exact at segment borders and when nothing is behind; inside a segment records are taken to be of one size.
    """
    return sum(size_bytes for _, size_bytes in backlog(root, topic, group).values())


def backlog(root: Path, topic: str, group: str) -> dict[int, tuple[int, int]]:
    """Return partition -> (records, about how many bytes) that a group has not committed."""
    offsets = group_offsets(root, topic, group)
    numbers = partition_numbers(root / topic)
    return {number: _partition_backlog(root / topic / str(number), offsets.get(number, 0)) for number in numbers}


def _partition_backlog(folder: Path, offset: int) -> tuple[int, int]:
    limit = read_committed(folder)
    if limit is None or offset >= limit.next_offset:
        return 0, 0
    bases = [base for base in segment_bases(folder) if base <= limit.base]
    ends = [*bases[1:], limit.next_offset]
    behind = (_behind_bytes(folder, base, end, offset, limit) for base, end in zip(bases, ends, strict=False))
    return limit.next_offset - offset, sum(behind)


def _behind_bytes(folder: Path, base: int, end: int, offset: int, limit: Committed) -> int:
    if offset >= end:
        return 0
    size_bytes = limit.size_bytes if base == limit.base else _size_bytes(segment_path(folder, base))
    return size_bytes * (end - max(offset, base)) // (end - base)


def _sealed_segments(topic: Path) -> list[SealedSegment]:
    segments = []
    for number in partition_numbers(topic):
        folder = topic / str(number)
        limit = read_committed(folder)
        bases = [base for base in segment_bases(folder) if limit is not None and base <= limit.base]
        for base, next_base in pairwise(bases):
            path = segment_path(folder, base)
            newest_ms = _first_append_time_ms(segment_path(folder, next_base))
            segments.append(SealedSegment(number, path, base, next_base, _size_bytes(path), newest_ms))
    return segments


def _first_append_time_ms(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            head = parse_head(file.read(HEADER_BYTES), 0)
    except FileNotFoundError:
        return None
    return head.append_time_ms if head else None


def _report(topic: Path, dropped: list[SealedSegment]) -> RetentionReport:
    unread: dict[str, int] = {}
    for group, offsets in _all_cursors(topic).items():
        count = sum(
            max(0, segment.next_base - max(segment.base, offsets.get(segment.partition, 0))) for segment in dropped
        )
        if count:
            unread[group] = count
    return RetentionReport(
        segments=len(dropped),
        dropped_bytes=sum(segment.size_bytes for segment in dropped),
        dropped_records=sum(segment.next_base - segment.base for segment in dropped),
        unread_records=unread,
    )


def _all_cursors(topic: Path) -> dict[str, dict[int, int]]:
    return {path.stem: dict(enumerate(_read_cursor(path))) for path in (topic / "groups").glob("*.cursor")}


def _read_cursor(path: Path) -> tuple[int, ...]:
    try:
        raw = path.read_bytes()[: 2 * SLOT_BYTES]
    except FileNotFoundError:
        return ()
    newest = newest_slot(raw)
    return newest[1] if newest else ()


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
