import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from query_fixture import (
    T0,
    Row,
    asked,
    insert_allocation,
    insert_entity,
    insert_plan,
    insert_progress,
    insert_rewrite,
    insert_rewrites,
    insert_rollups,
    insert_rows,
    scope_of,
)
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.model import EntityKind, Quality
from secondsight.query.answer import to_arrow, to_csv, to_json
from secondsight.query.compile import compile_series
from secondsight.query.figures import compile_figures, figures_of, metrics_of_rules
from secondsight.query.fleet import FleetReader, compile_newest
from secondsight.query.hints import near
from secondsight.query.inventory import compile_rewrites
from secondsight.query.plan import Situation, Span, plan_series
from secondsight.query.progress import compile_progress, progress_of
from secondsight.query.request import Filters, Format, parse_query
from secondsight.query.rows import compile_rows
from secondsight.query.run import QueryRunner, compile_silent
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
NOW = T0 + 605_000
GAUGE, POWER, COUNTER, UNSUPPORTED = (
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_energy_joules_total",
    "gpu_encoder_utilization_ratio",
)
MISSING = {"GPU-b": range(100, 117), "GPU-c": range(300, 303)}


def rows():
    made = []
    for tenant, cluster, host, entity, team in (
        ("t1", "c1", "h1", "GPU-a", "red"),
        ("t1", "c1", "h1", "GPU-b", "blue"),
        ("t1", "c2", "h2", "GPU-c", "red"),
        ("t2", "c1", "h1", "GPU-a", "red"),
        ("t2", "c9", "h9", "GPU-z", "green"),
    ):
        for second in range(603):
            if second in MISSING.get(entity, ()):
                continue
            values = {GAUGE: 1000 + second, POWER: 500_000, COUNTER: 1_000_000 + 500_000 * second}
            quality = {UNSUPPORTED: Quality.ABSENT_NOT_SUPPORTED.value}
            at = T0 + second * 1000
            made.append(
                Row(
                    at,
                    entity,
                    values,
                    tenant=tenant,
                    cluster=cluster,
                    host=host,
                    collector=f"agent-{host}",
                    team=team,
                    job=f"job-{team}",
                    late_ms=20_000 if second < 6 else 300,
                    quality=quality,
                )
            )
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    made = ChdbStore(Path(tmp_path_factory.mktemp("hot")), readers=4)
    migrate(made, CATALOG)
    insert_rows(made, rows())
    insert_rollups(made, rows(), T0 + 300_000)
    for row in {row.series: row for row in rows()}.values():
        insert_entity(made, row, T0, gpu_model="H100" if row.entity < "GPU-c" else "B200")
        insert_allocation(made, row, T0)
    dead = Row(T0, "GPU-dead", {}, host="h3", collector="agent-h3")
    insert_entity(made, dead, T0 + 400_000)
    for row in {(row.tenant, row.host): row for row in rows()}.values():
        insert_progress(made, row, T0 + 602_000, T0 + 300_000)
    insert_progress(made, dead, T0 + 100_000, T0 + 90_000, idle=True)
    yield made
    made.close()


def text(metric=GAUGE, **fields):
    return asked(metric, T0, T0 + 600_000, **fields)


def ask(store, scope=None, /, metric=GAUGE, **fields):
    clock = ManualClock(NOW)
    return QueryRunner(store, clock).run(parse_query(text(metric, **fields), CATALOG, NOW), scope or scope_of("t1"))


def test_one_gpu_over_15_minutes_is_answered_in_seconds(store):
    answer = ask(store, gpu="GPU-a")
    assert answer.resolution_ms == 1000
    (series,) = answer.series
    assert series.labels == {"tenantId": "t1", "clusterId": "c1", "hostId": "h1", "gpuId": "GPU-a", "part": ""}
    assert series.times_ms.tolist() == [T0 + second * 1000 for second in range(600)]
    assert series.values.tolist() == [(1000 + second) / 10_000 for second in range(600)]
    assert answer.freshness_ms == 3_000
    assert answer.complete_through_ms == T0 + 592_000
    assert answer.late_ratio == pytest.approx(6 / 600)


