"""Hold everything the processor knows, and take it over from the store when it starts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.process.batches import Backlog
from secondsight.process.enrich import Attribution, Subject
from secondsight.process.entities import EntityBook
from secondsight.process.facts import engine_versions_before, facts_since, job_versions_before, versions_before
from secondsight.process.kinds import CollectorKey, KindState
from secondsight.process.land import history_row
from secondsight.process.ledger import Ledger
from secondsight.process.ledgerrows import ledger_table, load_accounts
from secondsight.process.owners import Owners
from secondsight.process.progressrows import Reached, progress_table
from secondsight.process.series import Interner
from secondsight.process.spans import OpenSpans, SpanKey
from secondsight.process.stamps import Stamps
from secondsight.process.stays import Stays
from secondsight.process.watermark import Progress
from secondsight.process.write import Writer
from secondsight.selfmetrics import SelfMetrics

HORIZON_MS = 24 * 3_600_000
"""How far back late facts and late rows are put right at once."""
CLOCKS_MS = 5_000
"""How far the clocks of brokers and processors may differ."""
FACTS_KEPT_MS = 2 * HORIZON_MS
"""Allocations that ended longer ago are in the store alone."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What an earlier process stored of a collector."""

    watermark_ms: int
    through_ms: int
    rolled_ms: int
    version: int
    partition: int = -1


