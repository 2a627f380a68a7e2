"""What the live window answers is what the store answers, in every field."""

import random
import threading
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from live_rig import WIDE, Near, following, settled
from query_fixture import T0, Row, asked, insert_rewrite, insert_rows, insert_seen, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.live.budget import LEAST_MS, ROUNDS, Budget
from secondsight.live.config import LiveConfig
from secondsight.live.shape import raw_shape
from secondsight.live.table import QUIET_ROUNDS, LiveTable
from secondsight.live.window import LiveWindow, Stale
from secondsight.model import EntityKind
from secondsight.query.board import StoreBoards
from secondsight.query.inventory import Inventory
from secondsight.query.liveboard import LiveBoards
from secondsight.query.request import Filters, parse_query
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.failures import StoreBusy
from secondsight.store.migrate import migrate
from secondsight.store.serve import start_store_server
from secondsight.store.tail import BEGIN, ROWS, Tail

CATALOG = load_catalog()
GAUGE, POWER, COUNTER, STATE = (
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_energy_joules_total",
    "gpu_recovery_action",
)
LESS = "gpu_memory_copy_utilization_ratio"
"""Of another class than P0."""
LENGTH_MS = 240_000
NOW = T0 + LENGTH_MS + 5_000
PLACES = (
    ("t1", "c1", "h1", "GPU-a", "", "agent-h1"),
    ("t1", "c1", "h1", "GPU-a", "link=1", "agent-h1"),
    ("t1", "c1", "h1", "GPU-a", "", "b-other"),
    ("t1", "c1", "h1", "GPU-a", "secondary=min", "agent-h1"),
    ("t1", "c2", "h2", "GPU-b", "", "agent-h2"),
    ("t2", "c1", "h1", "GPU-a", "", "agent-h1"),
)
OWNERS = (("", "", ""), ("job-1", "red", "m1"), ("job-2", "blue", "m2"))
SCOPES = (
    scope_of("t1"),
    scope_of("t1", "t2"),
    scope_of("t1", clusters=frozenset({"c2"})),
    scope_of("t1", teams=frozenset({"red"})),
    scope_of("t1", jobs=frozenset({"job-2", ""})),
    scope_of("t1", teams=frozenset()),
    replace(scope_of("t1", clusters=frozenset({"c1"})), others=(scope_of("t2", teams=frozenset({"blue"})),)),
    replace(
        scope_of("t1", denied_metrics=frozenset({POWER})),
        others=(scope_of("t2", denied_metrics=frozenset({GAUGE})),),
    ),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    made = ChdbStore(Path(tmp_path_factory.mktemp("hot")), readers=2)
    migrate(made, CATALOG)
    yield made
    made.close()


def random_rows(seed: int) -> list[Row]:
    """Return rows of a few minutes: with holes, jitter, reboots, owners that change, late ones, several collectors."""
    chosen = random.Random(seed)
    made = []
    for tenant, cluster, host, entity, part, collector in PLACES:
        if chosen.random() < 0.2:
            continue
        jitter, counter = chosen.choice([0, 0, 137]), 10**6
        boot, owner = "boot-1", chosen.choice(OWNERS)
        for second in range(0, LENGTH_MS // 1000, chosen.choice([1, 1, 2, 10])):
            counter += chosen.randrange(2_000)
            if chosen.random() < 0.02:
                boot, counter = chosen.choice(["boot-2", ""]), chosen.randrange(1_000)
            if chosen.random() < 0.03:
                owner = chosen.choice(OWNERS)
            if chosen.random() < 0.1:
                continue
            cells = {GAUGE: chosen.randrange(10_000), POWER: chosen.randrange(700_000), COUNTER: counter, STATE: 1}
            made.append(
                Row(
                    T0 + second * 1000 + jitter,
                    entity,
                    {name: value for name, value in cells.items() if chosen.random() < 0.9} or {GAUGE: 1},
                    tenant=tenant,
                    cluster=cluster,
                    host=host,
                    part=part,
                    collector=collector,
                    rank=chosen.choice([0, 0, 1]) if collector == "b-other" else 0,
                    interval=1000,
                    boot=boot,
                    job=owner[0],
                    team=owner[1],
                    model=owner[2],
                    late_ms=chosen.choice([300, 300, 20_000]),
                )
            )
    return made


def written_again(rows: list[Row]) -> list[Row]:
    """Return fuller versions of some rows, whose owner may have changed; always the same ones of a row."""
    again = []
    for row in rows:
        chosen = random.Random(f"{row.series}{row.t}")
        if chosen.random() < 0.1:
            job, team, model = chosen.choice(OWNERS)
            full = {GAUGE: 1, POWER: 2, COUNTER: 3, STATE: 1, "gpu_temperature_celsius": 50, **row.values}
            again.append(replace(row, values=full, job=job, team=team, model=model))
    return again


def fill(store: ChdbStore, rows: list[Row], parts: int, seed: int) -> None:
    """Insert rows in some order and pieces, some of them twice, and say where that is so."""
    chosen = random.Random(seed)
    shuffled = [*rows, *written_again(rows)]
    twice = chosen.sample(rows, len(rows) // 20)
    chosen.shuffle(shuffled)
    for tenant, cluster in {(row.tenant, row.cluster) for row in rows}:
        insert_rewrite(store, "gpu_1s", T0 - 60_000, T0 + LENGTH_MS + 60_000, tenant, cluster)
    for part in range(parts):
        insert_rows(store, shuffled[part::parts])
    insert_rows(store, twice)


def emptied(store: ChdbStore) -> ChdbStore:
    for table in ("gpu_1s", "entities", "allocations", "progress", "rewrites"):
        store.query(f"TRUNCATE TABLE {table}")
    return store


def same(first: object, second: object) -> None:
    for field in fields(first):  # type: ignore[arg-type] # answers are dataclasses
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "series":
            assert len(one) == len(other)
            for left, right in zip(one, other, strict=True):
                assert (left.labels, left.metric, left.aggregate, left.unit) == (
                    right.labels,
                    right.metric,
                    right.aggregate,
                    right.unit,
                )
                np.testing.assert_array_equal(left.times_ms, right.times_ms)
                np.testing.assert_array_equal(left.values, right.values)
        else:
            assert one == other, field.name


def questions(chosen: random.Random) -> dict[str, object]:
    metric, aggregate = chosen.choice(
        [
            (GAUGE, ""),
            (GAUGE, "min,max"),
            (POWER, "avg"),
            (COUNTER, "rate,increase"),
            (STATE, "last,changes"),
            (f"{GAUGE},{POWER}", ""),
            (f"{GAUGE},{COUNTER},{STATE}", ""),
        ]
    )
    narrow = chosen.choice(
        [
            {},
            {"gpu": "GPU-a"},
            {"host": "h1"},
            {"cluster": "c2"},
            {"team": "red"},
            {"job": "job-1,job-2"},
            {"model": "m1"},
            {"gpu": "GPU-a", "part": "link=1"},
            {"gpu_model": "H100"},
        ]
    )
    start = T0 + chosen.randrange(0, LENGTH_MS, 500)
    end = start + chosen.randrange(1_000, LENGTH_MS, 500)
    width = chosen.choice(["1s", "2s", "10s", "30s", "1m", "range"])
    return {"metric": metric, "aggregate": aggregate, "from_ms": start, "to_ms": end, "resolution": width, **narrow}


def answers(store: ChdbStore, window: LiveWindow, clock: ManualClock, question: dict[str, object], scope: object):
    query = parse_query(asked(**question), CATALOG, clock.now_ms())
    plain = QueryRunner(store, clock, Inventory(store, clock))
    live = QueryRunner(store, clock, Inventory(store, clock, window.settle), live=window)
    found = []
    for runner in (plain, live):
        try:
            found.append(runner.run(query, scope))
        except Rejected as error:
            found.append(error.code)
    return found


def sealed(window: LiveWindow) -> None:
    """Have all blocks put in order for good, as when nothing came for a while."""
    table = window.table("gpu_1s")
    assert table is not None
    for _ in range(QUIET_ROUNDS):
        table.seal_quiet()


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30))
def test_answers_are_the_same_with_the_window_and_without(store: ChdbStore, seed: int) -> None:
    chosen = random.Random(seed)
    rows = random_rows(seed)
    clock, metrics = ManualClock(NOW), SelfMetrics()
    emptied(store)
    early = [row for row in rows if row.t < T0 + chosen.randrange(0, LENGTH_MS)]
    fill(store, early, 2, seed)
    insert_seen(store, rows, T0, T0 + LENGTH_MS)
    minutes = chosen.choice([20.0, 20.0, 3.0])
    with following(Near(store), clock, replace(WIDE, minutes=minutes), metrics) as window:
        sealed(settled(window))
        fill(store, rows, chosen.choice([1, 5]), seed + 1)
        settled(window)
        for number in range(14):
            if number == 7:
                sealed(window)
            question, scope = questions(chosen), chosen.choice(SCOPES)
            plain, live = answers(store, window, clock, question, scope)
            if isinstance(plain, str) or isinstance(live, str):
                assert plain == live
            else:
                same(plain, live)
    assert metrics.value("live_reads_total", source="memory") > 0


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30))
@example(seed=347373)  # a row that was written again, of another owner, is the newest of a GPU
def test_boards_are_the_same_with_the_window_and_without(store: ChdbStore, seed: int) -> None:
    chosen = random.Random(seed)
    clock, metrics = ManualClock(NOW), SelfMetrics()
    rows = random_rows(seed)
    emptied(store)
    insert_seen(store, rows, T0, T0 + LENGTH_MS)
    with following(Near(store), clock, WIDE, metrics) as window:
        settled(window)
        fill(store, rows, 3, seed)
        plain = StoreBoards(Inventory(store, clock))
        live = LiveBoards(Inventory(store, clock), window, plain)
        names = tuple(CATALOG.resolve(name) for name in (GAUGE, POWER, COUNTER))
        for _ in range(10):
            at_ms = T0 + chosen.randrange(0, LENGTH_MS + 20_000, 500)
            narrow, scope = (
                chosen.choice([Filters(), Filters(cluster=("c1",)), Filters(gpu=("GPU-a",))]),
                chosen.choice(SCOPES),
            )
            first, second = (each.read(names, narrow, at_ms, scope) for each in (plain, live))
            assert (first.layout, first.cells) == (second.layout, second.cells)
            for one, other in zip(first.values, second.values, strict=True):
                np.testing.assert_array_equal(one, other)
    assert metrics.value("live_reads_total", source="memory") >= 10


