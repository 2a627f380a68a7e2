"""Let one process at a time have a folder."""

import fcntl
import os
from pathlib import Path

from secondsight.errors import Permanent


def take_lock(path: Path) -> int:
    """Return the descriptor of a lock file that nobody else holds; closing it gives the lock back.

    Raises:
        Permanent: Another process holds it.
        OSError: The file cannot be made.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise Permanent(f"another process has the spool {path.parent} open") from error
    return fd
