"""Random lives of spools against a model: whatever happens, every record is owed, settled or declared, exactly once."""

import re
from collections import defaultdict
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.errors import SecondsightError
from secondsight.log.record import HEADER_BYTES
from secondsight.model import Priority
from spool_rig import KINDS, Rig, added, counted, frame, lost, totals

CLASSES = st.sampled_from(list(Priority))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), CLASSES, st.lists(st.integers(1, 900), min_size=1, max_size=3)),
        st.tuples(st.just("settle"), CLASSES, st.integers(1, 12)),
        st.tuples(st.just("settle_ahead"), CLASSES, st.tuples(st.integers(0, 30), st.integers(1, 6))),
        st.tuples(st.just("reopen"), CLASSES, st.just(0)),
        st.tuples(st.just("full"), CLASSES, st.integers(0, 3000)),
        st.tuples(st.just("space"), CLASSES, st.just(0)),
        st.tuples(st.just("report"), CLASSES, st.just(0)),
        st.tuples(st.just("expire"), CLASSES, st.integers(1, 40)),
        st.tuples(st.just("damage"), CLASSES, st.integers(0, 1 << 20)),
    ),
    max_size=40,
)


class Life:
    """Spools and what they must say."""

    def __init__(self, folder):
        self.rig = Rig(folder, SpoolBounds(60_000, max_age_seconds=600))
        self.offered = defaultdict(list)
        self.settled = defaultdict(set)
        self.kept = defaultdict(dict)
        self.declared = {}
        self.number = 0

    def append(self, priority, sizes):
        frames = []
        for size in sizes:
            self.number += 1
            frames.append(frame(self.number, size, KINDS[self.number % 2]))
        self.offered[priority] += frames
        first = self.rig.member(priority).spool.next_sequence
        try:
            self.rig.append(*frames, priority=priority)
        except SecondsightError:
            assert self.rig.member(priority).spool.next_sequence == first
            return
        self.kept[priority].update(enumerate(frames, first))

    def settle(self, priority, count):
        records = self.rig.spools.read(self.rig.member(priority), count, 1 << 20)
        if records:
            self._settle(priority, records[0].sequence, records[-1].sequence + 1, records)

    def settle_ahead(self, priority, place):
        skip, count = place
        start = self.rig.member(priority).spool.first_owed + skip
        records = self.rig.spools.read(self.rig.member(priority), count, 1 << 20, start)
        if records:
            self._settle(priority, records[0].sequence, records[-1].sequence + 1, records)

    def _settle(self, priority, first, end, records):
        self.rig.spools.settle(self.rig.member(priority), first, end)
        self.settled[priority].update(record.sequence for record in records)

    def reopen(self, _priority, _value):
        free, self.rig.disk.free_bytes = self.rig.disk.free_bytes, None
        self.rig.reopen()
        self.rig.disk.free_bytes = free

    def full(self, _priority, free_bytes):
        self.rig.disk.free_bytes = free_bytes

    def space(self, _priority, _value):
        self.rig.disk.free_bytes = None

    def report(self, _priority, _value):
        self.declared = added(self.declared, lost(self.rig.take_losses()))

    def expire(self, _priority, seconds):
        self.rig.clock.move(10 * seconds)
        self.rig.spools.tend()

    def damage(self, priority, place):
        paths = sorted(self.rig.folder_of(priority).glob("*.log"))
        raw = bytearray(paths[place % len(paths)].read_bytes()) if paths else b""
        if raw:
            raw[place % len(raw)] ^= 0x5A
            paths[place % len(paths)].write_bytes(raw)

    def check(self, *, is_damaged):
        owed = {}
        for priority in Priority:
            records = self.rig.spools.read(self.rig.member(priority), 10_000, 1 << 24)
            for record in records:
                assert record.sequence not in self.settled[priority]
                assert record.payload == self.kept[priority][record.sequence]
            owed = added(owed, counted([record.payload for record in records], priority))
        assert self.rig.spools.size_bytes <= 60_000
        settled = [
            counted([self.kept[priority][sequence] for sequence in self.settled[priority]], priority)
            for priority in Priority
        ]
        offered = added(*(counted(self.offered[priority], priority) for priority in Priority))
        declared = added(self.declared, lost(self.rig.losses()))
        assert totals(self.rig.spools.in_flight) == owed
        if is_damaged:
            assert sum(f[0] for f in added(owed, declared, *settled).values()) == sum(f[0] for f in offered.values())
            return
        assert added(owed, declared, *settled) == offered
        spooled = added(*(counted(self.kept[priority].values(), priority) for priority in Priority))
        assert totals(self.rig.spools.spooled) == spooled


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_every_record_is_owed_settled_or_declared_exactly_once(tmp_path_factory, steps):
    live(tmp_path_factory.mktemp("life") / "spool", [step for step in steps if step[0] != "damage"])


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_so_it_is_when_bytes_are_flipped(tmp_path_factory, steps):
    live(tmp_path_factory.mktemp("life") / "spool", [step for step in steps if step[0] not in ("full", "expire")])


@pytest.mark.parametrize("reopens", [False, True], ids=["running", "reopened"])
@pytest.mark.parametrize(("first", "second"), list(permutations(range(3), 2)))
def test_neighbours_that_are_found_damaged_one_after_the_other_are_not_owed(tmp_path, first, second, reopens):
    life = Life(tmp_path / "spool")
    life.append(Priority.P0, [1, 2, 3])
    (path,) = life.rig.folder_of(Priority.P0).glob("*.log")
    raw = path.read_bytes()
    starts = [found.start() for found in re.finditer(rb"SSLR", raw)]
    for record in (first, second):
        raw = bytearray(path.read_bytes())
        raw[starts[record] + HEADER_BYTES] ^= 0x5A
        path.write_bytes(raw)
        life.check(is_damaged=True)
        if reopens:
            life.reopen(Priority.P0, 0)
    life.check(is_damaged=True)
    life.rig.spools.close()


def live(folder, steps):
    life = Life(folder)
    is_damaged = False
    for name, priority, value in steps:
        life.rig.clock.move(1)
        getattr(life, name)(priority, value)
        is_damaged |= name == "damage"
        life.check(is_damaged=is_damaged)
    life.rig.spools.close()
