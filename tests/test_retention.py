"""The hot store lets go of rows that the lake has, of no others, and of no table that is kept for ever."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cold_rig import CATALOG, fill_lake
from query_fixture import Row, insert_rows
from secondsight.access.metadata import open_metadata
from secondsight.access.retention import EVERY_CLASS, KeepRule, raise_floor, read_floors, read_rules, set_rule
from secondsight.cli import main
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected
from secondsight.retire.config import RetentionConfig
from secondsight.retire.rules import DAY_MS, Partition, bounds_of, days_kept, is_due, partitions_of, with_rule
from secondsight.retire.run import Means, Retirement
from secondsight.retire.serve import asking
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.migrate import migrate
from secondsight.store.retention import RETIRABLE, HotPart, drop_part, hot_parts
from secondsight.store.schema import tables
from secondsight.store.serve import start_store_server

DAY0 = 1_704_067_200_000
NOW = DAY0 + 30 * DAY_MS
WAIT_SECONDS = 90.0


@pytest.fixture
def store(tmp_path: Path):
    made = ChdbStore(tmp_path / "hot")
    migrate(made, CATALOG)
    yield made
    made.close()


@pytest.fixture
def metadata(tmp_path: Path):
    made = open_metadata(str(tmp_path / "metadata.sqlite"))
    yield made
    made.dispose()


def day_of_rows(day: int, seconds: range = range(0, 600, 10)) -> list[Row]:
    return [
        Row(DAY0 + day * DAY_MS + second * 1000, "GPU-a", {"gpu_power_watts": 300_000 + second}) for second in seconds
    ]


def held(store) -> dict[str, int]:
    """Rows of seconds by day."""
    rows = store.query(
        "SELECT toString(toDate(event_time)) AS day, count() AS held FROM gpu_1s FINAL GROUP BY day ORDER BY day"
    )
    return {row["day"][-2:]: row["held"] for row in rows.to_pylist()}


class Rig:
    """A retirement of a store, with its clock."""

    def __init__(self, store, metadata, folder: Path, *, confirms=True) -> None:
        self.clock = ManualClock(NOW)
        asked = asking(RetentionConfig(folder), store) if confirms is True else confirms
        means = Means(store, metadata, self.clock, SelfMetrics(), asked or None, WAIT_SECONDS)
        self.retirement = Retirement(means)

    def settle(self) -> int:
        """Look, wait until all readers know, and look again; return how many parts were dropped."""
        dropped = self.retirement.step()
        self.clock.move(WAIT_SECONDS)
        return dropped + self.retirement.step()


def test_days_go_once_the_lake_has_them(store, metadata, tmp_path):
    for day in (0, 1, 20):
        insert_rows(store, day_of_rows(day))
    rig = Rig(store, metadata, tmp_path)
    assert rig.settle() == 0  # nothing is in the lake
    assert held(store) == {"01": 60, "02": 60, "21": 60}
    assert read_floors(metadata) == {}
    fill_lake(store, tmp_path, "gpu_1s")
    assert rig.retirement.step() == 0  # readers are told first
    assert read_floors(metadata) == {"gpu_1s": DAY0 + 2 * DAY_MS}
    assert held(store) == {"01": 60, "02": 60, "21": 60}
    rig.clock.move(WAIT_SECONDS)
    assert rig.retirement.step() > 0
    assert held(store) == {"21": 60}


def test_a_day_that_the_lake_lacks_stops_all_behind_it(store, metadata, tmp_path):
    insert_rows(store, day_of_rows(1))
    fill_lake(store, tmp_path, "gpu_1s")
    insert_rows(store, day_of_rows(0))
    rig = Rig(store, metadata, tmp_path)
    assert rig.settle() == 0
    assert read_floors(metadata) == {}
    assert held(store) == {"01": 60, "02": 60}
    fill_lake(store, tmp_path, "gpu_1s")
    assert rig.settle() > 0
    assert held(store) == {}


def test_late_rows_below_a_floor_stay_until_the_lake_has_them_too(store, metadata, tmp_path):
    insert_rows(store, day_of_rows(0))
    fill_lake(store, tmp_path, "gpu_1s")
    rig = Rig(store, metadata, tmp_path)
    assert rig.settle() > 0
    insert_rows(store, day_of_rows(0, range(7_200, 7_260, 10)))
    assert rig.settle() == 0
    assert held(store) == {"01": 6}
    fill_lake(store, tmp_path, "gpu_1s")
    assert rig.settle() > 0
    assert held(store) == {}


def test_rows_that_come_between_looking_and_dropping_are_kept(store, metadata, tmp_path):
    """Parts are dropped by name, so a part that is new meanwhile stays, whatever was confirmed before."""
    insert_rows(store, day_of_rows(0))

    def confirms(_table: str, _start_ms: int, _end_ms: int) -> bool:
        insert_rows(store, day_of_rows(0, range(9_000, 9_010, 10)))
        return True

    rig = Rig(store, metadata, tmp_path, confirms=confirms)
    rig.settle()
    assert held(store).get("01", 0) >= 1


def test_without_a_lake_rows_go_only_when_settings_say_so(store, metadata, tmp_path):
    insert_rows(store, day_of_rows(0))
    assert Rig(store, metadata, tmp_path).settle() == 0
    assert held(store) == {"01": 60}
    assert Rig(store, metadata, tmp_path, confirms=False).retirement.step() > 0
    assert held(store) == {}
    assert read_floors(metadata) == {}
    assert RetentionConfig(tmp_path).without_lake is False


def test_a_class_of_its_own_is_kept_as_its_rule_says(store, metadata):
    rules = (KeepRule("1s", EVERY_CLASS, 7), KeepRule("gpu_1s", 2, None))
    assert days_kept("gpu_1s", 0, rules) == 7
    assert days_kept("gpu_1s", 2, rules) is None
    assert days_kept("node_1s", 2, rules) == 7
    assert days_kept("gpu_1s", 3, ()) == 3  # rows of debug sessions
    assert days_kept("gpu_30s", 0, rules) == 30
    assert days_kept("gpu_1d", 0, rules) is None


def test_tables_that_are_kept_for_ever_cannot_be_named(store):
    names = {spec.name for spec in tables(CATALOG)}
    assert set(RETIRABLE) <= names
    for name in ("events", "event_history", "infos", "allocations", "ledger", "entities", "plans", "dead_letters"):
        assert name in names
        assert name not in RETIRABLE
        with pytest.raises(Rejected):
            with_rule((), KeepRule(name, EVERY_CLASS, 30))
        with pytest.raises(Rejected):
            drop_part(store, name, "all_1_1_0")
    with pytest.raises(Rejected):
        drop_part(store, "gpu_1s", "x' OR 1")


def test_too_short_a_time_is_refused():
    with pytest.raises(Rejected) as refused:
        with_rule((), KeepRule("1s", EVERY_CLASS, 1))
    assert refused.value.code == "bad_retention"


@pytest.mark.parametrize(
    ("written", "start", "end", "retention_class"),
    [
        ("('2024-01-01',0)", DAY0, DAY0 + DAY_MS, 0),
        ("('2024-01-01', 3)", DAY0, DAY0 + DAY_MS, 3),
        ("(202401,1)", DAY0, DAY0 + 31 * DAY_MS, 1),
        ("(202312,0)", DAY0 - 31 * DAY_MS, DAY0, 0),
        ("(2024,0)", DAY0, DAY0 + 366 * DAY_MS, 0),
    ],
)
def test_partitions_are_read_as_the_engine_writes_them(written, start, end, retention_class):
    assert bounds_of(written) == (start, end, retention_class)


@given(st.text(max_size=20) | st.from_regex(r"\(('\d{4}-\d\d-\d\d'|\d{4}|\d{6}), ?-?\d+\)", fullmatch=True))
def test_what_is_no_partition_is_never_taken_for_one(written):
    try:
        start, end, retention_class = bounds_of(written)
    except ValueError:
        return
    assert start < end
    assert retention_class >= 0


@given(st.floats(2, 4_000), st.integers(0, 5_000))
def test_nothing_younger_than_is_kept_is_ever_due(days, age_days):
    end = NOW - age_days * DAY_MS
    partition = Partition("gpu_1s", 0, end - DAY_MS, end, (HotPart("gpu_1s", "x", "y", 1, 1),))
    rules = (KeepRule("1s", EVERY_CLASS, days),)
    assert is_due(partition, rules, NOW) == (age_days >= days)
    assert not is_due(partition, (KeepRule("gpu_1s", 0, None),), NOW)


def test_floors_are_raised_and_never_lowered(metadata):
    for floor, wanted in ((100, 100), (300, 300), (200, 300)):
        raise_floor(metadata, "gpu_1s", floor, NOW)
        assert read_floors(metadata) == {"gpu_1s": wanted}


def test_a_change_shows_what_it_would_delete_and_asks_for_yes(store, tmp_path, capsys):
    open_metadata(str(tmp_path / "metadata.sqlite")).dispose()
    for day in (0, 1):
        insert_rows(store, day_of_rows(day))
    server = start_store_server(store, tmp_path / "run")
    try:
        command = ["retention", "set", "1s=9d", "--data", str(tmp_path)]
        assert main(["retention", "set", "1s=forever", "--data", str(tmp_path), "--yes"]) == 0
        capsys.readouterr()
        assert main([*command, "--dry-run", "--json"]) == 0
        lost = json.loads(capsys.readouterr().out)
        assert [(row["table"], row["from"], row["to"], row["partitions"], row["rows"]) for row in lost] == [
            ("gpu_1s", "2024-01-01", "2024-01-03", 2, 120)
        ]
        assert main(command) == 1
        assert "nothing was changed" in capsys.readouterr().out
        metadata = open_metadata(str(tmp_path / "metadata.sqlite"))
        assert [rule.days for rule in read_rules(metadata)] == [None]
        assert main([*command, "--yes"]) == 0
        assert [rule.days for rule in read_rules(metadata)] == [9]
        metadata.dispose()
        assert main(["retention", "show", "--data", str(tmp_path)]) == 0
        assert "9d" in capsys.readouterr().out
        assert main(["retention", "set", "events=9d", "--data", str(tmp_path), "--yes"]) == 2
        assert held(store) == {"01": 60, "02": 60}  # a change deletes nothing by itself
    finally:
        server.close()


def test_parts_are_dropped_through_the_owner_of_the_store(store, metadata, tmp_path):
    insert_rows(store, day_of_rows(0))
    set_rule(metadata, KeepRule("gpu_1s", EVERY_CLASS, 3), NOW)
    server = start_store_server(store, tmp_path / "run")
    client = FlightStore(server.address)
    try:
        fill_lake(client, tmp_path, "gpu_1s")
        assert Rig(client, metadata, tmp_path).settle() > 0
        assert held(store) == {}
        with pytest.raises(Rejected):
            client.drop_part("events", "all_1_1_0")
    finally:
        client.close()
        server.close()


def test_the_part_that_up_runs_drops_what_the_lake_has(store, metadata, tmp_path):
    """The command of the part, as a process of its own, beside the owner of the store; rows are years old."""
    insert_rows(store, [*day_of_rows(0), *day_of_rows(1)])
    insert_rows(store, [Row(SystemClock().now_ms() - 3_600_000, "GPU-a", {"gpu_power_watts": 1})])
    fill_lake(store, tmp_path, "gpu_1s")
    settings = tmp_path / "config.toml"
    settings.write_text(f'[retention]\ndata = "{tmp_path}"\nevery_seconds = 0.1\nwait_seconds = 0.1\n')
    server = start_store_server(store, tmp_path / "run")
    part = subprocess.Popen([sys.executable, "-m", "secondsight", "retention", "run", "--config", str(settings)])
    try:
        for _ in range(600):
            if sum(held(store).values()) == 1 or part.poll() is not None:
                break
            SystemClock().sleep(0.1)
        part.terminate()
        assert part.wait(30) == 0
    finally:
        part.kill()
        part.wait()
        server.close()
    assert list(held(store).values()) == [1]
    assert read_floors(metadata) == {"gpu_1s": DAY0 + 2 * DAY_MS}


def test_the_stage_stops_when_told_to(store, metadata, tmp_path):
    stop = threading.Event()
    stop.set()
    Rig(store, metadata, tmp_path).retirement.run(stop, 300)
    assert partitions_of(hot_parts(store)) == []
