"""Turn spooled records into as few frames as possible, each of one collector, kind and pair of definitions.

The record's place in the spool is its sequence; a frame of several records spans theirs. Records that cannot be read
are given back with the reason, so that they never stand in the way of others. A record that stays alone is not opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from secondsight.agent.spool.reading import SpoolRecord
from secondsight.errors import Rejected
from secondsight.wire.content import Content, Frame
from secondsight.wire.frame import decode, encode
from secondsight.wire.header import HeadView, Stamp, read_view, renumbered, stamp_of
from secondsight.wire.merge import merge
from secondsight.wire.schema import Definitions

FRAME_RAW_BYTES_MAXIMUM = 2 << 20
"""Of unpacked bodies, in which every cell takes a byte or more."""

FRAME_TICKS_MAXIMUM = 600


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that no frame can be made of."""

    record: SpoolRecord
    code: str


@dataclass(frozen=True, slots=True)
class _Source:
    """Where records are of, and how they are read."""

    spool_id: int
    known: Definitions
    live: bool

    def frame(self, record: SpoolRecord) -> Frame:
        """Return the frame of a record, numbered.

        Raises:
            Rejected: It cannot be read.
        """
        frame = decode(record.payload, self.known)
        header = replace(
            frame.header,
            first_sequence=record.sequence,
            last_sequence=record.sequence,
            spool_id=self.spool_id,
            live=self.live or frame.header.live,
        )
        return replace(frame, header=header)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records that go out as one frame.

    Attributes:
        view: Head of the first record.
        live: They overtake older records.
        merged: What several records make together, None for one alone.
    """

    view: HeadView
    live: bool
    records: tuple[SpoolRecord, ...]
    source: _Source
    merged: tuple[Stamp, Content] | None = None

    @property
    def host_id(self) -> str:
        """Return the host of the collector."""
        return self.view.host_id

    @property
    def definitions(self) -> tuple[bytes, bytes]:
        """Return the hashes of schema and entity table."""
        return self.view.schema_hash, self.view.entities_hash

    def encode(self, *, inline: bool) -> bytes:
        """Return the frame's bytes; with `inline` it carries its definitions.

        Raises:
            Rejected: The record cannot be read, or its definitions are lost.
        """
        if self.merged is not None:
            return encode(*self.merged, inline=inline)
        record = self.records[0]
        if inline or self.view.inline:
            frame = self.source.frame(record)
            return encode(stamp_of(frame.header), frame.content, inline=inline)
        return renumbered(
            record.payload, self.view, spool_id=self.source.spool_id, sequence=record.sequence, live=self.live
        )


@dataclass(slots=True)
class _Open:
    """A frame being put together."""

    view: HeadView
    live: bool
    records: list[SpoolRecord]
    ticks: int
    raw_bytes: int
    last_tick_ms: int


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
            view = read_view(record.payload)
        except Rejected as error:
            unreadable.append(Unreadable(record, error.code))
            continue
        key = _key(view, live)
        current = opened.get(key)
        if current is None or not _fits(current, view):
            current = opened[key] = _Open(view, live or view.live, [], 0, 0, -1)
            frames.append(current)
        current.records.append(record)
        current.ticks += view.ticks
        current.raw_bytes += view.raw_bytes
        current.last_tick_ms = view.last_tick_ms
    source = _Source(spool_id, definitions, live)
    return [made for one in frames if (made := _closed(one, source, unreadable)) is not None], unreadable


def _key(view: HeadView, live: bool) -> tuple[object, ...]:
    """Return what frames of one spool must have in common to be merged; see `wire.merge.merge_key`."""
    return (
        view.kind,
        view.collector_id,
        view.host_id,
        view.source,
        view.boot,
        view.interval_ms,
        view.correction_ms,
        live or view.live,
        view.schema_hash,
        view.entities_hash,
    )


def _fits(current: _Open, view: HeadView) -> bool:
    """Tell whether a frame may join: its ticks come later (a clock may have been set back), and bounds are kept."""
    return (
        view.first_tick_ms > current.last_tick_ms
        and current.ticks < FRAME_TICKS_MAXIMUM
        and current.raw_bytes < FRAME_RAW_BYTES_MAXIMUM
    )


def _closed(one: _Open, source: _Source, unreadable: list[Unreadable]) -> Outgoing | None:
    """Return the frame of records that go together, None if none of several can be read."""
    if len(one.records) == 1:
        return Outgoing(one.view, one.live, tuple(one.records), source)
    frames: list[Frame] = []
    readable: list[SpoolRecord] = []
    for record in one.records:
        try:
            frames.append(source.frame(record))
            readable.append(record)
        except Rejected as error:
            unreadable.append(Unreadable(record, error.code))
    if not frames:
        return None
    return Outgoing(one.view, one.live, tuple(readable), source, merge(frames))
