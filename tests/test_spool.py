"""The spool gives back what was appended until it is acknowledged, inside its bound, and declares every loss."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_faults import FaultyDisk
from secondsight.agent.spool import DropReason, Spool
from secondsight.clock import ManualClock
from secondsight.errors import Permanent, Retryable
from secondsight.log.segments import segment_bases, segment_path

MAX_BYTES = 256 << 10


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def spool(tmp_path, clock):
    opened = Spool(tmp_path / "spool", MAX_BYTES, clock)
    yield opened
    opened.close()


def open_files():
    """Return what this process has open, files deleted meanwhile included."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def payloads(spool, start=None):
    return [record.payload for record in spool.read(1000, 1 << 20, start)]


def test_records_come_back_in_order_until_acknowledged(spool):
    assert list(spool.append_many([b"a", b"b", b"c"])) == [0, 1, 2]
    assert spool.append(b"d") == 3
    assert payloads(spool) == [b"a", b"b", b"c", b"d"]
    spool.ack(1)
    assert payloads(spool) == [b"c", b"d"]
    assert payloads(spool, start=3) == [b"d"]
    spool.ack(0)
    assert spool.records == 2
    assert spool.drops() == ()


def test_reads_are_bounded(spool):
    spool.append_many([bytes([number]) * 100 for number in range(10)])
    assert len(spool.read(3, 1 << 20)) == 3
    assert len(spool.read(100, 300)) == 2
    assert len(spool.read(100, 1)) == 1


def test_a_restart_keeps_id_records_and_sequence(tmp_path, clock):
    first = Spool(tmp_path / "s", MAX_BYTES, clock)
    first.append_many([b"a", b"b"])
    first.ack(0)
    first.close()
    first.close()
    second = Spool(tmp_path / "s", MAX_BYTES, clock)
    assert second.spool_id == first.spool_id
    assert second.append(b"c") == 2
    assert payloads(second) == [b"b", b"c"]
    second.close()


def test_the_sequence_goes_on_after_everything_was_acknowledged(tmp_path, clock):
    first = Spool(tmp_path / "s", MAX_BYTES, clock)
    first.append_many([b"a", b"b"])
    first.ack(1)
    assert first.size_bytes == 0
    first.close()
    second = Spool(tmp_path / "s", MAX_BYTES, clock)
    assert (second.spool_id, second.append(b"c")) == (first.spool_id, 2)
    assert payloads(second) == [b"c"]
    second.close()


@pytest.mark.parametrize("wipe", ["everything", "segments", "cursor"])
def test_a_wiped_spool_gets_another_id(tmp_path, clock, wipe):
    first = Spool(tmp_path / "s", MAX_BYTES, clock)
    first.append(b"a")
    first.close()
    patterns = {"everything": "*", "segments": "*.log", "cursor": "cursor"}
    for path in (tmp_path / "s").glob(patterns[wipe]):
        path.unlink()
    second = Spool(tmp_path / "s", MAX_BYTES, clock)
    assert second.spool_id != first.spool_id
    second.close()


def test_one_process_at_a_time(tmp_path, clock, spool):
    with pytest.raises(Permanent):
        Spool(tmp_path / "spool", MAX_BYTES, clock)


def test_a_full_spool_drops_its_oldest_and_declares_it(spool):
    for number in range(600):
        spool.append(number.to_bytes(2, "big") * 500)
    assert spool.size_bytes <= MAX_BYTES
    drops = spool.drops()
    assert {drop.reason for drop in drops} == {DropReason.DISK_FULL}
    kept = spool.read(1000, 1 << 20)
    assert sum(drop.records for drop in drops) + len(kept) == 600
    assert drops[0].first_sequence == 0
    assert drops[-1].last_sequence + 1 == kept[0].sequence == spool.acked_through
    assert sum(drop.dropped_bytes for drop in drops) == spool.dropped_bytes == 1032 * spool.dropped_records
    assert spool.drops() == ()


