"""Turn the ticks of one stream into what is shipped of them, window by window.

A stream is what one reader says of one kind and host. Of entities in a session every second is shipped; of others the
first poll of a window at once, what moves in between as it moves, and the summary when the window is over. An entity
whose session begins inside a window has the seconds of that window shipped after all, and keeps being shipped until the
window ends: no window is half one and half the other.
"""

from dataclasses import dataclass, replace

import numpy as np

from secondsight.agent.plan.cut import happenings, readings, rows_of, select, select_rows
from secondsight.agent.plan.dense import Poll
from secondsight.agent.plan.model import EVERYTHING, FULL_MS, NOTHING, WINDOW_MS, Selection
from secondsight.agent.plan.summary import RollupOf, Tables, changes, summarise
from secondsight.wire.content import Content


@dataclass(frozen=True, slots=True)
class Shipped:
    """A content to be spooled.

    Attributes:
        interval_ms: Cadence of its rows.
    """

    tick_ms: int
    content: Content
    interval_ms: int


class Stream:
    """One stream while a plan asks for less than every second of it; one thread at a time uses it."""

    def __init__(self, rollup_of: RollupOf, was_full_ms: int = -1) -> None:
        """Begin.

        Args:
            rollup_of: Rollup set of a metric.
            was_full_ms: Start of the last window of which seconds were shipped before, whose rest is shipped too.
        """
        self._rollup_of = rollup_of
        self._was_full_ms = was_full_ms
        self._tables = Tables()
        self._window_ms = -1
        self._shift_ms = 0
        self._full = NOTHING
        self._polls: list[Poll] = []

    def take(
        self, tick_ms: int, content: Content, correction_ms: int, session: Selection
    ) -> tuple[list[Shipped], Content | None]:
        """Return what is shipped now, and the readings that are not and may be asked for later.

        Args:
            tick_ms: When it was read, by the host's clock.
            content: What was read.
            correction_ms: What the host's clock is corrected by; windows are those of the right time.
            session: Entities of which every second is wanted.
        """
        window_ms = (tick_ms + correction_ms) // WINDOW_MS * WINDOW_MS
        shipped: list[Shipped] = []
        if window_ms != self._window_ms:
            shipped += self.close()
            self._open(window_ms, correction_ms)
        shipped += self._raise(session)
        what_happened = happenings(content)
        if what_happened is not None:
            shipped.append(Shipped(tick_ms, what_happened, WINDOW_MS))
        told = readings(content)
        if told.scalars is None and not told.histograms:
            return shipped, None
        return self._divide(tick_ms, told, shipped)

    def close(self) -> list[Shipped]:
        """Return the summary of the window that was open; nothing is kept of it."""
        polls, self._polls = self._polls, []
        if not polls:
            return []
        end_ms = self._window_ms + WINDOW_MS - self._shift_ms
        left = [cut for poll in polls if (cut := _without(poll, self._full)) is not None]
        if not left:
            return []
        made = summarise(left, end_ms, self._rollup_of, self._tables)
        return [Shipped(poll.tick_ms, poll.content, WINDOW_MS) for poll in made]

    def leave(self, tick_ms: int, correction_ms: int) -> list[Shipped]:
        """Return what is left to be shipped where every second is wanted from a tick on; nothing is kept."""
        if (tick_ms + correction_ms) // WINDOW_MS * WINDOW_MS != self._window_ms:
            return self.close()
        seconds = self._raise(EVERYTHING)
        self._polls = []
        return seconds

    def _open(self, window_ms: int, correction_ms: int) -> None:
        self._window_ms, self._shift_ms = window_ms, correction_ms
        self._full = EVERYTHING if window_ms == self._was_full_ms else NOTHING

    def _raise(self, session: Selection) -> list[Shipped]:
        """Begin to ship every second of entities, those of the open window included."""
        begun = session - self._full
        self._full = self._full | session
        if not begun:
            return []
        cut = [(poll.tick_ms, select(poll.content, begun)) for poll in self._polls]
        return [Shipped(tick_ms, content, FULL_MS) for tick_ms, content in cut if content is not None]

    def _divide(self, tick_ms: int, told: Content, shipped: list[Shipped]) -> tuple[list[Shipped], Content | None]:
        if self._full.everything:
            return [*shipped, Shipped(tick_ms, told, FULL_MS)], None
        full = select(told, self._full) if self._full else None
        if full is not None:
            shipped.append(Shipped(tick_ms, full, FULL_MS))
        rest = _without(Poll(tick_ms, told), self._full)
        if rest is None:
            return shipped, None
        before = self._polls[-1] if self._polls else None
        if before is None:
            shipped.append(Shipped(tick_ms, rest.content, WINDOW_MS))
        else:
            moved = changes(before, rest, self._rollup_of, self._tables)
            fresh = [poll for poll in moved if poll.tick_ms != self._polls[0].tick_ms]
            shipped += [Shipped(poll.tick_ms, poll.content, WINDOW_MS) for poll in fresh]
        self._polls.append(rest)
        return shipped, rest.content


def _without(poll: Poll, full: Selection) -> Poll | None:
    """Return a poll without some entities; None where nothing is left."""
    if not full:
        return poll
    if full.everything:
        return None
    content = poll.content
    scalars = content.scalars
    if scalars is not None:
        scalars = select_rows(scalars, np.logical_not(rows_of(content, full)))
    if scalars is None:
        return None
    return replace(poll, content=replace(content, scalars=scalars))
