"""Count the Xids that other sources told and the kernel log did not, so that each counts once, whoever told it.

Counts are kept before they are told, for this boot. What the log tells after all, later than it was waited for, is not
counted again.
"""

import threading
from collections import Counter, deque

from secondsight.agent.bootfile import BootFile
from secondsight.agent.kmsg.bursts import WINDOW_MS
from secondsight.wire.content import Event

GpuXid = tuple[str, int]
"""GPU and code."""

COUNTED_MAXIMUM = 1024
REMEMBERED = 256


class UntoldXids:
    """Xids by GPU and code. Safe to call from threads.

    Args:
        file: Where counts are kept over restarts; None to forget them.
    """

    def __init__(self, file: BootFile | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._counts: Counter[GpuXid] = Counter()
        self._versions: dict[tuple[str, str, int, int, str], int] = {}
        self._early: deque[tuple[GpuXid, int]] = deque(maxlen=REMEMBERED)
        self._restore(file.load() if file is not None else None)

    def counts(self) -> dict[GpuXid, int]:
        """Return how many of each there were in this boot."""
        with self._lock:
            return dict(self._counts)

    def take(self, event: Event, teller: str) -> None:
        """Count an event that the log did not tell; a later version of one that is known counts what it adds.

        A gauge that shows a code at its first look tells nothing of when that was, and is not counted.
        """
        if event.attributes.get("before_start"):
            return
        name = (event.entity, event.part, event.code, event.time_ms, teller)
        told = event.attributes.get("count", "1")
        count = int(told) if told.isdecimal() else 1
        with self._lock:
            added = count - self._versions.get(name, 0)
            gpu_xid = (event.entity, event.code)
            if added <= 0 or (gpu_xid not in self._counts and len(self._counts) >= COUNTED_MAXIMUM):
                return
            if len(self._versions) >= REMEMBERED:
                self._versions.pop(next(iter(self._versions)))
            self._versions[name] = count
            self._counts[gpu_xid] += added
            self._early.extend([(gpu_xid, event.time_ms)] * min(added, REMEMBERED))
            if self._file is not None:
                self._file.save([[*key, number] for key, number in self._counts.items()])

    def absorb(self, gpu: str, code: int, time_ms: int) -> bool:
        """Tell whether an Xid that the log tells now was counted already; each that was counted absorbs one."""
        with self._lock:
            for place, (gpu_xid, at_ms) in enumerate(self._early):
                if gpu_xid == (gpu, code) and abs(at_ms - time_ms) <= WINDOW_MS:
                    del self._early[place]
                    return True
        return False

    def _restore(self, said: object) -> None:
        try:
            for gpu, code, count in said if isinstance(said, list) else ():
                self._counts[str(gpu), int(code)] = int(count)
        except (TypeError, ValueError):
            self._counts.clear()
