"""The reader of DCGM's bindings, against modules of the same names in a process of its own."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from secondsight.agent.counts import Counts
from secondsight.agent.dcgm.config import DcgmSettings
from secondsight.agent.dcgm.reader import DcgmPlace, DcgmReader, field_names
from secondsight.agent.dcgm.watch import one_pass
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable
from test_smi_reader import SkippingClock, values

CATALOG = load_catalog()
STUB = Path(__file__).parent / "dcgm_stub"
GPUS = ["GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-aaaaaaaa-0000-0000-0000-000000000002"]
FIRST, SECOND = GPUS
PASSES = [[1, 1, [1001, 1002, 1004]], [1, 2, [1006, 1007]], [2, 1, [1005]], [3, 1, [1009, 1010]]]
VALUES = {"*/203": 97, "*/155": 71.15, "1/0/252": 70123, "1/1/252": 59, "*/156": 4_000_000_000, "*/1001": 0.959}
PATIENCE_SECONDS = 30.0


class Stub:
    """One scenario that a child reads, and what it did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def set(self, **scenario: Any) -> None:
        whole = {"gpus": GPUS, "passes": PASSES, "values": VALUES} | scenario
        new = self._folder / "scenario.new"
        new.write_text(json.dumps(whole))
        new.rename(self._folder / "scenario.json")

    def calls(self, name: str) -> list[list[Any]]:
        lines = (self._folder / "calls").read_text().splitlines()
        return [call[1:] for call in map(json.loads, lines) if call[0] == name]


