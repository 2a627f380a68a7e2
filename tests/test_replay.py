"""Rows of the lake go back into a store, and a store into another one, once each, cut off or not."""

from pathlib import Path

import pyarrow as pa
import pytest

from cold_rig import CATALOG, fill_lake
from query_fixture import Row, insert_entity, insert_rollups, insert_rows
from secondsight.cli import main
from secondsight.errors import Retryable
from secondsight.lake.config import CatalogConfig
from secondsight.lake.layout import lake_tables
from secondsight.lake.tables import open_lake
from secondsight.replay.journal import Journal
from secondsight.replay.move import Mover
from secondsight.replay.restore import Restorer
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import tables

T0 = 1_704_067_200_000
HOUR_MS = 3_600_000
SPECS = {spec.name: spec for spec in tables(CATALOG)}
NAMES = ("gpu_1s", "gpu_30s", "entities")
END = T0 + 2 * HOUR_MS


def rows(from_second: int = 0, to_second: int = 7_000) -> list[Row]:
    return [
        Row(
            T0 + 1000 * second,
            "GPU-a" if second % 20 else "GPU-b",
            {"gpu_power_watts": 300_000 + second, "gpu_energy_joules_total": (1 << 63) + second},
            tenant="t1" if second % 40 else "t2",
            quality={"gpu_temperature_celsius": 5} if second % 70 == 0 else {},
        )
        for second in range(from_second, to_second, 10)
    ]


def content(store, name: str) -> list[str]:
    """Every row of a table, each key once, as text."""
    time = {"gpu_1s": "event_time", "gpu_30s": "window_start"}.get(name, "from_time")
    order = f"tenant_id, host_id, entity, part, {time}"
    found = store.query(f"SELECT formatRow('CSV', * EXCEPT (version)) AS line FROM {name} FINAL ORDER BY {order}")
    return found["line"].to_pylist()


@pytest.fixture
def stores(tmp_path: Path):
    source = ChdbStore(tmp_path / "hot")
    migrate(source, CATALOG)
    target = ChdbStore(tmp_path / "hot", database="copy")
    migrate(target, CATALOG, "copy")
    yield source, target
    target.close()
    source.close()


class AsProcessed:
    """A store whose rows of seconds get versions as the processor makes them: how full a row is stands first."""

    def __init__(self, store) -> None:
        self.store = store

    def insert(self, table, data):
        full = data["version_hi"].to_numpy() << 48
        place = data.schema.get_field_index("version_hi")
        self.store.insert(table, data.set_column(place, "version_hi", pa.array(full)))


def quiet(*_: object) -> None:
    return None


def test_a_range_of_the_lake_is_written_back_as_it_was(stores, tmp_path):
    source, target = stores
    insert_rows(source, rows())
    insert_rollups(source, rows(), END)
    fill_lake(source, tmp_path)
    lake = open_lake(CatalogConfig(), tmp_path)
    shapes = lake_tables(SPECS[name] for name in ("gpu_1s", "gpu_30s"))
    for _ in range(2):  # a second time changes nothing
        restorer = Restorer(lake, target, Journal(tmp_path / "journal", "x"), quiet)
        for shape in shapes.values():
            restorer.run(shape, T0, END)
        Journal(tmp_path / "journal", "x").end()
        for name in ("gpu_1s", "gpu_30s"):
            assert content(target, name) == content(source, name), name
    lake.close()


def test_what_the_store_has_better_is_not_set_back_by_the_lake(stores, tmp_path):
    source, _ = stores
    insert_rows(AsProcessed(source), rows())
    fill_lake(source, tmp_path, "gpu_1s")
    fuller = [
        Row(row.t, row.entity, {**row.values, "gpu_temperature_celsius": 60}, tenant=row.tenant) for row in rows()
    ]
    insert_rows(AsProcessed(source), fuller)
    before = content(source, "gpu_1s")
    lake = open_lake(CatalogConfig(), tmp_path)
    shape = lake_tables([SPECS["gpu_1s"]])["gpu_1s"]
    Restorer(lake, source, Journal(tmp_path / "journal", "x"), quiet).run(shape, T0, END)
    lake.close()
    assert content(source, "gpu_1s") == before


class Failing:
    """A store that goes away after some inserts."""

    def __init__(self, store, left: int) -> None:
        self.store = store
        self.left = left

    def insert(self, table, data):
        if not self.left:
            raise Retryable("the store is away")
        self.left -= 1
        self.store.insert(table, data)


def test_a_store_is_moved_while_rows_come_and_goes_on_where_it_was_cut_off(stores, tmp_path):
    source, target = stores
    insert_rows(source, rows(0, 5_000))
    insert_rollups(source, rows(0, 5_000), END)
    for row in {row.series: row for row in rows()}.values():
        insert_entity(source, row, T0)
    wanted = {name: SPECS[name] for name in NAMES}
    journal = tmp_path / "run" / "journal.json"
    with pytest.raises(Retryable):
        Mover(source, Failing(target, 1), Journal(journal, "x"), quiet).run(wanted)
    insert_rows(source, rows(5_000, 7_000))
    mover = Mover(source, target, Journal(journal, "x"), quiet)
    mover.run(wanted)
    for name in NAMES:
        assert content(target, name) == content(source, name), name
    again = Mover(source, target, Journal(journal, "x"), quiet)
    again.run({"gpu_1s": SPECS["gpu_1s"]})
    assert again.rows == 0  # nothing is new
    versions = "SELECT toString(sum(version)) AS n FROM gpu_1s FINAL"
    assert target.query(versions).to_pylist() == source.query(versions).to_pylist()


def test_commands_say_what_is_missing(tmp_path, capsys):
    assert main(["replay", "store", "--data", str(tmp_path)]) == 2
    assert main(["replay", "lake", "--from", "now", "--to", "now-1h", "--data", str(tmp_path)]) == 2
    assert "range is empty" in capsys.readouterr().err
