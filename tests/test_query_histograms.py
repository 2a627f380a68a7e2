"""Figures of histograms: what buckets gained, over resets, boots, gaps and other bounds."""

import numpy as np
import pytest

from process_rig import new_tenant
from query_fixture import Row, insert_histograms, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.mapping.grid import GRID_BOUNDS
from secondsight.query.aggregates import Aggregate
from secondsight.query.histograms import Gained, figure_of
from secondsight.query.inventory import Inventory
from secondsight.query.request import QueryText, parse_query
from secondsight.query.run import QueryRunner

CATALOG = load_catalog()
LATENCY = "inference_request_duration_seconds"
T0 = 1_700_006_400_000
BOUNDS = (0.1, 1.0, 10.0)


def put(store, tenant, samples, host="h1", collector="c1", rank=0, boot="b1", bounds=BOUNDS):
    """Store (second, counts by bucket, sum) of one serving engine."""
    at = Row(
        T0, host, {}, tenant=tenant, cluster="k1", host=host, interval=15_000, collector=collector, rank=rank, boot=boot
    )
    insert_histograms(store, at, LATENCY, samples, bounds, T0)


def ask(store, tenant, aggregate, resolution="range", group="cluster", seconds=3600):
    text = QueryText(LATENCY, {}, str(T0), str(T0 + seconds * 1000), resolution, aggregate, group)
    now_ms = T0 + 7_200_000
    clock = ManualClock(now_ms)
    answer = QueryRunner(store, clock, Inventory(store, clock)).run(
        parse_query(text, CATALOG, now_ms), scope_of(tenant)
    )
    return answer, [dict(zip(one.times_ms.tolist(), one.values.tolist(), strict=True)) for one in answer.series]


def only(store, tenant, aggregate, **more):
    (series,) = ask(store, tenant, aggregate, **more)[1]
    (value,) = series.values()
    return value


def test_buckets_gain_what_they_grew_by_and_resets_start_anew(store):
    """Counts 1, 3, 5 / 1, 8, 10 / 1, 18, 20 / 21, 38, 40 gain 54 after the first sample."""
    tenant, counts = new_tenant(), [1, 3, 5, 1, 8, 10, 1, 18, 20, 21, 38, 40]
    put(store, tenant, [(15 * place, (count, 0, 0, 0), 0.05 * count) for place, count in enumerate(counts)])
    assert only(store, tenant, "count") == 4 + 1 + 9 + 1 + 19 + 20
    assert only(store, tenant, "rate") == pytest.approx(54 / (15 * 11))
    assert only(store, tenant, "avg") == pytest.approx(0.05)
    assert only(store, tenant, "p50") == pytest.approx(0.05)


MOVES = [  # (what is counted by the upper bound 2^n, at a scale of 0 or coarser)
    ("grows", [{0: 2, 1: 3}, {0: 4, 1: 3, 2: 1}], 3, {0: 2, 2: 1}),
    ("counts by two powers from then on", [{0: 2, 1: 3, 2: 5}, {0: 2, 2: 9, 4: 1}], 2, {2: 1, 4: 1}),
    ("widens what is zero", [{-3: 4, 0: 2, 1: 3}, {1: 9, 2: 2}], 2, {2: 2}),
    ("counts more finely", [{2: 8}, {0: 4, 1: 3, 2: 3}], 2, {0: 2}),
    ("begins anew", [{0: 5, 1: 5}, {0: 2, 1: 4}], 6, {0: 2, 1: 4}),
]


@pytest.mark.parametrize(("steps", "count", "gains"), [case[1:] for case in MOVES], ids=[case[0] for case in MOVES])
def test_exponential_buckets_that_become_coarser_begin_nothing_anew(store, steps, count, gains):
    def on_grid(counts):
        placed = {GRID_BOUNDS.index(2.0**power): number for power, number in counts.items()}
        return [placed.get(place, 0) for place in range(len(GRID_BOUNDS) + 1)]

    tenant = new_tenant()
    samples = [(15 * place, on_grid(counts), float(sum(counts.values()))) for place, counts in enumerate(steps)]
    put(store, tenant, samples, bounds=GRID_BOUNDS)
    assert only(store, tenant, "count") == count
    assert only(store, tenant, "p99") <= 2.0 ** max(gains)
    assert only(store, tenant, "p50") > 2.0 ** (min(gains) - 1)


