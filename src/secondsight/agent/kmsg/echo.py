"""Take away events that only echo what another told: a gauge's last Xid, or a library's notice of the same.

A hint waits for a few seconds, as the log may be read a moment later. What nobody else told, as lines may be lost or
the log unreadable, then goes on as an event of its own, and is counted.
"""

from dataclasses import replace

from secondsight.agent.counts import Counts
from secondsight.agent.kmsg.bursts import WINDOW_MS
from secondsight.agent.kmsg.heard import HeardXids
from secondsight.agent.kmsg.severity import Repeats, xid_entry
from secondsight.agent.kmsg.untold import UntoldXids
from secondsight.contracts import Reader, Tick
from secondsight.wire.content import Content, Event

WAIT_MS = 3000
GAUGE = "last_value"
HINTS = (GAUGE, "nvml")
"""Values of the attribute `via` of an event that is a hint."""

WAITING_MAXIMUM = 256


class WithoutEchoes:
    """A reader without the Xids that others told; see `contracts.Reader`. Counts `xid_echo`."""

    def __init__(self, reader: Reader, heard: HeardXids, untold: UntoldXids, counts: Counts) -> None:
        self.name = reader.name
        self.interval_ms = reader.interval_ms
        self.costly = bool(getattr(reader, "costly", False))
        self._reader = reader
        self._heard = heard
        self._untold = untold
        self._counts = counts
        self._waiting: list[tuple[int, Content, Event]] = []

    def read(self, tick_ms: int) -> Tick:
        """Read, and hold back hints until it is known whether the log told them."""
        tick = self._reader.read(tick_ms)
        contents = [self._without(tick_ms, content) for content in tick.contents]
        return replace(tick, contents=(*contents, *self._let_go(tick_ms)))

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _without(self, tick_ms: int, content: Content) -> Content:
        hints = [event for event in content.events if _is_hint(event)]
        if not hints:
            return content
        self._waiting += [(tick_ms, content, event) for event in hints]
        for event in hints:
            if event.attributes.get("via") != GAUGE:
                self._heard.hear(event.entity, event.code, event.time_ms, self.name)
        return replace(content, events=tuple(event for event in content.events if not _is_hint(event)))

    def _let_go(self, tick_ms: int) -> list[Content]:
        """Return the hints that have waited long enough and were not told, each in a content of its own."""
        waiting, self._waiting = self._waiting, []
        gone = []
        for since_ms, content, event in waiting:
            if self._is_told(event):
                self._counts.add("xid_echo")
            elif 0 <= tick_ms - since_ms < WAIT_MS and len(self._waiting) < WAITING_MAXIMUM:
                self._waiting.append((since_ms, content, event))
            else:
                self._heard.hear(event.entity, event.code, event.time_ms, self.name)
                self._untold.take(event, self.name)
                gone.append(replace(content, scalars=None, histograms=(), infos=(), events=(event,)))
        return gone

    def _is_told(self, event: Event) -> bool:
        """Tell whether another told this code of this GPU, or for a follower the log the Xid that it follows.

        A gauge repeats a code for ever; an event of the library is the one of its time.
        """
        told_ms = self._heard.last_ms(event.entity, event.code, but=self.name)
        is_gauge = event.attributes.get("via") == GAUGE
        if told_ms is not None and (is_gauge or abs(event.time_ms - told_ms) <= WINDOW_MS):
            return True
        newest_ms = self._heard.newest_ms(event.entity)
        follows = xid_entry(event.code).repeats is Repeats.FOLLOWER
        return follows and newest_ms is not None and abs(event.time_ms - newest_ms) <= WINDOW_MS


def _is_hint(event: Event) -> bool:
    return event.metric == "gpu_xid" and event.attributes.get("via") in HINTS
