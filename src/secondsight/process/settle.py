"""Close windows that are due, write what waits, and say up to where the log is no longer needed."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secondsight.model import EntityKind
from secondsight.process.apply import reopen
from secondsight.process.batches import batches, oldest
from secondsight.process.cells import WINDOW_MS, Window
from secondsight.process.close import keep_lasts, portions, ranks_of, samples_of, sorted_rows
from secondsight.process.findingbook import FindingBook
from secondsight.process.kinds import KindState
from secondsight.process.late import PriorSource, Replaced, lost_series, replaced
from secondsight.process.ledgerrows import stored_counts
from secondsight.process.load import Stored, load_rollup_keys
from secondsight.process.lookback import windows_after
from secondsight.process.pieces import Rows
from secondsight.process.rollups import rollup_columns, tombstone_columns
from secondsight.process.secondary import Told, fold, told_of
from secondsight.process.series import COLLECTOR, I32, distinct
from secondsight.process.spans import Span, SpanKey, is_due
from secondsight.process.window import Rollup, roll_up
from secondsight.process.world import World
from secondsight.process.write import places_of
from secondsight.store.schema import raw_table, rollup_table

logger = logging.getLogger(__name__)

CHANGED_MAXIMUM = 1_000
LATE_MS = 120_000
"""A window that is closed so long after its beginning may have been compared with the ledger before."""
MAX_AGAIN, MAX_AGAIN_SPANS = 128, 1024
"""Stored windows of a kind, and spans, that are computed again in one step: long ranges do not stall the rest."""


class Settler:
    """Closes and writes. One thread uses it.

    Attributes:
        findings: What lasts.
        more: Spans were due that `due` left for the next step.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._priors = PriorSource(world.store, world.progress)
        self._followers: dict[SpanKey, list[int]] = {}
        self.findings = FindingBook(world)
        self.more = False

    def due(self) -> list[SpanKey]:
        """Return the spans to close now, oldest window first, of those written before not more than a step takes."""
        world = self._world
        found = [
            key
            for key, span in world.spans.open.items()
            if is_due(span, world.progress[key[2]], key[1], world.log_ms(span.partition))
            and key not in world.late.items
        ]
        found.sort(key=lambda key: key[1])
        again = {key for key in found if world.spans.open[key].reopened}
        now = oldest(again, MAX_AGAIN)[:MAX_AGAIN_SPANS]
        self.more = len(again) > len(now)
        left = again - set(now)
        return [key for key in found if key not in left]

    def close(self, keys: Iterable[SpanKey]) -> int:
        """Roll up spans, oldest window first; their rows are written before. Return how many spans were closed.

        Raises:
            Retryable: The store is busy or away; spans not closed stay open.
        """
        groups: dict[tuple[int, EntityKind], list[int]] = defaultdict(list)
        keys = list(keys)
        for kind, start_ms, collector in keys:
            groups[start_ms, kind].append(collector)
        self._world.write_raw({kind for _, kind in groups})
        self.findings.expect(keys)
        old = self._prepare([key for key in keys if self._world.spans.open[key].reopened])
        for start_ms, kind in sorted(groups):
            self._close_window(self._world.kinds[kind], start_ms, groups[start_ms, kind], old)
        return sum(len(collectors) for collectors in groups.values())

    def flush(self) -> None:
        """Write everything that waits but rows of open windows, and note progress.

        Raises:
            Retryable: The store is busy or away.
        """
        world = self._world
        world.write_rollups()
        world.spans.written()
        world.write_entities()
        world.writer.flush_landing()
        world.write_ledger()
        world.write_progress()

    def offsets(self) -> dict[int, int]:
        """Return partition -> offset before which nothing unwritten is left."""
        first = self._world.spans.first_offsets()
        for partition, offset in self._world.late.first_offsets().items():
            first[partition] = min(offset, first.get(partition, offset))
        return {
            partition: min(position, first.get(partition, position))
            for partition, position in self._world.positions.items()
        }

    def oldest(self, count: int) -> list[SpanKey]:
        """Return the `count` spans with the oldest windows."""
        return sorted(self._world.spans.open, key=lambda key: key[1])[:count]

    def _prepare(self, keys: Sequence[SpanKey]) -> dict[SpanKey, list[Stored]]:
        """Load what windows that are computed again need, many at once; return their stored rollup rows."""
        world, found = self._world, dict[SpanKey, list[Stored]]()
        together = batches(keys, world.collectors, lambda kind: world.kinds[kind].most_spans)
        self._priors.expect(together)
        self._followers = {}
        if together:
            world.write_rollups()
        for batch in together:
            self._load_forced(batch)
            found |= self._replaced(batch)
        if any(world.spans.open[key].restamp for key in keys):
            world.write_raw()
        return found

    def _close_window(
        self, state: KindState, start_ms: int, collectors: list[int], stored: dict[SpanKey, list[Stored]]
    ) -> None:
        world = self._world
        spans = {collector: world.spans.open[state.kind, start_ms, collector] for collector in collectors}
        window = state.window(start_ms)
        unchanged = [number for number, span in spans.items() if span.reopened and not (span.changed or span.forced)]
        counted = [number for number in collectors if number not in unchanged]
        again = [number for number in counted if spans[number].reopened]
        old = {number: stored[state.kind, start_ms, number] for number in again}
        made: list[tuple[Rollup, dict[str, Any]]] = []
        chosen = self._rolled_again(state, window, sorted_rows(window, counted), old)
        secondary = state.secondary.split(window.series[chosen])
        told = told_of(window, chosen[secondary], state.secondary) if secondary is not None else {}
        for rows in portions(window, chosen if secondary is None else chosen[~secondary]):
            made.append(self._roll_up(state, window, rows, (counted, told), old))
        following = self._forced_by(state, start_ms, {number: spans[number] for number in counted})
        self.findings.settle(state, window, counted)
        for _, columns in made:  # the store was asked for the last time: nothing is taken twice
            world.writer.add_rollups(state, columns)
        self._bury(state, start_ms, old, [rollup for rollup, _ in made])
        for number in collectors:
            world.progress[number].note_written(state.kind, start_ms)
        is_late = again or world.clock.now_ms() - start_ms > LATE_MS
        if is_late and len(world.changed_ms) < CHANGED_MAXIMUM:
            world.changed_ms.add(start_ms)
        held = stored_counts(window, counted)
        for number in collectors:
            is_told = not spans[number].reopened or world.log_ms(world.progress[number].partition) > world.started_ms
            world.ledger.close((state.kind, start_ms, number), held.get(number), is_told=is_told)
        self._leave(state, window, spans, following)

    def _rolled_again(self, state: KindState, window: Window, rows: Rows, old: dict[int, list[Stored]]) -> Rows:
        """Return the rows that are rolled up: not those of series whose other rows are gone from the store.

        What is stored of these stays as it is, and is taken out of `old` as far as it would be buried.
        """
        lost = lost_series(window.series[rows], [row for stored in old.values() for row in stored])
        if not lost:
            return rows
        for number, stored in old.items():
            old[number] = [replace(row, samples=0) if row.series in lost else row for row in stored]
        self._world.metrics.count("processor_series_left_total", len(lost), kind=state.kind.value)
        logger.warning(
            "%d series of %s in the window of %d s are left as they are, for the store no longer has all rows that they"
            " were made of; rows that came late for them are in %s alone, until replay lake brings the others back",
            len(lost),
            rollup_table(state.kind),
            window.start_ms // 1000,
            raw_table(state.kind),
        )
        return rows[~np.isin(window.series[rows], list(lost))]

    def _load_forced(self, batch: Sequence[SpanKey]) -> None:
        """Load spans that are computed again without having been added to."""
        world = self._world
        reopen(world, [key for key in batch if not world.spans.open[key].loaded])
        for kind, start_ms, collector in batch:
            window = world.kinds[kind].window(start_ms)
            if world.spans.open[kind, start_ms, collector].restamp and collector in window.lanes:
                window.dirty[window.lanes[collector].rows()] = True

    def _replaced(self, batch: Sequence[SpanKey]) -> dict[SpanKey, list[Stored]]:
        """Return the stored rollup rows of windows that are computed again, and note what follows these windows."""
        world, state = self._world, self._world.kinds[batch[0][0]]
        collectors, starts = sorted({key[2] for key in batch}), [key[1] for key in batch]
        found: dict[SpanKey, list[Stored]] = {key: [] for key in batch}
        for row in load_rollup_keys(world.store, state, collectors, starts):
            found.get((state.kind, row.start_ms, row.collector), []).append(row)
        ends = {start_ms + WINDOW_MS for start_ms in starts}
        after = windows_after(world.store, state, collectors, ends)
        for key in batch:
            self._followers[key] = after.get((key[2], key[1] + WINDOW_MS), [])
        return found

    def _roll_up(
        self,
        state: KindState,
        window: Window,
        rows: Rows,
        whose: tuple[Sequence[int], Mapping[int, Told]],
        old: dict[int, list[Stored]],
    ) -> tuple[Rollup, dict[str, Any]]:
        world, (collectors, told) = self._world, whose
        samples = samples_of(state, window, rows, world.stamps[state.kind])
        samples = replace(samples, priors=self._priors.priors(state, window, samples, collectors))
        rollup = roll_up(samples)
        if told:
            fold(rollup, told, samples)
        self.findings.look(state, samples, rollup)
        if rollup.implausible:
            world.metrics.count("processor_implausible_steps_total", rollup.implausible)
        ranks = ranks_of(window, rows, rollup)
        columns: dict[str, Any] = rollup_columns(rollup, window.start_ms, state.series, world.allocations, ranks)
        if old:
            counters = self._counters(state, rollup.series, old)
            columns["version"] = counters << np.uint64(32) | rollup.covered_ms.astype(np.uint64)
            names = places_of(state, rollup.series[counters > 0]) if counters.any() else []
            world.writer.announce(rollup_table(state.kind), names, window.start_ms, world.clock.now_ms())
        keep_lasts(state, window, samples, rollup, distinct(samples.series))
        return rollup, columns

    def _counters(self, state: KindState, series: I32, old: dict[int, list[Stored]]) -> Any:
        """Return the recompute counter of each rollup row: one more than any stored row of its collector's window."""
        by_name: dict[tuple[str, str, str], int] = {}
        for collector, stored in old.items():
            tenant, _, cluster, name = self._world.collectors.items[collector]
            by_name[tenant, cluster, name] = replaced(stored, ()).counter
        names = [state.series.names_of(number) for number in series.tolist()]
        return np.array([by_name.get((name[0], name[2], name[COLLECTOR]), 0) for name in names], np.uint64)

    def _bury(self, state: KindState, start_ms: int, old: dict[int, list[Stored]], made: Sequence[Rollup]) -> None:
        """Write tombstones for stored rows that are no longer true."""
        world = self._world
        attributions = world.allocations.attributions
        kept = {
            (series, attributions.items[code])
            for rollup in made
            for series, code in zip(rollup.series.tolist(), rollup.attribution.tolist(), strict=True)
        }
        for stored in old.values():
            found: Replaced = replaced(stored, kept)
            if found.tombstones:
                series = np.array([row.series for row in found.tombstones], np.int32)
                codes = np.array([attributions.code(row.attribution) for row in found.tombstones], np.int32)
                columns: dict[str, Any] = tombstone_columns(series, codes, start_ms, state.series, world.allocations)
                columns["version"] = np.full(series.size, found.counter << 32, np.uint64)
                world.writer.add_rollups(state, columns)

    def _forced_by(self, state: KindState, start_ms: int, spans: Mapping[int, Span]) -> dict[int, list[int]]:
        """Return, by collector, the windows whose first samples follow what is new in a window.

        Raises:
            Retryable: The store is busy or away.
        """
        world, end_ms = self._world, start_ms + WINDOW_MS
        found: dict[int, list[int]] = {}
        for number, span in spans.items():
            progress = world.progress[number]
            is_fresh = span.changed or not span.reopened
            if is_fresh and max(progress.through_ms, progress.restored_ms) > end_ms:
                known = self._followers.get((state.kind, start_ms, number))
                if known is None:
                    known = windows_after(world.store, state, [number], [end_ms]).get((number, end_ms), [])
                found[number] = known
        return found

    def _leave(
        self, state: KindState, window: Window, spans: dict[int, Span], following: Mapping[int, Sequence[int]]
    ) -> None:
        """Take closed spans out of memory, and have windows computed again whose first samples follow new ones."""
        for collector, span in spans.items():
            for next_ms in following.get(collector, ()):
                self._force((state.kind, next_ms, collector), span)
            self._world.spans.close((state.kind, window.start_ms, collector))
            window.drop(collector)
        if not window.lanes:
            state.leave(window)

    def _force(self, key: SpanKey, span: Span) -> None:
        world = self._world
        is_open = key in world.spans.open
        following = world.spans.get(key)
        if is_open or key in world.late.items:
            following.changed = True
        if not is_open:
            following.reopened = True
            following.forced = key not in world.late.items
            for partition, offset in span.offsets.items():
                following.touch(partition, offset, world.log_ms(partition))
