"""How often the processor writes rollups and checkpoints."""

import itertools

import pytest

from process_rig import CATALOG, T0, Rig, frame_bytes
from secondsight.process.run import CHECKPOINT_SHARE, LONGEST_PATIENCE_SECONDS, ProcessorConfig
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

POWER = "gpu_power_watts"
_tenants = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    opened = ChdbStore(tmp_path_factory.mktemp("hot"))
    migrate(opened, CATALOG)
    yield opened
    opened.close()


@pytest.fixture
def tenant():
    return f"pace-{next(_tenants)}"


class SlowStore:
    """Takes a while to take in progress."""

    def __init__(self, store, seconds):
        self._store = store
        self.seconds = seconds
        self.clock = None

    def insert(self, table, data, settings=None):
        if table == "progress":
            self.clock.move(self.seconds)
        self._store.insert(table, data, settings)

    def query(self, sql, params=None, settings=None):
        return self._store.query(sql, params, settings)


def send(rig, tenant, second):
    body = frame_bytes({("GPU-a", "", 0): {POWER: second}}, [T0 + 1000 * second], sequence=second + 1)
    rig.send(body, T0 + 1000 * second + 300, tenant=tenant)


def rollups(store, tenant):
    return store.query("SELECT samples FROM gpu_30s WHERE tenant_id = {t:String}", {"t": tenant}).num_rows


def test_many_rollups_are_written_before_the_checkpoint_that_commits_them(store, tenant):
    rig = Rig(store, config=ProcessorConfig(rollup_rows=1, rollup_seconds=1000.0))
    for second in range(0, 60, 5):
        send(rig, tenant, second)
        rig.clock.move(5)
        rig.processor.step()
    assert rollups(store, tenant) == 1
    assert rig.log.committed == {}
    rig.restart()
    rig.settle()
    (row,) = store.query(
        "SELECT sum(samples) AS samples FROM gpu_30s FINAL WHERE tenant_id = {t:String}", {"t": tenant}
    ).to_pylist()
    assert row["samples"] == 12


@pytest.mark.parametrize("takes", [0.0, 2.0, 40.0])
def test_checkpoints_that_take_long_come_seldom_and_yet_come(store, tenant, takes, monkeypatch):
    slow = SlowStore(store, takes)
    rig = Rig(store, config=ProcessorConfig(rollup_seconds=5.0))
    slow.clock, rig.store = rig.clock, slow
    rig.restart()
    done, checkpoint = [], rig.processor.checkpoint

    def noted():
        began = rig.clock.monotonic_seconds()
        checkpoint()
        done.append((began, rig.clock.monotonic_seconds()))

    monkeypatch.setattr(rig.processor, "checkpoint", noted)
    for second in range(100):
        send(rig, tenant, second)
        rig.clock.move(1)
        rig.processor.step()
    assert len(done) > 2
    for (began, ended), (again, _) in itertools.pairwise(done):
        patience = max(5.0, min(CHECKPOINT_SHARE * (ended - began), LONGEST_PATIENCE_SECONDS))
        assert patience <= again - ended <= patience + 1 + 2 * takes
