"""Say what a figure means, and what it means after arithmetic.

A form says how a figure came about: a sample, a mean of a window, a reading of a counter. It decides which aggregates
are right (`legality`). Units are those of the catalogue; a factor does not change what a figure is a unit of.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from secondsight.guard.functions import Kind
from secondsight.guard.refusal import HINTS, Refused, Rule
from secondsight.guard.registry import Column, MetricKind, Registry, Role, View


class Form(StrEnum):
    """How a figure came about."""

    CONSTANT = "constant"
    PLAIN = "plain"
    """A name, a time, a count, a truth: free of any metric."""
    CODE = "code"
    STATE = "state"
    BITMASK = "bitmask"
    SAMPLE = "sample"
    """A value of a gauge at an instant."""
    READING = "reading"
    """A value of a counter at an instant."""
    CHANGE = "change"
    """A reading less the one before it; negative where the counter started again."""
    INCREASE = "increase"
    MEAN = "mean"
    """A mean, a rate or a ratio of totals."""
    EXTREME = "extreme"
    """A least, greatest or last value of some time."""
    PERCENTILE = "percentile"
    WEIGHT = "weight"
    """Covered seconds, which weigh a mean."""
    WEIGHTED = "weighted"
    """A mean times its weight, and sums of such."""
    NUMBER = "number"
    """How many entities a row speaks of."""
    SHARE = "share"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is known of the values of one expression.

    Attributes:
        unit: Unit of the metric, "" where it has none or nobody knows.
        metrics: Metrics it comes from.
        over_time: True where several values of it lie at several times.
        origin: Number of the source that it comes from, -1 for none or several.
        grain_seconds: Width of the windows it comes from; -1 for several widths.
        spread: True for a list, and what comes out of one, whose members lie at several times.
        made: True for an extreme that the statement has computed itself.
        scaled: True where a factor or divisor has made another unit of `unit`, of the same kind.
        lagged: True for a reading of the row before, of the same entity.
        nullable: True where values may be absent.
        literal: True for a literal, or what is made of literals alone.
        size: Nodes of the expression once names are replaced by what they stand for.
        parts: Of a tuple: one figure for each element.
    """

    form: Form
    kind: Kind = Kind.OTHER
    unit: str = ""
    metrics: frozenset[str] = frozenset()
    over_time: bool = False
    origin: int = -1
    grain_seconds: int = 0
    spread: bool = False
    made: bool = False
    scaled: bool = False
    lagged: bool = False
    nullable: bool = False
    literal: bool = False
    size: int = 1
    parts: tuple["Figure", ...] = ()


PLAIN_INTEGER = Figure(Form.PLAIN, Kind.INTEGER)
_GAUGE_FORMS = {
    "": Form.SAMPLE,
    "avg": Form.MEAN,
    "min": Form.EXTREME,
    "max": Form.EXTREME,
    "last": Form.EXTREME,
    "p95": Form.PERCENTILE,
}
_ROLE_FORMS = {Role.CODE: Form.CODE, Role.NUMBER: Form.NUMBER, Role.SHARE: Form.SHARE}
_STATE_FORMS = {MetricKind.STATE: Form.STATE, MetricKind.BITMASK: Form.BITMASK, MetricKind.CODE: Form.CODE}
_METRIC_FORMS = frozenset({Form.STATE, Form.BITMASK, Form.CODE, Form.READING, Form.CHANGE})


def figure_of_column(column: Column, view: View, registry: Registry, origin: int) -> Figure:
    """Return the figure of a column as a view gives it."""
    metric = registry.metric(column.metric) if column.role is Role.MEASURE else None
    form, unit = _ROLE_FORMS.get(column.role, Form.PLAIN), ""
    if metric is not None:
        form = _measure_form(metric.kind, column.suffix)
        unit = "" if form in (Form.WEIGHT, Form.PLAIN, *_STATE_FORMS.values()) else metric.unit
    return Figure(
        form,
        kind_of_type(column.type),
        unit,
        frozenset({column.metric}) if metric is not None else frozenset(),
        over_time=True,
        origin=origin,
        grain_seconds=view.grain_seconds,
        nullable="Nullable(" in column.type,
    )


