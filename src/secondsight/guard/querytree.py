"""Read what the engine says that a text reads: its own `EXPLAIN QUERY TREE`, before any of its passes.

With passes the engine folds subqueries, and what they read is no longer in the tree.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LINE = re.compile(r"( *)([A-Z_]+(?: [A-Z]+)*)(?: id: \d+(.*))?.*")
_IDENTIFIER = re.compile(r"\bidentifier: (.+)$")
_CTE = re.compile(r"\bcte_name: ([^,]+)")
_FUNCTION = re.compile(r"\bfunction_name: ([^,]+)")
_TABLE_PLACES = frozenset({"JOIN TREE", "LEFT TABLE EXPRESSION", "RIGHT TABLE EXPRESSION", "TABLE EXPRESSION"})
_SET_WORDS = re.compile(r"(global)?(not)?(null)?in(ignoreset)?", re.IGNORECASE)
_NOTHING = "system.one"
"""What the engine calls the one row of a SELECT without FROM."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the engine reads of a text.

    Attributes:
        tables: Names in the place of tables, once for each time, in order; names of WITH are left out.
        strange: Whatever else gives rows: table functions, names after IN.
    """

    tables: tuple[str, ...]
    strange: tuple[str, ...]


@dataclass(slots=True)
class _Node:
    depth: int
    kind: str
    rest: str
    inner: "list[_Node]" = field(default_factory=list)


def names_of(lines: Sequence[str]) -> Names:
    """Return the names in the lines of `EXPLAIN QUERY TREE run_passes=0`."""
    nodes = list(_below(_tree(lines)))
    ctes = {name for node in nodes for name in _CTE.findall(node.rest)}
    tables = [name for node in nodes if node.kind in _TABLE_PLACES for name in _identifiers(node.inner)]
    strange = [node.rest for node in nodes if node.kind == "TABLE_FUNCTION"]
    strange += [name for node in nodes if _is_set_test(node) for name in _second(node)]
    return Names(tuple(name for name in tables if name not in ctes and name != _NOTHING), tuple(strange))


def _tree(lines: Sequence[str]) -> _Node:
    root = _Node(-1, "", "")
    path = [root]
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        node = _Node(len(found[1]), found[2], found[3] or "")
        while path[-1].depth >= node.depth:
            path.pop()
        path[-1].inner.append(node)
        path.append(node)
    return root


def _below(node: _Node) -> Iterator[_Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.inner))


def _identifiers(nodes: Sequence[_Node]) -> Iterator[str]:
    for node in nodes:
        if node.kind == "IDENTIFIER":
            yield from _IDENTIFIER.findall(node.rest) or [""]


def _is_set_test(node: _Node) -> bool:
    return node.kind == "FUNCTION" and any(map(_SET_WORDS.fullmatch, _FUNCTION.findall(node.rest)))


def _second(node: _Node) -> list[str]:
    """Return the second argument of a function where it is a name."""
    arguments = [each for part in node.inner if part.kind == "ARGUMENTS" for each in part.inner]
    second = [each for part in arguments if part.kind == "LIST" for each in part.inner[1:2]]
    return list(_identifiers(second))
