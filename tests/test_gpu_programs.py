"""A whole agent that reads GPUs through nvidia-smi, or through DCGM's bindings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent_fixture import http_server
from fake_nvidia_smi import install
from secondsight.agent.dcgm.config import DcgmSettings
from secondsight.agent.smi.config import SmiSettings
from secondsight.model import EntityKind
from test_agent_run import Site, config_of, running


def test_nvidia_smi_is_a_collector_of_its_own(tmp_path: Path) -> None:
    rows = ["index, uuid, temperature.gpu\n", "0, GPU-a, 41\n"]
    program = install(tmp_path / "bin", {"columns": ["uuid", "temperature.gpu"], "runs": [rows]})
    site = Site()
    with http_server(site.respond) as url:
        config = replace(config_of(tmp_path, url), smi=SmiSettings(program, interval_ms=200, restart_seconds=0.02))
        with running(config):
            site.wait_for(("host-1/smi", EntityKind.GPU))
    check(site, "smi", "gpu_temperature_celsius")


def test_a_host_engine_is_a_collector_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCGM_STUB", str(tmp_path))
    (tmp_path / "scenario.json").write_text(json.dumps({"gpus": ["GPU-a"], "values": {"*/150": 41}}))
    stub = Path(__file__).parent / "dcgm_stub"
    site = Site()
    with http_server(site.respond) as url:
        settings = DcgmSettings(bindings=stub, interval_ms=200, fields=(150,), timeout_seconds=10)
        with running(replace(config_of(tmp_path, url), dcgm=settings)):
            site.wait_for(("host-1/dcgm", EntityKind.GPU))
    check(site, "dcgm", "gpu_temperature_celsius")


def check(site: Site, source: str, metric: str) -> None:
    frames = [
        frame
        for frame in site.gateway.frames
        if frame.header.collector_id == f"host-1/{source}" and frame.header.kind is EntityKind.GPU
    ]
    assert {frame.header.source for frame in frames} == {source}
    assert {one.entity for frame in frames for one in frame.content.entities.entities} == {"GPU-a"}
    assert any(column.metric == metric for frame in frames for column in frame.content.schema.columns)
