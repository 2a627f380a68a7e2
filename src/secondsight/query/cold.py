"""Read from the lake what the hot store no longer has, and join both at one instant.

A plan is cut: what lies before the cut is read from the lake, all of it, what lies behind from the hot store. The cut
lies behind the hot store's floor by as much as counters look back, so that neither side lacks the sample before its
first one, and on a border of windows, so that none is counted on both sides. A window that the cut runs through is made
of what both sides say of its parts. The statements are those of the hot store: one compiler, one place that writes
scopes.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from secondsight.access.scope import Scope
from secondsight.lake.cold_request import ColdRequest, Reach
from secondsight.process.cells import WINDOW_MS
from secondsight.query.compile import compile_beside, compile_series
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Leg, SeriesPlan, Span
from secondsight.query.request import Filters
from secondsight.query.rows import Figures
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, Parameters, Statement
from secondsight.store.clusters import WIDTHS_MS
from secondsight.store.coarse import CLUSTER, FINEST

FLOORS_SECONDS = 2.0
LAG_MS = 6 * 3_600_000
"""What is older is in the lake; newer rows may be on their way."""
BESIDE = "beside"
"""Name under which the lake's statement finds what the hot store says of a window that both have a part of."""
GIVEN: Mapping[str, tuple[str, ...]] = {
    "entities": ("tenant_id", "cluster_id", "host_id", "entity", "gpu_model"),
    "allocations": ("tenant_id", "cluster_id", "host_id", "entity", "owner_team", "job_id", "model_id"),
}
"""Small tables that the hot store keeps whole -> their columns that a statement over samples may name."""
_WIDTHS_MS = {FINEST: WINDOW_MS, **WIDTHS_MS}
_NAMED = re.compile(r"\bFROM `(\w+)`")

Floors = Mapping[str, int]
"""Table -> epoch ms from which on the hot store has every row; others have all rows."""
Read = Callable[[Statement], Any]


class Pool(Protocol):
    """What answers statements over the lake; `lake.cold_pool.ColdPool`."""

    def query(self, request: ColdRequest) -> Any:
        """Return the rows of a statement as an Arrow table.

        Raises:
            Retryable: The lake or its processes are away or busy.
            Rejected: It would cost more than one question may.
        """
        ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """One plan by the side that answers each of its parts.

    Attributes:
        cold, hot: Windows that one side alone has, or None.
        across: (lake's part, hot store's part) of the window that the cut runs through, or None.
    """

    cold: SeriesPlan | None
    hot: SeriesPlan | None
    across: tuple[SeriesPlan, SeriesPlan] | None = None


class ColdTier:
    """Reads from the lake. Safe from several threads.

    Args:
        pool: Answers statements.
        floors: Returns the floors of now.
        inventory: Reads the hot store's small tables.
    """

    def __init__(self, pool: Pool, floors: Callable[[], Floors], inventory: Inventory) -> None:
        self._pool = pool
        self._floors = floors
        self._inventory = inventory

    def floors(self) -> Floors:
        """Return the floors, kept for a moment."""
        found: Floors = self._inventory.remember("floors", FLOORS_SECONDS, self._floors)
        return found

    def reader(self, span: Span, back_ms: int, filters: Filters, scope: Scope) -> Read:
        """Return what runs statements about a range over the lake."""
        reach = reach_of(span, back_ms, filters, scope)
        return lambda statement: self.read(statement, reach, scope)

    def read(self, statement: Statement, reach: Reach, scope: Scope, beside: Mapping[str, Any] | None = None) -> Any:
        """Return the rows of a statement over the lake.

        Raises:
            Retryable, Rejected: As `Pool.query`.
        """
        named = set(_NAMED.findall(statement.sql))
        given = {name: self._given(name, scope) for name in GIVEN if name in named}
        request = ColdRequest(statement.sql, statement.params, reach, given | dict(beside or {}))
        return self._pool.query(request)

    def across(self, cold: SeriesPlan, hot: SeriesPlan, scope: Scope) -> Any:
        """Return the rows of a window that both sides have a part of, as `compile_series` gives them."""
        rows = self._inventory.read(compile_beside(hot, scope))
        reach = reach_of(cold.span, cold.lookback_ms, cold.filters, scope)
        return self.read(compile_series(cold, scope, BESIDE), reach, scope, {BESIDE: rows})

    def _given(self, name: str, scope: Scope) -> Any:
        def made() -> Any:
            parameters = Parameters()
            rows = ScopedTables(scope, parameters).table(name, [f"DISTINCT {', '.join(GIVEN[name])}"], final=True)
            return self._inventory.read(Statement(rows[1:-1], parameters.values(), LIMITS))

        return self._inventory.remember(("given", name, scope), FLOORS_SECONDS, made)


def reach_of(span: Span, back_ms: int, filters: Filters, scope: Scope) -> Reach:
    """Return which files a question about a range can need."""
    boxes = [box.clusters for box in scope.boxes]
    admitted = () if None in boxes else sorted({name for some in boxes if some is not None for name in some})
    window_ms = max(_WIDTHS_MS.values())
    return Reach(
        from_ms=max(span.from_ms - max(back_ms, window_ms), 0),
        to_ms=span.to_ms + 1,
        tenants=scope.all_tenant_ids,
        clusters=filters.cluster or tuple(admitted),
        hosts=filters.host,
        entities=filters.gpu,
    )


def cut_of(plan: SeriesPlan, floors: Floors) -> int:
    """Return up to when a plan is read from the lake, epoch ms; 0 where the hot store has all of it."""
    cut_ms = 0
    for table, span, back_ms, width_ms in _ranges(plan):
        floor_ms = floors.get(table, 0)
        if span.from_ms - back_ms < floor_ms:
            cut_ms = max(cut_ms, min(span.to_ms, _up(floor_ms + back_ms, width_ms)))
    return cut_ms


