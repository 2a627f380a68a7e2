"""Write the expression of one figure of a group of rows, by what a view holds and what the metric's kind allows."""

from secondsight.ask.known import NAMED_COLUMNS
from secondsight.ask.measures import UTILISATION
from secondsight.ask.question import (
    BUSY_GPU_HOURS,
    COVERAGE,
    ERROR_EVENTS,
    GPU_HOURS,
    GPUS,
    HOSTS,
    IDLE_GPU_HOURS,
    JOBS,
    MEMORY_SHARE,
    MISSING,
    Measure,
    Stat,
)
from secondsight.ask.sqltext import number
from secondsight.ask.views import Views
from secondsight.errors import Rejected
from secondsight.guard.registry import View

USED, INSTALLED = "gpu_memory_used_bytes", "gpu_memory_total_bytes"


def instant_figure(measure: Measure, view: View, views: Views) -> str:
    """Return the expression that adds up GPUs at one instant."""
    metric = measure.metric
    if metric == GPUS:
        return "sum(gpus)" if view.get("gpus") else "uniqExact(gpu_id)"
    if metric in (IDLE_GPU_HOURS, BUSY_GPU_HOURS):
        busy = views.column(UTILISATION, "avg", view)
        share = f"(1 - {busy})" if metric == IDLE_GPU_HOURS else busy
        return f"sum(gpus * {share}) * {number(view.grain_seconds)} / 3600"
    value = views.column(metric, "avg", view)
    if view.raw:
        return f"sum({value})"
    if view.get("gpus"):
        return f"sum({value} * gpus)"
    return f"sum({value} * {views.column(metric, 'count', view)}) / {view.grain_seconds}"


def figure(measure: Measure, view: View, views: Views) -> str:
    """Return the expression of one figure of a group of rows of a view, in the unit of the view."""
    if measure.metric == ERROR_EVENTS:
        return "count()"
    derived = _derived(measure, view, views)
    if derived:
        return derived
    if view.raw:
        return _of_seconds(measure, view, views)
    if measure.stat is Stat.MEAN:
        return weighted_mean(measure.metric, view, views)
    picked = _PICKED.get(measure.stat)
    if picked is None:
        return _counted(measure, view, views)
    suffix, text = picked
    column = views.column(measure.metric, suffix, view)
    return text.format(column=column, time=view.time_column, quantile=measure.quantile)


_PICKED: dict[Stat, tuple[str, str]] = {
    Stat.MIN: ("min", "min({column})"),
    Stat.MAX: ("max", "max({column})"),
    Stat.LAST: ("last", "argMax({column}, {time})"),
    Stat.QUANTILE: ("avg", "quantile({quantile})({column})"),
    Stat.HIGHEST_P95: ("p95", "max({column})"),
    Stat.TOTAL: ("increase", "sum({column})"),
    Stat.RATE: ("increase", "sum({column})"),
    Stat.PER_GPU: ("increase", "sum({column}) / uniqExact(gpu_id)"),
    Stat.CHANGES: ("changes", "sum({column})"),
    Stat.SHARE_SET: ("last", "countIf({column} != 0) / count()"),
}
"""What is picked of windows: the member of the metric, and the expression of a group."""


def _counted(measure: Measure, view: View, views: Views) -> str:
    if measure.stat in (Stat.SHARE_ABOVE, Stat.SHARE_BELOW):
        return _share(measure, view, views)
    raise Rejected("not_measured", "the views do not hold this figure", "ask for another aggregate")


def _share(measure: Measure, view: View, views: Views) -> str:
    if measure.threshold is None:
        covered = views.column(UTILISATION, "count", view)
        return f"sum({views.column(measure.metric, 'increase', view)}) / sum({covered})"
    count, mean = views.column(measure.metric, "count", view), views.column(measure.metric, "avg", view)
    sign = ">" if measure.stat is Stat.SHARE_ABOVE else "<"
    return f"sumIf({count}, {mean} {sign} {number(measure.threshold)}) / sum({count})"


