"""Put a filtered query in the place of every read of a view, and a bound on the whole.

The filter stands inside the read, so outer joins and NOT IN keep their meaning, and a LIMIT that limits nothing stands
behind it, so that no expression of the author is evaluated on a row that the filter drops. What depends on the clock is
a marker that `plan` fills in.
"""

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from secondsight.access.scope import Scope
from secondsight.guard.moments import MILLISECONDS
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.registry import View
from secondsight.guard.scopes import Named, Reference

ROW = "__s"
"""Name of a row of a view inside its filter."""

BARRIER_ROWS = 18446744073709551615
"""A LIMIT that no table reaches: the engine moves no filter of the author below it."""

_LATEST_SECONDS = 2**32 - 1
"""The last time of type DateTime, in 2106."""

_SCOPE_COLUMNS = (("clusters", "cluster_id"), ("teams", "owner_team"), ("jobs", "job_id"), ("model_ids", "model_id"))


def wrap(references: Iterable[Reference], scope: Scope) -> list[exp.Subquery]:
    """Replace each reference in its tree, in place, and return what stands there now.

    Bounds of reference N are the markers `marker(N, ...)`.

    Raises:
        Refused: `scope_not_offered` where a view lacks a column that the scope needs.
    """
    wrappers = []
    for number, reference in enumerate(references):
        alias = exp.TableAlias(this=exp.to_identifier(reference.name, quoted=True))
        wrapper = exp.Subquery(this=_filtered(reference, number, scope), alias=alias)
        reference.node.replace(wrapper)
        wrappers.append(wrapper)
    return wrappers


def rename(named: Iterable[Named]) -> None:
    """Give queries of WITH names that no table has, in place; what reads them keeps the author's name as its alias.

    Wherever the engine did not see such a query it would look for a table of that name, and find none.
    """
    for number, one in enumerate(named):
        name = f"{ROW}{number}"
        for use in one.uses:
            if not use.alias:
                use.set("alias", exp.TableAlias(this=exp.to_identifier(use.name)))
            use.set("this", exp.to_identifier(name))
        one.node.args["alias"].set("this", exp.to_identifier(name))


def cap(tree: exp.Expr, rows: int) -> exp.Select:
    """Return a query that gives at most so many rows of a query."""
    return exp.Select(
        expressions=[exp.Star()],
        from_=exp.From(this=exp.Subquery(this=tree)),
        limit=exp.Limit(expression=exp.Literal.number(rows)),
    )


def marker(number: int, what: str) -> str:
    """Return the number that stands for a bound of a reference until the clock is known."""
    return f"{_MARKER}{number:03d}{_WHATS.index(what)}"


_MARKER = "98079807980798"
_WHATS = ("from_seconds", "to_seconds", "from_ms", "to_ms", "bucket_from", "bucket_to", "now_seconds", "now_ms")
NOW = 999
"""Number of the markers of the clock itself."""


def marker_pattern() -> str:
    """Return a regular expression of a marker."""
    return rf"{_MARKER}\d{{4}}"


def is_marked(text: str) -> bool:
    """Tell whether a text holds a marker."""
    return _MARKER in text


