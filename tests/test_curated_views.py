"""What the curated views say of rows: units, duplicates, parts, several collectors, events, clusters."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from query_fixture import T0, Row, insert_entity, insert_rollups, insert_rows
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import physical_array
from secondsight.guard.registry import Role
from secondsight.guard.views import describe, registry_of, specs_of
from secondsight.store.bins import bins_of, figures_of
from secondsight.store.chdb import ChdbStore
from secondsight.store.clusterviews import sketch_figure
from secondsight.store.migrate import migrate
from secondsight.store.schema import DATABASE
from secondsight.store.views import curated_views, shared_database

CATALOG = load_catalog()
RAW, FINE = "gpu_telemetry_1s_secure", "gpu_telemetry_30s_secure"
ROW = Row(T0, "GPU-a", {"gpu_power_watts": 300_000, "gpu_energy_joules_total": 5_000, "gpu_performance_state": 2})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbStore]:
    opened = ChdbStore(tmp_path_factory.mktemp("hot"))
    migrate(opened, CATALOG)
    rows = [
        replace(ROW, t=T0 + 1000 * second, values={**ROW.values, "gpu_power_watts": 300_000 + second})
        for second in range(60)
    ]
    rows += [replace(ROW, t=T0, entity="GPU-b", part="gi=1", values={"gpu_power_watts": 7})]
    other = replace(
        ROW, entity="GPU-b", collector="scraper", rank=3, values={"gpu_power_watts": 1, "gpu_sm_clock_hertz": 1980}
    )
    rows += [replace(ROW, entity="GPU-b"), replace(other, t=T0 + 400)]
    insert_rows(opened, rows)
    insert_rows(opened, rows[:5])
    insert_rollups(opened, rows)
    insert_rows(opened, [replace(ROW, tenant="t2", values={"gpu_power_watts": 9})])
    insert_entity(opened, ROW, T0)
    for row in (replace(ROW, entity="GPU-b"), other):
        insert_entity(opened, row, T0, gpu_model="H200")
    insert_entity(opened, replace(ROW, tenant="t2"), T0, gpu_model="secret")
    opened.query(f"SYSTEM RELOAD DICTIONARY {DATABASE}.gpu_products")
    yield opened
    opened.close()


def read(store: ChdbStore, view: str, what: str, where: str = "tenant_id = 't1'", *, shared: bool = False) -> list[Any]:
    home = shared_database(DATABASE) if shared else DATABASE
    found = store.query(f"SELECT {what} FROM {home}.{view} WHERE {where} ORDER BY ALL")
    return [tuple(row.values()) for row in found.to_pylist()]


def test_seconds_are_in_the_units_of_the_catalogue_and_each_is_there_once(store: ChdbStore) -> None:
    found = read(
        store,
        RAW,
        "gpu_power_watts, gpu_energy_joules_total, gpu_performance_state",
        "gpu_id = 'GPU-a' AND tenant_id = 't1'",
    )
    assert found == [(300 + second / 1000, 5.0, 2) for second in range(60)]


@pytest.mark.parametrize("metric", CATALOG.scalars(CATALOG.get("gpu_power_watts").kind), ids=lambda metric: metric.name)
def test_values_are_scaled_as_answers_are(metric: Any) -> None:
    """The text of the expression is compared by what it computes, in Python's own arithmetic on doubles."""
    expression = next(c.expression for c in curated_views(CATALOG, "")[0].columns if c.metric == metric.name)
    if expression.startswith("CAST"):
        assert metric.resolution in (0, 1)
        return
    steps = expression.partition(")")[2]
    for stored in (1, 3, 7, 914_000, 123_456_789):
        assert (
            eval(f"float({stored}){steps}") == physical_array(metric, np.array([stored]))[0]
        )  # a text of this project


def test_parts_are_left_out_and_products_are_those_of_the_tenant(store: ChdbStore) -> None:
    assert read(store, RAW, "gpu_id, count()", "tenant_id = 't1' GROUP BY gpu_id") == [("GPU-a", 60), ("GPU-b", 2)]
    assert read(store, RAW, "DISTINCT gpu_id, model") == [("GPU-a", "H100"), ("GPU-b", "H200")]


@pytest.mark.parametrize("view", [RAW, FINE])
def test_of_several_collectors_the_best_counts_metric_by_metric(store: ChdbStore, view: str) -> None:
    suffix = "" if view == RAW else "_max"
    least = "gpu_power_watts_min" if suffix else "gpu_power_watts"
    what = f"max(gpu_power_watts{suffix}), min({least}), max(gpu_sm_clock_hertz{suffix})"
    where = "tenant_id = 't1' AND gpu_id = 'GPU-b'"
    assert read(store, view, what, where, shared=True) == [(300.0, 300.0, 1.98e9)]
    other = "tenant_id = 't1' AND gpu_id = 'GPU-a'"
    assert read(store, view, "*", other, shared=True) == read(store, view, "*", other)


def test_windows_have_weights_means_and_increases(store: ChdbStore) -> None:
    names = "gpu_power_watts_avg, gpu_power_watts_count, gpu_power_watts_max"
    names += ", gpu_energy_joules_total_increase, gpu_performance_state_last"
    first, second = read(store, FINE, names, "tenant_id = 't1' AND gpu_id = 'GPU-a'")
    assert first == (pytest.approx(300.0145), 30.0, 300.029, 0.0, 2)
    assert second == (pytest.approx(300.0445), 30.0, 300.059, 0.0, 2)


