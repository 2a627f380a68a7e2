"""Keep the seconds that were polled and not shipped on disk, within a bound, until a session asks for them.

A folder of segment files, the oldest deleted for room. A segment holds definitions and frames, each record with length
and CRC, and needs no other file to be read. Nothing is synced: what a crash of the machine loses were seconds that
nobody had asked for. A disk that refuses costs seconds of the ring and nothing else.
"""

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from secondsight.agent.counts import Counts
from secondsight.errors import Rejected
from secondsight.wire.content import Content, Frame
from secondsight.wire.frame import decode, encode
from secondsight.wire.header import Stamp
from secondsight.wire.schema import Definitions, named_entities, named_schema

MIB = 1 << 20
SEGMENTS = 16
SEGMENT_BYTES_MINIMUM = 64 << 10

_RECORD = struct.Struct("<BIIq")
_DEFINITION, _FRAME = 1, 2
_SUFFIX = ".ring"


class Ring:
    """Frames of seconds by their tick. Safe to call from threads; counts `ring_write_failed` and `ring_damaged`."""

    def __init__(self, folder: Path, max_bytes: int, free_floor_bytes: int, counts: Counts) -> None:
        """Open a ring; its folder is made when the first frame comes.

        Args:
            folder: Of the segments.
            max_bytes: Most that it takes.
            free_floor_bytes: What the file system must have left, or nothing is kept.
            counts: Where failures are counted.
        """
        self._folder = folder
        self._max_bytes = max_bytes
        self._free_floor_bytes = free_floor_bytes
        self._counts = counts
        self._lock = threading.Lock()
        self._fd = -1
        self._size_bytes = 0
        self._known: set[bytes] = set()

    def append(self, stamp: Stamp, content: Content) -> None:
        """Keep one tick's readings."""
        if not self._max_bytes:
            return
        tick_ms = int(stamp.tick_times_ms[0])
        schema, entities = named_schema(content.schema), named_entities(content.entities)
        try:
            frame = encode(stamp, content)
            with self._lock:
                if self._fd < 0 or self._size_bytes >= self._segment_bytes:
                    self._roll(tick_ms)
                for name, blob in ((schema.hash, schema.blob), (entities.hash, entities.blob)):
                    if name not in self._known:
                        self._write(_DEFINITION, tick_ms, blob)
                        self._known.add(name)
                self._write(_FRAME, tick_ms, frame)
        except (OSError, Rejected):
            self._counts.add("ring_write_failed")
            self.close()

    def read(self, from_ms: int, to_ms: int) -> Iterator[Frame]:
        """Give the frames whose tick lies in [from_ms, to_ms), oldest segment first; damaged ends are skipped."""
        paths = self._segments()
        starts = [_start_ms(path) for path in paths]
        for position, path in enumerate(paths):
            newest_ms = starts[position + 1] if position + 1 < len(paths) else to_ms
            if newest_ms < from_ms or starts[position] >= to_ms:
                continue
            yield from self._read_segment(path, from_ms, to_ms)

    @property
    def size_bytes(self) -> int:
        """Return how much the segments take."""
        return sum(_size_bytes(path) for path in self._segments())

    def close(self) -> None:
        """Close the open segment; may be called twice, and appending goes on with a new one."""
        with self._lock:
            self._end_segment()

    @property
    def _segment_bytes(self) -> int:
        return max(self._max_bytes // SEGMENTS, SEGMENT_BYTES_MINIMUM)

    def _roll(self, tick_ms: int) -> None:
        self._end_segment()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make_room()
        state = os.statvfs(self._folder)
        if state.f_bavail * state.f_frsize < self._free_floor_bytes:
            raise OSError("too little free space for the ring")
        path = self._folder / f"{max(tick_ms, 0):015d}{_SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)

    def _make_room(self) -> None:
        paths = self._segments()
        held_bytes = sum(map(_size_bytes, paths))
        for path in paths:
            if held_bytes + self._segment_bytes <= self._max_bytes:
                return
            held_bytes -= _size_bytes(path)
            path.unlink(missing_ok=True)

    def _end_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size_bytes = -1, 0
        self._known = set()

    def _write(self, kind: int, tick_ms: int, payload: bytes) -> None:
        record = _RECORD.pack(kind, len(payload), google_crc32c.value(payload), tick_ms) + payload
        if os.write(self._fd, record) != len(record):
            raise OSError("a record was written in part")
        self._size_bytes += len(record)

    def _segments(self) -> list[Path]:
        try:
            return sorted(self._folder.glob(f"*{_SUFFIX}"))
        except OSError:
            return []

    def _read_segment(self, path: Path, from_ms: int, to_ms: int) -> Iterator[Frame]:
        definitions = Definitions()
        try:
            buffer = path.read_bytes()
        except FileNotFoundError:
            return
        position = 0
        while position + _RECORD.size <= len(buffer):
            kind, length, crc, tick_ms = _RECORD.unpack_from(buffer, position)
            payload = buffer[position + _RECORD.size : position + _RECORD.size + length]
            position += _RECORD.size + length
            if len(payload) != length:
                return
            if google_crc32c.value(payload) != crc:
                self._counts.add("ring_damaged")
                return
            try:
                if kind == _DEFINITION:
                    definitions.add(payload)
                elif from_ms <= tick_ms < to_ms:
                    yield decode(payload, definitions)
            except Rejected:
                self._counts.add("ring_damaged")


def _start_ms(path: Path) -> int:
    return int(path.name.removesuffix(_SUFFIX)) if path.name.removesuffix(_SUFFIX).isdigit() else 0


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
