"""Damaged files and failing disks cost the damaged records and nothing else."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_faults import FaultyDisk
from secondsight.clock import ManualClock
from secondsight.errors import Retryable
from secondsight.log.embedded import EmbeddedConsumer, EmbeddedLogWriter, LogConfig
from secondsight.log.record import HEADER_BYTES, pack_record
from secondsight.log.segments import SegmentConfig, segment_bases, segment_path
from secondsight.log.tail import Tail, end_offsets

CONFIG = LogConfig(SegmentConfig(max_bytes=1000))
VALUES = [str(number).encode() * 20 for number in range(50)]


@pytest.fixture
def clock():
    return ManualClock()


def open_writer(root, clock, disk=None):
    return EmbeddedLogWriter(root, "t", 1, clock, CONFIG, disk)


def fill(root, clock, values=VALUES):
    writer = open_writer(root, clock)
    for value in values:
        writer.append([(b"k", value)])
    writer.close()
    return root / "t" / "0"


def read_all(root, clock):
    """Return (values, damaged) of the whole topic."""
    tail = Tail(root, "t", clock, {})
    values, damaged = [], 0
    while (polled := tail.poll(1 << 20, 0)).records or polled.damaged:
        values += [record.value for record in polled.records]
        damaged += polled.damaged
    tail.close()
    return values, damaged


def flip(path, position):
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(raw)


def test_a_flipped_payload_byte_costs_one_record(tmp_path, clock):
    folder = fill(tmp_path, clock)
    flip(segment_path(folder, segment_bases(folder)[2]), HEADER_BYTES + 3)
    values, damaged = read_all(tmp_path, clock)
    assert (len(values), damaged) == (49, 1)
    assert values == [value for value in VALUES if value in values]


def test_a_flipped_header_byte_costs_one_record(tmp_path, clock):
    folder = fill(tmp_path, clock)
    flip(segment_path(folder, segment_bases(folder)[2]), 5)
    values, damaged = read_all(tmp_path, clock)
    assert (len(values), damaged) == (49, 1)


def test_an_impossible_length_does_not_stop_the_reader(tmp_path, clock):
    folder = fill(tmp_path, clock)
    path = segment_path(folder, segment_bases(folder)[1])
    raw = bytearray(path.read_bytes())
    raw[4:8] = b"\xff\xff\xff\xff"
    path.write_bytes(raw)
    assert len(read_all(tmp_path, clock)[0]) == 49


def test_a_segment_cut_in_the_middle_costs_its_end(tmp_path, clock):
    folder = fill(tmp_path, clock)
    path = segment_path(folder, segment_bases(folder)[1])
    path.write_bytes(path.read_bytes()[:100])
    values, damaged = read_all(tmp_path, clock)
    assert len(values) + damaged == 50
    assert damaged < 20
    fill(tmp_path, clock, [b"more"])
    assert read_all(tmp_path, clock) == ([*values, b"more"], damaged)


def test_an_unreadable_segment_is_set_aside_and_counted(tmp_path, clock):
    folder = fill(tmp_path, clock)
    base = segment_bases(folder)[1]
    path = segment_path(folder, base)
    garbage = b"\x00" * path.stat().st_size
    path.write_bytes(garbage)
    writer = open_writer(tmp_path, clock)
    assert writer.recoveries[0].quarantined == 1
    writer.close()
    assert [item.read_bytes() for item in folder.glob("*.quarantine")] == [garbage]
    values, damaged = read_all(tmp_path, clock)
    assert len(values) + damaged == 50


def test_a_torn_end_is_cut_and_its_offset_used_again(tmp_path, clock):
    folder = fill(tmp_path, clock)
    path = segment_path(folder, segment_bases(folder)[-1])
    with path.open("ab") as file:
        file.write(pack_record(50, 0, b"never acknowledged")[:40])
    writer = open_writer(tmp_path, clock)
    assert writer.recoveries[0].cut_bytes == 40
    writer.append([(b"k", b"next")])
    writer.close()
    assert read_all(tmp_path, clock) == ([*VALUES, b"next"], 0)


def test_damage_of_what_was_committed_is_never_cut(tmp_path, clock):
    folder = fill(tmp_path, clock)
    path = segment_path(folder, segment_bases(folder)[-1])
    size = path.stat().st_size
    flip(path, size - len(VALUES[-1]) - 3)
    writer = open_writer(tmp_path, clock)
    assert writer.recoveries[0].cut_bytes == 0
    writer.append([(b"k", b"next")])
    writer.close()
    assert path.stat().st_size == size
    assert read_all(tmp_path, clock) == ([*VALUES[:-1], b"next"], 1)


@pytest.mark.parametrize("content", [b"", b"{", b"\x00" * 8192, b"x" * 8192])
def test_lost_metadata_loses_no_record(tmp_path, clock, content):
    folder = fill(tmp_path, clock)
    (folder / "committed").write_bytes(content)
    fill(tmp_path, clock, [b"next"])
    assert read_all(tmp_path, clock) == ([*VALUES, b"next"], 0)


def test_empty_files_are_fine(tmp_path, clock):
    folder = fill(tmp_path, clock)
    for base in (60, 70):
        segment_path(folder, base).touch()
    fill(tmp_path, clock, [b"next"])
    values, _ = read_all(tmp_path, clock)
    assert values == [*VALUES, b"next"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_costs_only_what_it_touches(tmp_path_factory, data):
    clock, root = ManualClock(), tmp_path_factory.mktemp("log")
    folder = fill(root, clock)
    for _ in range(data.draw(st.integers(1, 3))):
        path = segment_path(folder, data.draw(st.sampled_from(segment_bases(folder)[:-1])))
        raw = bytearray(path.read_bytes())
        start = data.draw(st.integers(0, len(raw)))
        match data.draw(st.sampled_from(["flip", "cut", "overwrite", "insert"])):
            case "flip":
                raw[start : start + 1] = bytes(byte ^ 1 for byte in raw[start : start + 1])
            case "cut":
                del raw[start:]
            case "overwrite":
                raw[start : start + 30] = data.draw(st.binary(min_size=30, max_size=30))
            case "insert":
                raw[start:start] = data.draw(st.binary(max_size=100))
        path.write_bytes(raw)
    before, damaged = read_all(root, clock)
    assert len(before) + damaged == len(VALUES)
    assert before == [value for value in VALUES if value in set(before)]
    fill(root, clock, [b"next"])
    after, damaged_after = read_all(root, clock)
    assert (after, damaged_after) == ([*before, b"next"], damaged)


def test_a_full_disk_refuses_and_leaves_the_log_as_it_was(tmp_path, clock):
    disk = FaultyDisk(free_bytes=20_000)
    writer = open_writer(tmp_path, clock, disk)
    writer.append([(b"k", b"before")])
    end = end_offsets(tmp_path, "t")
    disk.free_bytes = 50
    with pytest.raises(Retryable):
        writer.append([(b"k", bytes(500))])
    assert end_offsets(tmp_path, "t") == end
    disk.free_bytes = 10_000
    writer.append([(b"k", b"after")])
    writer.close()
    assert read_all(tmp_path, clock) == ([b"before", b"after"], 0)


@pytest.mark.parametrize("truncate_fails", [False, True])
def test_after_a_failed_sync_the_segment_is_left(tmp_path, clock, truncate_fails):
    disk = FaultyDisk()
    writer = open_writer(tmp_path, clock, disk)
    writer.append([(b"k", b"before")])
    disk.fail_sync, disk.fail_truncate = True, truncate_fails
    with pytest.raises(Retryable):
        writer.append([(b"k", b"unsure")])
    disk.fail_sync = disk.fail_truncate = False
    writer.append([(b"k", b"after")])
    assert len(segment_bases(tmp_path / "t" / "0")) == 2
    assert read_all(tmp_path, clock) == ([b"before", b"after"], 0)
    writer.close()
    fill(tmp_path, clock, [b"later"])
    assert read_all(tmp_path, clock) == ([b"before", b"after", b"later"], 0)


def test_a_failed_sync_of_a_first_record_is_survived(tmp_path, clock):
    disk = FaultyDisk()
    writer = open_writer(tmp_path, clock, disk)
    disk.fail_sync = True
    with pytest.raises(Retryable):
        writer.append([(b"k", b"unsure")])
    disk.fail_sync = False
    writer.append([(b"k", b"after")])
    writer.close()
    assert read_all(tmp_path, clock)[0] == [b"after"]


def test_committing_needs_no_space(tmp_path, clock):
    fill(tmp_path, clock)
    disk = FaultyDisk()
    consumer = EmbeddedConsumer(tmp_path, "t", "g", clock, disk)
    consumer.poll(1 << 20, 0)
    disk.free_bytes = 0
    for offset in range(1, 51):
        consumer.commit({0: offset})
    consumer.close()
    again = EmbeddedConsumer(tmp_path, "t", "g", clock)
    assert again.poll(1 << 20, 0).records == ()
    again.close()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_cursor_falls_back_to_the_one_before(tmp_path, clock, slot):
    fill(tmp_path, clock)
    consumer = EmbeddedConsumer(tmp_path, "t", "g", clock)
    consumer.poll(1 << 20, 0)
    for offset in (10, 20):
        consumer.commit({0: offset})
    consumer.close()
    path = tmp_path / "t" / "groups" / "g.cursor"
    flip(path, slot * 4096 + 20)
    again = EmbeddedConsumer(tmp_path, "t", "g", clock)
    assert again.poll(1, 0).records[0].offset in (10, 20)
    again.close()


class BrokenClock(ManualClock):
    """Fails as no clock should, in the middle of a commit."""

    broken = False

    def now_ms(self):
        if self.broken:
            raise ZeroDivisionError
        return super().now_ms()


def test_a_bug_in_a_commit_acknowledges_nothing(tmp_path):
    clock = BrokenClock()
    writer = open_writer(tmp_path, clock)
    outcomes = []

    def append(value):
        try:
            writer.append([(b"k", value)])
            outcomes.append("acknowledged")
        except (Retryable, ZeroDivisionError):
            outcomes.append("refused")

    clock.broken = True
    threads = [threading.Thread(target=append, args=(str(number).encode(),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["refused"] * 6
    clock.broken = False
    append(b"after")
    writer.close()
    assert outcomes[-1] == "acknowledged"
    assert read_all(tmp_path, clock) == ([b"after"], 0)
