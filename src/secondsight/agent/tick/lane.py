"""Call one reader at a time for one tick, hand over what it took, and know what it is at.

A read that is not back within its deadline has missed the tick: it is counted, left alone, and the reader is not called
again until it returns; of what it then returns only events and facts are kept. A fault of a reader costs its tick
alone.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from secondsight.agent.counts import Counts
from secondsight.clock import Clock
from secondsight.contracts import Reader, Tick
from secondsight.errors import SecondsightError

logger = logging.getLogger(__name__)

DEADLINE_SHARE = 0.8
"""Share of its interval that a reader may take."""

JOIN_SECONDS = 5.0

Deliver = Callable[[Reader, int, Tick], None]
"""Takes what a reader took at a tick (epoch ms). Called from a thread that reads; must not block for long."""


@dataclass(frozen=True, slots=True)
class Duration:
    """What one read took; kept for the agent's own metrics.

    Attributes:
        processor_seconds: Of the thread that read, handing over included; what other processes did for it is not in it.
    """

    source: str
    seconds: float
    processor_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told of what.

    Attributes:
        deliver: Takes what readers took.
        observe: Told what each read took, from the thread that read.
        stepped: Told when the wall clock was stepped.
    """

    deliver: Deliver
    observe: Callable[[Duration], None] = lambda _duration: None
    stepped: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class ReaderState:
    """What one reader is at; instants are monotonic seconds.

    Attributes:
        reading_since: When the read under way began, None between reads.
        is_late: The read under way has missed its deadline.
        ended: When the last read ended, well or not; None before the first.
        took_seconds: How long that read took.
        is_failing: It failed.
        error: Words of the last failure, "" where there was none.
        error_at: When that was.
    """

    name: str
    interval_ms: int
    reading_since: float | None = None
    is_late: bool = False
    ended: float | None = None
    took_seconds: float = 0.0
    is_failing: bool = False
    error: str = ""
    error_at: float | None = None


class Lane:
    """One reader with the tick that it is at. `take` is for one thread at a time, the rest for any."""

    def __init__(self, reader: Reader, hooks: Hooks, clock: Clock, counts: Counts) -> None:
        self.name = reader.name
        self._reader = reader
        self._hooks = hooks
        self._clock = clock
        self._counts = counts
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._tick_ms = 0
        self._deadline = 0.0
        self._given_up = False
        self._failing = False
        self._reading_since: float | None = None
        self._last: tuple[float, float] | None = None
        self._error: tuple[str, float] | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether it is at no tick."""
        return self._idle.is_set()

    def state(self) -> ReaderState:
        """Return what the reader is at."""
        ended, took_seconds = self._last or (None, 0.0)
        error, error_at = self._error or ("", None)
        reading_since, is_late = self._reading_since, self._given_up
        named = (self.name, self._reader.interval_ms, reading_since, is_late and reading_since is not None)
        return ReaderState(*named, ended, took_seconds, self._failing, error, error_at)

    def offer(self, tick_ms: int, now: float) -> bool:
        """Give the reader a tick, for which `take` is to be called; False if it is still at an earlier one."""
        if not self._idle.is_set():
            return False
        self._tick_ms = tick_ms
        self._deadline = now + DEADLINE_SHARE * self._reader.interval_ms / 1000
        self._given_up = False
        self._idle.clear()
        return True

    def check_deadline(self, now: float) -> None:
        """Give up on a tick whose deadline has passed."""
        with self._lock:
            if self._idle.is_set() or self._given_up or now < self._deadline:
                return
            self._given_up = True
        self._counts.add("ticks_missed")
        self._counts.add(f"read_timed_out:{self.name}")
        logger.warning("%s is too slow, its tick is given up", self.name)

    def end(self) -> bool:
        """Wait until it is at no tick and close the reader; False if it hangs, and is then left to itself."""
        if not self._idle.wait(JOIN_SECONDS):
            return False
        self._reader.close()
        return True

    def take(self) -> None:
        """Take the tick that was offered. Never raises."""
        began = self._reading_since = self._clock.monotonic_seconds()
        used = self._clock.processor_seconds()
        tick = self._read(self._tick_ms)
        ended = self._clock.monotonic_seconds()
        self._reading_since, self._last = None, (ended, ended - began)
        self.check_deadline(ended)
        if tick is not None and self._given_up:
            tick = _what_happened(tick)
        if tick is not None:
            self._hand_over(self._tick_ms, tick)
        self._hooks.observe(Duration(self.name, ended - began, self._clock.processor_seconds() - used))
        self._idle.set()

    def _read(self, tick_ms: int) -> Tick | None:
        try:
            tick = self._reader.read(tick_ms)
        except (SecondsightError, OSError) as error:
            self._note_failure(error, "%s fails: %s")
        except Exception as error:  # noqa: BLE001 # one reader's bug must not end the others; counted and logged
            self._note_failure(error, "%s is broken: %r")
        else:
            if self._failing:
                logger.info("%s is back", self.name)
            self._failing = False
            return tick
        return None

    def _note_failure(self, error: Exception, message: str) -> None:
        """Count a failed read, and log it if the one before did not fail."""
        self._counts.add(f"read_failed:{self.name}")
        self._error = (str(error) or repr(error), self._clock.monotonic_seconds())
        with self._lock:
            if not self._given_up:
                self._counts.add("ticks_missed")
        if not self._failing:
            logger.warning(message, self.name, error, exc_info=not isinstance(error, (SecondsightError, OSError)))
        self._failing = True

    def _hand_over(self, tick_ms: int, tick: Tick) -> None:
        try:
            self._hooks.deliver(self._reader, tick_ms, tick)
        except Exception:
            logger.exception("a tick of %s could not be kept", self.name)
            self._counts.add("ticks_missed")


def _what_happened(tick: Tick) -> Tick | None:
    """Return a tick that came too late without its readings; events and facts carry times of their own and stay."""
    kept = [content for content in tick.contents if content.events or content.infos]
    contents = tuple(replace(content, scalars=None, histograms=()) for content in kept)
    return replace(tick, contents=contents) if contents else None
