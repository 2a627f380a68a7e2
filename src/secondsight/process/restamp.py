"""Turn allocation facts into rows and windows that must be stamped again."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.process.deadletter import Position
from secondsight.process.enrich import FOREVER_MS, Fact
from secondsight.process.load import collectors_of
from secondsight.process.occurrences import restamp_events
from secondsight.process.spans import SpanKey
from secondsight.process.world import FACTS_KEPT_MS, HORIZON_MS, World

FUTURE_MS = 300_000
FORGET_EVERY_MS = 3_600_000


class Restamper:
    """Takes facts in and marks what they change: rows of open windows, and stored windows inside the horizon."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changes: list[tuple[Fact, Position, tuple[int, int]]] = []
        self._forgot_ms = world.clock.now_ms()

    def take(self, facts: Sequence[tuple[Fact, Position]]) -> None:
        """Take facts in.

        Raises:
            Retryable: The store is busy or away; what is left is done by the next call.
        """
        for fact, position in facts:
            changed = self._world.allocations.add(fact)
            if position.append_ms <= self._world.started_ms:
                changed = (fact.start_ms, FOREVER_MS)
            if changed is not None:
                self._changes.append((fact, position, changed))
                self._mark_open(fact, changed)
        while self._changes:
            self._mark_stored(*self._changes[-1])
            self._changes.pop()
        now_ms = self._world.clock.now_ms()
        if now_ms - self._forgot_ms >= FORGET_EVERY_MS:
            self._forgot_ms = now_ms
            self._world.allocations.forget(now_ms - FACTS_KEPT_MS)

    def _mark_open(self, fact: Fact, changed: tuple[int, int]) -> None:
        tenant, cluster, entity, _ = fact.subject
        for kind, state in self._world.kinds.items():
            series = state.series.of_entity(tenant, cluster, entity)
            if not series:
                continue
            self._world.stamps[kind].forget(series)
            for window in state.windows.values():
                size, time_ms = window.size, window.time_ms
                rows = np.isin(window.series[:size], series) & window.written[:size]
                window.dirty[:size] |= rows & (time_ms[:size] >= changed[0]) & (time_ms[:size] < changed[1])

    def _mark_stored(self, fact: Fact, position: Position, changed: tuple[int, int]) -> None:
        """Have closed windows in which the entity was seen computed again."""
        world, now_ms = self._world, self._world.clock.now_ms()
        tenant, cluster, entity, _ = fact.subject
        start_ms = max(changed[0], now_ms - HORIZON_MS)
        end_ms = min(changed[1], now_ms + FUTURE_MS)
        if changed[0] < now_ms - HORIZON_MS:
            world.metrics.count("processor_facts_beyond_horizon_total")
        if end_ms <= start_ms:
            return
        restamp_events(world, fact, start_ms, end_ms)
        if not self._any_stored(tenant, cluster, start_ms):
            return
        state = world.kinds[EntityKind.GPU]
        first_ms = start_ms - start_ms % WINDOW_MS
        for region, collector_id, window_ms in collectors_of(
            world.store, state, (tenant, cluster, entity), first_ms, end_ms
        ):
            collector, _ = world.progress_of((tenant, region, cluster, collector_id), fact.host_id, position.partition)
            key: SpanKey = (EntityKind.GPU, window_ms, collector)
            span = world.spans.get(key)
            if not span.loaded and (span.reopened or not span.offsets):
                span.reopened = span.forced = span.restamp = True
                span.touch(position.partition, position.offset, world.log_ms(position.partition))

    def _any_stored(self, tenant: str, cluster: str, start_ms: int) -> bool:
        """Tell whether a window that ends after an instant may have been written in this cluster."""
        world = self._world
        through: dict[bool, int] = defaultdict(int)
        for code, progress in world.progress.items():
            place = world.collectors.items[code]
            same = (place[0], place[2]) == (tenant, cluster)
            through[same] = max(through[same], progress.through_ms, progress.restored_ms)
        return max(through[True], world.restored_through(tenant, cluster)) > start_ms
