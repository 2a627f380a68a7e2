"""Faults that others reported in public and that no other module here has a test of, each with its smallest input."""

import gc
import itertools
from pathlib import Path
from typing import Any

import pytest

from process_rig import CATALOG, T0, Rig, frame_bytes
from secondsight.agent.scrape.attribution import Allocations
from secondsight.agent.scrape.exposition import CACHE_SPARE, parse, syntax_of
from secondsight.agent.scrape.mapping import Mapper
from secondsight.log.segments import segment_bases, segment_path
from secondsight.mapping.cells import ContentBuilder
from secondsight.mapping.identity import Origin
from secondsight.model import Priority
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from spool_rig import Rig as SpoolRig
from spool_rig import counted, frame, lost, totals

P0 = Priority.P0


def test_hng_10_ever_new_pod_names_leave_nothing_behind() -> None:
    """NVIDIA/dcgm-exporter#536 and others: memory grew with every name that was ever seen."""
    mapper, builder = Mapper(CATALOG, Origin("node-a", "dcgm", 9400), Allocations()), ContentBuilder("node-a", "")
    cache: dict[str, Any] = {}
    names, held = itertools.count(), []
    for scrape in range(40):
        tick_ms = 1_717_236_000_000 + 1000 * scrape
        text = "".join(
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}",UUID="GPU-{gpu}",namespace="n",pod="pod-{next(names)}"}} 300\n'
            for gpu in range(8)
            for _ in range(64)
        )
        mapped = mapper.map(parse(text, syntax_of("", text), cache), tick_ms, tick_ms - 3000)
        for gathered in mapped.hosts.values():
            builder.build(gathered, 0)
        gc.collect()
        held.append(len(gc.get_objects()))
    assert max(held[30:]) - max(held[20:30]) < 2000, "objects grow with names that are gone"
    assert len(cache) <= 3 * 512 + CACHE_SPARE


@pytest.fixture
def spool(tmp_path):
    made = SpoolRig(tmp_path / "spool")
    yield made
    made.spools.close()


def filled(spool: SpoolRig) -> list[bytes]:
    """Append frames to more than five segments, and close."""
    frames = [frame(number, 400) for number in range(80)]
    for one in frames:
        spool.append(one)
    spool.spools.close()
    assert len(bases(spool)) > 5
    return frames


def bases(spool: SpoolRig) -> list[int]:
    return list(segment_bases(spool.folder_of()))


def test_wal_1_a_segment_cut_in_the_middle_costs_its_own_records(spool: SpoolRig) -> None:
    """prometheus/prometheus#7245: after a disk was full, a restart deleted nearly everything."""
    frames = filled(spool)
    path = segment_path(spool.folder_of(), bases(spool)[2])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    spool.spools = spool.open()
    owed = spool.owed()
    missing = [one for one in frames if one not in owed]
    first, end = bases(spool)[2:4]
    assert [frames.index(one) for one in missing] == list(range(end - len(missing), end))
    assert 0 < len(missing) < end - first
    assert lost(spool.losses()) == counted(missing, P0)


def test_wal_2_a_flipped_byte_in_a_middle_segment_is_passed_over_and_all_space_comes_back(spool: SpoolRig) -> None:
    """prometheus/prometheus#18552: damage was missed at replay, then cutting off failed for ever."""
    frames = filled(spool)
    path = segment_path(spool.folder_of(), bases(spool)[2])
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    spool.spools = spool.open()
    owed = spool.owed()
    assert len(owed) == len(frames) - 1
    spool.settle(len(frames) - 1)
    spool.append(frame(500))
    spool.reopen()
    assert spool.owed() == [frame(500)]
    assert len(bases(spool)) <= 2


@pytest.mark.parametrize("said", [b"{", b"", bytes(4096), b"\xff" * 4096])
def test_wal_3_what_is_kept_of_the_queue_beside_it_is_a_hint(spool: SpoolRig, said: bytes) -> None:
    """VictoriaMetrics/VictoriaMetrics#11192: unreadable metadata made the whole queue begin anew, empty."""
    frames = filled(spool)
    spool.spools = spool.open()
    spool.settle(9)
    spool.spools.close()
    (spool.folder_of() / "cursor").write_bytes(said)
    spool.spools = spool.open()
    owed = spool.owed()
    assert owed == frames[-len(owed) :]
    assert len(owed) >= 70
    assert not spool.losses()
    assert totals(spool.spools.in_flight) == counted(owed, P0)
    assert totals(spool.spools.spooled) == counted(frames, P0)


def test_wal_3_a_last_chunk_shorter_than_it_was_costs_what_it_lacks(spool: SpoolRig) -> None:
    frames = filled(spool)
    path = segment_path(spool.folder_of(), bases(spool)[-1])
    path.write_bytes(path.read_bytes()[:-4096])
    spool.spools = spool.open()
    owed = spool.owed()
    assert owed == frames[: len(owed)]
    assert len(frames) - len(owed) in range(1, 5)
    spool.append(frame(500))
    assert spool.owed() == [*owed, frame(500)]


def test_cnt_4_two_replicas_that_differ_by_milliseconds_are_no_resets(tmp_path: Path) -> None:
    """thanos-io/thanos#1788: going from one replica to the other looked like a counter that fell."""
    store = ChdbStore(tmp_path / "hot")
    migrate(store, CATALOG)
    rig = Rig(store)
    name = "gpu_nvlink_replay_errors_total"
    for second in range(30):
        for collector, base in (("a", 668_173), ("b", 668_156)):
            body = frame_bytes(
                {("GPU-a", "", 0): {name: base + 16 * second}},
                [T0 + 1000 * second + (7 if collector == "b" else 0)],
                sequence=second,
                collector=collector,
            )
            rig.send(body)
        rig.processor.step()
        rig.clock.move(1)
    rig.settle()
    rows = store.query(
        f"SELECT collector_id, {name}_increase AS increase, resets FROM gpu_30s FINAL WHERE samples > 0 ORDER BY 1"
    ).to_pylist()
    store.close()
    assert [(row["collector_id"], row["increase"], row["resets"]) for row in rows] == [
        ("a", 16 * 29, []),
        ("b", 16 * 29, []),
    ]