def test_coverage_counts_what_the_tables_hold(store):
    due = 595
    for gpu, missing in (("GPU-a", 0), ("GPU-b", 17), ("GPU-c", 3)):
        coverage = ask(store, gpu=gpu).coverage
        assert (coverage.expected, coverage.stored) == (due, due - missing), gpu
        assert coverage.gaps == (1 if missing > 3 else 0)
    coverage = ask(store, gpu="GPU-dead").coverage
    assert (coverage.expected, coverage.stored, coverage.gaps) == (due - 400, 0, 1)


@pytest.mark.parametrize("group", ["", "cluster", "total", "gpuModel"])
def test_coverage_does_not_depend_on_grouping_or_resolution(store, group):
    seconds = ask(store, group_by=group, resolution="1s").coverage
    windows = ask(store, group_by=group, resolution="30s").coverage
    assert (seconds.expected, seconds.stored) == (595 * 3 + 195, 595 * 3 - 20)
    assert (windows.expected, windows.stored) == (seconds.expected, seconds.stored)
    assert windows.gaps == seconds.gaps


def test_a_metric_never_supported_is_not_expected(store):
    answer = ask(store, metric=UNSUPPORTED, gpu="GPU-a,GPU-b")
    assert answer.series == ()
    assert answer.coverage.expected == 0


@pytest.mark.parametrize("metrics", [(GAUGE, UNSUPPORTED), (UNSUPPORTED, GAUGE)])
def test_a_metric_without_rows_stands_beside_one_that_all_rows_have(store, metrics):
    answer = ask(store, metric=",".join(metrics), gpu="GPU-a", group_by="gpu,part", resolution="1s")
    alone = ask(store, gpu="GPU-a", group_by="gpu,part", resolution="1s")
    assert [one.values.tolist() for one in answer.series] == [one.values.tolist() for one in alone.series]
    assert (answer.coverage.expected, answer.coverage.stored) == (alone.coverage.expected, alone.coverage.stored)


def test_a_collector_that_never_told_a_sample_is_not_called_silent():
    times = {"watermark_ms": [T0, T0, 0], "newest_event_time_ms": [T0, T0, 0], "rollup_through_ms": [T0, T0, 0]}
    progress = progress_of(pa.table({"idle": [0, 1, 1], **times}), pa.table({}), NOW)
    assert (progress.idle, progress.collectors) == (1, 2)


def test_an_idle_collector_is_named_and_not_waited_for(store):
    answer = ask(store)
    assert answer.complete_through_ms == T0 + 592_000
    assert any("1 of 3 collectors" in warning for warning in answer.warnings)


def test_rollups_and_their_tail_meet(store):
    query = parse_query(text(resolution="30s"), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, entities=3, rollup_through_ms=T0 + 300_000))
    assert plan.rollup == Span(T0, T0 + 300_000)
    assert plan.raw == Span(T0 + 300_000, T0 + 600_000)
    answer = ask(store, resolution="30s", gpu="GPU-a")
    assert answer.series[0].values.tolist() == pytest.approx(
        [(1000 + 30 * window + 14.5) / 10_000 for window in range(20)], rel=1e-12
    )


def test_constant_reads_the_same_at_every_resolution(store):
    for resolution in ("1s", "7s", "30s", "1m", "5m", "range"):
        for series in ask(store, metric=POWER, resolution=resolution).series:
            assert set(series.values.tolist()) == {500.0}, resolution
    for series in ask(store, metric=COUNTER, resolution="1m").series:
        assert series.values.tolist() == pytest.approx([500.0] * 10)
        assert series.unit.endswith("/s")
    total = ask(store, metric=POWER, aggregate="sum", group_by="total", resolution="30s")
    assert total.series[0].values.tolist() == pytest.approx([1500.0] * 20)


