"""Frames give back what was put in, in both versions, and their headers can be changed alone."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import Rejected
from secondsight.wire.frame import decode, encode, read_header, restamp, split, stamp_of
from secondsight.wire.header import read_view, renumbered
from secondsight.wire.schema import Definitions
from wire_strategies import same, stamped_contents, stamps

EXAMPLES = 300


@settings(max_examples=EXAMPLES, deadline=None)
@given(stamped_contents(), st.sampled_from([1, 2]))
def test_decode_gives_back_what_was_encoded(item, version):
    round_trip(item, version)


@pytest.mark.soak
@settings(max_examples=50_000, deadline=None)
@given(stamped_contents(), st.sampled_from([1, 2]))
def test_50_000_contents_come_back(item, version):
    round_trip(item, version)


def round_trip(item, version):
    stamp, content = item
    frame = decode(encode(stamp, content, inline=True, version=version), Definitions())
    assert same(frame.content, content)
    assert same(stamp_of(frame.header), stamp)


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(stamped_contents())
def test_definitions_sent_once_read_all_later_frames(item):
    stamp, content = item
    definitions = Definitions()
    with pytest.raises(Rejected) as caught:
        decode(encode(stamp, content), definitions)
    assert caught.value.code == "schema_unknown"
    decode(encode(stamp, content, inline=True), definitions)
    assert same(decode(encode(stamp, content), definitions).content, content)


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(stamped_contents(), stamps())
def test_restamp_changes_the_header_and_no_body_byte(item, other):
    stamp, content = item
    frame = encode(stamp, content, inline=True)
    changed = restamp(
        frame,
        tick_shift_ms=86_400_000,
        spool_id=other.spool_id,
        collector_id=other.collector_id,
        clock_offset_ms=other.clock_offset_ms,
        live=other.live,
    )
    before, after = read_header(frame), read_header(changed)
    assert changed[after.body_start :] == frame[before.body_start :]
    expected = replace(
        before.header,
        tick_times_ms=stamp.tick_times_ms + 86_400_000,
        spool_id=other.spool_id,
        collector_id=other.collector_id,
        clock_offset_ms=other.clock_offset_ms,
        live=other.live,
    )
    assert same(after.header, expected)
    assert same(decode(changed, Definitions()).content, content)


@settings(max_examples=EXAMPLES // 6, deadline=None)
@given(st.lists(stamped_contents(), max_size=4))
def test_split_finds_every_frame_of_a_body(items):
    frames = [encode(*item, inline=True) for item in items]
    heads = split(b"".join(frames))
    assert [head.end - head.start for head in heads] == [len(frame) for frame in frames]
    body = b"".join(frames)
    for head, (_, content) in zip(heads, items, strict=True):
        assert same(decode(body, Definitions(), head.start).content, content)


@settings(max_examples=EXAMPLES // 6, deadline=None)
@given(stamped_contents(), st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.booleans())
def test_renumbered_is_restamped_without_reading(item, spool_id, sequence, live):
    frame = encode(*item)
    changed = renumbered(frame, read_view(frame), spool_id=spool_id, sequence=sequence, live=live)
    assert changed == restamp(frame, spool_id=spool_id, first_sequence=sequence, last_sequence=sequence, live=live)
    behind = b"before" + frame + b"behind"
    assert renumbered(behind, read_view(behind, 6), spool_id=spool_id, sequence=sequence, live=live) == changed
