"""Give every bucket of a histogram as a series of its own, by its upper bound, counted from below as exporters do.

Series have two more labels: `FIGURE` says which figure it is, `BOUND` the upper bound of a bucket. What two histograms
with other bounds gained in one window adds up where they share a bound.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected
from secondsight.query.aggregates import Aggregate
from secondsight.query.plan import CELLS_MAXIMUM

FIGURE = "figure"
BOUND = "bound"
BUCKET = "bucket"
TOTAL = "total"
"""The sum of what was measured."""
SPAN = "span"
"""The ms that gains took."""

Cut = tuple[dict[str, str], NDArray[np.int64], NDArray[np.float64]]
_Name = tuple[tuple[str, ...], str, float]
"""Labels, which figure, upper bound."""


def cut_buckets(rows: Sequence[Mapping[str, Any]], names: Sequence[str], aggregate: Aggregate) -> list[Cut]:
    """Return the series of rows of windows, each with `counts` of buckets, `bounds`, `total` and `span`.

    Raises:
        Rejected(too_many_series): Buckets and windows are too many.
    """
    found: dict[_Name, dict[int, float]] = defaultdict(dict)
    cells = 0
    gains = aggregate is Aggregate.BUCKET_GAINS
    for row in sorted(rows, key=lambda one: int(one["last_ms"])):
        if gains and not row["span"]:
            continue
        label, window = tuple(row[name] or "" for name in names), int(row["bucket_ms"])
        told = zip([*row["bounds"], np.inf], np.cumsum(np.array(row["counts"], np.float64)).tolist(), strict=True)
        figures = [((label, BUCKET, float(bound)), count) for bound, count in told]
        figures.append(((label, TOTAL, 0.0), row["total"]))
        if gains:
            figures.append(((label, SPAN, 0.0), float(row["span"])))
        cells += len(figures)
        if cells > CELLS_MAXIMUM:
            message = f"buckets of histograms over this range are more than {CELLS_MAXIMUM:,} figures"
            raise Rejected("too_many_series", message, "filter by cluster or host, or ask more coarsely")
        for name, figure in figures:
            at = found[name]
            at[window] = at.get(window, 0.0) + figure if gains else figure
    return [_cut(name, found[name], names) for name in sorted(found)]


def _cut(name: _Name, points: Mapping[int, float], names: Sequence[str]) -> Cut:
    label, figure, bound = name
    times = sorted(points)
    labels = dict(zip(names, label, strict=True)) | {FIGURE: figure, BOUND: repr(bound)}
    return labels, np.array(times, np.int64), np.array([points[time] for time in times])
