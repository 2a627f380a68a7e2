"""Run VictoriaMetrics at its defaults: the newest that can be built here, else the one that is installed."""

import http.client
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import _processes

VERSION = "v1.151.0"
MODULE = "github.com/VictoriaMetrics/VictoriaMetrics"
BUILD = Path(__file__).resolve().parent.parent / ".build" / "victoria-metrics"
ACK = "in memory; written to disk within 5 s (-inmemoryDataFlushInterval), without fsync of each"
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Victoria:
    """A running server."""

    port: int
    pid: int
    folder: Path

    def cpu_seconds(self) -> float:
        """Return the processor time of the whole process so far."""
        return _processes.cpu_seconds(self.pid)

    def metrics(self) -> dict[str, float]:
        """Return its own metrics: name with labels -> value."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in found}

    def size_bytes(self) -> int:
        """Return what its folder takes."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def binary() -> Path:
    """Return the program: built from its module where Go is there, else Debian's.

    Raises:
        SystemExit: There is neither.
    """
    built, go = BUILD / f"victoria-metrics-{VERSION}", shutil.which("go")
    if not built.exists() and go is not None:
        print(f"building VictoriaMetrics {VERSION}", flush=True)
        _build(go, built)
    if built.exists():
        return built
    installed = shutil.which("victoria-metrics")
    if installed is None:
        raise SystemExit("VictoriaMetrics is neither installed nor buildable: install victoria-metrics, or Go")
    return Path(installed)


def version_of(program: Path) -> str:
    """Return the version that a program is of."""
    if program.name.endswith(VERSION):
        return VERSION
    told = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", told.stdout + told.stderr)
    return f"v{found[0]}" if found else "unknown"


@contextmanager
def running(program: Path, folder: Path) -> Iterator[Victoria]:
    """Serve from a folder until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}", "-loggerLevel=ERROR"]
    process = subprocess.Popen([str(program), *words])
    try:
        _await_port(port)
        yield Victoria(port, process.pid, folder)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("VictoriaMetrics did not start")


def _build(go: str, built: Path) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    package = f"{MODULE}/app/victoria-metrics"
    (BUILD / "go.mod").write_text("module peer\n\ngo 1.26\n")
    (BUILD / "peer.go").write_text(f'//go:build tools\n\npackage peer\n\nimport _ "{package}"\n')
    for words in (["get", f"{package}@{VERSION}"], ["build", "-o", str(built), package]):
        done = subprocess.run([go, *words], cwd=BUILD, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"VictoriaMetrics {VERSION} cannot be built: {done.stderr[-500:]}", flush=True)
            return
