"""The newest second worth showing: a lag is waited for and said, who is silent beside others is not waited for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_rig import Near, following, settled
from query_fixture import T0, Row, insert_entity, insert_rows, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.live.config import LiveConfig
from secondsight.live.window import LiveWindow
from secondsight.query.board import BoardSource, StoreBoards
from secondsight.query.inventory import Inventory
from secondsight.query.liveboard import LiveBoards
from secondsight.query.newest import APART_MS, SLOTS, WAITED_MS, hosts_of, latest_second, second_told
from secondsight.query.request import Filters
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
GAUGE = "gpu_utilization_ratio"
NOW = T0 + 120_000
LATEST = latest_second(NOW)


def told_by(clusters: dict[str, list[int | None]], cadence_ms: int = 1000) -> int:
    """Return the newest second where hosts of clusters told so many seconds before the latest one; None is never."""
    cells = [
        (("t1", cluster, f"h{number:03}"), cadence_ms)
        for cluster, hosts in clusters.items()
        for number in range(len(hosts))
    ]
    ages = [age for hosts in clusters.values() for age in hosts]
    told_ms = np.array([0 if age is None else LATEST - 1000 * age for age in ages], np.int64)
    return (LATEST - second_told(hosts_of(cells), told_ms, LATEST)) // 1000


@pytest.mark.parametrize(
    ("clusters", "behind"),
    [
        ({"c1": [0] * 20}, 0),
        ({"c1": [0, 1, 2, 2] * 5}, 0),
        ({"c1": [8] * 20}, 8),
        ({"c1": [7, 8, 9, 9] * 5}, 9),
        ({"c1": [0] * 20, "c2": [9] * 20}, 9),
        ({"c1": [0] * 20, "c2": [9]}, 9),
        ({"c1": [0] * 19 + [9]}, 0),
        ({"c1": [0] * 18 + [9, 12]}, 0),
        ({"c1": [8] * 19 + [None]}, 8),
        ({"c1": [0, 9]}, 0),
        ({"c1": [0, None]}, 0),
        ({"c1": [0] * 20, "c2": [None] * 20}, 0),
        ({"c1": [0] * 20, "c2": [16] * 20}, 0),
        ({"c1": [0] * 20, "c2": [16] * 30}, 16),
        ({"c1": [0] * 30, "c2": [16] * 20}, 0),
        ({"c1": [0] * 10 + [20] * 10 + [None] * 10, "c2": [1] * 10}, 0),
        ({"c1": [9]}, 9),
        ({"c1": [29]}, 29),
        ({"c1": [40] * 20}, 30),
        ({"c1": [None]}, 30),
        ({}, 0),
    ],
)
def test_a_lag_is_waited_for_and_who_is_silent_is_not(clusters: dict[str, list[int | None]], behind: int) -> None:
    assert told_by(clusters) == behind


def test_hosts_that_tell_seldom_hold_nobody_back() -> None:
    assert told_by({"c1": [14] * 20}, 15_000) == 0
    assert told_by({"c1": [44] * 20}, 15_000) == 0
    assert told_by({"c1": [44] * 20}, 5_000) == 30


AGES = st.lists(st.one_of(st.none(), st.integers(0, 60)), min_size=1, max_size=30)
FLEETS = st.dictionaries(st.sampled_from(["c1", "c2", "c3"]), AGES, min_size=1)


@given(FLEETS)
def test_at_the_newest_second_those_waited_for_have_values(clusters: dict[str, list[int | None]]) -> None:
    behind = told_by(clusters)
    assert 0 <= behind <= WAITED_MS // 1000
    lags = {
        cluster: [max(age * 1000 - 999, 0) for age in hosts if age is not None] for cluster, hosts in clusters.items()
    }
    known = sorted(lag for hosts in lags.values() for lag in hosts if lag < WAITED_MS)
    if not known:
        assert behind == WAITED_MS // 1000
        return
    reach = min(known[(len(known) - 1) // 2] + APART_MS, WAITED_MS)
    for hosts in lags.values():
        waited = [lag for lag in hosts if lag < reach]
        lacking = sum(-(-lag // 1000) - behind >= SLOTS for lag in waited)
        assert lacking <= max(len(waited) // 10, int(len(waited) > 1))


@given(FLEETS, st.integers(0, 12))
def test_a_lag_of_all_moves_the_second_by_as_much(clusters: dict[str, list[int | None]], lag: int) -> None:
    near = {cluster: [None if age is None else age % 3 for age in hosts] for cluster, hosts in clusters.items()}
    lagging = {cluster: [None if age is None else age + lag for age in hosts] for cluster, hosts in near.items()}
    if any(age is not None for hosts in near.values() for age in hosts):
        assert told_by(near) == 0
        assert max(lag - SLOTS + 1, 0) <= told_by(lagging) <= lag + 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = ChdbStore(tmp_path_factory.mktemp("newest") / "hot", readers=2)
    migrate(made, CATALOG)
    yield made
    made.close()


def filled(store: ChdbStore, through_seconds: dict[tuple[str, str], int]) -> None:
    """Let hosts tell every second from T0 on through a second, each of two GPUs."""
    for table in ("gpu_1s", "entities"):
        store.query(f"TRUNCATE TABLE {table}")
    for (cluster, host), through in through_seconds.items():
        for gpu in ("a", "b"):
            of = {"cluster": cluster, "host": host, "collector": f"agent-{host}"}
            rows = [Row(T0 + 1000 * second, f"GPU-{host}-{gpu}", {GAUGE: second}, **of) for second in range(through)]
            insert_rows(store, rows)
            insert_entity(store, rows[0], T0)


def sources(store: ChdbStore, window: LiveWindow, clock: ManualClock) -> list[BoardSource]:
    plain = StoreBoards(Inventory(store, clock))
    return [plain, LiveBoards(Inventory(store, clock), window, plain)]


FRESH, LAGGING, SILENT = 118, 109, 60
FLEET_OF = [("c1", f"h{number}") for number in range(4)] + [("c2", f"g{number}") for number in range(4)]


@pytest.mark.parametrize(
    ("late", "age", "behind", "hatched"),
    [
        ([], FRESH, 0, 0),
        (FLEET_OF, LAGGING, 9, 0),
        (FLEET_OF[4:], LAGGING, 9, 0),
        (FLEET_OF[:1], SILENT, 0, 2),
        (FLEET_OF[:1], LAGGING, 0, 2),
    ],
    ids=["nobody", "the processor", "one cluster", "a silent host", "one host"],
)
def test_store_and_window_show_the_same_second(
    store: ChdbStore, late: list[tuple[str, str]], age: int, behind: int, hatched: int
) -> None:
    filled(store, {place: age + 1 if place in late else FRESH + 1 for place in FLEET_OF})
    clock = ManualClock(NOW)
    with following(Near(store), clock, LiveConfig(mib=256, minutes=20.0)) as window:
        settled(window)
        for source in sources(store, window, clock):
            at_ms = source.newest_ms(Filters(), NOW, scope_of("t1"))
            assert (LATEST - at_ms) // 1000 == behind
            board = source.read((CATALOG.get(GAUGE),), Filters(), at_ms, scope_of("t1"))
            assert int(np.isnan(board.values[0]).sum()) == hatched
            only = source.newest_ms(Filters(cluster=("c1",)), NOW, scope_of("t1"))
            assert (LATEST - only) // 1000 == (behind if FLEET_OF[0] in late else 0)
            assert source.newest_ms(Filters(), NOW, scope_of("t2")) == LATEST
