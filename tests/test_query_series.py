import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from query_fixture import T0, Row, insert_entity, insert_rollups, insert_rows, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.query.aggregates import PAIRED
from secondsight.query.compile import compile_series, label_columns
from secondsight.query.coverage import Held
from secondsight.query.joint import compile_joint, is_steady, joined
from secondsight.query.joint import figures_of as joint_figures
from secondsight.query.plan import Situation, plan_series
from secondsight.query.request import QueryText, parse_query
from secondsight.query.rowfigures import figures_of
from secondsight.query.rows import back_of, compile_rows, lacks_before, rows_of, suits_rows
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
NOW = T0 + 3_600_000
THROUGH = T0 + 600_000
GAUGE, LEVEL, COUNTER, STATE = (
    "gpu_utilization_ratio",
    "gpu_encoder_utilization_ratio",
    "gpu_energy_joules_total",
    "gpu_performance_state",
)


def awkward_rows(seed: int = 7) -> list[Row]:
    """Jitter, missing seconds, missing cells, resets, a reboot, two collectors, an owner that changes mid-window."""
    dice = random.Random(seed)
    rows = []
    for tenant, cluster, host, entity in (
        ("t1", "c1", "h1", "GPU-a"),
        ("t1", "c1", "h1", "GPU-b"),
        ("t1", "c2", "h2", "GPU-c"),
        ("t2", "c1", "h1", "GPU-d"),
    ):
        energy = 1_000_000 * (1 + ord(entity[-1]))
        for second in range(600):
            if entity == "GPU-b" and 100 <= second < 117:
                continue
            fresh = second == 450 or (entity == "GPU-a" and second == 333)
            energy = dice.randrange(200_000) if fresh else energy + dice.randrange(200_000, 700_000)
            values = {GAUGE: dice.randrange(10_001), COUNTER: energy, STATE: second // 45 % 3}
            if second % 11:
                values["gpu_power_watts"] = dice.randrange(700_000)
            if second % 7:
                values[LEVEL] = dice.randrange(10_001)
            if dice.random() < 0.05:
                del values[COUNTER]
            owner = ("job-1", "team-1", "llm") if second < 280 else ("job-2", "team-2", "llm")
            rows.append(
                Row(
                    T0 + second * 1000 + (dice.randrange(-400, 400) if entity == "GPU-c" and second else 0),
                    entity,
                    values,
                    tenant=tenant,
                    cluster=cluster,
                    host=host,
                    collector=f"agent-{host}",
                    boot="boot-1" if second < 450 else "boot-2",
                    job=owner[0],
                    team=owner[1],
                    model=owner[2],
                )
            )
    rows += [
        Row(T0 + second * 1000, "GPU-a", {GAUGE: 1}, collector="exporter", rank=2, interval=10_000)
        for second in range(0, 600, 10)
    ]
    return rows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    made = ChdbStore(Path(tmp_path_factory.mktemp("hot")), readers=2)
    migrate(made, CATALOG)
    rows = awkward_rows()
    insert_rows(made, rows)
    insert_rollups(made, rows, THROUGH)
    for row in {row.series: row for row in rows}.values():
        insert_entity(made, row, T0)
    yield made
    made.close()


def figures(store, text, scope=None, **situation):
    query = parse_query(text, CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, entities=4, **situation))
    statement = compile_series(plan, scope or scope_of("t1"))
    answer = store.query(statement.sql, statement.params, statement.settings).to_pylist()
    points = defaultdict(dict)
    for row in answer:
        if not row["is_entity"] and row["figure"] is not None:
            label = tuple(row[name] for name in ("cluster_id", "entity", "part", "job_id", "owner_team") if name in row)
            points[label][row["bucket_ms"]] = row["figure"]
    return plan, dict(points), [row for row in answer if row["is_entity"]]


def ask(metric, aggregate="", *, group="", resolution="30s", **filters):
    return QueryText(
        metric,
        filters,
        from_=str(T0),
        to=str(T0 + 600_000),
        resolution=resolution,
        aggregate=aggregate,
        group_by=group,
    )


CASES = [
    (metric, aggregate, group, resolution)
    for metric, aggregates in (
        (GAUGE, ("avg", "min", "max", "last", "count", "sum")),
        (LEVEL, ("avg", "sum", "count")),
        (COUNTER, ("rate", "increase", "resets", "last")),
        (STATE, ("last", "changes")),
    )
    for aggregate in aggregates
    for group in ("", "cluster", "total", "job", "gpu,team", "gpuModel")
    for resolution in ("30s", "2m", "range")
    if aggregate != "last" or "gpu," in f"{group or 'gpu'},"
]


@pytest.mark.parametrize(("metric", "aggregate", "group", "resolution"), CASES)
def test_seconds_and_rollups_give_the_same_figures(store, metric, aggregate, group, resolution):
    text = ask(metric, aggregate, group=group, resolution=resolution)
    _, raw, _ = figures(store, text)
    plan, rolled, _ = figures(store, text, rollup_through_ms=THROUGH)
    _, split, _ = figures(store, text, rollup_through_ms=T0 + 250_000)
    if resolution != "range":
        assert plan.raw is None
        assert plan.rollup is not None
    assert raw
    assert rolled.keys() == raw.keys() == split.keys()
    for label, points in raw.items():
        assert rolled[label] == pytest.approx(points, rel=1e-12)
        assert split[label] == pytest.approx(points, rel=1e-12)


