"""The words that every stage shares: entity kinds, priorities, qualities."""

from enum import IntEnum, StrEnum


class EntityKind(StrEnum):
    """What a row is about; one raw table and one rollup family per kind."""

    GPU = "gpu"
    NODE = "node"
    FABRIC_PORT = "fabric_port"
    PROCESS_JOB = "process_job"
    TRAINING = "training"
    INFERENCE = "inference"
    PLATFORM = "platform"


KIND_CODES: dict[EntityKind, int] = {kind: code for code, kind in enumerate(EntityKind, start=1)}
"""Kind codes of the wire; frozen: new kinds are appended."""


class Priority(IntEnum):
    """Order in which samples are shed under pressure: P2 first, P0 last."""

    P0 = 0
    P1 = 1
    P2 = 2


class Quality(IntEnum):
    """Why a cell has its value, or has none; codes are frozen on the wire and in tables.

    NONE says nothing was claimed (the metric does not apply to this row, or the piece did not carry it): the cell is
    neither expected nor counted. Only OK and ESTIMATE carry a value.
    """

    NONE = 0
    OK = 1
    ESTIMATE = 2
    ABSENT_NOT_SUPPORTED = 3
    ABSENT_NO_PERMISSION = 4
    ABSENT_SOURCE_BLANK = 5
    BAD_RANGE = 6
    BAD_PARSE = 7
    STALE = 8
    SATURATED = 9

    @property
    def has_value(self) -> bool:
        """Tell whether a cell of this quality carries a value."""
        return self in (Quality.OK, Quality.ESTIMATE)


QUALITY_RANK: dict[Quality, int] = {
    Quality.OK: 9,
    Quality.ESTIMATE: 8,
    Quality.SATURATED: 7,
    Quality.STALE: 6,
    Quality.BAD_RANGE: 5,
    Quality.BAD_PARSE: 4,
    Quality.ABSENT_SOURCE_BLANK: 3,
    Quality.ABSENT_NO_PERMISSION: 2,
    Quality.ABSENT_NOT_SUPPORTED: 1,
    Quality.NONE: 0,
}
"""Which of two qualities of one cell wins; the greater value bits win among equals."""
