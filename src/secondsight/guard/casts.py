"""Admit casts that succeed on every value, and say what they give."""

from dataclasses import replace

from sqlglot import exp

from secondsight.guard.figures import Figure, kind_of_type
from secondsight.guard.functions import Kind
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.tree import text_of

_TYPES = frozenset(
    {
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "String",
        "Date", "Date32", "DateTime", "DateTime('UTC')", "DateTime64(3)", "DateTime64(3, 'UTC')",
    }
)  # fmt: skip
"""Types that may be given as a text."""

_PARSED = {
    **dict.fromkeys(
        ("Tinyint", "Smallint", "Bigint", "Uint", "Utinyint", "Usmallint", "Ubigint", "Boolean"), Kind.INTEGER
    ),
    "Double": Kind.NUMBER,
    "Text": Kind.TEXT,
    "Timestamp": Kind.TIME,
}
"""Names that the parser gives to types, where they do not begin as the engine's do."""

_SOURCES = {
    Kind.TEXT: frozenset(Kind) - {Kind.LIST},
    Kind.NUMBER: frozenset({Kind.NUMBER, Kind.INTEGER, Kind.TIME}),
    Kind.INTEGER: frozenset({Kind.INTEGER, Kind.TIME}),
    Kind.TIME: frozenset({Kind.INTEGER, Kind.TIME}),
}
"""What is cast to what without ever failing: no text to a number, no number that may be none to a whole one."""


def cast(node: exp.Expr, figure: Figure) -> Figure:
    """Return what a cast of a figure gives.

    Raises:
        Refused: `function_may_fail`: it fails on some values, or on absent ones.
    """
    target = node.args["to"]
    if isinstance(node, exp.CastToStrType):
        name, nullable = _named(text_of(target) or "")
    else:
        name, nullable = target.this.value.capitalize(), bool(target.args.get("nullable"))
    kind = _PARSED.get(name) or kind_of_type(name)
    fits = figure.kind in _SOURCES.get(kind, frozenset()) and (nullable or not figure.nullable)
    if not figure.literal and not fits:
        raise Refused("function_may_fail", Rule.FUNCTIONS)
    return replace(figure, kind=kind, nullable=figure.nullable or nullable, size=figure.size + 1)


def _named(name: str) -> tuple[str, bool]:
    """Return a type that is given as a text, and whether it admits absent values."""
    inner = name.removeprefix("Nullable(").removesuffix(")") if name.startswith("Nullable(") else name
    if inner not in _TYPES:
        raise Refused("function_may_fail", Rule.FUNCTIONS)
    return inner, inner != name
