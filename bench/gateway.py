"""Measure a gateway flat out: a real process on loopback, 64 connections, one 5 KB frame a request.

The load generator shares the machine's cores with the gateway, so requests a second are a lower bound; what a frame
costs the gateway is read from its own processor time. The log is on the disk of the temporary folder.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import uvloop

from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.gateway.run import open_listening
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, encode, restamp
from secondsight.wire.schema import NUMPY_TYPES, make_schema

CONNECTIONS = 64
SECONDS = min(10.0, float(os.environ.get("BENCH_SECONDS", "10")))
GPUS = 8
TICKS = 12
METRICS = 60
PROGRAM = """
import sys
from pathlib import Path
from secondsight.clock import SystemClock
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.run import serve_gateway
config = GatewayConfig(data=Path(sys.argv[1]), listen=f"fd:{sys.argv[2]}", backlog_bytes=1 << 50)
serve_gateway(config, SystemClock())
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        token = make_token(data)
        listening = open_listening("127.0.0.1:0")
        port = listening.getsockname()[1]
        command = [sys.executable, "-c", PROGRAM, folder, str(listening.fileno())]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()])
        listening.close()
        try:
            figures = uvloop.run(load(port, token, process.pid))
        finally:
            process.terminate()
            process.wait(30)
    print(json.dumps({"name": "gateway", "figures": figures}))


async def load(port: int, token: str, pid: int) -> dict[str, float | int | str]:
    """Warm every connection, then send for SECONDS and return the figures."""
    senders = [Sender(port, token, f"host-{number}") for number in range(CONNECTIONS)]
    await asyncio.gather(*(sender.warm() for sender in senders))
    before_cpu_seconds, before = cpu_seconds(pid), time.monotonic()
    until = before + SECONDS
    await asyncio.gather(*(sender.run(until) for sender in senders))
    took_seconds, cpu = time.monotonic() - before, cpu_seconds(pid) - before_cpu_seconds
    latencies = sorted(latency for sender in senders for latency in sender.latencies_seconds)
    sent = len(latencies)
    return {
        "requests_per_second": round(sent / took_seconds),
        "cpu_us_per_frame": round(cpu / sent * 1e6, 1),
        "gateway_cores": round(cpu / took_seconds, 2),
        "p50_ms": round(latencies[sent // 2] * 1e3, 2),
        "p99_ms": round(latencies[sent * 99 // 100] * 1e3, 2),
        "frame_bytes": len(senders[0].frame),
        "values_per_frame": GPUS * TICKS * METRICS,
        "mib_per_second": round(sent * len(senders[0].frame) / took_seconds / (1 << 20), 1),
        "seconds": round(took_seconds, 2),
        "connections": CONNECTIONS,
        "cores": os.cpu_count() or 0,
        "load_before_1m": round(os.getloadavg()[0], 2),
        "generator_cpu_seconds": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 1),
        "python": sys.version.split()[0],
    }


class Sender:
    """Sends the frames of one host, one after the other, over one connection."""

    def __init__(self, port: int, token: str, host_id: str) -> None:
        self._port = port
        self._token = token
        self._host_id = host_id
        self._sequences = sequences()
        self.frame = make_frame(host_id)
        self.latencies_seconds: list[float] = []

    async def warm(self) -> None:
        """Connect and send the definitions."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        await self._post(self.frame)
        self.frame = make_frame(self._host_id, inline=False)

    async def run(self, until_seconds: float) -> None:
        """Send until a moment of the monotonic clock."""
        while (started := time.monotonic()) < until_seconds:
            first = next(self._sequences)
            await self._post(restamp(self.frame, first_sequence=first, last_sequence=first + TICKS - 1))
            self.latencies_seconds.append(time.monotonic() - started)
        self._writer.close()

    async def _post(self, body: bytes) -> None:
        head = (
            f"POST /v1/frames HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/x-secondsight-frame\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
        text = await self._reader.readexactly(int(length.split(b":")[1]))
        if b'"accepted":1' not in text:
            raise SystemExit(f"refused: {text!r}")


def sequences() -> Iterator[int]:
    return iter(range(TICKS + 1, 1 << 62, TICKS))


def make_frame(host_id: str, *, inline: bool = True) -> bytes:
    """A frame of 8 GPUs, 60 metrics and 12 ticks in which two thirds of the columns are noise."""
    metrics = load_catalog().scalars(EntityKind.GPU)[:METRICS]
    schema = make_schema(EntityKind.GPU, [Column(m.name, m.unit, m.dtype, m.resolution) for m in metrics])
    rows = GPUS * TICKS
    random = np.random.default_rng(7)
    groups, first = [], 0
    for dtype, numpy_type in NUMPY_TYPES.items():
        width = sum(column.dtype == dtype for column in schema.columns)
        if width:
            noisy = random.integers(0, 250, (width, rows)) * (np.arange(width)[:, None] % 3 > 0)
            groups.append(Group(first, noisy.astype(numpy_type), None))
            first += width
    block = ScalarBlock(
        entity_index=np.tile(np.arange(GPUS, dtype=np.uint32), TICKS),
        tick_index=np.repeat(np.arange(TICKS, dtype=np.uint16), GPUS),
        observed_delta_ms=random.integers(0, 30, rows).astype(np.int32),
        groups=tuple(groups),
        quality_row=np.empty(0, np.uint32),
        quality_column=np.empty(0, np.uint16),
        quality=np.empty(0, np.uint8),
    )
    table = EntityTable(EntityKind.GPU, host_id, "rack-1", tuple(Entity(f"GPU-{host_id}-{n}") for n in range(GPUS)))
    times = SystemClock().now_ms() // 1000 * 1000 - 1000 * np.arange(TICKS - 1, -1, -1, dtype=np.int64)
    return encode(
        Stamp(host_id, host_id, "nvml", 1, 1, TICKS, times, 1000), Content(schema, table, block), inline=inline
    )


def make_token(data: Path) -> str:
    metadata = open_metadata(str(data / "metadata.sqlite"))
    spec = TokenSpec(Role.COLLECTOR, "bench", "bench", cluster_id="c1", collector_pattern="*")
    secret = create_token(metadata, spec, SystemClock().now_ms()).secret
    metadata.dispose()
    return secret


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