def test_absent_is_null_and_weighs_nothing(store: ChdbStore) -> None:
    names = "gpu_sm_clock_hertz_avg, gpu_sm_clock_hertz_count, gpu_energy_joules_total_seconds"
    assert read(store, FINE, names, "tenant_id = 't2'") == []
    assert read(store, FINE, "DISTINCT gpu_sm_clock_hertz_avg, gpu_sm_clock_hertz_count", "gpu_id = 'GPU-a'") == [
        (None, 0.0)
    ]


def test_events_have_kinds_and_messages_and_no_facts(store: ChdbStore) -> None:
    def event(metric: str, code: int, **attributes: str) -> dict[str, Any]:
        return {"metric": metric, "code": code, "attributes": list(attributes.items())}

    events = [
        event("gpu_xid", 79, message="fallen off the bus"),
        event("gpu_memory_finding", 3),
        event("gpu_link_finding", 7),
        event("gpu_stay", 0),
        event("gpu_xid", 31, retracted="1"),
    ]
    count = len(events)
    columns = {
        "tenant_id": ["t1"] * count,
        "cluster_id": ["c1"] * count,
        "kind": ["gpu"] * count,
        "entity": ["GPU-a"] * count,
        "metric": [each["metric"] for each in events],
        "code": pa.array([each["code"] for each in events], pa.int64()),
        "event_time": pa.array([T0 + place for place in range(count)], pa.timestamp("ms", "UTC")),
        "severity": ["critical"] * count,
        "attributes": pa.array([each["attributes"] for each in events], pa.map_(pa.string(), pa.string())),
    }
    store.insert("events", pa.table(columns))
    assert read(store, "gpu_error_events_secure", "kind, code, message, model") == [
        ("ecc", 3, "row remap pending", "H100"),
        ("pcie", 7, "PCIe degraded", "H100"),
        ("xid", 79, "fallen off the bus", "H100"),
    ]


def test_clusters_are_covered_by_gpu_time_and_percentiles_come_from_sketches(store: ChdbStore) -> None:
    bins = bins_of(np.array([100_000, 200_000, 400_000]))
    columns: dict[str, Any] = {
        "tenant_id": ["t1"],
        "cluster_id": ["c1"],
        "owner_team": ["ml"],
        "gpu_model": ["H100"],
        "window_start": pa.array([T0 // 1000], pa.timestamp("s", "UTC")),
        "gpus": pa.array([4], pa.uint32()),
        "covered_ms": pa.array([600_000], pa.uint64()),
        "version": pa.array([1], pa.uint64()),
        "gpu_power_watts_min": pa.array([100_000], pa.uint32()),
        "gpu_power_watts_max": pa.array([400_000], pa.uint32()),
        "gpu_power_watts_bins": pa.array([bins.tolist()], pa.list_(pa.int16())),
        "gpu_power_watts_weights": pa.array([[300_000, 276_000, 24_000]], pa.list_(pa.uint64())),
    }
    store.insert("gpu_cluster_5m", pa.table(columns))
    store.query(
        "ALTER TABLE gpu_cluster_5m UPDATE gpu_power_watts_sum = 150000 * 600000 WHERE 1 SETTINGS mutations_sync = 2"
    )
    what = "model, gpus, coverage_ratio, gpu_power_watts_avg, gpu_power_watts_count, gpu_power_watts_p95"
    what += ", gpu_sm_clock_hertz_p95"
    (row,) = read(store, "gpu_cluster_5m_secure", what)
    expected = float(figures_of(bins)[1]) / 1000
    assert row == ("H100", 4, 0.5, 150.0, 600.0, pytest.approx(expected), None)


def test_a_bin_stands_for_the_same_value_here_and_there(store: ChdbStore) -> None:
    bins = np.arange(-9000, 9000, 7, dtype=np.int16)
    found = store.query(f"SELECT {sketch_figure('toInt16(number * 7 - 9000)')} AS v FROM numbers({bins.size})")
    assert np.array_equal(found["v"].to_numpy(), figures_of(bins))


def test_the_registry_has_every_column_but_the_buckets(store: ChdbStore) -> None:
    for view, spec in zip(registry_of(CATALOG).views, specs_of(CATALOG), strict=True):
        described = store.query(f"DESCRIBE TABLE {DATABASE}.{view.name}").to_pylist()
        types = {row["name"]: row["type"] for row in described}
        assert {column.name: column.type for column in view.columns} == {
            name: kind for name, kind in types.items() if name != "time_bucket"
        }
        assert {column.name for column in view.columns if column.role is Role.SCOPE} == {"tenant_id", "cluster_id"}
        assert view.time_column == spec.time_column
        if view.bucket:
            assert types[view.bucket.column] == "DateTime('UTC')"


def test_a_new_metric_is_in_the_views_after_the_next_migration(store: ChdbStore, tmp_path: Any) -> None:
    more = tmp_path / "more.toml"
    more.write_text(
        'acme_gpu_test_watts = {kind="gpu", unit="W", type="gauge", rollup="level", priority=2, dtype="u32", '
        'resolution=0.001, min=0, max=2000, description="A test."}\n'
    )
    grown = load_catalog((more,))
    assert sum(" VIEW " in statement for statement in migrate(store, grown)) == 2 * 5
    assert read(store, RAW, "DISTINCT acme_gpu_test_watts") == [(None,)]
    assert migrate(store, grown) == ()
    migrate(store, CATALOG)


def test_columns_are_described_with_units_and_what_is_legal() -> None:
    views = {
        view["name"]: {column["name"]: column for column in view["columns"]}
        for view in describe(CATALOG, {"gpu_power_watts"})
    }
    assert "gpu_power_watts" not in views[RAW]
    energy = views[FINE]["gpu_energy_joules_total_increase"]
    assert (energy["unit"], energy["legal"].split(",")[0]) == ("J", "sum")
    assert all(column["description"] for columns in views.values() for column in columns.values())
