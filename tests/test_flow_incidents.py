"""What goes wrong in a fleet, seen through the whole platform: a lost host, a clock that runs away, a cut network."""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flow_fleet import Gpu, clusters_of, replay
from flow_tables import Row, Tables
from secondsight.agent.simulate.cluster import ClusterSpec
from secondsight.agent.simulate.incidents import incident_named
from secondsight.agent.simulate.machines import BOARDS
from secondsight.model import EntityKind
from up_rig import Platform, platform, wait_until

HOSTS, GPUS = 3, 2
DRIFT_HOSTS = 2
CUT_HOSTS = 5
CUT_SECONDS = 90
INCIDENT_SECONDS = 60
SILENT_SECONDS = 30
PATIENCE_SECONDS = 60
DRIFT_MS_PER_SECOND = 500
CORRECTED_FROM_MS = 1000

pytestmark = pytest.mark.timeout(400)


@dataclass
class Site:
    """A platform whose own fleet loses a host; beside it a fleet with a drifting clock and one with a cut network."""

    platform: Platform
    tables: Tables
    lost: ClusterSpec
    drifting: ClusterSpec
    cut: ClusterSpec

    def gpus(self, spec: ClusterSpec) -> list[Gpu]:
        """Return the GPUs of a cluster."""
        return [Gpu(spec, host, index) for host in range(spec.hosts) for index in range(spec.gpus_per_host)]

    def statuses(self) -> dict[str, str]:
        """Return GPU -> status."""
        return {gpu["gpuId"]: gpu["status"] for gpu in self.platform.get("/v1/gpus", limit=100)["gpus"]}

    def coverage(self, gpu: Gpu, from_ms: int, to_ms: int) -> Row:
        """Return the coverage of a host's power."""
        span = {"from": from_ms, "to": to_ms, "resolution": "1s"}
        answer = self.platform.get("/v1/metrics/query", metric="gpu_power_watts", host=gpu.host_name, **span)
        found: Row = answer["coverage"]
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    data = tmp_path_factory.mktemp("incidents") / "data"
    fleet = ("--simulate", f"{HOSTS}x{GPUS}", "--incident", "node_lost")
    with (
        platform(data, "--listen", "127.0.0.1:0", "--no-local-agent", *fleet) as running,
        _fleet(running, "drift", DRIFT_HOSTS, "clock_drift") as drifting,
        _fleet(running, "cut", CUT_HOSTS, "network_partition") as cut,
    ):
        tables = Tables(running)
        [lost] = clusters_of(data)
        yield Site(running, tables, lost, drifting, cut)
        tables.close()


