"""The same data into the platform and into VictoriaMetrics: processor time per value, merges included, and bytes.

BENCH_HOSTS (32) hosts x 8 GPUs x 100 metrics at 1 Hz over BENCH_SECONDS (900) of event time, sent as fast as answers
come over four connections, to a new server each time. `native`: frames into the platform. `rw1`, `rw5`, `rw15`: the
same remote-write bytes into each of the two, bodies of one host over 1, 5 or 15 s, each series once with its samples:
those of one second are what Prometheus and vmagent send of a scrape, longer ones cost the peer least. Processor time
counts from the first body until nothing is left to do: all values stored, no merge for a while. Both run at their
defaults. The platform's figure is that of gateway, log, processor, store, raw rows and 30 s rollups, without the api,
which no sample passes.

What an acknowledgement means differs: the platform has synced its log to disk, the peer holds the samples in memory.
"""

import http.client
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _fleet
import _fleetrun
import _platform
import _remotewrite
import _site
import _victoria
from secondsight.store.client import FlightStore

QUICK = os.environ.get("BENCH_QUICK") == "1"
HOSTS = int(os.environ.get("BENCH_HOSTS", "16" if QUICK else "32"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "60" if QUICK else "900"))
WAYS = os.environ.get("BENCH_WAYS", "native,rw1,rw5,rw15").split(",")
CONNECTIONS = 4
OLDER_SECONDS = 30
QUIET_SECONDS = 6.0
SETTLE_SECONDS = 300.0
OWN_ACK = "in the log on disk, synced (fdatasync), before the answer is sent"
FOREIGN = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
NATIVE = {"Content-Type": "application/x-secondsight-frame"}

Bodies = Sequence[Sequence[bytes]]
"""Of each host, in their order."""


