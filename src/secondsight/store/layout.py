"""Describe what no metric decides: key columns, order keys, partitions, and the tables without metric columns."""

from dataclasses import replace

from secondsight.store.codecs import STEPS, TIMES
from secondsight.store.spec import ColumnSpec, TableSpec

NAME = "LowCardinality(String)"
TIME_MS = "DateTime64(3, 'UTC')"
TIME_S = "DateTime('UTC')"
MAYBE_TIME_MS = f"Nullable({TIME_MS})"
NAMES = f"Map({NAME}, String)"
COUNTS = f"Map({NAME}, UInt32)"


def _names(*names: str) -> tuple[ColumnSpec, ...]:
    return tuple(ColumnSpec(name, NAME) for name in names)


def _times(*names: str) -> tuple[ColumnSpec, ...]:
    return tuple(ColumnSpec(name, TIME_MS, TIMES) for name in names)


RETENTION = ColumnSpec("retention_class", "UInt8")
VERSION_64 = ColumnSpec("version", "UInt64")
PLACE = _names("tenant_id", "region", "cluster_id", "host_id", "entity", "part")
ATTRIBUTION = _names("job_id", "workload_id", "owner_team", "model_id")
PROVENANCE = (
    ColumnSpec("ingest_time", TIME_MS, TIMES),
    *_names("collector_id", "source"),
    ColumnSpec("source_rank", "UInt8"),
    ColumnSpec("spool_id", "UInt64", STEPS),
    ColumnSpec("sequence", "UInt64", TIMES),
    *_names("boot_id"),
    ColumnSpec("schema_id", "UInt64", STEPS),
    ColumnSpec("skew", "UInt8"),
)

RAW_KEY = (
    *PLACE,
    *_times("event_time"),
    ColumnSpec("observed_delta_ms", "Int32", "T64,ZSTD(1)"),
    ColumnSpec("correction_ms", "Int32", STEPS),
    ColumnSpec("interval_ms", "UInt32", STEPS),
    *PROVENANCE,
    ColumnSpec("version", "UInt128", "ZSTD(1)"),
    *ATTRIBUTION,
    RETENTION,
    ColumnSpec("quality", f"Map({NAME}, UInt8)"),
)
RAW_ORDER = (
    "tenant_id",
    "cluster_id",
    "toStartOfTenMinutes(event_time)",
    "host_id",
    "entity",
    "part",
    "event_time",
    "collector_id",
)
RAW_PARTITION = ("toDate(event_time)", "retention_class")

ROLLUP_KEY = (
    *PLACE,
    *_names("collector_id"),
    ColumnSpec("source_rank", "UInt8"),
    ColumnSpec("window_start", TIME_S, TIMES),
    *_times("first_event_time", "last_event_time"),
    ColumnSpec("interval_ms", "UInt32", STEPS),
    *ATTRIBUTION,
    ColumnSpec("samples", "UInt32"),
    ColumnSpec("covered_ms", "UInt32"),
    ColumnSpec("covered_other", COUNTS),
    VERSION_64,
    RETENTION,
    ColumnSpec("increase_other", COUNTS),
    ColumnSpec("resets", COUNTS),
    ColumnSpec("changes", COUNTS),
    ColumnSpec("state_ms", COUNTS),
)
ROLLUP_ORDER = (
    "tenant_id",
    "cluster_id",
    "toStartOfHour(window_start)",
    "host_id",
    "entity",
    "part",
    "window_start",
    "collector_id",
    "owner_team",
    "job_id",
    "workload_id",
    "model_id",
)
ROLLUP_PARTITION = ("toDate(window_start)", "retention_class")

COMPRESSED = (("default_compression_codec", "'ZSTD(1)'"),)
WIDE_SETTINGS = (
    *COMPRESSED,
    ("auto_statistics_types", "''"),
    ("merge_selector_base", "20"),
    ("nullable_serialization_version", "'allow_sparse'"),
    ("min_bytes_for_wide_part", str(64 << 20)),
)


