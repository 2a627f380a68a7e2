"""Turn datagrams of jobs into a bounded pile that a reader takes at its ticks.

A thread waits for datagrams and takes them off the socket at once, as the kernel queues only a few. What the pile does
not hold, or comes faster than it may, stays in the kernel's queue; a sender then drops it and says so. Who sent what is
known from the kernel.
"""

import contextlib
import grp
import os
import select
import socket
import stat
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.training.config import TrainingConfig
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable
from secondsight.training import DATAGRAM_BYTES_MAXIMUM

PAUSE_SECONDS = 0.1
"""How long datagrams may gather before they are taken together."""
SEQUENCE_KEY, EVENTS_KEY = b'"seq":', b'"e":['
"""What is before the first is the same in every datagram of a process; one without the second tells no event."""
_CREDENTIALS = struct.Struct("iII")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size)


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram; `heard` is when it was taken, monotonic seconds; pid 0 and uid None are unknown."""

    data: bytes
    heard: float
    pid: int
    uid: int | None


class Receiver:
    """Holds the socket and its thread. `close` may be called twice.

    Raises:
        Rejected: `bad_config`, the group does not exist.
        Retryable: Another process serves the socket, or the folder refuses it.
    """

    def __init__(self, config: TrainingConfig, clock: Clock) -> None:
        self._clock = clock
        self._path = config.socket
        self._limit_bytes = config.buffer_mib << 20
        self._burst = max(int(config.datagrams_per_second * PAUSE_SECONDS), 1)
        self._pile: list[Datagram] = []
        self._pile_bytes = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._socket, self._inode = _serve(config)
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._run, name="read-training-socket", daemon=True)
        self._thread.start()

    def take(self) -> list[Datagram]:
        """Return what came since the last call, in order, without what a later datagram of the sender says too."""
        with self._lock:
            taken, self._pile, self._pile_bytes = self._pile, [], 0
        newest = {_sender_part(datagram): number for number, datagram in enumerate(taken)}
        kept = set(newest.values())
        return [one for number, one in enumerate(taken) if number in kept or EVENTS_KEY in one.data]

    def is_served(self) -> bool:
        """Tell whether the socket is still there under its name."""
        try:
            return self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Stop the thread and take the socket away."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.close(self._woken)
        self._thread.join()
        os.close(self._wake)
        if self.is_served():
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._socket.close()

    def _run(self) -> None:
        poll = select.poll()  # descriptors of any number, where select.select() takes none above 1023
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._stopping.is_set():
            poll.poll()
            self._drain()
            self._stopping.wait(PAUSE_SECONDS)

    def _drain(self) -> None:
        for _ in range(self._burst):
            if self._pile_bytes >= self._limit_bytes:
                return
            try:
                data, ancillary, _, _ = self._socket.recvmsg(DATAGRAM_BYTES_MAXIMUM, _ANCILLARY_BYTES)
            except OSError:
                return
            pid, uid = _sender(ancillary)
            with self._lock:
                self._pile.append(Datagram(data, self._clock.monotonic_seconds(), pid, uid))
                self._pile_bytes += len(data) + 200


def _sender_part(datagram: Datagram) -> tuple[int, int | None, bytes]:
    """Return what all datagrams of a process have in common, and none of another, whatever that says it is."""
    return datagram.pid, datagram.uid, datagram.data.partition(SEQUENCE_KEY)[0]


def _sender(ancillary: "list[tuple[int, int, bytes]]") -> tuple[int, int | None]:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            pid, uid, _ = _CREDENTIALS.unpack(data)
            return pid, uid
    return 0, None


def _serve(config: TrainingConfig) -> tuple[socket.socket, int]:
    """Return the socket, bound under its name with its permissions, and its inode."""
    path = config.socket
    made = path.with_name(f"{path.name}.{os.getpid()}")
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_free(path)
        with contextlib.suppress(FileNotFoundError):
            made.unlink()
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        one.bind(str(made))
        _give_to_group(made, config.group)
        made.chmod(int(config.mode, 8))
        made.rename(path)
        return one, path.stat().st_ino
    except OSError as error:
        one.close()
        hint = "create its folder for the agent's user, or name another in [agent.training] socket"
        raise Retryable(f"jobs cannot reach {path}: {error.strerror}; {hint}") from error
    except BaseException:
        one.close()
        raise


def _require_free(path: Path) -> None:
    """Refuse a name that another process serves, or that is no socket; a dead one is replaced."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Rejected("bad_config", f"agent.training.socket: {path} exists and is no socket", "name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return
    raise Retryable(f"another process serves {path}: is a second agent running on this host?")


def _give_to_group(path: Path, group: str) -> None:
    if not group:
        return
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        raise Rejected(
            "bad_config", f"agent.training.group: no group {group!r}", "create it, or leave it out"
        ) from None
    os.chown(path, -1, number)
