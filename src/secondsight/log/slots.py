"""Keep a few numbers in a file of two slots, so that changing them needs no space and a crash leaves one good slot.

A slot is a magic, a CRC32C, a generation, a count and that many unsigned 64-bit numbers. The slot with the greater
generation counts; writing overwrites the other one in place.
"""

import mmap
import os
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

import google_crc32c

from secondsight.log.disk import Disk

SLOT_BYTES = 4096
MAX_NUMBERS = 500

_HEAD = Struct("<4sIQQ")
_MAGIC = b"SSLT"
_READ_ATTEMPTS = 100
_SHARED_BYTES = 128


def pack_slot(generation: int, numbers: tuple[int, ...]) -> bytes:
    """Return the bytes of a slot."""
    body = Struct(f"<QQ{len(numbers)}Q").pack(generation, len(numbers), *numbers)
    crc: int = google_crc32c.value(body)
    return _MAGIC + crc.to_bytes(4, "little") + body


def newest_slot(raw: bytes | mmap.mmap, used_bytes: int = SLOT_BYTES) -> tuple[int, tuple[int, ...]] | None:
    """Return (generation, numbers) of the newest sound slot, or None; only `used_bytes` of each are looked at."""
    slots = [_parse_slot(raw[start : start + used_bytes]) for start in (0, SLOT_BYTES)]
    return max((slot for slot in slots if slot is not None), default=None)


def _parse_slot(raw: bytes) -> tuple[int, tuple[int, ...]] | None:
    if len(raw) < _HEAD.size or raw[:4] != _MAGIC:
        return None
    _, crc, generation, count = _HEAD.unpack_from(raw)
    end = _HEAD.size + 8 * count
    if count > MAX_NUMBERS or end > len(raw) or google_crc32c.value(raw[8:end]) != crc:
        return None
    return generation, Struct(f"<{count}Q").unpack_from(raw, _HEAD.size)


class SlotFile:
    """The durable one: every write is synced. For cursors."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Open `path`, making and preallocating it when it is not there.

        Raises:
            OSError: There is no space, or the file cannot be opened.
        """
        self._disk = disk
        self._fd = _open_allocated(path, disk)
        newest = newest_slot(os.pread(self._fd, 2 * SLOT_BYTES, 0))
        self._generation, self.numbers = newest or (0, ())

    def write(self, numbers: tuple[int, ...], *, durable: bool = True) -> None:
        """Replace the numbers, durably unless an older value will do after a power cut.

        Raises:
            OSError: The old numbers may or may not be replaced.
        """
        generation = self._generation + 1
        self._disk.write_at(self._fd, pack_slot(generation, numbers), generation % 2 * SLOT_BYTES)
        if durable:
            self._disk.sync(self._fd)
        self._generation, self.numbers = generation, numbers

    def is_deleted(self) -> bool:
        """Tell whether somebody deleted the file while it is open."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SharedSlots:
    """The fast one: numbers in shared memory for other processes of this machine; a hint after a crash."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        """Map `path`; with `disk` it is made when it is not there, and can be written.

        Raises:
            OSError: The file is not there or cannot be made.
        """
        fd = _open_allocated(path, disk) if disk else os.open(path, os.O_RDONLY)
        try:
            access = mmap.ACCESS_WRITE if disk else mmap.ACCESS_READ
            self._map = mmap.mmap(fd, 2 * SLOT_BYTES, access=access)
        except ValueError as error:
            raise FileNotFoundError(f"{path} is not allocated yet") from error
        finally:
            os.close(fd)
        newest = newest_slot(self._map, _SHARED_BYTES)
        self._generation = newest[0] if newest else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, numbers: tuple[int, ...]) -> None:
        """Replace the numbers; readers see the old or the new ones."""
        self._generation += 1
        start = self._generation % 2 * SLOT_BYTES
        slot = pack_slot(self._generation, numbers)
        self._map[start : start + len(slot)] = slot

    def read(self) -> tuple[int, ...] | None:
        """Return the numbers, or None when none were written."""
        for _ in range(_READ_ATTEMPTS):
            newest = newest_slot(self._map, _SHARED_BYTES)
            if newest is not None:
                return newest[1]
            if not any(self._map[start : start + 4] == _MAGIC for start in (0, SLOT_BYTES)):
                return None
        return None

    def close(self) -> None:
        """Unmap; may be called twice."""
        self._map.close()


def _open_allocated(path: Path, disk: Disk) -> int:
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        missing = 2 * SLOT_BYTES - os.fstat(fd).st_size
        if missing > 0:
            disk.write_at(fd, bytes(missing), 2 * SLOT_BYTES - missing)
            disk.sync(fd)
            disk.sync_folder(path.parent)
    except OSError:
        os.close(fd)
        raise
    return fd
