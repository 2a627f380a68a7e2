"""Turn content into frames and back: a header that can be re-stamped and one zstd body of blocks.

Frames come from the network. Whatever bytes are given, reading returns or raises `Rejected`, and takes memory in
proportion to `Limits`. The wire checks shapes and limits; whether a value is sane is for whoever knows the catalogue.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict, Unpack

import google_crc32c
import zstandard

from secondsight.errors import Rejected
from secondsight.wire import blocks
from secondsight.wire.blocks import BlockReader, Shape
from secondsight.wire.content import Content, EntityTable, Event, Frame, Header, HistogramRows, Info, ScalarBlock
from secondsight.wire.events import read_events, read_infos, write_events, write_infos
from secondsight.wire.header import (
    CURRENT_VERSION,
    DEFAULT_LIMITS,
    SUPPORTED_VERSIONS,
    FrameHead,
    HeadView,
    Limits,
    Stamp,
    header_of,
    read_header,
    read_view,
    stamp_of,
    write_header,
)
from secondsight.wire.scalars import count_values, read_scalars, write_scalars
from secondsight.wire.schema import (
    Definitions,
    KnownEntities,
    KnownSchema,
    definition_hash,
    named_entities,
    named_schema,
)

__all__ = [
    "CURRENT_VERSION",
    "SUPPORTED_VERSIONS",
    "FrameHead",
    "HeadView",
    "HeaderChanges",
    "Limits",
    "OpenFrame",
    "Stamp",
    "check_body",
    "decode",
    "encode",
    "header_of",
    "open_frame",
    "read_content",
    "read_definitions",
    "read_frame",
    "read_header",
    "restamp",
    "split",
    "stamp_of",
]

COMPRESSION_LEVEL = 1
_DEFINITIONS = (blocks.SCHEMA, blocks.ENTITIES)

_local = threading.local()


class OpenFrame(NamedTuple):
    """A frame whose body is checked and unpacked, and whose definitions are known.

    Attributes:
        blocks: Those of its content, unread.
    """

    view: HeadView
    known: KnownSchema
    entities: EntityTable
    blocks: list[BlockReader]


class HeaderChanges(TypedDict, total=False):
    """Header fields that `restamp` can replace."""

    collector_id: str
    host_id: str
    source: str
    spool_id: int
    first_sequence: int
    last_sequence: int
    boot_id: str
    clock_offset_ms: int | None
    clock_uncertainty_ms: int
    live: bool
    schema_hash: bytes
    entities_hash: bytes


def encode(
    stamp: Stamp,
    content: Content,
    *,
    inline: bool = False,
    version: int = CURRENT_VERSION,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the frame of `content`; with `inline` it carries its definitions.

    Raises:
        Rejected: `bad_frame`, `bad_schema`, `frame_too_large`, `unsupported_version`.
    """
    if version not in SUPPORTED_VERSIONS:
        raise Rejected("unsupported_version", f"cannot write version {version}")
    schema, entities = named_schema(content.schema), named_entities(content.entities)
    header = _header(stamp, content, schema, entities)
    if len(stamp.tick_times_ms) > limits.max_ticks:
        raise Rejected("frame_too_large", f"{len(stamp.tick_times_ms)} ticks")
    shape = Shape(schema, len(stamp.tick_times_ms), len(content.entities.entities), version > 1, limits)
    raw = _write_body(content, shape, [schema.blob, entities.blob] if inline else [])
    body = _compressor().compress(raw)
    crc = google_crc32c.value(body)
    frame = write_header(FrameHead(header, version, inline, 0, 0, len(body), len(raw), crc)) + body
    if len(raw) > limits.max_raw_bytes or len(frame) > limits.max_frame_bytes:
        raise Rejected("frame_too_large", f"{len(frame)} bytes, {len(raw)} unpacked")
    return frame


