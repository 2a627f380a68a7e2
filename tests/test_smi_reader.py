"""The reader of a running nvidia-smi, against a program that prints, stops, complains and hangs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_nvidia_smi import install, starts
from secondsight.agent.counts import Counts
from secondsight.agent.smi.config import SmiSettings
from secondsight.agent.smi.reader import SmiPlace, SmiReader
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable

CATALOG = load_catalog()
TICK_MS = 1_717_236_000_000
COLUMNS = [
    "timestamp",
    "name",
    "index",
    "uuid",
    "pci.bus_id",
    "power.draw",
    "temperature.gpu",
    "pstate",
    "vbios_version",
]
HEAD = "timestamp, index, uuid, pci.bus_id, power.draw [W], temperature.gpu\n"
PATIENCE_SECONDS = 30.0


def row(gpu: int, watts: str = "71.15 W", celsius: str = "42") -> str:
    return f"2026/07/14 09:00:27.{gpu:03d}, {gpu}, GPU-{gpu}, 00000000:{0x18 + gpu:02X}:00.0, {watts}, {celsius}\n"


class SkippingClock(SystemClock):
    """The machine's clock, with seconds added to the monotonic one."""

    ahead_seconds = 0.0

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.ahead_seconds


Make = Callable[..., SmiReader]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[SmiReader] = []

    def build(*runs: list[Any], clock: SystemClock | None = None, columns: list[str] = COLUMNS) -> SmiReader:
        program = install(tmp_path / "bin", {"columns": columns, "runs": list(runs)})
        settings = SmiSettings(program, interval_ms=200, restart_seconds=0.02)
        reader = SmiReader(settings, SmiPlace("h", root=tmp_path), CATALOG, clock or SystemClock(), Counts())
        made.append(reader)
        return reader

    yield build
    for reader in made:
        reader.close()


def values(tick: Tick) -> dict[str, dict[str, float]]:
    """Return entity -> metric -> physical value of a tick."""
    found: dict[str, dict[str, float]] = {}
    for content in tick.contents:
        if content.scalars is None:
            continue
        for group in content.scalars.groups:
            for offset, line in enumerate(group.values):
                metric = CATALOG.get(content.schema.columns[group.first_column + offset].metric)
                for place, (index, value) in enumerate(zip(content.scalars.entity_index, line, strict=True)):
                    if group.present is None or group.present[offset, place]:
                        one = content.entities.entities[index]
                        key = one.entity + (f"|{one.part}" if one.part else "")
                        found.setdefault(key, {})[metric.name] = to_physical(metric, value.item())
    return found


def until(reader: SmiReader, is_enough: Callable[[dict[str, dict[str, float]]], bool]) -> dict[str, dict[str, float]]:
    """Read ticks until one says enough; failed ticks are passed over."""
    end = time.monotonic() + PATIENCE_SECONDS
    seen: Any = None
    while time.monotonic() < end:
        try:
            seen = values(reader.read(TICK_MS))
        except Retryable as error:
            seen = error
        else:
            if is_enough(seen):
                return seen
        time.sleep(0.02)
    raise AssertionError(seen)


