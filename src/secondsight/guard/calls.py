"""Check the arguments of a call: how many, which of them literal, and that none can make the engine fail on a row."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from zoneinfo import available_timezones

from sqlglot import exp

from secondsight.guard import patterns
from secondsight.guard.figures import Figure
from secondsight.guard.functions import INTERVAL_UNITS, Aggregate, Kind, Scalar
from secondsight.guard.limits import Limits
from secondsight.guard.refusal import Refused, Rule
from secondsight.guard.tree import interval_of, is_literal, text_of, whole_number

_NAMES = INTERVAL_UNITS | {"weekday", "dayofyear"}
_WIDTH = 200
_BITS = 64

Arguments = Sequence[exp.Expr]


def check_scalar(scalar: Scalar, arguments: Arguments, figures: Sequence[Figure], limits: Limits) -> None:
    """Refuse a call whose arguments are not those that are offered.

    Raises:
        Refused: `function_not_offered` or `function_may_fail`.
    """
    _require(scalar.least <= len(arguments) <= scalar.most)
    for position in scalar.literals:
        if position < len(arguments):
            _require(figures[position].literal)
            _require(len(text_of(arguments[position]) or "") <= limits.pattern_characters)
    if any(isinstance(argument, exp.Lambda) for argument in arguments):
        _require(scalar.name.startswith("array") and isinstance(arguments[0], exp.Lambda))
        _require(len(arguments) > 1 and not any(isinstance(argument, exp.Lambda) for argument in arguments[1:]))
        _require(not _holds_lists(figures[0]))
    if scalar.name == "arrayJoin":
        _require(not figures[0].literal)
    if scalar.kind is Kind.TIME or scalar.checked in ("time", "unit", "format"):
        _check_zones(scalar, arguments)
    if scalar.checked:
        _CHECKS[scalar.checked](arguments, figures)


def growth(scalar: Scalar, arguments: Arguments) -> int:
    """Return how many times longer a text may become by a call, beyond its arguments together."""
    replacement = text_of(arguments[2]) if scalar.name.startswith("replace") else None
    return max(1, len(replacement or ""))


def check_aggregate(
    aggregate: Aggregate, combinators: Sequence[str], arguments: Arguments, parameters: Arguments, limits: Limits
) -> None:
    """Refuse an aggregate with arguments or parameters that are not offered, or a list without an upper size.

    Raises:
        Refused: `function_not_offered` or `unbounded_list`.
    """
    condition = 1 if "If" in combinators else 0
    least = 1 if aggregate.name == "count" and condition else aggregate.least + condition
    _require(least <= len(arguments) <= aggregate.most + condition)
    if aggregate.family == "list":
        size = whole_number(parameters[0]) if parameters else None
        if size is None or not 0 < size <= limits.list_items:
            raise Refused("unbounded_list", Rule.FUNCTIONS)
    _require(aggregate.parameters[0] <= len(parameters) <= aggregate.parameters[1])
    _require(not any(isinstance(argument, exp.Lambda | exp.Star) for argument in arguments) or _counts(arguments))
    if aggregate.window_only and aggregate.name != "nonNegativeDerivative":
        _require(all(_is_offset(argument) for argument in arguments[1:2]))
    if aggregate.name == "ntile":
        _require(bool(whole_number(arguments[0])))


def _holds_lists(figure: Figure) -> bool:
    """Tell whether a value is a list or holds one: a list of such grows without bound."""
    return figure.kind is Kind.LIST or any(_holds_lists(part) for part in figure.parts)


def _check_zones(scalar: Scalar, arguments: Arguments) -> None:
    """Let only zones pass that exist: the engine would refuse others at the first row."""
    if scalar.name.startswith("parse") or scalar.name == "date":
        return
    for position in scalar.literals:
        zone = text_of(arguments[position]) if position < len(arguments) else None
        _require(zone is None or zone in _zones())


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _counts(arguments: Arguments) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], exp.Star)


def _is_offset(argument: exp.Expr) -> bool:
    number = whole_number(argument)
    return number is not None and 0 < number < 1_000_000


def _require(holds: bool, code: str = "function_not_offered") -> None:
    if not holds:
        raise Refused(code, Rule.FUNCTIONS)


def _number(_: Arguments, figures: Sequence[Figure]) -> None:
    """A text is converted by the forms that give NULL or 0 for what is no number."""
    figure = figures[0]
    _require(figure.literal or figure.kind in (Kind.NUMBER, Kind.INTEGER, Kind.TIME), "function_may_fail")


def _moment(_: Arguments, figures: Sequence[Figure]) -> None:
    """A number that may be no number at all is no time."""
    figure = figures[0]
    _require(figure.literal or figure.kind in (Kind.INTEGER, Kind.TIME), "function_may_fail")


def _time(_: Arguments, figures: Sequence[Figure]) -> None:
    _require(figures[0].literal or figures[0].kind is Kind.TIME, "function_may_fail")


def _integers(arguments: Arguments, figures: Sequence[Figure]) -> None:
    _require(all(figure.kind is Kind.INTEGER for figure in figures if not figure.literal), "function_may_fail")
    _require(all(text_of(argument) is None for argument in arguments[:1]), "function_may_fail")


def _whole(arguments: Arguments, figures: Sequence[Figure]) -> None:
    """Whole division of whole numbers by a number that is written and not 0."""
    divisor = whole_number(arguments[1])
    _require(bool(divisor) and figures[0].kind is Kind.INTEGER, "function_may_fail")


def _nonzero(arguments: Arguments, _: Sequence[Figure]) -> None:
    divisor = arguments[1]
    fits = isinstance(divisor, exp.Literal) and not divisor.is_string and float(divisor.name) != 0
    _require(fits, "function_may_fail")


def _bit(arguments: Arguments, figures: Sequence[Figure]) -> None:
    bit = whole_number(arguments[1])
    _require(bit is not None and bit < _BITS and figures[0].kind is Kind.INTEGER, "function_may_fail")


def _words(arguments: Arguments, _: Sequence[Figure]) -> None:
    """A list of texts to look for is written out and short."""
    words = arguments[1]
    texts = [text_of(word) for word in words.expressions] if isinstance(words, exp.Array) else []
    _require(0 < len(texts) <= _WIDTH and None not in texts)


def _like(arguments: Arguments, _: Sequence[Figure]) -> None:
    _require(patterns.is_like(_short_text(arguments[1])))


def _pattern(arguments: Arguments, _: Sequence[Figure]) -> None:
    _require(patterns.groups_of(_short_text(arguments[1])) is not None)


def _replacement(arguments: Arguments, _: Sequence[Figure]) -> None:
    groups = patterns.groups_of(_short_text(arguments[1]))
    _require(groups is not None and patterns.is_replacement(_short_text(arguments[2]), groups))


def _token(arguments: Arguments, _: Sequence[Figure]) -> None:
    _require(patterns.is_token(_short_text(arguments[1])))


def _separator(arguments: Arguments, _: Sequence[Figure]) -> None:
    separator = _short_text(arguments[0])
    _require(len(separator) == 1 and separator.isascii())


def _format(arguments: Arguments, figures: Sequence[Figure]) -> None:
    _time(arguments, figures)
    _require(patterns.is_format(_short_text(arguments[1])))


def _name(arguments: Arguments, figures: Sequence[Figure]) -> None:
    _require(_short_text(arguments[0]).lower() in _NAMES and figures[1].kind is Kind.TIME)


def _unit(arguments: Arguments, figures: Sequence[Figure]) -> None:
    _require(_short_text(arguments[0]).lower().removesuffix("s") in INTERVAL_UNITS)
    times = [figure for figure, argument in zip(figures[1:], arguments[1:], strict=True) if text_of(argument) is None]
    _require(all(figure.kind is Kind.TIME for figure in times), "function_may_fail")


def _interval(arguments: Arguments, figures: Sequence[Figure]) -> None:
    _time(arguments, figures)
    length = interval_of(arguments[1])
    _require(length is not None and length[0] > 0)


def _start(arguments: Arguments, _: Sequence[Figure]) -> None:
    _require(all(whole_number(argument) is not None for argument in arguments[1:]) and whole_number(arguments[1]) != 0)


def _width(arguments: Arguments, _: Sequence[Figure]) -> None:
    width = whole_number(arguments[1])
    _require(width is not None and width <= _WIDTH)


def _index(arguments: Arguments, figures: Sequence[Figure]) -> None:
    index = arguments[1]
    _require(figures[1].kind is Kind.INTEGER and not (is_literal(index) and whole_number(index) == 0))


def _mapping(arguments: Arguments, figures: Sequence[Figure]) -> None:
    """The two lists of `transform` are written out and of one length."""
    lists = arguments[1:3]
    _require(all(isinstance(member, exp.Array) for member in lists) and all(figure.literal for figure in figures[1:3]))
    _require(len(lists[0].expressions) == len(lists[1].expressions) > 0)


def _short_text(node: exp.Expr) -> str:
    text = text_of(node)
    if text is None or len(text) > _WIDTH:
        raise Refused("function_not_offered", Rule.FUNCTIONS)
    return text


_CHECKS: Mapping[str, Callable[[Arguments, Sequence[Figure]], None]] = {
    "number": _number,
    "finite": _number,
    "moment": _moment,
    "time": _time,
    "integers": _integers,
    "whole": _whole,
    "nonzero": _nonzero,
    "bit": _bit,
    "words": _words,
    "like": _like,
    "pattern": _pattern,
    "replacement": _replacement,
    "token": _token,
    "separator": _separator,
    "format": _format,
    "name": _name,
    "unit": _unit,
    "interval": _interval,
    "start": _start,
    "width": _width,
    "index": _index,
    "mapping": _mapping,
}
