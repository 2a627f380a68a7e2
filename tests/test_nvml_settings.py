"""When GPUs are read at all, and with which library."""

import json
import logging
import os
from pathlib import Path

import pytest

from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml import settings as settings_module
from secondsight.agent.nvml.devices import PresentGpus, described
from secondsight.agent.nvml.readers import nvml_readers
from secondsight.agent.nvml.settings import LIBRARY, NvmlSettings, child_environment, is_there, library_file
from secondsight.agent.nvml.source import Host
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.config import build
from secondsight.errors import Rejected


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings_module, "FOLDERS", ())
    monkeypatch.setattr(settings_module, "LOADER_CACHE", tmp_path / "cache")


def test_the_library_is_found_where_the_loader_would_find_it(tmp_path: Path) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    found = NvmlSettings()
    assert not is_there(found, {"LD_LIBRARY_PATH": f":{folder}"})
    (tmp_path / "cache").write_bytes(b"x\0" + os.fsencode(folder / LIBRARY) + b"\0y")
    assert not is_there(found, {})
    (folder / LIBRARY).touch()
    assert is_there(found, {})
    assert is_there(found, {"LD_LIBRARY_PATH": f"/nowhere:{folder}"})


def test_the_library_may_be_named_by_its_folder_or_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    by_folder, by_file = NvmlSettings(library=tmp_path), NvmlSettings(library=tmp_path / LIBRARY)
    assert not is_there(by_folder, {})
    (tmp_path / LIBRARY).touch()
    assert is_there(by_folder, {})
    assert is_there(by_file, {})
    assert child_environment(by_folder)["LD_LIBRARY_PATH"] == f"{tmp_path}:/before"
    assert child_environment(by_file)["LD_LIBRARY_PATH"] == "/before"
    assert (library_file(by_folder), library_file(by_file)) == ("", str(tmp_path / LIBRARY))


def test_a_host_without_a_driver_says_so_once_and_has_no_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    clock = ManualClock()
    tables = (PresentGpus(), KnownGpus("host-a"))
    readers = list(nvml_readers(NvmlSettings(), Host("host-a"), load_catalog(), clock, Counts(), tables))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert all(reader.read(clock.now_ms()).contents == () for reader in readers)
            clock.move(61)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    for reader in readers:
        reader.close()


def test_a_driver_that_comes_later_is_found_within_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    tables = (PresentGpus(), KnownGpus("host-a"))
    first = next(nvml_readers(NvmlSettings(library=tmp_path), Host("host-a"), load_catalog(), clock, Counts(), tables))
    source = first._source  # type: ignore[attr-defined] # the reader of GPU rows
    assert not source.is_usable()
    (tmp_path / LIBRARY).touch()
    assert not source.is_usable()
    clock.move(61)
    assert source.is_usable()


@pytest.mark.parametrize(
    "wrong",
    [
        {"enabled": "maybe"},
        {"parts_interval_ms": 10},
        {"process_interval_ms": 0},
        {"deadline_ms": -1},
        {"abandon_seconds": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Rejected) as refused:
        NvmlSettings(**wrong)  # type: ignore[arg-type] # wrong on purpose
    assert refused.value.code == "bad_config"


def test_the_table_of_the_file() -> None:
    told = {"gateway": "http://g", "token_file": "t", "spool_dir": "s", "host_id": "h"}
    assert build(AgentConfig, told, "agent").nvml == NvmlSettings()
    table = {"enabled": "off", "processes": False, "events": False, "library": "/opt/lib"}
    config = build(AgentConfig, told | {"nvml": table}, "agent")
    assert config.nvml == NvmlSettings("off", Path("/opt/lib"), processes=False, events=False)


def test_who_is_present_is_told_with_slices() -> None:
    mig = [
        {"uuid": f"MIG-{gi}-{ci}", "gi": gi, "ci": ci, "profile": "1g", "gpu_slices": 1, "memory_mib": 5}
        for gi, ci in ((5, 0), (5, 1), (1, 0))
    ]
    gpu = {"number": 1, "uuid": "GPU-a", "index": 2, "minor": -1, "pci_bus_id": "0:1:0.0", "facts": {}, "mig": mig}
    table = PresentGpus()
    assert table.gpus() == ()
    table.put([one.gpu for one in described(json.dumps({"versions": {}, "gpus": [gpu]}).encode())])
    (found,) = table.gpus()
    assert (found.uuid, found.index, found.minor, found.pci) == ("GPU-a", 2, None, "0:1:0.0")
    assert [(one.uuid, one.gi, one.ci) for one in found.slices] == [
        ("MIG-1-0", 1, 0),
        ("MIG-5-0", 5, 0),
        ("MIG-5-1", 5, 1),
    ]