def weighted_mean(metric: str, view: View, views: Views, alias: str = "") -> str:
    """Return the mean of a gauge over windows, weighted by covered seconds; of seconds the plain mean."""
    mean = f"{alias}{views.column(metric, 'avg', view)}"
    if view.raw:
        return f"avg({mean})"
    count = f"{alias}{views.column(metric, 'count', view)}"
    return f"sum({mean} * {count}) / sum({count})"


def _of_seconds(measure: Measure, view: View, views: Views) -> str:
    text = _SECONDS.get(measure.stat)
    if text is None:
        raise Rejected("not_measured", "single seconds do not hold this figure", "ask over a longer range")
    column = views.column(measure.metric, "", view)
    return text.format(column=column, time=view.time_column, quantile=measure.quantile)


_SECONDS: dict[Stat, str] = {
    Stat.MEAN: "avg({column})",
    Stat.MIN: "min({column})",
    Stat.MAX: "max({column})",
    Stat.LAST: "argMax({column}, {time})",
    Stat.QUANTILE: "quantile({quantile})({column})",
    Stat.HIGHEST_P95: "quantile(0.95)({column})",
}


def _derived(measure: Measure, view: View, views: Views) -> str:
    """Return the expression of a figure that comes from columns every view has, or nothing."""
    if measure.metric == COVERAGE:
        return coverage(view, views)
    if measure.metric == MEMORY_SHARE:
        return _memory_share(measure, view, views)
    if measure.metric == MISSING:
        return f"sum({view.grain_seconds} - {_covered(view, views)})"
    return _counts(measure.metric, view) or _hours_of_gpus(measure, view, views)


def _counts(name: str, view: View) -> str:
    """Return the expression that counts things of a kind, or nothing."""
    if name == GPUS:
        return "max(gpus)" if view.get("gpus") is not None else "uniqExact(gpu_id)"
    column = {HOSTS: "host_id", JOBS: "job_id"}.get(name, name)
    if column not in NAMED_COLUMNS or view.get(column) is None:
        return ""
    return f"uniqExactIf({column}, {column} != '')"


def _hours_of_gpus(measure: Measure, view: View, views: Views) -> str:
    clusters = view.get("gpus") is not None
    if measure.metric == GPU_HOURS and clusters:
        return f"sum(gpus * coverage_ratio) * {number(view.grain_seconds)} / 3600"
    if measure.metric == GPU_HOURS:
        return f"sum({_covered(view, views)}) / 3600"
    if measure.metric not in (IDLE_GPU_HOURS, BUSY_GPU_HOURS):
        return ""
    mean, count = views.column(UTILISATION, "avg", view), _covered(view, views)
    busy = f"sum({mean} * {count})"
    return f"{busy} / 3600" if measure.metric == BUSY_GPU_HOURS else f"(sum({count}) - {busy}) / 3600"


def _memory_share(measure: Measure, view: View, views: Views) -> str:
    if view.raw:
        ratio = f"{views.column(USED, '', view)} / {views.column(INSTALLED, '', view)}"
        return f"{'max' if measure.stat is Stat.MAX else 'avg'}({ratio})"
    if measure.stat is Stat.MAX:
        return f"max({views.column(USED, 'max', view)} / {views.column(INSTALLED, 'max', view)})"
    sums = [
        f"sum({views.column(name, 'avg', view)} * {views.column(name, 'count', view)})" for name in (USED, INSTALLED)
    ]
    return " / ".join(sums)


def coverage(view: View, views: Views) -> str:
    """Return the expression of the share of expected time that rows of windows cover."""
    if view.get("coverage_ratio") is not None:
        return "sum(coverage_ratio * gpus) / sum(gpus)"
    return f"sum({_covered(view, views)}) / (count() * {view.grain_seconds})"


def _covered(view: View, views: Views) -> str:
    return views.column(UTILISATION, "count", view)
