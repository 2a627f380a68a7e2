"""What the lake knows of a window stays when late rows have it made of less, as the hot store let go of the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lake_rig import Rig, opened
from process_rig import BOOT, CATALOG, allocation, frame_bytes
from process_rig import Rig as Processor
from secondsight.lake.confirm import confirmed
from secondsight.replay.journal import Journal
from secondsight.replay.restore import Restorer
from secondsight.rollup.run import Roller

T0 = 1_700_006_400_000
"""Start of an hour."""
DAY_SECONDS = 86_400
POWER, ENERGY = "gpu_power_watts", "gpu_energy_joules_total"
TABLES = ("gpu_1s", "gpu_30s", "gpu_5m", "gpu_1h")
COPIED = (*TABLES, "gpu_1d")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with opened(tmp_path_factory.mktemp("lake")) as made:
        yield made


class Site:
    """A processor, the stage of rollups and that of the lake over one hot store."""

    def __init__(self, rig: Rig, tenant: str) -> None:
        rig.clear(*COPIED, "rollups_made", "rollups_seen", "rollups_through")
        self.rig, self.tenant = rig, tenant
        self.processor = Processor(rig.store, T0 + 300_000)
        self.roller = Roller(rig.store, CATALOG, self.processor.clock)
        self.sequence = 0

    def send(self, *seconds: float, gpu: str = "GPU-a", live: bool = False, events=()) -> None:
        self.sequence += 1
        rows = {(gpu, "", place): {POWER: 5, ENERGY: int(each)} for place, each in enumerate(seconds)}
        ticks = [round(T0 + 1000 * second) for second in seconds] or [T0]
        body = frame_bytes(
            rows, ticks, sequence=self.sequence, names=[POWER, ENERGY], boot=BOOT, live=live, events=events
        )
        self.processor.send(body, tenant=self.tenant)

    def settle(self, pause_seconds: int = DAY_SECONDS) -> None:
        """Have everything stored, rolled up and copied, of all resolutions if nothing is said."""
        self.processor.settle()
        for _ in range(4):
            self.processor.clock.move(pause_seconds)
            self.processor.processor.step()
            self.roller.step()
        for table in COPIED:
            self.rig.copy(table)

    def forget(self, *tables: str) -> None:
        """Let go of rows as retention does, and begin anew."""
        for table in tables:
            self.rig.store.query(f"TRUNCATE TABLE {table}")
        self.processor.restart()
        self.rig.restart()

    def bring_back(self, folder: Path, *tables: str) -> None:
        restorer = Restorer(self.rig.lake, self.rig.store, Journal(folder / "journal", "x"), lambda *_: None)
        for table in tables:
            restorer.run(self.rig.shape(table), T0, T0 + 3_600_000)
        self.processor.restart()

    def samples(self, table: str) -> list[tuple[str, str, int]]:
        """Return of each row of the lake that tells of samples: GPU, job and samples, in order of windows."""
        rows = [row for row in self.rig.in_lake(table) if "samples" in row]
        rows.sort(key=lambda row: (row["window_start"], row["entity"], row.get("job_id", "")))
        return [(row["entity"], row.get("job_id", ""), row["samples"]) for row in rows]


@pytest.fixture
def site(shared: Rig, tenant: str) -> Site:
    return Site(shared, tenant)


@pytest.mark.parametrize("gone", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_late_rows_of_a_window_that_is_in_the_lake_alone_take_the_place_of_nothing(site: Site, gone: int) -> None:
    """Whether retention took the finest resolutions or all; with a second late row the version is the greater one."""
    site.send(*range(60))
    site.settle()
    before = [site.samples(table) for table in COPIED[1:]]
    assert before == [[("GPU-a", "", 30)] * 2, *[[("GPU-a", "", 60)]] * 3]
    site.forget(*TABLES[:gone])
    for number in range(2):
        site.send(0.5 + number, live=True)
        site.settle()
        assert [site.samples(table) for table in COPIED[1:]] == before
    assert len(site.rig.in_lake("gpu_1s")) == 62
    assert site.rig.metrics.value("lake_rows_left_total", table="gpu_30s") > 0


@pytest.mark.soak
def test_windows_follow_late_rows_again_once_what_they_were_made_of_is_back(site: Site, tmp_path: Path) -> None:
    site.send(*range(20))
    site.settle()
    site.forget("gpu_1s", "gpu_30s")
    for number in range(2):
        site.send(20.5 + number, live=True)
        site.settle()
    assert site.samples("gpu_30s") == [("GPU-a", "", 20)]
    site.bring_back(tmp_path, "gpu_1s", "gpu_30s")
    site.send(25.5, live=True)
    site.settle()
    assert [site.samples(table) for table in COPIED[1:]] == [[("GPU-a", "", 23)]] * 4


def test_late_rows_of_further_owners_are_confirmed_though_the_lake_did_not_take_them(site: Site) -> None:
    """Else what holds them would stay in the hot store for ever."""
    site.send(*range(60))
    site.settle()
    site.forget("gpu_1s", "gpu_30s")
    site.send(1.5, 21.5, 31.5, 51.5, live=True, events=[allocation("GPU-a", T0 + 20_000, T0 + 40_000, job="j1")])
    site.settle()
    assert len(site.rig.in_store("gpu_30s")) == 4
    assert site.samples("gpu_30s") == [("GPU-a", "", 30)] * 2
    place = (site.rig.store, site.rig.lake, site.rig.shape("gpu_30s"), T0, T0 + 3_600_000)
    assert confirmed(*place)
    site.rig.store.query("ALTER TABLE gpu_30s DELETE WHERE 1 SETTINGS mutations_sync = 2")
    site.send(2.5, live=True)
    assert confirmed(*place)
    site.processor.settle()
    assert not confirmed(*place)


def test_windows_that_the_lake_lacks_are_copied_whatever_is_gone(site: Site) -> None:
    site.send(*range(20))
    site.settle()
    site.forget(*COPIED)
    site.send(*range(10), gpu="GPU-b")
    site.send(*range(30, 35))
    site.settle()
    assert site.samples("gpu_30s") == [("GPU-a", "", 20), ("GPU-b", "", 10), ("GPU-a", "", 5)]


@pytest.mark.soak
def test_owners_may_still_change_in_a_window_that_the_hot_store_has(site: Site) -> None:
    """The row of who owns it no more tells of fewer samples than before, or of none."""
    site.send(*range(60))
    site.settle(3600)
    site.send(events=[allocation("GPU-a", T0 + 20_000, T0 + 40_000, job="j1")])
    site.settle(3600)
    wanted = [("GPU-a", "", 20), ("GPU-a", "j1", 10), ("GPU-a", "", 20), ("GPU-a", "j1", 10)]
    assert site.samples("gpu_30s") == wanted
    assert site.samples("gpu_5m") == [("GPU-a", "", 40), ("GPU-a", "j1", 20)]
    site.send(events=[allocation("GPU-a", T0, T0 + 60_000, version=2, job="j1")])
    site.settle()
    assert site.samples("gpu_30s") == [("GPU-a", "j1", 30)] * 2
    assert [site.samples(table) for table in COPIED[2:]] == [[("GPU-a", "j1", 60)]] * 3


def test_an_owner_is_buried_though_the_lake_was_told_of_the_next_one_before(site: Site) -> None:
    """As after a crash between the new owner's row and the old one's end, with a copy before all went on."""
    site.send(*range(30))
    site.settle()
    row = site.rig.in_store("gpu_30s")[0]
    again = {name: value for name, value in row.items() if not isinstance(value, list)} | {"job_id": "j9"}
    site.rig.insert([again | {"version": 1 << 32 | 30_000}], "gpu_30s")
    site.rig.copy("gpu_30s")
    assert site.samples("gpu_30s") == [("GPU-a", "", 30), ("GPU-a", "j9", 30)]
    empty = {name: value for name, value in again.items() if not name.startswith("gpu_")}
    site.rig.insert([empty | {"job_id": "", "samples": 0, "version": 1 << 32}], "gpu_30s")
    site.rig.copy("gpu_30s")
    assert site.samples("gpu_30s") == [("GPU-a", "j9", 30)]
