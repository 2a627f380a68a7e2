"""Turn the curated views of the store into what the guard checks statements against, and into what people read."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from secondsight.catalog import metric as catalogue
from secondsight.catalog.index import Catalog
from secondsight.guard.registry import Bucket, Column, Metric, MetricKind, Registry, Role, View
from secondsight.model import EntityKind
from secondsight.store.views import RAW_VIEW, curated_views
from secondsight.store.viewspec import BUCKET, ViewColumn, ViewSpec

_SCOPES = frozenset({"tenant_id", "cluster_id"})
_FEW = frozenset(
    {"tenant_id", "region", "cluster_id", "owner_team", "model_id", "model", "kind", "severity", "metric", "code"}
)
"""Columns of few values: equality on them alone makes no join small."""
_NUMBERS = frozenset({"gpus"})
_SHARES = frozenset({"coverage_ratio"})
_CODES = frozenset({"code"})
_KEYS = ("host_id", "gpu_id")

LEGAL: dict[tuple[MetricKind, str], str] = {
    (MetricKind.GAUGE, ""): "avg, min, max, quantile, last",
    (MetricKind.GAUGE, "avg"): "sum(METRIC_avg * METRIC_count) / sum(METRIC_count)",
    (MetricKind.GAUGE, "min"): "min",
    (MetricKind.GAUGE, "max"): "max",
    (MetricKind.GAUGE, "p95"): "min, max, the value itself",
    (MetricKind.GAUGE, "last"): "the value itself, argMax by time",
    (MetricKind.GAUGE, "count"): "sum, as a weight",
    (MetricKind.COUNTER, ""): "increase per GPU: deltaSumTimestamp",
    (MetricKind.COUNTER, "increase"): "sum, rate as sum(METRIC_increase) / sum(METRIC_seconds)",
    (MetricKind.COUNTER, "seconds"): "sum, as a divisor",
}
_STATES = "count for each value, last"
_BITS = "bitTest, bitAnd, count for each value, last"


@dataclass(frozen=True, slots=True)
class Described:
    """One column in words.

    Attributes:
        unit: UCUM-like, "" where it has none.
        legal: What may be computed of it, "" where anything may.
    """

    name: str
    type: str
    unit: str
    description: str
    legal: str


def registry_of(catalog: Catalog) -> Registry:
    """Return the views and metrics that an author may name."""
    views = tuple(_view(spec) for spec in specs_of(catalog))
    metrics = tuple(
        Metric(one.name, _kind(one), one.unit) for one in catalog.scalars(EntityKind.GPU) if one.name in _named(views)
    )
    text = repr((views, metrics))
    return Registry(views, metrics, hashlib.blake2b(text.encode(), digest_size=8).hexdigest())


def specs_of(catalog: Catalog) -> tuple[ViewSpec, ...]:
    """Return the views as the store makes them; only their names and columns are looked at here."""
    return curated_views(catalog, "")


def describe(catalog: Catalog, denied_metrics: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return every view with its columns in words, without those of denied metrics."""
    denied = frozenset(denied_metrics)
    return [
        {
            "name": spec.name,
            "description": spec.description,
            "timeColumn": spec.time_column,
            "grainSeconds": spec.grain_seconds,
            "columns": [asdict(_described(column, catalog)) for column in _shown(spec) if column.metric not in denied],
        }
        for spec in specs_of(catalog)
    ]


def _view(spec: ViewSpec) -> View:
    names = {column.name for column in spec.columns}
    bucket = Bucket(BUCKET, spec.bucket_seconds) if spec.bucket_seconds else None
    return View(
        name=spec.name,
        time_column=spec.time_column,
        grain_seconds=spec.grain_seconds,
        columns=tuple(_column(column, spec) for column in _shown(spec)),
        raw=spec.name == RAW_VIEW,
        key=tuple(name for name in _KEYS if name in names),
        bucket=bucket,
    )


def _shown(spec: ViewSpec) -> list[ViewColumn]:
    return [column for column in spec.columns if column.name != BUCKET]


def _column(column: ViewColumn, spec: ViewSpec) -> Column:
    return Column(
        name=column.name,
        type=column.type,
        role=_role(column, spec.time_column),
        metric=column.metric,
        suffix=column.suffix,
        few=column.name in _FEW,
    )


def _role(column: ViewColumn, time_column: str) -> Role:
    if column.metric:
        return Role.MEASURE
    if column.name == time_column:
        return Role.TIME
    for names, role in ((_SCOPES, Role.SCOPE), (_NUMBERS, Role.NUMBER), (_SHARES, Role.SHARE), (_CODES, Role.CODE)):
        if column.name in names:
            return role
    return Role.DIMENSION


def _kind(metric: catalogue.Metric) -> MetricKind:
    match metric.type:
        case catalogue.MetricType.COUNTER:
            return MetricKind.COUNTER
        case catalogue.MetricType.STATE:
            return MetricKind.BITMASK if metric.bitmask else MetricKind.CODE if metric.values else MetricKind.STATE
        case _:
            return MetricKind.GAUGE


def _named(views: Iterable[View]) -> frozenset[str]:
    return frozenset(column.metric for view in views for column in view.columns if column.metric)


def _described(column: ViewColumn, catalog: Catalog) -> Described:
    if not column.metric:
        unit = "1" if column.name in _SHARES | _NUMBERS else ""
        return Described(column.name, column.type, unit, column.description, "")
    metric = catalog.get(column.metric)
    kind = _kind(metric)
    unit = {"count": "s", "seconds": "s", "changes": "1"}.get(column.suffix, metric.unit)
    words = column.description if not column.suffix else f"{metric.description} Of the window: {column.description}."
    return Described(column.name, column.type, unit, words, _legal(kind, column.suffix))


def _legal(kind: MetricKind, suffix: str) -> str:
    if suffix == "changes":
        return "sum"
    return LEGAL.get((kind, suffix), _BITS if kind is MetricKind.BITMASK else _STATES)
