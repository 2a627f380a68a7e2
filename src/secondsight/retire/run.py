"""Drop partitions of the hot store that are older than is kept, once the lake has them.

Two steps, some time apart. First the floor of a table is raised: from then on whoever reads takes rows below it from
the lake. Then parts below it are dropped, those alone that the lake was found to have whole just before. A period that
the lake does not have stops its table there, whatever is behind it: below a floor nothing may be in the hot store only.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import Engine

from secondsight.access.retention import KeepRule, raise_floor, read_floors, read_rules
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Permanent, Retryable
from secondsight.retire.rules import Partition, is_due, partitions_of
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.retention import drop_part, hot_parts

logger = logging.getLogger(__name__)

Confirms = Callable[[str, int, int], bool]
"""Tells whether the lake has all rows of a table in [start, end), as the hot store has them now."""


@dataclass(frozen=True, slots=True)
class Means:
    """What retention works with.

    Attributes:
        confirms: Asks the lake; None where rows go without being kept anywhere else, as settings say.
        wait_seconds: Between raising a floor and dropping below it: longer than any read of rows takes.
    """

    store: Store
    metadata: Engine
    clock: Clock
    metrics: SelfMetrics
    confirms: Confirms | None
    wait_seconds: float = 90.0


class Retirement:
    """Lets go of old rows. For one thread, and one process a store."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._raised: dict[str, float] = {}

    def run(self, stop: threading.Event, every_seconds: float) -> None:
        """Work until told to stop; trouble is told and tried again."""
        while not stop.wait(every_seconds):
            try:
                self.step()
            except (Retryable, Permanent) as error:
                logger.warning("retention waits: %s", error)

    def step(self) -> int:
        """Raise floors, and drop what lies below those raised long enough ago; return how many parts were dropped.

        Raises:
            Retryable: The store, the lake or the metadata store is away.
        """
        rules, now_ms = read_rules(self._means.metadata), self._means.clock.now_ms()
        partitions = partitions_of(hot_parts(self._means.store))
        dropped = 0
        for table, some in groupby(partitions, key=lambda each: each.table):
            dropped += self._table(table, list(some), rules, now_ms)
        return dropped

    def _table(self, table: str, partitions: Sequence[Partition], rules: Sequence[KeepRule], now_ms: int) -> int:
        if self._means.confirms is None:
            return sum(self._drop(each) for each in partitions if is_due(each, rules, now_ms))
        floor_ms = self._floor(table, partitions, rules, now_ms)
        if not self._is_settled(table, floor_ms):
            return 0
        due = [each for each in partitions if each.end_ms <= floor_ms and is_due(each, rules, now_ms)]
        return sum(self._drop_confirmed(each) for each in due)

    def _floor(self, table: str, partitions: Sequence[Partition], rules: Sequence[KeepRule], now_ms: int) -> int:
        """Return up to when the lake has everything that is due, and note it where that is later than before."""
        known_ms = read_floors(self._means.metadata).get(table, 0)
        floor_ms = known_ms
        for start_ms, end_ms in periods(partitions):
            mine = [each for each in partitions if each.start_ms == start_ms]
            if end_ms <= known_ms:
                continue
            if not any(is_due(each, rules, now_ms) for each in mine):
                break
            if not self._confirmed(table, start_ms, end_ms):
                self._means.metrics.count("retention_unconfirmed_total", table=table)
                break
            floor_ms = end_ms
        if floor_ms > known_ms:
            raise_floor(self._means.metadata, table, floor_ms, now_ms)
            self._raised[table] = self._means.clock.monotonic_seconds()
            logger.info("rows of %s before %d are read from the lake from now on", table, floor_ms)
        return floor_ms

    def _is_settled(self, table: str, floor_ms: int) -> bool:
        """Tell whether everyone who reads knows a table's floor by now; after a start that is waited for once more."""
        if not floor_ms:
            return False
        now = self._means.clock.monotonic_seconds()
        return now - self._raised.setdefault(table, now) >= self._means.wait_seconds

    def _drop_confirmed(self, partition: Partition) -> int:
        """Drop a partition if the lake has its whole period still: late rows may have come since."""
        if self._confirmed(partition.table, partition.start_ms, partition.end_ms):
            return self._drop(partition)
        logger.info("%s of %d waits until the lake has its late rows", partition.table, partition.start_ms)
        return 0

    def _confirmed(self, table: str, start_ms: int, end_ms: int) -> bool:
        return self._means.confirms is None or self._means.confirms(table, start_ms, end_ms)

    def _drop(self, partition: Partition) -> int:
        dropped = 0
        for part in partition.parts:
            try:
                drop_part(self._means.store, partition.table, part.name)
            except Permanent as error:
                logger.info("part %s of %s is left for the next time: %s", part.name, partition.table, error)
                continue
            dropped += 1
            self._means.metrics.count("retention_parts_dropped_total", table=partition.table)
            self._means.metrics.count("retention_rows_dropped_total", part.rows, table=partition.table)
        if dropped:
            logger.info("dropped %d parts of %s from %d", dropped, partition.table, partition.start_ms)
        return dropped


def periods(partitions: Iterable[Partition]) -> list[tuple[int, int]]:
    """Return the periods that partitions are of, in order."""
    return sorted({(each.start_ms, each.end_ms) for each in partitions})
