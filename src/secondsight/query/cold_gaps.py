"""Find gaps in ranges that the hot store no longer has, from the rows that the lake has of them.

What says why a gap is there is read from tables that the hot store keeps for ever; traces of it in rows of seconds are
not looked for in the lake, so a reason may read `unknown` there that was known before.
"""

import re
from collections.abc import Callable, Hashable
from typing import Any

from secondsight.access.scope import Scope
from secondsight.model import EntityKind
from secondsight.process.cells import WINDOW_MS
from secondsight.query.cold import ColdTier, Floors, Read
from secondsight.query.coverage import Lack
from secondsight.query.gapreader import BACK_MS, GapReader
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.query.statement import Statement
from secondsight.store.coarse import FINEST
from secondsight.store.schema import raw_table, rollup_table

_LAMBDA = " -> "
"""Only statements that look for evidence of reasons have functions of arrays."""
_OF_SAMPLES = re.compile(r"\bFROM `\w+_(?:1s|30s)`")


class ColdInventory(Inventory):
    """Reads samples from the lake, and all small tables as the inventory that it stands before."""

    def __init__(self, base: Inventory, read: Read) -> None:
        self._base = base
        self._read_cold = read

    def remember(self, key: Hashable, seconds: float, make: Callable[[], Any]) -> Any:
        """Return what was made for a key less than `seconds` ago, or make it now."""
        return self._base.remember(key, seconds, make)

    def read(self, statement: Statement) -> Any:
        """Run a statement where its rows are.

        Raises:
            Retryable, Permanent: As the store or the lake says.
        """
        is_evidence = _LAMBDA in statement.sql
        is_cold = not is_evidence and _OF_SAMPLES.search(statement.sql)
        return self._read_cold(statement) if is_cold else self._base.read(statement)


def edge_of(kind: EntityKind, floors: Floors) -> int:
    """Return the instant before which gaps are looked for in the lake, epoch ms; 0 where it is not needed."""
    floor_ms = max(floors.get(table, 0) for table in (raw_table(kind), rollup_table(kind, FINEST)))
    return -(-floor_ms // WINDOW_MS) * WINDOW_MS


def lacks_of(
    gaps: GapReader, cold: ColdTier, inventory: Inventory, asked: tuple[EntityKind, Filters, Span], scope: Scope
) -> dict[str, Lack] | None:
    """Return entity -> what its gaps in a range come to, from both tiers; None where that would cost too much.

    Raises:
        Retryable: The hot store or the lake is away or busy.
    """
    kind, filters, span = asked
    edge_ms = edge_of(kind, cold.floors())
    found: list[dict[str, Lack] | None] = []
    if span.from_ms < edge_ms:
        old = Span(span.from_ms, min(span.to_ms, edge_ms))
        read = cold.reader(old, BACK_MS, Filters(), scope)
        found.append(gaps.over(ColdInventory(inventory, read)).lacks(kind, filters, old, scope))
    if span.to_ms > edge_ms:
        found.append(gaps.lacks(kind, filters, Span(max(span.from_ms, edge_ms), span.to_ms), scope))
    sums: dict[str, Lack] = {}
    for lacks in found:
        if lacks is None:
            return None
        for entity, lack in lacks.items():
            known = sums.get(entity, Lack())
            sums[entity] = Lack(known.gaps + lack.gaps, known.shed + lack.shed, known.not_due + lack.not_due)
    return sums
