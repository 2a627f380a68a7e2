"""Remember which Xids the kernel log told, so that a source which only repeats the last code holds back."""

import threading

REMEMBERED = 4096


class HeardXids:
    """Xids by GPU. Safe to call from threads.

    The kernel log is the record of what happened. A gauge that holds the last Xid, or an event of the driver's library,
    is a hint: it counts only if the log did not tell the same, or cannot be read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms: dict[tuple[str, int], int] = {}

    def hear(self, gpu: str, code: int, time_ms: int) -> None:
        """Take note of an Xid of a GPU (its UUID, or its PCI address where no UUID is known)."""
        with self._lock:
            if len(self._last_ms) >= REMEMBERED:
                self._last_ms.pop(next(iter(self._last_ms)))
            known = self._last_ms.pop((gpu, code), time_ms)
            self._last_ms[gpu, code] = max(known, time_ms)

    def last_ms(self, gpu: str, code: int) -> int | None:
        """Return when the log last told this code of this GPU, or None if it did not."""
        with self._lock:
            return self._last_ms.get((gpu, code))

    def newest_ms(self, gpu: str) -> int | None:
        """Return when the log last told any code of this GPU, or None if it told none."""
        with self._lock:
            return max((at_ms for (name, _), at_ms in self._last_ms.items() if name == gpu), default=None)
