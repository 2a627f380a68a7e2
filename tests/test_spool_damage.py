"""Torn ends, flipped bytes, files that come and go cost the records they hit, which are declared, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from secondsight.agent.spool.losses import LossReason
from secondsight.errors import Retryable
from secondsight.log.record import HEADER_BYTES
from secondsight.log.segments import segment_bases, segment_path
from secondsight.model import Priority
from spool_rig import Rig, added, counted, frame, lost, totals

P0 = Priority.P0
CASES = Path(__file__).with_name("cases") / "spool"
EXPECTED = json.loads((CASES / "expected.json").read_text())
FRAMES = [frame(number, 1 + number % 5) for number in range(20)]


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path / "spool")
    yield made
    made.spools.close()


def walbin(raw: bytes) -> tuple[list[bytes], int]:
    """Return the payloads of whole records (u32 length, u32 CRC32, payload) and how many bytes the last one lacks."""
    payloads, position = [], 0
    while position < len(raw):
        length = int.from_bytes(raw[position : position + 4], "little")
        payloads.append(raw[position + 8 : position + 8 + length])
        position += 8 + length
    return payloads, position - len(raw)


def segment(rig: Rig, number: int = -1) -> Path:
    return segment_path(rig.folder_of(), segment_bases(rig.folder_of())[number])


def test_case_103_a_torn_end_costs_the_torn_record(rig):
    payloads, lacking = walbin((CASES / "103-truncated-tail.walbin").read_bytes())
    assert lacking > 0
    rig.append(*payloads)
    rig.spools.close()
    raw = segment(rig).read_bytes()
    segment(rig).write_bytes(raw[:-lacking])
    rig.spools = rig.open()
    kept = rig.owed()
    assert (len(kept), kept) == (EXPECTED["103-truncated-tail.walbin"]["records"], payloads[:-1])
    assert rig.counts.get("spool_cut_bytes") > 0
    rig.append(frame(1))
    assert rig.owed() == [*payloads[:-1], frame(1)]


def test_case_105_writing_goes_on_when_there_is_space_again(rig):
    frames = {number: frame(number, 10) for number in (1, 2, 3)}
    steps = [json.loads(line) for line in (CASES / "105-disk-full-then-space.jsonl").read_text().splitlines()]
    for step in steps:
        if step["op"] == "free_space":
            rig.disk.free_bytes = None
        elif step["op"] == "restart":
            rig.reopen()
        elif step["op"] == "write" and step["r"] == "ok":
            rig.append(frames[step["seq"]])
        elif step["op"] == "write":
            rig.disk.free_bytes = step["partial_bytes"]
            with pytest.raises(Retryable):
                rig.append(frames[step["seq"]])
    assert rig.owed() == [frames[number] for number in (1, 2, 3)]
    assert len(rig.owed()) == EXPECTED["105-disk-full-then-space.jsonl"]["records"]
    assert lost(rig.losses()) == {(P0, "node"): (2, 20, 20)}


def fill(rig: Rig) -> list[int]:
    """Append `FRAMES` to one segment and return where each record begins in it."""
    starts = []
    for one in FRAMES:
        starts.append(rig.member().spool.size_bytes)
        rig.append(one)
    rig.spools.close()
    return starts


FAULTS = {
    "magic": lambda start: start,
    "length": lambda start: start + 7,
    "offset": lambda start: start + 9,
    "payload crc": lambda start: start + 25,
    "header crc": lambda start: start + 29,
    "tally": lambda start: start + HEADER_BYTES + 12,
    "payload": lambda start: start + HEADER_BYTES + 60,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", [0, 7, 18])
def test_a_flipped_byte_costs_its_record_which_is_declared_with_its_counts(rig, fault, number):
    starts = fill(rig)
    raw = bytearray(segment(rig).read_bytes())
    raw[FAULTS[fault](starts[number])] ^= 0xFF
    segment(rig).write_bytes(raw)
    rig.spools = rig.open()
    assert rig.owed() == FRAMES[:number] + FRAMES[number + 1 :]
    assert lost(rig.losses()) == counted([FRAMES[number]], P0)
    assert {loss.reason for loss in rig.losses()} == {LossReason.DAMAGED}
    assert added(totals(rig.spools.in_flight), lost(rig.losses())) == totals(rig.spools.spooled) == counted(FRAMES, P0)


def test_a_tail_of_zeros_is_cut(rig):
    fill(rig)
    with segment(rig).open("ab") as file:
        file.write(bytes(10_000))
    rig.spools = rig.open()
    assert (rig.owed(), rig.losses()) == (FRAMES, [])
    rig.append(frame(50))
    assert rig.owed() == [*FRAMES, frame(50)]


def test_zeros_in_the_middle_cost_what_they_hit(rig):
    starts = fill(rig)
    raw = bytearray(segment(rig).read_bytes())
    raw[starts[5] + 10 : starts[8] + 3] = bytes(starts[8] + 3 - starts[5] - 10)
    segment(rig).write_bytes(raw)
    rig.spools = rig.open()
    assert rig.owed() == FRAMES[:5] + FRAMES[9:]
    assert lost(rig.losses()) == counted(FRAMES[5:9], P0)


def many_segments(rig: Rig) -> list[bytes]:
    frames = [frame(number, 400) for number in range(40)]
    for one in frames:
        rig.append(one)
    assert rig.member().spool.segments > 3
    rig.spools.close()
    return frames


def test_a_missing_segment_is_declared_with_its_counts(rig):
    frames = many_segments(rig)
    bases = segment_bases(rig.folder_of())
    segment(rig, 1).unlink()
    rig.spools = rig.open()
    assert rig.owed() == frames[: bases[1]] + frames[bases[2] :]
    assert lost(rig.losses()) == counted(frames[bases[1] : bases[2]], P0)


def test_a_segment_without_a_sound_record_is_set_aside_and_declared(rig):
    frames = many_segments(rig)
    bases = segment_bases(rig.folder_of())
    segment(rig, 1).write_bytes(b"\xa5" * segment(rig, 1).stat().st_size)
    rig.spools = rig.open()
    assert rig.owed() == frames[: bases[1]] + frames[bases[2] :]
    assert lost(rig.losses()) == counted(frames[bases[1] : bases[2]], P0)
    assert len(list(rig.folder_of().glob("*.quarantine"))) == 1


@pytest.mark.parametrize("base", [3, 39, 45])
def test_a_copy_of_a_segment_under_another_name_repeats_nothing(rig, base):
    frames = many_segments(rig)
    shutil.copy(segment(rig, 0), segment_path(rig.folder_of(), base))
    rig.spools = rig.open()
    kept = rig.owed()
    assert len(kept) == len(set(kept))
    assert set(kept) <= set(frames)
    assert sum(loss.records for loss in rig.losses()) >= len(frames) - len(kept)
    rig.append(frame(99))
    assert rig.owed() == [*kept, frame(99)]


def test_a_reader_beyond_the_end_of_what_is_there_goes_on(rig):
    frames = many_segments(rig)
    for base in segment_bases(rig.folder_of())[1:]:
        segment_path(rig.folder_of(), base).unlink()
    rig.spools = rig.open()
    kept = rig.owed()
    assert kept == frames[: len(kept)]
    rig.spools.settle(rig.member(), 0, 1000)
    rig.append(frame(99))
    assert rig.owed() == [frame(99)]
