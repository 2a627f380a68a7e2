"""Say what each kind of expression means, from what its parts mean."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from secondsight.guard.applied import chosen, element
from secondsight.guard.casts import cast
from secondsight.guard.figures import (
    PLAIN_INTEGER,
    Figure,
    Form,
    added,
    divided,
    multiplied,
    require_one_unit,
    together,
)
from secondsight.guard.functions import SCALARS, Kind, Scalar
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.scopes import Block
from secondsight.guard.tree import CALLS, whole_number


class Within(Protocol):
    """A statement in which the meaning of every expression can be asked for."""

    def of(self, node: exp.Expr, block: Block) -> Figure:
        """Return the figure of an expression of a block."""
        ...

    def call(self, node: exp.Expr, block: Block, window: exp.Expr | None) -> Figure:
        """Return the figure of a call; `window` is the OVER around it."""
        ...

    def scalar(self, scalar: Scalar, arguments: list[exp.Expr], block: Block) -> Figure:
        """Return the figure of a function of single values."""
        ...


def look_at_window(within: Within, node: exp.Expr, block: Block) -> None:
    """Look at what a window is partitioned and ordered by."""
    for member in node.args.get("partition_by") or []:
        within.of(member, block)
    order = node.args.get("order")
    for member in order.expressions if order is not None else []:
        within.of(member.this, block)


def _all(within: Within, node: exp.Expr, block: Block) -> Figure:
    return together([within.of(member, block) for member in node.iter_expressions()], one_unit=False)


def _same(within: Within, node: exp.Expr, block: Block) -> Figure:
    return within.of(node.this, block)


def _literal(within: Within, node: exp.Expr, block: Block) -> Figure:
    del within, block
    kind = Kind.INTEGER
    if isinstance(node, exp.Literal):
        kind = Kind.TEXT if node.is_string else Kind.INTEGER if node.name.isdigit() else Kind.NUMBER
    return Figure(Form.CONSTANT, kind, nullable=isinstance(node, exp.Null), literal=True)


def _interval(within: Within, node: exp.Expr, block: Block) -> Figure:
    del within, node, block
    return Figure(Form.CONSTANT, Kind.OTHER, literal=True, size=2)


def _truth(within: Within, node: exp.Expr, block: Block) -> Figure:
    """Look at a comparison or a connection of truths; what is compared is of one unit."""
    members = [within.of(member, block) for member in node.iter_expressions()]
    if not isinstance(node, exp.And | exp.Or | exp.Not):
        require_one_unit(members)
    whole = together(members, one_unit=False)
    return replace(
        PLAIN_INTEGER,
        over_time=whole.over_time,
        origin=whole.origin,
        nullable=whole.nullable,
        literal=bool(members) and whole.literal,
        size=whole.size,
    )


def _arithmetic(within: Within, node: exp.Expr, block: Block) -> Figure:
    if isinstance(node, exp.Mod):
        return within.scalar(SCALARS["modulo"], [node.this, node.expression], block)
    left, right = within.of(node.this, block), within.of(node.expression, block)
    if isinstance(node, exp.Mul):
        return multiplied(left, right)
    if isinstance(node, exp.Div):
        return divided(left, right)
    return added(left, right, minus=isinstance(node, exp.Sub))


def _case(within: Within, node: exp.Expr, block: Block) -> Figure:
    operand = node.args.get("this")
    branches = node.args["ifs"]
    conditions = [within.of(branch.this, block) for branch in branches]
    if operand is not None:
        require_one_unit([within.of(operand, block), *conditions])
    values = [branch.args["true"] for branch in branches]
    if node.args.get("default") is not None:
        values.append(node.args["default"])
    total = len(values) > len(branches)
    return chosen([within.of(value, block) for value in values], conditions, total=total)


def _if(within: Within, node: exp.Expr, block: Block) -> Figure:
    values = [within.of(node.args[name], block) for name in ("true", "false") if node.args.get(name) is not None]
    return chosen(values, [within.of(node.this, block)], total=len(values) > 1)


def _cast(within: Within, node: exp.Expr, block: Block) -> Figure:
    return cast(node, within.of(node.this, block))


def _extract(within: Within, node: exp.Expr, block: Block) -> Figure:
    figure = within.of(node.expression, block)
    if figure.kind is not Kind.TIME:
        raise Refused("function_may_fail", Rule.FUNCTIONS)
    return replace(figure, kind=Kind.INTEGER, size=figure.size + 1)


def _tuple(within: Within, node: exp.Expr, block: Block) -> Figure:
    parts = tuple(within.of(member, block) for member in node.expressions)
    return replace(together(parts, one_unit=False), kind=Kind.OTHER, parts=parts)


def _array(within: Within, node: exp.Expr, block: Block) -> Figure:
    members = [within.of(member, block) for member in node.expressions]
    return replace(together(members, one_unit=True), kind=Kind.LIST)


def _bracket(within: Within, node: exp.Expr, block: Block) -> Figure:
    figure = within.of(node.this, block)
    index = within.of(node.expressions[0], block)
    if index.kind is not Kind.INTEGER:
        raise Refused("function_not_offered", Rule.FUNCTIONS)
    return replace(figure, kind=Kind.OTHER, size=figure.size + index.size)


def _dot(within: Within, node: exp.Expr, block: Block) -> Figure:
    return element(within.of(node.this, block), whole_number(node.expression))


def _concat(within: Within, node: exp.Expr, block: Block) -> Figure:
    return replace(_all(within, node, block), kind=Kind.TEXT)


def _pattern(within: Within, node: exp.Expr, block: Block) -> Figure:
    name = "match" if isinstance(node, exp.RegexpLike) else "like"
    return within.scalar(SCALARS[name], [node.this, node.expression], block)


def _in(within: Within, node: exp.Expr, block: Block) -> Figure:
    members = [within.of(node.this, block), *(within.of(member, block) for member in node.expressions)]
    query = node.args.get("query")
    if query is not None:
        members.append(within.of(query, block))
    require_one_unit(members)
    return replace(PLAIN_INTEGER, over_time=members[0].over_time, size=sum(member.size for member in members))


def _window(within: Within, node: exp.Expr, block: Block) -> Figure:
    call = node.this
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        if isinstance(call, exp.Filter):
            within.of(call.expression.this, block)
        call = call.this
    if not isinstance(call, CALLS):
        raise Refused("function_not_offered", Rule.FUNCTIONS)
    look_at_window(within, node, block)
    return within.call(call, block, node)


def _filter(within: Within, node: exp.Expr, block: Block) -> Figure:
    within.of(node.expression.this, block)
    return within.of(node.this, block)


HANDLERS: Mapping[type[exp.Expr], Callable[[Within, exp.Expr, Block], Figure]] = {
    exp.Literal: _literal,
    exp.Boolean: _literal,
    exp.Null: _literal,
    exp.Interval: _interval,
    exp.Alias: _same,
    exp.Paren: _same,
    exp.Neg: _same,
    exp.Subquery: _same,
    exp.Lambda: _same,
    exp.IgnoreNulls: _same,
    exp.RespectNulls: _same,
    exp.Filter: _filter,
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ,
            exp.NullSafeNEQ, exp.Is, exp.Between, exp.Exists,
        ),
        _truth,
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _arithmetic),
    exp.Case: _case,
    exp.If: _if,
    exp.Cast: _cast,
    exp.CastToStrType: _cast,
    exp.Extract: _extract,
    exp.Tuple: _tuple,
    exp.Array: _array,
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.DPipe: _concat,
    exp.Like: _pattern,
    exp.ILike: _pattern,
    exp.RegexpLike: _pattern,
    exp.Distinct: _all,
    exp.In: _in,
    exp.Window: _window,
}  # fmt: skip
"""Class of node -> what it means."""
