"""Say what the live window keeps of a row of each table."""

from collections.abc import Iterable
from dataclasses import dataclass

from secondsight.model import EntityKind
from secondsight.store.schema import raw_table, rollup_table

PLACE = ("tenant_id", "cluster_id", "host_id", "entity", "part")
SERIES = (*PLACE, "collector_id")
OWNER = ("region", "job_id", "workload_id", "owner_team", "model_id")
RAW_BLOCK_MS = 30_000
ROLLUP_BLOCK_MS = 600_000


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows of one table are kept.

    Attributes:
        time: Column that holds the event time, or the start of the window.
        block_ms: Width of the aligned range that one block holds.
        fixed: Columns beside those of `SERIES` and `OWNER` that every row has.
        is_owned: Rows of one series and time that differ in their owner are different rows.
    """

    table: str
    kind: EntityKind
    time: str
    block_ms: int
    fixed: tuple[str, ...]
    is_owned: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column that a row needs to be kept."""
        return (*SERIES, *OWNER, self.time, *self.fixed)

    def wanted(self, metrics: Iterable[str]) -> tuple[str, ...]:
        """Return the columns to be followed for some columns of metrics."""
        return tuple(dict.fromkeys((*self.columns, *metrics)))


def raw_shape(kind: EntityKind) -> Shape:
    """Return how 1 s rows of a kind are kept."""
    fixed = ("interval_ms", "ingest_time", "source_rank", "boot_id", "version_hi", "version_lo")
    return Shape(raw_table(kind), kind, "event_time", RAW_BLOCK_MS, fixed, is_owned=False)


def rollup_shape(kind: EntityKind) -> Shape:
    """Return how windows of 30 s of a kind are kept."""
    fixed = ("interval_ms", "source_rank", "first_event_time", "last_event_time", "samples", "covered_ms", "version")
    return Shape(rollup_table(kind), kind, "window_start", ROLLUP_BLOCK_MS, fixed, is_owned=True)
