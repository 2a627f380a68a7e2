"""A real agent between a scraped target that counts what it said and a real platform, with a gate that misbehaves.

`Books` adds up, by class and entity kind, what the agent's spools ever took, what the tables hold, what was declared
lost, what is in the dead letters, and what still waits: produced = stored + shed + quarantined + dead-lettered + in
flight.
"""

import base64
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from flow_exporter import agent_toml
from flow_tables import Tables
from log_faults import UnsyncedDisk
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.host.reader import HostReader, boot_id
from secondsight.agent.host.reader import Place as NodePlace
from secondsight.agent.scrape.reader import ScrapePlace, ScrapeReader
from secondsight.agent.scrape.reader import Target as TargetSettings
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.split import Splitter
from secondsight.agent.write.writer import Keeping, Sender, TickWriter
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected
from secondsight.model import EntityKind, Priority
from secondsight.wire.frame import read_view
from secondsight.wire.schema import definition_hash, parse_schema
from spool_rig import added, totals
from up_rig import Platform, wait_until

GPUS = 4
METRICS = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_FB_USED_PERCENT",
    "DCGM_FI_DEV_BAR1_USED",
    "DCGM_FI_DEV_APP_SM_CLOCK",
)
"""Gauges of all three classes, each legal at 0.5 and 100."""
STOP_SECONDS = 120
BALANCE_SECONDS = 60

Figures = dict[tuple[Priority | None, str], tuple[int, int, int]]