@pytest.mark.parametrize("level", [50, 95, 99])
def test_percentiles_are_exact_by_nearest_rank(store, level):
    (series,) = ask(store, gpu="GPU-a", aggregate=f"p{level}", resolution="1m").series
    for window, value in enumerate(series.values.tolist()):
        ordered = sorted(1000 + second for second in range(60 * window, 60 * window + 60))
        assert value == ordered[-(-60 * level // 100) - 1] / 10_000


def test_pages_of_series(store):
    first = ask(store, limit=2)
    assert (len(first.series), first.series_total, first.next_cursor) == (2, 3, "2")
    second = ask(store, limit=2, cursor=first.next_cursor)
    assert [series.labels["gpuId"] for series in second.series] == ["GPU-c"]
    assert second.next_cursor == ""


def test_shapes_of_an_answer(store):
    answer = ask(store, resolution="1m", gpu="GPU-b,GPU-c")
    rowwise, columns = to_json(answer, Format.ROWS), to_json(answer, Format.COLUMNS)
    json.dumps([rowwise, columns])
    assert rowwise["effectiveResolution"] == "1m"
    assert rowwise["series"][0]["points"][0] == {"ts": "2023-11-14T22:20:00.000Z", "value": pytest.approx(0.10295)}
    assert columns["ts"][0] == T0
    assert [point["value"] for point in rowwise["series"][0]["points"]] == columns["series"][0]["values"]
    lines = to_csv(answer).splitlines()
    assert len(lines) == 21
    assert lines[0] == "ts,metric,unit,aggregate,tenantId,clusterId,hostId,gpuId,part,value"
    assert to_arrow(answer)[:4] == b"\xff\xff\xff\xff"


def test_windows_without_coverage_are_absent(store):
    answer = ask(store, resolution="1s", gpu="GPU-a,GPU-b")
    assert len(answer.series[1].times_ms) == 583
    values = to_json(answer, Format.COLUMNS)["series"][1]["values"]
    assert values[100:117] == [None] * 17
    assert None not in values[:100] + values[117:]


def test_final_is_used_where_rows_were_rewritten(store):
    fuller = replace(rows()[0], entity="GPU-twice")
    insert_rows(store, [fuller])
    insert_rows(store, [replace(fuller, values={**fuller.values, UNSUPPORTED: 7})])
    query = parse_query(text(gpu="GPU-twice", aggregate="count", resolution="30s"), CATALOG, NOW)
    (selected,) = query.selected
    plan = plan_series(query, selected, Situation(NOW))
    assert not plan.final_raw
    insert_rewrite(store, "gpu_1s", T0 + 3_000_000, T0 + 3_060_000)
    insert_rewrite(store, "gpu_1s", T0, T0 + 30_000, tenant="t3")
    runner = QueryRunner(store, ManualClock(NOW))
    span = Span(T0, NOW)
    assert not runner.inventory.rewrites(EntityKind.GPU, span, scope_of("t2"))
    plan = plan_series(
        query, selected, Situation(NOW, rewrites=runner.inventory.rewrites(EntityKind.GPU, span, scope_of("t3")))
    )
    assert plan.final_raw
    assert " FINAL " in compile_series(plan, scope_of("t1")).sql


def test_an_old_rewrite_is_found_among_thousands_of_newer_ones(store):
    fuller = Row(T0, "GPU-again", {GAUGE: 5000}, tenant="t5", host="h5", collector="agent-h5")
    insert_rows(store, [fuller])
    insert_rows(store, [replace(fuller, values={GAUGE: 5000, POWER: 7})])
    insert_rewrite(store, "gpu_1s", T0, T0 + 30_000, tenant="t5")
    later = [T0 + (1 + number) * 30_000 for number in range(2_500)]
    for name in ("gpu_1s", "gpu_30s", "host_1s"):
        insert_rewrites(store, name, later, tenant="t5")
    scope = scope_of("t5")
    for resolution, group in (("30s", "total"), ("1s", "total"), ("range", "gpu")):
        answer = ask(store, scope, resolution=resolution, group_by=group, aggregate="count")
        assert answer.series[0].values.sum() == 1, resolution
    inventory = QueryRunner(store, ManualClock(NOW)).inventory
    near = inventory.rewrites(EntityKind.GPU, Span(T0, T0 + 600_000), scope)
    assert {(one.table, one.span.from_ms, one.span.to_ms) for one in near} == {
        ("gpu_1s", T0, T0 + 600_000),
        ("gpu_30s", T0 + 30_000, T0 + 600_000),
    }
    year = inventory.rewrites(EntityKind.GPU, Span(T0 - 366 * 86_400_000, T0 + 86_400_000), scope)
    assert len(year) < 100
    assert {one.table for one in year} == {"gpu_1s", "gpu_30s"}
    assert max(one.span.to_ms for one in year) == later[-1] + 30_000


NEW = Row(T0, "GPU-new", {GAUGE: 5000}, tenant="t6", host="h6", collector="agent-h6")


@pytest.mark.parametrize("part", ["", "mig=1,slice=a"])
@pytest.mark.parametrize("resolution", ["1s", "30s"])
def test_an_entity_that_no_list_knows_yet_is_covered_by_what_it_has(store, part, resolution):
    new = replace(NEW, tenant=f"t6-{part}-{resolution}", part=part)
    insert_rows(store, [replace(new, t=T0 + second * 1000) for second in (3, 4, 5, 9)])
    filters = {"part": part} if part else {}
    answer = ask(store, scope_of(new.tenant), resolution=resolution, **filters)
    assert answer.series[0].labels["part"] == part
    assert (answer.coverage.expected, answer.coverage.stored, answer.coverage.gaps) == (4, 4, 0)
    assert any("not listed" in warning for warning in answer.warnings)
    insert_entity(store, new, T0)
    answer = ask(store, scope_of(new.tenant), resolution=resolution, **filters)
    assert (answer.coverage.expected, answer.coverage.stored) == (595, 4)
    assert not any("not listed" in warning for warning in answer.warnings)


def test_what_came_before_the_first_plan_hides_no_hole_after_it(store):
    """A history, as `up --simulate` begins with one, and a later plan; nothing is due between two plans."""
    new = replace(NEW, tenant="t6-history")
    there = [*range(100, 300), *range(310, 400), *range(500, 560)]
    insert_rows(store, [replace(new, t=T0 + second * 1000) for second in there])
    insert_entity(store, replace(new, t=T0 + 559_000), T0 + 100_000)
    insert_plan(store, new, T0 + 250_000, T0 + 400_000)
    insert_plan(store, new, T0 + 500_000)
    answer = ask(store, scope_of(new.tenant), resolution="30s")
    assert (answer.coverage.expected, answer.coverage.stored) == (300 + 95, len(there))


@pytest.mark.parametrize(
    ("watermarks", "through"),
    [
        ((0, T0), None),
        ((T0, T0 + 1000), T0),
        ((NOW + 60_000, NOW + 90_000), NOW),
        ((0, 0), None),
    ],
)
def test_completeness_is_unknown_while_a_collector_has_no_watermark(store, watermarks, through):
    tenant = f"t7-{watermarks}"
    for number, watermark_ms in enumerate(watermarks):
        row = replace(NEW, tenant=tenant, host=f"h{number}", collector=f"agent-{number}")
        insert_progress(store, row, watermark_ms + 10_000, 0)
        insert_entity(store, row, T0)
    assert ask(store, scope_of(tenant)).complete_through_ms == through


def united_scopes(first, *others):
    return replace(first, others=others)


SCOPES = {
    "tenant": (scope_of("t1"), {("t1", "GPU-a"), ("t1", "GPU-b"), ("t1", "GPU-c")}),
    "other tenant": (scope_of("t2"), {("t2", "GPU-a"), ("t2", "GPU-z")}),
    "both": (scope_of("t1", "t2"), {(row.tenant, row.entity) for row in rows()}),
    "cluster": (scope_of("t1", clusters=frozenset({"c2"})), {("t1", "GPU-c")}),
    "no cluster": (scope_of("t1", clusters=frozenset()), set()),
    "team": (scope_of("t1", teams=frozenset({"red"})), {("t1", "GPU-a"), ("t1", "GPU-c")}),
    "no team": (scope_of("t1", teams=frozenset({""})), set()),
    "job": (scope_of("t1", jobs=frozenset({"job-blue"})), {("t1", "GPU-b")}),
    "model": (scope_of("t1", model_ids=frozenset({"llm"})), set()),
    "unknown tenant": (scope_of("t7"), set()),
    "a cluster, or a team elsewhere": (
        united_scopes(scope_of("t1", clusters=frozenset({"c2"})), scope_of("t2", teams=frozenset({"green"}))),
        {("t1", "GPU-c"), ("t2", "GPU-z")},
    ),
    "a cluster, or a team in it too": (
        united_scopes(
            scope_of("t1", clusters=frozenset({"c1"})),
            scope_of("t1", teams=frozenset({"red"})),
            scope_of("t2", jobs=frozenset({"job-blue"})),
        ),
        {("t1", "GPU-a"), ("t1", "GPU-b"), ("t1", "GPU-c")},
    ),
}


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("group", ["", "cluster", "team", "total", "gpuModel"])
@pytest.mark.parametrize("resolution", ["1s", "30s", "range"])
@pytest.mark.parametrize("hostile", [{}, {"gpu": "GPU-a,GPU-b,GPU-z"}, {"gpu": "x') OR 1=1 --"}, {"gpu_model": "B200"}])
def test_nothing_outside_a_scope_leaves(store, name, group, resolution, hostile):
    scope, allowed = SCOPES[name]
    query = parse_query(text(group_by=group, resolution=resolution, **hostile), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, entities=3, rollup_through_ms=T0 + 300_000))
    statement = compile_series(plan, scope)
    found = store.query(statement.sql, statement.params, statement.settings).to_pylist()
    entities = {(row["tenant_id"], row["entity"]) for row in found if row["is_entity"]} - {("t1", "GPU-twice")}
    asked = set(hostile.get("gpu", "").split(",")) - {""}
    models = {("t1", "GPU-c"), ("t2", "GPU-z")} if "gpu_model" in hostile else allowed
    assert entities == {key for key in allowed & models if not asked or key[1] in asked}
    counts = defaultdict(int)
    for row in found:
        if row["is_entity"]:
            counts[row["tenant_id"]] += row["slots"]
    points = defaultdict(int)
    for row in found:
        if not row["is_entity"]:
            points[row["tenant_id"]] += row["slots"]
    assert counts == points


@pytest.mark.parametrize("name", SCOPES)
def test_the_small_tables_are_scoped_too(store, name):
    scope, allowed = SCOPES[name]
    inventory = QueryRunner(store, ManualClock(NOW)).inventory
    read = inventory.read
    expected = inventory.expected(EntityKind.GPU, Filters(), scope).to_pylist()
    keys = sorted((row["tenant_id"], row["entity"]) for row in expected if row["entity"] != "GPU-dead")
    assert keys == sorted(allowed)
    hosts = {(row["tenant_id"], row["host_id"]) for row in read(compile_progress(scope)).to_pylist()}
    visible = {(row.tenant, row.host) for row in rows() if (row.tenant, row.entity) in allowed}
    assert hosts - {("t1", "h3")} == visible
    silent = read(compile_silent(CATALOG.get(UNSUPPORTED), Filters(), Span(T0 + 480_000, T0 + 600_000), scope))
    assert {(row["tenant_id"], row["entity"]) for row in silent.to_pylist()} == allowed


@pytest.mark.parametrize("name", SCOPES)
def test_rows_and_newest_values_are_scoped_too(store, name):
    scope, allowed = SCOPES[name]
    query = parse_query(text(metric=f"{GAUGE},{COUNTER}"), CATALOG, NOW)
    plans = [plan_series(query, selected, Situation(NOW, entities=3)) for selected in query.selected]
    read = QueryRunner(store, ManualClock(NOW)).inventory.read
    for statement in (compile_rows(plans, scope, 0), compile_newest([CATALOG.get(POWER)], NOW, scope)):
        found = {(row["tenant_id"], row["entity"]) for row in read(statement).to_pylist()}
        assert found - {("t1", "GPU-twice")} == allowed
    denied = frozenset({GAUGE, POWER})
    others = tuple(replace(box, denied_metrics=denied) for box in scope.others)
    denying = replace(scope, denied_metrics=denied, others=others)
    for refused in (
        lambda: compile_rows(plans, denying, 0),
        lambda: compile_newest([CATALOG.get(POWER)], NOW, denying),
    ):
        with pytest.raises(Rejected):
            refused()


@pytest.mark.parametrize("column", ["'t1' AS tenant_id", "any(job_id) AS job_id", "'x' AS `owner_team`"])
def test_no_column_can_take_the_place_of_one_that_scopes_are_tested_on(column):
    with pytest.raises(ValueError, match="hides"):
        ScopedTables(scope_of("t1"), Parameters()).table("gpu_1s", [column])


def test_nothing_is_compiled_without_a_scope():
    query = parse_query(text(), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW))
    for scope in (None, "t1", {"tenant_ids": ("t1",)}):
        with pytest.raises(TypeError):
            compile_series(plan, scope)
        for compiled in (compile_progress, partial(compile_rewrites, EntityKind.GPU, Span(T0, NOW))):
            with pytest.raises(TypeError):
                compiled(scope)
        with pytest.raises(TypeError):
            compile_rows([plan], scope, 0)
    with pytest.raises(TypeError):
        compile_series(plan)


