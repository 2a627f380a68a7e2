"""A gateway process on loopback: processor time per request, first and later ones, and time to acknowledge.

Bodies are those of 8-GPU hosts: three frames of 5 s each, under 1,000 names. `first` sends each host's first request,
with its definitions; `paced` sends 2,000 later ones a second, the rate of 10,000 hosts; `flat_out` sends as fast as
answers come. The generator shares the machine's cores with the gateway, so requests a second are a lower bound; what a
request costs is read from the gateway's own processor time. The log is on the disk of the temporary folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import _gateway
import _platform

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "2" if QUICK else "10"))
HOSTS = 200 if QUICK else 1000
CONNECTIONS = 256
PER_SECOND = 2000


def main() -> None:
    """Run the phases against a new gateway and print one JSON line."""
    print(f"versions {json.dumps(_platform.versions())}")
    print(f"load average before {_platform.load_average():.2f}")
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        phases = _measure(Path(folder))
    first, paced, flat_out = phases["first"], phases["paced"], phases["flat_out"]
    figures = {
        "requests_per_second": flat_out["requests"] / flat_out["seconds"],
        "cpu_us_per_request": paced["cpu_us"],
        "cpu_us_per_request_flat_out": flat_out["cpu_us"],
        "cpu_us_per_first_request": first["cpu_us"],
        "cores_at_2000_per_second": paced["cpu_us"] * PER_SECOND / 1e6,
        "ack_p50_ms": paced["ack_p50_ms"],
        "ack_p99_ms": paced["ack_p99_ms"],
        "rss_mib": flat_out["rss_mib"],
    }
    print(json.dumps({"name": "gateway", "figures": {key: round(value, 3) for key, value in figures.items()}}))


def _measure(data: Path) -> dict[str, dict[str, float]]:
    with _gateway.running(data) as gateway:
        return _run_phases(gateway.port, gateway.token, gateway.pid)


def _run_phases(port: int, token: str, pid: int) -> dict[str, dict[str, float]]:
    batches = max(2, round(PER_SECOND * SECONDS / HOSTS))
    words = {"port": port, "hosts": HOSTS, "batches": batches, "connections": CONNECTIONS, "per-second": PER_SECOND}
    command = [sys.executable, str(Path(__file__).with_name("_posts.py"))]
    command += [part for name, number in words.items() for part in (f"--{name}", str(number))]
    environment = {**os.environ, "BENCH_TOKEN": token}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        told = json.loads(sender.stdout.readline())
        print(
            f"data: {told['values']:.0f} values a body, {told['noisy_share']:.0%} of GPU columns noisy; pid {pid}",
            flush=True,
        )
        return {name: _run_phase(name, sender.stdin, sender.stdout, pid) for name in ("first", "paced", "flat_out")}


def _run_phase(name: str, order: IO[str], told: IO[str], pid: int) -> dict[str, float]:
    before_seconds = _cpu_seconds(pid)
    order.write("\n")
    order.flush()
    phase: dict[str, float] = json.loads(told.readline())
    used_seconds = _cpu_seconds(pid) - before_seconds
    phase |= {"cpu_us": used_seconds / phase["requests"] * 1e6, "rss_mib": _rss_mib(pid)}
    print(f"{name}: {json.dumps({key: round(value, 2) for key, value in phase.items()})}", flush=True)
    return phase


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process so far, to the nanosecond where the kernel tells it."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _platform.PAGE_BYTES / 2**20


if __name__ == "__main__":
    main()
