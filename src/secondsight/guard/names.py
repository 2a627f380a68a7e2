"""Bind every name of a statement to what the engine would read for it.

Names are looked up as the engine does: parameters of lambdas, then aliases of the block, then columns of its sources in
their order. A name that the engine could find anywhere else (in the query around, in another database, in a table that
is not a view) is unknown here. Aliases may not take names that scope rows.
"""

from collections.abc import Collection, Iterable

from sqlglot import exp

from secondsight.guard.aliases import check_aliases, check_new_name
from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule, unknown
from secondsight.guard.registry import Registry, View
from secondsight.guard.scopes import (
    Binding,
    Block,
    Combined,
    Item,
    Named,
    OfAlias,
    OfLambda,
    OfSource,
    Query,
    Reference,
    Resolved,
    Source,
    nodes_of_block,
)
from secondsight.guard.tree import QUERIES


def resolve(tree: exp.Expr, registry: Registry, denied_metrics: Collection[str], limits: Limits) -> Resolved:
    """Return the statement with every name bound.

    Raises:
        Refused: `unknown_name`, `no_view`, `ambiguous_name`, `reserved_alias`, `correlated` or `too_complex`.
    """
    resolver = _Resolver(registry, frozenset(denied_metrics), limits)
    root = resolver.query(tree, None)
    if not resolver.references:
        raise Refused("no_view", Rule.NAMES)
    return Resolved(
        root=root,
        bindings=resolver.bindings,
        queries=resolver.queries,
        references=tuple(resolver.references),
        named=tuple(resolver.named),
        blocks=tuple(resolver.blocks),
    )


