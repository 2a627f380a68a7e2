"""A whole agent against the real gateway: what it read is in the log, refused nowhere, and decodes."""

import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from shutil import which

import pytest

from agent_fixture import http_server
from gateway_fixture import read_definitions, read_ingest, serving
from secondsight.agent.client.transport import GatewayTransport
from secondsight.agent.config import AgentConfig
from secondsight.agent.run import run_agent
from secondsight.agent.scrape.reader import Target
from secondsight.clock import SystemClock
from secondsight.errors import Retryable
from secondsight.model import EntityKind
from secondsight.wire.content import Frame
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import decode
from secondsight.wire.schema import Definitions

PATIENCE_SECONDS = 30.0
EXPOSITION = (
    b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="NVIDIA H200",DCGM_FI_DRIVER_VERSION="590.48.01"} 41\n'
    b'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",err_code="79"} 79\n'
    b'vllm:num_requests_running{model_name="m"} 3\n'
    b'vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 5\n'
    b'vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 7\n'
    b'vllm:time_to_first_token_seconds_count{model_name="m"} 7\n'
    b'vllm:time_to_first_token_seconds_sum{model_name="m"} 2.5\n'
)
WANTED = {EntityKind.GPU, EntityKind.NODE, EntityKind.INFERENCE, EntityKind.PLATFORM}


def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", str(len(EXPOSITION)))
    handler.end_headers()
    handler.wfile.write(EXPOSITION)


def frames_of(data: Path) -> list[Frame]:
    definitions = Definitions()
    for blob in read_definitions(data):
        definitions.add(blob)
    return [decode(record.body, definitions) for record in read_ingest(data) if record.type is RecordType.FRAME]


def events_of(frames: Sequence[Frame]) -> list[tuple[str, int]]:
    return [(event.metric, event.code) for frame in frames for event in frame.content.events]


def test_everything_that_was_read_is_in_the_log(tmp_path: Path) -> None:
    clock = SystemClock()
    with serving(tmp_path / "gateway", clock) as running, http_server(respond) as exporter:
        (tmp_path / "token").write_text(running.token(pattern="host-1*"))
        config = AgentConfig(
            gateway=f"http://127.0.0.1:{running.port}",
            token_file=tmp_path / "token",
            spool_dir=tmp_path / "spool",
            host_id="host-1",
            interval_ms=200,
            batch_seconds=0.2,
            scrape=(Target("engine", exporter + "/metrics", 200, inference=True, timeout_seconds=5.0),),
        )
        stop = threading.Event()
        agent = threading.Thread(target=run_agent, args=(config, clock, stop))
        agent.start()
        for _ in range(int(PATIENCE_SECONDS / 0.1)):
            frames = frames_of(tmp_path / "gateway")
            if {frame.header.kind for frame in frames} >= WANTED and ("gpu_xid", 79) in events_of(frames):
                break  # an Xid waits for what the kernel log says of it
            stop.wait(0.1)
        stop.set()
        agent.join(PATIENCE_SECONDS)
        records = read_ingest(tmp_path / "gateway")
        frames = frames_of(tmp_path / "gateway")
    assert not agent.is_alive()
    assert RecordType.REFUSED not in {record.type for record in records}
    assert {frame.header.kind for frame in frames} >= WANTED
    assert not (tmp_path / "spool" / "refused").exists()
    scraped = [frame for frame in frames if frame.header.collector_id == "host-1/engine"]
    assert events_of(scraped) == [("gpu_xid", 79)]
    assert ("node_boot", 0) in events_of(frames)
    assert {info.metric for frame in frames for info in frame.content.infos} >= {"gpu_info", "node_info"}
    rows = [rows for frame in frames for rows in frame.content.histograms if frame.header.kind is EntityKind.INFERENCE]
    assert rows
    assert rows[0].buckets.tolist()[0] == [5, 2]


def test_a_collector_that_the_token_does_not_allow_keeps_its_data(tmp_path: Path) -> None:
    clock = SystemClock()
    with serving(tmp_path / "gateway", clock) as running:
        (tmp_path / "token").write_text(running.token(pattern="host-2"))
        config = AgentConfig(
            gateway=f"http://127.0.0.1:{running.port}",
            token_file=tmp_path / "token",
            spool_dir=tmp_path / "spool",
            host_id="host-1",
            interval_ms=200,
            batch_seconds=0.0,
            stop_seconds=1.0,
        )
        stop = threading.Event()
        agent = threading.Thread(target=run_agent, args=(config, clock, stop))
        agent.start()
        stop.wait(1.0)
        stop.set()
        agent.join(PATIENCE_SECONDS)
        assert read_ingest(tmp_path / "gateway") == []
        (tmp_path / "token").write_text(running.token(pattern="host-1"))
        again = threading.Event()
        again.set()
        run_agent(replace(config, host_metrics=False, stop_seconds=PATIENCE_SECONDS), clock, again)
        collectors = {frame.header.collector_id for frame in frames_of(tmp_path / "gateway")}
        assert "host-1" in collectors
        assert {collector.partition("/")[0] for collector in collectors} == {"host-1"}


@pytest.mark.skipif(which("openssl") is None, reason="needs openssl to make a certificate")
def test_frames_go_over_tls_to_a_gateway_that_the_ca_file_names(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*made.split(), *names], check=True, capture_output=True)
    clock = SystemClock()
    with serving(tmp_path / "gateway", clock, tls_certificate=certificate, tls_key=key) as running:
        (tmp_path / "token").write_text(running.token())
        url = f"https://127.0.0.1:{running.port}"
        trusting = GatewayTransport(url, tmp_path / "token", clock, ca_file=certificate)
        assert trusting.post(b"no frame").status == 400
        trusting.close()
        stranger = GatewayTransport(url, tmp_path / "token", clock)
        with pytest.raises(Retryable, match="certificate verify failed"):
            stranger.post(b"no frame")
        stranger.close()
