"""Say what the rows of a query are told apart by: which of its columns are its time, and which are its GPU.

An aggregate adds up entities where the time is a key of its groups, and one entity's time where the GPU is.
"""

from collections.abc import Iterable, Sequence

from sqlglot import exp

from secondsight.guard.functions import aggregate_of
from secondsight.guard.scopes import Block, Combined, Item, OfAlias, OfSource, Query, Resolved, Source, conjuncts
from secondsight.guard.tree import CALLS, QUERIES, is_literal, whole_number


class Keys:
    """Answers about the keys of one resolved statement."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._times: dict[int, frozenset[str] | None] = {}

    def root(self, node: exp.Expr) -> tuple[Source, str] | None:
        """Return the column of a source that an expression plainly is, through aliases and brackets."""
        for _ in range(100):
            node = node.unnest() if isinstance(node, exp.Paren) else node.unalias()
            binding = self._resolved.bindings.get(id(node))
            if isinstance(binding, OfSource):
                return binding.source, binding.column
            if not isinstance(binding, OfAlias):
                return None
            node = binding.node
        return None

    def grouping(self, block: Block) -> list[exp.Expr] | None:
        """Return what the rows of a block are grouped by; None where it does not group.

        Groups of several sets of keys (ROLLUP and its kin) have none in common.
        """
        clause = block.select.args.get("group")
        if clause is None:
            return [] if any(is_aggregate(node) for node in _values(block)) else None
        if clause.args.get("rollup") or clause.args.get("cube"):
            return []
        if clause.args.get("all"):
            return [item.node for item in block.items if item.node is not None and not _aggregates(item.node)]
        if any(isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets) for key in clause.expressions):
            return []
        return [self._positional(key, block) for key in clause.expressions]

    def times(self, source: Source) -> frozenset[str] | None:
        """Return the columns of a source that are its time together; none where it has one row for all time.

        None where its rows lie at several times that no column tells.
        """
        if source.reference is not None:
            return frozenset({source.reference.view.time_column})
        return self._times_of(source.query) if source.query is not None else frozenset()

    def entities(self, source: Source) -> frozenset[str]:
        """Return the columns of views that tell the entities under a source apart, such as the GPU."""
        if source.reference is not None:
            return frozenset(source.reference.view.key[-1:])
        if isinstance(source.query, Block):
            return frozenset().union(*(self.entities(inner) for inner in source.query.sources))
        return frozenset()

    def physical(self, node: exp.Expr) -> str | None:
        """Return the name of the column of a view that an expression plainly is, through inner queries."""
        found = self.root(node)
        while found is not None:
            source, column = found
            if source.reference is not None:
                return column
            item = _item(source.query, column)
            if item is None:
                return None
            found = (item.source, item.column) if item.source is not None else self.root(item.node or exp.Null())
        return None

    def fixed(self, block: Block) -> set[str]:
        """Return the columns of views that a block holds to one literal."""
        where = block.select.args.get("where")
        names = set()
        for term in conjuncts(where.this if where is not None else None):
            if isinstance(term, exp.EQ):
                for left, right in ((term.this, term.expression), (term.expression, term.this)):
                    name = self.physical(left)
                    if name is not None and is_literal(right):
                        names.add(name)
        return names

    def is_timely(self, node: exp.Expr) -> bool:
        """Tell whether an expression depends on the time of a row."""
        pending, seen = [node], set()
        while pending:
            current = pending.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            binding = self._resolved.bindings.get(id(current))
            if isinstance(binding, OfAlias):
                pending.append(binding.node)
            elif isinstance(binding, OfSource) and self._is_timely_column(binding, pending):
                return True
            if not isinstance(current, QUERIES):
                pending += current.iter_expressions()
        return False

    def _is_timely_column(self, binding: OfSource, pending: list[exp.Expr]) -> bool:
        source = binding.source
        if source.reference is not None:
            return binding.column == source.reference.view.time_column
        if binding.column in (self.times(source) or ()):
            return True
        item = _item(source.query, binding.column)
        if item is not None and item.source is not None:
            return self._is_timely_column(OfSource(item.source, item.column), pending)
        if item is not None and item.node is not None and not _aggregates(item.node):
            pending.append(item.node)
        return False

    def _positional(self, key: exp.Expr, block: Block) -> exp.Expr:
        number = whole_number(key)
        if number is not None and 0 < number <= len(block.items):
            return block.items[number - 1].node or key
        return key

    def _times_of(self, query: Query) -> frozenset[str] | None:
        known = id(query)
        if known not in self._times:
            self._times[known] = None
            self._times[known] = self._find_times(query)
        return self._times[known]

    def _find_times(self, query: Query) -> frozenset[str] | None:
        if isinstance(query, Combined):
            return self._times_of_arms(query)
        keys = self.grouping(query)
        if keys is None:
            return self._passed_on(query)
        if query.select.args.get("group") is not None and not keys:
            return None if any(self.times(source) != frozenset() for source in query.sources) else frozenset()
        names = [self._name_of_key(key, query) for key in keys if self.is_timely(key)]
        return frozenset(name for name in names if name) if all(names) else None

    def _times_of_arms(self, query: Combined) -> frozenset[str] | None:
        positions = []
        for arm in query.arms:
            names = self._times_of(arm)
            if names is None:
                return None
            positions.append({index for index, item in enumerate(arm.items) if item.name in names})
        return frozenset(query.items[index].name for index in positions[0]) if positions[0] == positions[1] else None

    def _passed_on(self, block: Block) -> frozenset[str] | None:
        names: set[str] = set()
        for source in block.sources:
            wanted = self.times(source)
            if wanted is None:
                return None
            given = {self._given(item): item.name for item in block.items if item.name}
            if not all((id(source), column) in given for column in wanted):
                return None
            names |= {given[(id(source), column)] for column in wanted}
        return frozenset(names)

    def _given(self, item: Item) -> tuple[int, str] | None:
        if item.source is not None:
            return id(item.source), item.column
        found = self.root(item.node) if item.node is not None else None
        return (id(found[0]), found[1]) if found is not None else None

    def _name_of_key(self, key: exp.Expr, block: Block) -> str | None:
        wanted = self._plain(key)
        for item in block.items:
            if item.node is not None and item.name and self._plain(item.node) == wanted:
                return item.name
        return None

    def _plain(self, node: exp.Expr) -> exp.Expr:
        """Return what an expression stands for, aliases replaced at its top."""
        for _ in range(100):
            node = node.unalias()
            binding = self._resolved.bindings.get(id(node))
            if not isinstance(binding, OfAlias):
                return node
            node = binding.node
        return node


def is_aggregate(node: exp.Expr) -> bool:
    """Tell whether a node is an aggregate over groups, not one with OVER."""
    if not isinstance(node, CALLS):
        return False
    found = aggregate_of(node.name)
    around = node.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        around = around.parent
    windowed = isinstance(around, exp.Window) and around.this is not None and node.arg_key != "partition_by"
    return found is not None and not found[0].window_only and not windowed


def _aggregates(node: exp.Expr) -> bool:
    return any(is_aggregate(inner) for inner in _above(node))


def _values(block: Block) -> Iterable[exp.Expr]:
    for name in ("expressions", "having", "qualify", "order"):
        value = block.select.args.get(name)
        for member in value if isinstance(value, list) else [value]:
            if isinstance(member, exp.Expr):
                yield from _above(member)


def _above(node: exp.Expr) -> Sequence[exp.Expr]:
    found, pending = [], [node]
    while pending:
        current = pending.pop()
        if not isinstance(current, QUERIES):
            found.append(current)
            pending += current.iter_expressions()
    return found


def _item(query: Query | None, name: str) -> Item | None:
    block = query
    while isinstance(block, Combined):
        block = block.arms[0]
    return next((item for item in block.items if item.name == name), None) if block is not None else None
