"""Do pieces of work one after another on one thread, as long as none is slow.

Threads that read at once take the interpreter from each other at every system call, and each has to be woken. So one
worker goes through the pieces of a round; when a piece is slow, another worker takes over those behind it, and the slow
one is left to its own. There are never more threads than pieces that are slow, and one.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue

from secondsight.agent.threads import name_thread

PATIENCE_SECONDS = 0.05
"""How long the pieces behind one wait for it before another worker goes on with them."""

Piece = Callable[[], None]
"""Must not raise."""


class _Round:
    """Pieces that are due together."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._todo = deque(pieces)
        self.is_taken = threading.Event()

    def rest(self) -> Iterator[Piece]:
        """Give what is left to do, each piece to one taker only."""
        while True:
            try:
                piece = self._todo.popleft()
            except IndexError:
                return
            if not self._todo:
                self.is_taken.set()
            yield piece


class Workers:
    """The threads. One thread calls `run` and `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rounds: SimpleQueue[_Round | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._threads = 0

    def run(self, pieces: Sequence[Piece]) -> None:
        """Have pieces done, in their order; returns as soon as each is being done or was."""
        if not pieces:
            return
        current = _Round(pieces)
        self._put(current)
        while not current.is_taken.wait(PATIENCE_SECONDS):
            self._put(current)

    def end(self) -> None:
        """Let the threads end, each after what it is at; may be called twice."""
        for _ in range(self._threads):
            self._rounds.put(None)

    def _put(self, current: _Round) -> None:
        """Give a round to a free worker, or to a new one."""
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._rounds.put(current)

    def _serve(self) -> None:
        name_thread()
        while (current := self._rounds.get()) is not None:
            for piece in current.rest():
                piece()
            with self._lock:
                self._free += 1
