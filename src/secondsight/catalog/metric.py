"""Describe one metric: what a line of the catalogue says."""

from dataclasses import dataclass
from enum import StrEnum

from secondsight.model import EntityKind, Priority


class MetricType(StrEnum):
    """What a metric measures; decides which aggregates exist."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"
    HISTOGRAM = "histogram"
    EVENT = "event"
    INFO = "info"


class RollupSet(StrEnum):
    """Which members a rollup keeps."""

    DISTRIBUTION = "distribution"
    LEVEL = "level"
    CONSTANT = "constant"
    INCREASE = "increase"
    STATE = "state"
    EVENT = "event"
    HISTOGRAM = "histogram"


class PartsAdd(StrEnum):
    """How the parts of an entity make the entity's own figure."""

    SUM = "sum"
    MAX = "max"
    NONE = "none"


class Width(StrEnum):
    """Width of a source value, which decides its sentinels."""

    INT32 = "int32"
    INT64 = "int64"
    FP64 = "fp64"
    NONE = "none"


DTYPES: dict[str, str] = {
    "u8": "UInt8",
    "u16": "UInt16",
    "u32": "UInt32",
    "u64": "UInt64",
    "i8": "Int8",
    "i16": "Int16",
    "i32": "Int32",
    "i64": "Int64",
    "f64": "Float64",
}
"""Stored types of a scalar, on the wire (numpy little-endian) and in the tables (ClickHouse)."""


@dataclass(frozen=True, slots=True)
class Source:
    """One name under which a source gives this metric.

    Attributes:
        system: `dcgm` (an exporter or host-engine field), `prometheus` (any other exposition name), `nvml`, or `smi`
            (a column of `nvidia-smi --query-gpu`, whose `scale` holds where neither header nor cell names a unit).
        name: Full name as the source prints it (`DCGM_FI_DEV_GPU_UTIL`, `vllm:num_requests_running`, `FI 185`).
        scale: Source value x scale = value in the metric's unit.
        field_id: DCGM or NVML field number, or None.
        width: Width of the source value; sentinels are tested on it before scaling.
        match: Label values that a sample must have, as (label, value) pairs; "" for a label that it must not have.
        part: Label pairs that this source name itself stands for, such as (("direction", "receive"),).
        rename: Source labels that become part labels, as (source label, part label) pairs.
        rank: Preference among names of one system that give the same metric in one scrape; lower wins.
        absent: Source values that say that there is none, tested before anything else.
        translate: Source values with the value each stands for, where no factor relates them; no others are legal.
        estimate: True where a value of this source is only ever an estimate.
        shared: True where one value of this name feeds several metrics on purpose.
        help_scales: Scales that hold instead of `scale` where the HELP line of the scrape holds the text beside them.
    """

    system: str
    name: str
    scale: float = 1.0
    field_id: int | None = None
    width: Width = Width.NONE
    match: tuple[tuple[str, str], ...] = ()
    part: tuple[tuple[str, str], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    rank: int = 0
    absent: tuple[float, ...] = ()
    translate: tuple[tuple[float, float], ...] = ()
    estimate: bool = False
    shared: bool = False
    help_scales: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the catalogue.

    A stored scalar is an integer: physical value = stored x resolution, in `unit`. A metric of dtype `f64` is stored
    as it is and has resolution 0. Events, infos and histograms have no scalar column and dtype "".

    Attributes:
        minimum: Least legal physical value, or None.
        maximum: Greatest legal physical value, or None.
        clamp_maximum: Values in (clamp_maximum, maximum] become clamp_maximum; None where nothing is clamped.
        step_maximum: Greatest legal increase per covered second (counters), or None.
        cap: Value at which the source's counter stops moving, or None.
        values: Legal values of an enum or bool, as (value, meaning) pairs; of a bitmask the known bits; else empty.
        bitmask: True for a state made of bits; unknown bits are kept.
        labels: Label names that form the part, in sorted order.
        parts_maximum: Most parts one entity may have; 1 for a metric without labels.
    """

    name: str
    kind: EntityKind
    unit: str
    type: MetricType
    rollup: RollupSet
    priority: Priority
    dtype: str
    resolution: float
    description: str
    minimum: float | None = None
    maximum: float | None = None
    clamp_maximum: float | None = None
    step_maximum: float | None = None
    cap: float | None = None
    values: tuple[tuple[int, str], ...] = ()
    bitmask: bool = False
    labels: tuple[str, ...] = ()
    parts_maximum: int = 1
    parts_add: PartsAdd = PartsAdd.NONE
    aliases: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    derived: str = ""
    note: str = ""

    @property
    def is_scalar(self) -> bool:
        """Tell whether the metric has a column of its own in a raw table."""
        return self.type in (MetricType.GAUGE, MetricType.COUNTER, MetricType.STATE)

    @property
    def clickhouse_type(self) -> str:
        """Return the stored ClickHouse type of a scalar, without Nullable."""
        return DTYPES[self.dtype]
