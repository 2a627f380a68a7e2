"""Describe the rollup tables of 5 min, 1 h and 1 d: what those of 30 s have, and a sketch of each distribution.

Sums of 64-bit gauges are Decimal(38, 0) here, as a day of bytes x milliseconds leaves 64 bits. A sketch is two lists,
bins and milliseconds in each (`rollup/sketch.py`). `samples_other` names the metrics whose slots are not the row's.
Of several collectors each window of the source has settled which counts, so a row is of none alone and bears the name
of the first; `source_samples` are those of all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.catalog.members import Holds, Member, keeps_sketch
from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind
from secondsight.store.codecs import PLAIN, STEPS
from secondsight.store.layout import COMPRESSED, COUNTS, NAME, ROLLUP_KEY, ROLLUP_ORDER, TIME_MS, TIME_S, WIDE_SETTINGS
from secondsight.store.spec import ColumnSpec, TableSpec

FINEST = "30s"
"""Resolution of the rollups that all others are merged of; the ledger has windows of it too."""
MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms", "samples_other")
"""Columns by metric of what is mostly that of the row, or 0."""
SOURCE_SAMPLES = "source_samples"
"""Column of the samples that all collectors told, whichever counted; 0 in rows that are of one collector."""
WIDE_SUM = "Decimal(38, 0)"
BINS_CODEC = "Delta,ZSTD(1)"
WEIGHTS_CODEC = "GCD,T64,ZSTD(1)"


CLUSTER = "cluster_"
"""What the resolution of cluster rows begins with."""


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution of stored rollups.

    Attributes:
        source: Resolution whose rows are merged.
        bucket: First time of the stretch that the order key begins with, over `window_start`.
        partition: Expression of the partition, over `window_start`.
    """

    name: str
    width_ms: int
    source: str
    bucket: str
    partition: str


LEVELS = (
    Level("5m", 300_000, FINEST, "toStartOfDay", "toYYYYMM"),
    Level("1h", 3_600_000, "5m", "toStartOfMonth", "toYYYYMM"),
    Level("1d", 86_400_000, "1h", "toStartOfYear", "toYear"),
)
"""From fine to coarse; each is merged of the one before it."""

BUCKETS = {FINEST: "toStartOfHour", **{level.name: level.bucket for level in LEVELS}}
"""Resolution -> what the order key of its tables begins with, after tenant and cluster, of `window_start`."""


def window_bounds(resolution: str, start: str, end: str) -> list[str]:
    """Return predicates for windows that start in [start, end); the second pair is what the order key is cut by."""
    bucket = BUCKETS[resolution.removeprefix(CLUSTER)]
    return [
        f"window_start >= {start}",
        f"window_start < {end}",
        f"{bucket}(window_start) >= {bucket}({start})",
        f"{bucket}(window_start) <= {bucket}({end})",
    ]


def sketch_columns(metric: Metric) -> tuple[str, str]:
    """Return the names of the two columns of a metric's sketch."""
    return f"{metric.name}_bins", f"{metric.name}_weights"


def is_wide_sum(metric: Metric, member: Member) -> bool:
    """Tell whether a member is a sum that may leave 64 bits."""
    return member.holds is Holds.WEIGHTED_SUM and metric.dtype in ("u64", "i64")


def coarse_table(
    kind: EntityKind, level: Level, metrics: Sequence[Metric], members: dict[str, tuple[ColumnSpec, ...]]
) -> TableSpec:
    """Return one table.

    Args:
        kind: Whose rows.
        level: Their resolution.
        metrics: Scalars of the kind.
        members: Metric -> its columns in the table of 30 s.
    """
    own = [column for metric in metrics for column in (*_widened(metric, members[metric.name]), *_sketch(metric))]
    order = tuple(f"{level.bucket}(window_start)" if "(" in name else name for name in ROLLUP_ORDER)
    return TableSpec(
        f"{kind.value}_{level.name}",
        (*ROLLUP_KEY, ColumnSpec("samples_other", COUNTS), ColumnSpec(SOURCE_SAMPLES, "UInt32"), *own),
        "ReplacingMergeTree(version)",
        order,
        (f"{level.partition}(window_start)", "retention_class"),
        WIDE_SETTINGS,
    )


def made_tables() -> tuple[TableSpec, ...]:
    """Return the tables that say what rollups were made of, which inserts are seen, and up to when all are made."""
    made = TableSpec(
        "rollups_made",
        (
            ColumnSpec("table_name", NAME),
            ColumnSpec("tenant_id", NAME),
            ColumnSpec("cluster_id", NAME),
            ColumnSpec("window_start", TIME_S),
            ColumnSpec("source_rows", "UInt64", STEPS),
            ColumnSpec("source_version", "UInt64"),
            ColumnSpec("made_at", TIME_MS),
            ColumnSpec("version", "UInt64"),
        ),
        "ReplacingMergeTree(version)",
        ("table_name", "tenant_id", "cluster_id", "window_start"),
        ("toYYYYMM(window_start)",),
        COMPRESSED,
    )
    seen = TableSpec(
        "rollups_seen",
        (ColumnSpec("table_name", NAME), ColumnSpec("block", "Int64"), ColumnSpec("version", "UInt64")),
        "ReplacingMergeTree(version)",
        ("table_name",),
        (),
        COMPRESSED,
    )
    through = TableSpec(
        "rollups_through",
        (
            ColumnSpec("table_name", NAME),
            ColumnSpec("tenant_id", NAME),
            ColumnSpec("cluster_id", NAME),
            ColumnSpec("through", TIME_S),
            ColumnSpec("version", "UInt64"),
        ),
        "ReplacingMergeTree(version)",
        ("table_name", "tenant_id", "cluster_id"),
        (),
        COMPRESSED,
    )
    return made, seen, through


def _widened(metric: Metric, columns: tuple[ColumnSpec, ...]) -> tuple[ColumnSpec, ...]:
    if metric.dtype not in ("u64", "i64"):
        return columns
    total = f"{metric.name}_sum"
    return tuple(
        replace(column, type=f"Nullable({WIDE_SUM})", codec=PLAIN) if column.name == total else column
        for column in columns
    )


def _sketch(metric: Metric) -> tuple[ColumnSpec, ...]:
    if not keeps_sketch(metric):
        return ()
    bins, weights = sketch_columns(metric)
    return (ColumnSpec(bins, "Array(Int16)", BINS_CODEC), ColumnSpec(weights, "Array(UInt32)", WEIGHTS_CODEC))