class _Resolver:
    """Walks a statement once, outer names first; holds what it has found so far."""

    def __init__(self, registry: Registry, denied_metrics: frozenset[str], limits: Limits) -> None:
        self._registry = registry
        self._denied_metrics = denied_metrics
        self._limits = limits
        self.bindings: dict[int, Binding] = {}
        self.queries: dict[int, Query] = {}
        self.references: list[Reference] = []
        self.named: list[Named] = []
        self.blocks: list[Block] = []

    def query(self, node: exp.Expr, parent: Block | None) -> Query:
        """Resolve one query of any form."""
        while isinstance(node, exp.Subquery):
            node = node.this
        query = self._block(node, parent) if isinstance(node, exp.Select) else self._combined(node, parent)
        self.queries[id(node)] = query
        return query

    def _combined(self, node: exp.Expr, parent: Block | None) -> Combined:
        around = self._around(node, parent)
        arms = [self.query(arm, around) for arm in (node.this, node.expression)]
        if len(arms[0].items) != len(arms[1].items):
            raise Refused("not_understood", Rule.NAMES)
        self._bind(around)
        return Combined(node, arms, self._few(_reads(around) + sum(arm.reads for arm in arms)))

    def _around(self, node: exp.Expr, parent: Block | None) -> Block:
        """Return a block without sources that holds what WITH before a set operation makes."""
        block = Block(exp.Select(), parent)
        self._with(node, block)
        return block

    def _block(self, select: exp.Select, parent: Block | None) -> Block:
        block = Block(select, parent)
        self._with(select, block)
        self._sources(block)
        self._collect_aliases(block)
        check_aliases(block, self._registry)
        self._expand(block)
        self._bind(block)
        block.reads = self._few(_reads(block))
        self.blocks.append(block)
        return block

    def _few(self, reads: int) -> int:
        """Refuse a number of reads that is too great, before it doubles again."""
        if reads > self._limits.references:
            raise Refused("too_complex", Rule.NAMES)
        return reads

    def _with(self, node: exp.Expr, block: Block) -> None:
        clause = node.args.get("with_")
        for member in clause.expressions if clause is not None else ():
            name = member.alias
            if not name or _visible_cte(block, name) is not None or name in block.scalars:
                raise Refused("ambiguous_name", Rule.NAMES)
            check_new_name(name, self._registry)
            if member.args.get("scalar"):
                block.scalars[name] = member.this
            elif isinstance(member.this, (*QUERIES, exp.Subquery)):
                block.ctes[name] = Named(member, self.query(member.this, block))
                self.named.append(block.ctes[name])
            else:
                raise Refused("clause_not_offered", Rule.NAMES)

    def _sources(self, block: Block) -> None:
        clause = block.select.args.get("from_")
        if clause is not None:
            block.sources.append(self._source(clause.this, None, block))
        joins = block.select.args.get("joins") or []
        if len(joins) > self._limits.joins:
            raise Refused("too_complex", Rule.NAMES)
        for join in joins:
            if join.kind != "ARRAY":
                block.sources.append(self._source(join.this, join, block))
        names = [source.name for source in block.sources if source.name]
        if len(names) != len(set(names)):
            raise Refused("ambiguous_name", Rule.NAMES)

    def _source(self, node: exp.Expr, join: exp.Join | None, block: Block) -> Source:
        if isinstance(node, exp.Subquery):
            alias = node.alias
            if alias:
                check_new_name(alias, self._registry)
            return Source(alias, join, query=self.query(node, block))
        name = node.name
        alias = node.alias
        if alias and alias != name:
            check_new_name(alias, self._registry)
        named = _visible_cte(block, name)
        if named is not None:
            named.uses.append(node)
            return Source(alias or name, join, query=named.query)
        view = self._registry.view(name)
        if view is None or not isinstance(node, exp.Table):
            raise unknown(name, (each.name for each in self._registry.views))
        return Source(alias or name, join, reference=self._reference(view, alias or name, node))

    def _reference(self, view: View, name: str, node: exp.Table) -> Reference:
        denied = self._denied_metrics
        visible = dict.fromkeys(column.name for column in view.columns if column.metric not in denied)
        reference = Reference(view, name, node, visible)
        self.references.append(reference)
        return reference

    def _collect_aliases(self, block: Block) -> None:
        for join in block.select.args.get("joins") or []:
            if join.kind == "ARRAY":
                for member in (join.this, *join.expressions):
                    _add(block.unnested, member.alias_or_name, member.unalias())
        for node in nodes_of_block(block.select):
            if isinstance(node, exp.Alias) and not isinstance(node.parent, exp.WithFill | exp.Join):
                _add(block.aliases, node.alias, node.this)
        if block.scalars.keys() & block.aliases.keys() or block.aliases.keys() & block.unnested.keys():
            raise Refused("ambiguous_name", Rule.NAMES)

    def _expand(self, block: Block) -> None:
        for node in block.select.expressions:
            star = node.this if isinstance(node, exp.Column) else node
            if isinstance(star, exp.Star):
                block.items += self._star(node, star, block)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
                block.items.append(Item(node.name, node))
            else:
                block.items.append(Item(node.alias if isinstance(node, exp.Alias) else "", node))

    def _star(self, node: exp.Expr, star: exp.Star, block: Block) -> list[Item]:
        wanted = node.table if isinstance(node, exp.Column) else ""
        sources = [source for source in block.sources if not wanted or source.name == wanted]
        if not sources:
            raise unknown(wanted, (source.name for source in block.sources))
        left_out = {name.name for name in star.args.get("except_") or ()}
        for name in sorted(left_out):
            if not any(source.has(name) for source in sources):
                raise unknown(name, _names_of(sources))
        items = []
        for source in sources:
            if source.query is not None and not all(item.name for item in source.query.items):
                raise Refused("ambiguous_name", Rule.NAMES)
            for name in source.names():
                if name not in left_out and not (len(sources) > 1 and name in _joined_by(source)):
                    items.append(Item(name, None, source, name))
                    _use(source, name)
        return items

    def _bind(self, block: Block) -> None:
        for node in self._own_nodes(block):
            if isinstance(node, QUERIES):
                block.inner.append(self.query(node, block))
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
                self.bindings[id(node)] = self._column(node, block)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Literal):
                self.bindings[id(node)] = self._tuple_of(node, block)
            elif isinstance(node, exp.Identifier) and _is_parameter_use(node):
                self.bindings[id(node)] = self._parameter(node)
            elif isinstance(node, exp.Join) and node.args.get("using"):
                self._using(node, block)

    def _own_nodes(self, block: Block) -> list[exp.Expr]:
        """Return the nodes of the block's own clauses: not of its sources, and of WITH only what is a value."""
        found: list[exp.Expr] = []
        for scalar in block.scalars.values():
            found += nodes_of_block(scalar)
        for name, value in block.select.args.items():
            if name not in ("with_", "from_", "joins"):
                found += _under_all(value)
        for join in block.select.args.get("joins") or []:
            found.append(join)
            found += _under_all(join.args.get("on"))
            if join.kind == "ARRAY":
                found += _under_all([join.this, *join.expressions])
        return found

    def _column(self, node: exp.Column, block: Block) -> Binding:
        if _is_left_out(node):
            return OfAlias(exp.Null(), block)
        if node.table:
            return self._qualified(node, block)
        name = node.name
        parameter = _lambda_of(node, name)
        if parameter is not None:
            return OfLambda(parameter)
        return self._unqualified(node, name, block)

    def _unqualified(self, node: exp.Expr, name: str, block: Block) -> Binding:
        if not _inside_alias(node, name):
            for known in (block.unnested, block.aliases, block.scalars):
                if name in known and not (known is block.unnested and _inside(node, exp.Join)):
                    return OfAlias(known[name], block)
        for source in block.sources:
            if source.has(name):
                _use(source, name)
                return OfSource(source, name)
        return self._outer(name, block)

    def _outer(self, name: str, block: Block) -> Binding:
        around = block.parent
        while around is not None:
            scalar = around.scalars.get(name)
            if scalar is not None:
                if any(isinstance(node, exp.Column) for node in nodes_of_block(scalar)):
                    raise Refused("correlated", Rule.NAMES)
                return OfAlias(scalar, around)
            if name in around.aliases or any(source.has(name) for source in around.sources):
                raise Refused("correlated", Rule.NAMES)
            around = around.parent
        raise unknown(name, _names_of(block.sources))

    def _qualified(self, node: exp.Column, block: Block) -> Binding:
        for source in block.sources:
            if source.name == node.table and source.has(node.name):
                _use(source, node.name)
                return OfSource(source, node.name)
        around = block.parent
        while around is not None:
            if any(source.name == node.table and source.has(node.name) for source in around.sources):
                raise Refused("correlated", Rule.NAMES)
            around = around.parent
        mine = [source for source in block.sources if source.name == node.table]
        raise unknown(node.name, _names_of(mine)) if mine else unknown(node.table, (one.name for one in block.sources))

    def _tuple_of(self, node: exp.Column, block: Block) -> Binding:
        """Bind `fit.1`: an element of a tuple that has a name."""
        return self._unqualified(node, node.table, block)

    def _parameter(self, node: exp.Identifier) -> Binding:
        parameter = _lambda_of(node, node.name)
        if parameter is None:
            raise Refused("unknown_name", Rule.NAMES)
        return OfLambda(parameter)

    def _using(self, join: exp.Join, block: Block) -> None:
        position = next(index for index, source in enumerate(block.sources) if source.join is join)
        for name in _joined_by(block.sources[position]):
            left = next((source for source in block.sources[:position] if source.has(name)), None)
            if left is None or not block.sources[position].has(name):
                raise unknown(name, _names_of(block.sources[: position + 1]))
            _use(left, name)
            _use(block.sources[position], name)


