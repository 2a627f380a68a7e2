"""Say what a frame carries: definitions named by hash, a header, and blocks of columns.

A frame speaks of one entity kind and one host's entities, for one or more ticks. What repeats from frame to frame is
sent once and named by hash afterwards: the `Schema` (which metrics, in which stored type and unit) is shared by the
whole fleet, the `EntityTable` (which devices and parts) by one host.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.model import EntityKind

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One scalar metric of a schema.

    Attributes:
        unit: Unit of value x resolution; a gateway refuses a column whose unit is not the catalogue's.
        dtype: Key of `catalog.metric.DTYPES`.
        resolution: Physical value = stored x resolution; 0.0 for `f64`.
    """

    metric: str
    unit: str
    dtype: str
    resolution: float


@dataclass(frozen=True, slots=True)
class HistogramColumn:
    """One histogram metric; `bounds` are the finite upper bounds, ascending, so there are len(bounds) + 1 buckets."""

    metric: str
    unit: str
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns of frames of one kind. Scalar columns are sorted by (dtype, metric), so each dtype is one matrix."""

    kind: EntityKind
    columns: tuple[Column, ...]
    histograms: tuple[HistogramColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Entity:
    """One row subject: an entity, or a labelled part of it.

    Attributes:
        entity: Stable id: GPU UUID, node id, job id.
        part: Sorted `k=v` pairs joined by commas, or "" for the entity itself.
        attributes: Facts about it for the table `entities`: `gpu_model`, `index`, `pci_bus_id`.
    """

    entity: str
    part: str = ""
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EntityTable:
    """The row subjects of one host and kind; rows name them by position."""

    kind: EntityKind
    host_id: str
    rack: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Columns of one dtype: `values[c, r]` is column `first_column + c`, row r.

    Attributes:
        present: Same shape; False where the cell has no value (its quality is in `ScalarBlock.quality_*`, or NONE).
            None means that every cell has a value.
    """

    first_column: int
    values: Values
    present: Bools | None


@dataclass(frozen=True, slots=True)
class ScalarBlock:
    """Scalar cells of a frame, metric-major. Rows are in any order; two rows may not be equal in (entity, tick).

    Attributes:
        entity_index: Row -> position in the entity table, shape (rows,).
        tick_index: Row -> position in `Header.tick_times_ms`, shape (rows,).
        observed_delta_ms: Row -> how much later than its tick the source was read, int32, shape (rows,).
        groups: One per dtype, in schema order, together covering every column.
        quality_row, quality_column, quality: Cells that are neither OK nor NONE, sparse, in equal-length arrays.
            An ESTIMATE cell is present and listed; ABSENT and BAD cells are not present and listed.
    """

    entity_index: U32
    tick_index: U16
    observed_delta_ms: NDArray[np.int32]
    groups: tuple[Group, ...]
    quality_row: U32
    quality_column: U16
    quality: U8


@dataclass(frozen=True, slots=True)
class HistogramRows:
    """Cumulative-over-time observations of one histogram column.

    Attributes:
        column: Position in `Schema.histograms`.
        buckets: Observations per bucket, not cumulative over buckets, uint64, shape (rows, len(bounds) + 1).
        sums: Sum of observations in the metric's unit, float64, shape (rows,).
        start_times_ms: When each row's counter started, 0 where unknown, int64, shape (rows,).
    """

    column: int
    entity_index: U32
    tick_index: U16
    buckets: NDArray[np.uint64]
    sums: NDArray[np.float64]
    start_times_ms: I64


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        metric: A catalogue metric of type event.
        time_ms: When it happened, by the source.
        code: Source's code (Xid number, rule id).
        end_ms: End of an interval event (`job_gpu_allocation`), None while open or for an instant.
        version: Greater versions of the same (metric, entity, part, time, code, identity) replace smaller ones.
        attributes: Further facts as text. An allocation has job_id, workload_id, owner_team, model_id.
    """

    metric: str
    entity: str
    part: str
    time_ms: int
    code: int
    end_ms: int | None = None
    version: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Info:
    """Facts about an entity that hold from `time_ms` on."""

    metric: str
    entity: str
    part: str
    time_ms: int
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Content:
    """Body of a frame, with the definitions it is read by."""

    schema: Schema
    entities: EntityTable
    scalars: ScalarBlock | None = None
    histograms: tuple[HistogramRows, ...] = ()
    events: tuple[Event, ...] = ()
    infos: tuple[Info, ...] = ()


def clock_correction_ms(offset_ms: int | None, uncertainty_ms: int) -> int:
    """Return what is added to host times: -offset if it is over 1 s and known to better than 200 ms, else 0."""
    if offset_ms is None or uncertainty_ms >= 200 or abs(offset_ms) <= 1000:
        return 0
    return -offset_ms


@dataclass(frozen=True, slots=True)
class Header:
    """What a gateway reads without touching the body; all of it can be re-stamped.

    Attributes:
        kind: Entity kind of every row.
        collector_id: Who collected; the token must allow it.
        host_id: The collector's own host, which picks the log partition.
        source: Reader that took the samples: `host`, `nvml`, `scrape`, `simulate`.
        spool_id: Random 64-bit id made with each new spool.
        first_sequence, last_sequence: Spool records in this frame, inclusive.
        boot_id: Boot of the host, a UUID text; "" when unknown.
        tick_times_ms: Scheduled instants by the host's clock, ascending, int64, shape (ticks,).
        interval_ms: Cadence of the ticks.
        clock_offset_ms: Host clock minus gateway clock, or None while unmeasured.
        clock_uncertainty_ms: Half width of the offset's error; 0 while unmeasured.
        live: True for the lane that may overtake a backlog; such frames move no watermark.
        rows, values, quality_cells: Ledger counts: scalar rows, cells with a value, cells listed by quality.
        schema_hash, entities_hash: 16 bytes each.
    """

    kind: EntityKind
    collector_id: str
    host_id: str
    source: str
    spool_id: int
    first_sequence: int
    last_sequence: int
    boot_id: str
    tick_times_ms: I64
    interval_ms: int
    clock_offset_ms: int | None
    clock_uncertainty_ms: int
    live: bool
    rows: int
    values: int
    quality_cells: int
    schema_hash: bytes
    entities_hash: bytes

    @property
    def correction_ms(self) -> int:
        """Return what is added to host times, see `clock_correction_ms`."""
        return clock_correction_ms(self.clock_offset_ms, self.clock_uncertainty_ms)


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame."""

    header: Header
    content: Content
