"""Describe the curated views of whole clusters: rows per window, owner and product, merged over GPUs.

A last value means nothing of several GPUs, so there is none. A percentile comes from the row's sketch, within its
relative error, and never outside of the least and greatest value.
"""

from collections.abc import Sequence

from secondsight.catalog.members import keeps_sketch
from secondsight.catalog.metric import Metric, MetricType, RollupSet
from secondsight.model import EntityKind
from secondsight.store.bins import BINS_PER_OCTAVE, octave_list
from secondsight.store.clusters import cluster_resolution
from secondsight.store.coarse import Level, sketch_columns
from secondsight.store.layout import NAME, TIME_S
from secondsight.store.params import literal
from secondsight.store.spec import quoted
from secondsight.store.viewspec import (
    BUCKET,
    MAYBE,
    OWNER_WORDS,
    OWNERS,
    ViewColumn,
    ViewSpec,
    member,
    milliseconds,
    scaled,
)

_DAY_SECONDS = 86_400
_FIXED_BUCKETS = {"toStartOfDay": _DAY_SECONDS}
"""Beginnings of order keys that are of one width."""


def cluster_view_name(level: Level) -> str:
    """Return the name of the view of a resolution."""
    return f"gpu_{cluster_resolution(level.name)}_secure"


def cluster_view(level: Level, metrics: Sequence[Metric]) -> ViewSpec:
    """Return the view of one resolution over scalars of GPUs."""
    seconds = level.width_ms // 1000
    named = (
        ("tenant_id", "tenant"),
        ("region", "region of the cluster"),
        ("cluster_id", "cluster"),
        *((owner, OWNER_WORDS[owner]) for owner in OWNERS),
    )
    covered = f"t.covered_ms / (nullIf(t.gpus, 0) * {level.width_ms})"
    columns = (
        *(ViewColumn(name, NAME, f"t.{name}", description=words) for name, words in named),
        ViewColumn("model", NAME, "t.gpu_model", description="product of the GPUs, such as H100"),
        ViewColumn("window_start", TIME_S, "t.window_start", description="start of the window, UTC"),
        ViewColumn(BUCKET, TIME_S, f"toDateTime({level.bucket}(t.window_start), 'UTC')"),
        ViewColumn("gpus", "UInt32", "t.gpus", description="distinct GPUs"),
        ViewColumn(
            "coverage_ratio",
            "Float64",
            f"toFloat64(ifNull({covered}, 0))",
            description="covered GPU-seconds over gpus x window; sum(gpus * coverage_ratio) is GPU-windows",
        ),
        *(column for metric in metrics for column in _columns(metric)),
    )
    return ViewSpec(
        cluster_view_name(level),
        f"{EntityKind.GPU.value}_{cluster_resolution(level.name)}",
        f"One row per cluster and window of {level.name}, for each owner and product of GPUs.",
        columns,
        "window_start",
        seconds,
        ("t.part = ''",),
        bucket_seconds=_FIXED_BUCKETS.get(level.bucket, 0),
    )


def _columns(metric: Metric) -> list[ViewColumn]:
    return [
        ViewColumn(f"{metric.name}_{suffix}", kind, expression, "", metric.name, suffix, words)
        for suffix, kind, expression, words in _members(metric)
    ]


def _members(metric: Metric) -> list[tuple[str, str, str, str]]:
    """Return (suffix, type, expression, words) of every member."""
    if metric.type is MetricType.STATE:
        changes = f"toUInt32(t.changes[{literal(metric.name)}])"
        return [("changes", "UInt32", changes, "times that it changed, of all GPUs together")]
    if metric.type is MetricType.COUNTER:
        increase = member(metric, "increase")
        spanned = f"if(isNull({increase}), 0, {milliseconds('increase', metric.name)}) / 1000"
        return [
            ("increase", MAYBE, scaled(increase, metric), "what it grew by, of all GPUs together"),
            ("seconds", "Float64", spanned, "GPU-seconds that the increase spans, the divisor of its rate"),
        ]
    return [] if metric.rollup is RollupSet.CONSTANT else _level_members(metric)


def _level_members(metric: Metric) -> list[tuple[str, str, str, str]]:
    covered = milliseconds("covered", metric.name)
    least, greatest = member(metric, "min"), member(metric, "max")
    found = [
        ("avg", MAYBE, f"{scaled(member(metric, 'sum'), metric)} / nullIf({covered}, 0)", "mean over GPU-time"),
        ("min", MAYBE, scaled(least, metric), "least value of any GPU"),
        ("max", MAYBE, scaled(greatest, metric), "greatest value of any GPU"),
    ]
    if keeps_sketch(metric):
        figure = f"least(greatest({_percentile(metric, 95)}, toFloat64({least})), toFloat64({greatest}))"
        found.append(("p95", MAYBE, scaled(figure, metric), "95th percentile over GPU-time"))
    seconds = f"if(isNull({least}), 0, {covered}) / 1000"
    return [*found, ("count", "Float64", seconds, "covered GPU-seconds, the weight of its mean")]


def _percentile(metric: Metric, percent: int) -> str:
    """Return the stored value that stands for the bin of a percentile, by nearest rank; NULL without any."""
    bins, weights = (f"t.{quoted(name)}" for name in sketch_columns(metric))
    reached = f"arrayFirstIndex(c -> c * 100 >= arraySum({weights}) * {percent}, arrayCumSum({weights}))"
    return f"if(empty({bins}), NULL, {sketch_figure(f'{bins}[{reached}]')})"


def sketch_figure(bins: str) -> str:
    """Return the value that stands for a bin of a sketch, an expression of Int16 itself; it is written out once."""
    place = "greatest(abs(b) - 1, 0)"
    step = f"[{octave_list()}][{place} % {BINS_PER_OCTAVE} + 1]"
    figure = f"sign(b) * {step} * exp2(intDiv({place}, {BINS_PER_OCTAVE}) - 126)"
    return f"arrayMap(b -> {figure}, [toInt32({bins})])[1]"
