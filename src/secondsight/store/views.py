"""Describe the curated views: what people and models may ask in SQL, over the wide tables, in the catalogue's units.

A row of a view is what its name says: duplicates are settled and rows of parts are left out. Figures are Float64 in the
metric's unit, absent is NULL. `time_bucket` serves the order key alone.

Each view is made twice. Those beside the tables hold every collector's rows, which is right while one collector reports
each GPU. Those in the database of `shared_database` also settle who counts where several do, metric by metric; that
takes longer to plan, so only those who have such GPUs are answered from there.
"""

from collections.abc import Sequence
from typing import Protocol

from secondsight.catalog.metric import Metric, MetricType, RollupSet
from secondsight.model import EntityKind
from secondsight.store.clusterviews import cluster_view
from secondsight.store.coarse import BUCKETS, FINEST, LEVELS
from secondsight.store.deployment import EMBEDDED, Deployment
from secondsight.store.layout import NAME, TIME_MS, TIME_S
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

RAW_VIEW = "gpu_telemetry_1s_secure"
FINE_VIEW = "gpu_telemetry_30s_secure"
EVENTS_VIEW = "gpu_error_events_secure"
RAW_BUCKET_SECONDS = 600
PRODUCTS = "gpu_products"
"""Dictionary of the product of each GPU, by tenant and entity."""

_BASE = "t.part = ''"
_SOURCE = "(t.source_rank, toString(t.collector_id))"
_EVENT_WORDS = {"memory": "ecc", "link": "nvlink", "availability": "gap"}
"""What kinds of events are called here, where that is not what stands in the metric's name."""


class Metrics(Protocol):
    """What this module asks of a catalogue."""

    def of_kind(self, kind: EntityKind) -> Sequence[Metric]:
        """Return the metrics of one kind, in a stable order."""
        ...


def shared_database(tables: str) -> str:
    """Return the database of the views that settle several collectors of one GPU."""
    return f"{tables}_shared"


def curated_views(catalog: Metrics, tables: str) -> tuple[ViewSpec, ...]:
    """Return every curated view over the tables of a database."""
    every = catalog.of_kind(EntityKind.GPU)
    scalars = [metric for metric in every if metric.is_scalar]
    events = [metric for metric in every if metric.type is MetricType.EVENT and metric.unit == "code"]
    clusters = (cluster_view(level, scalars) for level in LEVELS)
    return (_raw(scalars, tables), _fine(scalars, tables), *clusters, _events(events, tables))


def create_products(database: str, deployment: Deployment = EMBEDDED) -> str:
    """Return the statement for the dictionary of GPU products; safe to run twice."""
    name = f"{quoted(database)}.{quoted(PRODUCTS)}{deployment.on_cluster}"
    rows = (
        f"SELECT tenant_id, entity, argMax(gpu_model, version) AS gpu_model FROM {quoted(database)}.entities "  # noqa: S608
        "WHERE kind = 'gpu' GROUP BY tenant_id, entity"
    )
    source = f"DB {literal(database)} QUERY {literal(rows)}{deployment.credentials}"
    return (
        f"CREATE DICTIONARY IF NOT EXISTS {name} (tenant_id String, entity String, gpu_model String) "
        f"PRIMARY KEY tenant_id, entity SOURCE(CLICKHOUSE({source})) "
        "LAYOUT(COMPLEX_KEY_HASHED()) LIFETIME(MIN 20 MAX 40)"
    )


def tables_below(catalog: Metrics, tables: str) -> tuple[str, ...]:
    """Return the tables that curated views read rows of, each with its database."""
    return tuple(sorted({f"{tables}.{view.table}" for view in curated_views(catalog, tables)}))


