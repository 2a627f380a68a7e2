"""List what can be asked: metrics with unit, kind and legal statistics, from the registry alone."""

from collections.abc import Mapping, Sequence

from secondsight.ask.compile import Column
from secondsight.ask.format import metric_words
from secondsight.ask.question import ERROR_EVENTS, GPU_HOURS
from secondsight.ask.tables import Table
from secondsight.ask.views import Views
from secondsight.guard.registry import MetricKind

_LEGAL: Mapping[MetricKind, str] = {
    MetricKind.GAUGE: "mean by covered time, lowest, highest, newest, percentiles, share of time above a limit",
    MetricKind.COUNTER: "increase, increase per GPU, share of time; resets are taken into account, no mean",
    MetricKind.STATE: "changes",
    MetricKind.CODE: "changes",
    MetricKind.BITMASK: "share of windows with a bit set",
}


def catalogue_table(views: Views, names: Sequence[str] = ()) -> Table:
    """Return the metrics that can be asked about, or those named alone."""
    rows = [
        (name, metric_words(name), unit, kind.value, _LEGAL[kind])
        for name, kind, unit in views.metrics()
        if not names or name in names
    ]
    if not names:
        rows += [
            (ERROR_EVENTS, "events", "1", "event", "count by kind, code, severity, place and time"),
            (GPU_HOURS, "GPU-hours", "h", "derived", "sum of GPUs x covered time"),
        ]
    columns = tuple(Column(name) for name in ("metric", "words", "unit", "kind", "legal"))
    return Table("metrics", columns, tuple(rows), ("metric",))
