"""End what runs in a store for somebody who has gone.

Whoever asks sets a `Cancellation` around its reads; stores look for it and say how each statement is ended. It follows
`contextvars`, so threads that work for the same asker have to be started with its context.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from secondsight.errors import Retryable, SecondsightError

AGAIN_SECONDS = 0.05
"""A statement that the engine did not know yet is ended once more after so long."""
TRIES_MAXIMUM = 200

_current: "ContextVar[Cancellation | None]" = ContextVar("cancellation", default=None)


class AskerGone(Retryable):
    """Nobody waits for the answer any more."""


class Cancellation:
    """Statements of one asker; safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ends: dict[int, Callable[[], None]] = {}
        self._number = 0
        self._is_cancelled = False

    def cancel(self) -> None:
        """End every statement that runs, and let none begin; returns when none runs any more. May be called twice."""
        with self._changed:
            self._is_cancelled = True
        for _ in range(TRIES_MAXIMUM):
            with self._changed:
                ends = list(self._ends.values())
            if not ends:
                return
            for end in ends:
                _quietly(end)
            with self._changed:
                if self._ends:
                    self._changed.wait(AGAIN_SECONDS)

    @contextmanager
    def running(self, end: Callable[[], None]) -> Iterator[None]:
        """Hold a statement that `end` ends while the block runs; `end` may be called before it began, and often.

        Raises:
            AskerGone: It was cancelled, before or meanwhile.
        """
        with self._changed:
            if self._is_cancelled:
                raise AskerGone("nobody waits for this answer")
            self._number += 1
            number = self._number
            self._ends[number] = end
        try:
            yield
        except SecondsightError as error:
            if self._is_cancelled:
                raise AskerGone("nobody waits for this answer") from error
            raise
        finally:
            with self._changed:
                del self._ends[number]
                self._changed.notify_all()


@contextmanager
def cancellable(cancellation: Cancellation) -> Iterator[None]:
    """Let a cancellation end what is read within the block."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """Hold a statement for the asker of this context, if there is one.

    Raises:
        AskerGone: The asker has gone.
    """
    current = _current.get()
    if current is None:
        yield
        return
    with current.running(end):
        yield


def _quietly(end: Callable[[], None]) -> None:
    try:
        end()
    except SecondsightError:
        return  # it is tried again while the statement runs, which has a deadline of its own
