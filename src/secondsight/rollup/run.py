"""Keep rollups of 5 min, 1 h and 1 d equal to what they are made of: a stage of its own beside the processor.

A window is made when it has ended and its source has been quiet for a moment, and again whenever its source changes:
late rows, restamped owners, backfills. The rows of its cluster are made with it. Rows are written first and then what
they were made of, so that a crash between the two makes the window once more, with the same figures. What was found is
forgotten in a crash, and found again, as only inserts whose windows are all made count as seen.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable, SecondsightError
from secondsight.model import EntityKind
from secondsight.rollup.load import Work
from secondsight.rollup.make import Made, make_window, pool_window
from secondsight.rollup.rows import joined_rows, portions
from secondsight.rollup.through import Lane, Through, keep_through
from secondsight.rollup.watch import (
    Mark,
    Note,
    Place,
    changed_windows,
    made_marks,
    source_marks,
    unpooled_windows,
    written_through,
)
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.blocks import newest_blocks
from secondsight.store.clusters import CLUSTER_KINDS
from secondsight.store.coarse import LEVELS
from secondsight.store.rows import ColumnValues, arrow_table
from secondsight.store.schema import rollup_table, tables

logger = logging.getLogger(__name__)

WAIT_MS = {"5m": 45_000, "1h": 90_000, "1d": 120_000}
"""After its end a window waits that long for its source to be written."""
QUIET_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
"""A source that keeps changing is not waited for longer."""
SEEN_SECONDS = 30.0
AGAIN_SECONDS = 600.0
STEP_SECONDS = 2.0
PAUSE_SECONDS = 10.0
INSERT_ROWS = 50_000
ROWS_AN_INSERT = 20_000
"""Raw rows wait while others are inserted: those of a large cluster are written in turns with them."""
WINDOWS_AT_ONCE = 200
POOLED_AT_ONCE = 50

_NOTHING = Mark(0, 0)


@dataclass(slots=True)
class _Change:
    """A window that changed.

    Attributes:
        first_seconds, last_seconds: When that was found, monotonic.
        before: Newest insert that was seen before it was found.
        is_new: It was never made.
    """

    first_seconds: float
    last_seconds: float
    before: int
    is_new: bool


@dataclass(slots=True)
class _Batch:
    """Rows that wait to be written, by table, and the windows that they are all of."""

    rows: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    done: list[Work] = field(default_factory=list)

    def add(self, work: Work, made: Made) -> None:
        """Take in the rows of a window."""
        for table, rows in made.rows.items():
            self.rows[table] += rows
        self.done.append(work)

    @property
    def row_count(self) -> int:
        """Return the number of rows that wait."""
        return sum(each.num_rows for rows in self.rows.values() for each in rows)


class Roller:
    """Makes rollups in one store, whose tables exist. For one thread, and one process a store.

    Args:
        store: Where they are read and written.
        catalog: Whose metrics.
        clock: Source of time.
        metrics: Counts what is made and left, and says how far behind it is.
    """

    def __init__(self, store: Store, catalog: Catalog, clock: Clock, metrics: SelfMetrics | None = None) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._specs = {spec.name: spec for spec in tables(catalog)}
        self._lanes: list[Lane] = [(kind, level) for level in LEVELS for kind in EntityKind]
        self._changes: dict[Lane, dict[Work, _Change]] = {lane: {} for lane in self._lanes}
        self._seen: dict[Lane, int] | None = None
        self._kept: dict[Lane, int] = {}
        self._kept_version = 0
        self._through = Through()
        self._unpooled: dict[Work, Note] = {}
        self._kept_at = clock.monotonic_seconds()
        self.metrics = metrics or SelfMetrics()

    @property
    def waiting(self) -> int:
        """Return how many windows changed and are not made yet."""
        return sum(map(len, self._changes.values())) + len(self._unpooled)

    def run(self, stop: threading.Event) -> None:
        """Make what becomes due until told to stop."""
        while not stop.is_set():
            pause = STEP_SECONDS
            try:
                self.step(stop)
            except Retryable as error:
                logger.warning("rollups wait for the store: %s", error)
                pause = PAUSE_SECONDS
            stop.wait(pause)

    def step(self, stop: threading.Event | None = None) -> int:
        """Look for changes once and make the windows that are due; return how many were made.

        Raises:
            Retryable: The store is busy or away; what was not made is due at the next step.
        """
        if self._seen is None:
            self._kept = self._load_seen()
            self._unpooled = self._load_unpooled()
            self._seen = dict(self._kept)
        keeps = self._clock.monotonic_seconds() - self._kept_at >= SEEN_SECONDS
        written = written_through(self._store) if keeps else {}  # asked for before it is looked for changes
        made, newest = 0, newest_blocks(self._store)
        for level in LEVELS:
            before = made
            for kind in EntityKind:
                self._look((kind, level), self._seen, newest)
                made += self._make_due((kind, level), stop)
            if made > before:
                newest = newest_blocks(self._store)
        made += self._pool_some()
        self.metrics.gauge("rollup_windows_waiting", self.waiting)
        if keeps:
            self._keep(self._seen, written)
        return made

    def _make_due(self, lane: Lane, stop: threading.Event | None) -> int:
        due, made = self._due(lane), 0
        for first in range(0, len(due), WINDOWS_AT_ONCE):
            if stop is not None and stop.is_set():
                break
            made += self._make(lane, due[first : first + WINDOWS_AT_ONCE])
        return made

    def _look(self, lane: Lane, seen: dict[Lane, int], blocks: Mapping[str, int]) -> None:
        """Note the windows that changed since the last look.

        Args:
            lane: Of which kind and resolution.
            seen: Newest insert seen of each.
            blocks: Newest insert of each table.
        """
        kind, level = lane
        source = rollup_table(kind, level.source)
        before, newest = seen[lane], blocks.get(source, 0)
        if newest == before:
            return
        if newest < before:
            logger.warning("%s holds fewer inserts than were seen; all of its windows are compared again", source)
            before = 0
        windows, found = changed_windows(self._store, source, level.width_ms, before)
        seen[lane] = found if windows else newest
        now = self._clock.monotonic_seconds()
        known = self._changes[lane]
        works = [Work(kind, level, window.tenant, window.cluster, window.start_ms) for window in windows]
        made = made_marks(self._store, [work for work in works if work not in known])
        for work in works:
            self._through.meet(work)
            change = known.setdefault(work, _Change(now, now, before, work not in made))
            change.last_seconds = max(change.last_seconds, now)

    def _due(self, lane: Lane) -> list[Work]:
        now, now_ms = self._clock.monotonic_seconds(), self._clock.now_ms()
        wait_ms = WAIT_MS[lane[1].name]
        due = [
            work
            for work, change in self._changes[lane].items()
            if now_ms >= work.end_ms + wait_ms
            and (now - change.last_seconds >= QUIET_SECONDS or now - change.first_seconds >= PATIENCE_SECONDS)
        ]
        return sorted(due, key=lambda work: work.start_ms)

    def _make(self, lane: Lane, works: list[Work]) -> int:
        """Make those of some windows whose source is not what it was; return how many."""
        marks, made = source_marks(self._store, works), made_marks(self._store, works)
        stale = [work for work in works if marks.get(work, _NOTHING) != made.get(work, (None, 0))[0]]
        notes = {work: (marks.get(work, _NOTHING), made[work][1] + 1 if work in made else 1) for work in stale}
        batch = _Batch()
        made_now: set[Work] = set()
        for work in stale:
            try:
                found = make_window(self._store, self._catalog, self._specs, work)
                self._tell_left(work, found)
                batch.add(work, found)
                made_now.add(work)
            except Retryable:
                self._write(batch, notes)
                raise
            except (SecondsightError, ValueError, LookupError, ArithmeticError) as error:
                self._put_off(lane, work, error)
            if batch.row_count >= INSERT_ROWS:
                self._write(batch, notes)
                batch = _Batch()
        self._write(batch, notes)
        for work in works:
            if work not in notes or work in made_now:
                self._changes[lane].pop(work, None)
        kind, level = lane
        if made_now:
            self.metrics.count("rollup_windows_made_total", len(made_now), kind=kind.value, resolution=level.name)
        return len(made_now)

    def _pool_some(self) -> int:
        """Make cluster rows of windows that were made when there were none; return of how many windows."""
        works = sorted(self._unpooled, key=lambda work: -work.start_ms)[:POOLED_AT_ONCE]
        batch = _Batch()
        for work in works:
            batch.add(work, pool_window(self._store, self._catalog, self._specs, work))
        self._insert(batch)
        self._note([(work.cluster_table, work, self._unpooled[work]) for work in works])
        for work in works:
            del self._unpooled[work]
        return len(works)

    def _tell_left(self, work: Work, made: Made) -> None:
        if not made.left:
            return
        self.metrics.count("rollup_windows_left_total", kind=work.kind.value, resolution=work.level.name)
        logger.warning(
            "%s of cluster %s at %d s: rows of %d hosts are left as they are, for less is stored of what they were"
            " made of; rows that came late for them are in finer tables alone",
            work.table,
            work.cluster,
            work.start_ms // 1000,
            len(made.left),
        )

    def _put_off(self, lane: Lane, work: Work, error: Exception) -> None:
        logger.error(
            "%s of cluster %s from %d s on cannot be made, and is tried again in %d s: %r",
            work.table,
            work.cluster,
            work.start_ms // 1000,
            AGAIN_SECONDS,
            error,
        )
        change = self._changes[lane][work]
        change.first_seconds = change.last_seconds = self._clock.monotonic_seconds() + AGAIN_SECONDS

    def _write(self, batch: _Batch, notes: Mapping[Work, Note]) -> None:
        self._insert(batch)
        of_entities = [(work.table, work, notes[work]) for work in batch.done]
        of_clusters = [(work.cluster_table, work, notes[work]) for work in batch.done if work.kind in CLUSTER_KINDS]
        self._note([*of_entities, *of_clusters])

    def _insert(self, batch: _Batch) -> None:
        for table, tables_of_rows in batch.rows.items():
            if tables_of_rows:
                for rows in portions(joined_rows(tables_of_rows), ROWS_AN_INSERT):
                    self._store.insert(table, rows)

    def _note(self, notes: Sequence[tuple[str, Work, Note]]) -> None:
        """Write what windows were made of."""
        if not notes:
            return
        columns: dict[str, ColumnValues] = {
            "table_name": [table for table, _, _ in notes],
            "tenant_id": [work.tenant for _, work, _ in notes],
            "cluster_id": [work.cluster for _, work, _ in notes],
            "window_start": np.array([work.start_ms // 1000 for _, work, _ in notes], np.int64),
            "source_rows": np.array([mark.rows for _, _, (mark, _) in notes], np.uint64),
            "source_version": np.array([mark.version for _, _, (mark, _) in notes], np.uint64),
            "made_at": np.full(len(notes), self._clock.now_ms(), np.int64),
            "version": np.array([version for _, _, (_, version) in notes], np.uint64),
        }
        self._store.insert("rollups_made", arrow_table(self._specs["rollups_made"], columns))

    def _load_unpooled(self) -> dict[Work, Note]:
        """Return the windows that were made before there were rows of clusters."""
        found: dict[Work, Note] = {}
        for level in LEVELS:
            for kind in CLUSTER_KINDS:
                for window, note in unpooled_windows(self._store, kind, level):
                    work = Work(kind, level, window.tenant, window.cluster, window.start_ms)
                    self._through.meet(work)
                    found[work] = note
        return found

    def _load_seen(self) -> dict[Lane, int]:
        rows = self._store.query("SELECT table_name, block, version FROM rollups_seen FINAL").to_pylist()
        through = self._store.query(
            "SELECT table_name, tenant_id, cluster_id, version FROM rollups_through FINAL"
        ).to_pylist()
        self._through.load(through)
        self._kept_version = max((row["version"] for row in [*rows, *through]), default=0)
        kept = {row["table_name"]: int(row["block"]) for row in rows}
        return {lane: kept.get(rollup_table(lane[0], lane[1].name), 0) for lane in self._lanes}

    def _keep(self, seen: Mapping[Lane, int], written: Mapping[Place, int]) -> None:
        """Note up to when all windows are made, and which inserts have all their windows made."""
        self._kept_version += 1
        lacking = [work for changes in self._changes.values() for work, change in changes.items() if change.is_new]
        ends = self._through.ends(self._clock.now_ms(), written, lacking, self._unpooled, WAIT_MS)
        keep_through(self._store, self._specs["rollups_through"], ends, self._kept_version)
        self._show_lag(ends)
        settled = {lane: min([seen[lane], *_bases(self._changes[lane].values())]) for lane in self._lanes}
        changed = [lane for lane in self._lanes if settled[lane] != self._kept.get(lane)]
        self._kept_at = self._clock.monotonic_seconds()
        if not changed:
            return
        columns: dict[str, ColumnValues] = {
            "table_name": [rollup_table(kind, level.name) for kind, level in changed],
            "block": np.array([settled[lane] for lane in changed], np.int64),
            "version": np.full(len(changed), self._kept_version, np.uint64),
        }
        self._store.insert("rollups_seen", arrow_table(self._specs["rollups_seen"], columns))
        self._kept = settled

    def _show_lag(self, ends: Mapping[tuple[str, Place], int]) -> None:
        """Show for each resolution how long ago its last window could have been made that is not, of any cluster."""
        now_ms = self._clock.now_ms()
        for level in LEVELS:
            named = {rollup_table(kind, level.name) for kind in EntityKind}
            reached = [end_ms for (table, _), end_ms in ends.items() if table in named]
            due_ms = min(reached, default=now_ms) + level.width_ms + WAIT_MS[level.name]
            self.metrics.gauge("rollup_lag_seconds", max(now_ms - due_ms, 0) / 1000, resolution=level.name)


def _bases(changes: Iterable[_Change]) -> Iterable[int]:
    return (change.before for change in changes)