@pytest.mark.parametrize("value", ["'", "\\", "`", "x') OR 1=1 --", "{p0:String}", "a\nb", "%", "\0", "😀"])
def test_hostile_text_is_only_ever_a_parameter(store, value):
    scope = scope_of("t1", teams=frozenset({value}))
    filters = dict.fromkeys(("cluster", "host", "gpu", "part", "job", "team", "model", "gpu_model"), value)
    query = parse_query(text(resolution="30s", group_by="gpuModel", **filters), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, rollup_through_ms=T0 + 300_000))
    statement = compile_series(plan, scope)
    plain = compile_series(
        plan_series(
            parse_query(text(resolution="30s", group_by="gpuModel", **dict.fromkeys(filters, "plain")), CATALOG, NOW),
            query.selected[0],
            Situation(NOW, rollup_through_ms=T0 + 300_000),
        ),
        scope_of("t1", teams=frozenset({"plain"})),
    )
    assert statement.sql == plain.sql
    assert store.query(statement.sql, statement.params, statement.settings).num_rows == 0


def test_every_table_in_a_statement_stands_behind_its_scope():
    query = parse_query(text(resolution="30s", group_by="gpuModel", gpu_model="H100"), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW, rollup_through_ms=T0 + 300_000))
    sql = compile_series(plan, scope_of("t1")).sql
    tables = re.findall(r"FROM `(\w+)`( FINAL)? WHERE tenant_id IN \{", sql)
    assert len(tables) == len(re.findall(r"FROM `", sql)) == len(re.findall(r"(?:FROM|JOIN) [^(]", sql)) == 5


