"""Put pieces into the windows that they belong to; those of windows that are in the store alone wait to be loaded."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from secondsight.process.batch import Batch
from secondsight.process.batches import batches, oldest
from secondsight.process.cells import WINDOW_MS, Settled
from secondsight.process.deadletter import Position
from secondsight.process.kinds import KindState
from secondsight.process.load import load_pieces
from secondsight.process.pieces import Piece, Pile, joined_runs
from secondsight.process.spans import SpanKey
from secondsight.process.world import HORIZON_MS, World
from secondsight.store.schema import raw_table, rollup_table

MAX_LATE = 256
"""Windows of a kind that late pieces are taken into in one step, so that fresh ones do not wait for them."""


class Applier:
    """Puts what was decoded into windows. One thread uses it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, batch: Batch) -> None:
        """Put a batch into windows; what belongs to windows that may be in the store and not in memory waits.

        Raises:
            Retryable: The store is busy or away.
        """
        self._set_aside(batch)
        for kind, start_ms, pile, positions in batch.piles:
            batch.pieces[kind, start_ms, b""] += self._apply_pile(self._world.kinds[kind], start_ms, pile, positions)
        for (kind, start_ms, _), items in batch.pieces.items():
            if items:
                self._apply(self._world.kinds[kind], start_ms, items)

    def catch_up(self, goes_on: Callable[[], bool]) -> None:
        """Load windows and take in the late pieces that wait for them, oldest first, until told to leave the rest.

        Raises:
            Retryable: The store is busy or away; call again.
        """
        world = self._world
        if not world.late.items:
            return
        world.write_raw()
        world.write_rollups()
        for keys in batches(
            oldest(world.late.items, MAX_LATE), world.collectors, lambda kind: world.kinds[kind].most_spans
        ):
            if not goes_on():
                return
            reopen(world, [key for key in keys if self._is_away(key)])
            for key in keys:
                self._apply(world.kinds[key[0]], key[1], world.late.items[key])
                world.late.drop(key)

    def _set_aside(self, batch: Batch) -> None:
        """Have pieces wait whose windows may be in the store and not in memory."""
        late = {key for key in batch.spans() if key in self._world.late.items or self._is_away(key)}
        if not late:
            return
        add = self._world.late.add
        for (kind, start_ms, _), items in batch.pieces.items():
            for piece, position in items:
                if (kind, start_ms, piece.collector) in late:
                    add((kind, start_ms, piece.collector), piece, position)
            items[:] = [item for item in items if (kind, start_ms, item[0].collector) not in late]
        piles, batch.piles = batch.piles, []
        for kind, start_ms, pile, positions in piles:
            away = [(kind, start_ms, collector) in late for collector in pile.collectors]
            rest = [number for number, is_away in enumerate(away) if not is_away]
            for number in np.flatnonzero(away).tolist():
                add((kind, start_ms, pile.collectors[number]), pile.member(number), positions[number])
            if rest:
                some = pile.select(rest) if len(rest) < len(away) else pile
                batch.piles.append((kind, start_ms, some, [positions[number] for number in rest]))

    def _is_away(self, key: SpanKey) -> bool:
        """Tell whether a window may be in the store and is not in memory."""
        span = self._world.spans.open.get(key)
        return (span.reopened and not span.loaded) if span is not None else self._may_be_written(key)

    def _may_be_written(self, key: SpanKey) -> bool:
        kind, start_ms, collector = key
        return self._world.progress[collector].may_be_written(kind, start_ms) or key in self._world.spans.closing

    def _apply(self, state: KindState, start_ms: int, items: list[tuple[Piece, Position]]) -> None:
        world = self._world
        window = state.window(start_ms)
        for piece, position in items:
            span = world.spans.get((state.kind, start_ms, piece.collector))
            span.touch(position.partition, position.offset, position.append_ms)
            span.changed |= self._is_replay(position)
        reopened = [item for item in items if world.spans.get((state.kind, start_ms, item[0].collector)).reopened]
        if not reopened:
            self._count(window.apply([piece for piece, _ in items]))
        else:
            for piece in joined_runs(piece for piece, _ in items):
                done = window.apply([piece])
                world.spans.get((state.kind, start_ms, piece.collector)).changed |= bool(done.appended or done.changed)
                self._count(done)
            self._count_late(start_ms, reopened)
        replayed = {piece.collector for piece, position in items if self._is_replay(position)}
        self._announce_replayed(state, start_ms, replayed)

    def _apply_pile(
        self, state: KindState, start_ms: int, pile: Pile, positions: Sequence[Position]
    ) -> list[tuple[Piece, Position]]:
        """Apply a pile, and return those of its members whose windows were opened again."""
        reopened: list[int] = []
        replayed: set[int] = set()
        for number, (collector, position) in enumerate(zip(pile.collectors, positions, strict=True)):
            span = self._world.spans.get((state.kind, start_ms, collector))
            span.touch(position.partition, position.offset, position.append_ms)
            if span.reopened:
                reopened.append(number)
            elif self._is_replay(position):
                span.changed = True
                replayed.add(collector)
        self._announce_replayed(state, start_ms, replayed)
        alone = [(pile.member(number), positions[number]) for number in reopened]
        if len(alone) < len(positions):
            rest = sorted(set(range(len(positions))) - set(reopened))
            self._count(state.window(start_ms).pile(pile.select(rest) if alone else pile))
        return alone

    def _count(self, done: Settled) -> None:
        metrics = self._world.metrics
        metrics.count("processor_rows_total", done.appended)
        if done.touched:
            metrics.count("processor_duplicate_rows_total", done.touched)
        if done.conflicts:
            metrics.count("processor_conflicts_total", done.conflicts)

    def _count_late(self, start_ms: int, items: list[tuple[Piece, Position]]) -> None:
        rows = sum(piece.rows for piece, _ in items)
        beyond = start_ms + WINDOW_MS < self._world.clock.now_ms() - HORIZON_MS
        self._world.metrics.count("processor_late_rows_total", rows, horizon="beyond" if beyond else "within")

    def _announce_replayed(self, state: KindState, start_ms: int, collectors: Iterable[int]) -> None:
        world, now_ms = self._world, self._world.clock.now_ms()
        places = set()
        for collector in collectors:
            if start_ms + WINDOW_MS > world.progress[collector].restored_ms:
                tenant, _, cluster, _ = world.collectors.items[collector]
                places.add((tenant, cluster))
        world.writer.announce(raw_table(state.kind), places, start_ms, now_ms)
        world.writer.announce(rollup_table(state.kind), places, start_ms, now_ms)

    def _is_replay(self, position: Position) -> bool:
        """Tell whether an earlier process may have taken a record, without having finished with it."""
        return position.append_ms <= self._world.started_ms


def reopen(world: World, keys: Sequence[SpanKey]) -> None:
    """Load the stored rows of some spans, which are a batch.

    Raises:
        Retryable: The store is busy or away.
    """
    if not keys:
        return
    state, wanted = world.kinds[keys[0][0]], set(keys)
    collectors = sorted({collector for _, _, collector in keys})
    pieces: dict[int, list[Piece]] = defaultdict(list)
    for start_ms, piece in load_pieces(world.store, state, collectors, [start_ms for _, start_ms, _ in keys]):
        if (state.kind, start_ms, piece.collector) in wanted:
            pieces[start_ms].append(piece)
    state.note_loaded(len(keys), sum(piece.rows for some in pieces.values() for piece in some))
    for start_ms, some in pieces.items():
        state.window(start_ms).apply(some)
    world.load_accounts(state.kind, keys)
    for key in keys:
        state.window(key[1])
        span = world.spans.get(key)
        span.reopened = span.loaded = True
    world.metrics.count("processor_windows_reopened_total", len(keys))
