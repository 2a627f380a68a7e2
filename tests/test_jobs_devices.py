"""Every spelling of a GPU comes to one (UUID, part, replica), or to nothing: never to another GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs_fixture import GPUS, uuid
from secondsight.agent.jobs.devices import Gpu, claimed_device, device_of, numbered
from secondsight.agent.jobs.inventory import DriverFiles, FirstOf, information
from secondsight.agent.known_gpus import KnownGpus
from secondsight.clock import ManualClock

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cases/jobs/devices.json").read_text())


def named(wanted: list[Any] | None) -> tuple[str, str, str | None] | None:
    if wanted is None:
        return None
    gpu, part, replica = wanted
    return (uuid(int(gpu)) if gpu.isdecimal() else gpu, part, replica)


@pytest.mark.parametrize("text", CASES["ids"])
def test_spelling(text: str) -> None:
    device = device_of(text, GPUS)
    found = None if device is None else (device.entity, device.part, device.replica)
    assert found == named(CASES["ids"][text])


@pytest.mark.parametrize("case", CASES["claims"], ids=lambda case: f"{case['device']} {case['cdi']}")
def test_claim(case: dict[str, Any]) -> None:
    device = claimed_device(case["device"], case["cdi"], GPUS)
    found = None if device is None else (device.entity, device.part, device.replica)
    assert found == named(case["is"])


@given(st.text(max_size=60))
def test_any_text_names_a_gpu_or_nothing(text: str) -> None:
    device = device_of(text, GPUS)
    assert device is None or device.entity.startswith("GPU-")


def test_the_beginning_of_a_uuid_names_the_only_gpu_that_begins_so() -> None:
    gpus = (Gpu("GPU-aaaaaaaa-0000-0000-0000-000000000001"), Gpu("GPU-aaaabbbb-0000-0000-0000-000000000002"))
    found = [device_of(name, gpus) for name in ("GPU-aaaaaaaa", "gpu-AAAAB", "GPU-aaaa", "GPU-cccc")]
    assert [each and each.entity for each in found] == [gpus[0].uuid, gpus[1].uuid, None, "GPU-cccc"]


def test_a_minor_is_not_an_index() -> None:
    assert numbered(0, GPUS) == GPUS[3]
    assert numbered(0, GPUS, by="index") == GPUS[0]
    plain = (Gpu(uuid(1), 0), Gpu(uuid(2), 1))
    assert numbered(1, plain) == plain[1]


def test_the_driver_s_files_are_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "proc/driver/nvidia/gpus"
    table = DriverFiles(tmp_path, ManualClock())
    assert table.gpus() == ()
    for bus, number, minor in (("0000:4e:00.0", 1, 0), ("0000:07:00.0", 2, 1), ("0001:07:00.0", 3, 2)):
        (folder / bus).mkdir(parents=True)
        text = f"Model: \t\t board\nGPU UUID: \t {uuid(number)}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        (folder / bus / "information").write_text(text)
    (folder / "0000:99:00.0").mkdir()
    assert [(gpu.uuid, gpu.index, gpu.minor) for gpu in table.gpus()] == [
        (uuid(2), 0, 1),
        (uuid(1), 1, 0),
        (uuid(3), 2, 2),
    ]
    assert FirstOf(DriverFiles(tmp_path / "none", ManualClock()), table).gpus() == table.gpus()


def test_gpus_that_other_readers_name_are_a_table() -> None:
    known = KnownGpus("h")
    known.learn(uuid(1), "3", "0000:3b:00.0")
    known.learn(uuid(2), address="00000000:5e:00.0")
    gpus = known.gpus()
    assert numbered(3, gpus) == gpus[0]
    assert [device and device.entity for device in (device_of(text, gpus) for text in ("0000:5e:00.0", "3"))] == [
        uuid(2),
        uuid(1),
    ]


@pytest.mark.parametrize("text", ["", "GPU UUID: GPU-????????-????-????-????-????????????\n", "GPU UUID:\n", "\0: :"])
def test_a_gpu_whose_uuid_the_driver_does_not_know_is_left_out(text: str) -> None:
    assert information(text, "0000:07:00.0", 0) is None
