"""Count what a spool took by the minute of event time, so that an agent can say what it sent of each minute.

A record speaks of one minute; one that reaches over several, such as what a source told late, is in none. What is
counted is in memory alone: of minutes in which the agent was started anew it says less than there was, never more.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from secondsight.agent.spool.tally import NOTHING, Tally, head_of, plus, tally_of

MINUTE_MS = 60_000
KEPT_MINUTES = 16
SETTLED_MS = 30_000
"""So long after its end a minute is said: what was held for company is spooled by then."""


class Minute(NamedTuple):
    """A minute that is over, by its start, and what was spooled of it."""

    start_ms: int
    tally: Tally


class Minutes:
    """The newest minutes. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[int, Tally] = OrderedDict()

    def take(self, frames: Iterable[bytes]) -> None:
        """Count frames that were spooled."""
        for frame in frames:
            head = head_of(frame)
            if head is None or not head.rows:
                continue
            first, last = ((time + head.correction_ms) // MINUTE_MS for time in (head.first_tick_ms, head.last_tick_ms))
            if first == last:
                self._tallies[first] = plus(self._tallies.get(first, NOTHING), tally_of(frame))
        while len(self._tallies) > KEPT_MINUTES:
            del self._tallies[min(self._tallies)]

    def said_at(self, event_time_ms: int) -> Minute:
        """Return the newest minute that is settled at an event time."""
        number = (event_time_ms - SETTLED_MS) // MINUTE_MS - 1
        return Minute(number * MINUTE_MS, self._tallies.get(number, NOTHING))
