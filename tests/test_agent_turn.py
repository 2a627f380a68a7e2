"""Processes of a host start the driver one after the other, and none waits for ever."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvml_rig import HOST, needs_compiler, running
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.turn import WAIT_SECONDS, turn
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected

ONE = "host bare 1"
WORKER = """
import sys
from secondsight.agent.turn import turn
from secondsight.clock import SystemClock
book = open(sys.argv[2], "a", buffering=1)
for _ in range(20):
    with turn([sys.argv[1]], SystemClock(), print):
        book.write("in\\n")
        book.write("out\\n")
"""


@contextmanager
def held(file: Path) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_processes_take_turns(tmp_path: Path) -> None:
    file, book = tmp_path / "run/driver.lock", tmp_path / "book"
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(file), str(book)]) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert book.read_text().splitlines() == ["in", "out"] * 60


def test_one_that_holds_the_turn_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    clock, said = ManualClock(), []
    with held(tmp_path / "driver.lock"), turn([tmp_path / "driver.lock"], clock, said.append):
        assert clock.monotonic_seconds() >= WAIT_SECONDS
    assert len(said) == 1


def test_a_turn_ends_with_what_holds_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with pytest.raises(ZeroDivisionError), turn([tmp_path / "driver.lock"], clock, print):
        _ = 1 / 0
    with turn([tmp_path / "driver.lock"], clock, print):
        assert clock.monotonic_seconds() == 0


def test_the_first_file_that_can_be_had_counts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    clock = ManualClock()
    files = [tmp_path / "file/driver.lock", tmp_path / "link", tmp_path / "own/driver.lock"]
    with turn(files, clock, print), turn(files[:2], clock, print):
        assert (tmp_path / "own/driver.lock").exists()
        assert not (tmp_path / "elsewhere").exists()
    assert clock.monotonic_seconds() == 0


@needs_compiler
def test_a_driver_child_waits_for_its_turn_and_the_agent_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, ONE) as rig:
        with held(tmp_path / "run/driver.lock"):
            for _ in range(4):
                started = time.monotonic()
                assert rig.tick() == {}
                assert time.monotonic() - started < 10
                time.sleep(0.05)
        rig.settled(1)
        assert rig.tick()[HOST, ""] == {"node_gpu_count": 1}


@needs_compiler
def test_a_driver_that_is_ready_holds_no_turn(tmp_path: Path) -> None:
    with running(tmp_path, ONE) as rig:
        rig.settled(1)
        with turn([tmp_path / "run/driver.lock"], ManualClock(), _refuse):
            assert set(rig.gpus()) != set()


@needs_compiler
def test_a_random_delay_comes_before_the_first_start(tmp_path: Path) -> None:
    with running(tmp_path, ONE, start_spread_seconds=0.3) as rig:
        begun = time.monotonic()
        rig.settled(1)
        assert time.monotonic() - begun > 0.3 * 0.13  # what random.Random(1) gives first


@pytest.mark.parametrize("seconds", [-1, 61])
def test_a_spread_that_cannot_work_is_refused(seconds: float) -> None:
    with pytest.raises(Rejected):
        NvmlSettings(start_spread_seconds=seconds)


def _refuse(text: str) -> None:
    raise AssertionError(text)


def test_the_clock_of_a_machine_serves(tmp_path: Path) -> None:
    with turn([tmp_path / "driver.lock"], SystemClock(), _refuse):
        pass