def fillings(number: int, view: View, from_ms: int, to_ms: int) -> Mapping[str, int]:
    """Return what the markers of one reference stand for: the seconds and milliseconds that its span covers."""
    width = view.bucket.seconds if view.bucket is not None else 1
    from_ms, to_ms = (min(max(bound_ms, 0), _LATEST_SECONDS * MILLISECONDS) for bound_ms in (from_ms, to_ms))
    from_seconds = from_ms // MILLISECONDS
    to_seconds = -(-to_ms // MILLISECONDS)
    values = {
        "from_seconds": from_seconds,
        "to_seconds": to_seconds,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "bucket_from": from_seconds // width * width,
        "bucket_to": to_seconds,
    }
    return {marker(number, what): value for what, value in values.items()}


def clock_fillings(now_ms: int) -> Mapping[str, int]:
    """Return what the markers of the clock stand for."""
    return {marker(NOW, "now_seconds"): now_ms // MILLISECONDS, marker(NOW, "now_ms"): now_ms}


def freeze_clock(tree: exp.Expr) -> None:
    """Replace `now()` and its kin by the guard's own time, in place."""
    for node in list(tree.find_all(exp.Anonymous)):
        frozen = _frozen(node)
        if frozen is not None:
            node.replace(frozen)


def _frozen(node: exp.Anonymous) -> exp.Expr | None:
    arguments = list(node.expressions)
    match node.name:
        case "now":
            return _call("toDateTime", _number(marker(NOW, "now_seconds")), *(arguments or [_text("UTC")]))
        case "now64":
            now = _call("fromUnixTimestamp64Milli", _number(marker(NOW, "now_ms")), _text("UTC"))
            precision = arguments[0] if arguments else _number("3")
            return _call("toDateTime64", now, precision, *(arguments[1:] or [_text("UTC")]))
        case "today":
            return _today()
        case "yesterday":
            return exp.Paren(this=exp.Sub(this=_today(), expression=_number("1")))
        case _:
            return None


def _today() -> exp.Expr:
    return _call("toDate", _call("toDateTime", _number(marker(NOW, "now_seconds")), _text("UTC")))


def _filtered(reference: Reference, number: int, scope: Scope) -> exp.Select:
    view = reference.view
    names = [name for name in reference.visible if name in reference.used] or [view.time_column]
    conditions = [*_scope_conditions(view, _showing(reference, names, scope)), *_time_conditions(view, number)]
    return exp.Select(
        expressions=[_own(name) for name in names],
        from_=exp.From(
            this=exp.Table(
                this=exp.to_identifier(view.name, quoted=True),
                alias=exp.TableAlias(this=exp.to_identifier(ROW, quoted=True)),
            )
        ),
        where=exp.Where(this=exp.and_(*conditions, copy=False)),
        limit=exp.Limit(expression=exp.Literal.number(BARRIER_ROWS)),
    )


def _showing(reference: Reference, names: Iterable[str], scope: Scope) -> list[Scope]:
    """Return the boxes of a scope that show all that is read."""
    columns = (reference.view.get(name) for name in names)
    metrics = {column.metric for column in columns if column is not None}
    found = [box for box in scope.boxes if metrics.isdisjoint(box.denied_metrics)]
    if not found:
        raise Refused("scope_not_offered", Rule.SCOPE, "no one of your grants shows all that is read; ask in two steps")
    return found


def _scope_conditions(view: View, boxes: Sequence[Scope]) -> list[exp.Expr]:
    """Return the conditions that a row is inside one of some boxes."""
    if len(boxes) == 1:
        return _box_conditions(view, boxes[0])
    inside = [exp.Paren(this=exp.and_(*_box_conditions(view, box), copy=False)) for box in boxes]
    return [exp.Paren(this=exp.or_(*inside, copy=False))]


def _box_conditions(view: View, box: Scope) -> list[exp.Expr]:
    conditions = [_among("tenant_id", box.tenant_ids)]
    for name, column in _SCOPE_COLUMNS:
        granted: frozenset[str] | None = getattr(box, name)
        if granted is not None:
            if view.get(column) is None:
                raise Refused("scope_not_offered", Rule.SCOPE)
            conditions.append(_among(column, sorted(granted - {""})))
    return conditions


def _among(column: str, values: Iterable[str]) -> exp.Expr:
    literals = [_text(value) for value in values]
    if not literals:
        return exp.EQ(this=_number("1"), expression=_number("0"))
    if len(literals) == 1:
        return exp.EQ(this=_own(column), expression=literals[0])
    return exp.In(this=_own(column), expressions=literals)


def _time_conditions(view: View, number: int) -> list[exp.Expr]:
    column = view.get(view.time_column)
    precise = column is not None and column.type.startswith("DateTime64")
    call, unit = ("fromUnixTimestamp64Milli", "ms") if precise else ("toDateTime", "seconds")
    conditions: list[exp.Expr] = [
        exp.GTE(this=_own(view.time_column), expression=_time(call, marker(number, f"from_{unit}"))),
        exp.LT(this=_own(view.time_column), expression=_time(call, marker(number, f"to_{unit}"))),
    ]
    if view.bucket is not None:
        bucket = _own(view.bucket.column)
        conditions.append(exp.GTE(this=bucket, expression=_time("toDateTime", marker(number, "bucket_from"))))
        conditions.append(exp.LT(this=bucket.copy(), expression=_time("toDateTime", marker(number, "bucket_to"))))
    return conditions


def _time(call: str, number: str) -> exp.Expr:
    return _call(call, _number(number), _text("UTC"))


def _own(name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(ROW, quoted=True))


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _number(digits: str) -> exp.Expr:
    return exp.Literal.number(digits)


def _text(text: str) -> exp.Expr:
    return exp.Literal.string(text)
