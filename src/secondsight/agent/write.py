"""Turn what readers took into spooled frames: one record per tick and content, stamped with clock and boot."""

import logging
import threading
from dataclasses import dataclass

import numpy as np

from secondsight.agent.counts import Counts
from secondsight.agent.definitions import KeptDefinitions
from secondsight.agent.offset import ClockOffset
from secondsight.agent.spool import Spool
from secondsight.clock import Clock
from secondsight.contracts import Reader, Tick
from secondsight.errors import SecondsightError
from secondsight.wire.content import Content
from secondsight.wire.frame import encode
from secondsight.wire.header import Stamp

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who writes the frames."""

    collector_id: str
    host_id: str
    boot_id: str


class TickWriter:
    """Spools ticks. Safe to call from threads; a spool that refuses costs the tick, which is counted."""

    def __init__(
        self,
        sender: Sender,
        spool: Spool,
        definitions: KeptDefinitions,
        offset: ClockOffset,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self._sender = sender
        self._spool = spool
        self._definitions = definitions
        self._offset = offset
        self._clock = clock
        self._counts = counts
        self._lock = threading.Lock()

    def write(self, reader: Reader, tick_ms: int, tick: Tick) -> None:
        """Spool what a reader took at `tick_ms`."""
        times = [*((at_ms, content) for at_ms, contents in tick.earlier for content in contents)]
        times += [(tick_ms, content) for content in tick.contents]
        if not times:
            return
        try:
            with self._lock:
                for _, content in times:
                    self._definitions.keep(content)
            frames = [self._frame(reader, at_ms, tick, content, live=at_ms != tick_ms) for at_ms, content in times]
            self._spool.append_many(frames)
        except (SecondsightError, OSError) as error:
            self._counts.add(f"spool_write_failed:{_errno(error)}")
            self._counts.add("ticks_missed")
            logger.warning("a tick of %s is lost: %s", reader.name, error)
        for drop in self._spool.drops():
            self._counts.add(f"dropped:{drop.reason}", drop.records)

    def _frame(self, reader: Reader, at_ms: int, tick: Tick, content: Content, *, live: bool) -> bytes:
        offset_ms, uncertainty_ms = self._offset.now(self._clock.monotonic_seconds())
        stamp = Stamp(
            collector_id=self._sender.collector_id + (f"/{tick.collector}" if tick.collector else ""),
            host_id=self._sender.host_id,
            source=tick.source or ("scrape" if tick.collector else reader.name),
            spool_id=self._spool.spool_id,
            first_sequence=0,
            last_sequence=0,
            tick_times_ms=np.array([at_ms], np.int64),
            interval_ms=tick.interval_ms or reader.interval_ms,
            boot_id=self._sender.boot_id,
            clock_offset_ms=offset_ms,
            clock_uncertainty_ms=uncertainty_ms,
            live=live or tick.live,
        )
        return encode(stamp, content)


def _errno(error: BaseException) -> str:
    """Return the kernel's word for a failure, looking at its cause too."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    names = {28: "ENOSPC", 5: "EIO"}
    return names.get(getattr(cause, "errno", None) or 0, "other")
