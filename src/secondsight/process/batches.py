"""Gather spans that one query of the store can answer for: neighbouring windows of many collectors."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from secondsight.model import EntityKind
from secondsight.process.deadletter import Position
from secondsight.process.kinds import CollectorKey
from secondsight.process.pieces import Piece
from secondsight.process.series import I32, Interner
from secondsight.process.spans import SpanKey

MAX_RANGE_MS = 2 * 3_600_000
SPARE = 4
"""A query finds rows of all pairs of its windows and collectors: of so many times the spans wanted at most."""


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


def oldest(keys: Iterable[SpanKey], windows: int) -> list[SpanKey]:
    """Return the spans of so many oldest windows, where those of each kind count, in order of time."""
    found: list[SpanKey] = []
    for number, (_, some) in enumerate(groupby(sorted(keys, key=_window), key=_window)):
        if number == windows:
            break
        found += some
    return found


def batches(
    keys: Iterable[SpanKey], collectors: Interner[CollectorKey], most: Callable[[EntityKind], int]
) -> list[list[SpanKey]]:
    """Cut spans into batches of one kind and cluster, those with the oldest windows first.

    Args:
        keys: Which.
        collectors: Who is who.
        most: Spans of a kind that may be in memory at once for this.
    """
    together: dict[tuple[EntityKind, str, str], list[SpanKey]] = defaultdict(list)
    for key in sorted(keys, key=_window):
        tenant, _, cluster, _ = collectors.items[key[2]]
        together[key[0], tenant, cluster].append(key)
    found = [batch for (kind, _, _), some in together.items() for batch in _cut(some, most(kind))]
    return sorted(found, key=lambda batch: batch[0][1])


def _window(key: SpanKey) -> tuple[int, str]:
    return key[1], key[0].value


def _cut(keys: Iterable[SpanKey], most: int) -> Iterator[list[SpanKey]]:
    found: list[SpanKey] = []
    whose: set[int] = set()
    windows = 0
    for start_ms, group in groupby(keys, key=lambda key: key[1]):
        some = list(group)
        more = whose | {key[2] for key in some}
        spans = len(found) + len(some)
        is_wide = found and start_ms - found[0][1] > MAX_RANGE_MS
        if found and (is_wide or spans > most or len(more) * (windows + 1) > SPARE * spans):
            yield found
            found, more, windows = [], {key[2] for key in some}, 0
        while len(some) > most:
            yield some[:most]
            some = some[most:]
        found, whose, windows = found + some, more, windows + 1
    if found:
        yield found
