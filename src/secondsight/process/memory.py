"""Tell how much memory a process may use here: the machine's, or less where a control group says so."""

import os
from contextlib import suppress
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Of the second and the first version of control groups."""


def memory_bytes(cgroup: Path = CGROUP) -> int:
    """Return the bytes of memory that there are for this process."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in LIMITS:
        with suppress(OSError, ValueError):  # no limit is the word "max"
            found = min(found, int((cgroup / name).read_text()))
    return found
