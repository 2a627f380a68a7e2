"""A whole agent in this process against a real HTTP gateway: starts, delivers, survives, stops clean."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent_fixture import FakeGateway, answer_over_http, error_answer, http_server
from secondsight.agent.config import AgentConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.run import run_agent
from secondsight.agent.scrape.reader import Target
from secondsight.clock import SystemClock
from secondsight.config import build
from secondsight.errors import Permanent, Rejected
from secondsight.model import EntityKind

PATIENCE_SECONDS = 30.0
EXPOSITION = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 41\nDCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 808334905\n'


class Site:
    """An exporter and a gateway behind one address, and what reached them."""

    def __init__(self) -> None:
        self.gateway = FakeGateway(now_ms=SystemClock().now_ms)
        self.changed = threading.Condition()
        self.tokens: set[str] = set()
        self.hang = threading.Event()

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "POST":
            self.tokens.add(handler.headers["authorization"])
            with self.changed:
                answer = self.gateway.post(body)
                self.changed.notify_all()
            answer_over_http(handler, answer)
        elif handler.path == "/hang":
            self.hang.wait(PATIENCE_SECONDS)
        else:
            handler.send_response(200)
            handler.send_header("content-length", str(len(EXPOSITION)))
            handler.end_headers()
            handler.wfile.write(EXPOSITION)

    def wait_for(self, *wanted: tuple[str, EntityKind], timed: bool = False) -> None:
        """Wait for frames of these collectors and kinds, and for one that knows the clock's offset."""

        def has_all() -> bool:
            headers = [frame.header for frame in self.gateway.frames]
            seen = {(header.collector_id, header.kind) for header in headers}
            return set(wanted) <= seen and (not timed or any(h.clock_offset_ms is not None for h in headers))

        with self.changed:
            assert self.changed.wait_for(has_all, PATIENCE_SECONDS)


def config_of(folder: Path, url: str, *targets: Target) -> AgentConfig:
    (folder / "token").write_text("secret\n")
    return AgentConfig(
        gateway=url,
        token_file=folder / "token",
        spool_dir=folder / "spool",
        host_id="host-1",
        interval_ms=100,
        kernel_log=KernelLogConfig(enabled=False),
        batch_seconds=0.1,
        scrape=targets,
        stop_seconds=3.0,
    )


def agent_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name in ("sample", "ship") or t.name.startswith("read-")]


@contextmanager
def running(config: AgentConfig) -> Iterator[threading.Thread]:
    """Run an agent; it is told to stop at the end and must end."""
    stop = threading.Event()
    thread = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    assert agent_threads() == []


def test_an_agent_delivers_everything_it_read_and_ends(tmp_path: Path) -> None:
    site = Site()
    with http_server(site.respond) as url:
        targets = (
            Target("dcgm", url + "/metrics", 100),
            Target("down", "http://127.0.0.1:9/metrics", 100),
            Target("slow", url + "/hang", 100),
        )
        wanted = ("host-1", EntityKind.NODE), ("host-1", EntityKind.PLATFORM), ("host-1/dcgm", EntityKind.GPU)
        try:
            with running(config_of(tmp_path, url, *targets)):
                site.wait_for(*wanted, timed=True)
        finally:
            site.hang.set()
    assert site.tokens == {"Bearer secret"}
    headers = [frame.header for frame in site.gateway.frames]
    assert {h.host_id for h in headers} == {"host-1"}
    assert {h.source for h in headers} == {"host", "self", "scrape"}
    assert all(h.interval_ms == 100 for h in headers)
    assert min(h.first_sequence for h in headers) == 0
    gpu = next(frame for frame in site.gateway.frames if frame.header.kind is EntityKind.GPU)
    assert gpu.header.quality_cells == gpu.header.rows
    assert {abs(h.clock_offset_ms or 0) < 1000 for h in headers} == {True}


def test_what_the_gateway_did_not_take_is_there_after_a_restart(tmp_path: Path) -> None:
    site = Site()
    site.gateway.script = [error_answer(503, "unavailable") for _ in range(1000)]
    with http_server(site.respond) as url:
        config = config_of(tmp_path, url)
        with running(config), site.changed:
            assert site.changed.wait_for(lambda: len(site.gateway.statuses) >= 2, PATIENCE_SECONDS)
        assert not site.gateway.frames
        site.gateway.script = []
        with running(config):
            site.wait_for(("host-1", EntityKind.NODE))
    firsts: dict[int, int] = {}
    for header in (frame.header for frame in site.gateway.frames):
        firsts[header.spool_id] = min(firsts.get(header.spool_id, header.first_sequence), header.first_sequence)
    assert sorted(firsts.values()) == [0, 0, 0]


def test_a_gateway_that_never_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    posted = threading.Event()
    released = threading.Event()

    def respond(_handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        posted.set()
        released.wait(PATIENCE_SECONDS)

    with http_server(respond) as url:
        try:
            with running(config_of(tmp_path, url)):
                assert posted.wait(PATIENCE_SECONDS)
        finally:
            released.set()


def test_two_agents_cannot_share_a_spool(tmp_path: Path) -> None:
    site = Site()
    with http_server(site.respond) as url:
        config = config_of(tmp_path, url)
        with running(config):
            site.wait_for(("host-1", EntityKind.NODE))
            with pytest.raises(Permanent):
                run_agent(config, SystemClock(), threading.Event())


def test_settings_are_read_from_a_table() -> None:
    settings = {
        "gateway": "http://127.0.0.1:1",
        "token_file": "/t",
        "spool_dir": "/s",
        "host_id": "node-a",
        "batch_seconds": "2.5",
        "scrape": [{"name": "dcgm", "url": "http://127.0.0.1:9400/metrics", "interval_ms": 30_000}],
    }
    config = build(AgentConfig, settings, "agent")
    assert (config.collector, config.host, config.batch_seconds) == ("node-a", "node-a", 2.5)
    assert config.scrape == (Target("dcgm", "http://127.0.0.1:9400/metrics", 30_000),)


@pytest.mark.parametrize(
    "change",
    [
        {"collector_id": "a b"},
        {"interval_ms": 10},
        {"spool_mib": 0},
        {"scrape": [{"name": "a", "url": "http://h"}, {"name": "a", "url": "http://h"}]},
        {"scrape": [{"name": "a/b", "url": "http://h"}]},
        {"scrape": [{"name": "a", "url": "http://h", "colour": "red"}]},
        {"colour": "red"},
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(Rejected) as refused:
        build(AgentConfig, {"gateway": "http://h", "token_file": "/t", "spool_dir": "/s"} | change, "agent")
    assert refused.value.code == "bad_config"
