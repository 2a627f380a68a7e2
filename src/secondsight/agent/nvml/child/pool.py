"""Let one worker after another go through the GPUs, so that one that hangs costs its own tick alone.

While all is well a single thread reads all GPUs, which costs least. As soon as one GPU takes longer than others should
wait, more workers take over the rest, and the one that hangs is left to its worker until the call returns. There are
never more threads than GPUs and one.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue

from secondsight.agent.nvml.child.device import Device
from secondsight.clock import Clock

PATIENCE_SECONDS = 0.1
"""How long the GPUs behind one wait for it before others go on with them."""


class Round:
    """One piece of work for several GPUs.

    Attributes:
        done: GPUs of which it is done, in that order.
    """

    def __init__(self, devices: Sequence[Device], work: Callable[[Device], None]) -> None:
        self.todo = deque(devices)
        self.work = work
        self.done: list[Device] = []
        self._expected = len(devices)
        self._is_over = threading.Event()

    def note(self, device: Device) -> None:
        """Take note that one GPU is done. Whoever waits is woken by the last one alone."""
        self.done.append(device)
        if len(self.done) == self._expected:
            self._is_over.set()

    def wait(self, seconds: float) -> bool:
        """Wait until all is done; return whether it is, or something was done meanwhile."""
        before = len(self.done)
        return self._is_over.wait(seconds) or len(self.done) > before


class Pool:
    """Workers that call the driver. `run` is for one thread."""

    def __init__(self, clock: Clock, report: Callable[[str], None]) -> None:
        self._clock = clock
        self._report = report
        self._rounds: SimpleQueue[Round] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._threads = 0

    def run(self, devices: Iterable[Device], work: Callable[[Device], None], deadline_seconds: float) -> list[Device]:
        """Do a piece of work for every GPU that no worker is at, and return those that were done in time."""
        free = [device for device in devices if device.busy_since is None]
        current = Round(free, work)
        now = self._clock.monotonic_seconds()
        end = now + deadline_seconds
        for device in free:
            device.busy_since = now
        if free:
            self._start(current, 1)
        while len(current.done) < len(free):
            left_seconds = end - self._clock.monotonic_seconds()
            if left_seconds <= 0:
                break
            if not current.wait(min(left_seconds, PATIENCE_SECONDS)):
                self._start(current, len(current.todo))
        done = list(current.done)
        for device in _rest(current.todo):
            device.busy_since = None
        return done

    def _start(self, current: Round, workers: int) -> None:
        for _ in range(workers):
            with self._lock:
                is_needed = self._free == 0
                self._free += is_needed
                self._threads += is_needed
            if is_needed:
                threading.Thread(target=self._serve, name=f"driver-{self._threads}", daemon=True).start()
            with self._lock:
                self._free -= 1
            self._rounds.put(current)

    def _serve(self) -> None:
        while True:
            current = self._rounds.get()
            for device in _rest(current.todo):
                self._serve_one(current, device)
            with self._lock:
                self._free += 1

    def _serve_one(self, current: Round, device: Device) -> None:
        device.busy_since = self._clock.monotonic_seconds()
        try:
            current.work(device)
        except Exception as error:  # noqa: BLE001 # a fault at one GPU must not end the worker of all
            device.code = getattr(error, "value", 999)
            self._report(f"reading {device.listed.uuid} failed: {error!r}")
        finally:
            device.busy_since = None
            current.note(device)


def _rest(todo: deque[Device]) -> Iterator[Device]:
    """Give what is left to do, each GPU to one taker only."""
    while True:
        try:
            yield todo.popleft()
        except IndexError:
            return
