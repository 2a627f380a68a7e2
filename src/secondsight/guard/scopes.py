"""What names stand for in a resolved statement: queries, what they read, and what each column is bound to."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from secondsight.guard.registry import View
from secondsight.guard.tree import QUERIES


@dataclass(slots=True, eq=False)
class Reference:
    """One place where a view is read.

    Attributes:
        name: By what its columns may be qualified: its alias, else the view's name.
        visible: Columns the caller may read, in the order of the view.
        used: Those of them that the statement names; all of them under a star.
    """

    view: View
    name: str
    node: exp.Table
    visible: Mapping[str, None]
    used: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Item:
    """One column that a query gives. `node` is None for a column that a star stands for."""

    name: str
    node: exp.Expr | None
    source: "Source | None" = None
    column: str = ""


@dataclass(slots=True, eq=False)
class Source:
    """One member of FROM: a view, or a query of its own.

    Attributes:
        join: The join that brings it in; None for the first one.
    """

    name: str
    join: exp.Join | None
    reference: Reference | None = None
    query: "Query | None" = None

    def names(self) -> Collection[str]:
        """Return the names of its columns; a column without a name is left out."""
        if self.reference is not None:
            return self.reference.visible
        return [item.name for item in self.query.items if item.name] if self.query else []

    def has(self, name: str) -> bool:
        """Tell whether it has a column of this name."""
        return name in self.names()


@dataclass(slots=True, eq=False)
class Named:
    """A query that WITH gives a name.

    Attributes:
        node: The member of WITH.
        uses: Every place where it is read.
    """

    node: exp.Expr
    query: "Query"
    uses: list[exp.Expr] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Block:
    """One SELECT with everything that its names may stand for.

    Attributes:
        aliases: Name -> expression, of select items and of any other place in the block.
        scalars: Name -> expression of WITH; seen by inner queries where it is constant.
        unnested: Names that ARRAY JOIN makes, aliases included.
        inner: Queries in its expressions.
        reads: How often it reads views, CTEs counted where they are used.
    """

    select: exp.Select
    parent: "Block | None"
    ctes: dict[str, Named] = field(default_factory=dict)
    scalars: dict[str, exp.Expr] = field(default_factory=dict)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    unnested: dict[str, exp.Expr] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    inner: list["Query"] = field(default_factory=list)
    reads: int = 0


@dataclass(slots=True, eq=False)
class Combined:
    """A UNION, EXCEPT or INTERSECT; its columns have the names of its first arm."""

    node: exp.Expr
    arms: list["Query"]
    reads: int

    @property
    def items(self) -> list[Item]:
        """Return the columns of the first arm."""
        return self.arms[0].items


Query = Block | Combined


@dataclass(frozen=True, slots=True, eq=False)
class OfSource:
    """A column of a member of FROM."""

    source: Source
    column: str


@dataclass(frozen=True, slots=True, eq=False)
class OfAlias:
    """A name that stands for an expression of the block."""

    node: exp.Expr
    block: Block


@dataclass(frozen=True, slots=True, eq=False)
class OfLambda:
    """A parameter of a lambda."""

    node: exp.Lambda


Binding = OfSource | OfAlias | OfLambda


@dataclass(frozen=True, slots=True)
class Resolved:
    """A statement all of whose names are known.

    Attributes:
        bindings: id of a column or identifier node -> what it stands for.
        queries: id of a query node -> the query.
        blocks: Every SELECT, inner ones before the ones around them.
    """

    root: Query
    bindings: Mapping[int, Binding]
    queries: Mapping[int, Query]
    references: tuple[Reference, ...]
    named: tuple[Named, ...]
    blocks: tuple[Block, ...]


def nodes_of_block(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes below a node in any order, inner queries themselves but nothing below them."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        if current is not node and isinstance(current, QUERIES):
            continue
        pending.extend(current.iter_expressions())


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the terms of a condition that all have to hold."""
    pending = [node] if node is not None else []
    while pending:
        current = pending.pop()
        if isinstance(current, exp.And):
            pending += [current.expression, current.this]
        elif isinstance(current, exp.Paren):
            pending.append(current.this)
        else:
            yield current