def test_denied_metrics_are_refused(store):
    with pytest.raises(Rejected) as refusal:
        ask(store, scope_of("t1", denied_metrics=frozenset({POWER})), metric="power")
    assert refusal.value.code == "forbidden_metric"


def test_boxes_that_deny_metrics_show_the_others(store):
    scope = united_scopes(
        scope_of("t1", clusters=frozenset({"c2"}), denied_metrics=frozenset({POWER})),
        scope_of("t2", teams=frozenset({"green"}), denied_metrics=frozenset({COUNTER})),
    )
    answer = ask(store, scope, metric=f"{GAUGE},{POWER},{COUNTER}", resolution="30s", limit=3)
    assert [(one.metric, one.labels["gpuId"]) for one in answer.series] == [
        (GAUGE, "GPU-c"),
        (GAUGE, "GPU-z"),
        (POWER, "GPU-z"),
    ]
    assert answer.series_total == 4
    assert answer.next_cursor == "3"
    alone = [ask(store, scope, metric=name, resolution="30s").coverage for name in (GAUGE, POWER, COUNTER)]
    assert answer.coverage.expected == sum(one.expected for one in alone)
    assert answer.coverage.stored == sum(one.stored for one in alone)
    power = CATALOG.get(POWER)
    read = QueryRunner(store, ManualClock(NOW)).inventory.read
    values = {row["entity"]: row[POWER] for row in read(compile_newest([power], NOW, scope)).to_pylist()}
    assert values == {"GPU-c": None, "GPU-z": 500_000.0}
    refused = united_scopes(*(replace(box, denied_metrics=frozenset({POWER})) for box in scope.boxes))
    with pytest.raises(Rejected):
        ask(store, refused, metric=f"{GAUGE},{POWER}")


