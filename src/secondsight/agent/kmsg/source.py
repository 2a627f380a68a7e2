"""Read the lines of a log without ever waiting: the kernel's device node, a pipe that stands for it, or a file.

A device gives one record a read, and says when records were overwritten before they were read. A file is followed over
rotation and truncation; its position can be kept and taken up again.
"""

import contextlib
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

READ_BYTES = 1 << 16
LINE_BYTES = 1 << 15
"""A longer line is given in pieces."""

HEAD_BYTES = 256
FIRST_BYTES = 1 << 20
"""How much of a file is read when there is no position to take up."""


class Taken(NamedTuple):
    """What one look gave.

    Attributes:
        lines: Without their newlines, in order.
        gap: True if records before the first line of this batch were overwritten.
        at_end: True if there is nothing more for now.
    """

    lines: list[bytes]
    gap: bool
    at_end: bool


class Source(Protocol):
    """A log. Not shared between threads."""

    def take(self, maximum: int) -> Taken:
        """Return up to `maximum` lines that are there now.

        Raises:
            OSError: It cannot be read.
        """
        ...

    def close(self) -> None:
        """Close it; may be called twice."""
        ...


class DeviceSource:
    """The kernel's device node, or a pipe. It opens at the oldest record that is still there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""

    def take(self, maximum: int) -> Taken:
        """Return records; a gap ends a batch, so that what comes after it is told apart."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        lines: list[bytes] = []
        while len(lines) < maximum:
            try:
                data = os.read(self._file, READ_BYTES)
            except BlockingIOError:
                return Taken(lines, gap=False, at_end=True)
            except BrokenPipeError:
                return Taken(lines, gap=True, at_end=False)
            if not data:
                return Taken(lines, gap=False, at_end=True)
            self._rest = _split(self._rest + data, lines)
        return Taken(lines, gap=False, at_end=False)

    def close(self) -> None:
        """Close the device."""
        if self._file is not None:
            os.close(self._file)
        self._file = None


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where a file was read.

    Attributes:
        inode: Tells whether it is still that file; numbers are used again, so the beginning is compared too.
        head_bytes, head_crc: Length and checksum of the beginning.
    """

    inode: int
    offset: int
    head_bytes: int = 0
    head_crc: int = 0


class FileSource:
    """A file that others append to. Only whole lines are given; one that is not ended yet is read again later."""

    def __init__(self, path: Path, position: Position | None = None) -> None:
        self._path = path
        self._position = position
        self._file: int | None = None
        self._offset = 0
        self._skip_first = False

    @property
    def position(self) -> Position | None:
        """Return up to where lines were given; None if the file was never there."""
        return self._position

    def take(self, maximum: int) -> Taken:
        """Return lines of the open file, and when it was replaced those of the new one."""
        if self._file is None and not self._open():
            return Taken([], gap=False, at_end=True)
        lines: list[bytes] = []
        while len(lines) < maximum and self._more(lines, maximum):
            pass
        at_end = len(lines) < maximum
        if at_end and self._is_replaced():
            self.close()
            at_end = False
        return Taken(lines, gap=False, at_end=at_end)

    def close(self) -> None:
        """Close the file; its position stays."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _open(self) -> bool:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        state = os.fstat(self._file)
        if self._position is None:
            self._offset = max(state.st_size - FIRST_BYTES, 0)
            self._skip_first = self._offset > 0
        else:
            self._offset = self._position.offset if self._is_same(self._file, self._position) else 0
        self._note()
        return True

    @staticmethod
    def _is_same(file: int, position: Position) -> bool:
        head = os.pread(file, position.head_bytes, 0)
        return (os.fstat(file).st_ino, len(head), zlib.crc32(head)) == (
            position.inode,
            position.head_bytes,
            position.head_crc,
        )

    def _note(self) -> None:
        """Take note of the position."""
        if self._file is not None:
            head = os.pread(self._file, min(HEAD_BYTES, self._offset), 0)
            inode = os.fstat(self._file).st_ino
            self._position = Position(inode, self._offset, len(head), zlib.crc32(head))

    def _more(self, lines: list[bytes], maximum: int) -> bool:
        """Take one block; False if there is no whole line in it."""
        if self._file is None:
            return False
        if os.fstat(self._file).st_size < self._offset:
            self._offset = 0
        data = os.pread(self._file, READ_BYTES, self._offset)
        found: list[bytes] = []
        rest = _split(data, found)
        found, kept = found[: maximum - len(lines)], found[maximum - len(lines) :]
        taken = len(data) - len(rest) - sum(len(line) + 1 for line in kept)
        if self._skip_first and found:
            found = found[1:]
            self._skip_first = False
        lines += found
        self._offset += taken
        if taken:
            self._note()
        return taken > 0

    def _is_replaced(self) -> bool:
        with contextlib.suppress(OSError):
            return self._position is not None and os.stat(self._path).st_ino != self._position.inode  # noqa: PTH116 # once a second
        return False


def open_source(path: Path, position: Position | None = None) -> DeviceSource | FileSource:
    """Return what reads a path: a device or a pipe, or a file (which need not be there yet)."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return FileSource(path, position)
    return FileSource(path, position) if stat.S_ISREG(mode) else DeviceSource(path)


def _split(data: bytes, lines: list[bytes]) -> bytes:
    """Append the whole lines of `data` and return the rest; a rest that is too long is a line."""
    *whole, rest = data.split(b"\n")
    lines += whole
    if len(rest) >= LINE_BYTES:
        lines.append(rest)
        return b""
    return rest
