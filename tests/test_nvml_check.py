"""`make gpu-check` shows what GPUs give, and writes a case that gives the same again."""

import json
from pathlib import Path

import pytest

from nvml_rig import needs_compiler, running
from nvml_stub import build
from nvml_stub.scenario import VARIABLE, Machine
from secondsight.agent.nvml import check, settings
from secondsight.agent.nvml.settings import NvmlSettings, is_there

STEADY = (
    "gpu * nvmlDeviceGetPowerUsage = 500000",
    "gpu 0 call nvmlDeviceGetEncoderUtilization return 4",
    "gpu 1 field 3 return 999",
    "gpu 0 uuid = GPU-feedfeed-0000-0000-0000-000000000000",
    "gpu 0 serial = 1234567890123",
    "gpu 1 mig 0 gi 1 ci 0 profile 3g.71gb memory 42949672960 slices 3",
    "gpu 1 mig 1 gi 2 ci 0 profile 3g.71gb memory 42949672960 slices 3",
    "gpu 1 mig 1 gpm 2 = 61.5",
)


@needs_compiler
def test_a_recorded_case_gives_the_same_rows_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path / "machine", "host h200 2", *STEADY)
    monkeypatch.setenv(VARIABLE, str(machine.path))
    out = tmp_path / "out"
    assert check.main(["--seconds", "1", "--library", str(build.library()), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "cost of a tick" in shown
    kept = (out / "report.txt").read_text() + (out / "case.json").read_text()
    assert "feedfeed" not in kept
    assert "1234567890123" not in kept
    case = json.loads((out / "case.json").read_text())
    assert len(case["rows"]) == 4
    assert {"n/p", "blank", "n/s"} <= set(shown.split())
    (tmp_path / "again").mkdir()
    with running(tmp_path / "again", *case["scenario"]) as rig:
        rig.settled(2)
        rows = {f"{entity} {part}".strip(): cells for (entity, part), cells in rig.tick().items()}
        for row, expected in case["rows"].items():
            assert {name: rows[row].get(name) for name in expected} == expected, row


def test_a_machine_without_a_driver_is_told_as_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "FOLDERS", ())
    monkeypatch.setattr(settings, "LOADER_CACHE", tmp_path / "cache")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert check.main([]) == 0
    assert "NOT RUN" in capsys.readouterr().out


@pytest.mark.skipif(not is_there(NvmlSettings(), {}), reason="no NVIDIA driver on this machine (make gpu-check)")
def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--seconds", "2"]) == 0
    assert "gpu_power_watts" in capsys.readouterr().out
