"""Handed cases of time, by their file: stamps ahead of their admission, and a clock that went back over a restart."""

import json
from pathlib import Path
from typing import Any

import pytest

from process_rig import CATALOG, Rig, frame_bytes
from secondsight.agent.counts import Counts
from secondsight.agent.run import note_step_back
from secondsight.agent.smi.instants import rfc3339_us
from secondsight.agent.tick.schedule import STEP_MS
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from spool_rig import Rig as SpoolRig
from spool_rig import frame

CASES = Path(__file__).parent / "cases" / "time"
POWER = "gpu_power_watts"


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text().splitlines()]


@pytest.fixture
def store(tmp_path):
    opened = ChdbStore(tmp_path / "hot")
    migrate(opened, CATALOG)
    yield opened
    opened.close()


def test_041_a_stamp_80_s_ahead_is_stored_and_flagged_and_one_of_30_min_is_refused(store: ChdbStore) -> None:
    steps = records("041-future-by-80s.jsonl")
    admitted_ms = (rfc3339_us(steps[0]["recv"]) or 0) // 1000
    rig = Rig(store, now_ms=admitted_ms)
    for number, step in enumerate(steps):
        at_ms = (rfc3339_us(step["t"]) or 0) // 1000
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: step["v"]}}, [at_ms], sequence=number))
    rig.processor.step()
    rig.clock.move(120)
    rig.settle()
    (row,) = store.query(
        f"SELECT {POWER} AS v, skew, toUnixTimestamp64Milli(event_time) - toUnixTimestamp64Milli(ingest_time) AS ahead "
        "FROM gpu_1s FINAL"
    ).to_pylist()
    assert row == {"v": 1, "skew": 1, "ahead": 80_109}
    (refused,) = store.query("SELECT stage, code, rows FROM dead_letters FINAL").to_pylist()
    assert refused == {"stage": "quarantine", "code": "future_time", "rows": 1}


def test_043_a_clock_that_went_back_over_a_restart_costs_nothing_and_is_said(tmp_path: Path, store: ChdbStore) -> None:
    steps = records("043-clock-stepped-back-at-restart.jsonl")
    spool, counts, stepped = SpoolRig(tmp_path / "spool"), Counts(), []
    rig = Rig(store, now_ms=steps[0]["t"] + 60_000)
    for step in steps:
        before_ms = spool.clock.now_ms()
        spool.clock.step_wall((step["t"] - before_ms) / 1000)
        if step["seq"] == 3:
            spool.reopen()
            note_step_back(spool.spools.newest_ms, spool.clock.now_ms(), counts)
            stepped.append(step["t"] - before_ms)
        spool.append(frame(step["seq"]))
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: step["v"]}}, [step["t"]], sequence=step["seq"]))
    assert spool.owed() == [frame(step["seq"]) for step in steps]
    assert [record.sequence for record in spool.spools.read(spool.member(), 10, 1 << 20)] == [0, 1, 2, 3, 4, 5]
    assert (stepped, counts.get("clock_stepped")) == ([-7000], 1)
    rig.processor.step()
    rig.settle()
    rows = store.query(
        f"SELECT toUnixTimestamp64Milli(event_time) AS t, {POWER} AS v FROM gpu_1s FINAL ORDER BY t"
    ).to_pylist()
    assert rows == sorted(({"t": step["t"], "v": step["v"]} for step in steps), key=lambda row: row["t"])
    spool.spools.close()


@pytest.mark.parametrize(("behind_ms", "said"), [(-5000, 0), (0, 0), (STEP_MS, 0), (STEP_MS + 1, 1), (3_600_000, 1)])
def test_only_a_step_back_is_said(behind_ms: int, said: int) -> None:
    counts = Counts()
    note_step_back(1_700_000_000_000, 1_700_000_000_000 - behind_ms, counts)
    assert counts.get("clock_stepped") == said
    note_step_back(0, 1_700_000_000_000, counts)
    assert counts.get("clock_stepped") == said
