"""Keep a process that runs for months small: few heaps, no idle threads of libraries, nothing left of its start."""

import ctypes
import gc
import os
from collections.abc import MutableMapping

_M_ARENA_MAX = -8
"""Parameter of mallopt in glibc."""


def bound_libraries(environment: MutableMapping[str, str]) -> None:
    """Keep numpy, whose linear algebra is never used, from starting a thread a core; call it before numpy loads."""
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")


def share_one_heap() -> None:
    """Have all threads allocate from one heap, where the C library can: a heap each costs more than waiting ever does.

    Call it before threads start; what `MALLOC_ARENA_MAX` says stands.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


def settle() -> None:
    """Give back what only the start needed, and spare collections from looking at what stays for good."""
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