def decode(buffer: bytes, definitions: Definitions, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> Frame:
    """Return the frame at `start`; definitions that it carries are added to `definitions`.

    Raises:
        Rejected: `truncated`, `bad_frame`, `unsupported_version`, `frame_too_large`, `bad_checksum`, `bad_schema`,
            `schema_unknown` (the sender shall send the frame again with its definitions).
    """
    return read_frame(buffer, open_frame(buffer, definitions, start, limits), limits)


def open_frame(buffer: bytes, definitions: Definitions, start: int = 0, limits: Limits = DEFAULT_LIMITS) -> OpenFrame:
    """Unpack the frame at `start` without reading its blocks; definitions that it carries are added to `definitions`.

    Raises:
        Rejected: As `decode`.
    """
    view = read_view(buffer, start, limits)
    pieces = blocks.split_blocks(_decompress(check_body(buffer, view), view.raw_bytes))
    _learn(view, pieces, definitions)
    known = definitions.known_schema(view.schema_hash)
    entities = definitions.entities(view.entities_hash)
    if known is None or entities is None:
        raise Rejected("schema_unknown", f"definitions of {view.collector_id} are not known", "send them inline")
    if known.schema.kind != view.kind or entities.kind != view.kind:
        blocks.refuse("kinds of header and definitions differ")
    content = [piece for piece in pieces if piece.kind not in _DEFINITIONS] if view.inline else pieces
    return OpenFrame(view, known, entities, content)


def read_frame(buffer: bytes, opened: OpenFrame, limits: Limits = DEFAULT_LIMITS) -> Frame:
    """Read the blocks of an opened frame, none of which was read before.

    Raises:
        Rejected: `bad_frame`, `frame_too_large`.
    """
    header = header_of(buffer, opened.view)
    content = read_content(opened, opened.blocks, limits)
    _check_counts(header, content.scalars)
    return Frame(header, content)


def read_content(opened: OpenFrame, pieces: Sequence[blocks.BlockReader], limits: Limits = DEFAULT_LIMITS) -> Content:
    """Read some blocks of an opened frame.

    Raises:
        Rejected: `bad_frame`, `frame_too_large`.
    """
    view, known, entities = opened.view, opened.known, opened.entities
    shape = blocks.Shape(known, view.ticks, len(entities.entities), view.version > 1, limits)
    return _read_content(pieces, shape, entities)


def read_definitions(buffer: bytes, head: HeadView) -> tuple[bytes, bytes]:
    """Return the blobs of schema and entity table that the frame at `head` carries; they are as the header names them.

    Raises:
        Rejected: `bad_checksum`, `bad_frame`, also when the frame carries none.
    """
    pieces = blocks.split_blocks(_decompress(check_body(buffer, head), head.raw_bytes))
    schema, entities = _inline_blobs(pieces, head.schema_hash, head.entities_hash)
    return schema, entities


def split(body: bytes, limits: Limits = DEFAULT_LIMITS) -> list[HeadView]:
    """Return the heads of the frames that together fill `body`; their bodies are not looked at.

    Raises:
        Rejected: As `read_view`; `frame_too_large` also for too many frames.
    """
    heads: list[HeadView] = []
    position = 0
    while position < len(body):
        if len(heads) == limits.max_frames:
            raise Rejected("frame_too_large", f"more than {limits.max_frames} frames in one body")
        heads.append(read_view(body, position, limits))
        position = heads[-1].end
    return heads


def check_body(buffer: bytes, head: FrameHead | HeadView) -> bytes:
    """Return the compressed body of a frame after checking its CRC.

    Raises:
        Rejected: `bad_checksum`.
    """
    body = bytes(buffer[head.body_start : head.end])
    if google_crc32c.value(body) != head.body_crc:
        raise Rejected("bad_checksum", "the body's checksum is wrong")
    return body


def restamp(frame: bytes, *, tick_shift_ms: int = 0, **changes: Unpack[HeaderChanges]) -> bytes:
    """Return the frame with another header before the same body bytes.

    Args:
        frame: One frame.
        tick_shift_ms: Added to every tick time.
        **changes: Header fields to replace.

    Raises:
        Rejected: As `read_header`; `bad_frame` when a new field does not fit.
    """
    head = read_header(frame)
    times = head.header.tick_times_ms + tick_shift_ms
    header = replace(head.header, tick_times_ms=times, **changes)
    return write_header(replace(head, header=header)) + bytes(frame[head.body_start : head.end])


def _header(stamp: Stamp, content: Content, schema: KnownSchema, entities: KnownEntities) -> Header:
    if content.entities.kind != content.schema.kind:
        blocks.refuse("kinds of schema and entities differ")
    scalars = content.scalars
    return Header(
        kind=content.schema.kind,
        collector_id=stamp.collector_id,
        host_id=stamp.host_id,
        source=stamp.source,
        spool_id=stamp.spool_id,
        first_sequence=stamp.first_sequence,
        last_sequence=stamp.last_sequence,
        boot_id=stamp.boot_id,
        tick_times_ms=stamp.tick_times_ms,
        interval_ms=stamp.interval_ms,
        clock_offset_ms=stamp.clock_offset_ms,
        clock_uncertainty_ms=stamp.clock_uncertainty_ms,
        live=stamp.live,
        rows=len(scalars.entity_index) if scalars else 0,
        values=count_values(scalars) if scalars else 0,
        quality_cells=len(scalars.quality) if scalars else 0,
        schema_hash=schema.hash,
        entities_hash=entities.hash,
    )


def _write_body(content: Content, shape: Shape, definitions: list[bytes]) -> bytes:
    parts = [blocks.pack_block(kind, blob) for kind, blob in zip(_DEFINITIONS, definitions, strict=False)]
    if content.scalars is not None:
        parts.append(blocks.pack_block(blocks.SCALARS, write_scalars(content.scalars, shape)))
    parts += [blocks.pack_block(blocks.HISTOGRAM, blocks.write_histogram(rows, shape)) for rows in content.histograms]
    if content.events:
        parts.append(blocks.pack_block(blocks.EVENTS, write_events(content.events)))
    if content.infos:
        parts.append(blocks.pack_block(blocks.INFOS, write_infos(content.infos)))
    return b"".join(parts)


def _read_content(pieces: Sequence[BlockReader], shape: Shape, entities: EntityTable) -> Content:
    scalars: ScalarBlock | None = None
    histograms: list[HistogramRows] = []
    events: tuple[Event, ...] = ()
    infos: tuple[Info, ...] = ()
    for piece in pieces:
        match piece.kind:
            case blocks.SCALARS if scalars is None:
                scalars = read_scalars(piece, shape)
            case blocks.HISTOGRAM if len(histograms) < len(shape.known.schema.histograms):
                histograms.append(blocks.read_histogram(piece, shape))
            case blocks.EVENTS if not events:
                events = read_events(piece.rest())
            case blocks.INFOS if not infos:
                infos = read_infos(piece.rest())
            case _:
                blocks.refuse(f"a block of kind {piece.kind} is unknown or stands twice")
    return Content(shape.known.schema, entities, scalars, tuple(histograms), events, infos)


def _learn(view: HeadView, pieces: list[BlockReader], definitions: Definitions) -> None:
    if view.inline:
        for blob in _inline_blobs(pieces, view.schema_hash, view.entities_hash):
            definitions.add(blob)
    elif any(piece.kind in _DEFINITIONS for piece in pieces):
        blocks.refuse("there are inline definitions that the header does not announce")


def _inline_blobs(pieces: list[BlockReader], *expected: bytes) -> list[bytes]:
    found = [piece for piece in pieces if piece.kind in _DEFINITIONS]
    if tuple(piece.kind for piece in found) != _DEFINITIONS:
        blocks.refuse("inline definitions are not those that the header announces")
    blobs = [piece.rest() for piece in found]
    if tuple(map(definition_hash, blobs)) != expected:
        blocks.refuse("an inline definition has another hash than the header says")
    return blobs


def _check_counts(header: Header, scalars: ScalarBlock | None) -> None:
    counts = (len(scalars.entity_index), count_values(scalars), len(scalars.quality)) if scalars else (0, 0, 0)
    if counts != (header.rows, header.values, header.quality_cells):
        blocks.refuse(f"the header counts {header.rows} rows, {header.values} values; the body holds {counts}")


def _decompress(body: bytes, raw_bytes: int) -> bytes:
    try:
        if zstandard.frame_content_size(body) != raw_bytes:
            blocks.refuse("the body's size is not what the header says")
        raw = _decompressor().decompress(body, max_output_size=raw_bytes, allow_extra_data=False) if raw_bytes else b""
    except zstandard.ZstdError as error:
        raise Rejected("bad_frame", "the body is not one zstd frame") from error
    if len(raw) != raw_bytes:
        blocks.refuse("the body's size is not what the header says")
    return raw


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=False)
    compressor: zstandard.ZstdCompressor = _local.compressor
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _local.decompressor
    return decompressor
