"""Start the parts of one machine's platform, keep them running, and stop them without losing anything.

Each part is a process of its own over one data folder. A part that dies is started again, later each time; parts die
with their supervisor. The supervisor holds the listening sockets, so a part that restarts keeps its address and
connections wait instead of failing.
"""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.clock import Clock
from secondsight.errors import Retryable

READY_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 30.0
RESTART_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_SECONDS = 10.0
POLL_SECONDS = 0.1
PR_SET_PDEATHSIG = 1
LOG_KEEP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One process of the platform.

    Attributes:
        arguments: What follows `python -m secondsight`.
        ready: Tells whether the part serves; asked until it does.
        sockets: Listening sockets handed down to it.
    """

    name: str
    arguments: tuple[str, ...]
    ready: Callable[[], bool]
    sockets: tuple[socket.socket, ...] = ()


@dataclass(slots=True)
class _Running:
    part: Part
    process: "subprocess.Popen[bytes]"
    started_seconds: float
    failures: int = 0
    restart_at_seconds: float | None = None


@dataclass(slots=True)
class Supervisor:
    """Runs parts in order, and stops them in the reverse of it.

    Attributes:
        report: Called with one line for a person whenever something happens.
        environment: Environment of every part.
    """

    data: Path
    clock: Clock
    report: Callable[[str], None]
    environment: dict[str, str]
    _running: list[_Running] = field(default_factory=list)
    _stopping: bool = False

    def start(self, part: Part) -> None:
        """Start a part and wait until it is ready.

        Raises:
            Retryable: It did not become ready in time; the message names its log.
        """
        running = _Running(part, self._spawn(part), self.clock.monotonic_seconds())
        self._running.append(running)
        deadline = self.clock.monotonic_seconds() + READY_TIMEOUT_SECONDS
        while not part.ready():
            if self._stopping:
                return
            if self.clock.monotonic_seconds() > deadline:
                raise Retryable(f"{part.name} did not start; its last words are at the end of {self._log(part)}")
            self._revive(running)
            self.clock.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Keep the parts running until `request_stop`."""
        while not self._stopping:
            for running in self._running:
                self._revive(running)
            self.clock.sleep(POLL_SECONDS)

    @property
    def is_stopping(self) -> bool:
        """Tell whether somebody asked to stop."""
        return self._stopping

    def request_stop(self) -> None:
        """Make `watch` return; safe in a signal handler."""
        self._stopping = True

    def stop(self) -> bool:
        """Stop every part, last started first; return whether all of them ended by themselves."""
        clean = True
        for running in reversed(self._running):
            clean &= self._end(running)
        self._running.clear()
        return clean

    def processes(self) -> dict[str, int]:
        """Return part name -> process id of those that run."""
        return {running.part.name: running.process.pid for running in self._running if running.process.poll() is None}

    def _spawn(self, part: Part) -> "subprocess.Popen[bytes]":
        log = self._log(part)
        log.parent.mkdir(parents=True, exist_ok=True)
        _cut(log)
        descriptors = tuple(listening.fileno() for listening in part.sockets)
        parent = os.getpid()
        with log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "secondsight", *part.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment,
                pass_fds=descriptors,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )

    def _revive(self, running: _Running) -> None:
        now = self.clock.monotonic_seconds()
        if running.process.poll() is None:
            if running.failures and now - running.started_seconds > STEADY_SECONDS:
                running.failures = 0
            return
        if running.restart_at_seconds is None:
            pause = RESTART_SECONDS[min(running.failures, len(RESTART_SECONDS) - 1)]
            running.restart_at_seconds = now + pause
            code = running.process.returncode
            self.report(
                f"{running.part.name} ended ({_ending(code)}); again in {pause:g} s; see {self._log(running.part)}"
            )
        elif now >= running.restart_at_seconds:
            running.process = self._spawn(running.part)
            running.started_seconds, running.restart_at_seconds = now, None
            running.failures += 1

    def _end(self, running: _Running) -> bool:
        process = running.process
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.report(f"{running.part.name} did not stop in {STOP_TIMEOUT_SECONDS:g} s and was killed")
            process.kill()
            process.wait()
            return False
        return True

    def _log(self, part: Part) -> Path:
        return self.data / "logs" / f"{part.name}.log"


def lock_data(data: Path) -> int:
    """Take the data folder for this process and return the lock's descriptor, which must stay open.

    Raises:
        Retryable: Another platform runs on this folder; the message names its process.
    """
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o700)
    descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise Retryable(
            f"{data} is in use by process {owner or 'unknown'}; stop that one or choose another --data"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket that may be handed down; port 0 picks a free one.

    Raises:
        Retryable: The address is taken or not of this machine.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise Retryable(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen") from error
    listening.listen(1024)
    listening.set_inheritable(True)
    return listening


def answers(host: str, port: int, path: str) -> bool:
    """Tell whether an HTTP server answers a GET of `path` with 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(request)
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


def stop_on_signals(supervisor: Supervisor, signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)) -> None:
    """Let SIGINT and SIGTERM ask the supervisor to stop."""
    for number in signals:
        signal.signal(number, lambda *_: supervisor.request_stop())


def _die_with(parent: int) -> None:
    """Ask the kernel to end this child when its supervisor dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _cut(log: Path) -> None:
    """Keep the last part of a log that has grown too long."""
    if log.exists() and log.stat().st_size > 2 * LOG_KEEP_BYTES:
        kept = log.read_bytes()[-LOG_KEEP_BYTES:]
        log.write_bytes(kept)
