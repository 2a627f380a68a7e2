"""Have processes of a host start the driver one after the other: starting it twice at once has hung it.

Whoever starts it holds a lock on a file meanwhile, which ends with the process at the latest. Nobody waits for ever: a
start that hangs must not take others with it. Imports next to nothing, as small processes use it.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from secondsight.clock import Clock

SHARED_FILE = Path("/run/secondsight/driver.lock")
"""Where processes of one host meet, also those of other containers that have the folder."""

WAIT_SECONDS = 20.0
LOOK_SECONDS = 0.1


@contextmanager
def turn(files: Sequence[str | Path], clock: Clock, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the first of some files that can be opened.

    Args:
        files: In order of preference; where none can be had, nothing is waited for.
        clock: For the waiting.
        report: Told when the lock is not to be had in time.
    """
    descriptor = next((opened for file in files if (opened := _opened(file)) is not None), None)
    if descriptor is None:
        yield
        return
    try:
        if not _locked(descriptor, clock):
            report(f"another process has been starting the driver for {WAIT_SECONDS:.0f} s, it is not waited for")
        yield
    finally:
        os.close(descriptor)


def _opened(file: str | Path) -> int | None:
    try:
        os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120 # a text in small processes
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None


def _locked(descriptor: int, clock: Clock) -> bool:
    end = clock.monotonic_seconds() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if clock.monotonic_seconds() >= end:
                return False
            clock.sleep(LOOK_SECONDS)
        else:
            return True