def test_a_payload_larger_than_the_spool_is_refused_and_counted(spool):
    spool.append(b"small")
    with pytest.raises(Permanent):
        spool.append(bytes(MAX_BYTES))
    assert [drop.records for drop in spool.drops()] == [1]
    assert payloads(spool) == [b"small"]


def test_a_full_disk_is_counted_and_acknowledging_frees_it(tmp_path, clock):
    disk = FaultyDisk(free_bytes=60_000)
    spool = Spool(tmp_path / "s", MAX_BYTES, clock, disk)
    spool.append_many([bytes(1000)] * 40)
    with pytest.raises(Retryable):
        spool.append_many([bytes(1000)] * 20)
    assert [(drop.reason, drop.records, drop.first_sequence) for drop in spool.drops()] == [
        (DropReason.DISK_FULL, 20, -1)
    ]
    assert len(payloads(spool)) == 40
    before = spool.size_bytes
    spool.ack(spool.next_sequence - 1)
    assert (before > 0, spool.size_bytes) == (True, 0)
    assert not [path for path in open_files() if path.startswith(str(tmp_path)) and path.endswith("(deleted)")]
    disk.free_bytes = None
    assert spool.append(b"again") == 40
    assert payloads(spool) == [b"again"]
    spool.close()


def test_old_records_expire_with_a_declared_drop(spool, clock):
    for _ in range(60):
        spool.append(bytes(1000))
        clock.move(60)
    spool.expire(clock.now_ms() - 20 * 60_000)
    assert {drop.reason for drop in spool.drops()} == {DropReason.RETENTION}
    assert 20 <= spool.records < 40
    assert spool.oldest_age_seconds == spool.records * 60
    spool.expire(clock.now_ms() + 1)
    assert (spool.records, spool.size_bytes) == (0, 0)
    assert spool.dropped_records == 60


def test_damaged_records_are_declared_once(tmp_path, clock):
    spool = Spool(tmp_path / "s", MAX_BYTES, clock)
    spool.append_many([b"a" * 100, b"b" * 100, b"c" * 100])
    path = segment_path(tmp_path / "s", segment_bases(tmp_path / "s")[0])
    raw = bytearray(path.read_bytes())
    raw[132 + 50] ^= 1
    path.write_bytes(raw)
    assert payloads(spool) == [b"a" * 100, b"c" * 100]
    assert payloads(spool) == [b"a" * 100, b"c" * 100]
    assert [(drop.reason, drop.first_sequence, drop.last_sequence) for drop in spool.drops()] == [
        (DropReason.DAMAGED, 1, 1)
    ]
    spool.close()


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 3000), max_size=4)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("reopen"), st.just(0)),
        st.tuples(st.just("full"), st.integers(0, 3000)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations)
def test_every_record_is_kept_acknowledged_or_declared(tmp_path_factory, steps):
    folder, clock, disk = tmp_path_factory.mktemp("spool"), ManualClock(), FaultyDisk()
    spool = Spool(folder, 40_000, clock, disk)
    spool_id, kept, refused, dropped, appended = spool.spool_id, {}, 0, 0, 0
    for name, value in steps:
        clock.move(1)
        if name == "append":
            sizes = [bytes([index % 256]) * size for index, size in enumerate(value)]
            appended += len(sizes)
            try:
                kept.update(zip(spool.append_many(sizes), sizes, strict=True))
            except Retryable:
                refused += len(sizes)
            disk.free_bytes = None
        elif name == "ack":
            spool.ack(spool.acked_through + value - 1)
        elif name == "full":
            disk.free_bytes = value
        else:
            spool.close()
            disk.free_bytes = None
            spool = Spool(folder, 40_000, clock, disk)
        for drop in spool.drops():
            dropped += drop.records if drop.first_sequence >= 0 else 0
            refused -= drop.records if drop.first_sequence < 0 else 0
        kept = {sequence: payload for sequence, payload in kept.items() if sequence >= spool.acked_through}
        assert {record.sequence: record.payload for record in spool.read(1000, 1 << 20)} == kept
        assert spool.size_bytes <= 40_000
        assert refused == 0
    assert spool.spool_id == spool_id
    spool.close()
