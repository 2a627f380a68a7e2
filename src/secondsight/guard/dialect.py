"""Read and write the SQL that authors send: the parser library's ClickHouse, without its renaming of functions.

The library turns many functions into nodes of their own and writes them back under another name. Here every call keeps
the name it was written with, so that what is checked is what is generated.
"""

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.errors import SqlglotError
from sqlglot.generators.clickhouse import ClickHouseGenerator
from sqlglot.parsers.clickhouse import ClickHouseParser
from sqlglot.tokenizer_core import Token, TokenType

from secondsight.guard.refusal import Refused, Rule


class PlainParser(ClickHouseParser):
    """A parser that knows no function by itself but CAST and EXTRACT, whose arguments have a syntax of their own."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: ClickHouseParser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT")
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": ClickHouseParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _parse_limit(self, *arguments: Any, **named: Any) -> exp.Expr | None:
        """Read `LIMIT n BY k LIMIT m`: the second limit becomes `outer` of the first."""
        limit: exp.Expr | None = super()._parse_limit(*arguments, **named)
        if isinstance(limit, exp.Limit) and limit.expressions and self._curr is not None:
            outer = super()._parse_limit() if self._curr.token_type is TokenType.LIMIT else None
            if outer is not None:
                limit.set("outer", outer)
        return limit


class PlainGenerator(ClickHouseGenerator):
    """A generator of what `PlainParser` reads."""

    def limit_sql(self, expression: exp.Limit, top: bool = False) -> str:
        """Write a limit, and the one that stands behind LIMIT BY."""
        outer = expression.args.get("outer")
        return super().limit_sql(expression, top) + (super().limit_sql(outer) if outer is not None else "")


class PlainClickHouse(ClickHouse):
    """The dialect in which statements are read and generated."""

    Parser = PlainParser
    Generator = PlainGenerator


_DIALECT = PlainClickHouse()


def tokenise(text: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        Refused(not_understood): The text has none.
    """
    try:
        return _DIALECT.tokenize(text)
    except (SqlglotError, ValueError, IndexError):
        raise Refused("not_understood", Rule.TOKENS) from None


def parse(text: str, tokens: list[Token]) -> list[exp.Expr]:
    """Return the statements of a text, empty ones left out.

    Raises:
        Refused(not_understood): The parser does not read it, or runs out of stack.
    """
    try:
        return [tree for tree in _DIALECT.parser().parse(tokens, text) if tree is not None]
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        raise Refused("not_understood", Rule.TREE) from None


def render(tree: exp.Expr) -> str:
    """Return the text of a tree, without comments; the tree may be given other brackets by it.

    Raises:
        Refused(not_verified): The tree cannot be written.
    """
    try:
        return _DIALECT.generate(tree, comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE, copy=False)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError):
        raise Refused("not_verified", Rule.VERIFY) from None
