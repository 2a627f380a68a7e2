"""Follow every figure of a statement to the metrics it comes from, and refuse what the catalogue does not allow.

Each expression of each clause is looked at once. What comes out is the meaning of every column of the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from secondsight.guard.calls import check_aggregate, check_scalar, text_of
from secondsight.guard.figures import (
    PLAIN_INTEGER,
    Figure,
    Form,
    added,
    divided,
    figure_of_column,
    kind_of_type,
    multiplied,
    require_one_unit,
    together,
)
from secondsight.guard.functions import (
    ARRAY_FAMILIES,
    SCALARS,
    Aggregate,
    Effect,
    Family,
    Kind,
    Scalar,
    aggregate_of,
)
from secondsight.guard.keys import Keys
from secondsight.guard.legality import Group, aggregated, weighted
from secondsight.guard.limits import Limits
from secondsight.guard.refusal import HINTS, Refused, Rule
from secondsight.guard.registry import Registry
from secondsight.guard.scopes import Block, Combined, OfAlias, OfLambda, OfSource, Query, Resolved, Source
from secondsight.guard.tree import CALLS, QUERIES, whole_number

_ONE_GROUP = Group(instants=False, entities=False, over_time=False)


@dataclass(frozen=True, slots=True)
class Output:
    """One column of a result: its name ("" where the engine makes one up) and what it means."""

    name: str
    figure: Figure


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
            self._window_parts(node, block)
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
            return self._call(node, block, None)
        handler = _HANDLERS.get(type(node))
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
            figure = _element(figure, whole_number(node.this))
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

    def _all(self, node: exp.Expr, block: Block) -> Figure:
        return together([self.of(member, block) for member in node.iter_expressions()], one_unit=False)

    def _same(self, node: exp.Expr, block: Block) -> Figure:
        return self.of(node.this, block)

    def _literal(self, node: exp.Expr, block: Block) -> Figure:
        del block
        kind = Kind.INTEGER
        if isinstance(node, exp.Literal):
            kind = Kind.TEXT if node.is_string else Kind.INTEGER if node.name.isdigit() else Kind.NUMBER
        return Figure(Form.CONSTANT, kind, nullable=isinstance(node, exp.Null), literal=True)

    def _interval(self, node: exp.Expr, block: Block) -> Figure:
        del node, block
        return Figure(Form.CONSTANT, Kind.OTHER, literal=True, size=2)

    def _truth(self, node: exp.Expr, block: Block) -> Figure:
        """Look at a comparison or a connection of truths; what is compared is of one unit."""
        members = [self.of(member, block) for member in node.iter_expressions()]
        if not isinstance(node, exp.And | exp.Or | exp.Not):
            require_one_unit(members)
        return replace(
            PLAIN_INTEGER,
            over_time=any(member.over_time for member in members),
            origin=together(members, one_unit=False).origin,
            nullable=any(member.nullable for member in members),
            literal=bool(members) and all(member.literal for member in members),
            size=1 + sum(member.size for member in members),
        )

    def _arithmetic(self, node: exp.Expr, block: Block) -> Figure:
        left, right = self.of(node.this, block), self.of(node.expression, block)
        if isinstance(node, exp.Mod):
            return self._scalar(SCALARS["modulo"], [node.this, node.expression], block)
        if isinstance(node, exp.Mul):
            return multiplied(left, right)
        if isinstance(node, exp.Div):
            return divided(left, right)
        return added(left, right, minus=isinstance(node, exp.Sub))

    def _case(self, node: exp.Expr, block: Block) -> Figure:
        operand = node.args.get("this")
        branches = node.args["ifs"]
        conditions = [self.of(branch.this, block) for branch in branches]
        if operand is not None:
            require_one_unit([self.of(operand, block), *conditions])
        values = [branch.args["true"] for branch in branches]
        if node.args.get("default") is not None:
            values.append(node.args["default"])
        return self._chosen([self.of(value, block) for value in values], conditions, total=len(values) > len(branches))

    def _if(self, node: exp.Expr, block: Block) -> Figure:
        values = [self.of(node.args[name], block) for name in ("true", "false") if node.args.get(name) is not None]
        return self._chosen(values, [self.of(node.this, block)], total=len(values) > 1)

    def _chosen(self, values: Sequence[Figure], conditions: Sequence[Figure], *, total: bool) -> Figure:
        figure = together(values, one_unit=True)
        form = Form.INCREASE if figure.form is Form.CHANGE else figure.form
        return replace(
            figure,
            form=form,
            nullable=figure.nullable or not total,
            lagged=False,
            literal=figure.literal and all(condition.literal for condition in conditions),
            size=figure.size + sum(condition.size for condition in conditions),
        )

    def _cast(self, node: exp.Expr, block: Block) -> Figure:
        figure = self.of(node.this, block)
        target = node.args["to"]
        if isinstance(node, exp.CastToStrType):
            name, nullable = _type_of_text(text_of(target) or "")
        else:
            name, nullable = target.sql(dialect="clickhouse"), bool(target.args.get("nullable"))
        kind = kind_of_type(name.removeprefix("Nullable("))
        if not figure.literal:
            _require_cast(figure, kind, nullable=nullable)
        return replace(figure, kind=kind, nullable=figure.nullable or nullable, size=figure.size + 1)

    def _extract(self, node: exp.Expr, block: Block) -> Figure:
        figure = self.of(node.expression, block)
        if figure.kind is not Kind.TIME:
            raise Refused("function_may_fail", Rule.FUNCTIONS)
        return replace(figure, kind=Kind.INTEGER, size=figure.size + 1)

    def _tuple(self, node: exp.Expr, block: Block) -> Figure:
        parts = tuple(self.of(member, block) for member in node.expressions)
        return replace(together(parts, one_unit=False), kind=Kind.OTHER, parts=parts)

    def _array(self, node: exp.Expr, block: Block) -> Figure:
        return replace(together([self.of(member, block) for member in node.expressions], one_unit=True), kind=Kind.LIST)

    def _bracket(self, node: exp.Expr, block: Block) -> Figure:
        figure = self.of(node.this, block)
        index = self.of(node.expressions[0], block)
        if index.kind is not Kind.INTEGER:
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        return replace(figure, kind=Kind.OTHER, size=figure.size + index.size)

    def _dot(self, node: exp.Expr, block: Block) -> Figure:
        return _element(self.of(node.this, block), whole_number(node.expression))

    def _concat(self, node: exp.Expr, block: Block) -> Figure:
        return replace(self._all(node, block), kind=Kind.TEXT)

    def _pattern(self, node: exp.Expr, block: Block) -> Figure:
        name = "match" if isinstance(node, exp.RegexpLike) else "like"
        return self._scalar(SCALARS[name], [node.this, node.expression], block)

    def _distinct(self, node: exp.Expr, block: Block) -> Figure:
        return self._all(node, block)

    def _in(self, node: exp.Expr, block: Block) -> Figure:
        members = [self.of(node.this, block), *(self.of(member, block) for member in node.expressions)]
        query = node.args.get("query")
        if query is not None:
            members.append(self.of(query, block))
        require_one_unit(members)
        return replace(PLAIN_INTEGER, over_time=members[0].over_time, size=sum(member.size for member in members))

    def _lambda(self, node: exp.Expr, block: Block) -> Figure:
        return self.of(node.this, block)

    def _window(self, node: exp.Expr, block: Block) -> Figure:
        call = node.this
        while isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
            call = call.this
        condition = call.expression if isinstance(call, exp.Filter) else None
        if isinstance(call, exp.Filter):
            call = call.this
        if condition is not None:
            self.of(condition.this, block)
        if not isinstance(call, CALLS):
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        self._window_parts(node, block)
        return self._call(call, block, node)

    def _filter(self, node: exp.Expr, block: Block) -> Figure:
        self.of(node.expression.this, block)
        return self.of(node.this, block)

    def _window_parts(self, node: exp.Expr, block: Block) -> None:
        for member in node.args.get("partition_by") or []:
            self.of(member, block)
        order = node.args.get("order")
        for member in order.expressions if order is not None else []:
            self.of(member.this, block)

    def _call(self, node: exp.Expr, block: Block, window: exp.Expr | None) -> Figure:
        name = node.name
        found = aggregate_of(name)
        if found is not None:
            return self._aggregate(node, found, block, window)
        scalar = SCALARS.get(name)
        if scalar is None or window is not None or node.args.get("params"):
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        return self._scalar(scalar, node.expressions, block)

    def _scalar(self, scalar: Scalar, arguments: Sequence[exp.Expr], block: Block) -> Figure:
        figures = [self.of(argument, block) for argument in arguments]
        check_scalar(scalar, arguments, figures, self._limits)
        if scalar.checked == "finite" and figures[0].kind is Kind.NUMBER and not figures[0].literal:
            self.infinite.append(arguments[0])
        size = 1 + sum(figure.size for figure in figures)
        return replace(self._effect(scalar, figures), size=size)

    def _effect(self, scalar: Scalar, figures: Sequence[Figure]) -> Figure:
        family = ARRAY_FAMILIES.get(scalar.name)
        if family is not None:
            return replace(aggregated(family, together(figures, one_unit=False), _ONE_GROUP), kind=scalar.kind)
        operator = _OPERATORS.get(scalar.name)
        if operator is not None:
            return operator(figures[0], figures[1])
        whole = together(figures, one_unit=scalar.effect is Effect.SAME or scalar.name in _COMPARISONS)
        match scalar.effect:
            case Effect.PLAIN:
                form = Form.CONSTANT if whole.literal else Form.PLAIN
                return replace(whole, form=form, kind=scalar.kind, unit="", metrics=frozenset(), lagged=False)
            case Effect.FIRST:
                return replace(figures[0], nullable=scalar.name != "assumeNotNull", literal=whole.literal)
            case Effect.CHOOSE:
                return self._choose(figures)
            case Effect.SAME | Effect.KEEP:
                return self._kept(scalar, whole, figures)

    def _choose(self, figures: Sequence[Figure]) -> Figure:
        if len(figures) % 2 == 0:
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        values = [figure for index, figure in enumerate(figures) if index % 2 or index == len(figures) - 1]
        return self._chosen(values, figures[:-1:2], total=True)

    def _kept(self, scalar: Scalar, whole: Figure, figures: Sequence[Figure]) -> Figure:
        if scalar.name == "tupleElement":
            return replace(figures[0], kind=Kind.OTHER)
        if scalar.name == "arrayDifference" and whole.form is Form.READING:
            raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["counter"])
        kind = scalar.kind
        if kind is Kind.NUMBER and whole.kind is Kind.INTEGER and scalar.name in _WHOLE:
            kind = Kind.INTEGER
        if scalar.effect is Effect.SAME:
            kind = whole.kind
        if scalar.name in ("greatest", "least") and whole.form is Form.CHANGE and len(figures) > 1:
            return replace(whole, form=Form.INCREASE, kind=kind)
        keeps_absence = scalar.name in ("ifNull", "coalesce") and not figures[-1].nullable
        parts = tuple(figures) if scalar.name == "tuple" else ()
        nullable = (whole.nullable or scalar.name.endswith("OrNull")) and not keeps_absence
        return replace(whole, kind=kind, nullable=nullable, parts=parts, lagged=False)

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
            return weighted(figures[0], figures[1], group)
        each = [aggregated(aggregate.family, figure, group) for figure in figures[: aggregate.figures]]
        return each[0] if len(each) == 1 else replace(together(each, one_unit=False), form=Form.PERCENTILE)

    def _group(self, block: Block, window: exp.Expr | None, origin: int) -> Group:
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


_Handler = Callable[[_Lineage, exp.Expr, Block], Figure]

_HOLDERS = (exp.Where, exp.Having, exp.Qualify, exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Order,
            exp.Ordered, exp.WithFill, exp.Join, exp.Distinct)  # fmt: skip

_HANDLERS: Mapping[type[exp.Expr], _Handler] = {
    exp.Literal: _Lineage._literal,
    exp.Boolean: _Lineage._literal,
    exp.Null: _Lineage._literal,
    exp.Interval: _Lineage._interval,
    exp.Alias: _Lineage._same,
    exp.Paren: _Lineage._same,
    exp.Neg: _Lineage._same,
    exp.Subquery: _Lineage._same,
    exp.Exists: _Lineage._truth,
    exp.IgnoreNulls: _Lineage._same,
    exp.RespectNulls: _Lineage._same,
    exp.Filter: _Lineage._filter,
    **dict.fromkeys(
        (exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
         exp.Is, exp.Between),
        _Lineage._truth,
    ),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod), _Lineage._arithmetic),
    exp.Case: _Lineage._case,
    exp.If: _Lineage._if,
    exp.Cast: _Lineage._cast,
    exp.CastToStrType: _Lineage._cast,
    exp.Extract: _Lineage._extract,
    exp.Tuple: _Lineage._tuple,
    exp.Array: _Lineage._array,
    exp.Bracket: _Lineage._bracket,
    exp.Dot: _Lineage._dot,
    exp.DPipe: _Lineage._concat,
    exp.Like: _Lineage._pattern,
    exp.ILike: _Lineage._pattern,
    exp.RegexpLike: _Lineage._pattern,
    exp.Distinct: _Lineage._distinct,
    exp.In: _Lineage._in,
    exp.Lambda: _Lineage._lambda,
    exp.Window: _Lineage._window,
}  # fmt: skip

_COMPARISONS = frozenset({"equals", "notEquals", "less", "greater", "lessOrEquals", "greaterOrEquals"})
_WHOLE = frozenset({"abs", "negate", "intDiv", "intDivOrZero", "modulo", "moduloOrZero", "positiveModulo"})
_OPERATORS: Mapping[str, Callable[[Figure, Figure], Figure]] = {
    "plus": lambda left, right: added(left, right, minus=False),
    "minus": lambda left, right: added(left, right, minus=True),
    "multiply": multiplied,
    "divide": divided,
}


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


def _element(figure: Figure, number: int | None) -> Figure:
    if figure.parts:
        if number is None or not 0 < number <= len(figure.parts):
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        return replace(figure.parts[number - 1], size=figure.size)
    return replace(figure, kind=Kind.OTHER)


def _require_cast(figure: Figure, kind: Kind, *, nullable: bool) -> None:
    """Refuse a cast that fails on some values: of absent ones, of texts, and of what is no number to a whole one."""
    absent = figure.nullable and not nullable
    sources = {
        Kind.TEXT: set(Kind) - {Kind.LIST},
        Kind.NUMBER: {Kind.NUMBER, Kind.INTEGER, Kind.TIME},
        Kind.INTEGER: {Kind.INTEGER, Kind.TIME},
        Kind.TIME: {Kind.INTEGER, Kind.TIME},
    }
    if absent or figure.kind not in sources.get(kind, set()):
        raise Refused("function_may_fail", Rule.FUNCTIONS)


_TEXT_TYPES = frozenset(
    {
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "String",
        "Date", "Date32", "DateTime", "DateTime('UTC')", "DateTime64(3)", "DateTime64(3, 'UTC')",
    }
)  # fmt: skip


def _type_of_text(name: str) -> tuple[str, bool]:
    """Return a type that is given as a text, and whether it admits absent values."""
    inner = name.removeprefix("Nullable(").removesuffix(")") if name.startswith("Nullable(") else name
    if inner not in _TEXT_TYPES:
        raise Refused("function_may_fail", Rule.FUNCTIONS)
    return inner, inner != name
