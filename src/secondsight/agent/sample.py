"""Call every reader at its ticks and hand over what it took.

Each reader has a thread of its own. One that does not come back within its deadline has missed the tick: it is counted,
left alone, and not called again until it returns; of what it then returns only events and facts are kept. Others are
not delayed. A fault of a reader costs its tick alone.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from secondsight.agent.counts import Counts
from secondsight.agent.schedule import Schedule, phase_ms
from secondsight.agent.threads import name_thread
from secondsight.clock import Clock
from secondsight.contracts import Reader, Tick
from secondsight.errors import SecondsightError

logger = logging.getLogger(__name__)

DEADLINE_SHARE = 0.8
"""Share of its interval that a reader may take."""

LOOK_SECONDS = 1.0
"""Longest between two looks at what is due and what hangs."""

TURN_SECONDS = 0.05
"""How long a reader waits for those before it.

Readers of one tick read one after the other as long as none is slow: at once they would take the interpreter from each
other at every system call.
"""

JOIN_SECONDS = 5.0

Deliver = Callable[[Reader, int, Tick], None]
"""Takes what a reader took at a tick (epoch ms). Called from the reader's thread; must not block for long."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How long one read took; kept for the agent's own metrics."""

    source: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told of what.

    Attributes:
        deliver: Takes what readers took.
        observe: Told how long each read took, from the reader's thread.
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


class Sampler:
    """Runs readers until stopped. `start` once, `stop` once; `stop` may be called again.

    Counts `ticks_missed`, `clock_stepped`, `read_failed:NAME` and `read_timed_out:NAME`.
    """

    def __init__(self, readers: Sequence[Reader], hooks: Hooks, clock: Clock, counts: Counts, *, host_id: str) -> None:
        self._hooks = hooks
        self._stopping = threading.Event()
        turn = threading.Lock()
        self._lanes = [_Lane(reader, hooks, clock, counts, turn) for reader in readers]
        self._schedules = [Schedule(r.interval_ms, phase_ms(host_id, r.interval_ms)) for r in readers]
        self._clock = clock
        self._counts = counts
        self._looked: float | None = None
        self._thread = threading.Thread(target=self._run, name="sample", daemon=True)

    @property
    def looked(self) -> float | None:
        """Return when it last looked for what is due, monotonic seconds; None before the first look."""
        return self._looked

    @property
    def states(self) -> list[ReaderState]:
        """Return what every reader is at."""
        return [lane.state() for lane in self._lanes]

    def start(self) -> None:
        """Start the threads."""
        for lane in self._lanes:
            lane.start()
        self._thread.start()

    def stop(self) -> list[str]:
        """Stop calling readers, wait for those that are at it, close them; return the names of those still hanging."""
        self._stopping.set()
        self._thread.join()
        for lane in self._lanes:
            lane.ask_to_end()
        return [lane.name for lane in self._lanes if not lane.end()]

    def _run(self) -> None:
        name_thread()
        while not self._stopping.is_set():
            wait_seconds = self.look()
            self._stopping.wait(wait_seconds)

    def look(self) -> float:
        """Give every reader the tick that is due, and return for how many seconds nothing more is."""
        waits = [LOOK_SECONDS]
        now_ms, now = self._clock.now_ms(), self._clock.monotonic_seconds()
        self._looked = now
        dues = [schedule.look(now_ms, now) for schedule in self._schedules]
        if any(due.stepped for due in dues):
            self._counts.add("clock_stepped")
            self._hooks.stepped()
        for lane, due in zip(self._lanes, dues, strict=True):
            lane.check_deadline(now)
            if due.skipped:
                self._counts.add("ticks_missed", due.skipped)
            if due.tick_ms is not None and not lane.offer(due.tick_ms, now):
                self._counts.add("ticks_missed")
            waits.append(due.wait_seconds)
        return max(min(waits), 0.0)


class _Lane:
    """One reader with its thread and the tick that it is at."""

    def __init__(self, reader: Reader, hooks: Hooks, clock: Clock, counts: Counts, turn: threading.Lock) -> None:
        self.name = reader.name
        self._turn = turn
        self._reader = reader
        self._hooks = hooks
        self._clock = clock
        self._counts = counts
        self._changed = threading.Condition()
        self._tick_ms: int | None = None
        self._deadline: float | None = None
        self._given_up = False
        self._failing = False
        self._ending = False
        self._reading_since: float | None = None
        self._last: tuple[float, float] | None = None
        self._error: tuple[str, float] | None = None
        self._thread = threading.Thread(target=self._run, name=f"read-{reader.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def state(self) -> ReaderState:
        """Return what the reader is at."""
        ended, took_seconds = self._last or (None, 0.0)
        error, error_at = self._error or ("", None)
        reading_since, is_late = self._reading_since, self._given_up
        named = (self.name, self._reader.interval_ms, reading_since, is_late and reading_since is not None)
        return ReaderState(*named, ended, took_seconds, self._failing, error, error_at)

    def offer(self, tick_ms: int, now: float) -> bool:
        """Give the reader a tick to take; False if it is still at an earlier one."""
        with self._changed:
            if self._tick_ms is not None:
                return False
            self._tick_ms = tick_ms
            self._deadline = now + DEADLINE_SHARE * self._reader.interval_ms / 1000
            self._given_up = False
            self._changed.notify()
            return True

    def check_deadline(self, now: float) -> None:
        """Give up on a tick whose deadline has passed."""
        with self._changed:
            if self._deadline is None or self._given_up or now < self._deadline:
                return
            self._given_up = True
        self._counts.add("ticks_missed")
        self._counts.add(f"read_timed_out:{self.name}")
        logger.warning("%s is too slow, its tick is given up", self.name)

    def ask_to_end(self) -> None:
        """Let the thread end after the read that it is at."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def end(self) -> bool:
        """Wait for the thread and close the reader; False if it hangs, and is then left to itself."""
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            return False
        self._reader.close()
        return True

    def _run(self) -> None:
        name_thread()
        while (tick_ms := self._next()) is not None:
            is_its_turn = self._turn.acquire(timeout=TURN_SECONDS)
            try:
                self._take(tick_ms)
            finally:
                if is_its_turn:
                    self._turn.release()
            with self._changed:
                self._tick_ms = self._deadline = None

    def _take(self, tick_ms: int) -> None:
        started = self._reading_since = self._clock.monotonic_seconds()
        tick = self._read(tick_ms)
        ended = self._clock.monotonic_seconds()
        self._reading_since, self._last = None, (ended, ended - started)
        self._hooks.observe(Duration(self.name, ended - started))
        self.check_deadline(ended)
        with self._changed:
            given_up = self._given_up
        if tick is not None and given_up:
            tick = _what_happened(tick)
        if tick is not None:
            self._hand_over(tick_ms, tick)

    def _next(self) -> int | None:
        with self._changed:
            while self._tick_ms is None and not self._ending:
                self._changed.wait()
            return self._tick_ms

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
        with self._changed:
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
