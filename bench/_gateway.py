"""Run a real gateway in a process of its own, on loopback and in a given folder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.clock import SystemClock
from secondsight.gateway.run import open_listening

PROGRAM = """
import sys
from pathlib import Path
from secondsight.clock import SystemClock
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.run import serve_gateway
config = GatewayConfig(data=Path(sys.argv[1]), listen=f"fd:{sys.argv[2]}", backlog_bytes=1 << 50)
serve_gateway(config, SystemClock())
"""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway and a token that may write for any collector."""

    port: int
    pid: int
    token: str


@contextmanager
def running(data: Path) -> Iterator[Gateway]:
    """Serve until the block ends; the log stays in `data`."""
    token = _make_token(data)
    listening = open_listening("127.0.0.1:0")
    port = listening.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), str(listening.fileno())], pass_fds=[listening.fileno()]
    )
    listening.close()
    try:
        yield Gateway(port, process.pid, token)
    finally:
        process.terminate()
        process.wait(30)


def _make_token(data: Path) -> str:
    metadata = open_metadata(str(data / "metadata.sqlite"))
    spec = TokenSpec(Role.COLLECTOR, "bench", "bench", cluster_id="c1", collector_pattern="*")
    secret = create_token(metadata, spec, SystemClock().now_ms()).secret
    metadata.dispose()
    return secret
