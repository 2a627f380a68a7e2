"""A real gateway process that is killed, or told to stop, in the middle of posts."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway_fixture import FRAMES, frame, read_ingest
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.clock import SystemClock
from secondsight.wire.envelope import RecordType

PROGRAM = """
import sys
from pathlib import Path
from secondsight.clock import SystemClock
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.run import serve_gateway
serve_gateway(GatewayConfig(data=Path(sys.argv[1]), listen=f"fd:{sys.argv[2]}"), SystemClock())
"""
SENDERS = 4
ENOUGH_ACKNOWLEDGED = 60


@contextmanager
def gateway_process(data: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A gateway in a process of its own, on a socket that listens already."""
    listening = socket.create_server(("127.0.0.1", 0))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), str(listening.fileno())], pass_fds=[listening.fileno()]
    )
    port = listening.getsockname()[1]
    listening.close()
    try:
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


def make_token(data: Path) -> str:
    metadata = open_metadata(str(data / "metadata.sqlite"))
    spec = TokenSpec(Role.COLLECTOR, "t1", "test", cluster_id="c1", collector_pattern="*")
    secret = create_token(metadata, spec, SystemClock().now_ms()).secret
    metadata.dispose()
    return secret


class Sender:
    """Posts frames of one host over one connection until that breaks; keeps what was acknowledged."""

    def __init__(self, port: int, token: str, host_id: str, first: int, enough: threading.Semaphore) -> None:
        self._headers = {"Content-Type": FRAMES, "Authorization": f"Bearer {token}"}
        self._port = port
        self._host_id = host_id
        self._first = first
        self._enough = enough
        self.acknowledged: list[bytes] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            for sequence in range(self._first, self._first + 100_000):
                sent = frame(self._host_id, sequence, newest_ms=SystemClock().now_ms())
                connection.request("POST", "/v1/frames", sent, self._headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    return
                self.acknowledged.append(sent)
                self._enough.release()
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def post_until(process: "subprocess.Popen[bytes]", port: int, token: str, first: int, number: int) -> list[bytes]:
    """Send from several hosts at once, signal the process in the middle of it, return what it had acknowledged."""
    enough = threading.Semaphore(0)
    senders = [Sender(port, token, f"host-{host}", first, enough) for host in range(SENDERS)]
    for _ in range(ENOUGH_ACKNOWLEDGED):
        assert enough.acquire(timeout=60)
    os.kill(process.pid, number)
    for sender in senders:
        sender.thread.join(60)
        assert not sender.thread.is_alive()
    return [sent for sender in senders for sent in sender.acknowledged]


def stored_frames(data: Path) -> list[bytes]:
    return [record.body for record in read_ingest(data) if record.type is RecordType.FRAME]


@pytest.mark.crash
def test_everything_acknowledged_before_kill_9_is_in_the_log(tmp_path: Path):
    token = make_token(tmp_path)
    acknowledged: list[bytes] = []
    for round_number in range(2):
        with gateway_process(tmp_path) as (process, port):
            acknowledged += post_until(process, port, token, 1 + round_number * 1_000_000, signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL
    stored = set(stored_frames(tmp_path))
    assert len(acknowledged) >= 2 * ENOUGH_ACKNOWLEDGED
    assert set(acknowledged) <= stored


@pytest.mark.crash
def test_sigterm_finishes_what_was_taken_in_and_ends_well(tmp_path: Path):
    token = make_token(tmp_path)
    with gateway_process(tmp_path) as (process, port):
        acknowledged = post_until(process, port, token, 1, signal.SIGTERM)
        assert process.wait(30) == 0
    stored = stored_frames(tmp_path)
    assert set(acknowledged) <= set(stored)
    assert len(stored) <= len(acknowledged) + SENDERS
