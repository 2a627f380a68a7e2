"""The lake holds what the hot store holds, whatever changes there, and keeps what the hot store lets go."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_rig import BOUND, DAY_MS, HOUR_MS, METRICS, START_MS, Rig, hour_of, opened, plain, raw_row
from secondsight.clock import ManualClock
from secondsight.lake.confirm import confirmation, confirmed
from secondsight.lake.export import Pace
from secondsight.lake.rewrite import Bound
from secondsight.lake.summary import copied_of
from secondsight.model import Quality


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with opened(tmp_path_factory.mktemp("lake")) as made:
        yield made


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    clean(shared)


def clean(rig: Rig) -> None:
    for name in ("gpu_1s", "gpu_30s", "gpu_5m", "events", "ledger"):
        rig.store.query(f"TRUNCATE TABLE {name}")
        if rig.lake.table(name) is not None:
            rig.lake.catalog.drop_table(("secondsight", name))
    rig.restart()
    rig.bound, rig.clock = BOUND, ManualClock(START_MS + 3 * DAY_MS)


def power(second: int) -> int:
    return 300_000 + second % 7


def test_every_row_is_copied_as_it_is(rig: Rig) -> None:
    rig.insert(hour_of(50, gpu_power_watts=power, gpu_energy_joules_total=lambda second: (1 << 64) - 1 - second))
    rig.insert([raw_row(START_MS, "GPU-q", quality={"gpu_power_watts": int(Quality.BAD_RANGE)}, job="job-1", stamp=7)])
    assert rig.copy() == 1
    assert rig.in_lake() == rig.in_store()
    assert len(rig.in_lake()) == 151


def test_nothing_new_is_not_copied_again(rig: Rig) -> None:
    rig.insert(hour_of(5, gpu_power_watts=power))
    assert [rig.copy(), rig.copy()] == [1, 0]
    rig.restart()
    assert rig.copy() == 0
    rig.insert(hour_of(5, gpu_power_watts=power))  # the same rows again, as a processor that was killed writes them
    assert rig.copy() == 0
    assert rig.files() == 1


def test_an_hour_that_is_not_over_waits(rig: Rig) -> None:
    rig.clock = ManualClock(START_MS + HOUR_MS - 1)
    rig.restart()
    rig.insert(hour_of(5, gpu_power_watts=power))
    assert rig.copy() == 0
    rig.clock.move(0.002)
    assert rig.copy() == 1


def test_late_rows_and_fuller_rows_replace_their_slice(rig: Rig) -> None:
    rig.insert(hour_of(20, gpu_power_watts=power))
    rig.copy()
    rig.insert(hour_of(20, entities="z", gpu_power_watts=power))
    rig.insert(hour_of(3, entities="a", gpu_power_watts=power, gpu_temperature_celsius=lambda _: 61))
    assert rig.copy() == 1
    assert rig.in_lake() == rig.in_store()
    assert rig.files() == 1


def test_a_restamped_owner_is_copied(rig: Rig) -> None:
    rig.insert([raw_row(START_MS, gpu_power_watts=1)])
    rig.copy()
    rig.insert([raw_row(START_MS, gpu_power_watts=1, job="job-9", stamp=3)])
    rig.copy()
    assert [row["job_id"] for row in rig.in_lake()] == ["job-9"]


def test_slices_of_tenants_and_clusters_are_apart(rig: Rig) -> None:
    places = [{"tenant_id": tenant, "cluster_id": cluster} for tenant in "xy" for cluster in ("one", "two/ä")]
    rig.insert([raw_row(START_MS, gpu_power_watts=number, **place) for number, place in enumerate(places, 1)])
    assert rig.copy() == 4
    rig.insert([raw_row(START_MS + 1000, gpu_power_watts=5, **places[0])])
    assert rig.copy() == 1
    assert rig.in_lake() == rig.in_store()
    assert rig.files() == 4


def test_what_the_hot_store_dropped_stays(rig: Rig) -> None:
    """Late rows of a partition that is gone are united with what the lake has, cell by cell."""
    rig.insert(hour_of(4, gpu_power_watts=power, gpu_temperature_celsius=lambda _: 55))
    rig.copy()
    before = rig.in_lake()
    rig.store.query(f"ALTER TABLE gpu_1s DROP PARTITION ('{day_of(START_MS)}', 0)")
    assert rig.copy() == 0
    late = raw_row(START_MS, "GPU-a", gpu_energy_joules_total=5, gpu_temperature_celsius=54)
    rig.insert([late, raw_row(START_MS + 9000, "GPU-a", gpu_power_watts=2)])
    assert rig.copy() == 1
    rows = {(row["entity"], row["event_time"]): row for row in rig.in_lake()}
    assert len(rows) == len(before) + 1
    united = rows["GPU-a", START_MS]
    assert (united["gpu_power_watts"], united["gpu_temperature_celsius"]) == (power(0), 55)
    assert united["gpu_energy_joules_total"] == 5
    assert all(row in rig.in_lake() for row in before if (row["entity"], row["event_time"]) != ("GPU-a", START_MS))


def test_quality_decides_between_values_of_one_cell(rig: Rig) -> None:
    estimate = {"gpu_power_watts": int(Quality.ESTIMATE)}
    rig.insert([raw_row(START_MS, gpu_power_watts=900, quality=estimate)])
    rig.copy()
    rig.store.query("TRUNCATE TABLE gpu_1s")
    rig.insert([raw_row(START_MS, gpu_power_watts=100, gpu_temperature_celsius=50)])
    rig.insert([raw_row(START_MS + HOUR_MS, quality={"gpu_power_watts": int(Quality.STALE)})])
    rig.copy()
    first, second = rig.in_lake()
    assert (first["gpu_power_watts"], "quality" in first) == (100, False)
    assert second["quality"] == [("gpu_power_watts", int(Quality.STALE))]


def test_compaction_joins_hours_and_changes_no_row(rig: Rig) -> None:
    for hour in range(6):
        rig.insert(hour_of(10, START_MS + hour * HOUR_MS, gpu_power_watts=power))
    assert rig.copy() == 6
    before, marks = rig.in_lake(), copied_of(rig.lake.table("gpu_1s"), rig.shape())
    assert rig.compact() == 5
    assert (rig.files(), rig.in_lake()) == (1, before)
    assert copied_of(rig.lake.table("gpu_1s"), rig.shape()) == marks
    assert rig.compact() == 0


def test_a_slice_of_a_joined_file_may_change(rig: Rig) -> None:
    for hour in range(3):
        rig.insert(hour_of(10, START_MS + hour * HOUR_MS, gpu_power_watts=power))
    rig.copy()
    rig.compact()
    rig.insert(hour_of(10, START_MS + HOUR_MS, entities="ay", gpu_temperature_celsius=lambda _: 40))
    rig.insert(
        hour_of(10, START_MS + HOUR_MS, entities="a", gpu_power_watts=power, gpu_temperature_celsius=lambda _: 40)
    )
    rig.insert(hour_of(2, START_MS + 2 * HOUR_MS, entities="x", gpu_power_watts=power))
    assert rig.copy() == 2
    assert rig.in_lake() == rig.in_store()
    assert rig.files() == 1


def test_a_day_that_is_not_over_is_not_joined(rig: Rig) -> None:
    today = START_MS + 3 * DAY_MS
    rig.clock = ManualClock(today + 5 * HOUR_MS)
    rig.restart()
    for hour in range(3):
        rig.insert(hour_of(2, today + hour * HOUR_MS, gpu_power_watts=power))
    rig.copy()
    assert (rig.compact(), rig.files()) == (0, 3)


def test_memory_is_bounded_by_portions_and_files_by_size(rig: Rig) -> None:
    rig.bound = Bound(portion_values=2_000, file_bytes=6_000)
    rig.insert(hour_of(100, entities="abcdefgh", gpu_power_watts=lambda second: second * 7919 % 1_000_003))
    rig.copy()
    assert rig.files() > 1
    assert rig.in_lake() == rig.in_store()
    rig.insert(hour_of(100, entities="bz", gpu_temperature_celsius=lambda _: 3))
    rig.copy()
    assert {row["entity"] for row in rig.in_lake()} == {f"GPU-{letter}" for letter in "abcdefghz"}
    assert len(rig.in_lake()) == 900


def test_a_metric_that_is_added_at_run_time_reaches_the_lake(rig: Rig) -> None:
    rig.insert(hour_of(3, gpu_power_watts=power))
    rig.copy()
    ids = {field.name: field.field_id for field in rig.lake.table("gpu_1s").schema().fields}
    rig.store.query("ALTER TABLE gpu_1s ADD COLUMN gpu_site_new_watts Nullable(UInt32) CODEC(Delta, ZSTD(1))")
    try:
        rows = hour_of(3, START_MS + HOUR_MS, gpu_power_watts=power, gpu_site_new_watts=lambda second: second + 1)
        rig.insert(rows)
        assert rig.copy() == 1
        schema = rig.lake.table("gpu_1s").schema()
        assert ids.items() <= {field.name: field.field_id for field in schema.fields}.items()
        assert schema.find_field("gpu_site_new_watts").optional
        assert sum(row.get("gpu_site_new_watts", 0) for row in rig.in_lake()) == 18
        assert rig.files() == 2  # what was there is not written again
        assert rig.compact() == 1
        assert sum(row.get("gpu_site_new_watts", 0) for row in rig.in_lake()) == 18
    finally:
        rig.store.query("ALTER TABLE gpu_1s DROP COLUMN gpu_site_new_watts")


def test_rollups_and_events_are_copied_and_the_newest_version_counts(rig: Rig) -> None:
    window = {
        "tenant_id": "default",
        "cluster_id": "cedar",
        "host_id": "h",
        "entity": "GPU-a",
        "window_start": START_MS,
    }
    rig.insert([window | {"samples": 10, "version": 1}], "gpu_30s")
    rig.insert([window | {"samples": 29, "version": 1, "gpu_power_watts_sum": (1 << 63) + 1}], "gpu_5m")
    event = {**window, "event_time": START_MS, "kind": "gpu", "metric": "xid", "code": -1, "event_version": 1}
    del event["window_start"]
    rig.insert([event], "events")
    for table in ("gpu_30s", "gpu_5m", "events"):
        assert rig.copy(table) == 1
    rig.insert([window | {"samples": 30, "version": 3}], "gpu_30s")
    rig.store.query("TRUNCATE TABLE events")
    rig.insert([event | {"severity": "older", "event_version": 0}], "events")
    for table in ("gpu_30s", "events"):
        rig.copy(table)
    assert [row["samples"] for row in rig.in_lake("gpu_30s")] == [30]
    assert [row.get("severity") for row in rig.in_lake("events")] == [None]
    assert rig.in_lake("gpu_5m") == rig.in_store("gpu_5m")


def test_the_lake_confirms_only_what_it_has(rig: Rig) -> None:
    def whole() -> bool:
        return confirmed(rig.store, rig.lake, rig.shape(), START_MS, START_MS + DAY_MS)

    assert whole()  # nothing there, nothing to lose
    rig.insert(hour_of(5, gpu_power_watts=power) + hour_of(5, START_MS + HOUR_MS, gpu_power_watts=power))
    assert not whole()
    rig.copy()
    assert whole()
    rig.insert([raw_row(START_MS + HOUR_MS, "GPU-late", gpu_power_watts=1)])
    lacking = confirmation(rig.store, rig.lake, rig.shape(), START_MS, START_MS + DAY_MS).lacking
    assert [each.start_ms for each in lacking] == [START_MS + HOUR_MS]
    rig.copy()
    rig.compact()
    assert whole()
    rig.lake.table("gpu_1s").delete("host_id = 'host-a'")
    assert not whole()


def test_after_foreign_changes_slices_are_compared_again(rig: Rig) -> None:
    rig.insert(hour_of(5, gpu_power_watts=power))
    rig.copy()
    rig.lake.table("gpu_1s").delete("entity = 'GPU-b'")
    assert len(rig.in_lake()) == 10
    rig.restart()
    assert rig.copy() == 1
    assert rig.in_lake() == rig.in_store()


def test_large_backlogs_are_committed_in_pieces(rig: Rig) -> None:
    rig.pace = Pace(0, 0, 0.0, 300.0, commit_bytes=1)
    for hour in range(4):
        rig.insert(hour_of(3, START_MS + hour * HOUR_MS, gpu_power_watts=power))
    assert rig.copy() == 4
    rig.pace = Pace(0, 0, 0.0, 300.0, 256 << 20)
    assert len(rig.lake.table("gpu_1s").snapshots()) == 4
    assert rig.in_lake() == rig.in_store()


PIECES = st.fixed_dictionaries(
    {},
    optional={
        "gpu_power_watts": st.integers(0, 5),
        "gpu_temperature_celsius": st.integers(-3, 3),
        "gpu_energy_joules_total": st.sampled_from([0, 1, (1 << 63) + 5, (1 << 63) + (1 << 40)]),
    },
).filter(bool)
"""Whose greater values have the greater versions: those hold the sum of values, less what 56 bits do not hold."""
KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from([0, 1000, HOUR_MS, DAY_MS]))
STEPS = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(KEYS, PIECES), min_size=1, max_size=5)),
    st.tuples(st.just("drop"), st.sampled_from([0, DAY_MS])),
    st.tuples(st.sampled_from(["copy", "compact", "restart"]), st.none()),
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
def test_any_order_of_writes_drops_copies_and_compactions_loses_and_doubles_nothing(
    shared: Rig, steps: list[tuple[str, Any]]
) -> None:
    """Every row of the lake is the union of all pieces that were ever written for its key and copied."""
    clean(shared)
    known: dict[Any, dict[str, int]] = {}
    hot: dict[Any, dict[str, int]] = {}
    for word, argument in [*steps, ("copy", None)]:
        if word == "write":
            _write(shared, argument, known, hot)
        elif word == "drop":
            shared.copy()
            shared.store.query(f"ALTER TABLE gpu_1s DROP PARTITION ('{day_of(START_MS + argument)}', 0)")
            hot = {key: cells for key, cells in hot.items() if key[1] // DAY_MS != argument // DAY_MS}
        else:
            getattr(shared, word)()
    rows = {
        (row["entity"][-1], row["event_time"] - START_MS): {name: row[name] for name in METRICS if name in row}
        for row in shared.in_lake()
    }
    assert len(shared.in_lake()) == len(known)
    assert rows == {
        key: {name: value % (1 << 64) for name, value in cells.items() if value} for key, cells in known.items()
    }
    clean(shared)


def _write(rig: Rig, pieces: list[tuple[Any, dict[str, int]]], known: dict[Any, Any], hot: dict[Any, Any]) -> None:
    """Write pieces as a processor does: a row is the union of what the hot store knows of it."""
    touched = {}
    for key, piece in pieces:
        for cells in (known, hot):
            cells[key] = _union(cells.get(key, {}), piece)
        touched[key] = hot[key]
    rig.insert([raw_row(START_MS + at, f"GPU-{letter}", **cells) for (letter, at), cells in touched.items()])


def _union(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Return the cells of both; of two values the one with the greater bits."""
    bits = {name: 16 if name == "gpu_temperature_celsius" else 64 for name in METRICS}
    merged = dict(one)
    for name, value in other.items():
        if name not in merged or value % (1 << bits[name]) > merged[name] % (1 << bits[name]):
            merged[name] = value
    return merged


def day_of(time_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def test_the_forms_of_both_sides_agree() -> None:
    assert plain({"a": -1, "b": None, "c": 0}) == {"a": (1 << 64) - 1}
    assert replace(BOUND, file_bytes=1).file_bytes == 1
