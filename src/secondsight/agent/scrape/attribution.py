"""Turn the workload labels of GPU samples into allocation intervals.

Labels say who has a GPU, not who had it: a missing label means unknown and ends nothing, another workload ends the one
before. Several workloads at once share the card; which of them a sample belongs to cannot be told, so none is given it.
"""

from collections.abc import Callable, Mapping

from secondsight.agent.jobs.kept import KeptIntervals
from secondsight.mapping.allocation import Holding, Share
from secondsight.mapping.attribution import NO_SILENCE_MS, VIA, owner_of
from secondsight.mapping.cells import Key
from secondsight.mapping.identity import Workload
from secondsight.mapping.intervals import Intervals, Kept, Listing
from secondsight.wire.content import Event


class Allocations:
    """The intervals of one target's GPUs and slices. One thread uses it.

    Args:
        state: Where they outlive a restart; nowhere if None.
        correction_ms: Gives what frames add to times of this host now.
    """

    def __init__(self, state: KeptIntervals | None = None, correction_ms: Callable[[], int] = lambda: 0) -> None:
        self._state = state
        self._correction_ms = correction_ms
        self._intervals = Intervals(VIA, NO_SILENCE_MS, Kept() if state is None else state.load())

    def see(self, workloads: Mapping[Key, set[Workload]], tick_ms: int) -> list[Event]:
        """Return the intervals that opened and closed with this scrape; an interval that closes is sent again whole."""
        holdings = tuple(
            Holding(*key, owner_of(workload), Share.SOLE if len(found) == 1 else Share.SHARED)
            for key, found in workloads.items()
            for workload in sorted(found)
        )
        listing = Listing(holdings, complete=False)
        events = self._intervals.see(listing, tick_ms, self._correction_ms())
        if self._state is not None:
            self._state.save(self._intervals, tick_ms)
        return events
