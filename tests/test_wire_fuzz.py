"""No bytes make the wire do anything but return or refuse, in bounded memory; what it returns can be sent again."""

import random
import tracemalloc
from dataclasses import replace

import google_crc32c
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import Rejected
from secondsight.wire import blocks
from secondsight.wire.envelope import decode_envelope
from secondsight.wire.frame import FrameHead, Limits, decode, encode, read_header, split, stamp_of
from secondsight.wire.header import write_header
from secondsight.wire.schema import Definitions, definition_hash
from wire_strategies import same, stamped_contents

MUTATIONS = 40
CODES = {
    "truncated",
    "bad_frame",
    "unsupported_version",
    "frame_too_large",
    "bad_checksum",
    "schema_unknown",
    "bad_schema",
}


def try_decode(frame: bytes):
    """Decode; return the frame or None when it was refused as it should be."""
    try:
        split(frame)
        return decode(frame, Definitions())
    except Rejected as error:
        if error.code not in CODES:
            raise
        return None


def require_sendable(frame: bytes) -> None:
    """Whatever was accepted must survive being sent on."""
    accepted = try_decode(frame)
    if accepted is not None:
        again = decode(encode(stamp_of(accepted.header), accepted.content, inline=True), Definitions())
        assert same(again.content, accepted.content)
        assert same(stamp_of(again.header), stamp_of(accepted.header))


def mutate(choose: random.Random, raw: bytes) -> bytes:
    """Change a few bytes, or cut, repeat or insert some."""
    data = bytearray(raw)
    for _ in range(choose.randint(1, 3)):
        start = choose.randrange(len(data) + 1)
        match choose.randrange(6):
            case 0 | 1:
                data[start : start + 1] = bytes([choose.choice([0, 1, 2, 127, 128, 255, choose.randrange(256)])])
            case 2:
                data[start : start + 4] = choose.choice([b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f"])
            case 3:
                del data[start : start + choose.randint(1, 8)]
            case 4:
                data[start:start] = data[start : start + choose.randint(1, 16)]
            case 5:
                data[start:start] = choose.randbytes(choose.randint(1, 8))
    return bytes(data)


def mutate_block(choose: random.Random, raw: bytes) -> bytes:
    """Mutate the data of one block and make its length right again."""
    pieces = [(piece.kind, piece.rest()) for piece in blocks.split_blocks(raw)]
    chosen = choose.randrange(len(pieces))
    return b"".join(
        blocks.pack_block(kind, mutate(choose, data) if index == chosen else data)
        for index, (kind, data) in enumerate(pieces)
    )


def with_body(head: FrameHead, raw: bytes) -> bytes:
    """Return a frame with another body, its lengths, checksums and definition hashes made right again."""
    header = head.header
    try:
        for piece in blocks.split_blocks(raw):
            if piece.kind == blocks.SCHEMA:
                header = replace(header, schema_hash=definition_hash(piece.rest()))
            elif piece.kind == blocks.ENTITIES:
                header = replace(header, entities_hash=definition_hash(piece.rest()))
    except Rejected:
        pass
    body = zstandard.compress(raw, 1)
    crc = google_crc32c.value(body)
    return write_header(replace(head, header=header, body_bytes=len(body), raw_bytes=len(raw), body_crc=crc)) + body


def with_header(frame: bytes, header: bytes, old_bytes: int) -> bytes:
    """Return a frame whose header is replaced and its checksum made right again."""
    crc = google_crc32c.value(header[:20] + bytes(4) + header[24:])
    return header[:20] + crc.to_bytes(4, "little") + header[24:] + frame[old_bytes:]


def mutations(item, seed: int, version: int) -> None:
    """Mutate one frame in every place, many times."""
    choose = random.Random(seed)
    frame = encode(*item, inline=True, version=version)
    head = read_header(frame)
    raw = zstandard.decompress(frame[head.body_start :])
    for _ in range(MUTATIONS):
        require_sendable(mutate(choose, frame))
        require_sendable(with_body(head, mutate(choose, raw)))
        require_sendable(with_body(head, mutate_block(choose, raw)))
        header = mutate(choose, frame[: head.header_bytes])
        require_sendable(with_header(frame, header, head.header_bytes))


def random_bytes(data: bytes) -> None:
    assert data == b"" or try_decode(data) is None
    assert try_decode(b"SSFR\x02" + data) is None


fuzzed = (stamped_contents(), st.integers(0, 2**32), st.sampled_from([1, 2]))
binaries = st.binary(max_size=300)

test_mutated_frames_are_read_or_refused = settings(max_examples=15, deadline=None)(given(*fuzzed)(mutations))
test_random_bytes_are_refused = settings(max_examples=1000, deadline=None)(given(binaries)(random_bytes))


@pytest.mark.soak
@settings(max_examples=1_250, deadline=None)
@given(*fuzzed)
def test_200_000_mutated_frames_are_read_or_refused(item, seed, version):
    mutations(item, seed, version)


@pytest.mark.soak
@settings(max_examples=200_000, deadline=None)
@given(binaries)
def test_200_000_random_bytes_are_refused(data):
    random_bytes(data)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=100))
def test_random_envelopes_are_refused(data):
    for value in (data, b"SE\x01\x01" + data):
        try:
            decode_envelope(value)
        except Rejected as error:
            if error.code != "bad_envelope":
                raise


@settings(max_examples=20, deadline=None)
@given(stamped_contents())
def test_every_cut_of_a_frame_is_refused(item):
    frame = encode(*item, inline=True)
    for end in range(len(frame)):
        assert try_decode(frame[:end]) is None


def bombs(head: FrameHead):
    """Frames that promise or hide much."""
    zeros = bytes(65 << 20)
    body = zstandard.compress(zeros, 1)
    streaming = zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    for data, raw_bytes in (
        (body, len(zeros)),
        (body, 100),
        (streaming, 100),
        (streaming, 64 << 20),
        (body + body, 100),
    ):
        crc = google_crc32c.value(data)
        changed = replace(head, body_bytes=len(data), raw_bytes=raw_bytes, body_crc=crc)
        yield write_header(changed) + data


@settings(max_examples=1, deadline=None)
@given(stamped_contents())
def test_bombs_are_refused_before_they_are_unpacked(item):
    for frame in list(bombs(read_header(encode(*item, inline=True)))):
        tracemalloc.start()
        assert try_decode(frame) is None
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 1 << 20


@pytest.mark.parametrize(("field", "value"), [("max_frame_bytes", 100), ("max_raw_bytes", 10), ("max_ticks", -1)])
def test_limits_are_kept(field, value):
    @settings(max_examples=5, deadline=None)
    @given(stamped_contents())
    def check(item):
        limits = replace(Limits(), **{field: value})
        with pytest.raises(Rejected) as caught:
            decode(encode(*item, inline=True), Definitions(), limits=limits)
        assert caught.value.code == "frame_too_large"

    check()
