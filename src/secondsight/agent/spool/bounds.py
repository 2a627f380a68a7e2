"""Say what spools may take of a host."""

from dataclasses import dataclass

from secondsight.agent.spool.losses import LossReason
from secondsight.log.segments import SegmentConfig

SEGMENTS_PER_SPOOL = 48
MIN_SEGMENT_BYTES = 16 << 10
MAX_SEGMENT_BYTES = 8 << 20
MAX_SEGMENT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class SpoolBounds:
    """What spools may take.

    Attributes:
        max_bytes: Of all segments together.
        max_age_seconds: Records appended longer ago are shed.
        floor_bytes, floor_ratio: Free space, in bytes and as a share of the file system, that is left to others; the
            lesser of the two counts.
    """

    max_bytes: int
    max_age_seconds: float = 7 * 86_400.0
    floor_bytes: int = 0
    floor_ratio: float = 1.0

    def segments(self) -> SegmentConfig:
        """Return when a segment is full: what is shed at once is a small share of what may be kept."""
        size_bytes = min(max(self.max_bytes // SEGMENTS_PER_SPOOL, MIN_SEGMENT_BYTES), MAX_SEGMENT_BYTES)
        return SegmentConfig(size_bytes, max(min(MAX_SEGMENT_SECONDS, self.max_age_seconds / SEGMENTS_PER_SPOOL), 1.0))

    def pressure(self, held_bytes: int, further_bytes: int, space: tuple[int, int]) -> LossReason | None:
        """Return why further bytes have no room, or None.

        Args:
            held_bytes: Of all segments now.
            further_bytes: To be written.
            space: Free and total bytes of the file system.
        """
        if held_bytes + further_bytes > self.max_bytes:
            return LossReason.SPOOL_FULL
        free_bytes, total_bytes = space
        floor_bytes = min(self.floor_bytes, self.floor_ratio * total_bytes)
        return LossReason.FLOOR if free_bytes - further_bytes < floor_bytes else None
