"""Hold the driver child: start it, ask it, wait no longer than a deadline, replace it when it is of no use.

A child that died or must be replaced is started anew with back-off. One that hangs is told to end and left behind,
never killed: ending in the middle of a driver call can harm the GPU. No more than a few may be left behind at a time;
while they hang, no further child is started.
"""

import logging
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from secondsight.agent.nvml import channel
from secondsight.agent.nvml.decode import Layout
from secondsight.clock import Clock
from secondsight.errors import Retryable

logger = logging.getLogger(__name__)

RESTART_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LIVED_SECONDS = 60.0
"""A child that lived so long makes the next start an immediate one again."""

JITTER = 0.2
LEFT_BEHIND_MAXIMUM = 2
EVENTS_MAXIMUM = 4096
CLOSE_SECONDS = 1.0
COMMAND = (sys.executable, "-m", "secondsight.agent.nvml.child")
_OUTLIVING: list[subprocess.Popen[bytes]] = []
"""Children that outlived their driver; held, as letting go of a process that runs is an error to Python."""

UNRECOVERABLE = {112: "found no library of the driver", 118: "holds the library of another driver"}


@dataclass(frozen=True, slots=True)
class Record:
    """What the child sent of one GPU, or of one GPU instance."""

    number: int
    what: int
    instance: int
    layout: Layout | None
    busy_ms: int
    code: int
    taken_us: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Values:
    """The answer to one tick.

    Attributes:
        code: 0 while the driver is ready, `channel.STARTING`, or the code that it refused with.
        epoch: Grows with each initialisation of one child.
        listed: GPUs that the driver counts.
    """

    epoch: int
    code: int
    listed: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class ProcessLists:
    """Processes of one GPU, as the driver wrote them.

    Attributes:
        lists: Structures of compute, graphics and MPS processes.
        utilization: Samples of how much each used.
    """

    number: int
    lists: tuple[bytes, ...]
    utilization: bytes


