"""Write a statement about single seconds as one about windows, where the windows give exactly the same.

That holds for least and greatest values, counted seconds and increases of counters, over ranges and groups whose edges
are edges of windows. An increase over the edge of a range counts with the window that it ends in. Everything else
stays a question for the author.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from secondsight.guard.dialect import render
from secondsight.guard.functions import aggregate_of
from secondsight.guard.intervals import ranges
from secondsight.guard.limits import Limits
from secondsight.guard.moments import MILLISECONDS, milliseconds_of
from secondsight.guard.names import resolve
from secondsight.guard.refusal import Refused
from secondsight.guard.registry import MetricKind, Registry, Role, View
from secondsight.guard.scopes import Block, Reference, Resolved, conjuncts, nodes_of_block
from secondsight.guard.statement import read_statement
from secondsight.guard.tree import CALLS, interval_of

_FLOORS_SECONDS: Mapping[str, int] = {
    "toStartOfMinute": 60,
    "toStartOfFiveMinutes": 300,
    "toStartOfTenMinutes": 600,
    "toStartOfFifteenMinutes": 900,
    "toStartOfHour": 3_600,
    "toStartOfDay": 3_600,
    "toDate": 3_600,
    "toHour": 3_600,
    "toMonday": 3_600,
}
"""Functions that cut a time down -> a divisor of what they cut it to; days begin at full hours in UTC alone."""

_MEMBERS: Mapping[tuple[str, MetricKind], tuple[str, str]] = {
    ("min", MetricKind.GAUGE): ("min", "min"),
    ("max", MetricKind.GAUGE): ("max", "max"),
    ("count", MetricKind.GAUGE): ("sum", "count"),
    ("deltaSumTimestamp", MetricKind.COUNTER): ("sum", "increase"),
}
"""(aggregate of seconds, kind) -> (aggregate of windows, member)."""


class _Unfit(Exception):
    """The windows do not give the same."""


def coarser_statement(text: str, registry: Registry, now_ms: int, limits: Limits) -> str | None:
    """Return a statement over the finest view of windows that gives the same, or None where there is none.

    It is a statement as an author sends it: the guard has still to look at it.
    """
    try:
        view = _read_view(text, registry, limits)
    except (Refused, RecursionError):
        return None
    for coarse in registry.coarser(view) if view is not None and view.raw else ():
        try:
            return _rewrite(text, coarse, registry, now_ms, limits)
        except (_Unfit, Refused):
            continue
    return None


def _read_view(text: str, registry: Registry, limits: Limits) -> View | None:
    resolved = resolve(read_statement(text, limits), registry, (), limits)
    return resolved.references[0].view if len(resolved.references) == 1 else None


def _rewrite(text: str, coarse: View, registry: Registry, now_ms: int, limits: Limits) -> str:
    resolved = resolve(read_statement(text, limits), registry, (), limits)
    block, reference = _only_block(resolved)
    _check_range(resolved, coarse, now_ms)
    _check_columns(block, reference, coarse)
    calls = [node for clause in _clauses(block) for node in nodes_of_block(clause) if isinstance(node, CALLS)]
    for call in calls:
        _rewrite_call(call, reference.view, coarse, registry)
    _rename(block.select, reference, coarse)
    return render(block.select)


def _rename(select: exp.Select, reference: Reference, coarse: View) -> None:
    """Name the other view and its time, in place."""
    for node in select.find_all(exp.Column):
        if _is_time(node, reference):
            node.this.set("this", coarse.time_column)
        if node.table == reference.view.name:
            node.set("table", exp.to_identifier(coarse.name))
    reference.node.set("this", exp.to_identifier(coarse.name))


def _only_block(resolved: Resolved) -> tuple[Block, Reference]:
    block = resolved.root
    if not isinstance(block, Block) or len(resolved.blocks) != 1 or len(block.sources) != 1:
        raise _Unfit
    reference = block.sources[0].reference
    if reference is None or block.scalars or block.unnested or any(item.node is None for item in block.items):
        raise _Unfit
    return block, reference


def _check_range(resolved: Resolved, coarse: View, now_ms: int) -> None:
    """Let only ranges pass that are stated and begin and end where windows do."""
    bounds = ranges(resolved)[0].bounds
    width_ms = coarse.grain_seconds * MILLISECONDS
    from_ms, to_ms = bounds.from_ms(now_ms), bounds.to_ms(now_ms)
    if from_ms is None or to_ms is None or from_ms % width_ms or to_ms % width_ms:
        raise _Unfit


def _check_columns(block: Block, reference: Reference, coarse: View) -> None:
    """Let only conditions on names pass, and keys that are names or times cut down to whole windows."""
    where = block.select.args.get("where")
    for term in conjuncts(where.this if where is not None else None):
        columns = [node for node in nodes_of_block(term) if isinstance(node, exp.Column)]
        timely = any(_is_time(node, reference) for node in columns)
        if timely and not isinstance(term, exp.GTE | exp.LT):
            raise _Unfit
        if not timely and not all(_is_name(node, reference.view, coarse) for node in columns):
            raise _Unfit
    for clause in _clauses(block):
        for node in nodes_of_block(clause):
            if isinstance(node, exp.Column) and _is_time(node, reference) and not _is_cut(node, coarse):
                raise _Unfit


def _clauses(block: Block) -> Sequence[exp.Expr]:
    found = list(block.select.expressions)
    for name in ("group", "having", "order"):
        clause = block.select.args.get(name)
        if clause is not None:
            found.append(clause)
    if any(block.select.args.get(name) for name in ("qualify", "windows", "distinct")):
        raise _Unfit
    return found


def _is_time(node: exp.Column, reference: Reference) -> bool:
    return node.name == reference.view.time_column and node.table in ("", reference.name)


def _is_name(node: exp.Column, view: View, coarse: View) -> bool:
    fine, wide = view.get(node.name), coarse.get(node.name)
    return (
        fine is not None and wide is not None and fine.role in (Role.SCOPE, Role.DIMENSION) and wide.role is fine.role
    )


def _is_cut(node: exp.Column, coarse: View) -> bool:
    """Tell whether a time stands in a function that cuts it down to a multiple of the window."""
    call = node.parent
    if isinstance(call, exp.Anonymous) and call.name == "toUnixTimestamp64Milli":
        return True
    if not isinstance(call, exp.Anonymous) or call.expressions[0] is not node:
        return False
    if call.name == "toStartOfInterval" and len(call.expressions) == 2:
        length = interval_of(call.expressions[1])
        width_ms = (
            milliseconds_of(*length) if length is not None and length[1] not in ("month", "quarter", "year") else 0
        )
        return width_ms > 0 and width_ms % (coarse.grain_seconds * MILLISECONDS) == 0
    width_seconds = _FLOORS_SECONDS.get(call.name, 0) if len(call.expressions) == 1 else 0
    return width_seconds > 0 and width_seconds % coarse.grain_seconds == 0


def _rewrite_call(node: exp.Expr, view: View, coarse: View, registry: Registry) -> None:
    found = aggregate_of(node.name)
    if found is None:
        return
    arguments = node.expressions
    column = view.get(arguments[0].name) if arguments and isinstance(arguments[0], exp.Column) else None
    metric = registry.metric(column.metric) if column is not None and column.role is Role.MEASURE else None
    member = _MEMBERS.get((node.name, metric.kind)) if metric is not None and not found[1] else None
    if metric is None or member is None or coarse.get(f"{metric.name}_{member[1]}") is None:
        raise _Unfit
    call: exp.Expr = exp.AnonymousAggFunc(this=member[0], expressions=[exp.column(f"{metric.name}_{member[1]}")])
    if isinstance(node.parent, exp.Select):
        call = exp.Alias(this=call, alias=exp.to_identifier(f"{node.name}_{metric.name}"))
    node.replace(call)