class World:
    """State shared by the steps.

    Attributes:
        progress: Collector code -> progress.
        late: Pieces that wait for their window to be loaded.
        positions: Partition -> next offset to read.
        frontiers: Partition -> log time that it has been read up to.
        changed_ms: Windows that were written late or again, for who compares them with the ledger.
        started_ms: Records appended by then may have been taken by an earlier process, in part or whole.
        assignments: How often partitions came or went.
        assigned: Partitions that are read here now.
        is_shared: Other processors may read partitions of the same log.

    Raises:
        Retryable: The store is busy or away.
    """

    def __init__(self, store: Store, catalog: Catalog, clock: Clock, metrics: SelfMetrics) -> None:
        self.store = store
        self.catalog = catalog
        self.clock = clock
        self.metrics = metrics
        self.collectors: Interner[CollectorKey] = Interner()
        self.kinds = {kind: KindState(kind, catalog.scalars(kind), self.collectors) for kind in EntityKind}
        self.owners = Owners()
        self.allocations = self.owners.things
        self.stamps = {kind: Stamps(self.owners, kind, state.series) for kind, state in self.kinds.items()}
        self.progress: dict[int, Progress] = {}
        self.spans = OpenSpans()
        self.late = Backlog()
        self.writer = Writer(store, catalog, metrics)
        self.entities = EntityBook()
        self.stays = Stays()
        self.ledger = Ledger(self.place_of)
        self.changed_ms: set[int] = set()
        self.positions: dict[int, int] = {}
        self.frontiers: dict[int, int] = {}
        self.started_ms = clock.now_ms()
        self.assignments = 0
        self.assigned: set[int] = set()
        self.is_shared = False
        self._restored: dict[tuple[str, str, str], Restored] = {}
        self._restore()

    def progress_of(self, key: CollectorKey, host_id: str, partition: int) -> tuple[int, Progress]:
        """Return a collector's code and progress, new or known."""
        code = self.collectors.code(key)
        known = self.progress.get(code)
        if known is None:
            known = self.progress[code] = Progress(host_id, partition)
            self._take_over(known, self._restored.get((key[0], key[2], key[3])))
        return code, known

    def release(self, collectors: Iterable[int]) -> None:
        """Forget silent collectors of which everything is written, but for what is needed when they come back."""
        names = set()
        for collector in collectors:
            progress = self.progress.pop(collector)
            tenant, _, cluster, name = self.collectors.items[collector]
            names.add((tenant, cluster, name))
            self._restored[tenant, cluster, name] = Restored(
                progress.watermark_ms, progress.through_ms, progress.stored_ms[1], progress.version, progress.partition
            )
        self.entities.release(names)

    def attribution_at(self, kind: EntityKind, host_id: str, subject: Subject, time_ms: int) -> Attribution:
        """Return whose a row about a subject was at an instant."""
        return self.owners.at(kind, host_id, subject, time_ms).attribution

    def place_of(self, collector: int) -> tuple[str, str, str, str]:
        """Return tenant, cluster, host and id of a collector."""
        tenant, _, cluster, name = self.collectors.items[collector]
        progress = self.progress.get(collector)
        return tenant, cluster, progress.host_id if progress else "", name

    def load_accounts(self, kind: EntityKind, keys: Sequence[SpanKey]) -> None:
        """Have the ledger go on with accounts of spans of one cluster that are opened again.

        Raises:
            Retryable: The store is busy or away.
        """
        self.write_ledger()
        self.ledger.load(keys, load_accounts(self.store, self.collectors, kind, keys))

    def write_ledger(self) -> None:
        """Write the rows of the ledger that wait.

        Raises:
            Retryable: The store is busy or away.
        """
        rows = self.ledger.take_rows()
        if rows:
            self.store.insert("ledger", ledger_table(self.writer.spec("ledger"), rows))
            self.ledger.written()

    def write_raw(self, kinds: Iterable[EntityKind] = EntityKind) -> None:
        """Write the dirty rows of some kinds.

        Raises:
            Retryable: The store is busy or away.
        """
        now_ms = self.clock.now_ms()
        for kind in kinds:
            self.writer.flush_raw(self.kinds[kind], self.allocations, self.stamps[kind], now_ms)

    def write_rollups(self) -> None:
        """Write the rollups that wait, having noted first which windows they are of: a crash between them is seen.

        Raises:
            Retryable: The store is busy or away.
        """
        if self.writer.rollup_rows:
            self.write_ledger()  # what may be stored has its account there
            begun = [each for each in self.progress.items() if each[1].through_ms > each[1].begun_ms]
            self._tell_progress([(code, progress, progress.stored_ms) for code, progress in begun])
            for _, progress in begun:
                progress.begun_ms = progress.through_ms
            self.writer.flush_rollups(self.clock.now_ms())

    def write_progress(self) -> None:
        """Write how far each collector is, where that changed; everything it speaks of is written.

        Rows that came in order and wait for a window to be loaded are not written: nobody is told of times after them.

        Raises:
            Retryable: The store is busy or away.
        """
        changed, waiting_ms = [], self.late.oldest_ms()
        for code, progress in self.progress.items():
            idle = progress.is_idle(self.log_ms(progress.partition))
            if progress.changed or idle != progress.idle:
                progress.idle = idle
                changed.append((code, progress, (progress.told_ms(waiting_ms.get(code)), progress.through_ms)))
        self._tell_progress(changed)
        for _, progress, told_ms in changed:
            progress.changed = told_ms[0] < progress.watermark_ms
            progress.begun_ms = max(progress.begun_ms, progress.through_ms)
            progress.stored_ms = told_ms

    def _tell_progress(self, told: Sequence[tuple[int, Progress, tuple[int, int]]]) -> None:
        """Write that all is written up to a (watermark, end of the last window) of some collectors."""
        if not told:
            return
        now_ms = self.clock.now_ms()
        for _, progress, _ in told:
            progress.version = max(progress.version + 1, now_ms)
        rows = [Reached(self.collectors.items[code], progress, *reached_ms) for code, progress, reached_ms in told]
        self.store.insert("progress", progress_table(self.writer.spec("progress"), rows))

    def restored_through(self, tenant_id: str, cluster_id: str) -> int:
        """Return the end of the last window that an earlier process wrote in a cluster, 0 for none."""
        ends = [each.through_ms for key, each in self._restored.items() if key[:2] == (tenant_id, cluster_id)]
        return max(ends, default=0)

    def dirty_rows(self) -> dict[EntityKind, int]:
        """Return how many rows of each kind wait to be written."""
        return {
            kind: sum(int(np.count_nonzero(window.dirty[: window.size])) for window in state.windows.values())
            for kind, state in self.kinds.items()
        }

    def window_bytes(self) -> int:
        """Return about how much memory open windows take."""
        return sum(window.bytes for state in self.kinds.values() for window in state.windows.values())

    def log_ms(self, partition: int) -> int:
        """Return the log time that a partition has been read up to."""
        return self.frontiers.get(partition, 0)

    def is_replaying(self) -> bool:
        """Tell whether there is more in the log that was there before this processor started; for any thread."""
        frontiers = dict(self.frontiers)
        return not frontiers or min(frontiers.values()) < self.started_ms

    def forget(self, partitions: set[int]) -> None:
        """Drop what is open of partitions that another processor reads now; it reads them from the committed offset."""
        self.assignments += 1
        gone_collectors = {code for code, progress in self.progress.items() if progress.partition in partitions}
        self.late.forget(partitions)
        gone = self.spans.forget(partitions, gone_collectors)
        self.ledger.forget(gone)
        for kind, start_ms, collector in gone:
            window = self.kinds[kind].windows.get(start_ms)
            if window is not None and collector in window.lanes:
                window.dirty[window.lanes[collector].rows()] = False
                window.drop(collector)
        for code in gone_collectors:
            del self.progress[code]
        for partition in partitions:
            self.positions.pop(partition, None)
            self.frontiers.pop(partition, None)

    def take_over(self, partitions: set[int]) -> int:
        """Read anew what another processor may have written that read these partitions; return when it was last alive.

        What is not written here of partitions that are kept is written first.

        Raises:
            Retryable: The store is busy or away; do it again.
        """
        self.write_entities()
        self.started_ms = max(self.started_ms, self.clock.now_ms() + CLOCKS_MS)
        self.restore_progress()
        self.restore_allocations()
        self.entities.start_over(self._open_stays())
        alive_ms = [each.version for each in self._restored.values() if each.partition in partitions]
        return max(alive_ms, default=self.clock.now_ms())

    def is_read_here(self, key: CollectorKey) -> bool:
        """Tell whether the records of a collector come to this processor, as far as is known."""
        if self.collectors.known(key) in self.progress:
            return True
        restored = self._restored.get((key[0], key[2], key[3]))
        return restored is not None and restored.partition in self.assigned

    def partition_of(self, key: CollectorKey) -> int:
        """Return the partition that a collector's records came from last, -1 where that is not known."""
        restored = self._restored.get((key[0], key[2], key[3]))
        return -1 if restored is None else restored.partition

    def write_entities(self) -> None:
        """Write the stays that changed, having closed those of GPUs that another processor saw elsewhere before.

        Raises:
            Retryable: The store is busy or away.
        """
        arrived = self.entities.arrived()
        if arrived and self.is_shared:
            condition = " AND kind = {kind:String} AND entity IN {entities:Array(String)}"
            params = {"kind": EntityKind.GPU.value, "entities": sorted(arrived)}
            self.entities.restore(self._open_stays(condition, params))
        rows = self.entities.take()
        for row in rows:
            self.writer.landing.add("entities", row, row["version"])
        for row in self.stays.events(rows, self.clock.now_ms()):
            self.writer.landing.add("event_history", history_row(row))
        self.entities.done()
        self.writer.flush_landing("entities", "event_history")

    def _take_over(self, progress: Progress, restored: Restored | None) -> None:
        if restored is not None:
            progress.new = False
            progress.watermark_ms = restored.watermark_ms
            progress.restored_ms = max(restored.watermark_ms, restored.through_ms)
            progress.through_ms = progress.begun_ms = restored.through_ms
            progress.stored_ms = (restored.watermark_ms, restored.rolled_ms)
            progress.version = restored.version

    def _restore(self) -> None:
        self.restore_progress()
        self.restore_allocations()
        self._restore_entities()

    def restore_progress(self) -> None:
        """Read how far each collector is; done again when partitions come from another processor.

        Raises:
            Retryable: The store is busy or away.
        """
        self.assignments += 1
        rows = self._rows(
            "SELECT tenant_id, cluster_id, collector_id, toUnixTimestamp64Milli(watermark) AS watermark, "
            "toInt64(toUnixTimestamp(rollup_through)) * 1000 AS rolled, "
            "toInt64(toUnixTimestamp(begun_through)) * 1000 AS begun, version, partition FROM progress FINAL"
        )
        for row in rows:
            key = (row["tenant_id"], row["cluster_id"], row["collector_id"])
            known = self._restored.get(key, Restored(0, 0, 0, 0))
            self._restored[key] = Restored(
                max(known.watermark_ms, row["watermark"]),
                max(known.through_ms, row["begun"], row["rolled"]),
                max(known.rolled_ms, row["rolled"]),
                max(known.version, row["version"]),
                row["partition"],
            )

    def restore_allocations(self) -> None:
        """Read whose what is; done again to let go of allocations that ended long ago, but for their versions.

        Raises:
            Retryable: The store is busy or away; do it again.
        """
        self.writer.flush_landing("allocations")
        since_ms = self.clock.now_ms() - FACTS_KEPT_MS
        self.owners.start_over(since_ms)
        for fact in facts_since(self.store, since_ms):
            self.owners.add(fact)
        for subject, versions in versions_before(self.store, since_ms):
            self.owners.count_old(subject, versions)
        for job in job_versions_before(self.store, since_ms):
            self.owners.count_old_job(*job)
        for engine in engine_versions_before(self.store, since_ms):
            self.owners.count_old_engine(*engine)

    def _restore_entities(self) -> None:
        self.entities.restore(self._open_stays())

    def _open_stays(self, condition: str = "", params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        rows = self._rows(
            "SELECT tenant_id, region, cluster_id, rack, host_id, kind, entity, part, gpu_model, attributes, "  # noqa: S608 - conditions of the code
            "collector_id, interval_ms, toUnixTimestamp64Milli(from_time) AS from_time, "
            f"toUnixTimestamp64Milli(last_seen) AS last_seen FROM entities FINAL WHERE isNull(to_time){condition}",
            params,
        )
        return [{**row, "attributes": dict(row["attributes"])} for row in rows]

    def _rows(self, sql: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.store.query(sql, params).to_pylist()
        return found
