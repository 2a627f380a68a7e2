"""The helper in a job: what it says, and that nothing it meets slows or breaks the job."""

import ast
import json
import math
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight import training
from secondsight.training import BOUNDS_SECONDS, DATAGRAM_BYTES_MAXIMUM, Run

FILE = Path(training.__file__)


def old_python() -> str | None:
    """Return a Python 3.8 that runs here."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which("python3.8"), *map(str, versions.glob("3.8.*/bin/python3.8"))]
    return next(
        (path for path in found if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode), None
    )


OLD_PYTHON = old_python()


class Listener:
    """The agent's socket, read when asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def taken(self) -> list[dict[str, Any]]:
        found = []
        while True:
            try:
                found.append(json.loads(self.socket.recv(DATAGRAM_BYTES_MAXIMUM)))
            except BlockingIOError:
                return found


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    one = Listener(tmp_path / "s")
    yield one
    one.socket.close()


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_of(path: Path, **options: Any) -> Run:
    given: dict[str, Any] = {"job": "j", "environment": {}, "send_interval_seconds": 0}
    return Run(socket_path=str(path), **(given | options))


def test_what_a_run_says(listener: Listener) -> None:
    clock = Seconds()
    with run_of(listener.path, clock=clock, framework="torch", steps_planned=10) as run:
        for loss in (2.0, 1.5):
            clock.now += 0.25
            with run.data_wait():
                clock.now += 0.01
            with run.phase("forward"):
                clock.now += 0.02
            run.step(tokens=64, samples=2, loss=loss, grad_norm=1.0, learning_rate=1e-3)
        with run.checkpoint() as saved:
            clock.now += 3
            saved.bytes = 4096
        run.evaluation(val_loss=2.5)
        run.collective("all_reduce", 0.015, 1e11)
        run.read_bytes(1000, "tokens")
    *_, last = listener.taken()
    assert (last["v"], last["job"], last["framework"], last["steps_planned"]) == (1, "j", "torch", 10)
    assert last["pid"] == os.getpid()
    counts = last["c"]
    assert {name: counts[name] for name in ("steps", "tokens", "samples")} == {"steps": 2, "tokens": 128, "samples": 4}
    assert counts["step_seconds||s"] == pytest.approx(0.28)
    assert counts["checkpoint_seconds|save|s"] == 3
    assert counts["phase_seconds|forward|s"] == pytest.approx(0.04)
    assert counts["data_wait_seconds||s"] == pytest.approx(0.02)
    assert counts["read_bytes|tokens"] == 1000
    gauges = last["g"]
    assert (gauges["step"], gauges["loss"], gauges["score|val_loss"], gauges["checkpoint_bytes"]) == (2, 1.5, 2.5, 4096)
    assert [event["kind"] for event in last["e"]] == ["end"]


def test_steps_are_not_timed_over_checkpoints_and_evaluations(listener: Listener) -> None:
    clock = Seconds()
    run = run_of(listener.path, clock=clock)
    for pause in (None, "checkpoint", "evaluation"):
        if pause == "checkpoint":
            with run.checkpoint():
                clock.now += 1000
        elif pause == "evaluation":
            clock.now += 1000
            run.evaluation(score=1)
        clock.now += 1
        run.step()
        clock.now += 1
        run.step()
    assert run._counts["step_seconds||s"] == 3


def test_a_loss_that_is_no_number_is_told_once_at_once(listener: Listener) -> None:
    clock = Seconds()
    run = run_of(listener.path, clock=clock, send_interval_seconds=1000)
    for loss in (1.0, math.nan, math.nan, 2.0, math.inf):
        run.step(loss=loss, grad_norm=loss)
    told = listener.taken()
    assert [[event["kind"] for event in each.get("e", [])] for each in told] == [[], ["loss_nan"], ["loss_inf"]]
    assert math.isnan(told[1]["g"]["loss"])
    assert told[-1]["c"]["anomalies|nan"] == 2
    assert told[-1]["c"]["anomalies|inf"] == 1


def test_fast_steps_are_told_together_and_none_is_missing(listener: Listener) -> None:
    clock = Seconds()
    run = run_of(listener.path, clock=clock, send_interval_seconds=0.2)
    for _ in range(1000):
        clock.now += 0.001
        run.step(tokens=1)
    run.close()
    told = listener.taken()
    assert len(told) <= 7
    assert (told[-1]["c"]["steps"], told[-1]["c"]["tokens"]) == (1000, 1000)