def test_nothing_is_read_without_a_scope_or_of_a_denied_metric(store: ChdbStore) -> None:
    table = LiveTable(raw_shape(EntityKind.GPU))
    with pytest.raises(TypeError, match="Scope"):
        table.reading(None, [GAUGE], {}, 0, 1)  # type: ignore[arg-type] # that is what is tested
    with pytest.raises(Rejected, match="does not show") as refused:
        table.reading(scope_of("t1", denied_metrics=frozenset({GAUGE})), [GAUGE], {}, 0, 1)
    assert refused.value.code == "forbidden_metric"
    assert table.reading(scope_of("t1"), [GAUGE], {}, 0, 1) is None


def messages(store: ChdbStore, rows: list[list[Row]]):
    """Yield what a follower of everything is told while some rows are inserted."""
    names = [metric.name for metric in CATALOG.scalars(EntityKind.GPU)]
    told = iter(store.tail.follow({"gpu_1s": raw_shape(EntityKind.GPU).wanted(names)}))
    yield next(told)
    for some in rows:
        insert_rows(store, some)
        yield next(told)
    told.close()


def test_memory_stays_in_the_budget_and_the_oldest_go_first(store: ChdbStore) -> None:
    emptied(store)
    clock, metrics = ManualClock(T0), SelfMetrics()
    window = LiveWindow(Near(store), CATALOG, clock, LiveConfig(mib=1, minutes=20.0), metrics)
    pieces = [
        [
            Row(T0 + 10_000 * piece + 1000 * second, f"GPU-{gpu}", {GAUGE: gpu, POWER: second, COUNTER: piece})
            for second in range(10)
            for gpu in range(32)
        ]
        for piece in range(120)
    ]
    narrowed = False
    for told in messages(store, pieces):
        clock.move(10.0)
        try:
            window.take(told)
        except Stale:
            narrowed = True
            break
        assert metrics.value("live_bytes") <= 1 << 20
    assert narrowed or window.held_from_ms > T0 - 1_200_000
    assert metrics.value("live_rows") < 38_400


