"""Turn payloads into records of a segment file and back, past damage.

A record is a 32-byte header (magic, payload length, offset, append time, CRC32C of payload and of header) and the
payload. A payload whose CRC is wrong is stepped over by the length in its sound header; where the header itself is
damaged, reading goes on at the next sound header of a greater offset. Nothing here changes a file.
"""

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import google_crc32c

HEADER_BYTES = 32
MAX_PAYLOAD_BYTES = 64 << 20
READ_BYTES = 1 << 20

_HEADER = Struct("<4sIQqII")
_MAGIC = b"SSLR"
_CRC_POSITION = HEADER_BYTES - 4


class RecordHead(NamedTuple):
    """Header of a record: its payload's length and CRC, its offset, and when it was appended."""

    payload_bytes: int
    offset: int
    append_time_ms: int
    payload_crc: int

    @property
    def record_bytes(self) -> int:
        """Return the size of header and payload."""
        return HEADER_BYTES + self.payload_bytes


class Scanned(NamedTuple):
    """One record met by `scan`.

    Attributes:
        payload: None when its bytes are damaged.
        end: Position after the record.
    """

    offset: int
    append_time_ms: int
    payload: bytes | None
    end: int


def pack_record(offset: int, append_time_ms: int, payload: bytes) -> bytes:
    """Return the bytes of a record."""
    crc = google_crc32c.value(payload)
    head = _HEADER.pack(_MAGIC, len(payload), offset, append_time_ms, crc, 0)[:_CRC_POSITION]
    return b"".join((head, google_crc32c.value(head).to_bytes(4, "little"), payload))


def parse_head(buffer: bytes, position: int) -> RecordHead | None:
    """Return the record header at `position`, or None where there is no sound one."""
    if position + HEADER_BYTES > len(buffer):
        return None
    magic, length, offset, append_time_ms, payload_crc, crc = _HEADER.unpack_from(buffer, position)
    if magic != _MAGIC or length > MAX_PAYLOAD_BYTES:
        return None
    if google_crc32c.value(buffer[position : position + _CRC_POSITION]) != crc:
        return None
    return RecordHead(length, offset, append_time_ms, payload_crc)


def scan(fd: int, start: int, end: int, from_offset: int = 0) -> Iterator[Scanned]:
    """Yield the records that lie wholly in [start, end) of a file and have an offset of at least `from_offset`.

    Records that are damaged beyond their header are missing: the caller sees it by the offsets.

    Raises:
        OSError: The file cannot be read.
    """
    window = _Window(fd, end)
    position, expected = start, 0
    while position + HEADER_BYTES <= end:
        head = window.head(position)
        after = end + 1 if head is None else position + HEADER_BYTES + head.payload_bytes
        if head is None or head.offset < expected or after > end:
            found = _resynchronise(window, position + 1, expected)
            if found is None:
                return
            position = found
            continue
        expected = head.offset + 1
        if head.offset >= from_offset:
            yield Scanned(head.offset, head.append_time_ms, window.payload(position + HEADER_BYTES, head), after)
        position = after


def _resynchronise(window: "_Window", position: int, least_offset: int) -> int | None:
    """Return the position of the next sound header whose record fits, or None."""
    while (found := window.find(_MAGIC, position)) is not None:
        head = window.head(found)
        if head is not None and head.offset >= least_offset and found + head.record_bytes <= window.end:
            return found
        position = found + 1
    return None


class _Window:
    """A moving piece of a file; positions are those of the file."""

    def __init__(self, fd: int, end: int) -> None:
        self.end = end
        self._fd = fd
        self._start = 0
        self._data = b""

    def head(self, position: int) -> RecordHead | None:
        at = self._at(position, HEADER_BYTES)
        return parse_head(self._data, at)

    def payload(self, position: int, head: RecordHead) -> bytes | None:
        at = self._at(position, head.payload_bytes)
        payload = self._data[at : at + head.payload_bytes]
        sound = len(payload) == head.payload_bytes and google_crc32c.value(payload) == head.payload_crc
        return payload if sound else None

    def find(self, needle: bytes, position: int) -> int | None:
        while position + HEADER_BYTES <= self.end:
            at = self._at(position, HEADER_BYTES)
            found = self._data.find(needle, at)
            if found >= 0:
                return self._start + found
            position = max(position + 1, self._start + len(self._data) - len(needle) + 1)
        return None

    def _at(self, position: int, size_bytes: int) -> int:
        """Return where a position of the file is in `_data`, having read so many bytes from there on."""
        at = position - self._start
        if at < 0 or at + size_bytes > len(self._data):
            wanted = min(max(size_bytes, READ_BYTES), max(0, self.end - position))
            self._data = os.pread(self._fd, wanted, position)
            self._start, at = position, 0
        return at