def fixed_tables() -> tuple[TableSpec, ...]:
    """Return the tables whose columns no metric decides."""
    specs = (
        _histograms(),
        _events(),
        _event_history(),
        _infos(),
        _allocations(),
        _entities(),
        _plans(),
        _progress(),
        _rewrites(),
        _dead_letters(),
        _ledger(),
        _schema_version(),
    )
    return tuple(replace(spec, settings=COMPRESSED) for spec in specs)


def _histograms() -> TableSpec:
    return TableSpec(
        "histograms_1s",
        (
            *RAW_KEY[:-1],
            *_names("kind", "metric"),
            ColumnSpec("bounds", "Array(Float64)", "ZSTD(1)"),
            ColumnSpec("buckets", "Array(UInt64)", "ZSTD(1)"),
            ColumnSpec("sum", "Float64", "ZSTD(1)"),
            ColumnSpec("start_time", MAYBE_TIME_MS, "ZSTD(1)"),
        ),
        "ReplacingMergeTree(version)",
        (*RAW_ORDER, "kind", "metric"),
        RAW_PARTITION,
    )


def _occurrence(name: str, own: tuple[ColumnSpec, ...], identity: tuple[str, ...]) -> TableSpec:
    """Return a table of rare things that happened, ordered by time within a cluster."""
    return TableSpec(
        name,
        (
            *PLACE,
            *_names("kind", "metric"),
            ColumnSpec("event_time", TIME_MS, TIMES),
            *own,
            ColumnSpec("event_version", "UInt32"),
            ColumnSpec("attributes", NAMES),
            *PROVENANCE,
            *ATTRIBUTION,
        ),
        "ReplacingMergeTree(event_version)",
        ("tenant_id", "cluster_id", "event_time", "host_id", "kind", "metric", "entity", "part", *identity),
        ("toYYYYMM(event_time)",),
    )


def _events() -> TableSpec:
    own = (
        ColumnSpec("end_time", MAYBE_TIME_MS),
        ColumnSpec("code", "Int64"),
        *_names("severity"),
        ColumnSpec("text_hash", "UInt64"),
    )
    return _occurrence("events", own, ("code", "text_hash"))


def _event_history() -> TableSpec:
    """Return the table of every version of every event that was told; only exact repeats are one row, for ever."""
    current = _events()
    columns = (*current.columns, ColumnSpec("content_hash", "UInt64"))
    order = (*current.order, "event_version", "content_hash")
    return TableSpec("event_history", columns, "ReplacingMergeTree", order, current.partition)


def _infos() -> TableSpec:
    return _occurrence("infos", (ColumnSpec("text_hash", "UInt64"),), ("text_hash",))


def _allocations() -> TableSpec:
    return TableSpec(
        "allocations",
        (
            *_names("tenant_id", "cluster_id", "host_id", "entity", "part"),
            *ATTRIBUTION,
            *_times("start_time"),
            ColumnSpec("end_time", MAYBE_TIME_MS),
            ColumnSpec("version", "UInt32"),
            ColumnSpec("landed_at", TIME_MS, TIMES, "now64(3, 'UTC')"),
        ),
        "ReplacingMergeTree(version)",
        ("tenant_id", "cluster_id", "entity", "part", "start_time", "job_id"),
    )


def _entities() -> TableSpec:
    return TableSpec(
        "entities",
        (
            *_names("tenant_id", "region", "cluster_id", "rack", "host_id", "kind", "entity", "part", "gpu_model"),
            ColumnSpec("attributes", NAMES),
            *_names("collector_id"),
            ColumnSpec("interval_ms", "UInt32", STEPS),
            *_times("from_time", "last_seen"),
            ColumnSpec("to_time", MAYBE_TIME_MS),
            VERSION_64,
        ),
        "ReplacingMergeTree(version)",
        ("tenant_id", "cluster_id", "host_id", "kind", "entity", "part", "collector_id", "from_time"),
    )


