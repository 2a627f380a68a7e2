"""Say what the curated views can tell: which metrics they hold, by which columns, in windows of which width."""

from collections.abc import Iterator
from dataclasses import dataclass

from secondsight.ask.question import DERIVED
from secondsight.errors import Rejected
from secondsight.guard.registry import MetricKind, Registry, View

PLACE_COLUMNS = frozenset({"host_id", "gpu_id"})
"""Columns that the views of clusters do not have."""


@dataclass(frozen=True, slots=True)
class Views:
    """The registry, by the part that each view plays.

    Attributes:
        raw: Seconds of GPUs.
        fine: Windows of GPUs.
        clusters: Windows of clusters, finest first.
        events: Single events.
    """

    registry: Registry
    raw: View
    fine: View
    clusters: tuple[View, ...]
    events: View

    def kind(self, metric: str) -> MetricKind | None:
        """Return what may be computed of a metric, or None where no view holds it."""
        found = self.registry.metric(metric)
        return found.kind if found is not None and self.holds(metric, self.fine) else None

    def unit(self, metric: str) -> str:
        """Return the unit in which the views hold a metric."""
        found = self.registry.metric(metric)
        return found.unit if found is not None else "1"

    def measures(self, metric: str) -> bool:
        """Tell whether a metric, or a figure that comes from columns of every view, can be asked for."""
        return metric in DERIVED or self.kind(metric) is not None

    def holds(self, metric: str, view: View) -> bool:
        """Tell whether a view has a column of a metric."""
        return any(column.metric == metric for column in view.columns)

    def column(self, metric: str, suffix: str, view: View) -> str:
        """Return the column of a member of a metric in a view.

        Raises:
            Rejected(not_measured): The view has none.
        """
        wanted = "" if view.raw else suffix
        for column in view.columns:
            if column.metric == metric and column.suffix == wanted:
                return column.name
        raise Rejected("not_measured", f"{view.name} has no {suffix} of {metric}", "ask for another aggregate")

    def named(self, name: str) -> View:
        """Return a view by its name.

        Raises:
            Rejected(unknown_view): There is none.
        """
        found = self.registry.view(name)
        if found is None:
            raise Rejected("unknown_view", "there is no such view", "leave the view to the planner")
        return found

    def metrics(self) -> Iterator[tuple[str, MetricKind, str]]:
        """Yield every metric that can be asked for, with its kind and unit."""
        for metric in self.registry.metrics:
            if self.holds(metric.name, self.fine):
                yield metric.name, metric.kind, metric.unit


def views_of(registry: Registry) -> Views:
    """Return the views of a registry by their part.

    Raises:
        Rejected(bad_registry): A part is missing.
    """
    raw = [view for view in registry.views if view.raw]
    fine = [view for view in registry.views if not view.raw and view.grain_seconds and view.get("gpu_id")]
    clusters = [view for view in registry.views if view.grain_seconds and not view.get("gpu_id")]
    events = [view for view in registry.views if not view.raw and not view.grain_seconds]
    if not (raw and fine and clusters and events):
        raise Rejected("bad_registry", "the registry lacks a view that questions need", "see the guide of guarded SQL")
    ordered = tuple(sorted(clusters, key=lambda view: view.grain_seconds))
    return Views(registry, raw[0], fine[0], ordered, events[0])
