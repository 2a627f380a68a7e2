"""Jobs, logs and a real agent process: nothing that happens to either stops a step, and the counts add up."""

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import FakeGateway, answer_over_http, error_answer, http_server
from secondsight.agent.counts import Counts
from secondsight.agent.training.config import LogFiles, LogsConfig, TrainingConfig
from secondsight.agent.training.kept import Keeper
from secondsight.agent.training.read import Place, TrainingReader
from secondsight.agent.training.receive import Receiver
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from training_fixture import told
from up_rig import wait_until

PATIENCE_SECONDS = 60.0
JOB = """
import sys
from secondsight.training import Run
run = Run(job=sys.argv[1], socket_path=sys.argv[2], send_interval_seconds=0, environment={})
done = 0
for line in sys.stdin:
    for _ in range(int(line)):
        done += 1
        run.step(tokens=10, loss=2.0)
    print(done, run._lost, flush=True)
run.close()
"""


class Job:
    """A training process that does steps when told to, and says how many it did."""

    def __init__(self, name: str, path: Path) -> None:
        self.done = self.lost = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, name, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def steps(self, count: int) -> None:
        """Do steps, and return when they are done: a step that waited for anybody would end the test's patience."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.done, self.lost = map(int, self.process.stdout.readline().split())

    def end(self) -> None:
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0
        self.process.stdout.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Site:
    """A gateway in this process, an agent in another, and what came through."""

    def __init__(self, folder: Path, url: str, gateway: FakeGateway) -> None:
        self.folder, self.gateway = folder, gateway
        self.path = folder / "run" / "training.sock"
        (folder / "token").write_text("t")
        self.config = folder / "agent.toml"
        self.config.write_text(
            f'[agent]\ngateway = "{url}"\ntoken_file = "{folder}/token"\nspool_dir = "{folder}/spool"\n'
            'host_id = "node-a"\nhost_metrics = false\ninterval_ms = 200\nbatch_seconds = 0.1\nstop_seconds = 2\n'
            f'[agent.training]\nsocket = "{self.path}"\nmode = "660"\n'
            f'[[agent.logs.files]]\nglob = "{folder}/logs/*.out"\n'
        )
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "agent.log").open("ab") as out:
            self.agent = subprocess.Popen(
                [sys.executable, "-m", "secondsight", "agent", "--config", str(self.config)],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        wait_until(lambda: self.path.exists() or self.agent.poll() is not None, PATIENCE_SECONDS)
        assert self.agent.poll() is None, (self.folder / "agent.log").read_text()[-3000:]

    def kill(self) -> None:
        self.agent.kill()
        self.agent.wait()

    def stop(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.terminate()
            self.agent.wait(PATIENCE_SECONDS)

    def ticks(self) -> list[dict[str, Any]]:
        """Return what every training frame said, by time."""
        frames = [frame for frame in self.gateway.frames if frame.header.kind is EntityKind.TRAINING]
        frames.sort(key=lambda frame: (int(frame.header.tick_times_ms[-1]), frame.header.last_sequence))
        return [told(Tick((frame.content,))) for frame in frames]

    def series(self, name: str) -> list[float]:
        return [tick["values"][name] for tick in self.ticks() if name in tick.get("values", {})]

    def events(self, metric: str) -> list[list[Any]]:
        return [event for tick in self.ticks() for event in tick.get("events", []) if event[0] == metric]

    def pause(self) -> None:
        SystemClock().sleep(0.1)

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        wait_until(is_there, PATIENCE_SECONDS)


@contextmanager
def site_of(folder: Path) -> Iterator[Site]:
    gateway, lock = FakeGateway(now_ms=SystemClock().now_ms), threading.Lock()

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        with lock:
            answer = gateway.post(body) if handler.command == "POST" else error_answer(404, "no_plan")
        answer_over_http(handler, answer)

    with http_server(respond) as url:
        site = Site(folder, url, gateway)
        try:
            yield site
        finally:
            site.stop()


@pytest.mark.crash
def test_a_job_goes_on_and_its_counts_add_up_whatever_becomes_of_the_agent(tmp_path: Path) -> None:
    with site_of(tmp_path) as site, ExitStack() as jobs:
        job = Job("j", site.path)
        jobs.callback(job.kill)
        job.steps(50)
        site.start()
        unseen = _unseen_steps(site, job)
        os.kill(site.agent.pid, signal.SIGSTOP)
        lost = job.lost
        job.steps(2000)
        assert job.lost - lost > 1500
        os.kill(site.agent.pid, signal.SIGCONT)
        assert _unseen_steps(site, job) == unseen
        site.kill()
        job.steps(300)
        site.start()
        assert _unseen_steps(site, job) == unseen
        steps, tokens = site.series("training_steps_total j"), site.series("training_tokens_total j")
        assert steps == sorted(steps)
        assert tokens[-1] - tokens[0] == 10 * (steps[-1] - steps[0])
        job.kill()
        site.wait_for(lambda: bool(site.events("training_run_end")))
        (end,) = site.events("training_run_end")
        assert (end[2], end[5]["outcome"]) == (2, "vanished")


def _unseen_steps(site: Site, job: Job) -> float:
    """Return how many of the job's steps the agent has not counted, once it knows of the last one."""

    def is_known() -> bool:
        """Do a step, and look for it for a while: the job may not have tried to tell it yet."""
        job.steps(1)
        return any(site.series("training_step j")[-1:] == [job.done] or site.pause() for _ in range(20))

    wait_until(is_known, PATIENCE_SECONDS)
    return job.done - site.series("training_steps_total j")[-1]


