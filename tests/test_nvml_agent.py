"""The real agent process over scripted GPUs: rows reach the gateway, a hung GPU holds nothing up, a stop is clean."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import FakeGateway, answer_over_http, http_server
from nvml_rig import needs_compiler, shown
from nvml_stub import build
from nvml_stub.scenario import Machine
from secondsight.clock import SystemClock
from secondsight.model import EntityKind

pytestmark = [needs_compiler, pytest.mark.crash]
PATIENCE_SECONDS = 60.0
A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
CONFIG = """
[agent]
gateway = "{url}"
token_file = "{folder}/token"
spool_dir = "{folder}/spool"
host_id = "host-a"
interval_ms = 500
batch_seconds = 0.2
"""


class Site:
    """A gateway, and what reached it."""

    def __init__(self) -> None:
        self.gateway = FakeGateway(now_ms=SystemClock().now_ms)
        self.changed = threading.Condition()

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with self.changed:
            answer = self.gateway.post(body)
            self.changed.notify_all()
        answer_over_http(handler, answer)

    def wait_for(self, is_so: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(is_so, PATIENCE_SECONDS)

    def gpu(self, uuid: str) -> dict[str, Any]:
        """Return the newest cells of a GPU; a tick comes in frames for each priority."""
        found: dict[str, Any] = {}
        for frame in self.gateway.frames:
            if frame.header.kind is EntityKind.GPU and frame.header.source == "nvml":
                found |= shown(frame.content).get((uuid, ""), {})
        return found

    def newest_ms(self, kind: EntityKind, source: str) -> int:
        """Return the newest tick of a kind and source."""
        headers = [frame.header for frame in self.gateway.frames]
        return max((int(h.tick_times_ms[-1]) for h in headers if (h.kind, h.source) == (kind, source)), default=0)


def test_an_agent_ships_gpus_and_a_hung_one_holds_nothing_up(tmp_path: Path) -> None:
    site = Site()
    machine = Machine(tmp_path / "machine", "host h200 2", f"gpu 0 uuid = {A}", f"gpu 1 uuid = {B}")
    (tmp_path / "token").write_text("secret")
    with http_server(site.respond) as url:
        (tmp_path / "agent.toml").write_text(CONFIG.format(url=url, folder=tmp_path))
        environment = os.environ | machine.environment(build.library()) | {"SECONDSIGHT_LOG_LEVEL": "INFO"}
        command = [sys.executable, "-m", "secondsight", "agent", "--config", str(tmp_path / "agent.toml")]
        agent = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            site.wait_for(lambda: "gpu_sm_active_ratio" in site.gpu(A) and "gpu_power_watts" in site.gpu(B))
            machine.append("gpu 1 call * delay 60000")
            site.wait_for(lambda: site.gpu(B).get("gpu_driver_unresponsive") == 1)
            at_ms = max(site.newest_ms(EntityKind.NODE, "host"), site.newest_ms(EntityKind.GPU, "nvml"))
            site.wait_for(lambda: site.newest_ms(EntityKind.NODE, "host") > at_ms + 1000)
            site.wait_for(lambda: site.newest_ms(EntityKind.GPU, "nvml") > at_ms + 1000)
            assert isinstance(site.gpu(A)["gpu_power_watts"], float)
            machine.append("gpu 1 call * delay 0", "gpu 1 call * return 0")
            site.wait_for(lambda: site.gpu(B).get("gpu_driver_unresponsive") == 0)
            children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
            threads = Path(f"/proc/{agent.pid}/task").glob("*/children")
            child = next(int(pid) for path in (children, *threads) for pid in path.read_text().split())
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(PATIENCE_SECONDS) == 0
            assert not Path(f"/proc/{child}").exists()
        finally:
            agent.kill()
            agent.wait()
    infos = [info for frame in site.gateway.frames for info in frame.content.infos if info.metric == "gpu_info"]
    assert {info.entity for info in infos} == {A, B}
    assert {info.attributes["name"] for info in infos} == {"NVIDIA H200"}