def test_a_full_socket_drops_and_counts_and_the_next_datagram_has_it_all(listener: Listener) -> None:
    run = run_of(listener.path)
    for _ in range(500):
        run.step(tokens=2)
    told = listener.taken()
    assert told[-1]["c"]["steps"] < 500
    run.step(tokens=2)
    (last,) = listener.taken()
    assert (last["c"]["steps"], last["c"]["tokens"]) == (501, 1002)
    assert last["lost"] == 501 - len(told)
    assert last["seq"] == len(told)


class Counting:
    """A socket that counts what is asked of it."""

    def __init__(self, error: OSError | None) -> None:
        self.error = error
        self.sends = 0

    def sendto(self, _data: bytes, _path: str) -> None:
        self.sends += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "sends"),
    [(None, 100), (BlockingIOError(11, "full"), 100), (ConnectionRefusedError(111, "gone"), 1), (OSError(2, "no"), 1)],
    ids=["up", "full", "gone", "absent"],
)
def test_a_step_makes_one_call_at_most_and_none_while_nobody_is_there(error: OSError | None, sends: int) -> None:
    run = run_of(Path("/nowhere"), clock=Seconds())
    run._away_until = run._next_send = 0.0
    run._shut()
    run._socket = Counting(error)  # type: ignore[assignment] # a socket as far as the helper goes
    for _ in range(100):
        run.step()
    assert run._socket.sends == sends  # type: ignore[attr-defined] # as above


def test_the_socket_never_waits(listener: Listener) -> None:
    assert not run_of(listener.path)._socket.getblocking()


def test_an_agent_that_comes_later_is_told_from_the_beginning(tmp_path: Path) -> None:
    clock = Seconds()
    run = run_of(tmp_path / "s", clock=clock)
    for _ in range(5):
        run.step()
    one = Listener(tmp_path / "s")
    clock.now += 1.1
    run.step()
    (told,) = one.taken()
    assert told["c"]["steps"] == 6
    one.socket.close()


def test_a_forked_child_counts_for_itself_or_says_nothing(listener: Listener) -> None:
    run = run_of(listener.path)
    run.step(tokens=5)
    listener.taken()
    for steps in (0, 1):
        child = os.fork()
        if child == 0:
            for _ in range(steps):
                run.step(tokens=1)
            if not steps:
                run.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    (told,) = listener.taken()
    assert told["c"]["steps"] == 1
    assert told["pid"] != os.getpid()
    run.step(tokens=5)
    (told,) = listener.taken()
    assert told["c"]["tokens"] == 10


class OnDevice:
    """A tensor on a device: to look at its value would wait for the device."""

    device = type("device", (), {"type": "cuda"})()

    def __float__(self) -> float:
        raise AssertionError("the device was waited for")


