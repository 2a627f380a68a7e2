"""A real S3 and a real Iceberg REST catalogue for tests: SeaweedFS, on free ports of this machine."""

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from secondsight.lake.config import CatalogConfig

ACCESS, SECRET = "test-access", "test-secret"
BUCKET = "lakehouse"
START_SECONDS = 90.0
LOWEST_PORT, HIGHEST_PORT = 12_000, 20_000


@dataclass(frozen=True, slots=True)
class Weed:
    """A running server."""

    process: "subprocess.Popen[bytes]"
    s3_port: int
    catalog_port: int
    secrets_dir: Path

    def config(self, **more: object) -> CatalogConfig:
        """Return the settings of a lake in it, by its own catalogue."""
        settings = {
            "kind": "rest",
            "uri": f"http://127.0.0.1:{self.catalog_port}",
            "warehouse": f"s3://{BUCKET}/",
            "credential_file": self.secrets_dir / "credential",
            "s3_endpoint": f"http://127.0.0.1:{self.s3_port}",
            "s3_region": "us-east-1",
            "s3_access_key_file": self.secrets_dir / "access",
            "s3_secret_key_file": self.secrets_dir / "secret",
        }
        return CatalogConfig(**(settings | more))  # type: ignore[arg-type] # a test's own words


def program() -> Path:
    """Return the server's program, which comes with a package of Python."""
    return Path(sys.executable).with_name("weed")


@contextmanager
def running(folder: Path) -> Iterator[Weed]:
    """Serve from a folder until the block ends."""
    ports = _free_ports(8)
    secrets_dir = folder / "secrets"
    secrets_dir.mkdir(parents=True, exist_ok=True)
    for name, text in (("access", ACCESS), ("secret", SECRET), ("credential", f"{ACCESS}:{SECRET}")):
        (secrets_dir / name).write_text(text)
    keys = {"credentials": [{"accessKey": ACCESS, "secretKey": SECRET}]}
    identity = {"name": "admin", **keys, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    process = subprocess.Popen(_words(folder, ports), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    weed = Weed(process, ports[3], ports[4], secrets_dir)
    try:
        for port in (ports[0], *ports[3:5]):
            _await_port(port)
        _make_bucket(ports[0])
        yield weed
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)


def _words(folder: Path, ports: list[int]) -> list[str]:
    master, volume, filer, s3, catalog, *grpc = ports
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return [
        str(program()),
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-master.port.grpc={grpc[0]}",
        f"-volume.port={volume}",
        f"-volume.port.grpc={grpc[1]}",
        "-filer",
        f"-filer.port={filer}",
        f"-filer.port.grpc={grpc[2]}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.iceberg={catalog}",
        "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=0",
        "-master.telemetry=false",
    ]


def _make_bucket(master_port: int) -> None:
    """Make the bucket of the catalogue; the server may need a moment until it can."""
    deadline = time.monotonic() + START_SECONDS
    command = f"s3tables.bucket -create -name {BUCKET} -account admin\n"
    while True:
        done = subprocess.run(
            [str(program()), "shell", f"-master=127.0.0.1:{master_port}.{_grpc(master_port)}"],
            input=command.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        text = (done.stdout + done.stderr).decode(errors="replace")
        if done.returncode == 0 and "error" not in text.lower():
            return
        if "already exists" in text.lower():
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the bucket cannot be made: {text[-500:]}")
        time.sleep(1)


_GRPC: dict[int, int] = {}


def _grpc(master_port: int) -> int:
    return _GRPC[master_port]


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now, low enough that those 10,000 above them, which the server takes too, exist."""
    chosen: list[int] = []
    start = LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT)
    for port in range(start, start + 5 * count):
        if len(chosen) < count and all(_is_free(each) for each in (port, port + 10_000)):
            chosen.append(port)
    _GRPC[chosen[0]] = chosen[5]
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _await_port(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/")
            connection.getresponse().read()
            connection.close()
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"nothing answers on port {port}")


def is_there() -> bool:
    """Tell whether the server is installed."""
    return os.access(program(), os.X_OK)