def _measure_form(kind: MetricKind, suffix: str) -> Form:
    if suffix in ("count", "seconds"):
        return Form.WEIGHT
    if suffix in ("changes", "resets"):
        return Form.PLAIN
    match kind:
        case MetricKind.GAUGE:
            return _GAUGE_FORMS.get(suffix, Form.MIXED)
        case MetricKind.COUNTER:
            return Form.INCREASE if suffix == "increase" else Form.READING
        case MetricKind.STATE | MetricKind.BITMASK | MetricKind.CODE:
            return _STATE_FORMS[kind]


def kind_of_type(name: str) -> Kind:
    """Return the kind of values of a ClickHouse type."""
    inner = name
    for wrapper in ("LowCardinality(", "Nullable("):
        inner = inner.removeprefix(wrapper)
    for prefix, kind in _TYPE_KINDS:
        if inner.startswith(prefix):
            return kind
    return Kind.OTHER


_TYPE_KINDS = (
    ("String", Kind.TEXT),
    ("FixedString", Kind.TEXT),
    ("Enum", Kind.TEXT),
    ("UUID", Kind.TEXT),
    ("Date", Kind.TIME),
    ("UInt", Kind.INTEGER),
    ("Int", Kind.INTEGER),
    ("Bool", Kind.INTEGER),
    ("Float", Kind.NUMBER),
    ("Decimal", Kind.NUMBER),
    ("Array", Kind.LIST),
)


def together(figures: Sequence[Figure], *, one_unit: bool) -> Figure:
    """Return what a value means that may be any of these, or is made of all of them.

    Raises:
        Refused: `mixed_units` where they must be of one unit and are not.
    """
    if not figures:
        return Figure(Form.CONSTANT, literal=True)
    real = [figure for figure in figures if figure.form is not Form.CONSTANT]
    if one_unit:
        require_one_unit(real)
    forms = {figure.form for figure in real}
    measured = forms - {Form.PLAIN}
    form = Form.CONSTANT if not forms else Form.PLAIN if not measured else _common(forms, one_unit=one_unit)
    units = {figure.unit for figure in real if figure.unit}
    kinds = {figure.kind for figure in figures}
    return Figure(
        form,
        kinds.pop() if len(kinds) == 1 else Kind.NUMBER if kinds <= {Kind.NUMBER, Kind.INTEGER} else Kind.OTHER,
        units.pop() if len(units) == 1 else "",
        frozenset().union(*(figure.metrics for figure in real)),
        over_time=any(figure.over_time for figure in real),
        origin=_same((figure.origin for figure in real if figure.over_time), -1),
        grain_seconds=_same((figure.grain_seconds for figure in real), -1),
        spread=any(figure.spread for figure in real),
        made=bool(real) and all(figure.made for figure in real),
        scaled=any(figure.scaled for figure in real),
        lagged=bool(real) and all(figure.lagged for figure in real),
        nullable=any(figure.nullable for figure in figures),
        literal=all(figure.literal for figure in figures),
        size=1 + sum(figure.size for figure in figures),
    )


def _common(forms: set[Form], *, one_unit: bool) -> Form:
    if len(forms) == 1:
        return next(iter(forms))
    if one_unit and forms <= {Form.CHANGE, Form.READING, Form.INCREASE}:
        return Form.INCREASE
    return Form.MIXED


def _same(values: Iterable[int], otherwise: int) -> int:
    found = set(values)
    return found.pop() if len(found) == 1 else 0 if not found else otherwise


def require_one_unit(figures: Iterable[Figure]) -> None:
    """Refuse figures of two units.

    Raises:
        Refused: `mixed_units`.
    """
    if len({figure.unit for figure in figures if figure.unit}) > 1:
        raise Refused("mixed_units", Rule.LINEAGE)


def added(left: Figure, right: Figure, *, minus: bool) -> Figure:
    """Return the figure of a sum or a difference.

    Raises:
        Refused: `mixed_units`, or `illegal_aggregate` for the difference of two readings that are not neighbours.
    """
    both = together((left, right), one_unit=True)
    form = both.form
    if {left.form, right.form} == {Form.READING}:
        if not (minus and left.lagged != right.lagged and left.metrics == right.metrics):
            raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["counter"])
        form = Form.CHANGE
    elif form is Form.MIXED and {left.form, right.form} <= _LEVELS:
        form = _level(left, right)
    elif form is Form.MIXED and Form.PLAIN in (left.form, right.form):
        form = next(figure.form for figure in (left, right) if figure.form is not Form.PLAIN)
    return replace(both, form=form, kind=_number_kind(left, right, both), lagged=False)


