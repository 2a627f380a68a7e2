"""Kill statements that outlive their deadline, whatever the engine's own limits do."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from secondsight.clock import Clock
from secondsight.errors import SecondsightError

_log = logging.getLogger(__name__)


class Watchdog:
    """One thread that calls `kill(marker)` for each marker still watched at its deadline."""

    def __init__(self, kill: Callable[[str], None], clock: Clock) -> None:
        self._kill = kill
        self._clock = clock
        self._deadlines: dict[str, float] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self, marker: str, seconds: float) -> Iterator[None]:
        """Watch `marker` while the block runs."""
        deadline = self._clock.monotonic_seconds() + seconds
        with self._changed:
            earliest = min(self._deadlines.values(), default=deadline + 1)
            self._deadlines[marker] = deadline
            if deadline < earliest:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._deadlines.pop(marker, None)

    def close(self) -> None:
        """Stop watching; may be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for marker in self._wait_for_overdue():
                self._kill_quietly(marker)
            if self._closed:
                return

    def _wait_for_overdue(self) -> list[str]:
        """Wait for the next deadline, then take what is overdue off the watch list."""
        with self._changed:
            if self._closed:
                return []
            earliest = min(self._deadlines.values(), default=None)
            wait_seconds = None if earliest is None else max(0.0, earliest - self._clock.monotonic_seconds())
            if wait_seconds is None or wait_seconds > 0:
                self._changed.wait(wait_seconds)
            now = self._clock.monotonic_seconds()
            overdue = [marker for marker, deadline in self._deadlines.items() if deadline <= now]
            for marker in overdue:
                del self._deadlines[marker]
            return overdue

    def _kill_quietly(self, marker: str) -> None:
        try:
            self._kill(marker)
        except SecondsightError as error:
            _log.warning("a statement past its deadline may go on in the store, it could not be killed: %s", error)
