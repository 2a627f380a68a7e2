"""Follow every figure of a statement to the metrics it comes from, and refuse what the catalogue does not allow.

Each expression of each clause is looked at once. What comes out is the meaning of every column of the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from secondsight.guard.applied import applied, element
from secondsight.guard.calls import check_aggregate, check_scalar, growth
from secondsight.guard.expressions import HANDLERS, look_at_window
from secondsight.guard.figures import (
    PLAIN_INTEGER,
    Figure,
    Form,
    figure_of_column,
    together,
)
from secondsight.guard.functions import (
    SCALARS,
    Aggregate,
    Family,
    Kind,
    Scalar,
    aggregate_of,
)
from secondsight.guard.keys import Keys
from secondsight.guard.legality import Group, aggregated, weighted
from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.registry import Registry
from secondsight.guard.scopes import Block, Combined, OfAlias, OfLambda, OfSource, Query, Resolved, Source
from secondsight.guard.tree import CALLS, QUERIES, whole_number


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a result: its name ("" where the engine makes one up) and what it means."""

    name: str
    figure: Figure

    @property
    def unit(self) -> str:
        """Return the unit of its values, "" where it has none or where arithmetic has made another of it."""
        return "" if self.figure.scaled else self.figure.unit


@dataclass(frozen=True, slots=True)
class Followed:
    """What is known of the figures of a statement.

    Attributes:
        outputs: One for each column of the result.
        infinite: Arguments that may be no number where the engine would fail on that (`normal.make_finite`).
    """

    outputs: tuple[Output, ...]
    infinite: tuple[exp.Expr, ...]


def follow(resolved: Resolved, registry: Registry, limits: Limits) -> Followed:
    """Return what each column of the result means.

    Raises:
        Refused: `illegal_aggregate`, `mixed_units`, `unlike_figures`, `function_not_offered`, `function_may_fail`,
            `unbounded_list`, `too_complex` or `ambiguous_name`.
    """
    lineage = _Lineage(resolved, registry, limits)
    for block in resolved.blocks:
        lineage.every_clause(block)
    figures = lineage.of_query(resolved.root)
    names = [item.name for item in resolved.root.items]
    outputs = tuple(Output(name, figure) for name, figure in zip(names, figures, strict=True))
    return Followed(outputs, tuple(lineage.infinite))


