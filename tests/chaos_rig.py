"""Send a shipment to a platform that is killed, paused, cut off and filled up, and wait until it has taken it all in.

A courier keeps every parcel until it is acknowledged and then forgets it: what is lost afterwards is the platform's
fault. The schedule of blows is made of the seed; each falls when so much of the shipment is acknowledged.
"""

import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from urllib.parse import urlsplit

from chaos_fleet import UNKNOWN_METRIC
from chaos_frames import Parcel, Shipment
from clickhouse_server import Server
from kafka_broker import Broker
from up_rig import Platform, wait_until

COURIERS = 4
PATIENCE_SECONDS = 180.0
ANSWER_SECONDS = 15.0
FRAMES = {"Content-Type": "application/x-secondsight-frame"}
AGAIN = (429, 500, 502, 503, 504)
PERMANENT = (400, 413, 415, 422)
BODY_CODES = {"bad_checksum", "bad_frame", "truncated", "frame_too_large", "unsupported_version"}
ITEM_CODES = {"future": "future_time"}
"""Codes of refused frames by their fate; a metric of another release is refused in a frame of any."""


class Cuttable:
    """A TCP proxy on loopback that forwards to wherever the platform listens, and can be cut."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    def cut(self) -> None:
        """Break every connection, and refuse new ones until `is_cut` is reset."""
        self.is_cut = True
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if self.is_cut:
                return
            parts = urlsplit(self._target())
            with socket.create_connection((parts.hostname or "", parts.port or 0), 5) as far:
                self._open |= {near, far}
                _splice(near, far)
                self._open -= {near, far}


def _splice(near: socket.socket, far: socket.socket) -> None:
    others = {near: far, far: near}
    while True:
        for one in select.select(list(others), [], [])[0]:
            data = one.recv(1 << 16)
            if not data:
                return
            others[one].sendall(data)


@dataclass(repr=False)
class Couriers:
    """Threads that deliver the parcels of a shipment, those of one host in their order.

    Attributes:
        answers: Statuses, by what was sent.
        faults: What should never be answered.
    """

    shipment: Shipment
    port: Callable[[], int]
    token: Callable[[], str]
    pace_seconds: float
    delivered: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        hosts = list(self.shipment.parcels.values())
        began = time.monotonic()
        for number in range(COURIERS):
            parcels = list(merge(*hosts[number::COURIERS], key=lambda parcel: parcel.turn))
            thread = threading.Thread(target=self._deliver_all, args=(parcels, began), daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def share(self) -> float:
        """Return how much of the shipment is delivered."""
        return self.delivered / len(self.shipment)

    def finish(self) -> None:
        """Wait until everything is delivered."""
        reached, since = -1, time.monotonic()
        while any(thread.is_alive() for thread in self._threads):
            if self.delivered != reached:
                reached, since = self.delivered, time.monotonic()
            assert not self.faults, self.faults[:5]
            assert time.monotonic() - since < PATIENCE_SECONDS, f"nothing is taken any more: {self.answers}"
            time.sleep(0.05)
        assert not self.faults, self.faults[:5]
        assert self.delivered == len(self.shipment)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS + 5)

    def _deliver_all(self, parcels: Sequence[Parcel], began: float) -> None:
        connection = _Connection(self.port)
        for parcel in parcels:
            turn = min(parcel.turn / self.shipment.fleet.story.seconds, 1.0) * self.pace_seconds
            self._stop.wait(max(0.0, began + turn - time.monotonic()))
            inline = False
            while not self._stop.is_set():
                status, answer = connection.post(parcel.bytes(inline=inline), self.token)
                if self._judge(parcel, status, answer):
                    break
                inline = inline or status == 424
                if status != 424:
                    self._stop.wait(0.1)
        connection.close()

    def _judge(self, parcel: Parcel, status: int, answer: bytes) -> bool:
        """Tell whether a parcel is done with."""
        what = "spoiled" if parcel.spoil is not None else "sound"
        with self._lock:
            self.answers[f"{what} {status}"] += 1
            if status in (0, 424, *AGAIN):
                return parcel.spoil is not None and status == 424 and self._count()
            if parcel.spoil is not None:
                self._check_spoiled(status, answer)
            else:
                self._check_sound(parcel, status, answer)
            return self._count()

    def _count(self) -> bool:
        self.delivered += 1
        return True

    def _check_spoiled(self, status: int, answer: bytes) -> None:
        """A body that was cut between two frames is sound."""
        if status == 200:
            return
        code = json.loads(answer)["error"]["code"]
        if status not in PERMANENT or code not in BODY_CODES:
            self.faults.append(f"a spoiled body was answered {status} {code}")

    def _check_sound(self, parcel: Parcel, status: int, answer: bytes) -> None:
        if status != 200:
            self.faults.append(f"a sound body of {parcel.host} was answered {status} {answer[:300]!r}")
            return
        told = json.loads(answer)
        whole = {item["index"] for item in told["rejected"] if "metric" not in item}
        if told["accepted"] + told["duplicate"] + len(whole) != len(parcel.frames):
            self.faults.append(f"{len(parcel.frames)} frames of {parcel.host} were answered {answer[:300]!r}")
        for item in told["rejected"]:
            fate = parcel.frames[item["index"]].fate
            expected = "unknown_metric" if item.get("metric") == UNKNOWN_METRIC else ITEM_CODES.get(fate)
            if item["code"] != expected:
                self.faults.append(f"a frame of {parcel.host} was refused: {item}")


class _Connection:
    """A connection that is made again whenever it breaks."""

    def __init__(self, port: Callable[[], int]) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, token: Callable[[], str]) -> tuple[int, bytes]:
        """Return status and body of the answer; status 0 where there is none."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port(), timeout=ANSWER_SECONDS)
            self._connection.request("POST", "/v1/frames", body, FRAMES | {"Authorization": f"Bearer {token()}"})
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, b""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(frozen=True, slots=True)
class Blow:
    """What happens when a share of the shipment is delivered, a moment later."""

    share: float
    what: str
    moment_seconds: float
    seconds: float
    patient: bool = False
    """Wait until the processor has written all that it held once more, so that a later blow does not hit old work."""

    def __str__(self) -> str:
        patient = " once progress is written" if self.patient else ""
        return f"{self.share:.3f}+{self.moment_seconds:.2f}s {self.what} {self.seconds:.1f}s{patient}"


