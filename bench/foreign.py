"""Remote write 1.0 through a real gateway, beside native frames: processor time of the gateway per value.

A body holds one scrape of 10 hosts x 8 GPUs x up to 100 series that the catalogue has, one sample each, as a Prometheus
that scrapes dcgm-exporter sends it; every body has new values and the next second's times. `few` sends the same samples
in bodies of 2,000, the most that Prometheus puts into one. Native bodies are those of the same number of hosts, five
seconds each. What a body costs is read from the gateway's own processor time. `BENCH_PROFILE=1` also prints where the
time goes in this process.
"""

import cProfile
import http.client
import json
import os
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cramjam
import numpy as np

import _fleet
import _gateway
import _platform
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import MetricType, Source
from secondsight.catalog.scale import conversion
from secondsight.gateway.foreign.messages import remote_write
from secondsight.gateway.foreign.remote_write import decode_first
from secondsight.gateway.foreign.sender import Sender, Settings, Who
from secondsight.model import EntityKind

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "5" if QUICK else "20"))
HOSTS, GPUS, SERIES = 10, 8, 100
FEW = 2_000
BODIES = 12
ZERO_SHARE = 0.15
VALUE_MAXIMUM = 1e6
CONNECTIONS = 8

FOREIGN = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
NATIVE = {"Content-Type": "application/x-secondsight-frame"}


def main() -> None:
    """Send both kinds of bodies to a new gateway and print one JSON line."""
    print(f"versions {json.dumps(_platform.versions())}")
    print(f"load average before {_platform.load_average():.2f}")
    begin_ms = int(time.time()) * 1000 - 120_000
    scrapes = [_scrape(begin_ms + 1000 * number, number) for number in range(BODIES)]
    whole = [_body(scrape) for scrape in scrapes]
    few = [_body(scrape[start : start + FEW]) for scrape in scrapes for start in range(0, len(scrape), FEW)]
    native, native_values = _native(begin_ms)
    values = len(scrapes[0])
    print(f"data: {values} values a body of {len(whole[0])} bytes, {len(whole[0]) / values:.1f} a value", flush=True)
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder, _gateway.running(Path(folder)) as gateway:
        figures = {
            "cpu_ns_per_value": _measure(gateway, "/api/v1/write", FOREIGN, (whole[:1], whole[1:]), values),
            "cpu_ns_per_value_few": _measure(gateway, "/api/v1/write", FOREIGN, (few[:8], few[8:]), FEW),
            "native_cpu_ns_per_value": _measure(gateway, "/v1/frames", NATIVE, native, native_values),
        }
    figures["bytes_per_value"] = len(whole[0]) / values
    if os.environ.get("BENCH_PROFILE"):
        _profile([bytes(cramjam.snappy.decompress_raw(body)) for body in whole])
    print(json.dumps({"name": "foreign", "figures": {name: round(figure, 2) for name, figure in figures.items()}}))


def _scrape(at_ms: int, seed: int) -> list[bytes]:
    """Return the series of one scrape, each with one sample; hosts are scraped some milliseconds apart."""
    chance = np.random.default_rng(seed)
    sources = _sources()
    out = []
    for host in range(HOSTS):
        for gpu in range(GPUS):
            for name, least, greatest in sources:
                value = least + (greatest - least) * chance.random()
                told = 0.0 if least == 0 and chance.random() < ZERO_SHARE else round(value, 6 if greatest <= 1 else 0)
                out.append(_series(name, host, gpu, told, at_ms + 37 * host))
    return out


def _sources() -> list[tuple[str, float, float]]:
    """Return (name, least and greatest value) of samples that each feed a cell of their own on a GPU."""
    found = []
    for metric in load_catalog().scalars(EntityKind.GPU):
        own = Source(system="prometheus", name=metric.name)
        source = next((one for one in metric.sources if one.system == "dcgm" and not one.match), own)
        made = conversion(metric, source)
        if metric.type is not MetricType.STATE and not made.translate:
            found.append((source.name, max(made.least, 0.0), min(made.greatest, made.clamp_above, VALUE_MAXIMUM)))
    return found[:SERIES]


