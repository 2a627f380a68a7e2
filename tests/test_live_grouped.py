"""Answers out of rows in memory are those of the store, for any grouping, filter, scope and range."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query_fixture import (
    T0,
    Row,
    insert_allocation,
    insert_entity,
    insert_progress,
    insert_rewrite,
    insert_rollups,
    insert_rows,
    scope_of,
)
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.live.backfill import stored_rows
from secondsight.live.shape import raw_shape, rollup_shape
from secondsight.live.table import LiveTable
from secondsight.model import EntityKind
from secondsight.query import windowed
from secondsight.query.aggregates import legal_aggregates
from secondsight.query.answer import Answer, to_json
from secondsight.query.assemble import as_figures
from secondsight.query.compile import compile_series
from secondsight.query.grouped import GroupedReader
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Situation, plan_series
from secondsight.query.request import Format, QueryText, parse_query
from secondsight.query.run import QueryRunner
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import member_columns
from test_query_series import awkward_rows

CATALOG = load_catalog()
NOW = T0 + 1_200_000
METRICS = (
    "gpu_utilization_ratio",
    "gpu_encoder_utilization_ratio",
    "gpu_power_watts",
    "gpu_memory_used_bytes",
    "gpu_energy_joules_total",
    "gpu_performance_state",
    "gpu_fan_speed_ratio",
)
BIG, FAN = METRICS[3], METRICS[6]
MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")


def rows_with_parts() -> list[Row]:
    dice = random.Random(3)
    made = []
    for row in awkward_rows():
        sized = {**row.values, BIG: 80_000_000_000 + dice.randrange(1 << 20)} if row.rank == 0 else row.values
        made.append(replace(row, values=sized, late_ms=20_000 if row.t % 17_000 == 0 else 300))
        if row.entity == "GPU-a" and row.rank == 0 and row.t % 2000 == 0:
            made += [replace(row, part=f"fan={fan}", values={FAN: dice.randrange(10_000)}) for fan in (0, 1)]
    return made


class Tables:
    """All that a store has, in memory."""

    def __init__(self, store: ChdbStore) -> None:
        self.made: dict[str, LiveTable] = {}
        self.asked = Counter[bool]()
        metrics = CATALOG.scalars(EntityKind.GPU)
        members = [column.name for metric in metrics for column in member_columns(metric)]
        raw, rollup = raw_shape(EntityKind.GPU), rollup_shape(EntityKind.GPU)
        for shape, columns in ((raw, [metric.name for metric in metrics]), (rollup, [*MAPS, *members])):
            table = self.made[shape.table] = LiveTable(shape)
            table.begin(T0 - 7_200_000, [metric.name for metric in metrics])
            for rows in stored_rows(store, shape, columns, T0 - 60_000, {}):
                table.add(rows)
            table.trust()

    def table(self, name: str) -> LiveTable | None:
        return self.made.get(name)

    def holds(self, _name: str, _from_ms: int) -> bool:
        return False

    def count(self, *, held: bool) -> None:
        self.asked[held] += 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbStore]:
    made = ChdbStore(Path(tmp_path_factory.mktemp("hot")), readers=2)
    migrate(made, CATALOG)
    rows = rows_with_parts()
    insert_rows(made, rows)
    insert_rollups(made, rows, T0 + 540_000)
    again = [
        replace(row, values={**row.values, METRICS[0]: 77, "gpu_decoder_utilization_ratio": 1}) for row in rows[:40]
    ]
    insert_rows(made, again)
    insert_rewrite(made, "gpu_1s", T0, T0 + 30_000)
    series = {row.series: row for row in rows}.values()
    for row in series:
        if not (row.part or row.rank):
            insert_entity(made, row, T0, gpu_model="B200" if row.entity == "GPU-c" else "H100")
            insert_allocation(made, row, T0)
            insert_progress(made, row, T0 + 600_000, T0 + 540_000)
    insert_entity(made, replace(rows[0], entity="GPU-dead"), T0 + 200_000)
    yield made
    made.close()


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Have blocks looked at in several pieces, as those of large fleets are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windowed, "CHUNK_ROWS", 100)
        yield


@pytest.fixture(scope="module")
def reader(store: ChdbStore) -> GroupedReader:
    return GroupedReader(Tables(store), Inventory(store, ManualClock(NOW)))


SCOPES = {
    "tenant": scope_of("t1"),
    "both": scope_of("t1", "t2"),
    "cluster": scope_of("t1", clusters=frozenset({"c1"})),
    "team": scope_of("t1", teams=frozenset({"team-2"})),
    "none": scope_of("t9"),
    "boxes": replace(
        scope_of("t1", clusters=frozenset({"c2"})),
        others=(scope_of("t2", jobs=frozenset({"job-1"})), scope_of("t1", teams=frozenset({"team-2"}))),
    ),
}
FILTERS: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {"cluster": "c1"},
    {"host": "h2"},
    {"gpu": "GPU-a,GPU-d"},
    {"team": "team-1"},
    {"job": "job-2", "cluster": "c1"},
    {"gpu_model": "B200"},
    {"part": "fan=1"},
)
GROUPS = ("", "cluster", "host", "total", "job", "team,model", "gpu,team", "gpuModel", "region,gpuModel", "part")


@st.composite
def questions(draw: st.DrawFn) -> tuple[QueryText, dict[str, Any]]:
    metric = CATALOG.get(draw(st.sampled_from(METRICS)))
    aggregate = draw(st.sampled_from(legal_aggregates(metric)))
    groups = [group for group in GROUPS if aggregate != "last" or "gpu," in f"{group or 'gpu'},"]
    start = draw(st.integers(0, 500)) * 1000
    text = QueryText(
        metric.name,
        draw(st.sampled_from(FILTERS)),
        from_=str(T0 + start),
        to=str(T0 + start + draw(st.integers(1, 700)) * 1000),
        resolution=draw(st.sampled_from(("1s", "5s", "30s", "30s", "1m", "2m", "range"))),
        aggregate=aggregate.value,
        group_by=draw(st.sampled_from(groups)),
    )
    through = draw(st.sampled_from((None, 250_000, 540_000, 540_000)))
    situation = {
        "rollup_through_ms": through and T0 + through,
        "several_sources": draw(st.booleans()),
        "entities": draw(st.sampled_from((4, 100))),
    }
    return text, situation


def plain(found: Any) -> tuple[Any, ...]:
    """Return figures with series by their names."""
    cut = {tuple(label.values()): (times.tolist(), values) for label, times, values in found.cut}
    return cut, [list(label) for label, _, _ in found.cut], found.held, found.late, found.rows


@given(question=questions(), name=st.sampled_from(sorted(SCOPES)))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_memory_gives_what_the_store_gives(store, reader, question, name):
    text, situation = question
    scope = SCOPES[name]
    query = parse_query(text, CATALOG, NOW)
    if text.resolution == "1s":  # of two collectors that told the same second either may be the last
        situation["several_sources"] = True
    plan = plan_series(query, query.selected[0], Situation(NOW, **situation))
    plan = replace(plan, final_raw=True, final_rollup=True)
    statement = compile_series(plan, scope)
    expected = as_figures(plan, store.query(statement.sql, statement.params, statement.settings))
    found = reader.read(plan, scope)
    assert found is not None
    mine, theirs = plain(found.as_figures()), plain(expected)
    assert mine[1:] == theirs[1:]
    assert list(mine[0]) == list(theirs[0])
    for label, (times, values) in mine[0].items():
        assert times == theirs[0][label][0]
        assert values.tolist() == pytest.approx(theirs[0][label][1].tolist(), rel=1e-12, abs=1e-12)


@pytest.fixture(scope="module")
def runners(store: ChdbStore) -> tuple[QueryRunner, QueryRunner, Tables]:
    clock, tables = ManualClock(T0 + 605_000), Tables(store)
    return QueryRunner(store, clock), QueryRunner(store, clock, live=tables), tables


def told(answer: Answer) -> Any:
    """Return all that an answer says, its figures to 12 digits."""
    body = to_json(answer, Format.ROWS)
    for series in body["series"]:
        series["points"] = [(point["ts"], f"{point['value']:.11g}") for point in series["points"]]
    return body


@given(question=questions(), name=st.sampled_from(sorted(SCOPES)), page=st.sampled_from((200, 2)))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_answers_are_equal_in_every_field(runners, question, name, page):
    of_store, of_memory, _ = runners
    text, scope = replace(question[0], limit=page), SCOPES[name]
    query = parse_query(text, CATALOG, T0 + 605_000)
    assert told(of_memory.run(query, scope)) == told(of_store.run(query, scope))
    if query.whole and "gpu" in query.group_by:
        for highest in (True, False):
            ranked = [one.top(query, 2, scope, highest=highest) for one in (of_memory, of_store)]
            assert told(ranked[0]) == told(ranked[1])


@pytest.mark.parametrize("resolution", ["30s", "range"])
@pytest.mark.parametrize("group", ["cluster", "team", "gpuModel"])
def test_groups_are_answered_from_memory(runners, resolution, group):
    before = Counter(runners[2].asked)
    text = QueryText(METRICS[0], {}, str(T0), str(T0 + 600_000), resolution, group_by=group)
    runners[1].run(parse_query(text, CATALOG, T0 + 605_000), SCOPES["both"])
    assert runners[2].asked - before == {True: 1}


def test_nothing_is_read_without_a_scope_or_where_it_is_denied(reader):
    query = parse_query(QueryText(METRICS[0], {}, from_=str(T0), to=str(T0 + 60_000), resolution="30s"), CATALOG, NOW)
    plan = plan_series(query, query.selected[0], Situation(NOW))
    with pytest.raises(TypeError):
        reader.read(plan, None)
    with pytest.raises(Rejected):
        reader.read(plan, scope_of("t1", denied_metrics=frozenset({METRICS[0]})))
