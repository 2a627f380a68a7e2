"""The spool gives back what was appended until it is settled, inside its bounds, and declares every loss."""

import contextlib
import os
from pathlib import Path

import pytest

from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.losses import LossReason
from secondsight.clock import ManualClock
from secondsight.errors import Permanent, Retryable
from secondsight.log.segments import SegmentConfig, SegmentWriter, segment_bases, segment_path
from secondsight.log.slots import SlotFile
from secondsight.model import EntityKind, Priority
from spool_rig import BOUNDS, Rig, added, counted, frame, lost, totals

P0, P1, P2 = Priority


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path / "spool")
    yield made
    made.spools.close()


def open_files():
    """Return what this process has open, files deleted meanwhile included."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    return found


def test_records_come_back_in_order_until_settled(rig):
    frames = [frame(number) for number in range(4)]
    rig.append(*frames[:3])
    rig.append(frames[3])
    assert rig.owed() == frames
    rig.settle(1)
    assert rig.owed() == frames[2:]
    assert [r.payload for r in rig.spools.read(rig.member(), 10, 1 << 20, start=3)] == frames[3:]
    rig.settle(0)
    assert rig.spools.records == 2
    assert rig.losses() == []


def test_reads_are_bounded(rig):
    rig.append(*(frame(number) for number in range(10)))
    member, size = rig.member(), len(frame(0))
    assert len(rig.spools.read(member, 3, 1 << 20)) == 3
    assert 1 <= len(rig.spools.read(member, 100, 3 * size)) <= 3
    assert len(rig.spools.read(member, 100, 1)) == 1


def test_records_settled_out_of_order_do_not_come_back(rig):
    frames = [frame(number) for number in range(10)]
    rig.append(*frames)
    rig.spools.settle(rig.member(), 6, 9)
    rig.spools.settle(rig.member(), 3, 4)
    assert rig.owed() == frames[:3] + frames[4:6] + frames[9:]
    rig.reopen()
    assert rig.owed() == frames[:3] + frames[4:6] + frames[9:]
    assert (rig.spools.records, totals(rig.spools.in_flight)) == (6, {(P0, "node"): (6, 6, 6)})
    rig.settle(5)
    assert rig.owed() == frames[9:]
    assert rig.member().spool.first_owed == 9
    rig.settle(9)
    assert (rig.spools.records, rig.spools.waiting_bytes) == (0, 0)


def test_a_restart_keeps_ids_records_sequences_and_tallies(rig):
    rig.append(frame(0, 3), frame(1, 5, EntityKind.GPU))
    rig.append(frame(2), priority=P2)
    rig.settle(0)
    ids, spooled = [one.spool.spool_id for one in rig.spools.members], totals(rig.spools.spooled)
    rig.reopen()
    assert [one.spool.spool_id for one in rig.spools.members] == ids
    assert totals(rig.spools.spooled) == spooled
    assert spooled == {(P0, "node"): (1, 3, 3), (P0, "gpu"): (1, 5, 5), (P2, "node"): (1, 1, 1)}
    assert totals(rig.spools.in_flight) == {(P0, "gpu"): (1, 5, 5), (P2, "node"): (1, 1, 1)}
    assert rig.member().spool.next_sequence == 2


@pytest.mark.parametrize("is_deleted", [False, True])
def test_sequence_and_tally_go_on_after_everything_was_settled(rig, is_deleted):
    rig.append(frame(0), frame(1))
    rig.settle(1)
    if is_deleted:
        rig.member().spool.compact()
        assert rig.spools.size_bytes == 0
    rig.reopen()
    rig.append(frame(2))
    assert rig.member().spool.next_sequence == 3
    assert totals(rig.spools.spooled) == {(P0, "node"): (3, 3, 3)}
    assert rig.owed() == [frame(2)]


@pytest.mark.parametrize("wipe", ["everything", "segments", "cursor"])
def test_a_spool_wiped_while_the_agent_is_away_gets_another_id(rig, wipe):
    rig.append(frame(0))
    before = rig.member().spool.spool_id
    rig.spools.close()
    for path in rig.folder_of().glob({"everything": "*", "segments": "*.log", "cursor": "cursor"}[wipe]):
        path.unlink()
    rig.spools = rig.open()
    assert rig.member().spool.spool_id != before


def test_a_spool_wiped_under_the_agent_is_declared_and_made_anew(rig):
    rig.append(frame(0, 4), frame(1, 4))
    rig.settle(0)
    before = rig.member().spool.spool_id
    for folder, _, names in os.walk(rig.folder, topdown=False):
        for name in names:
            (Path(folder) / name).unlink()
        Path(folder).rmdir()
    rig.append(frame(2, 2))
    assert rig.member().spool.spool_id != before
    assert lost(rig.losses()) == {(P0, "node"): (1, 4, 4)}
    assert {loss.reason for loss in rig.losses()} == {LossReason.DAMAGED}
    assert rig.owed() == [frame(2, 2)]
    rig.reopen()
    assert rig.owed() == [frame(2, 2)]
    assert lost(rig.losses()) == {(P0, "node"): (1, 4, 4)}


def test_one_process_at_a_time(rig):
    rig.append(frame(0))
    rig.spools.lose(rig.member(), rig.spools.read(rig.member(), 1, 1 << 20)[0], LossReason.REFUSED)
    book, before = (rig.folder / "losses").read_bytes(), sorted(open_files())
    with pytest.raises(Permanent):
        Rig(rig.folder)
    assert (rig.folder / "losses").read_bytes() == book
    assert sorted(open_files()) == before


def fill(rig, priority, seconds, rows=400, kind=EntityKind.NODE):
    frames = [frame(number, rows, kind) for number in seconds]
    for one in frames:
        rig.append(one, priority=priority)
        rig.clock.move(1)
    return frames


def test_a_full_spool_sheds_the_least_important_oldest_first_and_declares_it(rig):
    kept = {P0: fill(rig, P0, range(30)), P1: fill(rig, P1, range(40)), P2: fill(rig, P2, range(40))}
    assert rig.losses() == []
    seen = []
    for number in range(100, 280):
        kept[P0] += fill(rig, P0, [number])
        assert rig.spools.size_bytes <= BOUNDS.max_bytes
        seen += [loss.priority for loss in rig.take_losses()]
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {P0, P1, P2}
    assert (rig.owed(P1), rig.owed(P2)) == ([], [])
    assert rig.owed(P0) == kept[P0][-len(rig.owed(P0)) :]
    assert rig.counts.get("dropped:spool_full") + len(rig.owed(P0)) == sum(map(len, kept.values()))


def test_a_shed_names_collector_kind_class_range_and_counts(rig):
    fill(rig, P2, range(10), kind=EntityKind.GPU)
    fill(rig, P2, range(10, 20), kind=EntityKind.NODE)
    rig.append(frame(50, 7, EntityKind.GPU, "host-1/dcgm"), priority=P2)
    rig.spools.settle(rig.member(P2), 0, 3)
    while rig.spools.records:
        rig.spools._custody.shed_oldest(rig.member(P2), LossReason.SPOOL_FULL)
    start = 1_700_000_000_000
    found = {(loss.collector_id, loss.kind): loss for loss in rig.losses()}
    assert {key: (loss.records, loss.rows, loss.values) for key, loss in found.items()} == {
        ("host-1", "gpu"): (7, 2800, 2800),
        ("host-1", "node"): (10, 4000, 4000),
        ("host-1/dcgm", "gpu"): (1, 7, 7),
    }
    gpu = found["host-1", "gpu"]
    assert (gpu.first_ms, gpu.last_ms) == (start + 3000, start + 10_000)
    assert (gpu.first_sequence, gpu.last_sequence, gpu.priority, gpu.spool_id) == (
        3,
        9,
        P2,
        rig.member(P2).spool.spool_id,
    )


def test_a_less_important_class_never_pushes_out_a_more_important_one(tmp_path):
    rig = Rig(tmp_path / "spool", SpoolBounds(max_bytes=64 << 10))
    kept = fill(rig, P0, range(32))
    fill(rig, P1, range(40))
    assert rig.owed(P0) == kept
    assert {loss.priority for loss in rig.losses()} == {P1}
    rig.spools.close()


def test_a_payload_larger_than_the_spool_is_refused_and_declared(rig):
    rig.append(frame(0))
    with pytest.raises(Permanent):
        rig.append(frame(1, 100_000))
    assert lost(rig.losses()) == {(P0, "node"): (1, 100_000, 100_000)}
    assert rig.losses()[0].was_spooled is False
    assert rig.owed() == [frame(0)]


def test_on_a_full_disk_lower_classes_go_first_and_settling_frees_space(rig):
    fill(rig, P2, range(5))
    fill(rig, P0, range(5))
    rig.disk.free_bytes = 0
    rig.append(frame(5), priority=P0)
    assert {(loss.priority, loss.reason) for loss in rig.take_losses()} == {(P2, LossReason.DISK_FULL)}
    rig.disk.free_bytes = 0
    with pytest.raises(Retryable):
        rig.append(frame(6, 50))
    assert lost(rig.losses()) == {(P0, "node"): (1, 50, 50)}
    assert len(rig.owed()) == 6
    before = rig.spools.size_bytes
    rig.disk.free_bytes = 0
    rig.settle(rig.member().spool.next_sequence - 1)
    assert (before > 0, rig.spools.size_bytes) == (True, 0)
    assert not [path for path in open_files() if path.startswith(str(rig.folder)) and path.endswith("(deleted)")]
    rig.disk.free_bytes = None
    rig.append(frame(7))
    assert rig.owed() == [frame(7)]


def test_losses_are_declared_and_kept_on_a_full_disk(rig):
    rig.disk.free_bytes = 0
    for number in range(20):
        with pytest.raises(Retryable):
            rig.append(frame(number, 2))
    rig.reopen()
    assert lost(rig.losses()) == {(P0, "node"): (20, 40, 40)}


def test_free_space_is_left_to_others(tmp_path):
    rig = Rig(tmp_path / "spool", SpoolBounds(BOUNDS.max_bytes, floor_bytes=1 << 20, floor_ratio=1.0))
    rig.disk.space_bytes = (2 << 20, 1 << 30)
    fill(rig, P1, range(20))
    fill(rig, P0, range(20))
    rig.disk.space_bytes = ((1 << 20) - 1, 1 << 30)
    rig.spools.tend()
    assert rig.owed(P1) == []
    assert len(rig.owed(P0)) > 0
    assert {loss.reason for loss in rig.losses()} == {LossReason.FLOOR}
    with pytest.raises(Retryable):
        rig.append(frame(99))
    rig.disk.space_bytes = (2 << 20, 1 << 30)
    rig.append(frame(100))
    assert rig.owed(P0)[-1] == frame(100)
    rig.spools.close()


def test_the_floor_is_the_lesser_of_bytes_and_share(tmp_path):
    rig = Rig(tmp_path / "spool", SpoolBounds(BOUNDS.max_bytes, floor_bytes=1 << 40, floor_ratio=0.05))
    rig.disk.space_bytes = (60 << 20, 1 << 30)
    rig.append(frame(0))
    rig.disk.space_bytes = (40 << 20, 1 << 30)
    with pytest.raises(Retryable):
        rig.append(frame(1))
    rig.spools.close()


def test_old_records_expire_with_a_declared_loss(rig, tmp_path):
    rig.spools.close()
    rig.bounds = SpoolBounds(1 << 20, max_age_seconds=300)
    rig.spools = rig.open()
    fill(rig, P1, range(600), rows=1)
    rig.spools.tend()
    assert {loss.reason for loss in rig.losses()} == {LossReason.RETENTION}
    assert 300 <= rig.spools.records <= 330
    assert rig.spools.oldest_age_seconds == rig.spools.records
    assert rig.spools.records + sum(loss.records for loss in rig.losses()) == 600


def test_a_folder_that_cannot_be_opened_costs_what_comes_meanwhile(tmp_path):
    (tmp_path / "spool").write_text("a file stands in the way")
    rig = Rig(tmp_path / "spool")
    with pytest.raises(Retryable, match="cannot be opened"):
        rig.append(frame(0, 3))
    assert (rig.spools.records, rig.spools.size_bytes, rig.spools.oldest_age_seconds) == (0, 0, 0.0)
    (tmp_path / "spool").unlink()
    rig.clock.move(10)
    rig.append(frame(1))
    assert rig.owed() == [frame(1)]
    assert lost(rig.losses()) == {(P0, "node"): (1, 3, 3)}
    rig.reopen()
    assert lost(rig.losses()) == {(P0, "node"): (1, 3, 3)}
    rig.spools.close()


def earlier_layout(folder, frames, acked):
    """Make a spool as agents before the classes kept it: one folder, a cursor of three numbers, plain frames."""
    rig = Rig(folder.parent / "scratch")
    writer = SegmentWriter(folder / "frames", SegmentConfig(max_bytes=3000), rig.disk)
    for one in frames:
        writer.stage([one], rig.clock.now_ms())
        writer.commit()
    writer.close()
    cursor = SlotFile(folder / "frames" / "cursor", rig.disk)
    cursor.write((77, acked, 1))
    cursor.close()
    rig.spools.close()


def test_a_spool_of_the_earlier_layout_is_drained_where_it_stands(tmp_path):
    frames = [frame(number, 20) for number in range(20)]
    earlier_layout(tmp_path / "spool", frames, 3)
    rig = Rig(tmp_path / "spool")
    rig.append(frame(99))
    for _ in range(2):
        earlier = rig.spools.members[0]
        assert (earlier.is_earlier, earlier.spool.spool_id) == (True, 77)
        assert [record.payload for record in rig.spools.read(earlier, 100, 1 << 20)] == frames[3:]
        assert totals(rig.spools.in_flight) == added(counted([*frames[3:], frame(99)], P0))
        rig.reopen()
    rig.spools.settle(rig.spools.members[0], 3, 10)
    rig.reopen()
    assert totals(rig.spools.in_flight) == added(counted([*frames[10:], frame(99)], P0))
    rig.spools.settle(rig.spools.members[0], 10, 20)
    assert not (tmp_path / "spool" / "frames").exists()
    assert rig.owed() == [frame(99)]
    assert rig.losses() == []
    rig.spools.close()


def test_an_earlier_spool_that_was_drained_is_removed_whatever_a_crash_left_of_it(tmp_path):
    earlier_layout(tmp_path / "spool", [frame(0)], 1)
    (tmp_path / "spool" / "frames.drained").mkdir()
    (tmp_path / "spool" / "frames.drained" / "00000000000000000000.log").write_bytes(b"rest")
    rig = Rig(tmp_path / "spool")
    assert [member.is_earlier for member in rig.spools.members] == [False, False, False]
    assert not list((tmp_path / "spool").glob("frames*"))
    rig.spools.close()


def test_an_earlier_spool_is_shed_as_the_oldest_of_its_class(tmp_path):
    frames = [frame(number, 20) for number in range(40)]
    earlier_layout(tmp_path / "spool", frames, 0)
    rig = Rig(tmp_path / "spool", SpoolBounds(20_000))
    for number in range(100, 160):
        rig.append(frame(number, 20))
    kept = [record.payload for member in rig.spools.members for record in rig.spools.read(member, 100, 1 << 20)]
    everything = [*frames, *(frame(number, 20) for number in range(100, 160))]
    assert kept == everything[-len(kept) :]
    assert sum(loss.records for loss in rig.losses()) + len(kept) == len(everything)
    rig.spools.close()


def flip(path, position):
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(raw)


def test_damaged_records_are_declared_once_by_kind_with_their_counts(rig):
    frames = [frame(0, 3), frame(1, 5, EntityKind.GPU), frame(2, 7)]
    rig.append(*frames)
    path = segment_path(rig.folder_of(), segment_bases(rig.folder_of())[0])
    flip(path, path.read_bytes().index(frames[1]) + 60)
    assert rig.owed() == [frames[0], frames[2]]
    assert rig.owed() == [frames[0], frames[2]]
    rig.reopen()
    assert rig.owed() == [frames[0], frames[2]]
    (loss,) = rig.losses()
    assert (loss.reason, loss.kind, loss.records, loss.rows, loss.values) == (LossReason.DAMAGED, "gpu", 1, 5, 5)
    assert (loss.first_sequence, loss.last_sequence) == (1, 1)
    assert loss.first_ms <= 1_700_000_001_000 <= loss.last_ms


def test_the_manual_clock_may_be_set_back(rig):
    rig.append(frame(0))
    rig.clock.step_wall(-3600)
    rig.append(frame(1))
    assert rig.spools.oldest_age_seconds == 0.0
    rig.clock.step_wall(7200)
    rig.append(frame(2))
    rig.spools.tend()
    assert rig.owed() == [frame(0), frame(1), frame(2)]
    assert isinstance(rig.clock, ManualClock)
