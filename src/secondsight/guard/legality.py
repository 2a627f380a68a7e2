"""Say which aggregate of which figure is right, by what the catalogue says of metrics.

Every pair that is not in the table is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from secondsight.guard.figures import Figure, Form
from secondsight.guard.functions import Family, Kind
from secondsight.guard.refusal import HINTS, Refused, Rule


@dataclass(frozen=True, slots=True)
class Group:
    """What the rows have in common that one aggregate puts together.

    Attributes:
        instants: True where all rows of a group are of the same instant or window of the figure's source.
        entities: True where all rows of a group are of one GPU.
        over_time: True where there is a group for each of several times.
        neighbours: True for a window function whose rows are of one GPU.
        rows: True for a window function: it gives a value for each row.
    """

    instants: bool
    entities: bool
    over_time: bool
    neighbours: bool = False
    rows: bool = False


_ANY = Form.MIXED
_UNCHANGED: Mapping[Form, Form] = {form: form for form in Form}

_TABLE: Mapping[Family, Mapping[Form, Form]] = {
    Family.COUNT: dict.fromkeys(Form, Form.PLAIN),
    Family.PICK: {**_UNCHANGED, Form.SAMPLE: Form.EXTREME},
    Family.LAG: _UNCHANGED,
    Family.LIST: _UNCHANGED,
    Family.LEAST: {
        **{form: form for form in (Form.CONSTANT, Form.PLAIN, Form.CODE, Form.STATE, Form.PERCENTILE, Form.MIXED)},
        Form.NUMBER: Form.PLAIN,
        Form.WEIGHT: Form.PLAIN,
        **dict.fromkeys(
            (Form.SAMPLE, Form.MEAN, Form.EXTREME, Form.INCREASE, Form.CHANGE, Form.WEIGHTED, Form.SHARE),
            Form.EXTREME,
        ),
    },
    Family.MEAN: {
        Form.CONSTANT: Form.CONSTANT,
        **dict.fromkeys((Form.PLAIN, Form.SAMPLE, Form.INCREASE, Form.WEIGHT, Form.NUMBER), Form.MEAN),
    },
    Family.TOTAL: {
        Form.CONSTANT: Form.PLAIN,
        **{form: form for form in (Form.PLAIN, Form.INCREASE, Form.WEIGHT, Form.WEIGHTED, Form.NUMBER)},
    },
    Family.RANK: {
        Form.CONSTANT: Form.CONSTANT,
        Form.PLAIN: Form.PLAIN,
        **dict.fromkeys(
            (
                Form.SAMPLE, Form.MEAN, Form.EXTREME, Form.INCREASE, Form.WEIGHT, Form.NUMBER, Form.SHARE,
            ),
            Form.PERCENTILE,
        ),
    },
    Family.DELTA: {Form.READING: Form.INCREASE, Form.PLAIN: Form.PLAIN, Form.CONSTANT: Form.PLAIN},
    Family.BITS: {form: form for form in (Form.CONSTANT, Form.PLAIN, Form.BITMASK, Form.CODE)},
}  # fmt: skip

_HINTS: Mapping[Form, str] = {
    Form.READING: HINTS["counter"],
    Form.CHANGE: HINTS["counter"],
    Form.MEAN: HINTS["mean"],
    Form.WEIGHTED: HINTS["mean"],
    Form.PERCENTILE: HINTS["percentile"],
    Form.SAMPLE: HINTS["level"],
    Form.EXTREME: HINTS["extreme"],
    Form.STATE: HINTS["state"],
    Form.BITMASK: HINTS["state"],
    Form.CODE: HINTS["state"],
    Form.SHARE: HINTS["share"],
}


def aggregated(family: Family, figure: Figure, group: Group) -> Figure:
    """Return what an aggregate of a figure means.

    Raises:
        Refused: `illegal_aggregate`, or `unlike_figures` where the figure has no one meaning.
    """
    form = _form(family, figure, group)
    if form is None:
        if figure.form is Form.MIXED:
            raise Refused("unlike_figures", Rule.LINEAGE)
        raise Refused("illegal_aggregate", Rule.LINEAGE, _HINTS.get(figure.form, HINTS["again"]))
    is_list = family is Family.LIST
    return replace(
        figure,
        form=form,
        kind=Kind.INTEGER if family is Family.COUNT else figure.kind,
        unit="" if family is Family.COUNT else figure.unit,
        over_time=group.over_time or group.rows,
        made=figure.made if is_list else not group.rows,
        spread=is_list and (figure.spread or (figure.over_time and not group.instants)),
        lagged=group.neighbours and family is Family.LAG,
        literal=False,
    )


def _form(family: Family, figure: Figure, group: Group) -> Form | None:
    table = _TABLE[_LIKE.get(family, family)]
    at_once = not figure.spread and (group.instants or not figure.over_time)
    match family, figure.form:
        case (Family.TOTAL, Form.SAMPLE | Form.EXTREME):
            return figure.form if at_once else None
        case (Family.MEAN, Form.EXTREME):
            return Form.MEAN if figure.made or at_once else None
        case (Family.MEAN, Form.INCREASE) if figure.grain_seconds < 0:
            return None
        case (Family.GREATEST, Form.READING):
            return Form.READING if group.entities else None
        case (Family.DELTA, Form.READING):
            return Form.INCREASE if group.entities else None
        case _:
            return table.get(figure.form)


_LIKE: Mapping[Family, Family] = {Family.GREATEST: Family.LEAST, Family.SPREAD: Family.RANK}


def weighted(family: Family, figure: Figure, weight: Figure, group: Group) -> Figure:
    """Return what a mean or a rank of a figure by a weight means.

    Raises:
        Refused: `illegal_aggregate` where the weight is not that of the figure.
    """
    match figure.form, weight.form:
        case (Form.MEAN, Form.WEIGHT) if figure.metrics == weight.metrics:
            pass
        case (Form.SHARE, Form.NUMBER):
            pass
        case _:
            return aggregated(family, figure, group)
    form = Form.MEAN if family is Family.MEAN else Form.PERCENTILE
    return replace(figure, form=form, over_time=group.over_time or group.rows, literal=False)