class _Lineage:
    """Figures found so far, by the identity of their nodes."""

    def __init__(self, resolved: Resolved, registry: Registry, limits: Limits) -> None:
        self._resolved = resolved
        self._registry = registry
        self._limits = limits
        self._keys = Keys(resolved)
        self._figures: dict[int, Figure] = {}
        self._open: set[int] = set()
        self._queries: dict[int, list[Figure]] = {}
        self._numbers: dict[int, int] = {}
        self._groups: dict[tuple[int, int, int], Group] = {}
        self.infinite: list[exp.Expr] = []

    def every_clause(self, block: Block) -> None:
        """Look at each expression of a block."""
        self.of_query(block)
        for scalar in block.scalars.values():
            self.of(scalar, block)
        for name, value in block.select.args.items():
            if name not in ("with_", "from_", "expressions"):
                for member in value if isinstance(value, list) else [value]:
                    if isinstance(member, exp.Expr):
                        self._clause(member, block)

    def of_query(self, query: Query) -> list[Figure]:
        """Return the figures of the columns of a query."""
        known = self._queries.get(id(query))
        if known is None:
            if isinstance(query, Combined):
                pairs = zip(*(self.of_query(arm) for arm in query.arms), strict=True)
                known = [together(pair, one_unit=True) for pair in pairs]
            else:
                known = [self._item(index, query) for index in range(len(query.items))]
            self._queries[id(query)] = known
        return known

    def of(self, node: exp.Expr, block: Block) -> Figure:
        """Return the figure of one expression.

        Raises:
            Refused: As `follow`.
        """
        known = self._figures.get(id(node))
        if known is not None:
            return known
        if id(node) in self._open:
            raise Refused("ambiguous_name", Rule.NAMES)
        self._open.add(id(node))
        figure = self._find(node, block)
        self._open.discard(id(node))
        if figure.size > self._limits.expanded_nodes:
            raise Refused("too_complex", Rule.LINEAGE)
        self._figures[id(node)] = figure
        return figure

    def _clause(self, node: exp.Expr, block: Block) -> None:
        """Look at a clause: an expression, or a node that only holds expressions."""
        if isinstance(node, exp.Limit | exp.Offset):
            for member in node.expressions:
                self.of(member, block)
        elif isinstance(node, exp.Window) and isinstance(node.this, exp.Identifier):
            look_at_window(self, node, block)
        elif isinstance(node, _HOLDERS):
            for member in node.iter_expressions():
                self._clause(member, block)
        elif not isinstance(node, exp.Table | exp.Subquery | exp.Identifier | exp.TableAlias):
            self.of(node, block)

    def _item(self, index: int, block: Block) -> Figure:
        item = block.items[index]
        if item.source is not None:
            return self._of_source(item.source, item.column)
        if item.node is None:
            raise Refused("unknown_name", Rule.NAMES)
        return self.of(item.node, block)

    def _find(self, node: exp.Expr, block: Block) -> Figure:
        if isinstance(node, exp.Column | exp.Identifier):
            return self._name(node, block)
        if isinstance(node, QUERIES):
            return self._scalar_query(node)
        if isinstance(node, CALLS):
            return self.call(node, block, None)
        handler = HANDLERS.get(type(node))
        if handler is None:
            raise Refused("clause_not_offered", Rule.LINEAGE)
        return handler(self, node, block)

    def _name(self, node: exp.Expr, block: Block) -> Figure:
        binding = self._resolved.bindings.get(id(node))
        match binding:
            case OfSource():
                figure = self._of_source(binding.source, binding.column)
            case OfAlias():
                figure = self.of(binding.node, binding.block)
                if self._is_unnested(node, block):
                    figure = replace(figure, kind=Kind.OTHER, literal=False)
            case OfLambda():
                figure = self._parameter(binding.node, block)
            case _:
                raise Refused("unknown_name", Rule.NAMES)
        if isinstance(node.this, exp.Literal):
            figure = element(figure, whole_number(node.this))
        return replace(figure, size=figure.size + 1)

    def _is_unnested(self, node: exp.Expr, block: Block) -> bool:
        return node.name in block.unnested

    def _of_source(self, source: Source, column: str) -> Figure:
        number = self._numbers.setdefault(id(source), len(self._numbers))
        if source.reference is not None:
            view = source.reference.view
            found = view.get(column)
            if found is None:
                raise Refused("unknown_name", Rule.NAMES)
            return figure_of_column(found, view, self._registry, number)
        if source.query is None:
            raise Refused("unknown_name", Rule.NAMES)
        names = [item.name for item in source.query.items]
        figure = self.of_query(source.query)[names.index(column)]
        return replace(figure, origin=number, literal=False, size=figure.size + 1)

    def _parameter(self, node: exp.Lambda, block: Block) -> Figure:
        call = node.parent
        lists = [self.of(argument, block) for argument in call.expressions[1:]] if call is not None else []
        return replace(together(lists, one_unit=False), kind=Kind.OTHER, literal=False)

    def _scalar_query(self, node: exp.Expr) -> Figure:
        figures = self.of_query(self._resolved.queries[id(node)])
        whole = figures[0] if len(figures) == 1 else together(figures, one_unit=False)
        return replace(whole, over_time=False, origin=-1, nullable=True, literal=False)

    def call(self, node: exp.Expr, block: Block, window: exp.Expr | None) -> Figure:
        """Return the figure of a call; `window` is the OVER around it.

        Raises:
            Refused: As `follow`.
        """
        name = node.name
        found = aggregate_of(name)
        if found is not None:
            return self._aggregate(node, found, block, window)
        scalar = SCALARS.get(name)
        if scalar is None or window is not None or node.args.get("params"):
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        return self.scalar(scalar, node.expressions, block)

    def scalar(self, scalar: Scalar, arguments: list[exp.Expr], block: Block) -> Figure:
        """Return the figure of a function of single values.

        Raises:
            Refused: As `follow`.
        """
        figures = [self.of(argument, block) for argument in arguments]
        check_scalar(scalar, arguments, figures, self._limits)
        if scalar.checked == "finite" and figures[0].kind is Kind.NUMBER and not figures[0].literal:
            self.infinite.append(arguments[0])
        size = 1 + sum(figure.size for figure in figures) * growth(scalar, arguments)
        return replace(applied(scalar, figures), size=size)

    def _aggregate(
        self, node: exp.Expr, found: tuple[Aggregate, tuple[str, ...]], block: Block, window: exp.Expr | None
    ) -> Figure:
        aggregate, combinators = found
        arguments, parameters = _signature(node)
        check_aggregate(aggregate, combinators, arguments, parameters, self._limits)
        if aggregate.window_only and window is None:
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        figures = [self.of(argument, block) for argument in arguments if not isinstance(argument, exp.Star)]
        size = 1 + sum(figure.size for figure in figures)
        if aggregate.family is Family.COUNT or not figures:
            group = self._group(block, window, -1)
            over_time = group.over_time or group.rows
            return replace(PLAIN_INTEGER, over_time=over_time, size=size)
        whole = self._whole(aggregate, figures, block, window)
        return replace(whole, size=size, kind=_kind_of_aggregate(aggregate, whole), parts=whole.parts)

    def _whole(self, aggregate: Aggregate, figures: Sequence[Figure], block: Block, window: exp.Expr | None) -> Figure:
        group = self._group(block, window, figures[0].origin)
        if aggregate.weighted:
            return weighted(aggregate.family, figures[0], figures[1], group)
        each = [aggregated(aggregate.family, figure, group) for figure in figures[: aggregate.figures]]
        return each[0] if len(each) == 1 else replace(together(each, one_unit=False), form=Form.PERCENTILE)

    def _group(self, block: Block, window: exp.Expr | None, origin: int) -> Group:
        known = (id(block), id(window), origin)
        if known not in self._groups:
            self._groups[known] = self._find_group(block, window, origin)
        return self._groups[known]

    def _find_group(self, block: Block, window: exp.Expr | None, origin: int) -> Group:
        keys = _partition(window, block) if window is not None else self._keys.grouping(block) or []
        roots = [root for root in (self._keys.root(key) for key in keys) if root is not None]
        sources = [source for source in block.sources if origin < 0 or self._numbers.get(id(source)) == origin]
        instants = all(self._tells_time(source, roots) for source in sources)
        known = {self._keys.physical(key) for key in keys} | self._keys.fixed(block)
        wanted = frozenset().union(*(self._keys.entities(source) for source in sources))
        entities = bool(wanted) and wanted <= known
        return Group(
            instants=instants,
            entities=entities,
            over_time=any(self._keys.is_timely(key) for key in keys),
            neighbours=entities and window is not None,
            rows=window is not None,
        )

    def _tells_time(self, source: Source, roots: Sequence[tuple[Source, str]]) -> bool:
        times = self._keys.times(source)
        return times is not None and times <= {column for other, column in roots if other is source}


_HOLDERS = (exp.Where, exp.Having, exp.Qualify, exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Order,
            exp.Ordered, exp.WithFill, exp.Join, exp.Distinct)  # fmt: skip


def _signature(node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return arguments and parameters; DISTINCT is no argument of its own."""
    values = node.args.get("params")
    arguments, parameters = (values, node.expressions) if values is not None else (node.expressions, [])
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments = arguments[0].expressions
    return list(arguments), list(parameters)


def _kind_of_aggregate(aggregate: Aggregate, figure: Figure) -> Kind:
    if aggregate.family in (Family.MEAN, Family.RANK, Family.SPREAD, Family.DELTA):
        return Kind.OTHER if aggregate.parameters[1] > 1 or aggregate.name == "simpleLinearRegression" else Kind.NUMBER
    return Kind.LIST if aggregate.family is Family.LIST else figure.kind


def _partition(window: exp.Expr, block: Block) -> list[exp.Expr]:
    named = window.args.get("alias")
    if named is None:
        return window.args.get("partition_by") or []
    for other in block.select.args.get("windows") or []:
        if other.this.name == named.name:
            return other.args.get("partition_by") or []
    raise Refused("unknown_name", Rule.NAMES)
