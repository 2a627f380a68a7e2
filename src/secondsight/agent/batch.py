"""Turn spooled records into as few frames as possible, each of one collector, kind and pair of definitions.

The record's place in the spool is its sequence; a frame of several records spans theirs. Records that cannot be read
are given back with the reason, so that they never stand in the way of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.agent.spool.records import SpoolRecord
from secondsight.errors import Rejected
from secondsight.wire.content import Content, Frame, Header
from secondsight.wire.frame import decode, encode, read_header, restamp
from secondsight.wire.header import Stamp
from secondsight.wire.merge import merge, merge_key
from secondsight.wire.schema import Definitions

FRAME_CELLS_MAXIMUM = 1 << 20
FRAME_TICKS_MAXIMUM = 600


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that no frame can be made of."""

    record: SpoolRecord
    code: str


@dataclass(slots=True)
class _Open:
    """A frame being put together."""

    frames: list[Frame]
    records: list[SpoolRecord]
    cells: int
    last_tick_ms: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records that go out as one frame."""

    stamp: Stamp
    content: Content
    records: tuple[SpoolRecord, ...]
    definitions: tuple[bytes, bytes]

    def encode(self, *, inline: bool) -> bytes:
        """Return the frame's bytes; with `inline` it carries its definitions."""
        if len(self.records) == 1 and not inline and not read_header(self.records[0].payload).inline:
            sequence = self.records[0].sequence
            return restamp(
                self.records[0].payload,
                spool_id=self.stamp.spool_id,
                first_sequence=sequence,
                last_sequence=sequence,
                live=self.stamp.live,
            )
        return encode(self.stamp, self.content, inline=inline)


def outgoing(
    records: Sequence[SpoolRecord], spool_id: int, definitions: Definitions, *, live: bool = False
) -> tuple[list[Outgoing], list[Unreadable]]:
    """Return the frames that records make, in the order of their first records, and what could not be read.

    Args:
        records: Of one spool.
        spool_id: Of that spool.
        definitions: By which they are read.
        live: They overtake older records; frames that say so themselves need not be told.
    """
    opened: dict[tuple[object, ...], _Open] = {}
    frames: list[_Open] = []
    unreadable: list[Unreadable] = []
    for record in records:
        try:
            frame = _numbered(decode(record.payload, definitions), record.sequence, spool_id, live)
        except Rejected as error:
            unreadable.append(Unreadable(record, error.code))
            continue
        key = merge_key(frame.header)
        current = opened.get(key)
        if current is None or not _fits(current, frame.header):
            current = opened[key] = _Open([], [], 0, -1)
            frames.append(current)
        current.frames.append(frame)
        current.records.append(record)
        current.cells += frame.header.rows * len(frame.content.schema.columns)
        current.last_tick_ms = int(frame.header.tick_times_ms[-1])
    return [_closed(one) for one in frames], unreadable


def _numbered(frame: Frame, sequence: int, spool_id: int, live: bool) -> Frame:
    overtakes = live or frame.header.live
    header = replace(frame.header, first_sequence=sequence, last_sequence=sequence, spool_id=spool_id, live=overtakes)
    return replace(frame, header=header)


def _fits(current: _Open, header: Header) -> bool:
    """Tell whether a frame may join: its ticks come later (a clock may have been set back), and bounds are kept."""
    return (
        int(header.tick_times_ms[0]) > current.last_tick_ms
        and len(current.frames) < FRAME_TICKS_MAXIMUM
        and current.cells < FRAME_CELLS_MAXIMUM
    )


def _closed(one: _Open) -> Outgoing:
    stamp, content = merge(one.frames)
    header = one.frames[0].header
    return Outgoing(stamp, content, tuple(one.records), (header.schema_hash, header.entities_hash))