def test_figures_of_the_last_minutes_are_means_in_the_unit_of_the_metric(store):
    now_ms = T0 + 300_000
    metrics = metrics_of_rules(CATALOG, scope_of())
    found = figures_of(store.query(*_texts(compile_figures(metrics, now_ms, scope_of()))), metrics)
    assert {key[3] for key in found} == {"GPU-a", "GPU-b", "GPU-c"}
    for entity in ("GPU-a", "GPU-b"):
        mine = [row for row in rows() if (row.tenant, row.entity) == ("t1", entity) and row.t < now_ms]
        values = [row.values[GAUGE] for row in mine if GAUGE in row.values]
        assert found["t1", "c1", "h1", entity][GAUGE] == pytest.approx(sum(values) / len(values) * 1e-4)
    hidden = scope_of(denied_metrics=frozenset({GAUGE}))
    assert GAUGE not in {metric.name for metric in metrics_of_rules(CATALOG, hidden)}


def _texts(statement):
    return statement.sql, statement.params, statement.settings


NOWHERE = [
    ({"cluster": "c7"}, "t1", "there is no cluster 'c7' that you may see; there are: 'c1', 'c2'"),
    ({"cluster": "c9"}, "t1", "there is no cluster 'c9' that you may see; there are: 'c1', 'c2'"),
    ({"cluster": "c1", "host": "h9"}, "t1", "there is no host 'h9' that you may see; there are: 'h1', 'h2', 'h3'"),
    ({"gpu": "GPU-z"}, "t1", "there is no GPU 'GPU-z' that you may see; near: 'GPU-c', 'GPU-b', 'GPU-a'"),
    ({"job": "nope"}, "t1", "there is no job 'nope' that you may see"),
    ({"team": "green"}, "t1", "there is no team 'green' that you may see"),
    ({"team": "green"}, "t2", None),
]


