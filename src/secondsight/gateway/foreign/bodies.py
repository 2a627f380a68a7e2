"""Unpack bodies of HTTP requests within a bound that holds before any memory is taken.

Whatever bytes are given, unpacking returns or raises `Rejected`; what it takes in memory is in proportion to the bound.
"""

import zlib
from collections.abc import Callable, Mapping

import cramjam
import zstandard

from secondsight.errors import Rejected
from secondsight.gateway.answer import OtherEncoding

GZIP_WINDOW, ZLIB_WINDOW = 31, 15
"""zlib's words for a gzip header and trailer around each member, and for its own."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW_BYTES = 16 << 20
SNAPPY_LENGTH_BYTES = 5
SNAPPY_EXPANSION = 24
"""Most that a byte of a snappy block stands for: a copy of 64 bytes takes three."""

CODINGS_MAXIMUM = 3
"""A body may be encoded so many times over."""
ALIASES: Mapping[str, str] = {"x-gzip": "gzip"}

Unpack = Callable[[bytes, int], bytes]


def unpack(body: bytes, encoding: str, allowed: Mapping[str, Unpack], limit_bytes: int) -> bytes:
    """Return a body without its compression.

    Args:
        body: As received.
        encoding: Content-Encoding, lower case.
        allowed: Encoding -> how it is unpacked, "" for none at all.
        limit_bytes: Most that comes out.

    Raises:
        OtherEncoding: The encoding is none of those allowed.
        Rejected(body_too_large, bad_body)
    """
    for coding in reversed(codings(encoding, allowed)):
        body = _unpacked(body, coding, allowed, limit_bytes)
    return body


def codings(encoding: str, allowed: Mapping[str, Unpack], most: int = CODINGS_MAXIMUM) -> tuple[str, ...]:
    """Return the codings that a Content-Encoding lists, in the order in which they were applied.

    Raises:
        OtherEncoding: One of them is not allowed, or there are too many.
    """
    named = (name.strip() for name in encoding.split(","))
    listed = tuple(ALIASES.get(name, name) for name in named if name not in ("", "identity")) or ("",)
    if len(listed) > most or any(name not in allowed for name in listed):
        raise OtherEncoding(f"Content-Encoding {encoding!r} is not taken here", _taken(allowed))
    return listed


def plain(body: bytes, limit_bytes: int) -> bytes:
    """Return a body that is not compressed.

    Raises:
        Rejected(body_too_large)
    """
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    return body


def gunzip(body: bytes, limit_bytes: int) -> bytes:
    """Unpack all members of a gzip body.

    Raises:
        Rejected(body_too_large, bad_body)
    """
    pieces: list[bytes] = []
    held_bytes, rest = 0, body
    while rest or not pieces:
        piece, rest = _member(rest, "gzip", GZIP_WINDOW, limit_bytes - held_bytes)
        held_bytes += len(piece)
        pieces.append(piece)
        rest = rest.lstrip(b"\0")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def inflate(body: bytes, limit_bytes: int) -> bytes:
    """Unpack a deflate body, which has zlib's header.

    Raises:
        Rejected(body_too_large, bad_body)
    """
    unpacked, rest = _member(body, "deflate", ZLIB_WINDOW, limit_bytes)
    if rest:
        raise Rejected("bad_body", "something follows the deflate body")
    return unpacked


def unzstd(body: bytes, limit_bytes: int) -> bytes:
    """Unpack all frames of a zstd body.

    Raises:
        Rejected(body_too_large, bad_body)
    """
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).stream_reader(
            body, read_across_frames=True
        )
        unpacked = reader.read(limit_bytes + 1)
        if len(unpacked) > limit_bytes:
            raise _too_large(limit_bytes)
        _require_whole(body)
    except zstandard.ZstdError as error:
        raise Rejected("bad_body", f"the body is not zstd: {error}", "check Content-Encoding") from error
    return unpacked


def unsnappy(body: bytes, limit_bytes: int) -> bytes:
    """Unpack a snappy block; its own word about its length is checked before anything is allocated.

    Raises:
        Rejected(body_too_large, bad_body)
    """
    declared_bytes = _declared_bytes(body)
    if declared_bytes > limit_bytes:
        message = f"the snappy body says that it holds {declared_bytes} bytes, and the limit is {limit_bytes}"
        raise Rejected("body_too_large", message, "send fewer samples at once")
    if declared_bytes > SNAPPY_EXPANSION * len(body):
        raise Rejected("bad_body", f"{len(body)} bytes of snappy cannot hold {declared_bytes}")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise Rejected("bad_body", f"the body is not a snappy block: {error}", "check Content-Encoding") from error


def _unpacked(body: bytes, coding: str, allowed: Mapping[str, Unpack], limit_bytes: int) -> bytes:
    try:
        return allowed[coding](body, limit_bytes)
    except Rejected as error:
        if error.code == "bad_body" and coding == "snappy" and body.startswith(ZSTD_MAGIC):
            raise OtherEncoding("the body is zstd and its header says snappy", _taken(allowed)) from error
        raise


def _member(body: bytes, encoding: str, window: int, limit_bytes: int) -> tuple[bytes, bytes]:
    """Return what one zlib stream holds, and what follows it."""
    member = zlib.decompressobj(window)
    try:
        piece = member.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise Rejected("bad_body", f"the body is not {encoding}: {error}", "check Content-Encoding") from error
    if len(piece) > limit_bytes:
        raise _too_large(limit_bytes)
    if not member.eof:
        raise Rejected("bad_body", f"the {encoding} body is cut short", "send it again")
    return piece, member.unused_data


def _declared_bytes(body: bytes) -> int:
    length = 0
    for position, byte in enumerate(body[:SNAPPY_LENGTH_BYTES]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return length
    raise Rejected("bad_body", "the snappy body does not begin with its length")


def _require_whole(body: bytes) -> None:
    """Check that no frame is cut; called when it is known that what is inside is within bounds.

    Raises:
        Rejected(bad_body)
    """
    rest = body
    while rest:
        frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()
        frame.decompress(rest)
        if not frame.eof:
            raise Rejected("bad_body", "the zstd body is cut short", "send it again")
        rest = frame.unused_data
    if not body:
        raise Rejected("bad_body", "the zstd body is empty")


def _taken(allowed: Mapping[str, Unpack]) -> str:
    return ", ".join(name for name in allowed if name)


def _too_large(limit_bytes: int) -> Rejected:
    return Rejected(
        "body_too_large", f"the body unpacks to more than {limit_bytes} bytes", "send fewer samples at once"
    )


HTTP_ENCODINGS: Mapping[str, Unpack] = {
    "": plain,
    "gzip": gunzip,
    "zstd": unzstd,
    "deflate": inflate,
}
