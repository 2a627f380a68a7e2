"""Ask the kernel how far its clock is from its reference; changes nothing.

The kernel keeps the offset that a time daemon told it last. Where no daemon keeps the clock there is no offset.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import ClassVar

_STATUS_UNSYNCHRONISED = 0x0040
_STATUS_NANOSECONDS = 0x2000


class _Timex(ctypes.Structure):
    _fields_: ClassVar = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximum_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def kernel_clock_offset_seconds() -> float | None:
    """Return the kernel's estimate of its clock's offset in seconds, or None where nothing keeps the clock."""
    state = _Timex()
    call = _adjtimex()
    if call is None or call(ctypes.byref(state)) < 0 or state.status & _STATUS_UNSYNCHRONISED:
        return None
    return float(state.offset) * (1e-9 if state.status & _STATUS_NANOSECONDS else 1e-6)


@cache
def _adjtimex() -> Callable[..., int] | None:
    """Return the C library's call, looked up once; None where it has none."""
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    return found