def complaint(reader: SmiReader, words: str) -> str:
    """Read until a tick fails with these words."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            reader.read(TICK_MS)
        except Retryable as error:
            if words in str(error):
                return str(error)
        time.sleep(0.02)
    raise AssertionError(words)


def test_one_program_gives_row_after_row(make: Make, tmp_path: Path) -> None:
    reader = make([HEAD, row(0) + row(1, "[N/A]")])
    for _ in range(5):
        found = until(reader, lambda seen: len(seen) == 2)
    assert found["GPU-0"] == {
        "gpu_power_watts": 71.15,
        "gpu_temperature_celsius": 42,
        "gpu_lost": 0,
        "gpu_driver_unresponsive": 0,
    }
    assert found["GPU-1"] == {"gpu_temperature_celsius": 42, "gpu_lost": 0, "gpu_driver_unresponsive": 0}
    started = starts(tmp_path / "bin" / "nvidia-smi")
    assert len(started) == reader.starts == 1
    assert started[0][1:] == ["--format=csv", "--loop-ms=180"]
    asked = started[0][0].removeprefix("--query-gpu=").split(",")
    assert set(asked) == set(COLUMNS)


def test_older_programs_are_asked_in_their_own_words(make: Make, tmp_path: Path) -> None:
    reader = make([HEAD, row(0)], columns=["uuid", "clocks_throttle_reasons.active", "clocks.sm", "no.such.column"])
    until(reader, bool)
    asked = starts(tmp_path / "bin" / "nvidia-smi")[0][0].removeprefix("--query-gpu=").split(",")
    assert asked == ["timestamp", "index", "uuid", "pci.bus_id", "name", "clocks_throttle_reasons.active", "clocks.sm"]


def test_a_program_that_ends_is_started_again_with_other_columns(make: Make) -> None:
    other = "index, uuid, temperature.gpu\n"
    reader = make([HEAD, row(0), {"exit": 0}], [other, "0, GPU-0, 55\n"])
    until(reader, lambda seen: seen.get("GPU-0", {}).get("gpu_power_watts") == 71.15)
    found = until(reader, lambda seen: seen.get("GPU-0", {}).get("gpu_temperature_celsius") == 55)
    assert "gpu_power_watts" not in found["GPU-0"]


def test_a_lost_gpu_is_said_to_be_lost_until_it_returns(make: Make) -> None:
    lost = "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.  Reboot the system to recover\n"
    reader = make([HEAD, row(0) + row(1), {"exit": 0}], [lost, {"exit": 15}], [lost, {"exit": 15}], [HEAD, row(0)])
    until(reader, lambda seen: len(seen) == 2)
    found = until(reader, lambda seen: seen.get("GPU-0", {}).get("gpu_lost") == 1)
    assert "gpu_power_watts" not in found["GPU-0"]
    until(reader, lambda seen: seen.get("GPU-0", {}).get("gpu_lost") == 0)


def test_a_gpu_whose_rows_stay_away_is_lost_while_the_bus_has_it(make: Make, tmp_path: Path) -> None:
    device = tmp_path / "sys/bus/pci/devices/0000:19:00.0"
    device.mkdir(parents=True)
    reader = make([HEAD, row(0) + row(1), HEAD, *[row(0)] * 30])
    until(reader, lambda seen: len(seen) == 2)
    found = until(reader, lambda seen: seen.get("GPU-1") == {"gpu_lost": 1})
    assert found["GPU-0"]["gpu_power_watts"] == 71.15
    device.rmdir()


def test_a_gpu_that_was_taken_out_is_no_lost_gpu(make: Make, tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:18:00.0").mkdir(parents=True)
    reader = make([HEAD, row(0) + row(1), *[row(0)] * 40])
    until(reader, lambda seen: len(seen) == 2)
    for _ in range(10):
        found = until(reader, lambda seen: "GPU-0" in seen)
    assert "GPU-1" not in found


def test_a_driver_fault_is_said_of_every_known_gpu_and_passes(make: Make) -> None:
    mismatch = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.48\n"
    reader = make(
        [HEAD, row(0) + row(1), {"exit": 0}], [mismatch, {"exit": 18}], [mismatch, {"exit": 18}], [HEAD, row(0)]
    )
    until(reader, lambda seen: len(seen) == 2)
    until(reader, lambda seen: all(seen.get(f"GPU-{n}") == {"gpu_driver_unresponsive": 1} for n in (0, 1)))
    until(reader, lambda seen: "gpu_power_watts" in seen.get("GPU-0", {}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No devices were found\n", "compare with lspci"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "the driver was updated"),
        ("Failed to initialize NVML: Unknown Error\n", "run the agent on the host"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.\n",
            "modprobe nvidia",
        ),
    ],
)
def test_without_a_known_gpu_the_tick_fails_with_advice(text: str, words: str, make: Make) -> None:
    assert words in complaint(make([text, {"exit": 9}]), words)


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    settings = SmiSettings(tmp_path / "none", restart_seconds=0.02)
    reader = SmiReader(settings, SmiPlace("h"), CATALOG, SystemClock(), Counts())
    assert "cannot be started" in complaint(reader, "none")
    reader.close()
    reader.close()


def test_a_program_that_hangs_stops_nothing_and_is_never_doubled(make: Make, tmp_path: Path) -> None:
    clock = SkippingClock()
    reader = make([HEAD, row(0), {"hang": True}], clock=clock)
    until(reader, lambda seen: "GPU-0" in seen)
    clock.ahead_seconds = 100.0
    until(reader, lambda seen: seen.get("GPU-0") == {"gpu_driver_unresponsive": 1})
    assert reader.starts == 1
    reader.close()
    process = reader._program._process
    assert process is not None
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)


def test_intervals_below_what_the_program_can_do_are_refused() -> None:
    with pytest.raises(Rejected) as refused:
        SmiSettings(interval_ms=50)
    assert refused.value.code == "bad_config"
