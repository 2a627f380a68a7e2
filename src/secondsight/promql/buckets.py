"""Take the series of a histogram apart that names with `_bucket`, `_count` and `_sum` mean."""

import math
from collections.abc import Sequence
from dataclasses import replace

from secondsight.promql.answer import figure
from secondsight.promql.labels import Matcher
from secondsight.promql.matrix import F64, Labels
from secondsight.promql.names import Reading
from secondsight.query.buckets import BOUND, BUCKET, FIGURE, SPAN, TOTAL

LE = "le"
"""Label of a bucket's upper bound."""
_DIGITS = 12
"""Of a bound in another unit, so that it is written as its exporter wrote it."""


def levels(told: Sequence[Labels], figures: F64, reading: Reading) -> tuple[list[Labels], F64]:
    """Return the series that a name means of those that `query/buckets.py` labels, and their figures."""
    rows = [row for row, one in enumerate(told) if _is_meant(one, reading)]
    return [_labelled(told[row], reading) for row in rows], figures[rows]


def gains(told: Sequence[Labels], figures: F64, reading: Reading) -> tuple[list[Labels], F64, F64]:
    """Return the series that a name means, what they gained, and the ms that this took."""
    labels, values = levels(told, figures, reading)
    spans = {_whose(one): row for row, one in enumerate(told) if one[FIGURE] == SPAN}
    return labels, values, figures[[spans[_whose(one)] for one in labels]]


def with_plain_bounds(matchers: Sequence[Matcher]) -> list[Matcher]:
    """Return conditions in which a bound is written as here, `1` for the `1.0` of other exporters."""
    return [
        replace(one, value=figure(bound)) if one.name == LE and not one.pattern and bound is not None else one
        for one, bound in ((one, bound_of(one.value)) for one in matchers)
    ]


def bound_of(text: str) -> float | None:
    """Return an upper bound that a label says; None where it says none."""
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _is_meant(labels: Labels, reading: Reading) -> bool:
    if reading.suffix == "_sum":
        return labels[FIGURE] == TOTAL
    return labels[FIGURE] == BUCKET and (reading.suffix == "_bucket" or math.isinf(float(labels[BOUND])))


def _labelled(labels: Labels, reading: Reading) -> Labels:
    own = dict(_whose(labels))
    if reading.suffix != "_bucket":
        return own
    bound = float(labels[BOUND])
    return own | {LE: figure(bound if reading.factor == 1.0 else float(f"{bound * reading.factor:.{_DIGITS}g}"))}


def _whose(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in labels.items() if name not in (FIGURE, BOUND, LE))
