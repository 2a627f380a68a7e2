"""Write a statement in its one spelling, before its names are bound: functions, units, and additions of time."""

from sqlglot import exp

from secondsight.guard.functions import AGGREGATES, INTERVAL_UNITS, aggregate_of, canonical
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.tree import CALLS

_DIFFERENCES = frozenset({"dateDiff", "date_diff", "timestampDiff", "timestamp_diff", "age"})
_ADDITIONS = {
    "dateadd": "add",
    "date_add": "add",
    "timestampadd": "add",
    "timestamp_add": "add",
    "datesub": "subtract",
    "date_sub": "subtract",
    "timestampsub": "subtract",
    "timestamp_sub": "subtract",
}


def normalise(tree: exp.Expr) -> None:
    """Rewrite calls and joins in place; `ANY INNER JOIN` is `ANY JOIN`.

    Raises:
        Refused: `function_not_offered`.
    """
    for node in list(tree.walk()):
        if isinstance(node, CALLS):
            _call(node)
        elif isinstance(node, exp.Join) and node.side == "INNER":
            node.set("side", None)


def plain_forms(tree: exp.Expr) -> None:
    """Write FETCH as LIMIT, and texts between dollars as quoted ones, in place; ties and shares stay as they are."""
    for node in list(tree.find_all(exp.Fetch, exp.RawString)):
        if isinstance(node, exp.RawString):
            node.replace(exp.Literal.string(node.name))
            continue
        options = node.args.get("limit_options")
        count = node.args.get("count")
        plain = options is None or not (options.args.get("with_ties") or options.args.get("percent"))
        if plain and count is not None:
            node.replace(exp.Limit(expression=count.copy()))


def make_finite(arguments: list[exp.Expr]) -> None:
    """Let what is no number become absent, where a whole number is made of it: the engine would fail on such a row."""
    for argument in arguments:
        inner = argument.copy()
        check = exp.Anonymous(this="isFinite", expressions=[inner.copy()])
        argument.replace(exp.Anonymous(this="if", expressions=[check, inner, exp.Null()]))


def _call(node: exp.Expr) -> None:
    name = canonical(node.name)
    found = aggregate_of(name)
    if found is not None and found[1] and name not in AGGREGATES:
        name = found[0].name + "".join(reversed(found[1]))
    node.set("this", name)
    if name in _DIFFERENCES and node.expressions:
        _quote_unit(node)
    elif name.lower() in _ADDITIONS:
        _add(node, _ADDITIONS[name.lower()])
    elif name == "bitTest" and node.expressions:
        first = node.expressions[0]
        first.replace(exp.Anonymous(this="toUInt64", expressions=[first.copy()]))


def _quote_unit(node: exp.Expr) -> None:
    unit = _unit_of(node.expressions[0])
    if unit is not None:
        node.expressions[0].replace(exp.Literal.string(unit))


def _unit_of(node: exp.Expr) -> str | None:
    is_word = isinstance(node, exp.Column) and not node.table and isinstance(node.this, exp.Identifier)
    is_text = isinstance(node, exp.Literal) and node.is_string
    unit = node.name.lower().removesuffix("s") if is_word or is_text else ""
    return unit if unit in INTERVAL_UNITS else None


def _add(node: exp.Expr, verb: str) -> None:
    """Write `date_add(DAY, 1, t)` as `addDays(t, 1)`; the engine's own parser knows the first form alone."""
    arguments = node.expressions
    unit = _unit_of(arguments[0]) if len(arguments) == 3 else None
    if unit is None or unit == "millisecond":
        raise Refused("function_not_offered", Rule.FUNCTIONS)
    node.set("this", f"{verb}{unit.capitalize()}s")
    node.set("expressions", [arguments[2].copy(), arguments[1].copy()])