def _series(name: str, host: int, gpu: int, value: float, at_ms: int) -> bytes:
    message: Any = remote_write("TimeSeries")()
    labels = {
        "Hostname": f"gpu-node-{host:04d}",
        "UUID": f"GPU-{host:08d}-0000-0000-0000-{gpu:012d}",
        "__name__": name,
        "device": f"nvidia{gpu}",
        "gpu": str(gpu),
        "instance": f"10.0.0.{host}:9400",
        "job": "dcgm-exporter",
        "modelName": "NVIDIA H100 80GB HBM3",
    }
    for label, text in sorted(labels.items()):
        message.labels.add(name=label.encode(), value=text.encode())
    message.samples.add(value=value, timestamp=at_ms)
    packed: bytes = message.SerializeToString()
    return packed


def _body(series: Sequence[bytes]) -> bytes:
    message: Any = remote_write("WriteRequest")()
    message.timeseries.extend(series)
    return bytes(cramjam.snappy.compress_raw(message.SerializeToString()))


def _native(begin_ms: int) -> tuple[tuple[list[bytes], list[bytes]], int]:
    """Return first and later bodies of the benchmark fleet, and values per body."""
    fleet = _fleet.prepare(BODIES)
    first = [b"".join(_fleet.first_frames(fleet, host, 0, begin_ms)) for host in range(HOSTS)]
    later = [
        b"".join(_fleet.host_frames(fleet, host, batch, begin_ms + batch * 1000 * _fleet.TICKS))
        for batch in range(1, BODIES)
        for host in range(HOSTS)
    ]
    return (first, later), round(fleet.values_per_batch)


def _measure(
    gateway: Any, path: str, headers: dict[str, str], bodies: tuple[Sequence[bytes], Sequence[bytes]], values: int
) -> float:
    """Return the gateway's processor nanoseconds per value over the later bodies, sent over some connections."""
    named = headers | {"Authorization": f"Bearer {gateway.token}"}
    first, later = bodies
    _send(gateway, path, named, (*first, *later[:2]), 0.0)
    before = _cpu_seconds(gateway.pid)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [later[number::CONNECTIONS] for number in range(CONNECTIONS)]
        seconds = SECONDS / 3
        sent = sum(pool.map(lambda share: _send(gateway, path, named, share, seconds), filter(None, shares)))
    used = _cpu_seconds(gateway.pid) - before
    print(f"{path}: {sent} bodies of {values} values, {used / sent * 1e6:.0f} us each", flush=True)
    return used / sent / values * 1e9


def _send(gateway: Any, path: str, headers: dict[str, str], bodies: Sequence[bytes], seconds: float) -> int:
    """Send bodies over one connection, again and again for so long, and return how many."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
    began, sent = time.monotonic(), 0
    while sent < len(bodies) or time.monotonic() - began < seconds:
        _post(connection, path, bodies[sent % len(bodies)], headers)
        sent += 1
    connection.close()
    return sent


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> None:
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 204):
        raise SystemExit(f"{path} answered {answer.status}: {text[:300]!r}")


def _cpu_seconds(pid: int) -> float:
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _profile(bodies: Sequence[bytes]) -> None:
    """Decode the bodies in this process and print the functions that take longest."""
    sender = Sender(Who("prom", "remote-write", 1, lambda _: True), load_catalog(), Settings(10**12, 10**12, 10**6))
    profile = cProfile.Profile()
    for number, body in enumerate([*bodies, *bodies, *bodies]):
        if number == len(bodies):
            profile.enable()
        sender.prepare(0)
        sender.take(decode_first(body, sender.index, sender.learn_help), number, int(time.time() * 1000))
    profile.disable()
    began = time.process_time()
    for body in [*bodies, *bodies]:
        points = decode_first(body, sender.index, sender.learn_help)
    decoded = time.process_time()
    for _ in range(2 * len(bodies)):
        taken = sender.take(points, 1, int(time.time() * 1000))
    ns = 1e9 / (2 * len(bodies) * points.series.size)
    took = f"decode {(decoded - began) * ns:.0f} ns, make frames {(time.process_time() - decoded) * ns:.0f} ns"
    print(f"in this process, a value: {took}; {len(taken.frames)} frames, refused {dict(taken.refused)}")
    pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
