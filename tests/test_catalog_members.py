import pytest

from secondsight.catalog.load import load_catalog
from secondsight.catalog.members import (
    Merge,
    aggregate_of,
    aggregates,
    default_aggregate,
    keeps_sketch,
    members,
)
from secondsight.catalog.metric import DTYPES, MetricType
from secondsight.errors import Rejected

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "suffixes", "asked"),
    [
        ("gpu_power_watts", "sum min max last count p95", "avg min max last p50 p95 p99"),
        ("gpu_power_limit_watts", "sum min max last count", "avg min max last"),
        ("gpu_memory_total_bytes", "last", "last"),
        ("gpu_energy_joules_total", "increase seconds resets first last", "rate increase"),
        ("gpu_recovery_action", "last changes", "last changes"),
        ("gpu_clock_event_reasons", "last changes or", "last changes"),
        ("gpu_xid", "", "count"),
        ("gpu_info", "", "last"),
        ("query_duration_seconds", "", "p95 p50 p99 avg count"),
    ],
)
def test_members_and_aggregates(name, suffixes, asked):
    metric = CATALOG.get(name)
    assert [member.suffix for member in members(metric)] == suffixes.split()
    assert [aggregate.value for aggregate in aggregates(metric)] == asked.split()


@pytest.mark.parametrize("metric", [m for m in CATALOG.metrics if m.type is MetricType.COUNTER], ids=lambda m: m.name)
def test_a_counter_has_no_mean(metric):
    columns = {member.column(metric) for member in members(metric)}
    assert not columns & {f"{metric.name}_{suffix}" for suffix in ("sum", "avg", "min", "max")}
    with pytest.raises(Rejected) as refused:
        aggregate_of(metric, "avg")
    assert refused.value.code == "illegal_aggregate"
    assert "rate, increase" in refused.value.hint


def test_defaults():
    defaults = {
        metric.type: default_aggregate(metric).value for metric in CATALOG.metrics if metric.rollup != "constant"
    }
    assert defaults[MetricType.GAUGE] == "avg"
    assert defaults[MetricType.COUNTER] == "rate"
    assert defaults[MetricType.STATE] == "last"
    assert aggregate_of(CATALOG.get("gpu_power_watts"), "") == "avg"
    assert aggregate_of(CATALOG.get("gpu_power_watts"), "p99") == "p99"


def test_columns_and_their_dtypes():
    metric = CATALOG.get("gpu_temperature_margin_celsius")
    stored = {member.column(metric): member.dtype(metric) for member in members(metric)}
    assert stored == {
        "gpu_temperature_margin_celsius_sum": "i64",
        "gpu_temperature_margin_celsius_min": "i16",
        "gpu_temperature_margin_celsius_max": "i16",
        "gpu_temperature_margin_celsius_last": "i16",
        "gpu_temperature_margin_celsius_count": "u32",
    }
    loss = CATALOG.get("training_loss")
    assert {member.dtype(loss) for member in members(loss)} == {"f64", "u32"}
    assert {m.dtype(metric) for metric in CATALOG.metrics for m in members(metric)} <= set(DTYPES)


def test_quantiles_never_merge():
    for metric in CATALOG.metrics:
        quantiles = [member for member in members(metric) if member.suffix == "p95"]
        assert bool(quantiles) == (keeps_sketch(metric) and metric.is_scalar)
        assert all(member.merge is Merge.NONE for member in quantiles)


def test_seconds_and_count_are_exceptions():
    for metric in CATALOG.metrics:
        exceptional = {member.suffix for member in members(metric) if member.exceptional}
        assert exceptional <= {"count", "seconds"}