def _plans() -> TableSpec:
    return TableSpec(
        "plans",
        (
            *_names("tenant_id", "cluster_id", "host_id", "collector_id", "kind"),
            ColumnSpec("interval_ms", "UInt32", STEPS),
            *_times("from_time"),
            ColumnSpec("to_time", MAYBE_TIME_MS),
            VERSION_64,
            *_names("without"),
        ),
        "ReplacingMergeTree(version)",
        ("tenant_id", "cluster_id", "host_id", "collector_id", "kind", "from_time"),
    )


def _progress() -> TableSpec:
    return TableSpec(
        "progress",
        (
            *_names("tenant_id", "cluster_id", "host_id", "collector_id"),
            *_times("watermark", "newest_event_time", "last_ingest_time"),
            ColumnSpec("idle", "UInt8"),
            ColumnSpec("backlog", "UInt8"),
            ColumnSpec("rollup_through", TIME_S),
            ColumnSpec("begun_through", TIME_S),
            ColumnSpec("partition", "Int32"),
            VERSION_64,
        ),
        "ReplacingMergeTree(version)",
        ("tenant_id", "cluster_id", "host_id", "collector_id"),
    )


def _rewrites() -> TableSpec:
    return TableSpec(
        "rewrites",
        (
            *_names("table_name", "tenant_id", "cluster_id"),
            *_times("from_time", "to_time", "written_at"),
        ),
        "ReplacingMergeTree(written_at)",
        ("table_name", "tenant_id", "cluster_id", "from_time", "to_time"),
    )


def _dead_letters() -> TableSpec:
    return TableSpec(
        "dead_letters",
        (
            *_names("stage", "code"),
            ColumnSpec("message", "String", "ZSTD(1)"),
            *_names("tenant_id", "cluster_id", "host_id", "collector_id", "kind", "metric"),
            *_times("first_time", "last_time"),
            ColumnSpec("rows", "UInt64", STEPS),
            ColumnSpec("values", "UInt64", STEPS),
            *_times("ingest_time"),
            ColumnSpec("payload", "String", "ZSTD(1)"),
            ColumnSpec("id", "UInt64"),
            ColumnSpec("log_partition", "Int32", default="-1"),
            ColumnSpec("log_offset", "Int64", default="-1"),
        ),
        "ReplacingMergeTree",
        ("tenant_id", "cluster_id", "stage", "ingest_time", "id"),
        ("toYYYYMM(ingest_time)",),
    )


def _ledger() -> TableSpec:
    return TableSpec(
        "ledger",
        (
            *_names("tenant_id", "cluster_id", "host_id", "collector_id"),
            ColumnSpec("spool_id", "UInt64", STEPS),
            *_names("kind"),
            ColumnSpec("window_start", TIME_S, TIMES),
            *_names("outcome", "reason"),
            ColumnSpec("item", "String", "ZSTD(1)"),
            ColumnSpec("rows", "UInt64", STEPS),
            ColumnSpec("values", "UInt64", STEPS),
            *_times("last_time"),
            ColumnSpec("records", "String", "ZSTD(1)"),
            VERSION_64,
        ),
        "ReplacingMergeTree(version)",
        (
            "tenant_id",
            "cluster_id",
            "toStartOfHour(window_start)",
            "collector_id",
            "kind",
            "spool_id",
            "window_start",
            "outcome",
            "reason",
            "item",
        ),
        ("toYYYYMM(window_start)",),
    )


def _schema_version() -> TableSpec:
    return TableSpec(
        "schema_version",
        (ColumnSpec("fingerprint", "UInt64"), ColumnSpec("version", "UInt32"), ColumnSpec("tables", "UInt32")),
        "ReplacingMergeTree(version)",
        ("fingerprint",),
    )
