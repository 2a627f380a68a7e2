"""Give threads the names by which `top -H` and `ps -L` show them."""

import threading
from contextlib import suppress
from pathlib import Path

NAME_CHARACTERS = 15
"""What the kernel keeps of a name."""


def name_thread() -> None:
    """Tell the kernel the calling thread's own name; where it takes none, the thread stays nameless."""
    with suppress(OSError):
        Path("/proc/thread-self/comm").write_text(threading.current_thread().name[:NAME_CHARACTERS])