def _raw(metrics: Sequence[Metric], database: str) -> ViewSpec:
    bucket = "toStartOfTenMinutes(t.event_time)"
    window = (
        f"WINDOW w AS (PARTITION BY t.tenant_id, t.cluster_id, t.host_id, t.entity, {bucket}, "
        "toStartOfInterval(t.event_time, INTERVAL 30 SECOND))"
    )
    return ViewSpec(
        RAW_VIEW,
        "gpu_1s",
        "One row per GPU and sample, one second apart where the agent says nothing else.",
        (
            *_place(database),
            ViewColumn("event_time", TIME_MS, "t.event_time", description="instant of the sample, UTC"),
            ViewColumn(BUCKET, TIME_S, bucket),
            *(_raw_column(metric) for metric in metrics),
        ),
        "event_time",
        1,
        (_BASE,),
        window,
        RAW_BUCKET_SECONDS,
    )


def _raw_column(metric: Metric) -> ViewColumn:
    value, kind = _value(f"t.{quoted(metric.name)}", metric)
    best = f"minIf({_SOURCE}, isNotNull(t.{quoted(metric.name)})) OVER w"
    return ViewColumn(
        metric.name, kind, value, f"if({_SOURCE} = {best}, {value}, NULL)", metric.name, "", metric.description
    )


def _value(column: str, metric: Metric) -> tuple[str, str]:
    """Return (expression, type) of a value; states stay whole numbers."""
    if metric.type is not MetricType.STATE:
        return scaled(column, metric), MAYBE
    kind = "Int64" if metric.dtype.startswith("i") else "UInt64"
    return f"CAST({column} AS Nullable({kind}))", f"Nullable({kind})"


def _fine(metrics: Sequence[Metric], database: str) -> ViewSpec:
    bucket = f"{BUCKETS[FINEST]}(t.window_start)"
    place = (
        *_place(database),
        ViewColumn("window_start", TIME_S, "t.window_start", description="start of the window, UTC"),
        ViewColumn(BUCKET, TIME_S, bucket),
    )
    keys = ("tenant_id", "region", "cluster_id", "host_id", "entity", "window_start", *OWNERS)
    return ViewSpec(
        FINE_VIEW,
        "gpu_30s",
        "One row per GPU, window of 30 s and owner.",
        (*place, *(column for metric in metrics for column in _fine_columns(metric))),
        "window_start",
        30,
        (_BASE, "t.samples > 0"),
        f"GROUP BY {', '.join(f't.{key}' for key in keys)}",
        3600,
    )


def _fine_columns(metric: Metric) -> list[ViewColumn]:
    last = member(metric, "last")

    def column(suffix: str, kind: str, expression: str, words: str) -> ViewColumn:
        best = f"tupleElement(argMinIf(tuple({expression}), {_SOURCE}, isNotNull({last})), 1)"
        return ViewColumn(f"{metric.name}_{suffix}", kind, expression, best, metric.name, suffix, words)

    return [column(*member) for member in _fine_members(metric, last)]


def _fine_members(metric: Metric, last: str) -> list[tuple[str, str, str, str]]:
    """Return (suffix, type, expression, words) of every member of a metric's windows."""
    value, kind = _value(last, metric)
    if metric.type is MetricType.STATE:
        changes = f"if(isNull({last}), 0, t.changes[{literal(metric.name)}])"
        return [
            ("last", kind, value, "last state"),
            ("changes", "UInt32", f"toUInt32({changes})", "times that it changed"),
        ]
    if metric.type is MetricType.COUNTER:
        return _counter_members(metric)
    covered = milliseconds("covered", metric.name)
    seconds = f"if(isNull({last}), 0, {covered}) / 1000"
    count = ("count", "Float64", seconds, "covered seconds, the weight of its mean")
    if metric.rollup is RollupSet.CONSTANT:
        return [*((suffix, MAYBE, value, "its value, which stands still") for suffix in _LEVELS), count]
    total = scaled(member(metric, "sum"), metric)
    figures = [("avg", MAYBE, f"{total} / nullIf({covered}, 0)", "mean, weighted by covered seconds")]
    kept = [*_KEPT, *([("p95", "95th percentile")] if metric.rollup is RollupSet.DISTRIBUTION else [])]
    figures += [(name, MAYBE, scaled(member(metric, name), metric), words) for name, words in kept]
    return [*figures, count]


