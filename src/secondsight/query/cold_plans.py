"""Answer plans from both tiers: cut each, read its pieces where they are, and join them.

A tier that cannot be read makes an answer partial, and the answer says which; what the other one has is given.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from secondsight.access.scope import Scope
from secondsight.errors import Retryable
from secondsight.query.cold import ColdTier, Floors, Pieces, Read, cut_of, joined, parts_of, pieces_of
from secondsight.query.plan import SeriesPlan, Situation
from secondsight.query.rows import Figures
from secondsight.query.statement import Statement

NOTHING = Figures([], {}, 0, 0)

ReadPlans = Callable[[Sequence[SeriesPlan], Read | None], Sequence[Figures]]
"""Returns the figures of plans, read by a function over the lake, or by None from the hot store."""


@dataclass(slots=True)
class Tiers:
    """Which tiers an answer is of.

    Attributes:
        missing: Why one could not be read; "" where all were.
    """

    read: set[str] = field(default_factory=set)
    missing: str = ""

    @property
    def name(self) -> str:
        """Return `hot`, `cold` or `hot+cold`."""
        return "+".join(name for name in ("hot", "cold") if name in self.read) or "hot"


def any_cold(plans: Sequence[SeriesPlan], floors: Floors) -> bool:
    """Tell whether the hot store lacks a part of some plan."""
    return bool(floors) and any(cut_of(plan, floors) for plan in plans)


def read_tiers(
    plans: Sequence[SeriesPlan], situation: Situation, scope: Scope, cold: ColdTier, read_plans: ReadPlans, tiers: Tiers
) -> list[Figures]:
    """Return the figures of plans of one request, some of which the hot store no longer has whole.

    Raises:
        Retryable: The hot store is away or busy.
        Rejected: It would cost more than one question may.
    """
    floors = cold.floors()
    pieces = [pieces_of(plan, floors, situation.now_ms) for plan in plans]
    cold_figures = _cold_figures(pieces, scope, cold, read_plans, tiers)
    hot_plans = {number: piece.hot for number, piece in enumerate(pieces) if piece.hot is not None}
    hot_figures: dict[int, Figures] = {}
    if hot_plans:
        hot_figures = dict(zip(hot_plans, read_plans(list(hot_plans.values()), None), strict=True))
        tiers.read.add("hot")
    answers = []
    for number, plan in enumerate(plans):
        parts = [*cold_figures.get(number, []), *([hot_figures[number]] if number in hot_figures else [])]
        answers.append(_joined(parts, plan))
    return answers


def read_parts(
    plan: SeriesPlan,
    scope: Scope,
    cold: ColdTier | None,
    stores: tuple[Read, Callable[[SeriesPlan], Statement]],
    tiers: Tiers,
) -> list[Any]:
    """Return the rows of a plan out of each tier that has some, in order of time; they add up.

    Args:
        plan: What is read.
        scope: What may be read.
        cold: The lake; None where there is none.
        stores: Reads the hot store; returns the statement for a part of the plan.
        tiers: Is told which were read.

    Raises:
        Retryable: The hot store is away or busy.
        Rejected: It would cost more than one question may.
    """
    hot, make = stores
    older, newer = (None, plan) if cold is None else parts_of(plan, cold.floors())
    found = []
    if cold is not None and older is not None:
        try:
            found.append(cold.reader(older.span, older.lookback_ms, older.filters, scope)(make(older)))
            tiers.read.add("cold")
        except Retryable as error:
            tiers.missing = _away(error)
    if newer is not None:
        found.append(hot(make(newer)))
        tiers.read.add("hot")
    return found


def _away(error: Retryable) -> str:
    return f"the lake could not be read, what it holds of this range is missing: {error}"


def _cold_figures(
    pieces: Sequence[Pieces], scope: Scope, cold: ColdTier, read_plans: ReadPlans, tiers: Tiers
) -> dict[int, list[Figures]]:
    """Return what the lake gave, by number of the plan, in order of time; nothing where it is away."""
    found: defaultdict[int, list[Figures]] = defaultdict(list)
    try:
        alike: defaultdict[Any, list[tuple[int, SeriesPlan]]] = defaultdict(list)
        for number, piece in enumerate(pieces):
            if piece.cold is not None:
                alike[piece.cold.span].append((number, piece.cold))
        for span, some in alike.items():
            mine = [plan for _, plan in some]
            read = cold.reader(span, max(plan.lookback_ms for plan in mine), mine[0].filters, scope)
            for (number, _), figures in zip(some, read_plans(mine, read), strict=True):
                found[number].append(figures)
            tiers.read.add("cold")
        for number, piece in enumerate(pieces):
            if piece.across is not None:
                found[number].append(_across(piece.across, scope, cold, read_plans))
                tiers.read |= {"hot", "cold"}
    except Retryable as error:
        tiers.missing = _away(error)
    return found


def _across(parts: tuple[SeriesPlan, SeriesPlan], scope: Scope, cold: ColdTier, read_plans: ReadPlans) -> Figures:
    """Return the figures of a window that both tiers have a part of."""
    first, second = parts
    return read_plans([first], lambda _statement: cold.across(first, second, scope))[0]


def _joined(parts: Sequence[Figures], plan: SeriesPlan) -> Figures:
    counts_gaps = plan.rollup is None
    return reduce(lambda before, after: joined(before, after, counts_gaps=counts_gaps), parts) if parts else NOTHING