def test_two_jobs_and_a_log_of_one_host(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "slurm-42.out"
    log.touch()
    with site_of(tmp_path) as site:
        site.start()
        jobs = [Job(name, site.path) for name in ("a", "b")]
        for job in jobs:
            job.steps(3)
        log.write_text("step=7, skipped=0, lr=[1e-4]\n")
        for job in jobs:
            job.end()
        site.wait_for(lambda: len(site.events("training_run_end")) == 2 and bool(site.series("training_step 42")))
    for name in ("a", "b"):
        assert site.series(f"training_steps_total {name}")[-1] == 3
        assert site.series(f"training_tokens_total {name}")[-1] == 30
    collectors = {
        frame.header.collector_id for frame in site.gateway.frames if frame.header.kind is EntityKind.TRAINING
    }
    assert collectors == {"node-a", "node-a/logs"}
    assert {frame.header.source for frame in site.gateway.frames} >= {"training", "logs"}
    assert not site.path.exists()


def reader_of(folder: Path, **settings: Any) -> TrainingReader:
    config = TrainingConfig(socket=folder / "s", **settings)
    return TrainingReader(config, Place("node-a", "", 1000, folder / "k.json"), load_catalog(), SystemClock(), Counts())


def send(folder: Path, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        for datagram in datagrams:
            one.sendto(datagram, str(folder / "s"))


def test_the_socket_has_the_permissions_asked_for(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, mode="620", group=str(os.getgid()))
    reader.read(SystemClock().now_ms())
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o620
    reader.close()
    reader.close()
    assert not (tmp_path / "s").exists()


def test_a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(str(tmp_path / "s"))
    with pytest.raises(Retryable):
        Receiver(TrainingConfig(socket=tmp_path / "s"), SystemClock())
    left.close()
    Receiver(TrainingConfig(socket=tmp_path / "s"), SystemClock()).close()
    (tmp_path / "s").write_text("mine")
    with pytest.raises(Rejected):
        Receiver(TrainingConfig(socket=tmp_path / "s"), SystemClock())
    assert (tmp_path / "s").read_text() == "mine"
    with pytest.raises(Rejected):
        Receiver(TrainingConfig(socket=tmp_path / "t", group="no-such-group"), SystemClock())


def test_a_process_with_many_open_files_reads_its_socket(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with ExitStack() as opened, tempfile.TemporaryFile() as one:
        while opened.enter_context(os.fdopen(os.dup(one.fileno()))).fileno() < 1100:
            pass  # select.select() takes no descriptor above 1023
        clock, reader = SystemClock(), reader_of(tmp_path)
        opened.callback(reader.close)
        reader.read(clock.now_ms())
        send(tmp_path, b'{"v":1,"job":"j","start":1,"c":{"tokens":5}}')
        wait_until(lambda: bool(told(reader.read(clock.now_ms()))), PATIENCE_SECONDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_socket_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    clock, reader = SystemClock(), reader_of(tmp_path)
    reader.read(clock.now_ms())
    (tmp_path / "s").unlink()
    reader.read(clock.now_ms())
    send(tmp_path, b'{"v":1,"job":"j","start":1,"c":{"tokens":5}}')
    wait_until(lambda: bool(told(reader.read(clock.now_ms()))), PATIENCE_SECONDS)
    reader.close()


def test_malformed_datagrams_are_counted_and_cost_nothing_else(tmp_path: Path) -> None:
    clock, reader, ticks = SystemClock(), reader_of(tmp_path), []
    reader.read(clock.now_ms())
    good = b'{"v":1,"job":"j","start":9000000000000000000,"c":{"tokens":5}}'
    send(tmp_path, b"{", good, b'{"v":9}', b"x" * 60_000)
    wait_until(lambda: ticks.append(told(reader.read(clock.now_ms()))) or bool(ticks[-1]), PATIENCE_SECONDS)
    wait_until(
        lambda: bool(reader.read(clock.now_ms())) and reader._counts.get("training_datagrams_malformed") == 3,
        PATIENCE_SECONDS,
    )
    assert ticks[-1]["values"]["training_tokens_total j"] == 5
    assert ticks[-1]["facts"]["training_run_info j"]["user_id"] == str(os.getuid())
    assert reader._counts.get("discarded:parse") == 3
    reader.close()


def test_a_state_that_is_of_no_use_costs_no_start(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version":1,"number":1,"saved_ms":1,"state":{"j":{}}}', '{"version":2}', "\x00"):
        (tmp_path / "k.0.json").write_text(text)
        (tmp_path / "k.1.json").write_text(text)
        reader = reader_of(tmp_path)
        reader.read(SystemClock().now_ms())
        reader.close()


def test_a_state_that_was_torn_is_the_one_before(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "k.json")
    for number in range(3):
        keeper.save({"n": number}, 1000 + number)
    keeper.close()
    assert Keeper(tmp_path / "k.json").load() == ({"n": 2}, 1002)
    torn = tmp_path / "k.1.json"
    torn.write_bytes(torn.read_bytes()[:-5])
    assert Keeper(tmp_path / "k.json").load() == ({"n": 1}, 1001)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "rw"},
        {"datagrams_per_second": 0},
        {"socket": Path("/" + "x" * 120)},
    ],
)
def test_settings_of_the_socket_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        TrainingConfig(**wrong)
    assert refused.value.code == "bad_config"


@pytest.mark.parametrize(
    "wrong",
    [
        {"glob": "relative/*.log"},
        {"glob": "/a", "job_pattern": "("},
        {"glob": "/a", "job_pattern": "(\\d+)"},
        {"glob": "/a", "zone": "Mars/Base"},
    ],
)
def test_settings_of_logs_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        LogFiles(**wrong)
    assert refused.value.code == "bad_config"
    with pytest.raises(Rejected):
        LogsConfig((LogFiles("/a"),), bytes_per_tick=1)
