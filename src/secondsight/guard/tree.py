"""Admit only statements of known shape: for each class of node, the arguments that it may have.

Whatever the parser gives beyond this list is refused, so a clause that nobody thought of is no way around the guard.
"""

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule

_BINARY = frozenset({"this", "expression"})
_SET_OPERATION = frozenset({"this", "expression", "distinct", "with_"})
_CALL = frozenset({"this", "expressions"})

NODES: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(
        {
            "expressions", "from_", "joins", "where", "group", "having", "qualify", "windows", "order", "limit",
            "offset", "distinct", "with_",
        }
    ),
    exp.Union: _SET_OPERATION,
    exp.Except: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Subquery: frozenset({"this", "alias"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias", "scalar"}),
    exp.From: frozenset({"this"}),
    exp.Join: frozenset({"this", "side", "kind", "on", "using", "expressions"}),
    exp.Table: frozenset({"this", "alias"}),
    exp.TableAlias: frozenset({"this"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Star: frozenset({"except_"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Boolean: frozenset({"this"}),
    exp.Null: frozenset(),
    exp.Where: frozenset({"this"}),
    exp.Having: frozenset({"this"}),
    exp.Qualify: frozenset({"this"}),
    exp.Group: frozenset({"expressions", "rollup", "cube", "all"}),
    exp.Rollup: frozenset({"expressions"}),
    exp.Cube: frozenset({"expressions"}),
    exp.GroupingSets: frozenset({"expressions"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first", "with_fill"}),
    exp.WithFill: frozenset({"from_", "to", "step", "interpolate"}),
    exp.Limit: frozenset({"expression", "expressions", "outer"}),
    exp.Offset: frozenset({"expression", "expressions"}),
    exp.Distinct: frozenset({"expressions", "on"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "alias", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Anonymous: _CALL,
    exp.AnonymousAggFunc: _CALL,
    exp.CombinedAggFunc: _CALL,
    exp.ParameterizedAgg: _CALL | {"params"},
    exp.CombinedParameterizedAgg: _CALL | {"params"},
    exp.Filter: _BINARY,
    exp.IgnoreNulls: frozenset({"this"}),
    exp.RespectNulls: frozenset({"this"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.CastToStrType: frozenset({"this", "to"}),
    exp.DataType: frozenset({"this", "expressions", "nested", "nullable"}),
    exp.DataTypeParam: frozenset({"this"}),
    exp.Extract: _BINARY,
    exp.Var: frozenset({"this"}),
    exp.Interval: frozenset({"this", "unit"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true", "false"}),
    exp.Tuple: frozenset({"expressions"}),
    exp.Array: frozenset({"expressions"}),
    exp.Bracket: frozenset({"this", "expressions"}),
    exp.Dot: _BINARY,
    exp.Lambda: frozenset({"this", "expressions"}),
    exp.Exists: frozenset({"this"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Like: _BINARY | {"negate"},
    exp.ILike: _BINARY | {"negate"},
    exp.RegexpLike: _BINARY,
    exp.DPipe: _BINARY | {"safe"},
    exp.Paren: frozenset({"this"}),
    exp.Not: frozenset({"this"}),
    exp.Neg: frozenset({"this"}),
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
            exp.Is, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod,
        ),
        _BINARY,
    ),
}  # fmt: skip
"""Class of node -> arguments that may be set."""

CALLS = (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc, exp.ParameterizedAgg, exp.CombinedParameterizedAgg)
QUERIES = (exp.Select, exp.Union, exp.Except, exp.Intersect)

_CUBE_KEYS = 5
_ROLLUP_KEYS = 12
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ %/()+:,.-]{0,127}")
_UNITS = frozenset(
    {"NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"}
)
_KINDS = frozenset({"", "INNER", "OUTER", "CROSS", "ASOF", "SEMI", "ANTI", "ANY", "ALL", "ARRAY"})
_TYPES: Mapping[exp.DType, int] = {
    **dict.fromkeys(
        (
            exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.UTINYINT,
            exp.DType.USMALLINT, exp.DType.UINT, exp.DType.UBIGINT, exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.TEXT,
            exp.DType.DATE, exp.DType.DATE32, exp.DType.BOOLEAN,
        ),
        0,
    ),
    exp.DType.DATETIME: 1,
    exp.DType.DATETIME64: 2,
    exp.DType.TIMESTAMP: 0,
}  # fmt: skip
"""Types that a cast may name -> most parameters of each."""


def one_query(trees: list[exp.Expr]) -> exp.Expr:
    """Return the one query that was sent, brackets around it dropped.

    Raises:
        Refused: `several_statements` or `not_a_query`.
    """
    if len(trees) != 1:
        raise Refused("several_statements" if trees else "not_a_query", Rule.TREE)
    tree = trees[0]
    while isinstance(tree, exp.Subquery) and set(arguments_of(tree)) == {"this"}:
        tree = tree.this
    if type(tree) not in QUERIES:
        raise Refused("not_a_query", Rule.TREE)
    return tree


def check_tree(tree: exp.Expr, limits: Limits) -> None:
    """Refuse each node, and each argument of a node, that is not on the list.

    Raises:
        Refused: `clause_not_offered`, `too_complex`, `unknown_name`, `limit_not_offered` and others.
    """
    for count, node in enumerate(tree.walk()):
        if count >= limits.nodes:
            raise Refused("too_complex", Rule.TREE)
        allowed = NODES.get(type(node))
        if allowed is None or not allowed.issuperset(arguments_of(node)):
            raise Refused("clause_not_offered", Rule.TREE)
        check = _SHAPES.get(type(node))
        if check is not None:
            check(node, limits)


def text_of(node: exp.Expr) -> str | None:
    """Return the text of a quoted literal, else None."""
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def interval_of(node: exp.Expr) -> tuple[int, str] | None:
    """Return (amount, unit) of an INTERVAL or a `toInterval...` call on a literal."""
    if isinstance(node, exp.Interval):
        return int(node.this.name), node.args["unit"].name.lower().removesuffix("s")
    if isinstance(node, exp.Anonymous) and node.name.startswith("toInterval") and node.expressions:
        amount = whole_number(node.expressions[0])
        return (amount, node.name.removeprefix("toInterval").lower()) if amount is not None else None
    return None


def arguments_of(node: exp.Expr) -> list[str]:
    """Return the names of the arguments of a node that are set."""
    return [name for name, value in node.args.items() if value is not None and value is not False and value != []]


def is_literal(node: object) -> bool:
    """Tell whether a node is a number, text, bool or NULL as it stands, signed or in brackets."""
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def whole_number(node: object) -> int | None:
    """Return the number that a plain integer literal stands for, else None."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        return int(node.name)
    return None


def _require(holds: bool, code: str = "clause_not_offered") -> None:
    if not holds:
        raise Refused(code, Rule.TREE)


def _identifier(node: exp.Expr, _: Limits) -> None:
    name = node.this
    _require(isinstance(name, str) and _NAME.fullmatch(name) is not None, "unknown_name")
    _require(not name.startswith("__"), "reserved_alias")


def _table(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, exp.Identifier), "clause_not_offered")


def _column(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, exp.Identifier | exp.Star | exp.Literal))
    if isinstance(node.this, exp.Literal):
        _require(node.args.get("table") is not None and whole_number(node.this) is not None)


def _join(node: exp.Expr, _: Limits) -> None:
    kind, side = str(node.args.get("kind") or ""), str(node.args.get("side") or "")
    _require(kind in _KINDS and side in ("", "INNER", "LEFT", "RIGHT", "FULL"), "join_not_offered")
    members = [node.this, *node.expressions]
    if kind == "ARRAY":
        _require(all(isinstance(member.unalias(), exp.Column) for member in members))
        _require(not any(isinstance(inner, QUERIES) for inner in node.walk()))
    else:
        _require(not node.expressions and isinstance(node.this, exp.Table | exp.Subquery))


def _from(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, exp.Table | exp.Subquery))


def _subquery(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, (*QUERIES, exp.Subquery)))


def _set_operation(node: exp.Expr, _: Limits) -> None:
    _require(all(isinstance(arm, (*QUERIES, exp.Subquery)) for arm in (node.this, node.expression)))
    _require(not any(isinstance(arm, exp.Subquery) and arm.args.get("alias") for arm in (node.this, node.expression)))


def _limit(node: exp.Expr, limits: Limits) -> None:
    number = whole_number(node.args.get("expression"))
    _require(number is not None and number <= limits.limit, "limit_not_offered")
    outer = node.args.get("outer")
    _require(outer is None or (isinstance(outer, exp.Limit) and not outer.expressions and not outer.args.get("offset")))


def _call(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, str), "function_not_offered")


def _parametric(node: exp.Expr, limits: Limits) -> None:
    _call(node, limits)
    _require(all(is_literal(parameter) for parameter in node.expressions), "function_not_offered")


def _data_type(node: exp.Expr, _: Limits) -> None:
    parameters = _TYPES.get(node.this)
    _require(parameters is not None and len(node.expressions) <= parameters, "function_may_fail")
    _require(all(isinstance(item, exp.DataTypeParam) and is_literal(item.this) for item in node.expressions))


def _interval(node: exp.Expr, _: Limits) -> None:
    amount, unit = node.this, node.args.get("unit")
    _require(isinstance(amount, exp.Literal) and amount.name.isdigit() and len(amount.name) < 8)
    _require(isinstance(unit, exp.Var) and unit.name.upper().removesuffix("S") in _UNITS)


def _extract(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, exp.Var) and node.this.name.upper() in _UNITS)


def _in(node: exp.Expr, _: Limits) -> None:
    query = node.args.get("query")
    if query is not None:
        _require(isinstance(query, exp.Subquery))
    else:
        _require(bool(node.expressions) and all(_is_constant(item) for item in node.expressions))


def _is_constant(node: exp.Expr) -> bool:
    """Tell whether a node holds literals and calls on them alone, no names."""
    return not any(isinstance(inner, (exp.Column, exp.Identifier, *QUERIES)) for inner in node.walk())


def _is(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.expression, exp.Null))


def _bracket(node: exp.Expr, _: Limits) -> None:
    _require(len(node.expressions) == 1)


def _dot(node: exp.Expr, _: Limits) -> None:
    _require(whole_number(node.expression) is not None)


def _lambda(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.parent, exp.Anonymous), "function_not_offered")
    _require(all(isinstance(name, exp.Identifier) for name in node.expressions), "function_not_offered")


def _like(node: exp.Expr, limits: Limits) -> None:
    pattern = node.expression
    literal = isinstance(pattern, exp.Literal) and pattern.is_string and len(pattern.name) <= limits.pattern_characters
    _require(literal, "function_not_offered")


def _group(node: exp.Expr, _: Limits) -> None:
    """Keep the sets of keys few: CUBE doubles them with each key."""
    keys = len(node.expressions)
    _require(not node.args.get("cube") or keys <= _CUBE_KEYS, "too_complex")
    _require(not node.args.get("rollup") or keys <= _ROLLUP_KEYS, "too_complex")


def _key_sets(node: exp.Expr, _: Limits) -> None:
    most = _CUBE_KEYS if isinstance(node, exp.Cube) else _ROLLUP_KEYS
    _require(len(node.expressions) <= most, "too_complex")


def _alias(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.args.get("alias"), exp.Identifier))


def _exists(node: exp.Expr, _: Limits) -> None:
    _require(isinstance(node.this, QUERIES))


def _window_spec(node: exp.Expr, _: Limits) -> None:
    edges = (node.args.get("start"), node.args.get("end"))
    _require(all(edge is None or isinstance(edge, str) or whole_number(edge) is not None for edge in edges))


def _star(node: exp.Expr, _: Limits) -> None:
    _require(all(isinstance(name, exp.Column | exp.Identifier) for name in node.args.get("except_") or ()))


_SHAPES: Mapping[type[exp.Expr], Callable[[exp.Expr, Limits], None]] = {
    exp.Identifier: _identifier,
    exp.Table: _table,
    exp.Column: _column,
    exp.Join: _join,
    exp.From: _from,
    exp.Subquery: _subquery,
    exp.Union: _set_operation,
    exp.Except: _set_operation,
    exp.Intersect: _set_operation,
    exp.Limit: _limit,
    exp.Offset: _limit,
    exp.Anonymous: _call,
    exp.AnonymousAggFunc: _call,
    exp.CombinedAggFunc: _call,
    exp.ParameterizedAgg: _parametric,
    exp.CombinedParameterizedAgg: _parametric,
    exp.DataType: _data_type,
    exp.Interval: _interval,
    exp.Extract: _extract,
    exp.In: _in,
    exp.Is: _is,
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.Lambda: _lambda,
    exp.Like: _like,
    exp.ILike: _like,
    exp.RegexpLike: _like,
    exp.Alias: _alias,
    exp.Group: _group,
    exp.Cube: _key_sets,
    exp.Rollup: _key_sets,
    exp.GroupingSets: _key_sets,
    exp.Exists: _exists,
    exp.WindowSpec: _window_spec,
    exp.Star: _star,
}
