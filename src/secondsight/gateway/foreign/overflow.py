"""Keep the number of values that a label has of one metric and entity within the catalogue's bound.

What exceeds it goes to the one value `__overflow__`: only of the label that has the most values, so that other labels
of the series, other entities and other senders go on as they are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from secondsight.catalog.index import Binding
from secondsight.catalog.metric import Metric
from secondsight.gateway.foreign.points import Labels, Series

OVERFLOW = "__overflow__"
REMEMBERED = 200_000
TOLD_MAXIMUM = 1_000


class Told(NamedTuple):
    """A label that had too many values of a metric, for the first time."""

    metric: str
    label: str
    limit: int


class Overflow:
    """Counts the parts of one sender's metrics and entities.

    Args:
        whose: Returns host and entity that labels name for a metric.

    Attributes:
        replaced: Series of which a label was replaced.
        news: Labels that were so for the first time; whoever tells of them takes them out.
    """

    def __init__(self, whose: Callable[[Metric, Labels], tuple[str, str]]) -> None:
        self._whose = whose
        self._parts: dict[tuple[str, str, str], set[Labels]] = {}
        self._told: set[Told] = set()
        self.replaced = 0
        self.news: list[Told] = []

    def bounded(self, series: Series, bindings: Sequence[Binding]) -> Labels:
        """Return the labels of a series, one replaced where there are too many parts already."""
        if len(bindings) != 1:
            return series.labels
        metric, source = bindings[0]
        own = {label for label, name in source.rename if name in metric.labels}
        part = tuple(pair for pair in series.labels if pair[0] in own)
        if not part:
            return series.labels
        if len(self._parts) > REMEMBERED:
            self._parts.clear()
        known = self._parts.setdefault((metric.name, *self._whose(metric, series.labels)), set())
        if part in known or len(known) < metric.parts_maximum:
            known.add(part)
            return series.labels
        worst = max(own, key=lambda name: (len({dict(one).get(name) for one in known}), name))
        self.replaced += 1
        self._tell(Told(metric.name, worst, metric.parts_maximum))
        return tuple((name, OVERFLOW if name == worst else value) for name, value in series.labels)

    def _tell(self, told: Told) -> None:
        if told not in self._told and len(self._told) < TOLD_MAXIMUM:
            self._told.add(told)
            self.news.append(told)
