"""Keep what an agent says of itself in a file of two slots, for commands that run beside it.

The file takes its space when it is made and is overwritten in place, slot by slot, so a full disk does not silence the
agent, and a reader always finds one whole slot. Nothing is synced: after a power cut the agent is not running anyhow.
"""

import errno
import json
import os
from pathlib import Path
from typing import Any

import google_crc32c

from secondsight.errors import Rejected

FILE = "status"
FORMAT = 1
"""Of what a state says; another one cannot be judged."""

SLOT_BYTES = 64 << 10
MODE = 0o640
_MAGIC = b"SSST"
_HEAD_BYTES = 20
READ_ATTEMPTS = 5


class StateFile:
    """The file of one agent. One thread uses it; `close` may be called twice."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._fd = -1
        self._generation = 0

    def write(self, state: dict[str, Any]) -> None:
        """Replace what the file says.

        Raises:
            OSError: The disk refuses; what it said before may stay.
        """
        text = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
        if len(text) > SLOT_BYTES - _HEAD_BYTES:
            raise OSError(errno.EFBIG, "the state is too large", str(self._path))
        self._open()
        self._generation += 1
        body = self._generation.to_bytes(8, "little") + len(text).to_bytes(4, "little") + text
        crc: int = google_crc32c.value(body)
        slot = _MAGIC + crc.to_bytes(4, "little") + body
        os.pwrite(self._fd, slot, self._generation % 2 * SLOT_BYTES)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        """Open the file, making it anew where it is not there or somebody deleted it."""
        if self._fd >= 0 and os.fstat(self._fd).st_nlink:
            return
        self.close()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        try:
            os.fchmod(fd, MODE)
            if os.fstat(fd).st_size < 2 * SLOT_BYTES:
                os.posix_fallocate(fd, 0, 2 * SLOT_BYTES)
            newest = _newest(os.pread(fd, 2 * SLOT_BYTES, 0))
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        self._generation = newest[0] if newest else 0


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return what the agent of a spool folder last said, None where it never did.

    Raises:
        OSError: The file is there and cannot be read.
        Rejected: `bad_state`, it holds nothing that can be understood; `no_permission`.
    """
    path = folder / FILE
    for _ in range(READ_ATTEMPTS):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise Rejected(
                "no_permission", f"{path} may not be read", "run this as root or as the agent's user"
            ) from error
        newest = _newest(raw)
        if newest is not None:
            return newest[1]
        if not any(raw):
            return None
    raise Rejected("bad_state", f"{path} is damaged", "delete it; a running agent writes it anew within seconds")


def _newest(raw: bytes) -> tuple[int, dict[str, Any]] | None:
    slots = [_slot(raw[start : start + SLOT_BYTES]) for start in (0, SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


def _slot(raw: bytes) -> tuple[int, dict[str, Any]] | None:
    if raw[:4] != _MAGIC:
        return None
    length = int.from_bytes(raw[16:20], "little")
    body = raw[8 : _HEAD_BYTES + length]
    if len(body) != 12 + length or google_crc32c.value(body) != int.from_bytes(raw[4:8], "little"):
        return None
    try:
        state = json.loads(body[12:])
    except ValueError:
        return None
    return (int.from_bytes(raw[8:16], "little"), state) if isinstance(state, dict) else None
