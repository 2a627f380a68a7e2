"""The stage that makes rollups, beside the owner of the store: it writes through its server, and survives crashes."""

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from process_rig import CATALOG
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from secondsight.replay.force import Forcer
from secondsight.rollup.run import SEEN_SECONDS, Roller
from secondsight.store.client import FlightStore
from secondsight.store.clusters import others_tables
from secondsight.store.coarse import LEVELS
from secondsight.store.schema import tables
from secondsight.store.serve import start_store_server
from test_rollup import DAY_MS, ENERGY, POWER, T0, UTIL, WIDTHS, Site, read

CHILD = Path(__file__).with_name("rollup_child.py")


class Dying:
    """A store whose owner goes away after some inserts."""

    def __init__(self, store, inserts):
        self._store, self._left = store, inserts
        self.query = store.query

    def insert(self, table, data):
        if not self._left:
            raise Retryable("gone")
        self._left -= 1
        self._store.insert(table, data)

    def close(self):
        pass


class Counting:
    """A store that notes how many rows each insert has."""

    def __init__(self, store):
        self._store, self.rows = store, defaultdict(list)
        self.query = store.query

    def insert(self, table, data):
        self.rows[table].append(data.num_rows)
        self._store.insert(table, data)

    def close(self):
        pass


def fill(site):
    for number in range(0, 700, 20):
        site.send({POWER: 1000 * number, ENERGY: number}, T0 + 1000 * number, sequence=number + 1)


def test_another_process_reads_and_writes_through_the_owner(store, tmp_path):
    server = start_store_server(store, tmp_path, others_tables())
    remote = FlightStore(tmp_path / "store.address")
    try:
        site = Site(store, "remote")
        site.roller = Roller(remote, CATALOG, site.rig.clock)
        fill(site)
        site.settle()
        site.check()
        rows = remote.query("SELECT * FROM gpu_1s LIMIT 1")
        with pytest.raises(Rejected) as refused:
            remote.insert("gpu_1s", rows)
        assert refused.value.code == "read_only"
    finally:
        remote.close()
        server.close()


def test_rows_of_a_large_window_are_written_in_turns_with_others(store, monkeypatch):
    monkeypatch.setattr("secondsight.rollup.run.ROWS_AN_INSERT", 1)
    site = Site(store, "turns")
    fill(site)
    site.rig.settle()
    counted = Counting(store)
    site.roller = Roller(counted, CATALOG, site.rig.clock)
    site.settle()
    site.check()
    assert counted.rows["gpu_5m"] == [1] * len(counted.rows["gpu_5m"])
    assert len(counted.rows["gpu_5m"]) > 1


@pytest.mark.parametrize(("inserts", "rows"), [(0, 20_000), (1, 20_000), (2, 20_000), (3, 20_000), (5, 20_000), (2, 1)])
def test_a_crash_after_any_insert_changes_nothing(store, monkeypatch, inserts, rows):
    monkeypatch.setattr("secondsight.rollup.run.ROWS_AN_INSERT", rows)
    site = Site(store, f"crash-{inserts}-{rows}")
    fill(site)
    site.rig.settle()
    dying = Roller(Dying(store, inserts), CATALOG, site.rig.clock)
    for _ in range(4):
        site.rig.clock.move(DAY_MS / 1000)
        site.rig.processor.step()
        try:
            dying.step()
        except Retryable:
            break
    site.settle()
    site.check()


def test_what_is_seen_is_kept_once_all_of_it_is_made(store):
    site = Site(store, "seen")
    fill(site)
    site.settle()
    site.rig.clock.move(SEEN_SECONDS)
    site.roller.step()
    assert site.roller.waiting == 0
    shown = site.roller.metrics.render()
    assert all(f'rollup_lag_seconds{{resolution="{level}"}}' in shown for level in WIDTHS)
    assert site.roller.metrics.total("rollup_windows_made_total") >= 3 + 1 + 1
    again = Roller(store, CATALOG, site.rig.clock)
    again.step()
    assert again.waiting == 0
    kept = store.query("SELECT table_name, block FROM rollups_seen FINAL").to_pylist()
    assert {f"gpu_{level}" for level in WIDTHS} <= {row["table_name"] for row in kept if row["block"]}


def test_a_store_that_was_made_anew_is_looked_at_from_its_beginning(store, tmp_path, caplog):
    site = Site(store, "anew")
    fill(site)
    site.settle()
    assert site.roller._seen is not None
    for lane in site.roller._seen:
        site.roller._seen[lane] += 1_000_000
    site.rig.clock.move(DAY_MS / 1000)
    site.roller.step()
    site.rig.clock.move(DAY_MS / 1000)
    site.roller.step()
    assert "fewer inserts than were seen" in caplog.text
    assert len(read(store, "gpu_1h", "anew")) == 1


