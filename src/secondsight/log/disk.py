"""Do what the log asks of a file system; the one place where a test can make it fail."""

import os
from pathlib import Path


class Disk:
    """The machine's own file system. Every method may raise OSError."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file and return its descriptor."""
        return os.open(path, flags | os.O_CLOEXEC, 0o640)

    def write_at(self, fd: int, data: bytes, position: int) -> None:
        """Write all of `data` at `position`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def sync(self, fd: int) -> None:
        """Make a file's data durable."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, size_bytes)

    def unlink(self, path: Path) -> None:
        """Delete a file; one that is gone already is fine."""
        path.unlink(missing_ok=True)

    def space(self, folder: Path) -> tuple[int, int]:
        """Return (bytes that may be written, bytes in all) of the file system that holds a folder."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