def pieces_of(plan: SeriesPlan, floors: Floors, now_ms: int) -> Pieces:
    """Divide a plan at its cut: windows before it, behind it, and the one that the cut runs through."""
    cut_ms = cut_of(plan, floors)
    if not cut_ms:
        return Pieces(None, plan)
    if plan.is_pooled and _runs_through(plan, cut_ms, now_ms):
        return pieces_of(_of_entities(plan), floors, now_ms)
    once = replace(plan, final_raw=False, final_rollup=False)  # rows of the lake are there once
    if cut_ms >= plan.span.to_ms:
        return Pieces(once, None)
    if plan.whole:
        return Pieces(None, None, (_kept(once, plan.span.from_ms, cut_ms), _kept(plan, cut_ms, plan.span.to_ms)))
    start_ms, end_ms = _window_around(plan, cut_ms)
    if not _runs_through(plan, cut_ms, now_ms):
        return Pieces(limited(once, plan.span.from_ms, end_ms), limited(plan, end_ms, plan.span.to_ms))
    parts = (_kept(once, start_ms, cut_ms), _kept(plan, cut_ms, end_ms))
    return Pieces(limited(once, plan.span.from_ms, start_ms), limited(plan, end_ms, plan.span.to_ms), parts)


def parts_of(plan: SeriesPlan, floors: Floors) -> tuple[SeriesPlan | None, SeriesPlan | None]:
    """Return what the lake and what the hot store read of a plan whose figures are made of the rows of both."""
    cut_ms, span = cut_of(plan, floors), plan.span
    cold = _kept(plan, span.from_ms, cut_ms) if span.from_ms < cut_ms else None
    return cold, _kept(plan, cut_ms, span.to_ms) if cut_ms < span.to_ms else None


def _runs_through(plan: SeriesPlan, cut_ms: int, now_ms: int) -> bool:
    """Tell whether a window has parts on both sides: the lake may not have the rest of it yet."""
    _, end_ms = _window_around(plan, cut_ms)
    return cut_ms < plan.span.to_ms and (plan.whole or (end_ms != cut_ms and end_ms > now_ms - LAG_MS))


def _window_around(plan: SeriesPlan, cut_ms: int) -> tuple[int, int]:
    """Return the output window that ends at a cut, or that the cut runs through."""
    if plan.edges:
        after = bisect_left(plan.edges, cut_ms)
        return plan.edges[max(after - 1, 0)], plan.edges[min(after, len(plan.edges) - 1)]
    end_ms = _up(cut_ms, plan.resolution_ms)
    return end_ms - plan.resolution_ms, end_ms


def _of_entities(plan: SeriesPlan) -> SeriesPlan:
    """Return a plan that reads rows of entities where it would read those of whole clusters."""
    return replace(plan, legs=tuple(Leg(leg.resolution.removeprefix(CLUSTER), leg.span) for leg in plan.legs))


def limited(plan: SeriesPlan, from_ms: int, to_ms: int) -> SeriesPlan | None:
    """Return the part of a plan in [from, to), whole windows; None where there is none."""
    span = _common(plan.span, from_ms, to_ms)
    if span is None:
        return None
    return replace(_kept(plan, from_ms, to_ms), span=span, due_ms=min(plan.due_ms, span.to_ms))


def joined(cold: Figures, hot: Figures, *, counts_gaps: bool) -> Figures:
    """Return what both sides of a cut gave as one: series end to end, counts added up, the gap between them counted."""
    series: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for labels, times, values in (*cold.cut, *hot.cut):
        series.setdefault(tuple((name, value or "") for name, value in labels.items()), []).append(
            (labels, times, values)
        )
    cut = [_end_to_end(parts) for _, parts in sorted(series.items())]
    held = dict(cold.held)
    for key, found in hot.held.items():
        held[key] = held[key].before(found, counts_gaps=counts_gaps) if key in held else found
    return Figures(cut, held, cold.late + hot.late, cold.rows + hot.rows)


def _end_to_end(parts: Sequence[Any]) -> Any:
    labels = parts[0][0]
    return labels, np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])


def _kept(plan: SeriesPlan, from_ms: int, to_ms: int) -> SeriesPlan:
    """Return a plan that reads only what lies in [from, to); its windows are as before."""
    legs = tuple(
        Leg(leg.resolution, part) for leg in plan.legs if (part := _common(leg.span, from_ms, to_ms)) is not None
    )
    rollup = None if plan.rollup is None else _common(plan.rollup, from_ms, to_ms)
    head = None if plan.head is None else _common(plan.head, from_ms, to_ms)
    raw = None if plan.raw is None else _common(plan.raw, from_ms, to_ms)
    return replace(plan, head=head, rollup=rollup, legs=legs, raw=raw, is_part=True)


def _ranges(plan: SeriesPlan) -> list[tuple[str, Span, int, int]]:
    """Return (table, range, how far it looks back, width that a cut has to keep whole) of what a plan reads."""
    raws = [span for span in (plan.head, plan.raw) if span is not None]
    found = [(plan.raw_table, span, plan.lookback_ms, plan.base_ms) for span in raws]
    for leg in plan.legs:
        found.append((plan.rollup_table(leg), leg.span, 0, max(_WIDTHS_MS[leg.resolution], plan.base_ms)))
    return found


def _common(span: Span, from_ms: int, to_ms: int) -> Span | None:
    start_ms, end_ms = max(span.from_ms, from_ms), min(span.to_ms, to_ms)
    return Span(start_ms, end_ms) if start_ms < end_ms else None


def _up(time_ms: int, width_ms: int) -> int:
    return -(-time_ms // width_ms) * width_ms
