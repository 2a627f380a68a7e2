"""Read files that prologs leave in a folder, which others may write to."""

import os
import stat
from pathlib import Path


def read_handed(path: Path, limit_bytes: int) -> tuple[str, int]:
    """Return the text of a file, as far as the limit, and when it was written, epoch ms.

    A link is not followed, as it may lead to what the agent alone may read; what is no plain file is not waited for.

    Raises:
        OSError: It is gone, or no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no plain file")
        return file.read(limit_bytes).decode(errors="replace"), int(found.st_mtime * 1000)
