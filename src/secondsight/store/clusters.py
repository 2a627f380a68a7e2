"""Describe the rollups of whole clusters: rows of 5 min, 1 h and 1 d merged over GPUs, or over hosts.

One row per (part, owner, product) of a cluster and window; `part` is '' for the entities themselves. Jobs, teams and
models are read from the same rows. Figures of one entity alone, such as a last value, have no column. Sums have 128
bits, as a day of a thousand GPUs leaves 64. `covered_ms` is GPU-time with samples, `expected_ms` that between the first
and the last sample of each GPU, so that coverage of a row is covered_ms / (gpus x window) and GPU-hours are added up.
"""

from collections.abc import Sequence

from secondsight.catalog.members import Holds, Member, Merge, keeps_sketch, members
from secondsight.catalog.metric import DTYPES, Metric
from secondsight.model import EntityKind
from secondsight.store.coarse import BINS_CODEC, CLUSTER, LEVELS, MAPS, WIDE_SUM, Level, made_tables, sketch_columns
from secondsight.store.codecs import NOISE, PLAIN, STEPS, TIMES, codec_of
from secondsight.store.layout import NAME, RETENTION, TIME_MS, TIME_S, VERSION_64, WIDE_SETTINGS
from secondsight.store.spec import ColumnSpec, TableSpec

CLUSTER_KINDS = (EntityKind.GPU, EntityKind.NODE)
"""Kinds that fleets have so many of that questions about all of them need rows of their own."""
CLUSTER_KEY = ("region", "job_id", "workload_id", "owner_team", "model_id", "gpu_model", "part")
"""What tells rows of one tenant, cluster and window apart."""
TOTALS = f"Map({NAME}, UInt64)"
WEIGHTS_CODEC = "GCD,T64,ZSTD(1)"
FEW_PARTS = {"merge_selector_base": "5", "min_age_to_force_merge_seconds": "900"}
"""These rows are few, and a question reads months of them: parts that it opens cost more than merging them does."""


def cluster_resolution(resolution: str) -> str:
    """Return the resolution of cluster rows as it stands in the names of tables."""
    return f"{CLUSTER}{resolution}"


CLUSTER_RESOLUTIONS = tuple(cluster_resolution(level.name) for level in LEVELS)
WIDTHS_MS = {level.name: level.width_ms for level in LEVELS} | {
    cluster_resolution(level.name): level.width_ms for level in LEVELS
}
"""Resolution above the finest, of entities or of clusters -> width of its windows."""


def entities_column(kind: EntityKind) -> str:
    """Return the name of the column that counts distinct entities."""
    return "gpus" if kind is EntityKind.GPU else "hosts"


def pooled_members(metric: Metric) -> tuple[Member, ...]:
    """Return the members of a metric that mean something of several entities together."""
    return tuple(member for member in members(metric) if member.merge not in (Merge.FIRST, Merge.LAST))


def is_wide_total(metric: Metric, member: Member) -> bool:
    """Tell whether a member is a sum over entities that may leave 64 bits."""
    return member.holds in (Holds.WEIGHTED_SUM, Holds.INCREASE) and metric.dtype != "f64"


def cluster_table(kind: EntityKind, level: Level, metrics: Sequence[Metric]) -> TableSpec:
    """Return the table of one kind and resolution."""
    own = [column for metric in metrics for column in _columns(metric)]
    counted = entities_column(kind)
    return TableSpec(
        f"{kind.value}_{cluster_resolution(level.name)}",
        (
            *(ColumnSpec(name, NAME) for name in ("tenant_id", "cluster_id", *CLUSTER_KEY)),
            ColumnSpec("window_start", TIME_S, TIMES),
            *(ColumnSpec(name, TIME_MS, TIMES) for name in ("first_event_time", "last_event_time")),
            ColumnSpec("interval_ms", "UInt32", STEPS),
            ColumnSpec(counted, "UInt32", STEPS),
            *(ColumnSpec(name, "UInt64", STEPS) for name in ("samples", "covered_ms", "expected_ms")),
            *(ColumnSpec(name, TOTALS) for name in (f"{counted}_other", *MAPS)),
            VERSION_64,
            RETENTION,
            *own,
        ),
        "ReplacingMergeTree(version)",
        ("tenant_id", "cluster_id", f"{level.bucket}(window_start)", "part", "window_start", *CLUSTER_KEY[:-1]),
        (f"{level.partition}(window_start)", "retention_class"),
        tuple((dict(WIDE_SETTINGS) | FEW_PARTS | _whole_months(level)).items()),
    )


def others_tables() -> frozenset[str]:
    """Return the tables that the stage of rollups writes, by kind, of clusters, and its own."""
    of_kinds = (f"{kind.value}_{level.name}" for kind in EntityKind for level in LEVELS)
    pooled = (f"{kind.value}_{name}" for kind in CLUSTER_KINDS for name in CLUSTER_RESOLUTIONS)
    return frozenset([*of_kinds, *pooled, *(spec.name for spec in made_tables())])


def _whole_months(level: Level) -> dict[str, str]:
    """Return the setting by which months are joined only when they are over, where rows come every 5 minutes."""
    return {"min_age_to_force_merge_on_partition_only": "1" if level is LEVELS[0] else "0"}


def _columns(metric: Metric) -> list[ColumnSpec]:
    in_columns = (Holds.VALUE, Holds.WEIGHTED_SUM, Holds.INCREASE)
    own = [_column(metric, member) for member in pooled_members(metric) if member.holds in in_columns]
    if keeps_sketch(metric):
        bins, weights = sketch_columns(metric)
        own += [ColumnSpec(bins, "Array(Int16)", BINS_CODEC), ColumnSpec(weights, "Array(UInt64)", WEIGHTS_CODEC)]
    return own


def _column(metric: Metric, member: Member) -> ColumnSpec:
    if is_wide_total(metric, member):
        return ColumnSpec(member.column(metric), f"Nullable({WIDE_SUM})", PLAIN)
    dtype = member.dtype(metric)
    codec = NOISE if member.holds is Holds.INCREASE and dtype != "f64" else codec_of(metric)
    return ColumnSpec(member.column(metric), f"Nullable({DTYPES[dtype]})", codec)
