"""Decide which metrics a window keeps: all, or those of class P0 where its memory would hold too little of all."""

import ctypes
from collections.abc import Mapping

import pyarrow as pa

from secondsight.live.table import LiveTable

MIB = 1 << 20
ROWS_SHARE = 5 / 6
"""What rows may take of it; the rest is for those on their way, and for putting them in order."""
LEAST_MS = 300_000
"""Where the budget holds less than so much of all metrics, only those of class P0 are kept."""
ROOM = 1.25
"""All metrics are kept again where so many times the memory that they take would fit."""
FAR_BEYOND = 3
"""Where stored rows of so many times the budget are expected in `LEAST_MS`, holding all is not tried."""
ROUNDS = 60
"""They fit in so many looks, one after the other, before it is believed."""


class Budget:
    """Memory of a window, and what it is spent on.

    Args:
        mib: How much there is.

    Attributes:
        bytes: What its rows may take.
        is_narrow: Metrics of class P0 are kept alone.
    """

    def __init__(self, mib: int) -> None:
        self.mib = mib
        self.bytes = round(ROWS_SHARE * mib * MIB)
        self.is_narrow = False
        self._row_bytes: dict[str, float] = {}
        self._rounds = 0

    def judge(self, tables: Mapping[str, LiveTable], held_ms: int, newest_ms: int, *, evicted: bool) -> str:
        """Return why the window has to begin again with other metrics, "" where it goes on; call it once a second.

        Args:
            tables: What is held.
            held_ms: How much of the newest minutes that is, from the oldest row of seconds to the newest.
            newest_ms: Event time of the newest rows, which are old where the processor lags.
            evicted: Rows had to go for want of memory.
        """
        if self.is_narrow:
            return self._widened(tables, held_ms, newest_ms)
        if not evicted or held_ms >= LEAST_MS:
            return ""
        self.is_narrow, self._rounds = True, 0
        self._row_bytes = {name: table.bytes / max(table.rows, 1) for name, table in tables.items()}
        minutes = LEAST_MS // 60_000
        return f"{self.mib} MiB hold less than {minutes} minutes of all metrics, P0 alone is kept"

    def foresee(self, sizes: Mapping[int, int], row_bytes: Mapping[str, float], newest_ms: int) -> str:
        """Return why not to begin with all metrics, "" where it may be tried.

        Args:
            sizes: Start of a range of time -> about how much memory all metrics of its stored rows would take.
            row_bytes: Table -> about how much a row of it would.
            newest_ms: Event time of the newest rows.
        """
        newest = sum(size for start, size in sizes.items() if start > newest_ms - LEAST_MS)
        if self.is_narrow or newest <= FAR_BEYOND * self.bytes:
            return ""
        self.is_narrow, self._rounds, self._row_bytes = True, 0, dict(row_bytes)
        return f"{self.mib} MiB are far too little for all metrics, P0 alone is kept"

    def _widened(self, tables: Mapping[str, LiveTable], held_ms: int, newest_ms: int) -> str:
        known = self._row_bytes
        wide = sum(table.rows_since(newest_ms - LEAST_MS) * known.get(name, 0.0) for name, table in tables.items())
        fits = held_ms >= LEAST_MS and ROOM * wide <= self.bytes
        self._rounds = self._rounds + 1 if fits else 0
        if self._rounds < ROUNDS:
            return ""
        self.is_narrow = False
        return "there is room for all metrics again"


def trim() -> None:
    """Give back to the machine what allocators keep of memory that was freed: it would come on top of any budget."""
    pa.default_memory_pool().release_unused()
    heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if heap is not None:
        heap(0)
