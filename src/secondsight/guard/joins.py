"""Refuse joins that multiply rows: without an equality between both sides, or by columns of few values alone."""

from sqlglot import exp

from secondsight.guard.keys import Keys, is_aggregate
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.scopes import Block, Combined, Resolved, Source, conjuncts, nodes_of_block


def check_joins(resolved: Resolved) -> None:
    """Look at every join of a statement.

    Raises:
        Refused: `join_not_offered`.
    """
    keys = Keys(resolved)
    for block in resolved.blocks:
        for position, source in enumerate(block.sources):
            if source.join is not None:
                _check(block, position, source.join, keys)


def _check(block: Block, position: int, join: exp.Join, keys: Keys) -> None:
    source = block.sources[position]
    if join.kind == "CROSS" or not (join.args.get("on") or join.args.get("using")):
        if join.kind in ("", "CROSS") and not join.side and _has_one_row(source):
            return
        raise Refused("join_not_offered", Rule.JOINS)
    pairs = _equalities(block, position, join, keys)
    left_few = all(_is_few(source, column) for source, column in (pair[0] for pair in pairs))
    right_few = all(_is_few(source, column) for source, column in (pair[1] for pair in pairs))
    unique = _is_unique(source, {column for _, (_, column) in pairs}, keys) or any(
        _is_unique(left, {column for (other, column), _ in pairs if other is left}, keys)
        for left in block.sources[:position]
    )
    if not pairs or (left_few and right_few and not unique):
        raise Refused("join_not_offered", Rule.JOINS)


Column = tuple[Source, str]


def _equalities(block: Block, position: int, join: exp.Join, keys: Keys) -> list[tuple[Column, Column]]:
    """Return the pairs of columns, (left, right), that have to be equal."""
    source = block.sources[position]
    pairs = []
    for name in join.args.get("using") or ():
        left = next((other for other in block.sources[:position] if other.has(name.name)), None)
        if left is not None:
            pairs.append(((left, name.name), (source, name.name)))
    for term in conjuncts(join.args.get("on")):
        if isinstance(term, exp.EQ):
            sides = [_column_under(term.this, keys), _column_under(term.expression, keys)]
            found = [side for side in sides if side is not None]
            if len(found) == 2 and (found[0][0] is source) != (found[1][0] is source):
                left_side, right_side = (found[1], found[0]) if found[0][0] is source else (found[0], found[1])
                pairs.append((left_side, right_side))
    return pairs


def _column_under(node: exp.Expr, keys: Keys) -> Column | None:
    """Return the one column that a side of an equality is, or is computed from."""
    root = keys.root(node)
    if root is not None:
        return root
    roots = [keys.root(inner) for inner in nodes_of_block(node) if isinstance(inner, exp.Column)]
    found = {(id(root[0]), root[1]): root for root in roots if root is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _is_few(source: Source, column: str) -> bool:
    """Tell whether a column is known to take few values."""
    if source.reference is not None:
        found = source.reference.view.get(column)
        return found is None or found.few
    query = source.query
    if not isinstance(query, Block):
        return False
    item = next((item for item in query.items if item.name == column), None)
    if item is None:
        return True
    if item.source is not None:
        return _is_few(item.source, item.column)
    plain = item.node.unalias() if item.node is not None else None
    if isinstance(plain, exp.Column):
        for inner in query.sources:
            if inner.has(plain.name) and plain.table in ("", inner.name):
                return _is_few(inner, plain.name)
    return isinstance(plain, exp.Literal)


def _is_unique(source: Source, columns: set[str], keys: Keys) -> bool:
    """Tell whether a source has at most one row for values of these columns."""
    query = source.query
    if not isinstance(query, Block):
        return False
    if _has_one_row(source):
        return True
    if query.select.args.get("distinct") is not None:
        return {item.name for item in query.items} <= columns
    grouping = keys.grouping(query)
    if not grouping:
        return False
    names = [_name_of(key, query) for key in grouping]
    return all(name in columns for name in names)


def _name_of(key: exp.Expr, block: Block) -> str | None:
    for item in block.items:
        if item.node is not None and (
            item.node.unalias() == key.unalias() or (isinstance(key, exp.Column) and key.name == item.name)
        ):
            return item.name
    return None


def _has_one_row(source: Source) -> bool:
    query = source.query
    if query is None or isinstance(query, Combined) or query.select.args.get("group") is not None:
        return False
    if query.unnested:
        return False
    if not query.sources:
        return True
    return any(is_aggregate(node) for item in query.items if item.node for node in nodes_of_block(item.node))
