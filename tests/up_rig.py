"""A real platform for tests: `secondsight up` on a folder, its processes by name, and a sender with receipts."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np

from secondsight.catalog.load import load_catalog
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import make_schema

READY_SECONDS = 90
CANARY, LAKE = "--canary", "--lake"
"""Ask for the canary and the lake, which others start quicker without."""
METRICS = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_energy_joules_total", "gpu_clock_event_reasons")

WITHOUT = {CANARY: "--no-canary", LAKE: "--no-lake"}


class Platform:
    """`secondsight up` on a data folder; may be started and ended many times."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.command = [sys.executable, "-m", "secondsight"]
        left_out = (option for asked, option in WITHOUT.items() if asked not in arguments)
        self._arguments = (*(each for each in arguments if each not in WITHOUT), *left_out)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.data / "ready").unlink(missing_ok=True)
        with (self.data.parent / f"{self.data.name}.out").open("ab") as out:
            self._process = subprocess.Popen(
                [*self.command, "up", "--data", str(self.data), *self._arguments],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        wait_until(lambda: (self.data / "ready").exists() or self._process.poll() is not None, READY_SECONDS)
        assert self._process.poll() is None, self.words()

    def words(self) -> str:
        logs = [self.data.parent / f"{self.data.name}.out", *sorted((self.data / "logs").glob("*.log"))]
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in logs if path.exists())

    @property
    def address(self) -> str:
        return (self.data / "ready").read_text().strip()

    def token(self, name: str) -> str:
        return (self.data / "tokens" / name).read_text().strip()

    def parts(self) -> dict[str, int]:
        """Return part name -> process id of the children that live."""
        parent = self._process.pid
        pids = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        named = {}
        for pid in pids:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"secondsight" in words and words.index(b"secondsight") + 1 < len(words):
                named[words[words.index(b"secondsight") + 1].decode()] = int(pid)
        return named

    def kill(self, *names: str) -> None:
        """Kill parts by name, or everything with its supervisor when none is named."""
        parts = self.parts()
        if names:
            for name in names:
                if name in parts:
                    os.kill(parts[name], signal.SIGKILL)
            return
        self._process.kill()
        for pid in parts.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts.values()), 30)

    def stop(self) -> int:
        """Stop as an operator does and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def get(self, path: str, *, token: str = "admin", **parameters: object) -> dict:
        status, body = request(self.address, "GET", f"{path}?{urlencode(parameters)}", self.token(token))
        assert status == 200, (status, body)
        return json.loads(body)


@contextmanager
def platform(data: Path, *arguments: str) -> Iterator[Platform]:
    running = Platform(data, *arguments)
    try:
        running.start()
        yield running
    finally:
        running.end()


def request(
    address: str, method: str, path: str, token: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_until(condition, seconds: float) -> None:
    """Wait for something outside this process; fail when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


@dataclass
class Sender:
    """Hosts that send one tick a request and note what was acknowledged: (gpu, tick) -> stored power."""

    platform: Platform
    hosts: int = 3
    gpus: int = 2
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    attempts: int = 0
    failures: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        sequence = 0
        while not self._stop.is_set():
            tick_ms = time.time_ns() // 1_000_000_000 * 1000
            body, values = self._body(tick_ms, sequence)
            while not self._stop.is_set() and not self._post(body):
                self._stop.wait(0.1)
            if not self._stop.is_set():
                self.acknowledged.update(values)
            sequence += 1
            self._stop.wait(max(0.0, tick_ms / 1000 + 1 - time.time()))

    def _post(self, body: bytes) -> bool:
        self.attempts += 1
        try:
            address, token = self.platform.address, self.platform.token("collector")
            headers = {"Content-Type": "application/x-secondsight-frame"}
            status, answer = request(address, "POST", "/v1/frames", token, body, **headers)
        except (OSError, http.client.HTTPException):
            self.failures += 1
            return False
        if status != 200:
            self.failures += 1
            assert status in (429, 502, 503), (status, answer)
            return False
        return True

    def _body(self, tick_ms: int, sequence: int) -> tuple[bytes, dict[tuple[str, int], int]]:
        frames, values = [], {}
        for host in range(self.hosts):
            name = f"crash-{host}"
            power = [(tick_ms // 1000 * 7919 + host * 31 + gpu) % 700_000 for gpu in range(self.gpus)]
            frames.append(gpu_frame(name, [gpu_name(host, gpu) for gpu in range(self.gpus)], tick_ms, sequence, power))
            values |= {(gpu_name(host, gpu), tick_ms): power[gpu] for gpu in range(self.gpus)}
        return b"".join(frames), values


def gpu_name(host: int, gpu: int) -> str:
    return f"GPU-crash-{host}-{gpu}"


def gpu_frame(host: str, gpus: list[str], tick_ms: int, sequence: int, power: list[int]) -> bytes:
    """Return one tick of a host, with its definitions, power in stored milliwatts."""
    catalog = load_catalog()
    metrics = [catalog.get(name) for name in METRICS]
    schema = make_schema(EntityKind.GPU, [Column(m.name, m.unit, m.dtype, m.resolution) for m in metrics])
    table = EntityTable(EntityKind.GPU, host, "r1", tuple(Entity(gpu, "", (("index", "0"),)) for gpu in gpus))
    rows = len(gpus)
    stored = {
        "gpu_power_watts": power,
        "gpu_temperature_celsius": [50] * rows,
        "gpu_energy_joules_total": [sequence * 500_000] * rows,
        "gpu_clock_event_reasons": [0] * rows,
    }
    groups: list[Group] = []
    while sum(len(group.values) for group in groups) < len(schema.columns):
        first = sum(len(group.values) for group in groups)
        dtype = schema.columns[first].dtype
        names = [column.metric for column in schema.columns if column.dtype == dtype]
        kind = f"<{dtype[0]}{int(dtype[1:]) // 8}"
        groups.append(Group(first, np.array([stored[name] for name in names], dtype=kind), None))
    none = np.zeros(0, dtype=np.uint32)
    block = ScalarBlock(
        entity_index=np.arange(rows, dtype=np.uint32),
        tick_index=np.zeros(rows, dtype=np.uint16),
        observed_delta_ms=np.zeros(rows, dtype=np.int32),
        groups=tuple(groups),
        quality_row=none,
        quality_column=none.astype(np.uint16),
        quality=none.astype(np.uint8),
    )
    stamp = Stamp(host, host, "test", 77, sequence, sequence, np.array([tick_ms], dtype=np.int64), 1000)
    return encode(stamp, Content(schema, table, scalars=block), inline=True)
