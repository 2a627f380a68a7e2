"""Bound the rows that WITH FILL adds."""

from dataclasses import dataclass

from sqlglot import exp

from secondsight.guard.intervals import DAY_MS, lookup_in
from secondsight.guard.limits import Limits
from secondsight.guard.moments import MILLISECONDS, Lookup, Moment, milliseconds_of, moment_of
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.scopes import Resolved
from secondsight.guard.tree import interval_of


@dataclass(frozen=True, slots=True)
class Fill:
    """One WITH FILL: from one edge to the other in steps, all of moments (milliseconds) or all of numbers."""

    start: Moment | float
    stop: Moment | float
    step: float

    def check(self, now_ms: int, limits: Limits) -> None:
        """Refuse a fill of too many steps.

        Raises:
            Refused: `fill_too_wide`.
        """
        width = abs(_at(self.stop, now_ms) - _at(self.start, now_ms))
        if self.step == 0 or width / abs(self.step) > limits.fill_steps:
            raise Refused("fill_too_wide", Rule.LIMITS)


def fills(resolved: Resolved) -> tuple[Fill, ...]:
    """Return every WITH FILL of a statement.

    Raises:
        Refused: `fill_too_wide` where an edge or the step is missing or not literal.
    """
    lookup = lookup_in(resolved)
    found = []
    for block in resolved.blocks:
        order = block.select.args.get("order")
        clauses = [member.args.get("with_fill") for member in order.expressions] if order is not None else []
        stated = [clause for clause in clauses if clause is not None]
        if len(stated) > 1:
            raise Refused("fill_too_wide", Rule.LIMITS)
        found += [_fill(clause, lookup) for clause in stated]
    return tuple(found)


def _fill(clause: exp.Expr, lookup: Lookup) -> Fill:
    edges = [_edge(clause.args.get(name), lookup) for name in ("from_", "to")]
    step = clause.args.get("step")
    if (
        edges[0] is None
        or edges[1] is None
        or step is None
        or isinstance(edges[0], float) != isinstance(edges[1], float)
    ):
        raise Refused("fill_too_wide", Rule.LIMITS)
    length = interval_of(step)
    number = _number(step)
    if isinstance(edges[0], float):
        width = number
    elif length is not None:
        width = float(milliseconds_of(*length))
    else:
        width = number * (DAY_MS if edges[0].is_date else MILLISECONDS) if number is not None else None
    if width is None:
        raise Refused("fill_too_wide", Rule.LIMITS)
    return Fill(edges[0], edges[1], width)


def _edge(node: exp.Expr | None, lookup: Lookup) -> Moment | float | None:
    if node is None:
        return None
    number = _number(node)
    return number if number is not None else moment_of(node, lookup)


def _number(node: exp.Expr) -> float | None:
    sign = 1
    while isinstance(node, exp.Neg):
        node, sign = node.this, -sign
    return sign * float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def _at(edge: Moment | float, now_ms: int) -> float:
    return edge.at(now_ms) if isinstance(edge, Moment) else edge