class _Child:
    """One child process with its pipes."""

    def __init__(self, plan: bytes, environment: dict[str, str], now: float) -> None:
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True, bufsize=0
        )
        if self.process.stdin is None or self.process.stdout is None:
            raise Retryable("the driver child has no pipes")
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.input, False)
        os.set_blocking(self.output, False)
        self.inbox = channel.Inbox()
        self.layouts: dict[int, Layout] = {}
        self.started = now
        self.silent_since: float | None = None
        self.write(channel.packed(channel.PLAN, plan))

    def write(self, message: bytes) -> None:
        """Write a message.

        Raises:
            Retryable: The pipe is full or closed.
        """
        try:
            written = os.write(self.input, message)
        except OSError as error:
            raise Retryable(f"the driver child takes nothing: {error.strerror}") from error
        if written < len(message):
            raise Retryable("the driver child takes nothing")

    def close_pipes(self) -> None:
        """Let go of the pipes, which tells the child to end."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Driver:
    """The driver, through a child process. Safe to call from threads.

    Attributes:
        generation: Grows with each child, so that what one child said is not taken for another's.
        devices: The newest list of GPUs, as the child sent it, None before the first.
        device_changes: Grows with each list.
        newest: The newest answer to a tick, None before the first and while there is no child.
        answered: When it came, monotonic seconds.
        trouble: Why the last child was given up, "" where none was.
    """

    def __init__(
        self,
        plan: bytes,
        environment: Callable[[], dict[str, str]],
        clock: Clock,
        random: Callable[[], float],
        *,
        abandon_seconds: float = 60.0,
    ) -> None:
        self.generation = 0
        self.devices: bytes | None = None
        self.device_changes = 0
        self.newest: Values | None = None
        self.answered: float | None = None
        self.trouble = ""
        self._plan = plan
        self._environment = environment
        self._clock = clock
        self._random = random
        self._abandon_seconds = abandon_seconds
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._left_behind: list[_Child] = []
        self._failures = 0
        self._start_at = 0.0
        self._number = 0
        self._events: deque[bytes] = deque(maxlen=EVENTS_MAXIMUM)
        self._rare: list[Record] = []
        self._closed = False

    def tick(self, wait_seconds: float, deadline_seconds: float) -> Values | None:
        """Have every GPU read, and return what came in time; None if the child says nothing.

        Args:
            wait_seconds: Longest that this call takes.
            deadline_seconds: Longest that the child waits for a GPU; less than the above.
        """
        payload = self._ask(channel.TICK, channel.VALUES, wait_seconds, deadline_seconds)
        return payload if isinstance(payload, Values) else None

    def processes(self, wait_seconds: float, deadline_seconds: float) -> Sequence[ProcessLists]:
        """Return the processes of every GPU that answers in time."""
        payload = self._ask(channel.PROCESSES, channel.PROCESS_LISTS, wait_seconds, deadline_seconds)
        return payload if isinstance(payload, list) else ()

    def take_events(self) -> list[bytes]:
        """Return the events that came since the last call."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            return events

    def take_rare(self) -> list[Record]:
        """Return what the child read rarely and sent since the last call."""
        with self._lock:
            rare, self._rare = self._rare, []
            return rare

    @property
    def pid(self) -> int | None:
        """Return the process of the child, if there is one."""
        child = self._child
        return None if child is None else child.process.pid

    def close(self) -> None:
        """Tell all children to end and wait a moment for them; may be called twice."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.close_pipes()
                self._left_behind.append(self._child)
                self._child = None
            end = self._clock.monotonic_seconds() + CLOSE_SECONDS
            for child in self._left_behind:
                try:
                    child.process.wait(max(end - self._clock.monotonic_seconds(), 0.0))
                except subprocess.TimeoutExpired:
                    logger.warning("the driver child %d is inside a driver call and ends after it", child.process.pid)
                    _OUTLIVING.append(child.process)
            self._left_behind.clear()

    def _ask(self, kind: int, answer: int, wait_seconds: float, deadline_seconds: float) -> object:
        end = self._clock.monotonic_seconds() + wait_seconds
        if not self._lock.acquire(timeout=wait_seconds):
            return None
        try:
            child = self._usable()
            if child is None:
                return None
            self._number = (self._number + 1) % 2**32
            child.write(channel.packed(kind, channel.REQUEST.pack(self._number, int(deadline_seconds * 1000))))
            return self._answer(child, answer, end)
        except (Retryable, ValueError, LookupError, struct.error) as error:
            self._fail(str(error))
            return None
        finally:
            self._lock.release()

    def _usable(self) -> _Child | None:
        """Return the child, started if that is due."""
        self._left_behind = [child for child in self._left_behind if child.process.poll() is None]
        now = self._clock.monotonic_seconds()
        if self._child is not None or self._closed or now < self._start_at:
            return self._child
        if len(self._left_behind) >= LEFT_BEHIND_MAXIMUM:
            return None
        try:
            self._child = _Child(self._plan, self._environment(), now)
        except (OSError, Retryable) as error:
            self._fail(f"it cannot be started: {error}")
            return None
        self.generation += 1
        self._rare.clear()
        return self._child

    def _answer(self, child: _Child, answer: int, end: float) -> object:
        """Return the answer with the newest number, taking in all else that comes."""
        poll = select.poll()
        poll.register(child.output, select.POLLIN)
        while True:
            while (message := child.inbox.take()) is not None:
                found = self._take(child, *message)
                if found is not None and message[0] == answer:
                    self._judge(child, found)
                    return found
            left_ms = int((end - self._clock.monotonic_seconds()) * 1000)
            if left_ms <= 0 or not poll.poll(left_ms):
                self._note_silence(child)
                return None
            self._read(child)

    def _read(self, child: _Child) -> None:
        try:
            chunk = os.read(child.output, channel.READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            code = child.process.wait(CLOSE_SECONDS) if child.process.poll() is None else child.process.returncode
            raise Retryable(UNRECOVERABLE.get(code, f"it ended with {code}"))
        child.inbox.feed(chunk)

    def _take(self, child: _Child, kind: int, payload: bytes) -> object:
        """Take in a message; return it if it is an answer to the newest request."""
        match kind:
            case channel.LAYOUT:
                child.layouts[int.from_bytes(payload[:4], "little")] = Layout(payload[4:].decode())
            case channel.DEVICES:
                self.devices = payload
                self.device_changes += 1
            case channel.EVENT:
                self._events.append(payload)
            case channel.VALUES:
                number, values = _values(payload, child.layouts)
                self._rare += [record for record in values.records if record.what == channel.SLOW]
                return values if number == self._number else None
            case channel.PROCESS_LISTS:
                number, lists = _process_lists(payload)
                return lists if number == self._number else None
            case _:
                raise Retryable(f"it sent a message of the unknown kind {kind}")
        return None

    def _judge(self, child: _Child, answer: object) -> None:
        """Leave a child behind that answers but has had no word of any GPU for long."""
        now = self._clock.monotonic_seconds()
        if now - child.started > LIVED_SECONDS:
            self._failures = 0
        if not isinstance(answer, Values):
            return
        self.newest, self.answered = answer, now
        busy = [record.what == channel.BUSY for record in answer.records]
        is_silent = answer.code == channel.STARTING or (bool(busy) and all(busy))
        if not is_silent:
            child.silent_since = None
        else:
            self._note_silence(child)

    def _note_silence(self, child: _Child) -> None:
        now = self._clock.monotonic_seconds()
        if child.silent_since is None:
            child.silent_since = now
        if now - child.silent_since >= self._abandon_seconds:
            raise Retryable(f"it has said nothing of any GPU for {now - child.silent_since:.0f} s")

    def _fail(self, why: str) -> None:
        """Let go of the child and start another one after a while."""
        child, self._child = self._child, None
        self.newest, self.trouble = None, why
        wait_seconds = RESTART_SECONDS[min(self._failures, len(RESTART_SECONDS) - 1)]
        wait_seconds *= 1 + JITTER * (2 * self._random() - 1)
        self._failures += 1
        self._start_at = self._clock.monotonic_seconds() + wait_seconds
        logger.warning("the driver child is given up (%s), the next starts in %.1f s", why, wait_seconds)
        if child is None:
            return
        child.close_pipes()
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
            self._left_behind.append(child)


def _values(payload: bytes, layouts: dict[int, Layout]) -> tuple[int, Values]:
    number, epoch, code, listed, count = channel.VALUES_HEAD.unpack_from(payload)
    at = channel.VALUES_HEAD.size
    records: list[Record] = []
    for _ in range(count):
        device, what, instance, layout_number, busy_ms, gpu_code, taken_us = channel.RECORD_HEAD.unpack_from(
            payload, at
        )
        at += channel.RECORD_HEAD.size
        layout = None if what == channel.BUSY else layouts[layout_number]
        size = 0 if layout is None else layout.record_bytes
        body = payload[at : at + size]
        at += size
        records.append(Record(device, what, instance, layout, busy_ms, gpu_code, taken_us, body))
    return number, Values(epoch, code, listed, tuple(records))


def _process_lists(payload: bytes) -> tuple[int, list[ProcessLists]]:
    number, count = int.from_bytes(payload[:4], "little"), int.from_bytes(payload[4:8], "little")
    at = 8
    found: list[ProcessLists] = []
    for _ in range(count):
        device, *sizes = (int.from_bytes(payload[at + 4 * place : at + 4 * place + 4], "little") for place in range(5))
        at += 20
        pieces: list[bytes] = []
        for size in sizes:
            pieces.append(payload[at : at + size])
            at += size
        found.append(ProcessLists(device, tuple(pieces[:-1]), pieces[-1]))
    return number, found