_LEVELS = ("avg", "min", "max", "last")
_KEPT = (("min", "least value"), ("max", "greatest value"), ("last", "last value"))


def _counter_members(metric: Metric) -> list[tuple[str, str, str, str]]:
    increase = member(metric, "increase")
    spanned = f"if(isNull({increase}), 0, {milliseconds('increase', metric.name)}) / 1000"
    return [
        ("increase", MAYBE, scaled(increase, metric), "what it grew by, resets accounted for"),
        ("seconds", "Float64", spanned, "seconds that the increase spans, the divisor of its rate"),
    ]


def _place(database: str, gpu: str = "t.entity") -> tuple[ViewColumn, ...]:
    """Return the columns that say whose a row is."""
    product = (
        f"dictGetOrDefault({literal(f'{database}.{PRODUCTS}')}, 'gpu_model', "
        "tuple(toString(t.tenant_id), toString(t.entity)), '')"
    )
    named = (
        ("tenant_id", "t.tenant_id", "tenant"),
        ("region", "t.region", "region of the cluster"),
        ("cluster_id", "t.cluster_id", "cluster"),
        ("host_id", "t.host_id", "host"),
        ("gpu_id", gpu, "GPU, by its UUID"),
        *((owner, f"t.{owner}", OWNER_WORDS[owner]) for owner in OWNERS),
    )
    columns = tuple(ViewColumn(name, NAME, source, description=words) for name, source, words in named)
    return (*columns, ViewColumn("model", "String", product, description="product of the GPU, such as H100"))


def _events(metrics: Sequence[Metric], database: str) -> ViewSpec:
    meanings = {
        f"{metric.name} {code}": meaning for metric in metrics for code, meaning in metric.values if not metric.bitmask
    }
    codes, words = literal([*meanings]), literal([*meanings.values()])
    meaning = f"transform(concat(t.metric, ' ', toString(t.code)), {codes}, {words}, '')"
    told = ", ".join(f"nullIf(t.attributes[{literal(name)}], '')" for name in ("message", "text", "note"))
    columns = (
        *_place(database),
        ViewColumn("event_time", TIME_MS, "t.event_time", description="when it happened or began, UTC"),
        ViewColumn(
            "kind",
            "String",
            _event_kind(metrics, meaning),
            description="xid, ecc, thermal, nvlink, pcie, gap, ras, ...",
        ),
        ViewColumn("code", "Int64", "t.code", description="number of the Xid or of the finding"),
        ViewColumn("severity", NAME, "t.severity", description="info, warning, error, critical or fatal"),
        ViewColumn("message", "String", f"coalesce({told}, {meaning})", description="what was said of it"),
        ViewColumn("metric", NAME, "t.metric", description="name of the event in the catalogue"),
    )
    where = (
        "t.kind = 'gpu'",
        f"t.metric IN ({', '.join(literal(metric.name) for metric in metrics)})",
        "NOT mapContains(t.attributes, 'retracted')",
    )
    said = "One row per error or finding of a GPU."
    return ViewSpec(EVENTS_VIEW, "events", said, columns, "event_time", 0, where)


def _event_kind(metrics: Sequence[Metric], meaning: str) -> str:
    words = {metric.name: _event_word(metric.name) for metric in metrics}
    kinds = f"transform(toString(t.metric), {literal([*words])}, {literal([*words.values()])}, 'other')"
    return f"if(startsWith({meaning}, 'PCIe'), 'pcie', {kinds})"


def _event_word(name: str) -> str:
    plain = name.removeprefix(f"{EntityKind.GPU.value}_").removesuffix("_finding").removesuffix("_event")
    return _EVENT_WORDS.get(plain, plain)
