"""What is slow or off by default about a host: chassis sensors, programs by name, storage probes."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.counts import Counts
from secondsight.agent.host.chassis import ChassisReader
from secondsight.agent.host.place import Place
from secondsight.agent.host.processes import (
    KERNEL,
    OTHER,
    ByName,
    ProcessesConfig,
    ProcessesReader,
    greatest,
    parse_stat,
    processes,
    short_name,
)
from secondsight.agent.host.storage import BOUNDS_SECONDS, FileProbe, Observe, Probe, StorageProbeConfig, StorageReader
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock, SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.wire.content import Content
from tick_cells import cells_of
from up_rig import wait_until

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def cells(tick: Tick) -> dict[str, Any]:
    return {name: value for content in tick.contents for name, value in cells_of(content).items()}


def chassis(root: Path) -> ChassisReader:
    return ChassisReader(Place("host-1", root=root), load_catalog(), ManualClock(), Counts())


def test_chassis_sensors(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/class/hwmon/hwmon0/name": "power_meter\n",
            "sys/class/hwmon/hwmon0/power1_average": "5230000000\n",
            "sys/class/hwmon/hwmon1/name": "nct6775\n",
            "sys/class/hwmon/hwmon1/temp1_label": "Inlet Temp\n",
            "sys/class/hwmon/hwmon1/temp1_input": "23500\n",
            "sys/class/hwmon/hwmon1/temp2_label": "CPU\n",
            "sys/class/hwmon/hwmon1/temp2_input": "81000\n",
            "sys/class/hwmon/hwmon2/name": "odd\n",
            "sys/class/hwmon/hwmon2/temp1_label": "ambient\n",
            "sys/class/hwmon/hwmon2/temp1_input": "no number\n",
            "sys/class/hwmon/hwmon3/power1_average": "1\n",
        },
    )
    tick = chassis(tmp_path).read(0)
    assert cells(tick) == {"node_power_watts": 5230, "node_inlet_temperature_celsius sensor=Inlet Temp": 23.5}
    assert (tick.collector, tick.source) == ("chassis", "host")


@pytest.mark.parametrize("temperature", ["200000", "-99000"])
def test_an_impossible_temperature_is_no_value(temperature: str, tmp_path: Path) -> None:
    label, value = "sys/class/hwmon/hwmon1/temp1_label", "sys/class/hwmon/hwmon1/temp1_input"
    write(tmp_path, {label: "Inlet", value: temperature})
    assert cells(chassis(tmp_path).read(0)) == {"node_inlet_temperature_celsius sensor=Inlet": "bad_range"}


def test_the_fabric_manager_is_looked_for_where_there_are_switches(tmp_path: Path) -> None:
    write(tmp_path, {"proc/12/comm": "bash\n"})
    assert cells(chassis(tmp_path).read(0)) == {}
    bus = "sys/bus/pci/devices/0000:86:00.0"
    write(tmp_path, {f"{bus}/vendor": "0x10de\n", f"{bus}/class": "0x068000\n"})
    reader = chassis(tmp_path)
    assert cells(reader.read(0)) == {"node_fabric_manager_up": 0}
    write(tmp_path, {"proc/77/comm": "nv-fabricmanager\n"[:15] + "\n"})
    assert cells(reader.read(0)) == {"node_fabric_manager_up": 1}
    write(tmp_path, {"proc/77/comm": "another\n"})
    assert cells(reader.read(0)) == {"node_fabric_manager_up": 0}


def stat(pid: int, name: str, cpu_ticks: int, pages: int, started: int = 100, flags: int = 0) -> str:
    fields = [1, 1, 1, 0, -1, flags, 0, 0, 0, 0, cpu_ticks, 0, 0, 0, 20, 0, 1, 0, started, 4096, pages, 0]
    return f"{pid} ({name}) S {' '.join(map(str, fields))}\n"


def test_processes_by_name(tmp_path: Path) -> None:
    clock = ManualClock()
    write(
        tmp_path,
        {
            "proc/1/stat": stat(1, "systemd", 500, 10),
            "proc/20/stat": stat(20, "w-0001", 0, 100),
            "proc/21/stat": stat(21, "w-0002", 0, 100),
            "proc/30/stat": stat(30, "kworker/3:1", 9, 0, flags=0x0420_8060),
            "proc/40/stat": "garbage",
            "proc/self/stat": stat(1, "systemd", 500, 10),
        },
    )
    reader = ProcessesReader(ProcessesConfig(top=1), Place("host-1", root=tmp_path), load_catalog(), clock, Counts())
    first = cells(reader.read(0))
    assert not [name for name in first if "cpu" in name]
    clock.move(10)
    write(
        tmp_path,
        {
            "proc/20/stat": stat(20, "w-0001", 5 * TICKS_PER_SECOND, 100),
            "proc/21/stat": stat(21, "w-0002", 2 * TICKS_PER_SECOND, 100, started=999),
            "proc/30/stat": stat(30, "kworker/3:1", 9 + TICKS_PER_SECOND, 0, flags=0x0420_8060),
        },
    )
    assert cells(reader.read(0)) == {
        "node_process_cpu_cores process=w-#": 0.7,
        "node_process_resident_bytes process=w-#": 200 * PAGE_BYTES,
        "node_processes process=w-#": 2,
        f"node_process_cpu_cores process={OTHER}": 0.1,
        f"node_process_resident_bytes process={OTHER}": 10 * PAGE_BYTES,
        f"node_processes process={OTHER}": 2,
    }


def test_processes_of_this_machine() -> None:
    found = {one.pid: one for one in processes("/proc")}
    assert found[os.getpid()].resident_bytes > 1 << 20


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("python3", "python3"),
        ("w-0042", "w-#"),
        ("ray::worker_17", "ray::worker_#"),
        ("cuda-EvtHandlr", "cuda-EvtHandlr"),
        ("", OTHER),
        ("a\nb", "a_b"),
    ],
)
def test_names_of_numbered_workers_are_one(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_name_may_hold_brackets_and_blanks() -> None:
    process = parse_stat(stat(7, "a) R (b", 1, 2).encode())
    assert process is not None
    assert (process.pid, process.name, process.cpu_ticks) == (7, "a) R (b", 1)
    kernel = parse_stat(stat(2, "kthreadd", 1, 0, flags=0x0020_8040).encode())
    assert kernel is not None
    assert kernel.name == KERNEL


@given(st.binary(max_size=200))
def test_no_stat_text_breaks_it(data: bytes) -> None:
    parse_stat(data)


SUMS = st.builds(ByName, st.integers(0, 1000), st.integers(0, 1 << 40), st.integers(1, 50))


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), SUMS, max_size=40), st.integers(1, 5))
def test_of_processes_nothing_is_lost(sums: dict[str, ByName], top: int) -> None:
    told = greatest(sums, top)
    assert len(told) <= 2 * top + 1
    for field in range(3):
        assert sum(one[field] for one in told.values()) == sum(one[field] for one in sums.values())


def storage(tmp_path: Path, clock: Any, *paths: Path, **settings: Any) -> StorageReader:
    config = StorageProbeConfig(paths=paths, **settings)
    return StorageReader(config, Place("host-1", root=tmp_path), load_catalog(), clock, Counts())


def points(tick: Tick) -> dict[str, int]:
    """Return part -> observations."""
    found: dict[str, int] = {}

    def take(content: Content) -> None:
        for rows in content.histograms:
            for index, buckets in zip(rows.entity_index, rows.buckets, strict=True):
                found[content.entities.entities[index].part] = int(buckets.sum())

    for content in tick.contents:
        take(content)
    return found


def test_storage_is_probed(tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    reader = storage(tmp_path, SystemClock(), tmp_path / "mount")
    assert reader.read(0).contents == ()
    names = {f"mount={tmp_path / 'mount'},op={op}" for op in ("open", "write", "sync", "read")}
    wait_until(lambda: set(points(reader.read(0))) == names, 20)
    reader.close()
    reader.close()
    assert [path.name for path in (tmp_path / "mount").iterdir()] == [".secondsight-probe-host-1"]
    assert (tmp_path / "mount/.secondsight-probe-host-1").stat().st_size == 4096


def test_a_path_that_fails_is_counted_and_tried_again(tmp_path: Path) -> None:
    counts = Counts()
    config = StorageProbeConfig(paths=(tmp_path / "absent",))
    reader = StorageReader(config, Place("host-1", root=tmp_path), load_catalog(), SystemClock(), counts)

    def has_failed_twice() -> bool:
        reader.read(0)
        return counts.get("storage_failed") >= 2

    wait_until(has_failed_twice, 20)
    reader.close()


def test_a_probe_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".probe").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link"):
        FileProbe(".probe", SystemClock()).run(tmp_path, lambda _operation, _seconds: None)
    assert (tmp_path / "victim").read_text() == "precious"


def test_storage_that_hangs_holds_up_nothing_and_is_told() -> None:
    clock, begun, go_on = ManualClock(), threading.Semaphore(0), threading.Semaphore(0)

    def work(_path: Path, observe: Observe) -> None:
        begun.release()
        go_on.acquire()
        observe("open", 40.0)

    probe = Probe(Path("/mnt/a"), work, clock)
    assert not probe.ask(10)
    begun.acquire()
    clock.move(9)
    assert not probe.ask(10)
    clock.move(1)
    assert probe.ask(10)
    clock.move(30)
    assert not probe.ask(10)
    ten_seconds = BOUNDS_SECONDS.index(10.0)
    assert {name: buckets[ten_seconds] for name, (buckets, _) in probe.histograms().items()} == {"hung": 1}
    assert not begun.acquire(blocking=False)
    go_on.release()

    def begins_again() -> bool:
        probe.ask(10)
        return begun.acquire(timeout=0.01)

    wait_until(begins_again, 20)
    assert set(probe.histograms()) == {"hung", "open"}
    go_on.release()
    probe.end()


@pytest.mark.parametrize(
    "settings",
    [
        {"paths": ()},
        {"paths": (Path("relative"),)},
        {"paths": (Path("/a"), Path("/a"))},
        {"paths": (Path("/" + "a" * 200),)},
        {"paths": (Path("/a"),), "interval_ms": 10},
        {"paths": (Path("/a"),), "timeout_seconds": 0},
        {"paths": tuple(Path(f"/{n}") for n in range(17))},
    ],
)
def test_probe_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        StorageProbeConfig(**settings)


@pytest.mark.parametrize("settings", [{"top": 0}, {"top": 17}, {"interval_ms": 10}])
def test_process_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        ProcessesConfig(**settings)
