"""Say what a function of single values makes of figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from secondsight.guard.figures import Figure, Form, added, divided, multiplied, together
from secondsight.guard.functions import ARRAY_FAMILIES, Effect, Kind, Scalar
from secondsight.guard.legality import Group, aggregated
from secondsight.guard.refusal import HINTS, Refused, Rule

_ONE_GROUP = Group(instants=False, entities=False, over_time=False)
"""The members of a list have nothing in common that is known."""

_COMPARISONS = frozenset(
    {
        "equals", "notEquals", "less", "greater", "lessOrEquals", "greaterOrEquals", "nullIf",
        "has", "hasAll", "hasAny", "indexOf", "countEqual",
    }
)  # fmt: skip
_TIMES_OF_NUMBERS = frozenset(
    {"toDate", "toDate32", "date", "toDateTime", "toDateTime64", "fromUnixTimestamp", "fromUnixTimestamp64Milli"}
)
_WHOLE = frozenset({"abs", "negate", "intDiv", "intDivOrZero", "modulo", "moduloOrZero", "positiveModulo"})
_OPERATORS: Mapping[str, Callable[[Figure, Figure], Figure]] = {
    "plus": lambda left, right: added(left, right, minus=False),
    "minus": lambda left, right: added(left, right, minus=True),
    "multiply": multiplied,
    "divide": divided,
}


def applied(scalar: Scalar, figures: Sequence[Figure]) -> Figure:
    """Return what a function means of these arguments.

    Raises:
        Refused: `mixed_units`, `illegal_aggregate`, `unlike_figures` or `function_not_offered`.
    """
    family = ARRAY_FAMILIES.get(scalar.name)
    if family is not None:
        return replace(aggregated(family, together(figures, one_unit=False), _ONE_GROUP), kind=scalar.kind)
    operator = _OPERATORS.get(scalar.name)
    if operator is not None:
        return operator(figures[0], figures[1])
    whole = together(figures, one_unit=scalar.effect is Effect.SAME or scalar.name in _COMPARISONS)
    match scalar.effect:
        case Effect.PLAIN if _is_time_of(scalar, figures):
            raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["again"])
        case Effect.PLAIN:
            form = Form.CONSTANT if whole.literal else Form.PLAIN
            return replace(whole, form=form, kind=scalar.kind, unit="", metrics=frozenset(), lagged=False)
        case Effect.FIRST:
            return replace(figures[0], nullable=scalar.name != "assumeNotNull", literal=whole.literal)
        case Effect.CHOOSE:
            return _choose(figures)
        case Effect.SAME | Effect.KEEP:
            return _kept(scalar, whole, figures)


def chosen(values: Sequence[Figure], conditions: Sequence[Figure], *, total: bool) -> Figure:
    """Return what a value means that is one of these; not `total` where it may be absent.

    A change of a counter that is chosen by a condition is an increase: that is how restarts are told.

    Raises:
        Refused: `mixed_units`.
    """
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


def element(figure: Figure, number: int | None) -> Figure:
    """Return what element `number` of a tuple means, counted from 1.

    Raises:
        Refused: `function_not_offered` where the tuple is known and has no such element.
    """
    if figure.parts:
        if number is None or not 0 < number <= len(figure.parts):
            raise Refused("function_not_offered", Rule.FUNCTIONS)
        return replace(figure.parts[number - 1], size=figure.size)
    return replace(figure, kind=Kind.OTHER)


def _is_time_of(scalar: Scalar, figures: Sequence[Figure]) -> bool:
    """Tell whether a function makes or takes a time that was made of a metric: a figure does not hide in one."""
    makes = scalar.name in _TIMES_OF_NUMBERS or scalar.name.startswith("toInterval")
    return any(figure.metrics and (makes or figure.kind is Kind.TIME) for figure in figures)


def _choose(figures: Sequence[Figure]) -> Figure:
    if len(figures) % 2 == 0:
        raise Refused("function_not_offered", Rule.FUNCTIONS)
    values = [figure for index, figure in enumerate(figures) if index % 2 or index == len(figures) - 1]
    return chosen(values, figures[:-1:2], total=True)


def _kept(scalar: Scalar, whole: Figure, figures: Sequence[Figure]) -> Figure:
    if scalar.name == "arrayDifference" and whole.form is Form.READING:
        raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["counter"])
    kind = _kind(scalar, whole)
    if scalar.name in ("greatest", "least") and whole.form is Form.CHANGE:
        return replace(whole, form=Form.INCREASE, kind=kind)
    keeps_absence = scalar.name in ("ifNull", "coalesce") and not figures[-1].nullable
    parts = tuple(figures) if scalar.name == "tuple" else ()
    nullable = (whole.nullable or scalar.name.endswith("OrNull")) and not keeps_absence
    return replace(whole, kind=kind, nullable=nullable, parts=parts, lagged=False)


def _kind(scalar: Scalar, whole: Figure) -> Kind:
    if scalar.effect is Effect.SAME or (scalar.name in _WHOLE and whole.kind is Kind.INTEGER):
        return whole.kind
    return scalar.kind
