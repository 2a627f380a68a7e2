"""A whole agent with a kubelet and a Slurm node: what it reports, before and after a restart."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import FakeGateway, answer_over_http, http_server
from jobs_fixture import uuid
from kubelet_server import Kubelet, container, pod, serving
from secondsight.agent.config import AgentConfig
from secondsight.agent.run import run_agent
from secondsight.clock import SystemClock
from secondsight.config import build
from secondsight.wire.content import Event
from slurm_node import SlurmNode

PATIENCE_SECONDS = 60.0


class Site:
    """A node, a kubelet and a gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway = FakeGateway(now_ms=SystemClock().now_ms)
        self.changed = threading.Condition()
        self.kubelet = Kubelet()
        self.node = SlurmNode(folder / "root")
        for number in (1, 2):
            gpu = folder / "root/proc/driver/nvidia/gpus" / f"0000:0{number}:00.0"
            gpu.mkdir(parents=True)
            (gpu / "information").write_text(f"GPU UUID: {uuid(number)}\nDevice Minor: {number - 1}\n")

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with self.changed:
            answer = self.gateway.post(body)
            self.changed.notify_all()
        answer_over_http(handler, answer)

    def settings(self, url: str) -> dict[str, Any]:
        (self.folder / "token").write_text("secret")
        return {
            "gateway": url,
            "token_file": str(self.folder / "token"),
            "spool_dir": str(self.folder / "spool"),
            "host_id": "node-a",
            "host_metrics": False,
            "root": str(self.folder / "root"),
            "interval_ms": 500,
            "batch_seconds": 0.1,
            "stop_seconds": 5.0,
            "kubernetes": {"socket": str(self.folder / "kubelet.sock"), "interval_ms": 1000},
            "slurm": {"interval_ms": 1000, "teams": {"physics": "Team P"}},
        }

    def events(self) -> list[Event]:
        found = [event for frame in self.gateway.frames for event in frame.content.events]
        return [event for event in found if event.metric == "job_gpu_allocation"]

    def run_until(self, url: str, is_done: Callable[[list[Event]], bool]) -> None:
        """Run an agent until what it reported will do, then stop it."""
        stop = threading.Event()
        config = build(AgentConfig, self.settings(url), "agent")
        thread = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
        thread.start()
        try:
            with self.changed:
                assert self.changed.wait_for(lambda: is_done(self.events()), PATIENCE_SECONDS)
        finally:
            stop.set()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.timeout(200)
def test_allocations_of_a_pod_and_a_job_outlive_the_agent(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.kubelet.pods = [pod("train", container("main", uuid(1)), namespace="vision")]
    site.node.start(77, {"SLURM_JOB_GPUS": "1", "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_UID": "1001"})
    with http_server(site.respond) as url:
        with serving(site.kubelet, tmp_path / "kubelet.sock"):
            site.run_until(url, lambda events: len(events) >= 2)
        first = {event.attributes["job_id"]: event for event in site.events()}
        assert {job: (event.entity, event.attributes["owner_team"]) for job, event in first.items()} == {
            "vision/train": (uuid(1), "vision"),
            "77": (uuid(2), "Team P"),
        }
        site.node.end(77)
        site.gateway.frames.clear()
        site.run_until(url, lambda events: any(event.end_ms for event in events))
    (ended,) = [event for event in site.events() if event.end_ms]
    assert (ended.attributes["job_id"], ended.time_ms, ended.version) == ("77", first["77"].time_ms, 2)
    assert {frame.header.collector_id for frame in site.gateway.frames} >= {"node-a/slurm"}
    kept = json.loads((tmp_path / "spool/allocations-kubernetes.json").read_text())
    assert [each["owner"]["job_id"] for each in kept["open"]] == ["vision/train"]
