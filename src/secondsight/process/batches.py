"""Gather spans that one query of the store can answer for: many windows of one collector, or many of one window."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from secondsight.model import EntityKind
from secondsight.process.deadletter import Position
from secondsight.process.kinds import CollectorKey
from secondsight.process.pieces import Piece
from secondsight.process.series import I32, Interner
from secondsight.process.spans import SpanKey

MAX_SPANS = 64
MAX_RANGE_MS = 2 * 3_600_000
FEW = 4
"""A collector with fewer windows is asked for with others of the same window."""


class Backlog:
    """Late pieces that wait for their window to be loaded, by span; they hold back the commit."""

    def __init__(self) -> None:
        self.items: dict[SpanKey, list[tuple[Piece, Position]]] = {}
        self.rows = 0

    def add(self, key: SpanKey, piece: Piece, position: Position) -> None:
        """Put a piece to the end."""
        self.items.setdefault(key, []).append((piece, position))
        self.rows += piece.rows

    def renumber(self, kind: EntityKind, renumbered: I32) -> None:
        """Give the pieces of a kind the new numbers of their series."""
        for key, items in self.items.items():
            for piece, _ in items if key[0] is kind else ():
                piece.series = renumbered[piece.series]

    def drop(self, key: SpanKey) -> None:
        """Forget the pieces of a span, which are taken in."""
        self.rows -= sum(piece.rows for piece, _ in self.items.pop(key))

    def forget(self, partitions: set[int]) -> None:
        """Drop the pieces of records which another processor reads now."""
        for key, items in list(self.items.items()):
            if any(position.partition in partitions for _, position in items):
                self.drop(key)
                for piece, position in items:
                    if position.partition not in partitions:
                        self.add(key, piece, position)

    def oldest_ms(self) -> dict[int, int]:
        """Return collector -> event time of its oldest row that waits."""
        oldest: dict[int, int] = {}
        for (_, _, collector), items in self.items.items():
            first_ms = min(int(piece.time_ms.min()) for piece, _ in items)
            oldest[collector] = min(first_ms, oldest.get(collector, first_ms))
        return oldest

    def first_offsets(self) -> dict[int, int]:
        """Return partition -> first record of which pieces wait."""
        first: dict[int, int] = {}
        for items in self.items.values():
            for _, position in items:
                first[position.partition] = min(position.offset, first.get(position.partition, position.offset))
        return first


def batches(keys: Iterable[SpanKey], collectors: Interner[CollectorKey]) -> Iterator[list[SpanKey]]:
    """Cut spans into batches of one kind and cluster: all pairs of their windows and collectors, in order of time."""
    alone: dict[tuple[str, int], list[SpanKey]] = defaultdict(list)
    together: dict[tuple[str, int, str, str], list[SpanKey]] = defaultdict(list)
    for key in sorted(keys, key=lambda key: key[1]):
        alone[key[0], key[2]].append(key)
    for (_, collector), some in alone.items():
        if len(some) >= FEW:
            yield from _cut(some)
            continue
        tenant, _, cluster, _ = collectors.items[collector]
        for key in some:
            together[key[0], key[1], tenant, cluster].append(key)
    for some in together.values():
        yield from _cut(some)


def _cut(keys: Sequence[SpanKey]) -> Iterator[list[SpanKey]]:
    found: list[SpanKey] = []
    for key in keys:
        if found and (len(found) == MAX_SPANS or key[1] - found[0][1] > MAX_RANGE_MS):
            yield found
            found = []
        found.append(key)
    if found:
        yield found