def test_a_window_becomes_narrower_without_beginning_again(store: ChdbStore) -> None:
    emptied(store)
    clock, metrics = ManualClock(T0), SelfMetrics()
    gpus, end_ms = 200, T0 + 160_000
    with following(Near(store), clock, LiveConfig(mib=1, minutes=20.0), metrics) as window:
        settled(window)
        for start_ms in range(T0, end_ms, 4_000):
            times = range(start_ms, start_ms + 4_000, 1_000)
            figures = [{POWER: (t - T0) // 1000, LESS: gpu} for t in times for gpu in range(gpus)]
            names = [(t, f"GPU-{gpu}") for t in times for gpu in range(gpus)]
            insert_rows(store, [Row(*name, some) for name, some in zip(names, figures, strict=True)])
            clock.move(4.0)
            if start_ms % 5 == 0:
                settled(window)
        table = settled(window).table("gpu_1s")
        assert table is not None
        from_ms = table.complete_from_ms
        kept = {name: table.reading(scope_of("t1"), [name], {}, from_ms, end_ms) for name in (POWER, LESS)}
        assert rows_of(window) == gpus * (end_ms - from_ms) // 1000
    assert T0 < from_ms < end_ms - 30_000
    assert metrics.value("live_narrow") == 1
    assert metrics.value("live_restarts_total", reason="stale") == 0
    assert kept[LESS] is None
    assert kept[POWER] is not None
    values = np.concatenate([block.values(POWER) for block in kept[POWER].blocks])
    seconds, counts = np.unique(values, return_counts=True)
    assert seconds.tolist() == list(range((from_ms - T0) // 1000, 160))
    assert set(counts.tolist()) == {gpus}


def test_a_window_over_a_store_that_lags_begins_where_its_newest_rows_fit(store: ChdbStore) -> None:
    emptied(store)
    insert_rows(store, [Row(T0 + 1000 * second, f"GPU-{gpu}", {GAUGE: 1}) for second in range(200) for gpu in range(8)])
    clock = ManualClock(T0 + 900_000)
    with following(Near(store), clock, LiveConfig(mib=1, minutes=20.0)) as window:
        settled(window)
        assert window.holds("gpu_1s", T0 + 180_000)
        assert not window.holds("gpu_1s", T0)
        before = rows_of(window)
        insert_rows(store, [Row(T0 + 200_000, f"GPU-{gpu}", {GAUGE: 1}) for gpu in range(8)])
        assert rows_of(settled(window)) == before + 8


def test_a_window_that_was_behind_answers_as_soon_as_it_has_caught_up(
    store: ChdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secondsight.live.window.SETTLE_SECONDS", 0.001)
    emptied(store)
    window = LiveWindow(Near(store), CATALOG, ManualClock(T0), WIDE, SelfMetrics())
    told = messages(store, [[Row(T0, "GPU-a", {GAUGE: 1})]])
    begun = next(told)
    window.settle()
    assert window.table("gpu_1s") is None
    window.take(begun)
    rows = next(told)
    window.settle()
    assert window.table("gpu_1s") is None
    window.take(rows)
    assert rows_of(window) == 1


def test_all_metrics_are_not_tried_where_the_stored_rows_are_far_too_many() -> None:
    budget = Budget(1)
    sizes = {T0 - LEAST_MS: 9 * budget.bytes, T0 - 30_000: 2 * budget.bytes, T0: budget.bytes}
    assert budget.foresee(sizes, {"gpu_1s": 700.0}, T0) == ""
    assert "P0 alone" in budget.foresee(sizes | {T0 - 60_000: 1}, {"gpu_1s": 700.0}, T0)
    assert budget.is_narrow


class Held:
    """A table as a budget sees it."""

    def __init__(self, rows: int) -> None:
        self.rows, self.bytes = rows, 1_000 * rows

    def rows_since(self, _time_ms: int) -> int:
        return self.rows


def test_all_metrics_are_kept_again_when_there_is_room_for_a_while() -> None:
    def judged(rows: int, held_ms: int, *, evicted: bool = False) -> str:
        return budget.judge({"gpu_1s": Held(rows)}, held_ms, T0, evicted=evicted)  # type: ignore[dict-item] # a fake

    budget = Budget(1)
    assert judged(900, LEAST_MS, evicted=True) == ""
    assert "P0 alone" in judged(1_000, LEAST_MS - 1, evicted=True)
    assert budget.is_narrow
    assert [judged(1_000, 2 * LEAST_MS, evicted=False) for _ in range(2 * ROUNDS)] == [""] * 2 * ROUNDS
    assert [judged(690, LEAST_MS - 1) for _ in range(2 * ROUNDS)] == [""] * 2 * ROUNDS
    assert [judged(690, LEAST_MS) for _ in range(ROUNDS - 1)] == [""] * (ROUNDS - 1)
    assert "room" in judged(690, LEAST_MS)
    assert not budget.is_narrow


def test_a_change_that_is_no_insert_begins_the_window_again(store: ChdbStore) -> None:
    emptied(store)
    insert_rows(store, [Row(T0, "GPU-a", {GAUGE: 1})])
    clock, metrics = ManualClock(T0 + 1000), SelfMetrics()
    with following(Near(store), clock, WIDE, metrics) as window:
        assert rows_of(settled(window)) == 1
        store.query("TRUNCATE TABLE gpu_1s")
        window.settle()
        assert rows_of(settled(window)) == 0
        assert metrics.value("live_restarts_total", reason="stale") == 1


def test_a_window_over_the_socket_outlives_its_owner_and_is_never_used_while_it_may_lack_rows(
    store: ChdbStore, tmp_path: Path
) -> None:
    emptied(store)
    insert_rows(store, [Row(T0, "GPU-a", {GAUGE: 1})])
    clock, metrics = ManualClock(T0 + 1000), SelfMetrics()
    server = start_store_server(store, tmp_path / "run")
    reader = FlightStore(tmp_path / "run" / "store.address")
    try:
        with following(reader, clock, WIDE, metrics) as window:
            assert rows_of(settled(window)) == 1
            insert_rows(store, [Row(T0 + 1000, "GPU-a", {GAUGE: 2}), Row(T0 + 1000, "GPU-b", {POWER: 2})])
            assert rows_of(settled(window)) == 3
            server.close()
            window.settle()
            assert window.table("gpu_1s") is None
            insert_rows(store, [Row(T0 + 2000, "GPU-a", {GAUGE: 3})])
            store.tail = Tail()  # as in another process
            server = start_store_server(store, tmp_path / "run")
            assert rows_of(settled(window, tries=1_000)) == 4
            assert metrics.value("live_restarts_total", reason="away") >= 1
    finally:
        reader.close()
        server.close()
        store.tail = Tail()  # a server that is closed ends the followers of its store for good


def rows_of(window: LiveWindow) -> int:
    table = window.table("gpu_1s")
    assert table is not None
    return table.rows


def test_a_slow_follower_is_cut_off_and_told_why(store: ChdbStore) -> None:
    tail = Tail(most_bytes=10_000)
    slow, quick = tail.follow({"gpu_1s": ["entity"]}), tail.follow({"gpu_1s": ["entity"]})
    rows = store.query("SELECT toString(number) AS entity FROM numbers(200)")
    reader = iter(quick)
    assert next(reader).kind == BEGIN
    for _ in range(40):
        tail.publish("gpu_1s", rows)
        assert next(reader).kind == ROWS
    assert tail.cut_off == 1
    with pytest.raises(StoreBusy, match="cut off"):
        list(slow)
    tail.publish("gpu_1s", rows)
    assert next(reader).number == 41


def test_without_followers_nothing_is_done_and_a_closed_tail_ends_them() -> None:
    tail = Tail()
    tail.publish("gpu_1s", None)
    assert tail.position[1] == 0
    reader = iter(tail.follow({"gpu_1s": []}))
    next(reader)
    ended = threading.Timer(0.1, tail.close)
    ended.start()
    with pytest.raises(StoreBusy, match="closing"):
        list(reader)
    with pytest.raises(StoreBusy):
        tail.follow({})