def test_a_gain_belongs_to_the_window_of_the_later_sample(store):
    tenant = new_tenant()
    put(store, tenant, [(0, (0, 0, 0, 0), 0), (285, (3, 0, 0, 0), 0), (300, (10, 0, 0, 0), 0), (315, (11, 0, 0, 0), 0)])
    (series,) = ask(store, tenant, "count", resolution="5m", seconds=600)[1]
    assert series == {T0: 3, T0 + 300_000: 8}


def test_a_boot_begins_anew_though_nothing_fell_and_a_long_gap_is_unknown(store):
    tenant = new_tenant()
    put(store, tenant, [(0, (5, 0, 0, 0), 0)], boot="b1")
    put(store, tenant, [(15, (7, 0, 0, 0), 0), (30, (9, 0, 0, 0), 0)], boot="b2")
    assert only(store, tenant, "count") == 7 + 2
    other = new_tenant()
    put(store, other, [(0, (5, 0, 0, 0), 0), (3_700, (500, 0, 0, 0), 0), (3_715, (501, 0, 0, 0), 0)])
    assert only(store, other, "count", seconds=7000) == 1


def test_one_fallen_bucket_resets_all_and_other_bounds_are_another_histogram(store):
    tenant = new_tenant()
    put(store, tenant, [(0, (5, 5, 0, 0), 0), (15, (6, 1, 0, 0), 0)])
    assert only(store, tenant, "count") == 7
    other = new_tenant()
    put(store, other, [(0, (5, 5, 0, 0), 0)])
    put(store, other, [(15, (50, 0), 0), (30, (51, 0), 0)], bounds=(0.5,))
    assert only(store, other, "count") == 1


def test_percentiles_of_a_group_are_of_all_values_and_say_when_they_lie_above(store):
    tenant = new_tenant()
    put(store, tenant, [(0, (0, 0, 0, 0), 0), (15, (90, 0, 0, 0), 0)], host="h1")
    put(store, tenant, [(0, (0, 0, 0, 0), 0), (15, (0, 0, 0, 10), 0)], host="h2", collector="c2")
    assert only(store, tenant, "p50") == pytest.approx(0.1 * 50 / 90)
    answer, ((series),) = ask(store, tenant, "p95")
    assert list(series.values()) == [10.0]
    assert any("above its last bound" in warning for warning in answer.warnings)


def test_of_two_tellers_one_counts(store):
    tenant = new_tenant()
    for collector, rank in (("c1", 1), ("c2", 0)):
        put(store, tenant, [(0, (0, 0, 0, 0), 0), (15, (4 + rank, 0, 0, 0), 0)], collector=collector, rank=rank)
    assert only(store, tenant, "count") == 4


def test_histograms_are_not_asked_beside_other_metrics():
    with pytest.raises(Rejected) as refused:
        parse_query(QueryText(f"{LATENCY},inference_requests_running", {}, str(T0), str(T0 + 1000)), CATALOG, T0)
    assert refused.value.code == "mixed_kinds"


@pytest.mark.parametrize("share", [Aggregate.P50, Aggregate.P95, Aggregate.P99])
def test_histograms_of_different_bounds_add_up_on_straight_lines(share):
    fine = Gained(np.array([1.0, 2.0, 3.0, 4.0]), np.array([10.0, 10, 10, 10, 0]), 0, 1)
    coarse = Gained(np.array([2.0, 4.0]), np.array([20.0, 20, 0]), 0, 1)
    assert figure_of([fine, coarse], share) == figure_of([fine, fine], share) == figure_of([coarse], share)
