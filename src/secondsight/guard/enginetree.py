"""Read the query tree that the engine prints: which tables it would read, and which table functions it would call.

The tree is that of the engine's own parser before it looks anything up, so it is a second opinion on what a text means.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"^(?P<indent> *)(?P<word>[A-Z_]+(?: [A-Z_]+)*)(?: id: \d+)?(?P<rest>,.*)? ?$")
_SORTED = re.compile(r"^(?P<indent> *)(?P<word>EXPRESSION)(?P<rest> .*)$")
"""A key of ORDER BY is headed by its own text."""
_IDENTIFIER = re.compile(r"\bidentifier: (?P<name>.+)$")
_CTE = re.compile(r"\bcte_name: (?P<name>[^,]+)")
_FUNCTION = re.compile(r"\bfunction_name: (?P<name>[^,]+)")
_TABLE_POSITIONS = frozenset({"JOIN TREE", "LEFT TABLE EXPRESSION", "RIGHT TABLE EXPRESSION", "TABLE EXPRESSION"})
_READING_FUNCTIONS = frozenset(
    f"{prefix}{name}{suffix}"
    for prefix, name in (("", "in"), ("", "notIn"), ("", "nullIn"), ("", "notNullIn"), ("global", "In"))
    for suffix in ("", "IgnoreSet")
) | {"globalNotIn", "globalNullIn", "globalNotNullIn"}
_NO_TABLE = "system.one"
"""What a SELECT without FROM reads."""


@dataclass(frozen=True, slots=True)
class EngineReads:
    """What a statement would read.

    Attributes:
        understood: False where there was no tree, or a line of it is of unknown form.
        tables: Name of each read, as often as it occurs; names of CTEs left out.
        functions: Table functions.
    """

    understood: bool
    tables: tuple[str, ...]
    functions: tuple[str, ...]


@dataclass(slots=True)
class _Level:
    indent: int
    word: str
    function: str
    members: int = 0


def read_tree(lines: Iterable[str]) -> EngineReads:
    """Return what the engine's query tree reads."""
    tables: list[str] = []
    functions: list[str] = []
    ctes: set[str] = set()
    path: list[_Level] = []
    understood = False
    for line in lines:
        if not line.strip():
            continue
        match = _LINE.match(line) or _SORTED.match(line)
        if match is None:
            return EngineReads(understood=False, tables=(), functions=())
        understood = True
        word, rest = match["word"], match["rest"] or ""
        rest = rest if rest.startswith(",") else ""
        while path and path[-1].indent >= len(match["indent"]):
            path.pop()
        if path:
            path[-1].members += 1
        if word.startswith("TABLE_FUNCTION") or (word == "TABLE" and rest):
            functions.append(rest)
        elif word == "IDENTIFIER" and _reads(path):
            tables.append(_name(_IDENTIFIER, rest))
        ctes.add(_name(_CTE, rest))
        path.append(_Level(len(match["indent"]), word, _name(_FUNCTION, rest)))
    named = tuple(name for name in tables if name not in ctes - {""} and name != _NO_TABLE)
    return EngineReads(understood, named, tuple(functions))


def _name(pattern: re.Pattern[str], rest: str) -> str:
    match = pattern.search(rest)
    return match["name"] if match is not None else ""


def _reads(path: list[_Level]) -> bool:
    """Tell whether an identifier stands where a table does: in FROM, or as the set of IN."""
    if not path:
        return True
    if path[-1].word in _TABLE_POSITIONS:
        return True
    around = path[-3].function if len(path) >= 3 else ""
    return path[-1].word == "LIST" and path[-1].members == 2 and around in _READING_FUNCTIONS
