"""Find gaps in ranges of which the hot store has a part: its rows and those of the lake, which meet at one instant.

Rows of both tiers are put together before gaps are looked for, so that one over the seam is one. A lake that is away
leaves what lies before the seam out, and the answer says so: rows that could not be read are no gaps.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from secondsight.access.scope import Scope
from secondsight.errors import Retryable
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.query.cold import ColdTier, Floors
from secondsight.query.coverage import Lack
from secondsight.query.gapreader import BACK_MS, Found, GapReader
from secondsight.query.gaps import Filled
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.query.samples import HotSamples
from secondsight.query.statement import Statement
from secondsight.store.coarse import FINEST
from secondsight.store.schema import raw_table, rollup_table


class TieredSamples:
    """Reads what lies before the edge of a kind from the lake, the rest from the hot store."""

    def __init__(self, cold: ColdTier, inventory: Inventory, scope: Scope) -> None:
        self._cold = cold
        self._hot = HotSamples(inventory)
        self._scope = scope

    def rows(self, kind: EntityKind, span: Span, make: Callable[[Span], Statement]) -> list[dict[str, Any]]:
        """Return the rows of a statement about a range, those of the lake first.

        Raises:
            Retryable: A store is away or busy.
        """
        edge_ms = edge_of(kind, self._cold.floors())
        found: list[dict[str, Any]] = []
        if span.from_ms < edge_ms:
            old = Span(span.from_ms, min(span.to_ms, edge_ms))
            read = self._cold.reader(old, BACK_MS, Filters(), self._scope)
            found += read(make(old)).to_pylist()
        if span.to_ms > edge_ms:
            found += self._hot.rows(kind, Span(max(span.from_ms, edge_ms), span.to_ms), make)
        return found


class TieredGaps:
    """Finds and explains gaps wherever their rows are. Safe from several threads.

    Args:
        gaps: Reads the hot store.
        inventory: Reads its small tables.
        cold: Reads the lake; None where there is none.
    """

    def __init__(self, gaps: GapReader, inventory: Inventory, cold: ColdTier | None) -> None:
        self._gaps = gaps
        self._inventory = inventory
        self._cold = cold

    def read(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> Found:
        """Return the gaps of a range, as `GapReader.read`; without what lies in a lake that is away.

        Raises:
            Rejected, Retryable: As `GapReader.read`.
        """
        cold, edge_ms = self._cold, self._edge(kind)
        if cold is None or span.from_ms >= edge_ms:
            return self._gaps.read(kind, filters, span, scope)
        try:
            found = self._over(cold, scope).read(kind, filters, span, scope)
        except Retryable as error:
            kept, missing = _kept(span, edge_ms), _missing(error)
            if kept is None:
                return Found((), span, {}, missing=missing)
            return replace(self._gaps.read(kind, filters, kept, scope), missing=missing)
        return replace(found, tier="cold" if span.to_ms <= edge_ms else "hot+cold")

    def filled(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> tuple[list[Filled], str, str]:
        """Return gaps that a backlog closed, as `GapReader.filled`, the tier that they were read from, what is missing.

        Raises:
            Rejected, Retryable: As `GapReader.filled`.
        """
        cold, edge_ms = self._cold, self._edge(kind)
        if cold is None or span.from_ms >= edge_ms:
            return self._gaps.filled(kind, filters, span, scope), "hot", ""
        try:
            found = self._over(cold, scope).filled(kind, filters, span, scope)
        except Retryable as error:
            kept = _kept(span, edge_ms)
            rest = [] if kept is None else self._gaps.filled(kind, filters, kept, scope)
            return rest, "hot", _missing(error)
        return found, "cold" if span.to_ms <= edge_ms else "hot+cold", ""

    def lacks(self, kind: EntityKind, filters: Filters, span: Span, scope: Scope) -> dict[str, Lack] | None:
        """Return entity -> what its gaps come to; None where that would cost too much, or the lake is away.

        Raises:
            Retryable: The hot store is away or busy.
        """
        cold = self._cold
        if cold is None or span.from_ms >= self._edge(kind):
            return self._gaps.lacks(kind, filters, span, scope)
        try:
            return self._over(cold, scope).lacks(kind, filters, span, scope)
        except Retryable:
            return None

    def _edge(self, kind: EntityKind) -> int:
        return 0 if self._cold is None else edge_of(kind, self._cold.floors())

    def _over(self, cold: ColdTier, scope: Scope) -> GapReader:
        return self._gaps.over(TieredSamples(cold, self._inventory, scope))


def edge_of(kind: EntityKind, floors: Floors) -> int:
    """Return the instant before which gaps are looked for in the lake, epoch ms; 0 where it is not needed."""
    floor_ms = max(floors.get(table, 0) for table in (raw_table(kind), rollup_table(kind, FINEST)))
    return -(-floor_ms // WINDOW_MS) * WINDOW_MS


def _kept(span: Span, edge_ms: int) -> Span | None:
    """Return the part of a range that the hot store has."""
    return Span(edge_ms, span.to_ms) if edge_ms < span.to_ms else None


def _missing(error: Retryable) -> str:
    return f"the lake could not be read, gaps before the hot store's oldest rows are missing: {error}"
