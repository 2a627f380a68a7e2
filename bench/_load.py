"""Send a prepared fleet's frames to a gateway at their own pace, from a process of its own; print what was answered.

Every host has a phase of its own: its ticks, its batches of 5 s and so its requests are spread evenly, as those of
agents are. A batch is sent when its last tick has passed, over kept-alive connections. With `--since`, batches begin
so long ago and are sent as fast as answers come: a backlog.
"""

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import _fleet

READ_SECONDS = 0.05
"""What reading a tick takes on a host."""


@dataclass(slots=True)
class Tally:
    """What was sent and how long answers took."""

    requests: int = 0
    values: int = 0
    sent_bytes: int = 0
    retries: int = 0
    ack_seconds: list[float] = field(default_factory=list)


async def run(url: str, token: str, hosts: int, batches: int, connections: int, since_seconds: int = 0) -> Tally:
    """Send `batches` batches of `hosts` hosts in real time, or from `since_seconds` ago as fast as answers come."""
    fleet = _fleet.prepare(batches)
    queue: asyncio.Queue[tuple[int, int, int] | None] = asyncio.Queue(0 if not since_seconds else connections)
    tally = Tally()
    begin = int(time.time()) + 1 - since_seconds
    workers = [asyncio.create_task(_worker(url, token, fleet, queue, tally)) for _ in range(connections)]
    for batch in range(batches):
        for host in range(hosts):
            at_ms = round((begin + batch * _fleet.TICKS + host / hosts * _fleet.TICKS) * 1000)
            due = at_ms / 1000 + _fleet.TICKS - 1 + READ_SECONDS
            pause = due - time.time()
            if pause > 0.002:
                await asyncio.sleep(pause)
            await queue.put((host, batch, at_ms))
    for _ in workers:
        await queue.put(None)
    await asyncio.gather(*workers)
    return tally


async def _worker(
    url: str,
    token: str,
    fleet: _fleet.Fleet,
    queue: "asyncio.Queue[tuple[int, int, int] | None]",
    tally: Tally,
) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        f"POST /v1/frames HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/x-secondsight-frame\r\nContent-Length: "
    ).encode()
    while (item := await queue.get()) is not None:
        host, batch, at_ms = item
        make = _fleet.first_frames if batch == 0 else _fleet.host_frames
        body = b"".join(make(fleet, host, batch, at_ms))
        asked = time.perf_counter()
        while True:
            writer.write(head + f"{len(body)}\r\n\r\n".encode() + body)
            status, text = await _answer(reader)
            if status == 200:
                break
            if status == 424:
                body = b"".join(_fleet.first_frames(fleet, host, batch, at_ms))
                continue
            if status not in (429, 503):
                raise SystemExit(f"gateway answered {status}: {text[:300]!r}")
            tally.retries += 1
            await asyncio.sleep(0.5)
        tally.requests += 1
        tally.values += fleet.batch_values(host, batch)
        tally.sent_bytes += len(body)
        tally.ack_seconds.append(time.perf_counter() - asked)
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(
        next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    )
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


def main() -> None:
    """Read arguments, send, print one JSON line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("token_file", type=Path)
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--since", type=int, default=0, help="begin so many seconds ago and send flat out")
    given = parser.parse_args()
    token = given.token_file.read_text().strip()
    began = time.time()
    tally = asyncio.run(run(given.url, token, given.hosts, given.batches, given.connections, given.since))
    acks = np.array(tally.ack_seconds) * 1000
    used = time.process_time()
    print(
        json.dumps(
            {
                "requests": tally.requests,
                "values": tally.values,
                "wire_bytes_per_value": tally.sent_bytes / max(1, tally.values),
                "retries": tally.retries,
                "ack_p50_ms": float(np.percentile(acks, 50)),
                "ack_p99_ms": float(np.percentile(acks, 99)),
                "seconds": time.time() - began,
                "generator_cpu_seconds": used,
            }
        )
    )


if __name__ == "__main__":
    main()