@contextmanager
def _fleet(running: Platform, name: str, hosts: int, incident: str) -> Iterator[ClusterSpec]:
    words = ["--cluster", name, "--hosts", str(hosts), "--gpus", str(GPUS), "--incident", incident]
    words += ["--gateway", running.address, "--token-file", str(running.data / "tokens" / "collector")]
    words += ["--spool-dir", str(running.data.parent / name)]
    with Path(running.data.parent / f"{name}.log").open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "secondsight", "simulate", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(os.environ),
        )
    try:
        yield ClusterSpec(name, hosts, GPUS, BOARDS[0], 1, (incident_named(incident, INCIDENT_SECONDS),))
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_a_lost_host_is_silent_and_its_coverage_falls(site: Site) -> None:
    """Exactly the GPUs of the lost host fall silent; its coverage falls on, the others' stays whole."""
    gpus = site.gpus(site.lost)
    away = {gpu.name for gpu in gpus if gpu.host == 0}
    wait_until(lambda: _silent(site) >= away, INCIDENT_SECONDS + SILENT_SECONDS + PATIENCE_SECONDS)
    assert _silent(site) == away
    [last] = site.tables.rows(
        "SELECT toUnixTimestamp64Milli(max(event_time)) AS at FROM gpu_1s WHERE host_id = {host:String}",
        host=gpus[0].host_name,
    )
    falling = []
    for width_ms in (10_000, 15_000, 20_000):
        from_ms, to_ms = last["at"] - 9000, last["at"] - 9000 + width_ms
        for gpu in gpus[::GPUS]:
            coverage = site.coverage(gpu, from_ms, to_ms)
            assert coverage["expectedSamples"] == GPUS * width_ms // 1000
            stored = GPUS * (10 if gpu.host == 0 else width_ms // 1000)
            assert coverage["storedSamples"] == stored
            assert coverage["ratio"] == pytest.approx(stored / coverage["expectedSamples"])
        falling.append(site.coverage(gpus[0], from_ms, to_ms))
    assert [one["ratio"] for one in falling] == [1.0, pytest.approx(2 / 3), 0.5]
    assert [one["gaps"] for one in falling] == [0, GPUS, GPUS]


def _silent(site: Site) -> set[str]:
    """Return the silent GPUs, without those that the cut network silences for a while."""
    cut = {gpu.name for gpu in site.gpus(site.cut)}
    return {name for name, status in site.statuses().items() if status == "silent"} - cut


def test_rows_of_a_drifting_clock_are_put_right(site: Site) -> None:
    """From one second off, the time of a row is the true one, and the row says by how much it was moved.

    As the correction sets in, the last tick that kept its wrong time and the first that was put right share an instant
    and become one row.
    """
    drifting, steady = site.gpus(site.drifting)[0], site.gpus(site.drifting)[-1]
    rows = _rows_of(site, drifting)
    start = rows[0]["at"] // 1000
    goal = start + INCIDENT_SECONDS + 20
    wait_until(lambda: _rows_of(site, drifting)[-1]["at"] // 1000 >= goal, INCIDENT_SECONDS + PATIENCE_SECONDS)
    rows = [row for row in _rows_of(site, drifting) if row["at"] // 1000 < goal]
    made: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for second in replay(site.drifting, start, goal - start):
        offset_ms = max(0, second.second - start - INCIDENT_SECONDS) * DRIFT_MS_PER_SECOND
        shift_ms = offset_ms if offset_ms > CORRECTED_FROM_MS else 0
        power = drifting.value(second, "gpu_power_watts")
        made[second.second * 1000 + offset_ms - shift_ms].append((-shift_ms, round(power, 3)))
    assert [row["at"] for row in rows] == sorted(made)
    for row in rows:
        told = (row["correction_ms"], round(row["values"]["gpu_power_watts"], 3))
        assert told in made[row["at"]] or len(made[row["at"]]) > 1, row["at"]
    assert sum(len(ticks) > 1 for ticks in made.values()) == 1
    assert {row["correction_ms"] for row in _rows_of(site, steady)} == {0}
    statuses = site.statuses()
    assert {statuses[gpu.name] for gpu in site.gpus(site.drifting)} == {"reporting"}
    now_ms = time.time_ns() // 1_000_000
    for gpu in (drifting, steady):
        coverage = site.coverage(gpu, (goal - 10) * 1000, min(goal * 1000, now_ms))
        assert (coverage["ratio"], coverage["gaps"]) == (1.0, 0)


def test_what_a_cut_off_rack_collected_arrives_whole(site: Site) -> None:
    """Once a rack is reached again its fresh samples flow, and the time of the cut fills up, each row once."""
    away, beside = site.gpus(site.cut)[0], site.gpus(site.cut)[-1]
    start = _rows_of(site, beside)[0]["at"] // 1000
    healed = start + INCIDENT_SECONDS + CUT_SECONDS
    wait_until(lambda: _seconds_of(site, away) >= set(range(start, healed + 10)), 2 * CUT_SECONDS + PATIENCE_SECONDS)
    rows = [row for row in _rows_of(site, away) if row["at"] // 1000 < healed + 10]
    assert [row["at"] for row in rows] == [second * 1000 for second in range(start, healed + 10)]
    made = [round(away.value(second, "gpu_power_watts"), 3) for second in replay(site.cut, start, len(rows))]
    assert [round(row["values"]["gpu_power_watts"], 3) for row in rows] == made
    coverage = site.coverage(away, (start + INCIDENT_SECONDS) * 1000, healed * 1000)
    assert (coverage["ratio"], coverage["gaps"]) == (1.0, 0)


def _seconds_of(site: Site, gpu: Gpu) -> set[int]:
    return {row["at"] // 1000 for row in _rows_of(site, gpu)}


def _rows_of(site: Site, gpu: Gpu) -> list[Row]:
    site.tables.wait("SELECT 1 FROM gpu_1s WHERE entity = {gpu:String} LIMIT 1", bool, gpu=gpu.name)
    return site.tables.raw(EntityKind.GPU, "entity = {gpu:String}", gpu=gpu.name)
