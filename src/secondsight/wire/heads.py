"""Say what a frame's head holds: for senders, for readers, and for those who never open the body.

Layout, little-endian: `PREFIX` (magic, version, flags, lengths, CRC32C of body and header), `FIELDS`, then tick times
as unsigned steps from the first, and three texts. `header` reads and writes it.
"""

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from secondsight.model import EntityKind
from secondsight.wire.content import I64, Header, clock_correction_ms

PREFIX = Struct("<4sBBHIIII")
FIELDS = Struct("<BxHIqIQQQ16s16s16sIIIq")
STEPS_START = PREFIX.size + FIELDS.size
STEP_BYTES = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a frame must keep.

    Attributes:
        max_frame_bytes: Header and compressed body.
        max_raw_bytes: Body after decompression.
        max_cells: Scalar rows x columns.
        max_frames: Frames of one POST body.
    """

    max_frame_bytes: int = 4 << 20
    max_raw_bytes: int = 64 << 20
    max_rows: int = 1 << 20
    max_ticks: int = 3600
    max_cells: int = 1 << 22
    max_frames: int = 4096


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a sender says in a header; the counts and hashes of the header come from the content. See `Header`."""

    collector_id: str
    host_id: str
    source: str
    spool_id: int
    first_sequence: int
    last_sequence: int
    tick_times_ms: I64
    interval_ms: int
    boot_id: str = ""
    clock_offset_ms: int | None = None
    clock_uncertainty_ms: int = 0
    live: bool = False


@dataclass(frozen=True, slots=True)
class FrameHead:
    """A frame's header and where its bytes lie in a buffer.

    Attributes:
        start: Position of the frame in the buffer.
        inline: The body carries its definitions.
    """

    header: Header
    version: int
    inline: bool
    start: int
    header_bytes: int
    body_bytes: int
    raw_bytes: int
    body_crc: int

    @property
    def body_start(self) -> int:
        """Return the position of the body in the buffer."""
        return self.start + self.header_bytes

    @property
    def end(self) -> int:
        """Return the position after the frame in the buffer."""
        return self.body_start + self.body_bytes


class HeadView(NamedTuple):
    """What a frame's head says, for whoever does not open its body: a `FrameHead` without arrays.

    Attributes:
        ticks: Number of tick times; the first and last are 0 where there are none.
        boot: 16 bytes, all 0 when unknown.
        start: Position of the frame in the buffer.
        inline: The body carries its definitions.
    """

    kind: EntityKind
    collector_id: str
    host_id: str
    source: str
    spool_id: int
    first_sequence: int
    last_sequence: int
    boot: bytes
    ticks: int
    first_tick_ms: int
    last_tick_ms: int
    interval_ms: int
    clock_offset_ms: int | None
    clock_uncertainty_ms: int
    live: bool
    rows: int
    values: int
    quality_cells: int
    schema_hash: bytes
    entities_hash: bytes
    version: int
    inline: bool
    start: int
    header_bytes: int
    body_bytes: int
    raw_bytes: int
    body_crc: int

    @property
    def body_start(self) -> int:
        """Return the position of the body in the buffer."""
        return self.start + self.header_bytes

    @property
    def end(self) -> int:
        """Return the position after the frame in the buffer."""
        return self.start + self.header_bytes + self.body_bytes

    @property
    def boot_id(self) -> str:
        """Return the boot as `Header.boot_id`."""
        return boot_id_of(self.boot)

    def steps_slice(self) -> slice:
        """Return where the steps from the first tick to each further one lie in the buffer, as u32."""
        first = self.start + STEPS_START
        return slice(first, first + STEP_BYTES * max(0, self.ticks - 1))

    @property
    def newest_ms(self) -> int:
        """Return the corrected time of the last tick."""
        offset_ms = self.clock_offset_ms
        if offset_ms is None:
            return self.last_tick_ms
        return self.last_tick_ms + clock_correction_ms(offset_ms, self.clock_uncertainty_ms)

    @property
    def correction_ms(self) -> int:
        """Return what is added to host times, as `Header.correction_ms`."""
        return clock_correction_ms(self.clock_offset_ms, self.clock_uncertainty_ms)


def stamp_of(header: Header) -> Stamp:
    """Return the sender's part of a header."""
    return Stamp(
        header.collector_id,
        header.host_id,
        header.source,
        header.spool_id,
        header.first_sequence,
        header.last_sequence,
        header.tick_times_ms,
        header.interval_ms,
        header.boot_id,
        header.clock_offset_ms,
        header.clock_uncertainty_ms,
        header.live,
    )


@lru_cache(maxsize=1 << 15)
def boot_id_of(raw: bytes) -> str:
    """Return 16 bytes as a UUID, "" where all are 0."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" if any(raw) else ""