def rolled(store, level, tenant):
    """Return the rows of a resolution that have samples, by their start, without their versions."""
    rows = read(store, f"gpu_{level}", tenant, "samples > 0")
    return {row["window_start"]: {name: value for name, value in row.items() if name != "version"} for row in rows}


def delete(store, table, tenant, more=""):
    where = f"tenant_id = {{t:String}} {more}"
    store.query(f"ALTER TABLE {table} DELETE WHERE {where} SETTINGS mutations_sync = 2", {"t": tenant})


@pytest.mark.parametrize("gone", ["gpu_1s", "gpu_30s"])
def test_a_window_whose_source_is_gone_is_left_as_it_is(store, gone, caplog):
    site = Site(store, f"gone-{gone}")
    fill(site)
    site.settle()
    before = {level: rolled(store, level, site.tenant) for level in (*WIDTHS, "cluster_5m", "cluster_1d")}
    delete(store, gone, site.tenant)
    late = {(gpu, "", 0): {POWER: 1, ENERGY: 1} for gpu in ("GPU-a", "GPU-b")}
    site.send(late, T0 + 1500, sequence=900, live=True)
    site.settle()
    assert "left as they are" in caplog.text
    assert site.roller.metrics.total("rollup_windows_left_total")
    assert {level: rolled(store, level, site.tenant) for level in before} == before


def test_windows_that_were_made_before_there_were_rows_of_clusters_get_them(store):
    site = Site(store, "unpooled")
    fill(site)
    site.settle()
    before = {level: rolled(store, f"cluster_{level}", site.tenant) for level in WIDTHS}
    for level in WIDTHS:
        delete(store, f"gpu_cluster_{level}", site.tenant)
    delete(store, "rollups_made", site.tenant, "AND table_name LIKE '%cluster%'")
    site.roller = Roller(store, CATALOG, site.rig.clock)
    site.roller.step()
    assert {level: rolled(store, f"cluster_{level}", site.tenant) for level in WIDTHS} == before
    assert site.roller.waiting == 0


@pytest.mark.parametrize(
    "level",
    [pytest.param(level, marks=[pytest.mark.soak] if level.name != "1h" else [], id=level.name) for level in LEVELS],
)
def test_rollups_are_made_again_by_force_whatever_became_of_them(store, tenant, level):
    site = Site(store, tenant)
    for number in range(0, 400, 20):
        site.send({UTIL: number % 100, ENERGY: number}, T0 + 1000 * number, sequence=number + 1)
    site.settle()
    names = (f"gpu_{level.name}", f"gpu_cluster_{level.name}")
    before = [by_time(read(store, name, tenant)) for name in names]
    store.query(f"ALTER TABLE {names[0]} DELETE WHERE tenant_id = '{tenant}' SETTINGS mutations_sync = 1")
    told = []
    notes = {spec.name: spec for spec in tables(CATALOG)}["rollups_made"]
    forcer = Forcer(store, notes, lambda *said: told.append(said))
    for _ in range(2):
        assert forcer.run(EntityKind.GPU, level, (T0, T0 + 400_000), site.rig.clock.now_ms()) >= 1
        site.settle(100)
        site.check(levels=(level.name,))
    assert told[-1][1] == told[-1][2]
    assert [by_time(read(store, name, tenant)) for name in names] == before


def by_time(rows):
    """Return rows in order of their windows, whatever their versions."""
    return sorted((row | {"version": 0} for row in rows), key=lambda row: row["window_start"])


def test_kill_9_of_its_own_process_in_place_of_any_insert_changes_nothing(store, tmp_path):
    """The process is killed before rows are written, between rows and the note of them, and after that."""
    server = start_store_server(store, tmp_path, others_tables())
    site = Site(store, "killed")
    fill(site)
    site.rig.settle()
    now_ms = site.rig.clock.now_ms() + 2 * DAY_MS

    def run(inserts):
        command = [sys.executable, str(CHILD), str(tmp_path / "store.address"), str(now_ms), str(inserts)]
        return subprocess.run(command, check=False, timeout=120).returncode

    try:
        assert [run(inserts) for inserts in (0, 1, 3)] == [-signal.SIGKILL] * 3
        assert run(-1) == 0
        site.check()
    finally:
        server.close()
