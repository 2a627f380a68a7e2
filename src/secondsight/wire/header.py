"""Turn frame headers into bytes and back without touching the body.

Layout, little-endian: a prefix (magic, version, flags, lengths, CRC32C of body and header), the fixed fields of
`content.Header`, tick times as one base and unsigned steps from it, then three length-prefixed UTF-8 ids. The header's
own CRC is computed with its field zero. What a header says of the body is checked against the body by the decoder.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import lt
from struct import Struct
from typing import Any

import google_crc32c
import numpy as np

from secondsight.errors import Rejected
from secondsight.model import KIND_CODES
from secondsight.wire.content import I64, Header
from secondsight.wire.heads import (
    DEFAULT_LIMITS,
    FIELDS,
    PREFIX,
    STEP_BYTES,
    STEPS_START,
    FrameHead,
    HeadView,
    Limits,
    Stamp,
    boot_id_of,
    stamp_of,
)
from secondsight.wire.schema import is_text

__all__ = [
    "CURRENT_VERSION",
    "DEFAULT_LIMITS",
    "MAGIC",
    "MAX_ID_LENGTH",
    "MAX_TIME_MS",
    "SUPPORTED_VERSIONS",
    "FrameHead",
    "HeadView",
    "Limits",
    "Stamp",
    "header_of",
    "read_header",
    "read_view",
    "renumbered",
    "stamp_of",
    "write_header",
]

MAGIC = b"SSFR"
CURRENT_VERSION = 2
SUPPORTED_VERSIONS = (CURRENT_VERSION, CURRENT_VERSION - 1)
"""Version 1 has plain matrices; version 2 byte-shuffles them. Both are read, and both can be written."""

MAX_TIME_MS = 253_402_300_799_999
MAX_ID_LENGTH = 512
TEXTS_REMEMBERED = 1 << 15
"""Each takes half a KiB; a gateway has no more senders at once than it has connections."""


_FLAG_INLINE = 1
_FLAG_LIVE = 2
_FLAG_OFFSET = 4
_FLAGS = _FLAG_INLINE | _FLAG_LIVE | _FLAG_OFFSET

_CRC_POSITION = PREFIX.size - 4
_FLAGS_POSITION = 5
_NUMBERS = Struct("<QQQ")
_NUMBERS_POSITION = PREFIX.size + Struct("<BxHIqI").size
_LENGTH = Struct("<H")
_KINDS = {code: kind for kind, code in KIND_CODES.items()}


def write_header(head: FrameHead) -> bytes:
    """Return the bytes of a header; `head.start` and `head.header_bytes` are not used.

    Raises:
        Rejected: `bad_frame` when a field does not fit.
    """
    header = head.header
    times: list[int] = header.tick_times_ms.tolist()
    _require_ascending(times)
    _require_bounds(times[0] if times else 0, times[-1] if times else 0, header.first_sequence, header.last_sequence)
    ids = b"".join(_pack_text(text) for text in (header.collector_id, header.host_id, header.source))
    rest = _pack_fields(header, times) + ids
    size = PREFIX.size + len(rest)
    lengths = (size, head.body_bytes, head.raw_bytes, head.body_crc)
    prefix = PREFIX.pack(MAGIC, head.version, _flags(head), *lengths, 0)
    crc: int = google_crc32c.value(prefix + rest)
    return prefix[:_CRC_POSITION] + crc.to_bytes(4, "little") + rest


def renumbered(frame: bytes, view: HeadView, *, spool_id: int, sequence: int, live: bool) -> bytes:
    """Return the frame that a view was made of as the one record `sequence` of a spool, without reading it again."""
    head = bytearray(frame[view.start : view.body_start])
    _NUMBERS.pack_into(head, _NUMBERS_POSITION, spool_id, sequence, sequence)
    head[_FLAGS_POSITION] = head[_FLAGS_POSITION] & ~_FLAG_LIVE | live * _FLAG_LIVE
    head[_CRC_POSITION : PREFIX.size] = bytes(PREFIX.size - _CRC_POSITION)
    crc: int = google_crc32c.value(bytes(head))
    head[_CRC_POSITION : PREFIX.size] = crc.to_bytes(4, "little")
    return bytes(head) + frame[view.body_start : view.end]


def read_header(buffer: bytes, start: int = 0, bounds: Limits = DEFAULT_LIMITS) -> FrameHead:
    """Read the header of the frame at `start`; the body must be there but is not looked at.

    Raises:
        Rejected: As `read_view`.
    """
    view = read_view(buffer, start, bounds)
    sizes = (view.header_bytes, view.body_bytes, view.raw_bytes, view.body_crc)
    return FrameHead(header_of(buffer, view), view.version, view.inline, start, *sizes)


def header_of(buffer: bytes, view: HeadView) -> Header:
    """Return the header that a view was made of."""
    return Header(
        kind=view.kind,
        collector_id=view.collector_id,
        host_id=view.host_id,
        source=view.source,
        spool_id=view.spool_id,
        first_sequence=view.first_sequence,
        last_sequence=view.last_sequence,
        boot_id=boot_id_of(view.boot),
        tick_times_ms=_times(buffer, view),
        interval_ms=view.interval_ms,
        clock_offset_ms=view.clock_offset_ms,
        clock_uncertainty_ms=view.clock_uncertainty_ms,
        live=view.live,
        rows=view.rows,
        values=view.values,
        quality_cells=view.quality_cells,
        schema_hash=view.schema_hash,
        entities_hash=view.entities_hash,
    )


def read_view(buffer: bytes, start: int = 0, bounds: Limits = DEFAULT_LIMITS) -> HeadView:
    """Read the header of the frame at `start` without making arrays; the body must be there but is not looked at.

    Raises:
        Rejected: `truncated`, `bad_frame`, `unsupported_version`, `frame_too_large`, `bad_checksum`.
    """
    if len(buffer) - start < PREFIX.size:
        raise Rejected("truncated", f"{len(buffer) - start} bytes are no frame prefix")
    prefix = PREFIX.unpack_from(buffer, start)
    magic, version, flags, header_bytes, body_bytes, raw_bytes, _, crc = prefix
    if magic != MAGIC:
        raise Rejected("bad_frame", f"no frame starts at byte {start}")
    if version not in SUPPORTED_VERSIONS:
        hint = "upgrade the gateway first" if version > CURRENT_VERSION else "upgrade the agent"
        raise Rejected("unsupported_version", f"frame version {version}, known are {SUPPORTED_VERSIONS}", hint)
    if header_bytes + body_bytes > bounds.max_frame_bytes or raw_bytes > bounds.max_raw_bytes:
        raise Rejected("frame_too_large", f"{header_bytes + body_bytes} bytes, {raw_bytes} unpacked")
    if len(buffer) - start < header_bytes + body_bytes:
        raise Rejected("truncated", f"{header_bytes + body_bytes} bytes announced, {len(buffer) - start} there")
    raw = bytes(buffer[start : start + header_bytes])
    if len(raw) < STEPS_START or flags & ~_FLAGS:
        raise Rejected("bad_frame", "the header is too short or has unknown flags")
    if crc != google_crc32c.value(b"%b\0\0\0\0%b" % (raw[:_CRC_POSITION], raw[PREFIX.size :])):
        raise Rejected("bad_checksum", "the header's checksum is wrong")
    return _unpack_view(raw, prefix, start, bounds)


def _flags(head: FrameHead) -> int:
    offset_known = head.header.clock_offset_ms is not None
    return head.inline * _FLAG_INLINE | head.header.live * _FLAG_LIVE | offset_known * _FLAG_OFFSET


def _pack_fields(header: Header, times: list[int]) -> bytes:
    first_ms = times[0] if times else 0
    try:
        return FIELDS.pack(
            KIND_CODES[header.kind],
            len(times),
            header.interval_ms,
            header.clock_offset_ms or 0,
            header.clock_uncertainty_ms,
            header.spool_id,
            header.first_sequence,
            header.last_sequence,
            _pack_boot_id(header.boot_id),
            header.schema_hash,
            header.entities_hash,
            header.rows,
            header.values,
            header.quality_cells,
            first_ms,
        ) + struct.pack(f"<{max(0, len(times) - 1)}I", *(time_ms - first_ms for time_ms in times[1:]))
    except struct.error as error:
        raise Rejected("bad_frame", f"a header field does not fit, or ticks span over 49 days: {error}") from error


def _unpack_view(raw: bytes, prefix: tuple[Any, ...], start: int, limits: Limits) -> HeadView:
    _, version, flags, header_bytes, body_bytes, raw_bytes, body_crc, _ = prefix
    (
        code,
        ticks,
        interval_ms,
        offset_ms,
        uncertainty_ms,
        spool_id,
        first_sequence,
        last_sequence,
        boot,
        schema_hash,
        entities_hash,
        rows,
        values,
        quality_cells,
        first_ms,
    ) = FIELDS.unpack_from(raw, PREFIX.size)
    kind = _KINDS.get(code)
    if kind is None:
        raise Rejected("bad_frame", f"unknown entity kind {code}")
    if ticks > limits.max_ticks or rows > limits.max_rows:
        raise Rejected("frame_too_large", f"{ticks} ticks, {rows} rows")
    texts_start = STEPS_START + (STEP_BYTES * (ticks - 1) if ticks else 0)
    last_ms = first_ms + _last_step(raw[STEPS_START:texts_start], ticks)
    _require_bounds(first_ms, last_ms, first_sequence, last_sequence)
    return HeadView._make(
        (
            kind,
            *_unpack_texts(raw[texts_start:]),
            spool_id,
            first_sequence,
            last_sequence,
            boot,
            ticks,
            first_ms if ticks else 0,
            last_ms if ticks else 0,
            interval_ms,
            offset_ms if flags & _FLAG_OFFSET else None,
            uncertainty_ms,
            flags & _FLAG_LIVE != 0,
            rows,
            values,
            quality_cells,
            schema_hash,
            entities_hash,
            version,
            flags & _FLAG_INLINE != 0,
            start,
            header_bytes,
            body_bytes,
            raw_bytes,
            body_crc,
        ),
    )


@lru_cache(maxsize=1024)
def _last_step(raw: bytes, ticks: int) -> int:
    """Return the time from the first tick to the last; the frames of a cadence mostly have the same steps."""
    count = max(0, ticks - 1)
    if len(raw) < STEP_BYTES * count:
        raise Rejected("bad_frame", "ticks run over the header")
    steps = (0, *struct.unpack(f"<{count}I", raw))
    _require_ascending(steps)
    last: int = steps[-1]
    return last


def _times(buffer: bytes, view: HeadView) -> I64:
    times = np.empty(view.ticks, np.int64)
    times.fill(view.first_tick_ms)
    if view.ticks > 1:
        times[1:] += np.frombuffer(buffer, "<u4", view.ticks - 1, view.start + STEPS_START)
    return times


def _require_ascending(times: Sequence[int]) -> None:
    if not all(map(lt, times, times[1:])):
        raise Rejected("bad_frame", "tick times are not ascending")


def _require_bounds(first_ms: int, last_ms: int, first_sequence: int, last_sequence: int) -> None:
    if first_ms < 0 or last_ms > MAX_TIME_MS:
        raise Rejected("bad_frame", "tick times are outside 1970 to 9999")
    if first_sequence > last_sequence:
        raise Rejected("bad_frame", "the first sequence is after the last")


def _pack_text(text: str) -> bytes:
    if not is_text(text, MAX_ID_LENGTH):
        raise Rejected("bad_frame", f"an id is no text of at most {MAX_ID_LENGTH} characters")
    raw = text.encode()
    return _LENGTH.pack(len(raw)) + raw


@lru_cache(maxsize=TEXTS_REMEMBERED)
def _unpack_texts(raw: bytes) -> tuple[str, str, str]:
    """Return the three ids at the end of a header; a host sends the same again and again."""
    texts = []
    position = 0
    for _ in range(3):
        start = position + 2
        if start > len(raw):
            raise Rejected("bad_frame", "ids run over the header")
        position = start + int.from_bytes(raw[position:start], "little")
        texts.append(_decode_text(raw[start:position]))
    if position != len(raw):
        raise Rejected("bad_frame", "ids do not fill the header")
    return texts[0], texts[1], texts[2]


def _decode_text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Rejected("bad_frame", "an id is not UTF-8") from error
    if not is_text(text, MAX_ID_LENGTH):
        raise Rejected("bad_frame", "an id is too long or has a NUL")
    return text


def _pack_boot_id(boot_id: str) -> bytes:
    try:
        raw = bytes.fromhex(boot_id.replace("-", ""))
    except ValueError:
        raw = b"?"
    if len(raw) not in (0, 16):
        raise Rejected("bad_frame", f"boot id {boot_id!r} is not a UUID")
    return raw or bytes(16)
