"""Turn what readers took into spooled frames: one record per tick, content and class, stamped with clock and boot."""

import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.spool.account import TickKey
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.split import Splitter
from secondsight.clock import Clock
from secondsight.contracts import Reader, Tick
from secondsight.errors import SecondsightError
from secondsight.model import Priority
from secondsight.wire.content import Content
from secondsight.wire.frame import encode
from secondsight.wire.header import Stamp
from secondsight.wire.schema import named_entities, named_schema

logger = logging.getLogger(__name__)

_SAID_EVERY = 100
_ERRNO_NAMES = {5: "EIO", 28: "ENOSPC", 30: "EROFS"}


@dataclass(frozen=True, slots=True)
class Sender:
    """Who writes the frames."""

    collector_id: str
    host_id: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where ticks are kept until they are shipped."""

    spools: Spools
    definitions: KeptDefinitions
    splitter: Splitter


class Stamped(NamedTuple):
    """A content with what its frame says of it; it holds the ticks that the stamp names."""

    stamp: Stamp
    content: Content


class TickWriter:
    """Spools ticks. Safe to call from threads; what the spool refuses is lost, counted and declared."""

    def __init__(self, sender: Sender, keeping: Keeping, offset: ClockOffset, clock: Clock, counts: Counts) -> None:
        self._sender = sender
        self._keeping = keeping
        self._offset = offset
        self._clock = clock
        self._counts = counts
        self._lock = threading.Lock()
        self._failures = 0
        self._fault = ""

    @property
    def fault(self) -> str:
        """Return why the last ticks could not be spooled, "" where they could."""
        return self._fault

    def write(self, reader: Reader, tick_ms: int, tick: Tick) -> None:
        """Spool what a reader took at `tick_ms`."""
        self.write_all(
            [
                Stamped(stamp, content)
                for at_ms, contents in (*tick.earlier, (tick_ms, tick.contents))
                for stamp in (self.stamp(reader, at_ms, tick, is_earlier=at_ms != tick_ms),)
                for content in contents
            ]
        )

    def write_again(self, pieces: Sequence[Stamped]) -> None:
        """Spool contents, each of one tick, that may be spooled already, as a whole or but for some classes.

        They go under the time of their newest tick: no class that is fresh overtakes those of another unmarked.
        """
        newest_ms = max((int(piece.stamp.tick_times_ms[-1]) for piece in pieces), default=0)
        known = self._keeping.spools.newest_ticks()
        self.write_all(pieces, len(pieces), known, min(newest_ms, self._clock.now_ms()))

    def write_all(
        self,
        pieces: Sequence[Stamped],
        ticks: int = 1,
        known: Collection[TickKey] = (),
        time_ms: int | None = None,
    ) -> None:
        """Spool contents of `ticks` ticks with one append, but for those that are `known`, as of now or of a time."""
        frames: defaultdict[Priority, list[bytes]] = defaultdict(list)
        for stamp, content in pieces:
            for priority, piece in self._keeping.splitter.split(content).items():
                if not known or _key(stamp, piece) not in known:
                    frames[priority].append(encode(stamp, piece, inline=not self.keep_definitions(piece)))
        if not frames:
            return
        try:
            self._keeping.spools.append(frames, time_ms)
        except SecondsightError as error:
            self._note_failure(pieces[0].stamp.source, error, ticks)
        else:
            self._failures, self._fault = 0, ""

    def stamp(self, reader: Reader, at_ms: int, tick: Tick, *, is_earlier: bool = False) -> Stamp:
        """Return the stamp of one instant; spool and sequence are filled in when it is shipped."""
        offset_ms, uncertainty_ms = self._offset.now(self._clock.monotonic_seconds())
        return Stamp(
            collector_id=self._sender.collector_id + (f"/{tick.collector}" if tick.collector else ""),
            host_id=self._sender.host_id,
            source=tick.source or reader.name,
            spool_id=0,
            first_sequence=0,
            last_sequence=0,
            tick_times_ms=np.array([at_ms], np.int64),
            interval_ms=tick.interval_ms or reader.interval_ms,
            boot_id=self._sender.boot_id,
            clock_offset_ms=offset_ms,
            clock_uncertainty_ms=uncertainty_ms,
            live=is_earlier or tick.live,
        )

    def keep_definitions(self, content: Content) -> bool:
        """Make the definitions of a content durable; False where the disk refuses."""
        with self._lock:
            return self._keeping.definitions.keep(content)

    def _note_failure(self, source: str, error: SecondsightError, ticks: int) -> None:
        self._counts.add(f"spool_write_failed:{_errno(error)}")
        self._counts.add("ticks_missed", ticks)
        level = logging.WARNING if self._failures % _SAID_EVERY == 0 else logging.DEBUG
        self._failures += 1
        self._fault = str(error)
        logger.log(level, "%d ticks (%s) are lost, or a part of them: %s", ticks, source, error)


def _key(stamp: Stamp, content: Content) -> TickKey:
    """Return what tells the first tick of a frame from all others."""
    schema, entities = named_schema(content.schema), named_entities(content.entities)
    return schema.hash, entities.hash, stamp.collector_id, int(stamp.tick_times_ms[0])


def _errno(error: BaseException) -> str:
    """Return the kernel's word for a failure, looking at its cause too."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return _ERRNO_NAMES.get(getattr(cause, "errno", None) or 0, "other")
