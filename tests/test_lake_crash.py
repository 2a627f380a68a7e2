"""Kills, errors and lost answers at every point of a commit and a compaction lose and double no row."""

import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from requests.exceptions import ReadTimeout
from sqlalchemy.exc import OperationalError

from lake_points import points, work_until
from lake_rig import HOUR_MS, START_MS, Rig, hour_of, lake_dicts, opened
from secondsight.errors import Retryable
from secondsight.lake.stored import live_files
from secondsight.store.serve import start_store_server

STEP = 6
"""Points between two that are killed at, in a run that is no soak; each run has some forty."""
FAULT_STEP = 9


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with opened(tmp_path_factory.mktemp("lake")) as made:
        yield made


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    shared.store.query("TRUNCATE TABLE gpu_1s")
    if shared.lake.table("gpu_1s") is not None:
        shared.lake.catalog.drop_table(("secondsight", "gpu_1s"))
    shared.restart()


def power(second: int) -> int:
    return 200_000 + second * 3


def later(rig: Rig, number: int) -> None:
    """Write what makes one old slice change and a new one appear."""
    rig.insert(hour_of(4, START_MS + number * HOUR_MS, gpu_power_watts=power))
    rig.insert(hour_of(1, START_MS, entities=chr(0x4E00 + number), gpu_power_watts=power))


def assert_whole(rig: Rig) -> None:
    """The lake equals the store, and every live file is there."""
    assert rig.in_lake() == rig.in_store()
    for file in live_files(rig.lake.table("gpu_1s")):
        assert Path(file.file_path.removeprefix("file://")).stat().st_size == file.file_size_in_bytes


@pytest.mark.crash
@pytest.mark.parametrize("what", ["copy", "compact"])
@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.soak)])
def test_kill_at_points(shared: Rig, rig: Rig, tmp_path: Path, step: int, what: str) -> None:
    server = start_store_server(shared.store, tmp_path / "run")
    folder = Path(str(rig.lake.catalog.properties["warehouse"]).removeprefix("file://")).parents[1]
    try:
        later(rig, 0)
        rig.copy()
        ended = _kill_again_and_again(rig, folder, server.address, (what, step))
        assert ended > 20  # points: files, manifests, lists, metadata, the catalogue, each several times
    finally:
        server.close()


def _kill_again_and_again(rig: Rig, folder: Path, address: str, how: tuple[str, int]) -> int:
    """Kill one process after another, each some points later; return how many points one has that is left alone."""
    what, step = how
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lake_points", "lake_rig"])
    kill_at, number = 1, 0
    while True:
        number += 1
        later(rig, number)
        if what == "compact":
            rig.restart()
            rig.copy()
        before = rig.in_lake()
        child = context.Process(target=work_until, args=(str(folder), address, rig.specs, kill_at, what))
        child.start()
        child.join(120)
        assert child.exitcode in (0, -signal.SIGKILL)
        after = lake_dicts(rig.lake, "gpu_1s")
        assert after in (before, rig.in_store())
        if child.exitcode == 0:
            assert_whole(rig)
            return int((folder / "points").read_text())
        rig.restart()
        getattr(rig, what)()
        rig.copy()
        assert_whole(rig)
        kill_at += step


@pytest.mark.parametrize(
    "error", [OSError("503 slow down"), ReadTimeout("timed out"), OperationalError("x", {}, Exception())]
)
@pytest.mark.parametrize("what", ["copy", "compact"])
def test_an_error_at_points(rig: Rig, what: str, error: Exception) -> None:
    later(rig, 0)
    rig.copy()
    fail_at, number, failed = 1, 0, True
    while failed:
        number += 1
        later(rig, number)
        if what == "compact":
            rig.copy()
        failed = _fails_at(rig, fail_at, error, what)
        assert len(rig.in_lake()) == len({(row["entity"], row["event_time"]) for row in rig.in_lake()})
        rig.copy()
        assert_whole(rig)
        fail_at += FAULT_STEP
    assert fail_at > 20


def _fails_at(rig: Rig, fail_at: int, error: Exception, what: str) -> bool:
    """Copy or compact with an error at a point; tell whether it was reached."""
    seen = 0

    def fail(_point: str, _about: str) -> None:
        nonlocal seen
        seen += 1
        if seen == fail_at:
            raise error

    with points(fail):
        try:
            getattr(rig, what)()
        except Retryable:
            assert seen >= fail_at
    return seen >= fail_at


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeout("the answer was lost"),
        CommitStateUnknownException("500"),
        CommitFailedException("409, of a request that a proxy sent twice"),
        OperationalError("x", {}, Exception()),
    ],
)
def test_a_lost_answer_of_a_commit_that_landed(rig: Rig, error: Exception) -> None:
    later(rig, 0)
    rig.copy()
    later(rig, 1)
    lost = 0

    def lose(point: str, _about: str) -> None:
        nonlocal lost
        if point == "committed":
            lost += 1
            raise error

    snapshots = len(rig.lake.table("gpu_1s").snapshots())
    with points(lose):
        assert rig.copy() == 2
    assert lost == 1
    assert len(rig.lake.table("gpu_1s").snapshots()) == snapshots + 1
    assert_whole(rig)
    assert rig.copy() == 0
    assert not rig.shared().handed


def test_a_commit_that_lands_after_it_was_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is under way when it is given up; whichever of it and its repetition lands first, one does."""
    later(rig, 0)
    rig.copy()
    later(rig, 1)
    plain, held = SqlCatalog.commit_table, []

    def slow(self: Any, *arguments: Any) -> Any:
        if not held:
            held.append((self, arguments))
            raise ReadTimeout("under way")
        return plain(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    assert rig.copy() == 2
    with pytest.raises(CommitFailedException):
        plain(held[0][0], *held[0][1])
    assert_whole(rig)


def test_a_commit_that_lands_while_it_is_looked_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    later(rig, 0)
    rig.copy()
    later(rig, 1)
    plain, held = SqlCatalog.commit_table, []

    def slow(self: Any, *arguments: Any) -> Any:
        if not held:
            held.append((self, arguments))
            raise ReadTimeout("under way")
        plain(held[0][0], *held[0][1])  # the first one arrives just before the second
        return plain(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", slow)
    assert rig.copy() == 2
    assert_whole(rig)


def test_two_writers_of_one_lake_do_no_harm(rig: Rig) -> None:
    later(rig, 0)
    other = Rig(rig.store, rig.lake, rig.clock, rig.specs)
    rig.copy()
    other.copy()
    assert_whole(rig)
    for number in range(1, 4):
        later(rig, number)
        interleaved = False

        def interfere(point: str, _about: str) -> None:
            nonlocal interleaved
            if point == "commit" and not interleaved:
                interleaved = True
                other.copy()

        with points(interfere):
            rig.copy()
        assert_whole(rig)


def test_compaction_steps_back_for_the_committer(rig: Rig) -> None:
    for number in range(3):
        later(rig, number)
        rig.copy()
    other = Rig(rig.store, rig.lake, rig.clock, rig.specs)
    later(rig, 4)
    done = False

    def interfere(point: str, _about: str) -> None:
        nonlocal done
        if point == "commit" and not done:
            done = True
            assert other.copy() == 2

    with points(interfere):
        assert rig.compact() == 0
    assert_whole(rig)
    assert rig.compact() == 3
    assert_whole(rig)
