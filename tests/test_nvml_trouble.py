"""A GPU or a driver in trouble says so, and nothing else stops: hangs, losses, reloads, crashes, stops."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nvml_rig import HOST, needs_compiler, plug, running
from secondsight.agent.nvml import driver as driver_module

pytestmark = [needs_compiler, pytest.mark.crash]

A, B, C = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")
THREE = (
    "host h200 3",
    *(f"gpu {slot} uuid = {uuid}" for slot, uuid in enumerate((A, B, C))),
    *(f"gpu {slot} pci = 0000:{slot + 1}a:00.0" for slot in range(3)),
    *(f"gpu {slot} nvmlDeviceGetClockInfo(SM) = {1000 + slot}" for slot in range(3)),
)


@pytest.fixture(autouse=True)
def _quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "RESTART_SECONDS", (0.1, 0.2))


def is_well(cells: dict[str, Any]) -> bool:
    return cells.get("gpu_lost") == 0 and cells.get("gpu_driver_unresponsive") == 0 and "gpu_power_watts" in cells


def all_well(count: int) -> Any:
    return lambda gpus: sum(is_well(cells) for cells in gpus.values()) == count


def clock_of(cells: dict[str, Any]) -> float:
    return cells["gpu_sm_clock_hertz"] / 1e6


def test_a_gpu_that_hangs_costs_no_other_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        with rig.machine.while_stated("gpu 1 call * delay 60000"):
            gpus = rig.until(lambda gpus: gpus[B].get("gpu_driver_unresponsive") == 1)
            assert is_well(gpus[A])
            assert is_well(gpus[C])
            assert gpus[B]["gpu_power_watts"] == gpus[B]["gpu_energy_joules_total"] == "ABSENT_SOURCE_BLANK"
            assert "gpu_lost" not in gpus[B]
            started = time.monotonic()
            for _ in range(3):
                assert is_well(rig.gpus()[A])
            assert time.monotonic() - started < 3
        rig.until(all_well(3))


def test_two_gpus_that_hang_at_once_leave_the_third_alone(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        with rig.machine.while_stated("gpu 0,2 call nvmlDeviceGetFieldValues delay 60000"):
            gpus = rig.until(lambda gpus: all(gpus[one].get("gpu_driver_unresponsive") == 1 for one in (A, C)))
            assert is_well(gpus[B])
        rig.until(all_well(3))


def test_all_gpus_hang_the_child_is_left_behind_and_a_new_one_works(tmp_path: Path) -> None:
    with running(tmp_path, *THREE, abandon_seconds=1.0) as rig:
        rig.until(all_well(3))
        first = rig.source.driver.pid
        rig.machine.append("call nvmlDeviceGetFieldValues delay 60000")
        rig.until(lambda gpus: all(cells.get("gpu_driver_unresponsive") == 1 for cells in gpus.values()))
        rig.until(lambda _: rig.source.driver.pid not in (None, first))
        rig.machine.append("call nvmlDeviceGetFieldValues delay 0")
        rig.until(all_well(3))


def test_a_child_that_stands_still_is_left_behind_and_no_more_than_two_are(tmp_path: Path) -> None:
    stopped: list[int] = []
    with running(tmp_path, *THREE, abandon_seconds=1.0) as rig:
        try:
            for _ in range(2):
                rig.until(all_well(3))
                pid = rig.source.driver.pid
                assert pid is not None
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
                started = time.monotonic()
                rig.gpus()
                assert time.monotonic() - started < 0.9
                gpus = rig.until(lambda _, pid=pid: rig.source.driver.pid != pid)
                assert all(cells.get("gpu_driver_unresponsive") == 1 for cells in gpus.values())
            for _ in range(5):
                rig.gpus()
                time.sleep(0.05)
            assert rig.source.driver.pid is None
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        rig.until(all_well(3))


def test_a_killed_child_is_replaced_and_the_gpus_keep_their_rows(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        pid = rig.source.driver.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert set(rig.gpus()) == {A, B, C}
        gpus = rig.until(all_well(3))
        assert [clock_of(gpus[one]) for one in (A, B, C)] == [1000, 1001, 1002]


def test_a_gpu_that_says_that_it_is_lost(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        with rig.machine.while_stated("gpu 1 lost"):
            gpus = rig.until(lambda gpus: gpus[B].get("gpu_lost") == 1)
            assert is_well(gpus[A])
            assert gpus[B]["gpu_power_watts"] == "ABSENT_SOURCE_BLANK"
            assert gpus[B]["gpu_driver_unresponsive"] == 0
        gpus = rig.until(all_well(3))
        assert clock_of(gpus[B]) == 1001


def test_a_gpu_that_is_listed_no_more_is_lost_until_it_returns(tmp_path: Path) -> None:
    plug(tmp_path, "0000:1a:00.0", "0000:2a:00.0", "0000:3a:00.0")
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        with rig.machine.while_stated("gpu 1 vanish"):
            gpus = rig.until(lambda _: len(rig.source.present.gpus()) == 2)
            gpus = rig.until(lambda gpus: gpus[B].get("gpu_lost") == 1)
            assert [clock_of(gpus[one]) for one in (A, C)] == [1000, 1002]
            assert gpus[B]["gpu_power_watts"] == "ABSENT_SOURCE_BLANK"
            assert rig.tick()[HOST, ""] == {"node_gpu_count": 2}
        gpus = rig.until(all_well(3))
        assert clock_of(gpus[B]) == 1001


def test_a_gpu_that_was_taken_out_is_not_lost(tmp_path: Path) -> None:
    plug(tmp_path, "0000:1a:00.0", "0000:2a:00.0", "0000:3a:00.0")
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        plug(tmp_path, "0000:1a:00.0", "0000:3a:00.0")
        rig.machine.append("gpu 1 vanish")
        gpus = rig.until(lambda gpus: set(gpus) == {A, C})
        assert is_well(gpus[A])


def test_a_gpu_that_comes_later_is_read(tmp_path: Path) -> None:
    drivers = tmp_path / "root/proc/driver/nvidia/gpus"
    for place in ("0000:1a:00.0", "0000:2a:00.0"):
        (drivers / place).mkdir(parents=True)
    with running(tmp_path, *THREE, "listing at_init", "gpu 2 vanish") as rig:
        rig.until(all_well(2))
        rig.machine.append("gpu 2 back")
        (drivers / "0000:3a:00.0").mkdir()
        gpus = rig.until(all_well(3))
        assert clock_of(gpus[C]) == 1002


def test_another_order_of_the_list_moves_no_gpu(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        assert [gpu.index for gpu in rig.source.present.gpus() if gpu.uuid == A] == [0]
        rig.machine.append("gpu 0 index = 2", "gpu 1 index = 0", "gpu 2 index = 1")
        gpus = rig.until(lambda _: [gpu.index for gpu in rig.source.present.gpus() if gpu.uuid == A] == [2])
        assert [clock_of(gpus[one]) for one in (A, B, C)] == [1000, 1001, 1002]
        assert rig.facts[A]["index"] == "2"
        assert rig.source.known.uuid_of(index="2") == A


@pytest.mark.parametrize("code", [9, 18, 999])
def test_a_driver_that_went_away_is_initialised_again(tmp_path: Path, code: int) -> None:
    with running(tmp_path, *THREE, "driver 570.86.15") as rig:
        rig.until(all_well(3))
        assert rig.facts[A]["driver"] == "570.86.15"
        rig.machine.append("call * return 9" if code != 999 else "call * return 999", f"init return {code}")
        gpus = rig.until(lambda gpus: all(cells.get("gpu_driver_unresponsive") == 1 for cells in gpus.values()))
        assert set(gpus) == {A, B, C}
        assert all("gpu_lost" not in cells for cells in gpus.values())
        rig.machine.replace(*THREE, "driver 580.10")
        rig.until(all_well(3))
        assert rig.facts[A]["driver"] == "580.10"


@pytest.mark.parametrize("code", [9, 18, 999])
def test_a_driver_that_cannot_be_used_at_the_start(tmp_path: Path, code: int) -> None:
    with running(tmp_path, *THREE, f"init return {code}") as rig:
        for _ in range(3):
            assert rig.tick() == {}
            time.sleep(0.1)
        rig.machine.append("init return 0")
        rig.until(all_well(3))


def test_three_time_outs_in_a_row_make_a_driver_unresponsive(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        with rig.machine.while_stated("gpu 0 call nvmlDeviceGetUtilizationRates return 10"):
            gpus = rig.until(lambda gpus: gpus[A].get("gpu_driver_unresponsive") == 1)
            assert gpus[A]["gpu_utilization_ratio"] == "ABSENT_SOURCE_BLANK"
            assert is_well(gpus[B])
        rig.until(all_well(3))
        assert rig.counts.labelled("nvml_code")["nvmlDeviceGetUtilizationRates.gpu/10"] >= 3


def test_what_is_not_supported_is_not_asked_each_tick(tmp_path: Path) -> None:
    with running(tmp_path, *THREE, "gpu 0 call nvmlDeviceGetEncoderUtilization return 3") as rig:
        gpus = rig.settled(3)
        assert gpus[A]["gpu_encoder_utilization_ratio"] == "ABSENT_NOT_SUPPORTED"
        with rig.machine.while_stated("gpu 0 call nvmlDeviceGetEncoderUtilization delay 60000"):
            for _ in range(3):
                assert is_well(rig.gpus()[A])


def test_a_stop_ends_the_child(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        pid = rig.source.driver.pid
        assert pid is not None
        rig.reader.close()
        rig.reader.close()
        assert not Path(f"/proc/{pid}").exists()
        assert rig.tick() == {} or rig.source.driver.pid is None


def test_a_stop_does_not_end_a_driver_call_in_its_middle(tmp_path: Path) -> None:
    with running(tmp_path, *THREE) as rig:
        rig.until(all_well(3))
        child = rig.source.driver._child
        assert child is not None
        rig.machine.append("gpu 1 call * delay 60000")
        rig.until(lambda gpus: gpus[B].get("gpu_driver_unresponsive") == 1)
        started = time.monotonic()
        rig.reader.close()
        assert time.monotonic() - started < 5
        assert child.process.poll() is None
        child.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert child.process.poll() is None
        rig.machine.replace(*THREE)
        assert child.process.wait(20) == 0


def test_the_child_holds_the_binding_and_nothing_of_the_agent() -> None:
    code = "import sys, secondsight.agent.nvml.child.__main__ as m; print(*sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = told.stdout.split()
    ours = {name for name in loaded if name.startswith("secondsight.") and "nvml" not in name}
    assert ours == {"secondsight.agent", "secondsight.agent.turn", "secondsight.clock"}
    assert not {"numpy", "dataclasses", "inspect", "logging", "asyncio"} & set(loaded)


def test_readings_from_several_threads_do_not_mix(tmp_path: Path) -> None:
    with running(tmp_path, *THREE, "gpu 0 process 77777 compute memory 5") as rig:
        rig.until(all_well(3))
        failures: list[object] = []

        def take_processes() -> None:
            for _ in range(20):
                rows = rig.process_rows()
                if list(rows) != [(f"{HOST}/77777", f"gpu={A}")]:
                    failures.append(rows)

        other = threading.Thread(target=take_processes)
        other.start()
        for _ in range(20):
            if not all_well(3)(rig.gpus()):
                failures.append("a tick without values")
        other.join()
        assert failures == []
