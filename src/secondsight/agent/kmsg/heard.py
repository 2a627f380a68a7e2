"""Remember which Xids were told and by whom, so that a source which only repeats what another told holds back."""

import threading

REMEMBERED = 4096
LOG = "log"


class HeardXids:
    """Xids by GPU. Safe to call from threads.

    The kernel log is the record of what happened. A gauge that holds the last Xid, or an event of the driver's library,
    is a hint: it counts only if nobody else told the same.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms: dict[tuple[str, int, str], int] = {}

    def hear(self, gpu: str, code: int, time_ms: int, teller: str = LOG) -> None:
        """Take note of an Xid of a GPU (its UUID, or its PCI address where no UUID is known)."""
        name = (gpu, code, teller)
        with self._lock:
            if len(self._last_ms) >= REMEMBERED:
                self._last_ms.pop(next(iter(self._last_ms)))
            known = self._last_ms.pop(name, time_ms)
            self._last_ms[name] = max(known, time_ms)

    def last_ms(self, gpu: str, code: int, *, but: str = "") -> int | None:
        """Return when anybody else last told this code of this GPU, or None if nobody did."""
        with self._lock:
            told = (at_ms for (*name, who), at_ms in self._last_ms.items() if name == [gpu, code] and who != but)
            return max(told, default=None)

    def newest_ms(self, gpu: str) -> int | None:
        """Return when the log last told any code of this GPU, or None if it told none."""
        with self._lock:
            told = (at_ms for (name, _, who), at_ms in self._last_ms.items() if (name, who) == (gpu, LOG))
            return max(told, default=None)
