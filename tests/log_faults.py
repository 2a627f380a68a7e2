"""A file system that fails when it is told to."""

import errno
import os

from secondsight.log.disk import Disk


class FaultyDisk(Disk):
    """Has `free_bytes` for appended data (None: no end), and fails syncs and truncations while told to.

    `space_bytes` is what it says of itself: (free, total), or None for the truth.
    """

    def __init__(self, free_bytes=None):
        self.free_bytes = free_bytes
        self.fail_sync = False
        self.fail_truncate = False
        self.space_bytes = None

    def space(self, folder):
        return self.space_bytes or super().space(folder)

    def unlink(self, path):
        freed = path.stat().st_size if path.exists() else 0
        super().unlink(path)
        self.free_bytes = None if self.free_bytes is None else self.free_bytes + freed

    def open(self, path, flags):
        if flags & os.O_CREAT and not path.exists() and self.free_bytes == 0:
            raise OSError(errno.ENOSPC, "no space")
        return super().open(path, flags)

    def write_at(self, fd, data, position):
        needed = max(0, position + len(data) - os.fstat(fd).st_size)
        if self.free_bytes is None or needed <= self.free_bytes:
            super().write_at(fd, data, position)
            self.free_bytes = None if self.free_bytes is None else self.free_bytes - needed
            return
        super().write_at(fd, data[: len(data) - needed + self.free_bytes], position)
        self.free_bytes = 0
        raise OSError(errno.ENOSPC, "no space")

    def sync(self, fd):
        if self.fail_sync:
            raise OSError(errno.EIO, "cannot sync")
        super().sync(fd)

    def truncate(self, fd, size_bytes):
        if self.fail_truncate:
            raise OSError(errno.EIO, "cannot truncate")
        super().truncate(fd, size_bytes)


class UnsyncedDisk(Disk):
    """Leaves syncing to the kernel: for tests in which no machine dies."""

    def sync(self, _fd):
        pass

    def sync_folder(self, _folder):
        pass
