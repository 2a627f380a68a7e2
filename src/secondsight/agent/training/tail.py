"""Turn files that grow into their new lines, each once, through rotation, truncation and restarts of the agent.

A file stays open while it is watched, so that what was written before it was renamed is still read. Only regular files
are opened. Of a line that has no end yet nothing is told. What is read at a time is bounded; of a file that is far
behind the oldest is left out, and counted.
"""

import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE_BYTES_MAXIMUM = 16_384
BEHIND_BYTES_MAXIMUM = 16 << 20
CATCH_UP_BYTES = 1 << 20
HEAD_BYTES = 64
"""A file whose beginning changed was written anew, even where it is as long as before."""


@dataclass(slots=True)
class _Open:
    """One open file; `offset` is where its first untold line begins."""

    descriptor: int
    inode: int
    offset: int
    head: int
    head_bytes: int


class Tail:
    """Follows one file by its path. Not thread-safe; `close` may be called twice.

    Args:
        path: May not exist yet.
        kept: What `kept` gave before, {} for a file that nobody watched.
        at_end: Begin at the end of a file that nobody watched, not at its beginning.
    """

    def __init__(self, path: Path, kept: Mapping[str, Any], *, at_end: bool) -> None:
        self._path = path
        self._kept = kept
        self._at_end = at_end
        self._file: _Open | None = None
        self.counts: Counter[str] = Counter()

    def lines(self, limit_bytes: int) -> Iterator[str]:
        """Give the new lines, reading at most `limit_bytes`; a file that was renamed is read to its end first."""
        left = limit_bytes
        for _ in range(2):
            one = self._file or self._opened()
            if one is None:
                return
            self._follow_truncation(one)
            data = os.pread(one.descriptor, max(left, LINE_BYTES_MAXIMUM), one.offset)
            left -= len(data)
            yield from self._whole_lines(one, data)
            if left <= 0 or not self._was_replaced(one):
                return
            self.close()

    def kept(self) -> dict[str, Any]:
        """Return where reading goes on after a restart."""
        one = self._file
        if one is None:
            return dict(self._kept)
        return {"inode": one.inode, "offset": one.offset, "head": one.head, "head_bytes": one.head_bytes}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None

    def _opened(self) -> _Open | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            os.close(descriptor)
            self.counts["not_a_file"] += 1
            return None
        head, head_bytes = _head(descriptor)
        self._file = _Open(descriptor, state.st_ino, self._start(descriptor, state), head, head_bytes)
        self._kept, self._at_end = {}, False
        return self._file

    def _start(self, descriptor: int, state: os.stat_result) -> int:
        """Return where to begin: where the last reading ended, at the end, or at the beginning."""
        kept = self._kept
        if kept.get("inode") == state.st_ino and 0 <= kept.get("offset", -1) <= state.st_size:
            same = _head(descriptor, kept["head_bytes"])[0] == kept["head"]
            return int(kept["offset"]) if same else 0
        return state.st_size if self._at_end else 0

    def _follow_truncation(self, one: _Open) -> None:
        size = os.fstat(one.descriptor).st_size
        if size < one.offset or _head(one.descriptor, one.head_bytes)[0] != one.head:
            one.offset = 0
            self.counts["truncated"] += 1
        if one.head_bytes < HEAD_BYTES or one.offset == 0:
            one.head, one.head_bytes = _head(one.descriptor)
        if size - one.offset > BEHIND_BYTES_MAXIMUM:
            self.counts["left_out_bytes"] += size - CATCH_UP_BYTES - one.offset
            one.offset = size - CATCH_UP_BYTES

    def _whole_lines(self, one: _Open, data: bytes) -> Iterator[str]:
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end == 0 and len(data) >= LINE_BYTES_MAXIMUM:
            self.counts["line_too_long"] += 1
            end = len(data)
            data = b""
        one.offset += end
        for line in data[:end].splitlines() if data else ():
            if len(line) > LINE_BYTES_MAXIMUM:
                self.counts["line_too_long"] += 1
            else:
                yield line.decode(errors="replace")

    def _was_replaced(self, one: _Open) -> bool:
        """Tell whether another file stands under the path now; one that is gone is kept open."""
        try:
            return self._path.stat().st_ino != one.inode
        except OSError:
            return False


def _head(descriptor: int, length: int = HEAD_BYTES) -> tuple[int, int]:
    data = os.pread(descriptor, length, 0)
    return zlib.crc32(data), len(data)