def _names_of(sources: Iterable[Source]) -> set[str]:
    return {name for source in sources for name in source.names()}


def _visible_cte(block: Block, name: str) -> Named | None:
    around: Block | None = block
    while around is not None:
        if name in around.ctes:
            return around.ctes[name]
        around = around.parent
    return None


def _add(names: dict[str, exp.Expr], name: str, node: exp.Expr) -> None:
    if not name or (name in names and names[name] != node):
        raise Refused("ambiguous_name", Rule.NAMES)
    names[name] = node


def _use(source: Source, name: str) -> None:
    if source.reference is not None:
        source.reference.used.add(name)


def _joined_by(source: Source) -> list[str]:
    using: Iterable[exp.Expr] = (source.join.args.get("using") or ()) if source.join is not None else ()
    return [name.name for name in using]


def _under_all(value: object) -> list[exp.Expr]:
    members = value if isinstance(value, list) else [value]
    return [node for member in members if isinstance(member, exp.Expr) for node in nodes_of_block(member)]


def _is_left_out(node: exp.Column) -> bool:
    """Tell whether a column is named in EXCEPT of a star; the star has checked it."""
    return isinstance(node.parent, exp.Star)


def _is_parameter_use(node: exp.Identifier) -> bool:
    """Tell whether an identifier stands for a value, as parameters do in the body of a lambda."""
    parent = node.parent
    if isinstance(parent, exp.Column | exp.Alias | exp.TableAlias | exp.Table | exp.Star | exp.Join | exp.Window):
        return False
    return not (isinstance(parent, exp.Lambda) and node.arg_key == "expressions")


def _lambda_of(node: exp.Expr, name: str) -> exp.Lambda | None:
    around = node.parent
    while around is not None and not isinstance(around, QUERIES):
        if isinstance(around, exp.Lambda) and any(parameter.name == name for parameter in around.expressions):
            return around
        around = around.parent
    return None


def _inside_alias(node: exp.Expr, name: str) -> bool:
    around = node.parent
    while around is not None and not isinstance(around, QUERIES):
        if isinstance(around, exp.Alias | exp.CTE) and around.alias == name:
            return not isinstance(around.parent, exp.WithFill)
        around = around.parent
    return False


def _inside(node: exp.Expr, kind: type[exp.Expr]) -> bool:
    around = node.parent
    while around is not None and not isinstance(around, QUERIES):
        if isinstance(around, kind):
            return True
        around = around.parent
    return False


def _reads(block: Block) -> int:
    """Return how often a block reads views once every CTE stands where it is used."""
    sources = sum(source.query.reads if source.query is not None else 1 for source in block.sources)
    return sources + sum(inner.reads for inner in block.inner)
