"""When slices are copied, what trouble holds up and what it does not, and the stage as a process."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lake_rig import DAY_MS, HOUR_MS, PACE, START_MS, Rig, hour_of, lake_dicts, opened
from secondsight.clock import ManualClock
from secondsight.config import build
from secondsight.errors import Permanent, Rejected, Retryable
from secondsight.lake.config import CatalogConfig, LakeConfig
from secondsight.lake.layout import Slice, lake_tables, period_bounds, period_number
from secondsight.lake.run import Stage, Tidying
from secondsight.lake.schema import arrow_schema, bare_type, new_schema
from secondsight.lake.serve import stage_of
from secondsight.lake.sweep import Sweeper
from secondsight.lake.tables import open_lake
from secondsight.store.serve import start_store_server

WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with opened(tmp_path_factory.mktemp("lake")) as made:
        yield made


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    shared.clock = ManualClock(START_MS + HOUR_MS)
    shared.pace = replace(PACE, settle_ms=60_000, patience_ms=6 * HOUR_MS, recheck_seconds=300.0)
    shared.restart()
    yield shared
    for name in ("gpu_1s", "node_1s", "progress"):
        shared.store.query(f"TRUNCATE TABLE {name}")
    for namespace_table in shared.lake.catalog.list_tables("secondsight"):
        shared.lake.catalog.drop_table(namespace_table)


def stage(rig: Rig, *names: str) -> Stage:
    sweeper = Sweeper(rig.shared(), 6 * HOUR_MS, DAY_MS)
    return Stage(rig.shared(), rig.specs, frozenset(names), Tidying(), sweeper)


def power(second: int) -> int:
    return 250_000 + second


def progress(rig: Rig, through_ms: int, *, idle: int = 0) -> None:
    row = {
        "tenant_id": "default",
        "cluster_id": "cedar",
        "host_id": "host-a",
        "collector_id": "host-a",
        "watermark": through_ms,
        "newest_event_time": START_MS + 2 * HOUR_MS,
        "rollup_through": through_ms,
        "idle": idle,
        "version": through_ms,
    }
    rig.insert([row], "progress")


def test_a_slice_waits_until_it_is_settled_and_complete(rig: Rig) -> None:
    stop, running = threading.Event(), stage(rig, "gpu_1s")
    rig.insert(hour_of(4, gpu_power_watts=power))
    progress(rig, START_MS + HOUR_MS - 30_000)
    assert running.step(stop) == 0
    rig.clock.move(61)
    assert running.step(stop) == 0  # a collector is behind
    progress(rig, START_MS + HOUR_MS)
    assert running.step(stop) == 1


def test_a_collector_that_is_behind_holds_nothing_up_for_ever(rig: Rig) -> None:
    stop, running = threading.Event(), stage(rig, "gpu_1s")
    rig.insert(hour_of(4, gpu_power_watts=power))
    progress(rig, START_MS)
    rig.clock.move(6 * 3600 - 10)
    assert running.step(stop) == 0
    rig.clock.move(20)
    assert running.step(stop) == 1


def test_a_slice_that_keeps_changing_is_copied_now_and_then(rig: Rig) -> None:
    stop, running = threading.Event(), stage(rig, "gpu_1s")
    rig.clock.move(3600)
    rig.insert(hour_of(4, gpu_power_watts=power))
    assert running.step(stop) == 1
    copied = 0
    for number in range(30):
        rig.insert(hour_of(1, entities=chr(0x100 + number), gpu_power_watts=power))
        rig.clock.move(100)
        copied += running.step(stop)
    assert 2 <= copied <= 3
    rig.clock.move(400)
    assert running.step(stop) == 1
    assert rig.in_lake() == rig.in_store()


def test_one_tables_trouble_holds_up_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, running = threading.Event(), stage(rig, "gpu_1s", "node_1s")
    rig.clock.move(3600)
    rig.insert(hour_of(3, gpu_power_watts=power))
    node = {"tenant_id": "default", "cluster_id": "cedar", "host_id": "h", "entity": "h", "event_time": START_MS}
    rig.insert([node | {"version_hi": 1, "version_lo": 1}], "node_1s")
    plain = rig.lake.made_table
    errors: list[Exception] = [Retryable("away"), Permanent("refused")]

    def troubled(shape: object) -> object:
        if getattr(shape, "name", "") == "gpu_1s" and errors:
            raise errors.pop(0)
        return plain(shape)  # type: ignore[arg-type] # passed on

    monkeypatch.setattr(rig.lake, "made_table", troubled)
    assert running.step(stop) == 1
    assert [len(rig.in_lake("node_1s")), len(rig.in_lake("gpu_1s"))] == [1, 0]
    assert running.step(stop) == 0  # refused now, and put off
    assert running.step(stop) == 0
    rig.clock.move(601)
    assert running.step(stop) == 1
    assert rig.metrics.value("lake_failures_total", table="gpu_1s", kind="away") == 1
    assert rig.metrics.value("lake_failures_total", table="gpu_1s", kind="refused") == 1
    assert rig.metrics.value("lake_lag_seconds", table="gpu_1s") == 0


def test_tidying_joins_files_of_days_that_are_over(rig: Rig) -> None:
    stop, running = threading.Event(), stage(rig, "gpu_1s")
    rig.clock.move(2 * 86_400)
    for hour in range(3):
        rig.insert(hour_of(2, START_MS + hour * HOUR_MS, gpu_power_watts=power))
    assert running.step(stop) == 3
    running.tidy(stop)
    assert rig.files() == 3
    rig.clock.move(301)
    running.tidy(stop)
    assert rig.files() == 1


def test_the_stage_as_a_process(shared: Rig, tmp_path: Path) -> None:
    """It finds the store by its address, answers /metrics, copies, and ends when told to."""
    data = tmp_path / "data"
    server = start_store_server(shared.store, data / "run")
    shared.insert(hour_of(5, gpu_power_watts=power))
    settings = data / "lake.toml"
    settings.write_text(f'[lake]\ndata = "{data}"\nsettle_seconds = 0\nniceness = 1\n')
    with (tmp_path / "log").open("wb") as log:
        words = [sys.executable, "-m", "secondsight", "lake", "--config", str(settings)]
        process = subprocess.Popen(words, stderr=log, env={**os.environ, "SECONDSIGHT_LAKE_RECHECK_SECONDS": "1"})
    lake = open_lake(CatalogConfig(), data)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := lake_dicts(lake, "gpu_1s")):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert process.poll() is None, (tmp_path / "log").read_text()
            threading.Event().wait(0.2)
        assert found == shared.in_store()
        address = (data / "run" / "lake.metrics").read_text()
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            assert "lake_slices_copied_total" in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        lake.close()
        server.close()
        shared.store.query("TRUNCATE TABLE gpu_1s")


def test_every_table_of_the_store_has_a_place(shared: Rig) -> None:
    shapes = lake_tables(shared.specs.values())
    assert {"gpu_1s", "gpu_30s", "gpu_5m", "gpu_1h", "gpu_1d", "histograms_1s", "events", "ledger"} <= set(shapes)
    assert not {"progress", "rewrites", "rollups_made", "schema_version"} & set(shapes)
    for shape in shapes.values():
        schema = new_schema(shape)
        assert len({field.field_id for field in schema.fields}) == len(shape.spec.columns)
        assert not schema.find_field(shape.time_column).optional
        assert arrow_schema(schema).names == [field.name for field in schema.fields]
        assert set(shape.row_order) <= {column.name for column in shape.spec.columns}


@pytest.mark.parametrize(
    ("period", "start", "end", "number"),
    [
        ("day", "2026-02-28", "2026-03-01", 20_512),
        ("month", "2026-12-01", "2027-01-01", 683),
        ("month", "2026-02-01", "2026-03-01", 673),
        ("year", "2026-01-01", "2027-01-01", 56),
    ],
)
def test_periods_are_counted_as_iceberg_counts(period: str, start: str, end: str, number: int) -> None:
    from datetime import UTC, datetime

    first, last = (
        round(datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=UTC).timestamp() * 1000) for day in (start, end)
    )
    for time_ms in (first, (first + last) // 2, last - 1):
        assert period_bounds(period, time_ms) == (first, last)
        assert period_number(period, time_ms) == number
    assert period_number(period, last) == number + 1


@pytest.mark.parametrize(
    ("hot_type", "bare"),
    [
        ("Nullable(UInt64)", "UInt64"),
        ("LowCardinality(Nullable(String))", "String"),
        ("Map(LowCardinality(String), UInt8)", "Map(LowCardinality(String), UInt8)"),
    ],
)
def test_types_lose_what_the_lake_does_not_know(hot_type: str, bare: str) -> None:
    assert bare_type(hot_type) == bare


@pytest.mark.parametrize(
    "settings",
    [
        {"catalog": {"kind": "hive"}},
        {"catalog": {"kind": "rest"}},
        {"catalog": {"s3_access_key_file": "a"}},
        {"catalog": {"request_seconds": 0.0}},
        {"orphan_hours": 0.5},
        {"file_mib": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(Rejected) as caught:
        build(LakeConfig, {"data": "data", **settings}, "lake")
    assert caught.value.code == "bad_config"


def test_a_secret_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    config = CatalogConfig(kind="rest", uri="http://127.0.0.1:9", credential_file=tmp_path / "none")
    with pytest.raises(Rejected) as caught:
        open_lake(config, tmp_path)
    assert caught.value.code == "bad_config"


def test_a_catalogue_that_is_away_is_tried_again(tmp_path: Path) -> None:
    config = CatalogConfig(kind="rest", uri="http://127.0.0.1:9", connect_seconds=0.5, request_seconds=0.5)
    with pytest.raises(Retryable):
        open_lake(config, tmp_path)


def test_settings_make_a_stage(rig: Rig, tmp_path: Path) -> None:
    made = stage_of(LakeConfig(tmp_path, compact=False), rig.store, rig.lake, rig.clock, rig.metrics)
    assert made.tidying.compact_seconds == 0
    assert made.means.bound.file_bytes == 256 << 20
    assert Slice(0, 1, "a", "b") < Slice(1, 2, "a", "a")