@pytest.mark.parametrize(("named", "tenant", "told"), NOWHERE)
def test_a_question_about_what_is_nowhere_says_so_and_never_what_others_have(store, named, tenant, told):
    runner = QueryRunner(store, ManualClock(NOW))
    answer = runner.run(parse_query(asked(GAUGE, T0, T0 + 60_000, **named), CATALOG, NOW), scope_of(tenant))
    hints = [text for text in answer.warnings if "there is no" in text]
    assert hints == ([told] if told else [])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GPU-94c9", ["GPU-94c994c0-1b2c", "GPU-94c994c0-77aa"]),
        ("gpu-94C994c0-7", ["GPU-94c994c0-77aa"]),
        ("ceder", ["cedar"]),
        ("", []),
        ("zzz", []),
    ],
)
def test_names_that_begin_so_or_are_written_alike_are_near(name, meant):
    assert near(name, ["GPU-94c994c0-77aa", "GPU-94c994c0-1b2c", "GPU-0aa8", "cedar", "iris"]) == meant


def test_who_fell_silent_did_so_at_its_last_row_however_seldom_its_stay_is_told(store):
    made = [Row(T0 + second * 1000, "GPU-s", {GAUGE: 0}, tenant="t9") for second in range(90)]
    insert_rows(store, made)
    insert_entity(store, made[30], T0)
    for now_ms, status in ((T0 + 115_000, "reporting"), (T0 + 385_000, "silent"), (T0 + 390_000, "lost")):
        clock = ManualClock(now_ms)
        inventory = QueryRunner(store, clock).inventory
        gpu = FleetReader(inventory, CATALOG, clock).gpu("GPU-s", scope_of("t9"))
        assert (gpu.status, gpu.last_seen_ms) == (status, T0 + 89_000)