Make = Callable[..., DcgmReader]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setenv("DCGM_STUB", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    made = Stub(tmp_path)
    made.set()
    return made


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[DcgmReader] = []

    def build(clock: SystemClock | None = None, **settings: Any) -> DcgmReader:
        chosen = DcgmSettings(**({"bindings": STUB, "timeout_seconds": 10.0} | settings))
        made.append(DcgmReader(chosen, DcgmPlace("h"), CATALOG, clock or SystemClock(), Counts()))
        return made[-1]

    yield build
    for reader in made:
        reader.close()
        reader.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read(reader: DcgmReader) -> Tick:
    return reader.read(now_ms())


def until(reader: DcgmReader, is_enough: Callable[[dict[str, dict[str, float]]], bool]) -> dict[str, dict[str, float]]:
    end = time.monotonic() + PATIENCE_SECONDS
    seen: Any = None
    while time.monotonic() < end:
        try:
            seen = values(read(reader))
        except Retryable as error:
            seen = error
        else:
            if is_enough(seen):
                return seen
        time.sleep(0.02)
    raise AssertionError(seen)


def test_latest_values_become_a_tick_of_their_own_source(stub: Stub, make: Make) -> None:
    reader = make(fields=(203, 155, 252, 156, 1001, 1002, 150))
    tick = read(reader)
    assert (tick.collector, tick.source) == ("dcgm", "dcgm")
    found = values(tick)
    assert found[FIRST] == {
        "gpu_utilization_ratio": 0.97,
        "gpu_power_watts": 71.15,
        "gpu_memory_used_bytes": 70123 * 2**20,
        "gpu_energy_joules_total": 4_000_000.0,
        "gpu_graphics_engine_active_ratio": 0.959,
        "gpu_lost": 0,
        "gpu_driver_unresponsive": 0,
    }
    assert found[SECOND]["gpu_memory_used_bytes"] == 59 * 2**20
    infos = {info.entity: dict(info.attributes) for content in tick.contents for info in content.infos}
    assert infos[FIRST]["driver"] == "590.48.01"
    assert "serial" not in infos[FIRST]
    assert stub.calls("watch") == [["secondsight_fields", 1_000_000], ["secondsight_profiling", 1_000_000]]


def test_every_field_of_the_catalogue_is_watched_once(stub: Stub, make: Make) -> None:
    stub.set(unknown_fields=[1501, 1523])
    read(make())
    plain, profiling = (fields for _, fields in stub.calls("fields"))
    assert set(plain) == {one for one in field_names(CATALOG) if not 1001 <= one <= 1099} - {1501, 1523}
    assert profiling == [1001, 1002, 1004, 1005, 1009, 1010]


def test_only_one_pass_of_the_profiling_counters_is_asked_for() -> None:
    assert one_pass([(1, 1, [1001, 1002]), (1, 2, [1006, 1007]), (2, 1, [1005])], [1002, 1007, 1006, 1005]) == [
        1007,
        1006,
        1005,
    ]
    assert one_pass([(1, 1, [1001]), (1, 2, [1006])], [1006, 1001]) == [1001]
    assert one_pass([], [1001]) == []


def test_a_profiling_module_in_use_costs_its_fields_alone(stub: Stub, make: Make) -> None:
    stub.set(refuse_profiling=True)
    found = values(read(make(fields=(203, 1001))))
    assert found[FIRST]["gpu_utilization_ratio"] == 0.97
    assert "gpu_graphics_engine_active_ratio" not in found[FIRST]


def test_kinds_of_absence_and_what_is_wrong_with_a_gpu(stub: Stub, make: Make) -> None:
    lost, reset = {"status": "DCGM_ST_GPU_IS_LOST"}, {"status": "DCGM_ST_RESET_REQUIRED"}
    told = {"1/0/203": lost, "1/0/155": lost, "1/1/203": reset, "1/1/155": 0x7FFFFFFFFFFFFFF2, "1/1/150": 4_294_967_295}
    stub.set(values=told)
    reader = make(fields=(203, 155, 150, 140))
    found = values(read(reader))
    assert found[FIRST] == {"gpu_lost": 1, "gpu_driver_unresponsive": 0}
    assert found[SECOND] == {"gpu_lost": 0, "gpu_driver_unresponsive": 0, "gpu_recovery_action": 1}
    stub.set(values={"*/203": {"status": "DCGM_ST_NOT_SUPPORTED"}, "*/155": {"status": "DCGM_ST_NO_PERMISSION"}})
    counts = Counts()
    reader._counts = counts
    read(reader)
    assert counts.labelled("discarded") == {"not_supported": 2, "no_permission": 2, "sentinel": 4}


def test_instances_of_mig_are_parts_of_their_gpu(stub: Stub, make: Make) -> None:
    stub.set(instances=[[0, 7, 12]], values=VALUES | {"4/12/1001": 0.5, "4/12/252": 9, "4/12/203": 0})
    found = values(read(make(fields=(1001, 252, 203))))
    assert found[f"{FIRST}|gi=7"] == {"gpu_graphics_engine_active_ratio": 0.5, "gpu_memory_used_bytes": 9 * 2**20}
    assert [4, 12] in stub.calls("add")


def test_a_value_that_the_engine_serves_for_ever_is_stale(stub: Stub, make: Make) -> None:
    reader = make(fields=(203,))
    at_ms = now_ms()
    stub.set(at_us=at_ms * 1000)
    assert values(reader.read(at_ms))[FIRST]["gpu_utilization_ratio"] == 0.97
    assert "gpu_utilization_ratio" not in values(reader.read(at_ms + 1000))[FIRST]
    counts = Counts()
    reader._counts = counts
    reader.read(at_ms + 4000)
    assert counts.labelled("discarded") == {"stale": 2}


def test_profiling_that_stays_blank_is_armed_again(stub: Stub, make: Make) -> None:
    stub.set(values={"*/203": 100})
    reader = make(fields=(203, 1001))
    for _ in range(31):
        read(reader)
    assert stub.calls("unwatch") == [["secondsight_profiling"]]
    assert [name for name, _ in stub.calls("watch")].count("secondsight_profiling") == 2


def test_an_engine_that_is_away_is_said_and_comes_back(stub: Stub, make: Make) -> None:
    stub.set(refuse="connection is not valid")
    reader = make(fields=(203,))
    with pytest.raises(Retryable, match="nvidia-dcgm"):
        read(reader)
    stub.set()
    until(reader, lambda seen: "gpu_utilization_ratio" in seen.get(FIRST, {}))
    stub.set(fail="connection is not valid")
    found = until(reader, lambda seen: bool(seen))
    assert found == {gpu: {"gpu_driver_unresponsive": 1} for gpu in GPUS}
    stub.set()
    until(reader, lambda seen: "gpu_utilization_ratio" in seen.get(FIRST, {}))
    assert len(stub.calls("connect")) >= 3


def test_a_call_that_hangs_costs_a_state_and_nothing_else(stub: Stub, make: Make) -> None:
    reader = make(fields=(203,), timeout_seconds=5.0)
    read(reader)
    reader._timeout_seconds = 0.05
    stub.set(hang=0.6)
    until(reader, lambda seen: seen.get(FIRST) == {"gpu_driver_unresponsive": 1})
    stub.set()
    until(reader, lambda seen: seen.get(FIRST, {}).get("gpu_utilization_ratio") == 0.97)
    assert len(stub.calls("connect")) == 1


def test_a_child_that_died_is_started_again(stub: Stub, make: Make) -> None:
    clock = SkippingClock()
    reader = make(clock=clock, fields=(203,))
    read(reader)
    process = reader._child._process
    assert process is not None
    process.kill()
    process.wait()
    clock.ahead_seconds = 100.0
    until(reader, lambda seen: seen.get(FIRST, {}).get("gpu_utilization_ratio") == 0.97)


def test_other_gpus_make_a_new_connection(stub: Stub, make: Make) -> None:
    reader = make(fields=(203,))
    read(reader)
    stub.set(gpus=[*GPUS, "GPU-c"])
    until(reader, lambda seen: "GPU-c" in seen)


def test_a_socket_and_missing_bindings(stub: Stub, make: Make, tmp_path: Path) -> None:
    read(make(fields=(203,), address="unix:///run/nv-hostengine.sock"))
    assert stub.calls("connect_v2") == [["/run/nv-hostengine.sock", 1]]
    with pytest.raises(Rejected) as refused:
        make(bindings=tmp_path)
    assert refused.value.code == "bad_config"
