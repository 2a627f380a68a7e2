"""Turn the workload labels of GPU samples into intervals of ownership.

The samples of one instant may come in several requests, so who had a GPU at an instant is told when a later instant is
there. A label that is missing means unknown and ends nothing.
"""

from collections.abc import Callable, Iterable

from secondsight.gateway.foreign.series import Sighted
from secondsight.mapping.allocation import Holding, Share
from secondsight.mapping.attribution import NO_SILENCE_MS, VIA, owner_of
from secondsight.mapping.cells import Key
from secondsight.mapping.identity import Workload
from secondsight.mapping.intervals import Intervals, Listing
from secondsight.wire.content import Event

HOSTS_MAXIMUM = 20_000
TOLD_MS = 60_000
"""So often a host's intervals are looked at though nothing changed, for those that are to be repeated."""


class _Host:
    """Who has the GPUs of one host."""

    def __init__(self) -> None:
        self.intervals = Intervals(VIA, NO_SILENCE_MS)
        self.seen: dict[Key, tuple[int, set[Workload]]] = {}
        self.told: dict[Key, frozenset[Workload]] = {}
        self.looked_ms = 0


class Ownership:
    """The GPUs that one sender speaks of. Used by one thread at a time."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def see(self, sights: Iterable[tuple[Sighted, int]], give: Callable[[str, int, Event], None]) -> None:
        """Take what samples say, and give (host, time, event) of intervals that opened, closed or are repeated."""
        for sight, at_ms in sights:
            if len(self._hosts) >= HOSTS_MAXIMUM and sight.host not in self._hosts:
                self._hosts.clear()
            host = self._hosts.setdefault(sight.host, _Host())
            time_ms, workloads = host.seen.get(sight.place, (0, set()))
            if at_ms == time_ms:
                workloads.add(sight.workload)
            elif at_ms > time_ms:
                host.seen[sight.place] = (at_ms, {sight.workload})
                if time_ms:
                    self._tell(sight, host, time_ms, frozenset(workloads), give)

    def _tell(
        self,
        sight: Sighted,
        host: _Host,
        time_ms: int,
        workloads: frozenset[Workload],
        give: Callable[[str, int, Event], None],
    ) -> None:
        """Look at the intervals of a host, if a GPU has changed hands or it is time to."""
        is_due = not 0 <= time_ms - host.looked_ms < TOLD_MS
        if host.told.get(sight.place) == workloads and not is_due:
            return
        host.told[sight.place] = workloads
        host.looked_ms = max(host.looked_ms, time_ms)
        share = Share.SOLE if len(workloads) == 1 else Share.SHARED
        holdings = tuple(Holding(*sight.place, owner_of(workload), share) for workload in sorted(workloads))
        for event in host.intervals.see(Listing(holdings, complete=False), time_ms):
            give(sight.host, time_ms, event)
