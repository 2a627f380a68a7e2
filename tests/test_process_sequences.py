"""The memory of frames is bounded, and what it holds was there."""

import random

from hypothesis import given
from hypothesis import strategies as st

from secondsight.process.sequences import DIGEST_BYTES, Seen


def key(spool, number):
    return ("t", "k", "c", spool), number.to_bytes(DIGEST_BYTES, "little")


def test_the_newest_frames_of_each_spool_are_remembered():
    seen = Seen(spools=4, frames=8)
    for number in range(100):
        assert key(1, number) not in seen
        seen.add(key(1, number))
        seen.add(key(2, 1000 + number))
    assert all(key(1, number) in seen for number in range(92, 100))
    assert key(1, 50) not in seen
    assert key(2, 99) not in seen


def test_spools_that_come_daily_do_not_grow_it():
    seen = Seen(spools=16, frames=4)
    for spool in range(10_000):
        seen.add(key(spool, 7))
        seen.add(key("busy", spool))
        assert key("busy", spool) in seen
        assert key(spool, 7) in seen
    assert len(seen) <= 2 * 17


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, (1 << 64) - 1)), max_size=300), st.integers(0, 99))
def test_nothing_is_remembered_that_was_not_there(frames, seed):
    seen, added = Seen(spools=3, frames=4), set()
    chance = random.Random(seed)
    for spool, number in frames:
        each = key(spool, number & 0xFF if chance.random() < 0.5 else number)
        if each in seen:
            assert each in added
        seen.add(each)
        added.add(each)
