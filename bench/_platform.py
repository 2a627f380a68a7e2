"""Start the product for a benchmark and account for what its processes use."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

TICK_HZ = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PARTS = ("gateway", "processor", "api")


class Running:
    """A started platform."""

    def __init__(self, data: Path, process: "subprocess.Popen[bytes]") -> None:
        self.data = data
        self.process = process

    @property
    def gateway(self) -> str:
        """Return the gateway's address."""
        return str(tomllib.loads((self.data / "run" / "config.toml").read_text())["api"]["gateway"])

    @property
    def address(self) -> str:
        """Return the public address."""
        return (self.data / "ready").read_text().strip()

    def pids(self) -> dict[str, int]:
        """Return part -> process id."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        named = {Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[3].decode(): int(child) for child in children}
        return {name: child for name, child in named.items() if name in PARTS}

    def cpu_seconds(self) -> dict[str, float]:
        """Return part -> user and system seconds since it started."""
        return {name: _cpu_seconds(pid) for name, pid in self.pids().items()}

    def rss_mib(self) -> float:
        """Return the resident memory of all parts."""
        return sum(self.rss_mib_by_part().values())

    def rss_mib_by_part(self) -> dict[str, float]:
        """Return part -> resident memory."""
        pages = {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for name, pid in self.pids().items()}
        return {name: count * PAGE_BYTES / 2**20 for name, count in pages.items()}


@contextmanager
def started(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[Running]:
    """Run `secondsight up` without agents, by default on an empty folder that is removed at the end.

    Args:
        *arguments: Further ones of `up`.
        environment: Settings that the parts are to have beside their defaults.
        folder: Data folder to run on, which stays.
    """
    data = folder or Path(tempfile.mkdtemp(prefix="secondsight-bench-"))
    (data / "ready").unlink(missing_ok=True)
    words = [
        "up",
        "--data",
        str(data),
        "--listen",
        "127.0.0.1:0",
        "--simulate",
        "0",
        "--no-local-agent",
        "--no-canary",
        *arguments,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "secondsight", *words],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    try:
        deadline = time.monotonic() + 90
        while not (data / "ready").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the platform did not start")
            time.sleep(0.1)
        yield Running(data, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
        if folder is None:
            shutil.rmtree(data, ignore_errors=True)


def versions() -> dict[str, str]:
    """Return what a figure depends on: machine, interpreter, engine, libraries."""
    model = next(
        (line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ":"
    )
    return {
        "cpu": model.split(":", 1)[1].strip(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        **{name: version(name) for name in ("secondsight", "chdb-core", "numpy", "pyarrow", "zstandard")},
    }


def load_average() -> float:
    """Return the machine's load over the last minute: a figure taken beside other work says so."""
    return os.getloadavg()[0]


def report(name: str, measured: Callable[[Path], Any], others: Mapping[str, str] | None = None) -> None:
    """Measure in an empty folder; print what the figures depend on, and one JSON line of them."""
    print(f"versions {json.dumps({**versions(), **(others or {})})}")
    print(f"load average before {load_average():.2f}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="secondsight-bench-"))
    try:
        figures = measured(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"name": name, "figures": figures}))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK_HZ
