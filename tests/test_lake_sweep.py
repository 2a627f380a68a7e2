"""Snapshots are forgotten and dead files deleted; when anything is unsure, nothing is."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lake_points import points
from lake_rig import HOUR_MS, START_MS, Rig, hour_of, opened
from secondsight.clock import SystemClock
from secondsight.errors import Retryable
from secondsight.lake.sweep import KEEP_SNAPSHOTS, Sweeper, live_paths

OLD_MS = 3 * HOUR_MS


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with opened(tmp_path_factory.mktemp("lake")) as made:
        yield made


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    shared.clock.step_wall((SystemClock().now_ms() - shared.clock.now_ms()) / 1000)
    yield shared
    shared.store.query("TRUNCATE TABLE gpu_1s")
    if shared.lake.table("gpu_1s") is not None:
        shutil.rmtree(folder(shared))
        shared.lake.catalog.drop_table(("secondsight", "gpu_1s"))
    shared.restart()


@pytest.fixture
def sweeper(rig: Rig) -> Sweeper:
    return Sweeper(rig.shared(), snapshot_ms=HOUR_MS, orphan_ms=OLD_MS)


def power(second: int) -> int:
    return 150_000 + second


def copies(rig: Rig, count: int) -> None:
    for number in range(count):
        rig.insert(hour_of(2, START_MS, entities="abcdefghijk"[number], gpu_power_watts=power))
        rig.copy()


def folder(rig: Rig) -> Path:
    return Path(rig.lake.table("gpu_1s").location().removeprefix("file://"))


def files(rig: Rig) -> set[str]:
    return files_under(folder(rig))


def files_under(root: Path) -> set[str]:
    return {str(path).strip("/") for path in root.rglob("*") if path.is_file()}


def stray(rig: Rig, name: str) -> Path:
    path = folder(rig) / "data" / name
    path.write_bytes(b"left by a commit that was killed")
    return path


def age_all(rig: Rig, sweeper: Sweeper) -> None:
    """Let everything on disk become older than a commit may take."""
    rig.clock.move(2 * OLD_MS / 1000)


def test_old_snapshots_go_and_their_files_after_them(rig: Rig, sweeper: Sweeper) -> None:
    copies(rig, 9)
    rows = rig.in_lake()
    assert sweeper.expire(rig.shape()) == 0
    age_all(rig, sweeper)
    assert sweeper.expire(rig.shape()) == 9 - KEEP_SNAPSHOTS
    before = files(rig)
    assert sweeper.sweep(rig.shape()) == 0  # the first look only notes
    assert files(rig) == before
    assert sweeper.sweep(rig.shape()) > 0
    assert files(rig) == live_paths(rig.lake.table("gpu_1s")) & files(rig)
    assert live_paths(rig.lake.table("gpu_1s")) <= files(rig)
    assert rig.in_lake() == rows == rig.in_store()


def test_young_files_stay(rig: Rig, sweeper: Sweeper) -> None:
    copies(rig, 1)
    path = stray(rig, "young.parquet")
    assert [sweeper.sweep(rig.shape()), sweeper.sweep(rig.shape())] == [0, 0]
    assert path.exists()


def test_files_that_are_handed_over_stay(rig: Rig, sweeper: Sweeper) -> None:
    copies(rig, 1)
    path = stray(rig, "handed.parquet")
    rig.shared().handed.add(f"file://{path}")
    age_all(rig, sweeper)
    assert [sweeper.sweep(rig.shape()), sweeper.sweep(rig.shape())] == [0, 0]
    rig.shared().handed.clear()
    assert sweeper.sweep(rig.shape()) == 1
    assert not path.exists()


def test_files_of_a_commit_whose_outcome_is_open_are_handed(rig: Rig, sweeper: Sweeper) -> None:
    copies(rig, 1)
    rig.insert(hour_of(2, START_MS + HOUR_MS, gpu_power_watts=power))

    def away(point: str, _about: str) -> None:
        if point == "commit":
            raise OSError("the catalogue is away")

    with points(away), pytest.raises(Retryable):
        rig.copy()
    assert len(rig.shared().handed) == 1
    age_all(rig, sweeper)
    sweeper.sweep(rig.shape())
    sweeper.sweep(rig.shape())
    assert all(Path(each.removeprefix("file://")).exists() for each in rig.shared().handed)


@pytest.mark.parametrize("suffix", [".avro", ".metadata.json"])
def test_nothing_is_deleted_when_metadata_cannot_be_read(rig: Rig, sweeper: Sweeper, suffix: str) -> None:
    copies(rig, 2)
    stray(rig, "dead.parquet")
    age_all(rig, sweeper)
    sweeper.sweep(rig.shape())
    live = sorted(path for path in live_paths(rig.lake.table("gpu_1s")) if path.endswith(suffix))
    broken = Path(f"/{live[-1]}")  # of metadata files the newest
    root, text = folder(rig), broken.read_bytes()
    broken.unlink()
    before = files_under(root)
    with pytest.raises(Retryable):
        sweeper.sweep(rig.shape())
    assert files_under(root) == before
    broken.write_bytes(text)
    assert sweeper.sweep(rig.shape()) == 1


def test_a_listing_that_lacks_live_files_deletes_nothing(rig: Rig, sweeper: Sweeper) -> None:
    copies(rig, 2)
    stray(rig, "dead.parquet")
    age_all(rig, sweeper)
    sweeper.sweep(rig.shape())
    live = next(path for path in live_paths(rig.lake.table("gpu_1s")) if path.endswith(".parquet"))
    moved = Path(f"/{live}").rename(f"/{live}.elsewhere")
    with pytest.raises(Retryable):
        sweeper.sweep(rig.shape())
    moved.rename(f"/{live}")


def test_a_table_without_a_snapshot_deletes_nothing(rig: Rig, sweeper: Sweeper) -> None:
    """A table that was dropped and made again names none of the files in its folder."""
    copies(rig, 1)
    before = files(rig)
    rig.lake.catalog.drop_table(("secondsight", "gpu_1s"))
    rig.lake.made_table(rig.shape())
    age_all(rig, sweeper)
    assert [sweeper.sweep(rig.shape()), sweeper.sweep(rig.shape())] == [0, 0]
    assert before <= files(rig)


def test_a_table_that_changes_during_the_look_is_left_alone(
    rig: Rig, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies(rig, 1)
    path = stray(rig, "dead.parquet")
    age_all(rig, sweeper)
    sweeper.sweep(rig.shape())
    plain = Sweeper._orphans

    def slow(self: Sweeper, *arguments: object) -> object:
        found = plain(self, *arguments)  # type: ignore[arg-type] # passed on
        copies(rig, 2)
        return found

    monkeypatch.setattr(Sweeper, "_orphans", slow)
    assert sweeper.sweep(rig.shape()) == 0
    assert path.exists()


def test_what_somebody_rolled_back_is_copied_again(rig: Rig) -> None:
    copies(rig, 3)
    table = rig.lake.table("gpu_1s")
    first = min(table.snapshots(), key=lambda each: each.sequence_number)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert len(rig.in_lake()) == 2
    exporter = rig.exporters["gpu_1s"]
    exporter.check()
    assert rig.copy() == 1
    assert rig.in_lake() == rig.in_store()
