"""Turn allocation facts into rows and windows that must be stamped again."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from secondsight.process.deadletter import Position
from secondsight.process.enrich import FOREVER_MS, Fact
from secondsight.process.facts import OVERLAP_MS, FactFeed
from secondsight.process.groups import Change
from secondsight.process.kinds import CollectorKey, KindState
from secondsight.process.load import collectors_of
from secondsight.process.occurrences import restamp_events
from secondsight.process.owners import JOB_LEAD_MS, Root, roots_of
from secondsight.process.world import HORIZON_MS, World

FUTURE_MS = 300_000
FORGET_EVERY_MS = 3_600_000

Place = tuple[str, str]
"""Tenant, cluster."""


@dataclass(slots=True)
class Stale:
    """Stored rows of one root whose owner may have changed.

    Attributes:
        first: Partition -> first record that says so; none where another processor has it.
    """

    start_ms: int
    end_ms: int
    first: dict[int, int] = field(default_factory=dict)

    def take(self, change: Change, position: Position | None) -> None:
        """Take in one more change."""
        self.start_ms, self.end_ms = min(self.start_ms, change[0]), max(self.end_ms, change[1])
        if position is not None:
            first = self.first.get(position.partition, position.offset)
            self.first[position.partition] = min(position.offset, first)


class Restamper:
    """Takes facts in and marks what they change: rows of open windows, and stored windows inside the horizon."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stale: defaultdict[Place, dict[Root, Stale]] = defaultdict(dict)
        self._forgot_ms = world.clock.now_ms()
        self._feed = FactFeed(world.store, world.clock.now_ms() - OVERLAP_MS)
        self._renew = False

    def take(self, facts: Sequence[tuple[Fact, Position]]) -> None:
        """Take facts in.

        Raises:
            Retryable: The store is busy or away; what is left is done by the next call.
        """
        for fact, position in facts:
            self._take(fact, position, renew=position.append_ms <= self._world.started_ms)
        self._mark_all_stored()
        now_ms = self._world.clock.now_ms()
        if now_ms - self._forgot_ms >= FORGET_EVERY_MS:
            self._world.restore_allocations()
            self._forgot_ms = now_ms

    def learn(self) -> None:
        """Take in facts that other processors landed; rows that are read here and that they change are stamped again.

        Raises:
            Retryable: The store is busy or away; what is left is done by the next call.
        """
        for fact in self._feed.read():
            self._take(fact, None, renew=self._renew)
        self._renew = False
        self._mark_all_stored()

    def reach_back(self, alive_ms: int) -> None:
        """Have facts taken in anew that were landed since another processor was last known to stamp rows of its own."""
        self._feed.reach_back(alive_ms - OVERLAP_MS)
        self._renew = True

    def _take(self, fact: Fact, position: Position | None, *, renew: bool) -> None:
        """Note what a fact changes; `renew` does so whether it is news or not."""
        changes = self._world.owners.add(fact)
        if renew:
            changes = dict.fromkeys(roots_of(fact), (fact.start_ms - JOB_LEAD_MS, FOREVER_MS))
        place = fact.subject[:2]
        for root, change in changes.items():
            self._mark_open(place, root, change)
            self._stale[place].setdefault(root, Stale(*change)).take(change, position)

    def _mark_all_stored(self) -> None:
        while self._stale:
            place, stale = next(iter(self._stale.items()))
            self._mark_stored(place, stale)
            del self._stale[place]

    def _mark_open(self, place: Place, root: Root, changed: Change) -> None:
        for kind, state in self._world.kinds.items():
            series = state.series.of_root(*place, root)
            if not series:
                continue
            self._world.stamps[kind].forget(series)
            for window in state.windows.values():
                size, time_ms = window.size, window.time_ms
                rows = np.isin(window.series[:size], series) & window.written[:size]
                window.dirty[:size] |= rows & (time_ms[:size] >= changed[0]) & (time_ms[:size] < changed[1])

    def _mark_stored(self, place: Place, stale: Mapping[Root, Stale]) -> None:
        """Have closed windows in which something was seen computed again."""
        world, reach = self._world, self._reach(stale)
        if not reach:
            return
        restamp_events(world, place, reach)
        if not self._any_stored(*place, min(start_ms for start_ms, _ in reach.values())):
            return
        for state in world.kinds.values():
            for root, host_id, key, window_ms in collectors_of(world.store, state, place, reach):
                if world.is_read_here(key):
                    self._reopen(state, stale[root], (host_id, key, window_ms))

    def _reach(self, stale: Mapping[Root, Stale]) -> dict[Root, Change]:
        """Return the range of time of each root in which rows are stamped again."""
        world, now_ms = self._world, self._world.clock.now_ms()
        reach: dict[Root, Change] = {}
        for root, one in stale.items():
            start_ms, end_ms = max(one.start_ms, now_ms - HORIZON_MS), min(one.end_ms, now_ms + FUTURE_MS)
            if one.start_ms < now_ms - HORIZON_MS:
                world.metrics.count("processor_facts_beyond_horizon_total")
            if end_ms > start_ms:
                reach[root] = (start_ms, end_ms)
        return reach

    def _reopen(self, state: KindState, stale: Stale, found: tuple[str, CollectorKey, int]) -> None:
        """Have one window of one collector, which is read here, computed again."""
        world, (host_id, key, window_ms) = self._world, found
        collector, _ = world.progress_of(key, host_id, world.partition_of(key))
        span = world.spans.get((state.kind, window_ms, collector))
        if not span.loaded and (span.reopened or not span.offsets):
            span.reopened = span.forced = span.restamp = True
            for partition, offset in stale.first.items():
                span.touch(partition, offset, world.log_ms(partition))

    def _any_stored(self, tenant: str, cluster: str, start_ms: int) -> bool:
        """Tell whether a window that ends after an instant may have been written in this cluster."""
        world = self._world
        through: dict[bool, int] = defaultdict(int)
        for code, progress in world.progress.items():
            place = world.collectors.items[code]
            same = (place[0], place[2]) == (tenant, cluster)
            through[same] = max(through[same], progress.through_ms, progress.restored_ms)
        return max(through[True], world.restored_through(tenant, cluster)) > start_ms
