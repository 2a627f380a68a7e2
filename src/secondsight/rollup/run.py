"""Keep rollups of 5 min, 1 h and 1 d equal to what they are made of: a stage of its own beside the processor.

A window is made when it has ended and its source has been quiet for a moment, and again whenever its source changes:
late rows, restamped owners, backfills. Rows are written first and then what they were made of, so that a crash between
the two makes the window once more, with the same figures. What was found is forgotten in a crash, and found again, as
only inserts whose windows are all made count as seen.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable, SecondsightError
from secondsight.model import EntityKind
from secondsight.rollup.load import Work
from secondsight.rollup.make import make_window
from secondsight.rollup.through import Lane, Through, keep_through
from secondsight.rollup.watch import (
    Mark,
    Place,
    changed_windows,
    made_marks,
    newest_blocks,
    source_marks,
    written_through,
)
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
WINDOWS_AT_ONCE = 200

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


class Roller:
    """Makes rollups in one store, whose tables exist. For one thread, and one process a store."""

    def __init__(self, store: Store, catalog: Catalog, clock: Clock) -> None:
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
        self._kept_at = clock.monotonic_seconds()

    @property
    def waiting(self) -> int:
        """Return how many windows changed and are not made yet."""
        return sum(map(len, self._changes.values()))

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
            self._seen = dict(self._kept)
        made, written = 0, written_through(self._store)
        for level in LEVELS:
            newest = newest_blocks(self._store)
            for kind in EntityKind:
                self._look((kind, level), self._seen, newest)
                made += self._make_due((kind, level), stop)
        if self._clock.monotonic_seconds() - self._kept_at >= SEEN_SECONDS:
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
        waiting: list[Any] = []
        done: list[Work] = []
        made_now: set[Work] = set()
        for work in stale:
            try:
                waiting += make_window(self._store, self._catalog, self._specs[work.table], work)
                done.append(work)
                made_now.add(work)
            except Retryable:
                self._write(works[0].table, waiting, done, notes)
                raise
            except (SecondsightError, ValueError, LookupError, ArithmeticError) as error:
                self._put_off(lane, work, error)
            if sum(table.num_rows for table in waiting) >= INSERT_ROWS:
                self._write(work.table, waiting, done, notes)
                waiting, done = [], []
        self._write(works[0].table, waiting, done, notes)
        for work in works:
            if work not in notes or work in made_now:
                self._changes[lane].pop(work, None)
        return len(made_now)

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

    def _write(self, table: str, rows: list[Any], works: list[Work], notes: Mapping[Work, tuple[Mark, int]]) -> None:
        if rows:
            self._store.insert(table, _joined(rows))
        if works:
            found = [notes[work][0] for work in works]
            columns: dict[str, ColumnValues] = {
                "table_name": [table] * len(works),
                "tenant_id": [work.tenant for work in works],
                "cluster_id": [work.cluster for work in works],
                "window_start": np.array([work.start_ms // 1000 for work in works], np.int64),
                "source_rows": np.array([mark.rows for mark in found], np.uint64),
                "source_version": np.array([mark.version for mark in found], np.uint64),
                "made_at": np.full(len(works), self._clock.now_ms(), np.int64),
                "version": np.array([notes[work][1] for work in works], np.uint64),
            }
            self._store.insert("rollups_made", arrow_table(self._specs["rollups_made"], columns))

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
        ends = self._through.ends(self._clock.now_ms(), written, lacking, WAIT_MS)
        keep_through(self._store, self._specs["rollups_through"], ends, self._kept_version)
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


def _bases(changes: Iterable[_Change]) -> Iterable[int]:
    return (change.before for change in changes)


def _joined(rows: list[Any]) -> Any:
    """Return tables as one; lists that a table lacks are empty in it, other columns absent."""
    lists = {field.name: field.type for table in rows for field in table.schema if pa.types.is_list(field.type)}
    filled = []
    for table in rows:
        for name, type_ in lists.items():
            if name not in table.column_names:
                table = table.append_column(name, pa.array([[]] * table.num_rows, type_))
        filled.append(table)
    return filled[0] if len(filled) == 1 else pa.concat_tables(filled, promote_options="default")
