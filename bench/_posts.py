"""Send a prepared fleet's bodies to a gateway in three phases, from a process of its own; a JSON line ends each.

Every body is made before a phase begins. `first`: each host's first request, with its definitions, as fast as answers
come. `paced`: further batches at a fixed rate. `flat_out`: as many again as fast as answers come. A phase begins when a
line is read, so the parent can read the gateway's processor time between phases.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import uvloop

import _fleet

HEAD = "POST /v1/frames HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n"
TYPE = "Content-Type: application/x-secondsight-frame\r\nContent-Length: "


class Connection:
    """One kept-alive connection."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    async def open(self, port: int) -> None:
        """Connect to the gateway on loopback."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def post(self, body: bytes) -> float:
        """Send one body and return the seconds until its answer; anything but all frames accepted ends the run."""
        asked = time.perf_counter()
        self._writer.write(self._head + b"%d\r\n\r\n" % len(body) + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.startswith(b"content-length:"))
        text = await self._reader.readexactly(int(length.split(b":")[1]))
        if not answer.startswith(b"HTTP/1.1 200 ") or b'"rejected":[]' not in text:
            raise SystemExit(f"refused: {answer!r} {text!r}")
        return time.perf_counter() - asked


async def send(connections: list[Connection], bodies: list[bytes], per_second: float | None) -> dict[str, float]:
    """Send bodies over the connections, evenly spaced or as fast as answers come, and return what it took."""
    acks_seconds: list[float] = []
    waiting = iter(bodies)
    began = time.perf_counter()
    due = (began + number / per_second for number in range(len(bodies))) if per_second else None

    async def work(connection: Connection) -> None:
        for body in waiting:
            await _until(due)
            acks_seconds.append(await connection.post(body))

    await asyncio.gather(*(work(connection) for connection in connections))
    acks = np.array(acks_seconds) * 1e3
    return {
        "requests": len(bodies),
        "seconds": time.perf_counter() - began,
        "body_bytes": sum(map(len, bodies)) / len(bodies),
        "ack_p50_ms": float(np.percentile(acks, 50)),
        "ack_p99_ms": float(np.percentile(acks, 99)),
    }


async def _until(due: Iterator[float] | None) -> None:
    pause = next(due) - time.perf_counter() if due is not None else 0.0
    if pause > 0:
        await asyncio.sleep(pause)


async def run(given: argparse.Namespace) -> None:
    """Prepare everything, then run one phase per line of standard input."""
    begin_ms = int(time.time()) * 1000 - given.batches * 1000 * _fleet.TICKS
    fleet = _fleet.prepare(given.batches + 1)
    first = [b"".join(_fleet.first_frames(fleet, host, 0, begin_ms)) for host in range(given.hosts)]
    later = [
        b"".join(_fleet.host_frames(fleet, host, batch, begin_ms + batch * 1000 * _fleet.TICKS))
        for batch in range(1, given.batches + 1)
        for host in range(given.hosts)
    ]
    half = len(later) // 2
    token = os.environ["BENCH_TOKEN"]
    connections = [Connection((HEAD.format(token) + TYPE).encode()) for _ in range(given.connections)]
    await asyncio.gather(*(connection.open(given.port) for connection in connections))
    _say({"values": fleet.values_per_batch, "noisy_share": fleet.noisy_share})
    for bodies, per_second in ((first, None), (later[:half], given.per_second), (later[half:], None)):
        await asyncio.to_thread(sys.stdin.readline)
        _say(await send(connections, bodies, per_second))


def _say(figures: dict[str, float]) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Read arguments and run."""
    parser = argparse.ArgumentParser(prog=Path(__file__).name)
    for name in ("--port", "--hosts", "--batches", "--connections"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--per-second", type=float, required=True)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