_LEVELS = frozenset({Form.SAMPLE, Form.MEAN, Form.EXTREME, Form.PERCENTILE, Form.SHARE})


def _level(left: Figure, right: Figure) -> Form:
    """Return the form of two levels put together; what holds a percentile stays one."""
    return Form.PERCENTILE if Form.PERCENTILE in (left.form, right.form) else Form.EXTREME


def _number_kind(left: Figure, right: Figure, both: Figure) -> Kind:
    if Kind.TIME in (left.kind, right.kind):
        return Kind.INTEGER if left.kind is right.kind else Kind.TIME
    return Kind.INTEGER if {left.kind, right.kind} == {Kind.INTEGER} else both.kind


def multiplied(left: Figure, right: Figure) -> Figure:
    """Return the figure of a product.

    Raises:
        Refused: `illegal_aggregate` where a mean is weighed by the weight of another metric.
    """
    both = together((left, right), one_unit=False)
    unit = _joined_unit(left.unit, right.unit, "*")
    if Form.CONSTANT in (left.form, right.form):
        both = replace(both, scaled=both.form is not Form.CONSTANT)
    for figure, weight in ((left, right), (right, left)):
        form = _weighed(figure, weight)
        if form is not None:
            scaled = both.scaled or form is Form.WEIGHTED
            return replace(both, form=form, unit=figure.unit or weight.unit, kind=Kind.NUMBER, scaled=scaled)
    if both.form is Form.MIXED and {left.form, right.form} <= _LEVELS:
        both = replace(both, form=_level(left, right))
    return replace(both, unit=unit, kind=_number_kind(left, right, both))


def _weighed(figure: Figure, weight: Figure) -> Form | None:
    """Return the form of a figure times a weight, or None where the second is no weight of the first."""
    match figure.form, weight.form:
        case (Form.MEAN, Form.WEIGHT):
            if weight.metrics != figure.metrics:
                raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["weight"])
            return Form.WEIGHTED
        case (Form.SHARE, Form.NUMBER):
            return Form.NUMBER
        case (Form.MEAN, Form.NUMBER):
            return Form.EXTREME
        case (Form.PERCENTILE | Form.EXTREME, Form.WEIGHT | Form.NUMBER):
            return figure.form
        case (form, Form.PLAIN) if form not in (Form.PLAIN, Form.CONSTANT):
            return form
        case _:
            return None


def divided(left: Figure, right: Figure) -> Figure:
    """Return the figure of a quotient.

    Raises:
        Refused: `illegal_aggregate` where a weighted sum is divided by the weight of another metric.
    """
    both = replace(together((left, right), one_unit=False), kind=Kind.NUMBER)
    if right.form is Form.CONSTANT:
        return replace(both, form=left.form, scaled=left.form is not Form.CONSTANT)
    both = replace(both, scaled=both.scaled or not right.unit)
    unit = left.unit if not right.unit else _joined_unit(left.unit, right.unit, "/")
    if left.form is Form.WEIGHTED and right.form is not Form.WEIGHTED:
        if right.form is not Form.WEIGHT or left.metrics != right.metrics:
            raise Refused("illegal_aggregate", Rule.LINEAGE, HINTS["weight"])
        return replace(both, form=Form.MEAN, unit=left.unit, scaled=left.scaled)
    if {left.form, right.form} & _METRIC_FORMS:
        form = both.form if both.form in _METRIC_FORMS else Form.MIXED
        return replace(both, form=form, unit=unit)
    samples = {left.form, right.form} - {Form.CONSTANT, Form.PLAIN}
    form = Form.SAMPLE if samples == {Form.SAMPLE} else Form.PERCENTILE if Form.PERCENTILE in samples else Form.MEAN
    return replace(both, form=form, unit=unit)


def _joined_unit(left: str, right: str, sign: str) -> str:
    if sign == "/" and left == right:
        return "1" if left else ""
    if right in ("", "1"):
        return left
    return f"{left}{sign}{right}" if left not in ("", "1") or sign == "/" else right
