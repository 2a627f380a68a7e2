"""Read small files of sysfs again and again: they stay open, and one that fails is left alone for a while.

Reading some counters makes a restricted device write to the kernel log each time, so failures are not repeated at every
look: after three in a row, a file or the whole device rests for ten minutes.
"""

import errno
import os
from collections.abc import Callable

from secondsight.model import Quality

FAILURES_MAXIMUM = 3
REST_SECONDS = 600.0
READ_BYTES = 64

_QUALITIES = {
    errno.EACCES: Quality.ABSENT_NO_PERMISSION,
    errno.EPERM: Quality.ABSENT_NO_PERMISSION,
    errno.EOPNOTSUPP: Quality.ABSENT_NOT_SUPPORTED,
}
GONE = (errno.ENODEV, errno.ENOENT, errno.ESTALE, errno.ENXIO)
"""The device was taken away."""


class Rest:
    """Counts failures in a row and says whether to leave something alone. Time is monotonic seconds."""

    __slots__ = ("_failures", "_until")

    def __init__(self) -> None:
        self._failures = 0
        self._until: float | None = None

    def is_on(self, now: float) -> bool:
        """Tell whether it is to be left alone; afterwards one more failure brings the next rest."""
        return self._until is not None and now < self._until

    def failed(self, now: float) -> bool:
        """Take note of a failure; True if a rest begins."""
        self._failures += 1
        begins = self._failures >= FAILURES_MAXIMUM
        if begins:
            self._until = now + REST_SECONDS
        return begins

    def succeeded(self) -> None:
        """Take note that it worked."""
        self._failures, self._until = 0, None


class Device:
    """What the files of one device share.

    State and counters rest apart: the state of a port is asked in another way than its counters.

    Attributes:
        begins: Told of the device and the error when a rest begins.
    """

    def __init__(self, name: str, begins: Callable[[str, OSError], None]) -> None:
        self.name = name
        self.states = Rest()
        self.counters = Rest()
        self.is_gone = False
        self.begins = begins


class SysfsFile:
    """One file that is read at every look."""

    __slots__ = ("_device", "_file", "_path", "_rest", "_shared")

    def __init__(self, path: str, device: Device, shared: Rest) -> None:
        """Name a file.

        Args:
            path: Where it is.
            device: Whose it is.
            shared: The device's rest for files of this sort.
        """
        self._path = path
        self._device = device
        self._shared = shared
        self._rest = Rest()
        self._file: int | None = None

    def read(self, now: float) -> bytes | Quality | None:
        """Return the text, or why there is none; None while the file or its device rests."""
        if self._shared.is_on(now) or self._rest.is_on(now):
            return None
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._file, READ_BYTES, 0)
        except OSError as error:
            self.close()
            self._failed(error, now)
            return _QUALITIES.get(error.errno or 0, Quality.ABSENT_SOURCE_BLANK)
        self._rest.succeeded()
        self._shared.succeeded()
        return data

    def close(self) -> None:
        """Close the file; it is opened again when it is read."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _failed(self, error: OSError, now: float) -> None:
        if error.errno in GONE:
            self._device.is_gone = True
            return
        self._rest.failed(now)
        if self._shared.failed(now):
            self._device.begins(self._device.name, error)