def values_of(rows, groups):
    points = {}
    for row in rows.to_pylist():
        if row["figure"] is not None and row["figure"] == row["figure"] and not row["is_entity"]:
            points[(*(row[name] for name in groups), row["bucket_ms"])] = row["figure"]
    return points


@pytest.mark.parametrize("resolution", ["1s", "7s", "30s", "2m", "range"])
@pytest.mark.parametrize("several_sources", [True, False])
def test_a_small_question_has_the_figures_of_a_large_one(store, resolution, several_sources):
    """Both roads, rows in numpy and windows in SQL, give the same points and the same coverage."""
    for metric, aggregate in dict.fromkeys(case[:2] for case in CASES):
        text = replace(ask(metric, aggregate, resolution=resolution), from_=str(T0 + 60_000))
        query = parse_query(text, CATALOG, NOW)
        situation = Situation(NOW, entities=4, several_sources=several_sources)
        plan = plan_series(query, query.selected[0], situation)
        assert suits_rows([plan], situation)
        scope = scope_of("t1", "t2") if several_sources else scope_of("t2")
        large, small = compile_series(plan, scope), compile_rows([plan], scope, back_of([plan]))
        expected = store.query(large.sql, large.params, large.settings)
        rows = rows_of(store.query(small.sql, small.params, small.settings))
        begins = plan.span.from_ms == T0 and plan.selected.aggregate in PAIRED
        assert lacks_before(rows, [plan]) is begins
        found = figures_of(rows, plan)
        labels = ("tenant_id", "cluster_id", "host_id", "entity", "part")
        points = {
            (*(label[name] for name in labels), time_ms): value
            for label, times, values in found.cut
            for time_ms, value in zip(times.tolist(), values.tolist(), strict=True)
        }
        assert points == pytest.approx(values_of(expected, labels), rel=1e-12), (metric, aggregate)
        entities = [row for row in expected.to_pylist() if row["is_entity"]]
        held = {
            "\0".join(row[name] for name in labels): Held(row["slots"], row["first_ms"], row["last_ms"], row["gaps"])
            for row in entities
        }
        counted = {key: replace(each, reach_ms=0) for key, each in found.held.items()}
        assert counted == held, (metric, aggregate)
        assert (found.late, found.rows) == tuple(sum(row[name] for row in entities) for name in ("late", "rows"))


@pytest.mark.parametrize("resolution", ["7s", "30s", "2m", "range"])
@pytest.mark.parametrize("group", ["", "cluster", "total", "job", "gpu,team"])
@pytest.mark.parametrize("through", [None, 250_000, 570_000])
def test_a_joint_statement_has_the_figures_of_single_ones(store, resolution, group, through):
    """One statement for all metrics and aggregates gives the points and the coverage of one for each."""
    text = ask(f"{GAUGE},gpu_power_watts", "avg,min,max,count,p50,p95", resolution=resolution, group=group)
    text = replace(text, from_=str(T0 + 64_000), to=str(T0 + 571_000))
    query = parse_query(text, CATALOG, NOW)
    through_ms = through and T0 + through
    situation = Situation(NOW, entities=1, several_sources=False, rollup_through_ms=through_ms)
    plans = [plan_series(query, selected, situation) for selected in query.selected]
    groups = joined(plans)
    assert sorted(position for group in groups for position in group) == list(range(12))
    assert len(groups) == (1 if all(plan.rollup is None for plan in plans) else 2)
    scope = scope_of("t2")
    for positions in groups:
        mine = [plans[position] for position in positions]
        statement = compile_joint(mine, scope)
        rows = store.query(statement.sql, statement.params, statement.settings)
        assert is_steady(rows)
        for plan, found in zip(mine, joint_figures(rows, mine), strict=True):
            single = compile_series(plan, scope)
            expected = store.query(single.sql, single.params, single.settings)
            labels = label_columns(plan.groups)
            assert values_of(found, labels) == pytest.approx(values_of(expected, labels), rel=1e-12)
            assert values_of(found, labels)
            assert quality_of(found, plan) == quality_of(expected, plan)


def test_a_joint_statement_says_where_samples_are_too_near(store):
    query = parse_query(ask(GAUGE, resolution="30s"), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, entities=1, several_sources=False))
    for tenant, steady in (("t1", False), ("t2", True)):
        statement = compile_joint([plan], scope_of(tenant))
        assert is_steady(store.query(statement.sql, statement.params, statement.settings)) is steady


def quality_of(rows, plan):
    names = ("slots", "first_ms", "last_ms", *(() if plan.rollup else ("gaps", "late", "rows")))
    labels = ("tenant_id", "cluster_id", "host_id", "entity", "part")
    found = [row for row in rows.to_pylist() if row["is_entity"]]
    return {tuple(row[name] for name in labels): [row[name] for name in names] for row in found}
