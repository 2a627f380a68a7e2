"""Hold ticks for a few seconds, so that those of one reader are spooled as one frame of several ticks.

What is alike (reader, cadence, definitions, correction of the clock) is joined; order within it is kept. Ticks with
events or facts are not held, and what waits goes with them. Whoever ships writes what is due; when nobody does, as a
gateway does not answer, ticks that come later do. A journal holds what is held too, for when the process ends badly.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from secondsight.agent.spool.minutes import MINUTE_MS
from secondsight.agent.write.journal import Journal
from secondsight.agent.write.writer import Stamped, TickWriter
from secondsight.clock import Clock
from secondsight.contracts import Reader, Tick
from secondsight.wire.content import Content, clock_correction_ms
from secondsight.wire.header import Stamp
from secondsight.wire.merge import join
from secondsight.wire.schema import Definitions

logger = logging.getLogger(__name__)

NEARLY_DUE_SHARE = 0.8
"""What is held so long, as a share of the time to hold, may go when somebody looks anyhow."""

OVERDUE_SHARE = 1.5
"""What is held so long waits for nobody."""


@dataclass(slots=True)
class _Alike:
    """Ticks that become one frame."""

    stamp: Stamp
    contents: list[Content]
    times_ms: list[int]


class HeldTicks:
    """Ticks on their way to the spool. Safe to call from threads.

    With `hold_seconds` 0 nothing is held.
    """

    def __init__(self, writer: TickWriter, journal: Journal, clock: Clock, hold_seconds: float) -> None:
        self._writer = writer
        self._journal = journal
        self._clock = clock
        self._hold_seconds = hold_seconds
        self._lock = threading.Lock()
        self._alike: dict[tuple[object, ...], _Alike] = {}
        self._closed: list[_Alike] = []
        self._ticks = 0
        self._since: float | None = None

    @property
    def ticks(self) -> int:
        """Return how many ticks are held."""
        return self._ticks

    def recover(self, known: Definitions) -> None:
        """Write what an earlier process held when it ended; call it first."""
        found = self._journal.recover(known)
        if found:
            self._writer.write_again(found)
            logger.info("%d contents that were held when the agent ended badly are spooled", len(found))
        for number in (0, 1):
            self._journal.spooled(number)

    def write(self, reader: Reader, tick_ms: int, tick: Tick) -> None:
        """Take what a reader took at `tick_ms`."""
        if self._hold_seconds <= 0 or tick.earlier or any(one.events or one.infos for one in tick.contents):
            self.flush()
            self._writer.write(reader, tick_ms, tick)
        elif tick.contents:
            stamp = self._writer.stamp(reader, tick_ms, tick)
            with self._lock:
                self._add(stamp, tick.contents)
                self._journal.append([Stamped(stamp, content) for content in tick.contents])
            if self._age_seconds() >= OVERDUE_SHARE * self._hold_seconds:
                self.flush()

    def write_due(self) -> float:
        """Write what is due, and return for how many seconds nothing more is."""
        age = self._age_seconds()
        if age < NEARLY_DUE_SHARE * self._hold_seconds:
            return self._hold_seconds - max(age, 0.0)
        self.flush()
        return self._hold_seconds

    def flush(self) -> None:
        """Write everything."""
        with self._lock:
            alike = [*self._closed, *self._alike.values()]
            ticks, self._ticks = self._ticks, 0
            self._alike, self._closed, self._since = {}, [], None
            journal = self._journal.turn() if alike else 0
        if alike:
            self._writer.write_all([_joined(one) for one in alike], ticks)
            self._journal.spooled(journal)

    def close(self) -> None:
        """Write everything and close the journal; may be called twice."""
        self.flush()
        self._journal.close()

    def _age_seconds(self) -> float:
        """Return how long the oldest tick is held, -1 when none is."""
        since = self._since
        return -1.0 if since is None else self._clock.monotonic_seconds() - since

    def _add(self, stamp: Stamp, contents: Sequence[Content]) -> None:
        if self._since is None:
            self._since = self._clock.monotonic_seconds()
        self._ticks += 1
        tick_ms = int(stamp.tick_times_ms[0])
        for content in contents:
            key = _key(stamp, content)
            alike = self._alike.get(key)
            if alike is not None and alike.times_ms[-1] >= tick_ms:
                self._closed.append(self._alike.pop(key))
                alike = None
            if alike is None:
                alike = self._alike[key] = _Alike(stamp, [], [])
                self._writer.keep_definitions(content)
            alike.stamp = stamp
            alike.contents.append(content)
            alike.times_ms.append(tick_ms)


def _key(stamp: Stamp, content: Content) -> tuple[object, ...]:
    """Return what ticks have in common that become one frame, which is of one minute.

    Readers keep their definitions, so identity will do.
    """
    correction_ms = clock_correction_ms(stamp.clock_offset_ms, stamp.clock_uncertainty_ms)
    return (
        stamp.collector_id,
        stamp.source,
        stamp.interval_ms,
        stamp.live,
        correction_ms,
        (int(stamp.tick_times_ms[0]) + correction_ms) // MINUTE_MS,
        id(content.schema),
        id(content.entities),
    )


def _joined(alike: _Alike) -> Stamped:
    if len(alike.contents) == 1:
        return Stamped(alike.stamp, alike.contents[0])
    shifts = [np.array([place], np.uint16) for place in range(len(alike.contents))]
    stamp = replace(alike.stamp, tick_times_ms=np.array(alike.times_ms, np.int64))
    return Stamped(stamp, join(alike.contents, shifts))
