"""Find the time range of every read of a view, and bound the reads that state none.

A range is taken from terms of WHERE or ON that all have to hold, on the plain time column. It is copied into the read,
so it must not change what a join gives: sides that a join fills up, picks from or matches by nearness are looked at
with care, and the terms stay where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from secondsight.guard.keys import Keys
from secondsight.guard.limits import Limits
from secondsight.guard.moments import Lookup, Moment, moment_of
from secondsight.guard.refusal import HINTS, Refused, Rule
from secondsight.guard.registry import Registry, View
from secondsight.guard.scopes import Block, OfAlias, Reference, Resolved, Source, conjuncts

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What terms say of one time column; the closest of each side counts.

    Attributes:
        before: (moment, inclusive) of upper bounds.
    """

    after: tuple[Moment, ...] = ()
    before: tuple[tuple[Moment, bool], ...] = ()

    def __or__(self, other: "Bounds") -> "Bounds":
        return Bounds(self.after + other.after, self.before + other.before)

    def from_ms(self, now_ms: int) -> int | None:
        """Return the latest lower bound, or None."""
        return max((moment.at(now_ms) for moment in self.after), default=None)

    def to_ms(self, now_ms: int) -> int | None:
        """Return the earliest upper bound, made exclusive, or None."""
        return min((moment.at(now_ms) + inclusive for moment, inclusive in self.before), default=None)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that one read of a view covers: [from_ms, to_ms), epoch milliseconds.

    Attributes:
        stated: False where the guard bounded it for want of a range in the statement; a range of single seconds that
            has no end ends now.
        begins: Whether the statement names the beginning.
    """

    view: str
    from_ms: int
    to_ms: int
    stated: bool
    begins: bool


@dataclass(frozen=True, slots=True)
class Range:
    """How the span of one read of a view follows from the clock.

    Attributes:
        near: Bounds of the side that a nearest match is looked up for: the read must reach as far.
    """

    view: View
    bounds: Bounds
    near: Bounds = Bounds()

    def at(self, now_ms: int, registry: Registry, limits: Limits) -> Span:
        """Return the span at a time.

        Raises:
            Refused: `no_time_range` or `range_too_wide` for a view of single seconds.
        """
        view = self.view
        from_ms, to_ms = self.bounds.from_ms(now_ms), self.bounds.to_ms(now_ms)
        if view.raw:
            to_ms = to_ms if to_ms is not None else now_ms + 1
            _check_raw(from_ms, to_ms, view, registry, limits)
        begins, stated = from_ms is not None, from_ms is not None and to_ms is not None
        if to_ms is None:
            to_ms = max(now_ms, from_ms or 0) + DAY_MS
        if from_ms is None:
            from_ms = min(to_ms, now_ms) - limits.default_days * DAY_MS
        near_from_ms, near_to_ms = self.near.from_ms(now_ms), self.near.to_ms(now_ms)
        from_ms = min(from_ms, near_from_ms if near_from_ms is not None else from_ms)
        to_ms = max(to_ms, near_to_ms if near_to_ms is not None else to_ms)
        return Span(view.name, from_ms, max(from_ms, to_ms), stated, begins)


def ranges(resolved: Resolved) -> tuple[Range, ...]:
    """Return the range of every reference, in the order of `Resolved.references`."""
    keys = Keys(resolved)
    lookup = lookup_in(resolved)
    found: dict[int, Range] = {}
    for block in resolved.blocks:
        for position, source in enumerate(block.sources):
            if source.reference is not None:
                found[id(source.reference)] = _range(block, position, source.reference, keys, lookup)
    return tuple(found[id(reference)] for reference in resolved.references)


def lookup_in(resolved: Resolved) -> Lookup:
    """Return a function that replaces the name of an alias by what it stands for."""

    def lookup(node: exp.Expr) -> exp.Expr:
        for _ in range(100):
            binding = resolved.bindings.get(id(node))
            if not isinstance(binding, OfAlias):
                return node
            node = binding.node
        return node

    return lookup


def _range(block: Block, position: int, reference: Reference, keys: Keys, lookup: Lookup) -> Range:
    source = block.sources[position]
    where = block.select.args.get("where")
    stated = Bounds()
    if where is not None:
        stated = _bounds(conjuncts(where.this), source, keys, lookup)
    join = source.join
    in_on = Bounds()
    if join is not None and join.side not in ("RIGHT", "FULL") and join.args.get("on") is not None:
        in_on = _bounds(conjuncts(join.args["on"]), source, keys, lookup)
    if join is not None and join.kind == "ASOF":
        return _nearest(block, source, reference.view, stated, (keys, lookup))
    return Range(reference.view, (stated if _may_copy(block, position, stated) else Bounds()) | in_on)


def _nearest(block: Block, source: Source, view: View, stated: Bounds, tools: tuple[Keys, Lookup]) -> Range:
    """Return the range of the side that a nearest match is taken from.

    A match outside of the stated range drops out afterwards, so it must still be found: the read goes on as far as the
    other side does.
    """
    keys, lookup = tools
    left = block.sources[0]
    where = block.select.args.get("where")
    if not stated.after or not stated.before or where is None or not _meets(source, left, keys):
        return Range(view, Bounds())
    near = _bounds(conjuncts(where.this), left, keys, lookup)
    return Range(view, stated, near) if near.after and near.before else Range(view, Bounds())


def _meets(source: Source, left: Source, keys: Keys) -> bool:
    """Tell whether the nearest match is looked up between the plain times of these two."""
    join = source.join
    for term in conjuncts(join.args.get("on") if join is not None else None):
        if isinstance(term, exp.GT | exp.GTE | exp.LT | exp.LTE):
            roots = {_time_root(term.this, keys), _time_root(term.expression, keys)}
            return roots == {id(source), id(left)}
    return False


def _time_root(node: exp.Expr, keys: Keys) -> int | None:
    root = keys.root(node)
    if root is None or root[0].reference is None or root[1] != root[0].reference.view.time_column:
        return None
    return id(root[0])


def _may_copy(block: Block, position: int, stated: Bounds) -> bool:
    """Tell whether WHERE on a source may be done before its joins are.

    A side that is filled up with zeros where nothing matches is only bounded with a lower bound, which drops those rows
    in either order. A side of which one match is picked is not bounded by WHERE.
    """
    joins = [source.join for source in block.sources if source.join is not None]
    own = block.sources[position].join
    if own is not None and own.kind in ("ANY", "SEMI", "ANTI"):
        return False
    later = joins[max(0, position - 1) :] if own is not None else joins
    if any(join.kind in ("ANY", "SEMI", "ANTI") and join.side in ("RIGHT", "") for join in later):
        return False
    filled = (own is not None and own.side in ("LEFT", "FULL")) or any(
        join.side in ("RIGHT", "FULL") for join in later if join is not own
    )
    return bool(stated.after) or not filled


def _bounds(terms: Iterator[exp.Expr], source: Source, keys: Keys, lookup: Lookup) -> Bounds:
    bounds = Bounds()
    for term in terms:
        bounds |= _bound(term, source, keys, lookup)
    return bounds


def _bound(term: exp.Expr, source: Source, keys: Keys, lookup: Lookup) -> Bounds:
    def is_time(node: exp.Expr) -> bool:
        return _time_root(node, keys) == id(source)

    if isinstance(term, exp.Between) and is_time(term.this):
        return _sided((">=", term.args["low"]), ("<=", term.args["high"]), lookup=lookup)
    sign = _SIGNS.get(type(term))
    if sign is None:
        return Bounds()
    if is_time(term.this):
        return _sided(*[(part, term.expression) for part in sign], lookup=lookup)
    if is_time(term.expression):
        return _sided(*[(_TURNED[part], term.this) for part in sign], lookup=lookup)
    return Bounds()


_SIGNS: dict[type[exp.Expr], Sequence[str]] = {
    exp.GT: (">",),
    exp.GTE: (">=",),
    exp.LT: ("<",),
    exp.LTE: ("<=",),
    exp.EQ: (">=", "<="),
}
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


def _sided(*parts: tuple[str, exp.Expr], lookup: Lookup) -> Bounds:
    bounds = Bounds()
    for sign, node in parts:
        moment = moment_of(node, lookup)
        if moment is not None:
            bounds |= Bounds((moment,)) if sign in (">", ">=") else Bounds((), ((moment, sign == "<="),))
    return bounds


def _check_raw(from_ms: int | None, to_ms: int, view: View, registry: Registry, limits: Limits) -> None:
    names = " or ".join(other.name for other in registry.coarser(view))
    hint = HINTS["coarser" if names else "recent"].format(days=limits.raw_days, views=names)
    if from_ms is None:
        raise Refused("no_time_range", Rule.TIME, hint)
    if to_ms - from_ms > limits.raw_days * DAY_MS + 1:
        raise Refused("range_too_wide", Rule.TIME, hint)
