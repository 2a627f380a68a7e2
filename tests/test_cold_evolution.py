"""A metric that is new reaches tables, lake and cold reads by itself; what is older than it reads as absent."""

from pathlib import Path

import pyarrow as pa
import pytest

from query_fixture import Row, insert_entity, insert_progress, insert_rows, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_pool import ColdPool
from secondsight.lake.config import CatalogConfig, LakeConfig
from secondsight.lake.serve import stage_of
from secondsight.lake.tables import open_lake
from secondsight.query.cold import ColdTier
from secondsight.query.inventory import Inventory
from secondsight.query.request import QueryText, parse_query
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

T0 = 1_704_067_200_000
DAY_MS = 86_400_000
NOW = T0 + 30 * DAY_MS
NEW = "gpu_site_pump_ratio"
LINE = (
    f'{NEW} = {{kind="gpu", unit="1", type="gauge", rollup="distribution", priority=2, dtype="u16", resolution=1e-4, '
    'min=0, max=1, description="Speed of the pump of a GPU\'s loop."}\n'
)


class Quiet:
    """Never told to stop."""

    def is_set(self) -> bool:
        return False


def copy(store, folder: Path, catalogue: tuple[Path, ...]) -> list[str]:
    """Copy what changed into the lake; return the live files of seconds of GPUs."""
    config = LakeConfig(folder, settle_seconds=0, recheck_seconds=0.001, catalogue=catalogue, tables=("gpu_1s",))
    lake = open_lake(config.catalog, folder)
    clock = ManualClock(NOW)
    stage = stage_of(config, store, lake, clock, SelfMetrics())
    for _ in range(2):
        stage.step(Quiet())
        clock.move(1)
    table = lake.table("gpu_1s")
    files = sorted(task.file.file_path for task in table.scan().plan_files())
    lake.close()
    return files


def insert_new(store, row: Row, value: int) -> None:
    """Insert a row that has the new metric alone."""
    store.insert(
        "gpu_1s",
        pa.table(
            {
                **{name: [text] for name, text in (("tenant_id", "t1"), ("cluster_id", "c1"), ("host_id", "h1"))},
                "entity": [row.entity],
                "part": [""],
                "collector_id": [row.collector],
                "event_time": pa.array([row.t], pa.timestamp("ms", "UTC")),
                "ingest_time": pa.array([row.t], pa.timestamp("ms", "UTC")),
                "interval_ms": pa.array([1000], pa.uint32()),
                "version_hi": pa.array([1], pa.uint64()),
                "version_lo": pa.array([0], pa.uint64()),
                NEW: pa.array([value], pa.uint16()),
            }
        ),
    )


@pytest.fixture
def store(tmp_path: Path):
    made = ChdbStore(tmp_path / "hot")
    migrate(made, load_catalog())
    yield made
    made.close()


def test_a_new_metric_is_read_from_files_old_and_new_and_nothing_is_rewritten(store, tmp_path):
    old = [Row(T0 + 1000 * second, "GPU-a", {"gpu_power_watts": 300_000}) for second in range(60)]
    insert_rows(store, old)
    insert_entity(store, old[0], T0)
    insert_progress(store, old[0], T0 + DAY_MS, T0 + DAY_MS)
    before = copy(store, tmp_path, ())
    extra = tmp_path / "site.toml"
    extra.write_text(LINE)
    catalog = load_catalog((extra,))
    migrate(store, catalog)
    for second in range(60):
        insert_new(store, Row(T0 + DAY_MS + 1000 * second, "GPU-a", {}), 100 * second)
    after = copy(store, tmp_path, (extra,))
    assert set(before) < set(after)
    store.query("TRUNCATE TABLE gpu_1s")
    pool = ColdPool(ColdConfig(CatalogConfig(), (extra,)), tmp_path)
    clock = ManualClock(NOW)
    inventory = Inventory(store, clock)
    cold = ColdTier(pool, lambda: {"gpu_1s": T0 + 3 * DAY_MS}, inventory)
    runner = QueryRunner(store, clock, inventory, cold=cold)

    def ask(metrics: str, day: int):
        start = T0 + day * DAY_MS
        text = QueryText(metrics, {"gpu": ("GPU-a",)}, from_=str(start), to=str(start + 60_000), resolution="1s")
        return runner.run(parse_query(text, catalog, NOW), scope_of("t1"))

    try:
        assert ask(NEW, 0).series == ()
        assert [len(one.values) for one in ask("gpu_power_watts", 0).series] == [60]
        assert ask(NEW, 1).series[0].values.tolist() == pytest.approx([second / 100 for second in range(60)])
        both = {one.metric: len(one.values) for one in ask(f"{NEW},gpu_power_watts", 1).series}
        assert both == {NEW: 60}
        assert ask("gpu_sm_clock_hertz", 0).series == ()  # known, and never measured
    finally:
        pool.close()
