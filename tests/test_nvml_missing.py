"""A GPU that the PCI bus has and the driver does not list is missed, by its UUID where anybody ever knew it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nvml_rig import HOST, Rig, add_functions, needs_compiler, plug, running
from secondsight.agent.bootfile import BootFile
from secondsight.agent.counts import Counts
from secondsight.agent.nvml import reader as reader_module
from secondsight.agent.nvml.absent import LOOKS, SCAN_LOOKS, AbsentGpus
from secondsight.agent.nvml.devices import Present
from secondsight.agent.nvml.missing import MissingGpus, unlisted

PLACES = tuple(f"0000:{slot}a:00.0" for slot in (1, 2, 3))
A, B, C = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abc")
THREE = (
    "host h200 3",
    *(f"gpu {slot} uuid = {uuid}" for slot, uuid in enumerate((A, B, C))),
    *(f"gpu {slot} pci = {place}" for slot, place in enumerate(PLACES)),
)
WITHOUT_B = (*THREE, "gpu 1 vanish")


@pytest.fixture
def looks_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LOOK_TICKS", 1)


def lost(*uuids: str) -> Callable[[dict[str, dict[str, Any]]], bool]:
    return lambda gpus: {uuid for uuid, cells in gpus.items() if cells.get("gpu_lost") == 1} == set(uuids)


def missing(rig: Rig) -> list[tuple[str, str, int, bool]]:
    events = [event for event in rig.events if event.metric == "node_gpu_missing"]
    return [(event.entity, event.attributes["pci_bus_id"], event.version, event.end_ms is not None) for event in events]


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_a_gpu_that_went_while_the_agent_was_down_is_lost(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *THREE) as rig:
        rig.settled(3)
    with running(tmp_path, *WITHOUT_B) as rig:
        rig.until(lambda gpus: set(gpus) == {A, B, C} and lost(B)(gpus))
        rig.machine.append("gpu 1 back")
        rig.settled(3)
        assert missing(rig) == []


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_what_was_known_in_another_boot_is_forgotten(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *THREE) as rig:
        rig.settled(3)
    with running(tmp_path, *WITHOUT_B, boot_id="boot-2") as rig:
        rig.until(lambda gpus: set(gpus) == {A, C} and bool(missing(rig)))
        assert missing(rig) == [(HOST, PLACES[1], 1, False)]


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
@pytest.mark.parametrize(
    ("driver", "files"),
    [("vfio-pci", {}), ("", {"driver_override": "vfio-pci"}), ("", {"physfn": ""})],
    ids=["bound elsewhere", "meant for elsewhere", "a virtual function"],
)
def test_a_gpu_given_to_another_driver_is_not_missing(tmp_path: Path, driver: str, files: dict[str, str]) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *THREE) as rig:
        rig.settled(3)
    plug(tmp_path, PLACES[0], PLACES[2])
    add_functions(tmp_path / "root/sys/bus/pci/devices", PLACES[1], driver=driver, **files)
    if "physfn" in files:
        (tmp_path / "spool/gpus.json").unlink()
    with running(tmp_path, *WITHOUT_B) as rig:
        rig.until(lambda gpus: set(gpus) == {A, C})
        for _ in range(LOOKS + 2):
            assert set(rig.gpus()) == {A, C}
        assert missing(rig) == []


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_a_gpu_that_nobody_knows_is_an_event_with_an_end_over_a_restart(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *WITHOUT_B) as rig:
        rig.until(lambda _: bool(missing(rig)))
        first = rig.events[-1].time_ms
        assert missing(rig) == [(HOST, PLACES[1], 1, False)]
    with running(tmp_path, *WITHOUT_B) as rig:
        for _ in range(LOOKS + 3):
            rig.gpus()
        assert missing(rig) == []
        rig.machine.append("gpu 1 back")
        rig.until(lambda _: bool(missing(rig)))
        assert missing(rig) == [(HOST, PLACES[1], 2, True)]
        assert rig.events[-1].time_ms == first


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_a_gpu_that_another_reader_named_is_lost_under_its_uuid(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *WITHOUT_B) as rig:
        rig.source.known.learn(B, address=PLACES[1])
        rig.until(lost(B))
        assert missing(rig) == []


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_a_gpu_whose_device_file_the_agent_was_not_given_is_not_missing(tmp_path: Path) -> None:
    """A container that sees some of the GPUs sees the PCI bus of all."""
    plug(tmp_path, *PLACES)
    folder = tmp_path / "root/proc/driver/nvidia/gpus" / PLACES[1]
    folder.mkdir(parents=True)
    (folder / "information").write_text(f"GPU UUID: \t {B}\nDevice Minor: \t 1\nBus Location: \t {PLACES[1]}\n")
    with running(tmp_path, *WITHOUT_B) as rig:
        rig.until(lambda gpus: set(gpus) == {A, C})
        for _ in range(LOOKS + 2):
            rig.gpus()
        assert missing(rig) == []


@needs_compiler
@pytest.mark.usefixtures("looks_each_tick")
def test_mig_changes_nothing(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    with running(tmp_path, *THREE, "gpu 1 mig 0 gi 5 ci 0 profile 1g.18gb memory 18253611008 slices 1") as rig:
        rig.until(lambda gpus: set(gpus) == {A, B, C})
        for _ in range(LOOKS + 2):
            assert lost()(rig.gpus())
        assert missing(rig) == []


def looks(absent: AbsentGpus, listed: list[set[str]]) -> list[list[str]]:
    return [[place for place, is_missing in absent.look(each).items() if is_missing] for each in listed]


def test_one_look_proves_nothing_and_a_gap_begins_anew(tmp_path: Path) -> None:
    plug(tmp_path, *PLACES)
    absent = AbsentGpus(tmp_path / "root", tmp_path / "dev")
    everything, without = set(PLACES), set(PLACES) - {PLACES[1]}
    assert looks(absent, [without, without, everything, without, without]) == [[]] * 5
    assert looks(absent, [without, without, everything]) == [[PLACES[1]], [PLACES[1]], []]


def test_a_function_that_comes_later_is_found_and_one_that_goes_is_not_missed(tmp_path: Path) -> None:
    plug(tmp_path, PLACES[0])
    devices = tmp_path / "root/sys/bus/pci/devices"
    add_functions(devices, "0000:00:02.0", driver="ast", vendor="0x1a03", **{"class": "0x030000"})
    add_functions(devices, "0000:00:03.0", driver="nvidia-nvswitch", **{"class": "0x068000"})
    absent = AbsentGpus(tmp_path / "root", tmp_path / "dev")
    assert looks(absent, [{PLACES[0]}] * SCAN_LOOKS) == [[]] * SCAN_LOOKS
    add_functions(devices, PLACES[1], driver="")
    assert looks(absent, [{PLACES[0]}] * LOOKS)[-1] == [PLACES[1]]
    plug(tmp_path, PLACES[0])
    assert absent.look({PLACES[0]}) == {}


def test_where_there_is_no_bus_nothing_is_missing(tmp_path: Path) -> None:
    assert looks(AbsentGpus(tmp_path, tmp_path), [set()] * LOOKS) == [[]] * LOOKS


def kept(folder: Path) -> MissingGpus:
    return MissingGpus(HOST, lambda _address: "", BootFile(folder / "gpus.json", "boot-1", Counts()))


@pytest.mark.parametrize("said", [None, [], {"gpus": [["x"]]}, {"gpus": [], "missing": {"a": "b"}}, {"gpus": 7}])
def test_a_file_that_is_of_no_use_is_none(tmp_path: Path, said: object) -> None:
    (tmp_path / "gpus.json").write_text(json.dumps({"boot_id": "boot-1", "value": said}))
    known = kept(tmp_path)
    assert known.restored() == []
    known.keep([unlisted(A, PLACES[0], 3, "H200")])
    assert kept(tmp_path).restored() == [Present(-1, A, 3, None, PLACES[0], {"name": "H200"})]