class _Server:
    """A threaded HTTP server on loopback; `respond` gets the handler."""

    def __init__(self, respond: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                respond(self)

            do_POST = do_GET  # noqa: N815 # the name that http.server looks for

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def end(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Target:
    """An exporter that numbers its answers: the n-th says n corrected errors on every GPU.

    Attributes:
        said: How many answers were given.
    """

    def __init__(self) -> None:
        self.said = 0
        self.gpus = GPUS
        self._lock = threading.Lock()
        self._server = _Server(self._respond)
        self.url = self._server.url + "/metrics"

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.said += 1
            number = self.said
        chance = random.Random(number)
        lines = [f'DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{gpu="{g}",UUID="GPU-{g}"}} {number}' for g in range(self.gpus)]
        lines += [
            f'{name}{{gpu="{g}",UUID="GPU-{g}"}} {chance.randint(1, 100)}' for name in METRICS for g in range(self.gpus)
        ]
        body = ("\n".join(lines) + "\n").encode()
        handler.send_response(200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(body)

    def end(self) -> None:
        self._server.end()


class Gate:
    """A proxy in front of the platform that does to each POST what `faults` says next; `pass` when it says nothing.

    Faults: `pass`; a status such as `503`; `cut` before anything is forwarded; `deaf` when the platform has taken the
    body and the answer is lost; `hang` until `release` is set.

    Attributes:
        faults: Called for each POST.
        posts: What was done, in order.
        bodies: Of frames that were forwarded, when `keeps` is set.
    """

    def __init__(self, address: str) -> None:
        self.faults: Callable[[], str] = lambda: "pass"
        self.posts: list[str] = []
        self.keeps = False
        self.bodies: list[bytes] = []
        self.release = threading.Event()
        self._target = urlsplit(address)
        self._server = _Server(self._respond)
        self.url = self._server.url

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        is_frames = handler.command == "POST" and handler.path == "/v1/frames"
        fault = self.faults() if is_frames else "pass"
        if is_frames:
            self.posts.append(fault)
        if fault == "hang":
            self.release.wait(STOP_SECONDS)
        if fault in ("cut", "hang"):
            return self._hang_up(handler)
        if fault.isdecimal():
            return self._answer(handler, int(fault), {"retry-after": "0.1"}, b'{"error":{"code":"busy"}}')
        if is_frames and self.keeps:
            self.bodies.append(body)
        status, headers, answer = self._forward(handler, body)
        if fault == "deaf":
            return self._hang_up(handler)
        return self._answer(handler, status, headers, answer)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._target.hostname or "", self._target.port, timeout=30)
        try:
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
            connection.request(handler.command, handler.path, body or None, headers)
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() in ("retry-after", "etag")}
            return answer.status, kept, answer.read()
        except OSError:
            return 502, {}, b""
        finally:
            connection.close()

    def _hang_up(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    def _answer(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        with suppress(OSError):
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

    def end(self) -> None:
        self.release.set()
        self._server.end()


@dataclass
class Agent:
    """One agent process after the other, on one spool.

    Attributes:
        command: How to run it; the settings file follows.
        log: Its words.
    """

    settings: Path
    command: list[str] = field(default_factory=lambda: [sys.executable, "-m", "secondsight", "agent", "--config"])
    extra: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.settings.with_suffix(".log").open("ab") as out:
            self.process = subprocess.Popen(
                [*self.command, str(self.settings), *self.extra],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(os.environ),
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Stop as an operator does and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def words(self) -> str:
        return self.settings.with_suffix(".log").read_text()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@dataclass
class Site:
    """Everything around one agent; see the module."""

    platform: Platform
    tables: Tables
    folder: Path
    host: str
    target: Target
    gate: Gate
    agent: Agent
    spool: Path

    def configure(self, **settings: object) -> None:
        token = self.folder / "token"
        token.write_text(self.platform.token("collector"))
        plain: dict[str, object] = {
            "gateway": self.gate.url,
            "token_file": str(token),
            "spool_dir": str(self.spool),
            "host_id": self.host,
            "interval_ms": 200,
            "batch_seconds": 0.0,
            "spool_floor_mib": 0,
            "host_metrics": True,
            "stop_seconds": 10.0,
        }
        target = {"name": "dcgm", "url": self.target.url, "interval_ms": 200}
        text = agent_toml(plain | settings, [target])
        self.agent.settings.write_text(text + "\n[agent.kernel_log]\nenabled = false\n")

    def run_until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for something while the agent must live."""
        wait_until(lambda: condition() or self.agent.process.poll() is not None, seconds)
        assert self.agent.process.poll() is None, self.agent.words()[-3000:]

    @property
    def given_up(self) -> int:
        """Return how many answers of the target came after the deadline of their tick, which the agent gives up."""
        return self.agent.words().count("dcgm is too slow, its tick is given up")

    def let_say(self, answers: int) -> None:
        """Wait until the target has answered so many times more, in time for the tick."""
        goal = self.target.said - self.given_up + answers
        self.run_until(lambda: self.target.said - self.given_up >= goal, 120)


@contextmanager
def site(platform: Platform, folder: Path, host: str) -> Iterator[Site]:
    """Make a site on a running platform."""
    folder.mkdir(exist_ok=True)
    said = Target()
    gate, tables = Gate(platform.address), Tables(platform)
    agent = Agent(folder / "agent.toml")
    made = Site(platform, tables, folder, host, said, gate, agent, folder / "spool")
    made.configure()
    try:
        yield made
    finally:
        agent.end()
        gate.end()
        said.end()
        tables.close()


class Books:
    """The books of one host's agent, which must not run while they are read."""

    def __init__(self, place: Site, lost_with_folder: Figures | None = None) -> None:
        self._site = place
        self._extra = lost_with_folder or {}
        self._classes = {
            kind: {
                priority: [m.name for m in place.tables.catalog.scalars(kind) if m.priority is priority]
                for priority in Priority
            }
            for kind in EntityKind
        }
        spools = open_spools(place.spool)
        self.spooled = _without_records(added(totals(spools.spooled), self._extra))
        self.in_flight = _without_records(totals(spools.in_flight))
        self._waiting = list(spools.losses)
        self.never_spooled = _figures_of(
            [(loss.priority, loss.kind, loss.rows, loss.values) for loss in self._waiting if not loss.was_spooled]
        )
        spools.close()

    def balance(self) -> None:
        """Wait until both sides agree; fail with both where they do not."""
        end = time.monotonic() + BALANCE_SECONDS
        while self.difference() and time.monotonic() < end:
            time.sleep(0.25)
        assert not self.difference(), json.dumps(
            {name: {str(key): f for key, f in part.items()} for name, part in self.parts().items()}, indent=1
        )

    def difference(self) -> Figures:
        """Return produced minus everything else, without zeros."""
        parts = self.parts()
        produced = parts.pop("produced")
        rest = added(*parts.values())
        return added(produced, {key: tuple(-one for one in figures) for key, figures in rest.items()})

    def parts(self) -> dict[str, Figures]:
        shed, door = self.shed()
        return {
            "produced": added(self.spooled, self.never_spooled, door),
            "stored": self.stored(),
            "shed": added(shed, door),
            "refused": self.refused(),
            "in flight": self.in_flight,
        }

    def stored(self) -> Figures:
        """Return rows and values of the tables; a row counts in each class of which it has a cell."""
        found: Figures = {}
        for kind, classes in self._classes.items():
            sums = []
            for priority, names in classes.items():
                values = " + ".join(f"isNotNull(`{name}`)" for name in names) or "0"
                listed = ", ".join(f"'{name}'" for name in names) or "''"
                cells = f"(({values}) > 0 OR hasAny(mapKeys(quality), [{listed}]))"
                sums.append(f"countIf({cells}) AS rows{priority.value}, sum({values}) AS values{priority.value}")
            sql = f"SELECT {', '.join(sums)} FROM {kind}_1s FINAL WHERE host_id = {{h:String}}"
            (row,) = self._site.tables.rows(sql, h=self._site.host)
            for priority in classes:
                found[priority, kind.value] = (
                    0,
                    int(row[f"rows{priority.value}"]),
                    int(row[f"values{priority.value}"]),
                )
        return added(found)

    def shed(self) -> tuple[Figures, Figures]:
        """Return what was declared of records that were spooled, and of others; in events and in the loss book."""
        rows = self._site.tables.rows(
            "SELECT attributes FROM events FINAL WHERE metric = 'agent_shed' AND entity = {h:String}", h=self._site.host
        )
        told = [dict(row["attributes"]) for row in rows]
        events = [
            (Priority(int(a["class"][1:])), a["kind"], int(a["rows"]), int(a["values"]), "spool_id" in a) for a in told
        ]
        book = [(one.priority, one.kind, one.rows, one.values, one.was_spooled) for one in self._waiting]
        spooled = _figures_of([item[:4] for item in (*events, *book) if item[4]])
        door = _figures_of([item[:4] for item in events if not item[4]])
        return added(spooled, self.never_spooled), door

    def refused(self) -> Figures:
        """Return quarantine and dead letters; the class is that of the frame, read from its copy."""
        rows = self._site.tables.rows(
            "SELECT kind, rows, values, payload FROM dead_letters FINAL WHERE host_id = {h:String}", h=self._site.host
        )
        schemas = self._schemas()
        found = [
            (self._class_of(row["payload"], schemas), row["kind"], int(row["rows"]), int(row["values"])) for row in rows
        ]
        return _figures_of(found)

    def _schemas(self) -> dict[bytes, Priority]:
        found = {}
        for path in (self._site.spool / "definitions").iterdir():
            blob = path.read_bytes()
            with suppress(Rejected):
                names = [column.metric for column in parse_schema(blob).columns]
                if names:
                    found[definition_hash(blob)] = self._site.tables.catalog.get(names[0]).priority
        return found

    def _class_of(self, payload: str, schemas: dict[bytes, Priority]) -> Priority | None:
        with suppress(Rejected, ValueError):
            return schemas.get(read_view(base64.b64decode(payload), 0).schema_hash)
        return None


def open_spools(folder: Path) -> Spools:
    """Open the spools of an agent that does not run."""
    return Spools(folder, SpoolBounds(1 << 40, max_age_seconds=1e9), SystemClock(), Counts())


def _without_records(figures: Figures) -> Figures:
    return added({key: (0, rows, values) for key, (_, rows, values) in figures.items()})


def _figures_of(items: list[tuple[Priority | None, str, int, int]]) -> Figures:
    rows: Counter[tuple[Priority | None, str]] = Counter()
    values: Counter[tuple[Priority | None, str]] = Counter()
    for priority, kind, some_rows, some_values in items:
        rows[priority, kind] += some_rows
        values[priority, kind] += some_values
    return added({key: (0, rows[key], values[key]) for key in rows})


def numbers_stored(place: Site) -> Counter[int]:
    """Return which answers of the target are in the tables: number -> GPUs that have it."""
    rows = place.tables.rows(
        "SELECT gpu_ecc_corrected_volatile_total AS number, count() AS gpus FROM gpu_1s FINAL"
        " WHERE host_id = {h:String} AND isNotNull(gpu_ecc_corrected_volatile_total) GROUP BY number",
        h=place.host,
    )
    return Counter({int(row["number"]): int(row["gpus"]) for row in rows})


def fill_an_hour(place: Site, cadence_seconds: int = 10) -> int:
    """Spool what the agent would have taken in the last hour, without a gateway; return how many ticks of the target.

    Reader, writer and spools are the agent's own; their clock is moved by hand.
    """
    clock = ManualClock(SystemClock().now_ms() - 3_600_000)
    counts, catalog = Counts(), place.tables.catalog
    spools = Spools(place.spool, SpoolBounds(512 << 20), clock, counts, collector_id=place.host, disk=UnsyncedDisk())
    keeping = Keeping(spools, KeptDefinitions(place.spool / "definitions", clock), Splitter(catalog))
    writer = TickWriter(Sender(place.host, place.host, boot_id(Path("/"))), keeping, ClockOffset(), clock, counts)
    settings = TargetSettings("dcgm", place.target.url, 1000 * cadence_seconds)
    scrape = ScrapeReader(settings, catalog, clock, counts, ScrapePlace(place.host))
    node = HostReader(NodePlace(place.host, "", Path("/"), 1000 * cadence_seconds), catalog, clock, counts)
    ticks = 3600 // cadence_seconds - 1
    for _ in range(ticks):
        clock.move(cadence_seconds)
        for reader in (scrape, node):
            writer.write(reader, clock.now_ms(), reader.read(clock.now_ms()))
    scrape.close()
    spools.close()
    return ticks
