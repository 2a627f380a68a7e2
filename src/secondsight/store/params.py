"""Turn Python values into the text that a `{name:Type}` parameter is parsed from.

Text is escaped as tab-separated values are; strings inside arrays are quoted, with the escaping of a literal.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_TEXT_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"}
)
_LITERAL_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        "'": "\\'",
        "\t": "\\t",
        "\n": "\\n",
        "\r": "\\r",
        "\0": "\\0",
        "\b": "\\b",
        "\f": "\\f",
    }
)


class ParameterText(str):
    """Text that is a parameter already and is not escaped again."""

    __slots__ = ()


def parameter_texts(params: Mapping[str, Any] | None) -> dict[str, ParameterText]:
    """Return each parameter as text."""
    return {name: ParameterText(parameter_text(value)) for name, value in (params or {}).items()}


def parameter_text(value: Any) -> str:
    """Return one parameter as text.

    Raises:
        TypeError: No parameter has such a type.
    """
    match value:
        case None:
            return "\\N"
        case ParameterText():
            return value
        case str():
            return value.translate(_TEXT_ESCAPES)
        case list() | tuple() | set() | frozenset():
            return f"[{','.join(literal(item) for item in _ordered(value))}]"
        case _:
            return _scalar_text(value)


def _ordered(values: Any) -> Sequence[Any]:
    return sorted(values) if isinstance(values, set | frozenset) else values


def literal(value: Any) -> str:
    """Return a value as a literal of SQL, as inside a list."""
    match value:
        case None:
            return "NULL"
        case str():
            return f"'{value.translate(_LITERAL_ESCAPES)}'"
        case datetime():
            return f"'{_scalar_text(value)}'"
        case list() | tuple():
            return f"[{','.join(literal(item) for item in value)}]"
        case _:
            return _scalar_text(value)


def _scalar_text(value: Any) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case int():
            return str(int(value))
        case float():
            return repr(float(value))
        case datetime():
            return _time_text(value)
        case _:
            raise TypeError(f"no parameter has type {type(value).__name__}")


def _time_text(value: datetime) -> str:
    """Return UTC time with microseconds; a naive time is taken as UTC."""
    moment = value.astimezone(UTC) if value.tzinfo else value
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