def schedule(seed: int, counts: dict[str, int], patient_share: float) -> list[Blow]:
    """Return blows in their order, of which about such a share is patient."""
    chance = random.Random(f"blows {seed}")
    made = [
        Blow(
            chance.uniform(0.04, 0.96),
            what,
            chance.uniform(0, 0.7),
            chance.uniform(0.4, 2.5),
            chance.random() < patient_share,
        )
        for what, count in counts.items()
        for _ in range(count)
    ]
    return sorted(made, key=lambda blow: blow.share)


@dataclass
class Blows:
    """Deals blows to a platform."""

    running: Platform
    proxy: Cuttable
    broker: Broker | None = None
    server: Server | None = None
    disk: Path | None = None
    progress: Callable[[], int] = lambda: 0
    """Grows whenever the processor writes how far it is."""
    dealt: Counter[str] = field(default_factory=Counter)

    def deal(self, blow: Blow) -> None:
        if blow.patient:
            self._let_progress()
        time.sleep(blow.moment_seconds)
        verb, _, part = blow.what.partition(" ")
        match verb:
            case "kill" if part == "everything":
                self.running.kill()
                self.running.start()
            case "kill" if part in ("broker", "store"):
                killed = self.broker if part == "broker" else self.server
                assert killed is not None
                killed.kill()
                time.sleep(blow.seconds)
                killed.start()
            case "kill":
                os.kill(self._pid(part), signal.SIGKILL)
            case "pause":
                self._pause(part, blow.seconds)
            case "cut":
                self.proxy.cut()
                time.sleep(blow.seconds)
                self.proxy.is_cut = False
            case _:
                self._fill(blow.seconds)
        self.dealt[blow.what] += 1

    def _let_progress(self) -> None:
        reached, end = self.progress(), time.monotonic() + PATIENCE_SECONDS / 3
        while self.progress() == reached and time.monotonic() < end:
            time.sleep(0.2)

    def _pid(self, part: str) -> int:
        wait_until(lambda: part in self.running.parts(), PATIENCE_SECONDS)
        return self.running.parts()[part]

    def _pause(self, part: str, seconds: float) -> None:
        pid = self._pid(part)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _fill(self, seconds: float) -> None:
        assert self.disk is not None
        ballast = self.disk / "ballast"
        free = os.statvfs(self.disk)
        with suppress(OSError), ballast.open("wb") as out:
            out.write(bytes(free.f_bavail * free.f_frsize))
        time.sleep(seconds)
        ballast.unlink()


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """Mount a file system of its own on a folder; needs root."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "secondsight-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
