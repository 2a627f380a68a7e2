"""Ticks held for company: one frame of several ticks, nothing lost at a bad end, nothing waits for ever."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import process_rig
from agent_fixture import SCHEMA, block_of, content_of, table_of
from secondsight.agent.client.offset import ClockOffset, Exchange
from secondsight.agent.counts import Counts
from secondsight.agent.ship.lanes import LaneConfig, Lanes
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.hold import HeldTicks
from secondsight.agent.write.journal import Journal
from secondsight.agent.write.record import pack, unpack
from secondsight.agent.write.split import Splitter
from secondsight.agent.write.writer import Keeping, Sender, TickWriter
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.wire.content import Content, Event, Frame
from secondsight.wire.frame import decode
from secondsight.wire.header import Stamp
from secondsight.wire.schema import Definitions, named_entities, named_schema
from wire_strategies import contents, same, stamps

START_MS = 1_700_000_000_000


class Reader:
    name = "host"
    interval_ms = 1000

    def read(self, tick_ms: int) -> Tick:  # noqa: ARG002 - a name is all that is wanted of it
        return Tick(())

    def close(self) -> None: ...


class Rig:
    """What holds ticks, over a real spool; `die` drops it as the end of the process does."""

    def __init__(self, folder: Path, hold_seconds: float = 5.0) -> None:
        self.folder = folder
        self.hold_seconds = hold_seconds
        self.clock = ManualClock(START_MS)
        self.counts = Counts()
        self.offset = ClockOffset()
        self.begin()

    def begin(self) -> None:
        self.spools = Spools(self.folder, SpoolBounds(8 << 20), self.clock, self.counts)
        self.definitions = KeptDefinitions(self.folder / "definitions", self.clock)
        keeping = Keeping(self.spools, self.definitions, Splitter(load_catalog()))
        writer = TickWriter(Sender("host-1", "host-1", ""), keeping, self.offset, self.clock, self.counts)
        self.journal = Journal(self.folder, self.counts)
        self.held = HeldTicks(writer, self.journal, self.clock, self.hold_seconds)
        self.held.recover(self.definitions.known)

    def die(self) -> None:
        self.spools.close()
        self.journal.close()

    def take(self, value: int, content: Content | None = None) -> None:
        """Write the tick of this second, then let it pass."""
        tick = Tick((content or content_of(value),))
        self.held.write(Reader(), self.clock.now_ms(), tick)
        self.clock.move(1.0)

    def frames(self) -> list[Frame]:
        records = [record for member in self.spools.members for record in self.spools.read(member, 1000, 1 << 24)]
        return [decode(record.payload, self.definitions.known) for record in records]

    def rows(self) -> list[tuple[int, int]]:
        """Return (seconds since the start, value) of every row, frame by frame."""
        found = []
        for frame in self.frames():
            block = frame.content.scalars
            if block is None:
                continue
            times = frame.header.tick_times_ms[block.tick_index].tolist()
            found += [((at - START_MS) // 1000, int(v)) for at, v in zip(times, block.groups[0].values[0], strict=True)]
        return found


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.die()


def test_ticks_become_one_frame_when_they_are_due(rig: Rig) -> None:
    waits = []
    for value in range(5):
        rig.take(value)
        waits.append(rig.held.write_due())
    assert waits == [4.0, 3.0, 2.0, 5.0, 4.0]
    (frame,) = rig.frames()
    assert frame.header.tick_times_ms.tolist() == [START_MS + 1000 * second for second in range(4)]
    assert rig.rows() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    rig.held.close()
    assert rig.rows()[4:] == [(4, 4)]


def test_what_is_not_alike_is_a_frame_of_its_own(rig: Rig) -> None:
    rig.take(1)
    rig.take(2, Content(SCHEMA, table_of("another"), block_of(2)))
    rig.take(3)
    rig.offset.learn(Exchange(START_MS + 7000, START_MS, START_MS, START_MS + 7000), 0.0)
    rig.take(4)
    rig.clock.step_wall(-3600.0)
    rig.take(5)
    rig.held.flush()
    assert sorted(frame.header.tick_times_ms.size for frame in rig.frames()) == [1, 1, 1, 2]
    assert sorted(rig.rows()) == [(-3596, 5), (0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_clock_that_stands_still_makes_two_frames_of_one_instant(rig: Rig) -> None:
    for value in (1, 2):
        rig.held.write(Reader(), START_MS, Tick((content_of(value),)))
    rig.held.flush()
    assert rig.rows() == [(0, 1), (0, 2)]
    assert len(rig.frames()) == 2


def test_events_wait_for_nothing_and_take_along_what_waits(rig: Rig) -> None:
    rig.take(1)
    event = Event("node_boot", "host-1", "", START_MS, 0)
    rig.take(2, replace(content_of(2), events=(event,)))
    assert rig.rows() == [(0, 1), (1, 2)]
    assert [event for frame in rig.frames() for event in frame.content.events] == [event]


def test_when_nobody_ships_later_ticks_write(rig: Rig) -> None:
    for value in range(20):
        rig.take(value)
    assert len(rig.rows()) >= 12
    assert rig.held.ticks <= 8


def test_without_time_to_hold_every_tick_is_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path, hold_seconds=0.0)
    rig.take(1)
    assert rig.rows() == [(0, 1)]
    rig.die()


def test_a_bad_end_costs_nothing_that_was_held(rig: Rig) -> None:
    for value in range(3):
        rig.take(value)
    rig.die()
    rig.begin()
    assert rig.rows() == [(0, 0), (1, 1), (2, 2)]
    rig.take(3)
    rig.die()
    rig.begin()
    assert rig.rows() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    rig.held.flush()
    rig.die()
    rig.begin()
    assert len(rig.rows()) == 4


def test_a_bad_end_between_two_turns_of_the_journal(rig: Rig) -> None:
    rig.take(1)
    rig.held._journal.spooled = lambda _number: None  # the end comes before the file is emptied
    rig.held.flush()
    rig.take(2)
    rig.die()
    rig.begin()
    assert sorted(rig.rows()) == [(0, 1), (1, 2)]


def test_a_journal_cut_anywhere_gives_what_is_whole(rig: Rig, tmp_path: Path) -> None:
    for value in range(2):
        rig.take(value)
    raw = (tmp_path / "held-0").read_bytes()
    for size in range(len(raw)):
        journal = Journal(tmp_path, Counts())
        (tmp_path / "held-0").write_bytes(raw[:size])
        found = journal.recover(rig.definitions.known)
        assert len(found) == (0 if size < len(raw) // 2 else 1)
    for place in range(0, len(raw), 7):
        flipped = bytearray(raw)
        flipped[place] ^= 0x40
        (tmp_path / "held-0").write_bytes(flipped)
        assert len(Journal(tmp_path, Counts()).recover(rig.definitions.known)) < 2


def test_definitions_that_are_lost_cost_their_ticks_alone(rig: Rig, tmp_path: Path) -> None:
    rig.take(1)
    counts = Counts()
    assert Journal(tmp_path, counts).recover(Definitions()) == []
    assert counts.get("journal_unreadable") == 1


def test_a_journal_that_cannot_be_written_leaves_ticks_in_memory(rig: Rig, tmp_path: Path) -> None:
    rig.held._journal = Journal(tmp_path / "no" / "such" / "folder", rig.counts)
    rig.take(1)
    rig.held.flush()
    assert rig.rows() == [(0, 1)]
    assert rig.counts.get("journal_failed") == 1


def test_a_journal_deleted_under_the_agent_is_made_anew(rig: Rig, tmp_path: Path) -> None:
    rig.take(1)
    (tmp_path / "held-0").unlink()
    rig.take(2)
    rig.die()
    rig.begin()
    assert rig.rows() == [(1, 2)]


@st.composite
def held(draw: st.DrawFn) -> tuple[Stamp, Content]:
    stamp = draw(stamps(max_ticks=0))
    plain = {"spool_id": 0, "first_sequence": 0, "last_sequence": 0}
    stamp = replace(stamp, tick_times_ms=np.array([draw(st.integers(0, 2**45))], np.int64), **plain)
    return stamp, replace(draw(contents(1)), events=(), infos=())


@given(held())
def test_what_is_packed_is_unpacked(one: tuple[Stamp, Content]) -> None:
    stamp, content = one
    known = Definitions()
    known.add(named_schema(content.schema).blob)
    known.add(named_entities(content.entities).blob)
    record = pack(stamp, content)
    found = unpack(record, known)
    assert same(found[0], stamp)
    assert same(found[1].scalars, content.scalars)
    assert same(found[1].histograms, content.histograms)
    with pytest.raises(Rejected):
        unpack(record[:-1], known)


def test_what_was_held_at_a_bad_end_is_not_overtaken_unmarked(rig: Rig) -> None:
    both = {("GPU-a", "", 0): {"gpu_power_watts": 1, "gpu_pcie_correctable_errors_total": 1}}
    for _ in range(4):
        rig.take(0, process_rig.content_of(both, ticks=[0]))
    rig.die()
    rig.clock.move(60.0)
    rig.begin()
    for _ in range(6):
        rig.take(0, process_rig.content_of(both, ticks=[0]))
    rig.held.close()
    lanes = Lanes(rig.spools, rig.clock, LaneConfig(batch_seconds=0.0))
    watermark_ms, ticks = 0, 0
    while (turn := lanes.next(1 << 20)).loads:
        for load in turn.loads:
            for record in load.records:
                times = decode(record.payload, rig.definitions.known).header.tick_times_ms.tolist()
                assert times[0] >= watermark_ms
                ticks += len(times)
                watermark_ms = watermark_ms if load.is_live else max(watermark_ms, times[-1] - 10_000)
        lanes.delivered(turn)
    assert ticks == 2 * 10