def main() -> None:
    """Run every way into both and print one JSON line."""
    program = _victoria.binary()
    print(f"versions {json.dumps(_platform.versions())}; VictoriaMetrics {_victoria.version_of(program)}")
    print(f"load average before {_platform.load_average():.2f}")
    print(f"an acknowledgement means: platform: {OWN_ACK}; VictoriaMetrics: {_victoria.ACK}", flush=True)
    fleet = _fleet.prepare(SECONDS // _fleet.TICKS, _fleet.HUNDRED)
    print(f"data: {HOSTS} hosts, {SECONDS} s, {fleet.noisy_share:.0%} of columns noisy", flush=True)
    own = {way: _own(fleet, way) for way in WAYS}
    peer = {way: _peer(fleet, way, program) for way in WAYS if way != "native"}
    print(json.dumps({"name": "ingest-peer", "figures": _figures(own, peer, _victoria.version_of(program))}))


def _figures(own: dict[str, Any], peer: dict[str, Any], version: str) -> dict[str, Any]:
    def of(runs: dict[str, Any], way: str, key: str) -> float | None:
        return round(runs[way][key], 3) if way in runs else None

    def ratio(above: float | None, below: float | None) -> float | None:
        return None if above is None or not below else round(above / below, 2)

    native, peer_cpu = of(own, "native", "cpu_ns_per_value"), of(peer, "rw5", "cpu_ns_per_value")
    return {
        "cpu_ns_per_value": native,
        "peer_cpu_ns_per_value": peer_cpu,
        "cpu_ratio": ratio(peer_cpu, native),
        "rw_cpu_ratio": ratio(peer_cpu, of(own, "rw5", "cpu_ns_per_value")),
        "bytes_per_value": of(own, "native", "bytes_per_value"),
        "peer_bytes_per_value": of(peer, "rw5", "bytes_per_value"),
        "peer_version": version,
        "rw_1s_cpu_ns_per_value": of(own, "rw1", "cpu_ns_per_value"),
        "peer_1s_cpu_ns_per_value": of(peer, "rw1", "cpu_ns_per_value"),
        "rw_1s_cpu_ratio": ratio(of(peer, "rw1", "cpu_ns_per_value"), of(own, "rw1", "cpu_ns_per_value")),
        "rw_cpu_ns_per_value": of(own, "rw5", "cpu_ns_per_value"),
        "rw_15s_cpu_ns_per_value": of(own, "rw15", "cpu_ns_per_value"),
        "peer_15s_cpu_ns_per_value": of(peer, "rw15", "cpu_ns_per_value"),
        "rw_15s_cpu_ratio": ratio(of(peer, "rw15", "cpu_ns_per_value"), of(own, "rw15", "cpu_ns_per_value")),
        "rw_gateway_ns_per_value": of(own, "rw5", "gateway_ns_per_value"),
        "native_gateway_ns_per_value": of(own, "native", "gateway_ns_per_value"),
        "values": HOSTS * 800 * SECONDS,
    }


def _bodies(fleet: _fleet.Fleet, way: str) -> Bodies:
    """Make what is sent: times end a little before now."""
    begin_ms = (int(time.time()) - SECONDS - OLDER_SECONDS) * 1000
    if way == "native":
        return [
            [
                b"".join(
                    (_fleet.host_frames if batch else _fleet.first_frames)(fleet, host, batch, begin_ms + 5000 * batch)
                )
                for batch in range(len(fleet.templates[0].frames))
            ]
            for host in range(HOSTS)
        ]
    each = int(way.removeprefix("rw"))
    catalog = _fleet.hundred_catalog()
    return [list(_remotewrite.bodies(fleet, catalog, host, begin_ms, each)) for host in range(HOSTS)]


def _own(fleet: _fleet.Fleet, way: str) -> dict[str, float]:
    """Send one way into a new platform."""
    with _site_settings() as environment, _platform.started(environment=environment) as running:
        bodies, values = _bodies(fleet, way), HOSTS * 800 * SECONDS
        store = FlightStore(running.data / "run" / "store.address")
        token = (running.data / "tokens" / "collector").read_text().strip()
        headers = (NATIVE if way == "native" else FOREIGN) | {"Authorization": f"Bearer {token}"}
        port = int(running.gateway.rsplit(":", 1)[1])
        before, began = running.cpu_seconds(), time.monotonic()
        _send(port, "/v1/frames" if way == "native" else "/api/v1/write", headers, bodies)
        sent = time.monotonic() - began
        _settle(lambda: _fleetrun.stored_values(store) >= values, lambda: _fleetrun.merging(store))
        used = {part: cpu - before[part] for part, cpu in running.cpu_seconds().items()}
        stored = _fleetrun.stored_values(store)
        sizes = _fleetrun.table_bytes(store, stored)
        store.close()
    figures = {
        "cpu_ns_per_value": (used["gateway"] + used["processor"]) / stored * 1e9,
        "gateway_ns_per_value": used["gateway"] / stored * 1e9,
        "bytes_per_value": sizes["bytes_per_value"],
        "rollup_bytes_per_value": sizes["rollup_bytes_per_value"],
        "sent_values_per_second": values / sent,
        "body_bytes_per_value": sum(map(len, (body for host in bodies for body in host))) / values,
    }
    _show(f"platform {way}", figures, stored, values)
    return figures


def _peer(fleet: _fleet.Fleet, way: str, program: Path) -> dict[str, float]:
    """Send one way into a new VictoriaMetrics."""
    with (
        tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder,
        _victoria.running(program, Path(folder)) as victoria,
    ):
        bodies, values = _bodies(fleet, way), HOSTS * 800 * SECONDS
        before, began = victoria.cpu_seconds(), time.monotonic()
        _send(victoria.port, "/api/v1/write", FOREIGN, bodies)
        sent = time.monotonic() - began
        _settle(lambda: _total(victoria, "vm_parts", "inmemory") == 0, lambda: _total(victoria, "vm_active_merges") > 0)
        used = victoria.cpu_seconds() - before
        stored = round(_total(victoria, "vm_rows_inserted_total"))
        figures = {
            "cpu_ns_per_value": used / stored * 1e9,
            "bytes_per_value": victoria.size_bytes() / stored,
            "sent_values_per_second": values / sent,
        }
    _show(f"VictoriaMetrics {way}", figures, stored, values)
    return figures


def _total(victoria: _victoria.Victoria, name: str, part: str = "") -> float:
    return sum(value for key, value in victoria.metrics().items() if key.startswith(name) and part in key)


@contextmanager
def _site_settings() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        path = str(_site.write_catalogue(Path(folder)))
        yield {f"SECONDSIGHT_{part}_CATALOGUE": path for part in ("GATEWAY", "PROCESSOR", "API")}


def _send(port: int, path: str, headers: dict[str, str], bodies: Bodies) -> None:
    """Send every host's bodies in their order, the hosts shared out over the connections."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [bodies[number::CONNECTIONS] for number in range(CONNECTIONS)]
        for _ in pool.map(lambda share: _send_share(port, path, headers, share), shares):
            pass


def _send_share(port: int, path: str, headers: dict[str, str], share: Bodies) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for body in (body for together in zip(*share, strict=True) for body in together):
        while True:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status in (200, 204):
                break
            if answer.status not in (429, 503):
                raise SystemExit(f"{path} answered {answer.status}: {text[:300]!r}")
            time.sleep(0.5)
    connection.close()


def _settle(is_stored: Callable[[], bool], is_merging: Callable[[], bool]) -> None:
    """Wait until everything is stored and no merge has run for a while, for a bounded time."""
    deadline = time.monotonic() + SETTLE_SECONDS
    quiet_since = time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < QUIET_SECONDS:
        if not is_stored() or is_merging():
            quiet_since = time.monotonic()
        time.sleep(0.5)


def _show(name: str, figures: dict[str, float], stored: int, values: int) -> None:
    shown = {key: round(value, 3) for key, value in figures.items()}
    print(f"{name}: {stored:,} of {values:,} values stored; {json.dumps(shown)}", flush=True)


if __name__ == "__main__":
    main()