class Broken:
    """A value whose every use fails."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


ANYTHING = [None, "x", b"x", [], {}, object(), OnDevice(), Broken(), -1, 10**400, math.nan, -math.inf, 1j, True]


@pytest.mark.parametrize("value", ANYTHING, ids=lambda value: type(value).__name__ + str(value)[:8] * 0)
def test_no_value_breaks_a_job(value: Any, listener: Listener) -> None:
    run = run_of(listener.path)
    run.step(value, tokens=value, samples=value, loss=value, grad_norm=value, learning_rate=value)
    run.step(data_wait_seconds=value, step_seconds=value, queue_batches=value, mfu=value, loss_scale=value)
    run.collective(value, value, value)
    run.read_bytes(value, value)
    run.evaluation(value, score=value)
    with run.phase(value), run.checkpoint(value) as saved:
        saved.bytes = value
    run.step(tokens=1)
    run.close(value)
    run.close()
    run.step()


@given(st.dictionaries(st.text(max_size=9), st.text(max_size=9)), st.text(max_size=300), st.text(max_size=300))
def test_no_setting_breaks_a_job(environment: dict[str, str], job: str, path: str) -> None:
    with Run(job, job, run=job, model=job, socket_path=path, environment=environment) as run:
        run.step(loss=1)


def test_a_run_that_could_not_begin_does_nothing() -> None:
    run = Run(environment=5)  # type: ignore[arg-type] # wrong on purpose
    run.step()
    run.evaluation(a=1)
    run.collective("x", 1)
    with run.phase("x"), run.checkpoint(), run.data_wait():
        pass
    run.close()


def test_the_job_s_own_errors_go_through(listener: Listener) -> None:
    with pytest.raises(ZeroDivisionError), run_of(listener.path) as run, run.checkpoint(), run.phase("a"):
        raise ZeroDivisionError
    *_, last = listener.taken()
    assert last["e"][-1]["outcome"] == "ZeroDivisionError"
    assert last["c"]["checkpoint_failures|save"] == 1
    with pytest.raises(KeyboardInterrupt), run_of(listener.path):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, {"rank": 3, "world_size": 8, "local_rank": 1}),
        (
            {"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "5", "SLURM_JOB_ID": "77"},
            {"rank": 5, "job": "77"},
        ),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, {"rank": 2, "world_size": 4}),
        ({"RANK": "1", "SLURM_PROCID": "0"}, {"rank": 1}),
        ({"RANK": "many"}, {}),
        ({"TORCHELASTIC_RUN_ID": "none"}, {}),
        ({"TORCHELASTIC_RUN_ID": "abc", "TORCHELASTIC_RESTART_COUNT": "2"}, {"job": "abc", "restarts": 2}),
        ({"SECONDSIGHT_JOB_ID": "own", "SLURM_JOB_ID": "77"}, {"job": "own"}),
    ],
)
def test_who_a_process_is(environment: dict[str, str], said: dict[str, Any], listener: Listener) -> None:
    run_of(listener.path, environment=environment, job="")
    (told,) = listener.taken()
    assert {name: told.get(name) for name in said} == said
    assert ("rank" in told) == ("rank" in said)


def test_the_allocator_is_asked_only_where_torch_is_used(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        asked = 0

        @staticmethod
        def is_initialized() -> bool:
            return True

        @classmethod
        def memory_stats(cls) -> dict[str, int]:
            cls.asked += 1
            return {"allocated_bytes.all.current": 60, "reserved_bytes.all.current": 80, "num_alloc_retries": 1}

    assert "torch" not in sys.modules
    run_of(listener.path).step()
    assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", type("torch", (), {"cuda": Cuda}))
    clock = Seconds()
    run = run_of(listener.path, clock=clock)
    for _ in range(100):
        clock.now += 0.25
        run.step()
    *_, told = listener.taken()
    assert Cuda.asked == 3
    assert told["g"]["allocator_reserved_bytes"] == 80
    assert told["c"]["allocator_retries"] == 1


def test_a_datagram_stays_short_whatever_is_named(listener: Listener) -> None:
    run = run_of(listener.path)
    for number in range(2000):
        run._observe("phase_seconds|" + run._name("phase", f"{'n' * 70}{number}"), BOUNDS_SECONDS[number % 42])
        run.collective(f"{'o' * 70}{number}", BOUNDS_SECONDS[number % 42], 1.0)
        run.evaluation(**{f"{'s' * 70}{number}": 1.0})
        run._observe("step_seconds|", BOUNDS_SECONDS[number % 42])
        listener.taken()
    run.step(tokens=7)
    (told,) = listener.taken()
    assert told["c"]["tokens"] == 7
    assert len(json.dumps(told, separators=(",", ":"))) <= DATAGRAM_BYTES_MAXIMUM


def test_the_file_is_one_that_old_pythons_read() -> None:
    ast.parse(FILE.read_text(), feature_version=(3, 8))


@pytest.mark.skipif(OLD_PYTHON is None, reason="no Python 3.8 is installed")
def test_the_file_alone_works_in_an_old_python(listener: Listener, tmp_path: Path) -> None:
    shutil.copy(FILE, tmp_path / "training.py")
    program = "from training import Run\nwith Run(job='old') as run:\n    run.step(tokens=3, loss=1.0)\n"
    environment = {"SECONDSIGHT_TRAINING_SOCKET": str(listener.path), "PATH": os.environ["PATH"]}
    subprocess.run([str(OLD_PYTHON), "-W", "error", "-c", program], cwd=tmp_path, env=environment, check=True)
    *_, told = listener.taken()
    assert (told["job"], told["c"]["tokens"]) == ("old", 3)


def test_the_helper_needs_nothing_of_the_package() -> None:
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(FILE.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names
