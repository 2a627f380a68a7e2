"""Scripted GPUs through the real binding, agent, gateway and processor: the tables hold every value as scripted.

The driver hangs, a GPU is lost, an Xid comes: what can still be known arrives, and nothing else is claimed.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flow_exporter import agent_toml
from flow_tables import Row, Tables
from nvml_fixture import needs_compiler
from nvml_rig import plug
from nvml_stub import build
from nvml_stub.scenario import Machine
from secondsight.model import EntityKind, Quality
from up_rig import Platform, platform

pytestmark = [needs_compiler, pytest.mark.timeout(240)]

INTERVAL_MS = 500
STOP_SECONDS = 40
PATIENCE_SECONDS = 60.0
A, B, C = (f"GPU-{letter * 8}-0000-4000-8000-00000000000{number}" for number, letter in enumerate("abc"))
ADDRESSES = ("0000:0f:00.0", "0000:2d:00.0", "0000:44:00.0")
"""Where the stub has its first GPUs: one that is lost is known to be there by its PCI function."""

MACHINE = (
    "host h200 3",
    *(f"gpu {slot} uuid = {uuid}" for slot, uuid in enumerate((A, B, C))),
    "gpu 0 minor = 5",
    "gpu 0 nvmlDeviceGetUtilizationRates.gpu = 61",
    "gpu 0 nvmlDeviceGetUtilizationRates.memory = 0",
    "gpu 0 nvmlDeviceGetTemperatureV(GPU) = 58",
    "gpu 0 field 82 = 64",
    "gpu 0 field 185 = 541123",
    "gpu 0 field 190 = 700000",
    "gpu 0 field 83 = 18446744073",
    "gpu 0 field 3 = 12",
    "gpu 0 nvmlDeviceGetMemoryInfo_v2.used = 97710505984",
    "gpu 0 nvmlDeviceGetClockInfo(SM) = 1755",
    "gpu 0 nvmlDeviceGetCurrentClocksEventReasons = 0x204",
    "gpu 0 nvmlDeviceGetPerformanceState = 0",
    "gpu 0 gpm 2 = 84.125",
    "gpu 0 gpm 60 = 1024.5",
    "gpu 1 field 82 = 0",
    "gpu 1 nvmlDeviceGetTemperatureV(GPU) return 3",
    "gpu 1 call nvmlDeviceGetUtilizationRates return 4",
    "gpu 1 nvmlDeviceGetPerformanceState = 32",
    "gpu 1 gpm 2 = 104.9",
)
SCRIPTED = {
    "gpu_utilization_ratio": 0.61,
    "gpu_memory_copy_utilization_ratio": 0.0,
    "gpu_temperature_celsius": 58,
    "gpu_memory_temperature_celsius": 64,
    "gpu_power_watts": 541.123,
    "gpu_power_limit_watts": 700,
    "gpu_energy_joules_total": 18446744.073,
    "gpu_ecc_corrected_volatile_total": 12,
    "gpu_memory_total_bytes": 150754820096,
    "gpu_memory_used_bytes": 97710505984,
    "gpu_sm_clock_hertz": 1755e6,
    "gpu_clock_event_reasons": 0x204,
    "gpu_performance_state": 0,
    "gpu_sm_active_ratio": 0.84125,
    "gpu_lost": 0,
}
ABSENT = {
    "gpu_memory_temperature_celsius": Quality.ABSENT_SOURCE_BLANK,
    "gpu_temperature_celsius": Quality.ABSENT_NOT_SUPPORTED,
    "gpu_utilization_ratio": Quality.ABSENT_NO_PERMISSION,
    "gpu_performance_state": Quality.ABSENT_SOURCE_BLANK,
}


@dataclass
class Site:
    """One host with scripted GPUs, whose agent ships to a platform."""

    machine: Machine
    tables: Tables
    host: str

    def rows(self, kind: EntityKind, since_ms: int = 0) -> list[Row]:
        where = "host_id = {host:String} AND toUnixTimestamp64Milli(event_time) >= {since:Int64}"
        return self.tables.raw(kind, where, host=self.host, since=since_ms)

    def gpu(self, uuid: str, metric: str, since_ms: int = 0) -> list[float | None]:
        """Return what the rows of a whole GPU say of a metric, in order of time."""
        rows = [row for row in self.rows(EntityKind.GPU, since_ms) if (row["entity"], row["part"]) == (uuid, "")]
        return [row["values"].get(metric) for row in rows]

    def until(self, uuid: str, metric: str, value: float, since_ms: int = 0) -> None:
        """Wait until a row of a GPU, not older than an instant, says so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while value not in (found := self.gpu(uuid, metric, since_ms)):
            assert time.monotonic() < end, (metric, found[-5:])
            time.sleep(0.25)

    def until_node(self, since_ms: int, ticks: int) -> list[Row]:
        """Wait until the host's own rows have gone on for so many ticks."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = [row for row in self.rows(EntityKind.NODE, since_ms) if "node_load1" in row["values"]]
            if len(found) >= ticks:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.25)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    data = tmp_path_factory.mktemp("platform") / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent") as up:
        yield up


@contextmanager
def site(running: Platform, folder: Path, host: str) -> Iterator[Site]:
    """Run an agent on scripted GPUs; it must end well."""
    (folder / "token").write_text(running.token("collector"))
    settings: dict[str, object] = {
        "gateway": running.address,
        "token_file": str(folder / "token"),
        "spool_dir": str(folder / "spool"),
        "host_id": host,
        "root": str(folder / "root"),
        "interval_ms": INTERVAL_MS,
        "batch_seconds": 1.0,
    }
    plug(folder, *ADDRESSES)
    (folder / "root" / "proc").symlink_to("/proc")
    words = agent_toml(settings, []) + "\n[agent.kernel_log]\nenabled = false\n"
    (folder / "agent.toml").write_text(words)
    machine, tables = Machine(folder / "machine", *MACHINE), Tables(running)
    command = [sys.executable, "-m", "secondsight", "agent", "--config", str(folder / "agent.toml")]
    with (folder / "agent.log").open("wb") as out:
        agent = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=os.environ | machine.environment(build.library()),
        )
    try:
        yield Site(machine, tables, host)
        agent.terminate()
        assert agent.wait(STOP_SECONDS) == 0, (folder / "agent.log").read_text()
    finally:
        agent.kill()
        agent.wait()
        tables.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_values_and_their_absence_are_stored_as_the_driver_gave_them(running: Platform, tmp_path: Path) -> None:
    with site(running, tmp_path, "exact") as here:
        here.until(A, "gpu_sm_active_ratio", 0.84125)
        here.until(B, "gpu_sm_active_ratio", 1.0)
        rows = here.rows(EntityKind.GPU)
        facts = here.tables.wait(
            "SELECT entity, attributes FROM infos FINAL WHERE host_id = 'exact' AND metric = 'gpu_info'",
            lambda found: len(found) >= 3,
        )
    wholes = {row["entity"]: row for row in rows if not row["part"] and "gpu_sm_active_ratio" in row["values"]}
    assert {metric: wholes[A]["values"].get(metric) for metric in SCRIPTED} == pytest.approx(SCRIPTED, rel=1e-9)
    assert {metric: wholes[B]["quality"].get(metric) for metric in ABSENT} == ABSENT
    assert not ABSENT.keys() & wholes[B]["values"].keys()
    assert wholes.keys() == {A, B, C}
    told = {row["entity"]: dict(row["attributes"]) for row in facts}
    assert (told[A]["minor"], told[A]["name"], told[A]["driver"]) == ("5", "NVIDIA H200", "570.86.15")


def test_a_driver_that_hangs_at_all_gpus_stops_neither_the_host_nor_the_shipping(
    running: Platform, tmp_path: Path
) -> None:
    with site(running, tmp_path, "hanging") as here:
        here.until(A, "gpu_power_watts", 541.123)
        with here.machine.while_stated("gpu * call * delay 600000"):
            begin_ms = now_ms() + 2 * INTERVAL_MS
            for uuid in (A, B, C):
                here.until(uuid, "gpu_driver_unresponsive", 1, begin_ms)
            node = here.until_node(begin_ms, 8)
            silent_ms = node[0]["at"]
            assert set(here.gpu(A, "gpu_power_watts", silent_ms)) <= {None}
        back_ms = now_ms()
        for uuid, metric, value in (
            (A, "gpu_power_watts", 541.123),
            (A, "gpu_driver_unresponsive", 0),
            (C, "gpu_lost", 0),
        ):
            here.until(uuid, metric, value, back_ms)


def test_a_gpu_that_hangs_and_one_that_is_lost_cost_the_others_nothing(running: Platform, tmp_path: Path) -> None:
    with site(running, tmp_path, "losing") as here:
        here.until(A, "gpu_power_watts", 541.123)
        here.machine.append("gpu 1 call nvmlDeviceGetFieldValues delay 600000", "gpu 2 lost")
        here.machine.event(0, "xid 79")
        begin_ms = now_ms() + 2 * INTERVAL_MS
        here.until(B, "gpu_driver_unresponsive", 1, begin_ms)
        here.until(C, "gpu_lost", 1, begin_ms)
        here.until(A, "gpu_power_watts", 541.123, begin_ms)
        assert 1 not in here.gpu(A, "gpu_lost", begin_ms) + here.gpu(A, "gpu_driver_unresponsive", begin_ms)
        assert set(here.gpu(C, "gpu_power_watts", begin_ms)) <= {None}
        events = here.tables.wait(
            "SELECT entity, code FROM events FINAL WHERE host_id = 'losing' AND metric = 'gpu_xid'", bool
        )
        here.machine.append("gpu 1 call nvmlDeviceGetFieldValues delay 0", "gpu 2 back")
        back_ms = now_ms() + INTERVAL_MS
        here.until(B, "gpu_driver_unresponsive", 0, back_ms)
        here.until(C, "gpu_lost", 0, back_ms)
    assert events == [{"entity": A, "code": 79}]
