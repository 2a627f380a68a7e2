"""Check a generated statement as if someone else had written it, before the engine sees it.

It must be a fixed point of reading and writing, hold nothing that is refused, and read views only inside the filters
that the guard has made. `check_engine` then asks the engine's own parser what it would read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from sqlglot import exp

from secondsight.guard.dialect import parse, render, tokenise
from secondsight.guard.enginetree import read_tree
from secondsight.guard.entry import check_tokens
from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.registry import Registry
from secondsight.guard.tree import NODES, arguments_of, one_query
from secondsight.guard.wrap import ROW


def verify(text: str, wrappers: Iterable[str], registry: Registry, limits: Limits) -> None:
    """Refuse a generated text that does not hold each of these filters as often as given, and no other read of a view.

    Raises:
        Refused: `not_verified`.
    """
    try:
        _verify(text, Counter(wrappers), registry, limits)
    except Refused:
        raise Refused("not_verified", Rule.VERIFY) from None


def check_engine(lines: Iterable[str], reads: Mapping[str, int]) -> None:
    """Compare what the engine says it would read with what it should.

    Args:
        lines: What `EXPLAIN QUERY TREE run_passes = 0` gives for the generated text.
        reads: View -> how often the statement reads it.

    Raises:
        Refused: `not_verified`: no answer, another table, a table function, or another number of reads.
    """
    found = read_tree(lines)
    if not found.understood or found.functions or Counter(found.tables) != Counter(reads):
        raise Refused("not_verified", Rule.VERIFY)


def _verify(text: str, expected: Counter[str], registry: Registry, limits: Limits) -> None:
    tokens = tokenise(text)
    check_tokens(text, tokens, limits)
    tree = one_query(parse(text, tokens))
    if render(tree) != text:
        raise Refused("not_verified", Rule.VERIFY)
    ctes: set[str] = set()
    tables: list[exp.Table] = []
    for node in tree.walk():
        allowed = NODES.get(type(node))
        if allowed is None or not allowed.issuperset(arguments_of(node)):
            raise Refused("not_verified", Rule.VERIFY)
        if isinstance(node, exp.CTE):
            ctes.add(node.alias)
        elif isinstance(node, exp.Table):
            tables.append(node)
    views = [table for table in tables if registry.view(table.name) is not None]
    if not all(registry.view(table.name) or (table.name in ctes and table.name.startswith(ROW)) for table in tables):
        raise Refused("not_verified", Rule.VERIFY)
    if Counter(_filter_around(table) for table in views) != expected:
        raise Refused("not_verified", Rule.VERIFY)


def _filter_around(table: exp.Table) -> str:
    """Return the text of the query in brackets that reads a view."""
    around = table.parent
    while around is not None and not isinstance(around, exp.Subquery):
        around = around.parent
    return render(around) if around is not None else ""
