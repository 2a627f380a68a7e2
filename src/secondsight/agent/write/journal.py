"""Keep on disk, until they are spooled, the ticks that are held in memory, so that the end of the process costs none.

Two files take turns: one takes what is held now, the other what is being spooled, and is emptied when it is. Appending
is one write without a sync: it outlives the process, not a power cut. A record that was cut short ends its file. What
the disk refuses is counted and held in memory alone.
"""

import os
from contextlib import suppress
from pathlib import Path

import google_crc32c

from secondsight.agent.counts import Counts
from secondsight.agent.write.record import pack, unpack
from secondsight.agent.write.writer import Stamped
from secondsight.errors import Rejected
from secondsight.wire.schema import Definitions

NAMES = ("held-0", "held-1")
HEAD_BYTES = 8


class Journal:
    """The files. Not safe to call from several threads, except that `spooled` may be called beside `append`.

    Counts `journal_failed` appends, `journal_recovered` contents and `journal_unreadable` ones.
    """

    def __init__(self, folder: Path, counts: Counts) -> None:
        self._folder = folder
        self._counts = counts
        self._fds = [-1, -1]
        self._sizes = [0, 0]
        self._active = 0

    def recover(self, known: Definitions) -> list[Stamped]:
        """Return what an earlier process held and did not spool, older files first; it stays until `spooled`.

        Args:
            known: Definitions by which it is read.
        """
        found: list[Stamped] = []
        paths = [path for name in NAMES if (path := self._folder / name).exists()]
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
            found += self._read(path, known)
        self._counts.add("journal_recovered", len(found))
        return found

    def append(self, pieces: list[Stamped]) -> None:
        """Add contents of one tick to what is held."""
        record = b"".join(_framed(pack(piece.stamp, piece.content)) for piece in pieces)
        number = self._active
        try:
            written = os.pwrite(self._open(number), record, self._sizes[number])
        except OSError:
            written = 0
            self._close(number)
        if written == len(record):
            self._sizes[number] += written
        else:
            self._counts.add("journal_failed")

    def turn(self) -> int:
        """Let the other file take what comes from now on; return the number of the one to be `spooled`."""
        before, self._active = self._active, 1 - self._active
        return before

    def spooled(self, number: int) -> None:
        """Empty a file: what it holds is in the spool, or given up."""
        try:
            os.ftruncate(self._open(number), 0)
        except OSError:
            self._close(number)
        self._sizes[number] = 0

    def close(self) -> None:
        """Close the files; may be called twice."""
        for number in (0, 1):
            self._close(number)

    def _open(self, number: int) -> int:
        """Return a file, made anew and empty when it is not open or not there any more."""
        if self._fds[number] >= 0 and not os.fstat(self._fds[number]).st_nlink:
            self._close(number)
        if self._fds[number] < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._fds[number] = os.open(self._folder / NAMES[number], flags, 0o640)
            self._sizes[number] = 0
        return self._fds[number]

    def _close(self, number: int) -> None:
        if self._fds[number] >= 0:
            with suppress(OSError):
                os.close(self._fds[number])
        self._fds[number] = -1

    def _read(self, path: Path, known: Definitions) -> list[Stamped]:
        found: list[Stamped] = []
        try:
            raw = path.read_bytes()
        except OSError:
            return []
        at = 0
        while len(raw) - at >= HEAD_BYTES:
            size, crc = int.from_bytes(raw[at : at + 4], "little"), int.from_bytes(raw[at + 4 : at + 8], "little")
            record = raw[at + HEAD_BYTES : at + HEAD_BYTES + size]
            if len(record) < size or google_crc32c.value(record) != crc:
                break
            at += HEAD_BYTES + size
            try:
                found.append(Stamped(*unpack(record, known)))
            except Rejected:
                self._counts.add("journal_unreadable")
        return found


def _framed(record: bytes) -> bytes:
    crc: int = google_crc32c.value(record)
    return len(record).to_bytes(4, "little") + crc.to_bytes(4, "little") + record
