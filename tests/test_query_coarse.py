"""Answers read from rollups of 5 min, 1 h and 1 d are those read from finer ones."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from query_fixture import Row, asked, insert_rollups, insert_rows, insert_seen, roll_coarse, scope_of, series_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.query import plan as plan_module
from secondsight.query.inventory import Inventory
from secondsight.query.made import coarse_through_of
from secondsight.query.plan import Leg, Situation, Span, plan_series
from secondsight.query.request import Filters, QueryText, parse_query
from secondsight.query.run import QueryRunner
from secondsight.store.bins import RELATIVE_ERROR, bin_expression, bins_of
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import rollup_table

CATALOG = load_catalog()
T0 = 1_700_006_400_000
"""A full hour."""
HOURS = 3
END = T0 + HOURS * 3_600_000
NOW = END + 600_000
GAUGE, USED, COUNTER, STATE = (
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_energy_joules_total",
    "gpu_performance_state",
)


def rows():
    """Rows every 10 s, and every second for four minutes; one metric comes and goes, one GPU changes hands."""
    made = []
    for entity, host, cluster in (("GPU-a", "h1", "c1"), ("GPU-b", "h1", "c1"), ("GPU-c", "h2", "c2")):
        second = 0
        while second < HOURS * 3600:
            fast = 3500 <= second < 3740
            values = {GAUGE: second * 7 % 10_000, USED: (80 << 30) + second, COUNTER: 1000 * second % 5_000_000}
            values |= {STATE: second // 1000 % 3} if second % 600 < 300 else {}
            if not 7000 <= second < 7600:
                made.append(
                    Row(
                        T0 + 1000 * second,
                        entity,
                        values,
                        cluster=cluster,
                        host=host,
                        collector=f"agent-{host}",
                        interval=1000 if fast else 10_000,
                        team="red" if second < 4321 else "blue",
                    )
                )
            second += 1 if fast else 10
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    made = ChdbStore(Path(tmp_path_factory.mktemp("hot")), readers=4)
    migrate(made, CATALOG)
    mine = rows()
    insert_rows(made, mine)
    insert_rollups(made, mine, END)
    insert_seen(made, mine, T0, END)
    roll_coarse(made, NOW, 8)
    yield made
    made.close()


class Fine(Inventory):
    """Knows of no coarse rollups."""

    def coarse_through(self, kind, expected, scope):  # noqa: ARG002 - the method that it replaces
        return ()


def ask(store, inventory, metric, **fields):
    query = parse_query(asked(metric, T0, END, **fields), CATALOG, NOW)
    clock = ManualClock(NOW)
    return QueryRunner(store, clock, inventory(store, clock)).run(query, scope_of("t1"))


class Counting:
    """A store that keeps the statements that it was asked."""

    def __init__(self, store):
        self._store, self.asked = store, []

    def query(self, sql, params=None, settings=None):
        self.asked.append(sql)
        return self._store.query(sql, params, settings)


def comparable(answer):
    return series_of(answer), answer.coverage.expected, answer.coverage.stored


def test_what_is_made_is_told(store):
    clock = ManualClock(NOW)
    inventory = Inventory(store, clock)
    expected = inventory.expected(EntityKind.GPU, Filters(), scope_of("t1"))
    through = dict(inventory.coarse_through(EntityKind.GPU, expected, scope_of("t1")))
    assert (through["5m"], through["1h"]) == (END, END)
    assert through["1d"] <= T0


def test_a_cluster_that_has_just_come_has_its_rollups_up_to_its_first_row():
    """So it keeps nobody who asks about the whole fleet from coarse rows, not even before anything is made of it."""
    through = [
        {"table_name": rollup_table(EntityKind.GPU, name), "tenant_id": "t1", "cluster_id": "old", "through_ms": END}
        for name in ("5m", "1h")
    ]
    starts = [("old", T0), ("new", END - 90_000), ("new", END - 200_000)]
    expected = [{"tenant_id": "t1", "cluster_id": name, "start_ms": start} for name, start in starts]
    found = coarse_through_of(pa.Table.from_pylist(through), EntityKind.GPU, pa.Table.from_pylist(expected))
    assert found == (("5m", END - 200_000), ("1h", END - 200_000))
    assert coarse_through_of(pa.table({"table_name": []}), EntityKind.GPU, pa.Table.from_pylist(expected)) == ()


GROUPS = [("cluster", "300s"), ("gpu", "3600s"), ("team", "7200s"), ("gpuModel,region", "300s"), ("total", "range")]
CASES = [
    *product([GAUGE, USED], ["avg", "min", "max", "last", "count", "sum"]),
    *product([COUNTER], ["rate", "increase", "resets", "last"]),
    *product([STATE], ["last", "changes"]),
]


@pytest.mark.parametrize(("group", "resolution"), GROUPS)
@pytest.mark.parametrize(("metric", "aggregate"), CASES)
def test_coarse_rows_give_the_figures_and_coverage_of_fine_ones(store, metric, aggregate, group, resolution):
    group = "gpu" if aggregate == "last" else group
    fields = {"aggregate": aggregate, "group_by": group, "resolution": resolution, "from_": str(T0 + 1_234_000)}
    coarse, fine = (ask(store, kind, metric, **fields) for kind in (Inventory, Fine))
    assert comparable(coarse) == comparable(fine)
    assert coarse.series


def test_rows_of_clusters_answer_what_tells_no_entity_apart(store):
    counting = Counting(store)
    ask(counting, Inventory, GAUGE, group_by="cluster", resolution="3600s", team="blue")
    series = [sql for sql in counting.asked if "AS figure" in sql]
    assert len(series) == 1
    assert "`gpu_cluster_1h`" in series[0]
    assert "`gpu_1h`" not in series[0]
    counting.asked.clear()
    ask(counting, Inventory, GAUGE, group_by="cluster", resolution="3600s", host="h1")
    assert not any("gpu_cluster" in sql for sql in counting.asked if "AS figure" in sql)


def test_a_ranking_over_a_whole_range_is_the_same(store):
    answers = []
    for kind in (Inventory, Fine):
        clock = ManualClock(NOW)
        text = QueryText(USED, {}, from_=str(T0 + 1_234_000), to=str(END), aggregate="max", group_by="gpu")
        query = replace(parse_query(text, CATALOG, NOW), whole=True)
        answers.append(QueryRunner(store, clock, kind(store, clock)).top(query, 2, scope_of("t1")))
    assert comparable(answers[0]) == comparable(answers[1])
    assert len(answers[0].series) == 2


@pytest.mark.parametrize(("group", "resolution"), GROUPS)
@pytest.mark.parametrize("aggregate", ["p50", "p95", "p99"])
def test_percentiles_of_many_rows_come_from_sketches(store, monkeypatch, aggregate, group, resolution):
    fields = {"aggregate": aggregate, "group_by": group, "resolution": resolution, "to": str(END + 300_000)}
    fields |= {"from_": str(T0 + 1_234_000)} if resolution == "range" else {}
    for metric in (GAUGE, USED):
        exact = ask(store, Inventory, metric, **fields)
        monkeypatch.setattr(plan_module, "SKETCH_ROWS_MINIMUM", 0)
        sketched, fine = (ask(store, kind, metric, **fields) for kind in (Inventory, Fine))
        monkeypatch.undo()
        assert comparable(fine) == comparable(exact)
        assert sketched.coverage.stored == exact.coverage.stored
        assert sketched.coverage.expected == exact.coverage.expected
        found, wanted = (
            {
                (tuple(sorted(one.labels.items())), t): v
                for one in answer.series
                for t, v in zip(one.times_ms, one.values, strict=True)
            }
            for answer in (sketched, exact)
        )
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert found[key] == pytest.approx(value, rel=RELATIVE_ERROR)
        assert metric != GAUGE or found != wanted


def test_the_engine_puts_values_into_the_bins_of_stored_sketches(store):
    generator = np.random.default_rng(7)
    values = generator.standard_normal(20_000) * np.exp2(generator.integers(-140, 140, 20_000))
    values = np.concatenate([values, [0.0, -0.0, 1e300, -1e300, 1e-300, 2.0**127, 2.0**-126, 1.0, -1.0]])
    wide = (pa.array(values, pa.float64()), pa.array(range(values.size), pa.int64()))
    store.query("CREATE TABLE binned (value Float64, place Int64) ENGINE = MergeTree ORDER BY place")
    store.insert("binned", pa.table(wide, ["value", "place"]))
    found = store.query(f"SELECT {bin_expression('value')} AS bin FROM binned ORDER BY place")["bin"].to_numpy()
    store.query("DROP TABLE binned")
    assert (found == bins_of(values)).all()


def test_of_a_percentile_only_what_has_no_sketch_yet_is_read_from_rows():
    text = QueryText(GAUGE, {}, from_=str(T0), to=str(END), resolution="3600s", aggregate="p95")
    query = parse_query(text, CATALOG, NOW)
    situation = Situation(
        NOW, entities=10_000, rollup_through_ms=END, coarse_through_ms=(("5m", END - 300_000), ("1h", T0 + 3_600_000))
    )
    plan = plan_series(query, query.selected[0], situation)
    assert plan.legs == (
        Leg("1h", Span(T0, T0 + 3_600_000)),
        Leg("5m", Span(T0 + 3_600_000, END - 300_000)),
    )
    assert plan.raw == Span(END - 300_000, END)


def test_a_range_is_divided_by_the_coarsest_that_fits():
    text = QueryText(GAUGE, {}, from_=str(T0 - 1_830_000), to=str(END + 400_000), resolution="3600s")
    query = parse_query(text, CATALOG, NOW)
    through = (("5m", END), ("1h", END - 3_600_000), ("1d", T0))
    plan = plan_series(
        query, query.selected[0], Situation(NOW, rollup_through_ms=END + 330_000, coarse_through_ms=through)
    )
    assert plan.legs == (
        Leg("1h", Span(T0 - 3_600_000, END - 3_600_000)),
        Leg("5m", Span(END - 3_600_000, END)),
        Leg("30s", Span(END, END + 330_000)),
    )


@pytest.mark.parametrize(("days", "behind", "tail"), [(9, 200, False), (6, 200, True), (9, 1000, True)])
def test_a_long_trend_of_clusters_ends_with_their_rows(days, behind, tail):
    text = QueryText(GAUGE, {}, str(END - days * 86_400_000), str(NOW), "1h", "avg", "cluster")
    query = parse_query(text, CATALOG, NOW)
    made = NOW - behind * 1000
    through = tuple((name, made) for name in ("5m", "1h", "cluster_5m", "cluster_1h"))
    plan = plan_series(
        query, query.selected[0], Situation(NOW, rollup_through_ms=NOW - 60_000, coarse_through_ms=through)
    )
    assert {leg.resolution for leg in plan.legs} == {"cluster_1h", "cluster_5m"} | ({"30s"} if tail else set())
    assert (plan.raw is not None) is tail
    assert plan.due_ms == (NOW - 10_000 if tail else made // 300_000 * 300_000)


def test_windows_that_a_coarse_one_does_not_divide_are_read_from_finer_ones():
    query = parse_query(QueryText(GAUGE, {}, from_=str(T0), to=str(END), resolution="90s"), CATALOG, NOW)
    situation = Situation(NOW, rollup_through_ms=END, coarse_through_ms=(("5m", END),))
    assert [leg.resolution for leg in plan_series(query, query.selected[0], situation).legs] == ["30s"]
