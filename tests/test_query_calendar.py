"""Windows that follow the clocks of a zone: hours, days and months, over changes of clocks, from stored rollups."""

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_fixture import Row, insert_entity, insert_progress, insert_rollups, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.answer import to_json
from secondsight.query.calendar import Calendar, edges_of, parse_zone, unequal_windows
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Situation, plan_series
from secondsight.query.request import Format, QueryText, parse_query
from secondsight.query.run import QueryRunner

CATALOG = load_catalog()
CASE = json.loads(
    (Path(__file__).parent / "cases" / "query" / "113-two-hour-buckets-over-spring-change.jsonl").read_text()
)
HOUR_MS = 3_600_000
ENERGY, UTIL = "gpu_energy_joules_total", "gpu_utilization_ratio"
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe")


def local_ms(zone, *moment):
    return round(datetime(*moment, tzinfo=ZoneInfo(zone)).timestamp() * 1000)


BEGIN = local_ms(CASE["zone"], 2024, 3, 9)
END = local_ms(CASE["zone"], 2024, 3, 12)
NOW = END + 20 * HOUR_MS


@pytest.fixture(scope="module")
def filled(store):
    """One GPU of each cluster with a sample every minute over three days, as rows of 30 s."""
    rows = [
        Row(t, f"GPU-{cluster}", {UTIL: 50}, cluster=cluster, host=f"h-{cluster}", collector=cluster, interval=60_000)
        for cluster in ("c1", "c2")
        for t in range(BEGIN, END, 60_000)
    ]
    insert_rollups(store, rows, NOW)
    for row in {row.series: row for row in rows}.values():
        insert_entity(store, row, BEGIN)
        insert_progress(store, row, NOW, NOW)
    return store


def ask(store, resolution, zone, **fields):
    text = QueryText(
        UTIL, {"cluster": "c1"}, str(BEGIN), str(END), resolution, "count", "cluster", timezone=zone, **fields
    )
    clock = ManualClock(NOW)
    return QueryRunner(store, clock, Inventory(store, clock)).run(parse_query(text, CATALOG, NOW), scope_of("t1"))


def seconds_of(answer):
    (one,) = answer.series
    return dict(zip(one.times_ms.tolist(), one.values.tolist(), strict=True))


def test_113_two_hour_buckets_over_the_spring_change_add_up_to_the_day(filled):
    zone, midnight = CASE["zone"], local_ms(CASE["zone"], 2024, 3, 10)
    share = CASE["gpu_seconds_per_hour"] / 3600
    found = seconds_of(ask(filled, "2h", zone))
    day = {start: value for start, value in found.items() if midnight <= start < local_ms(zone, 2024, 3, 11)}
    # a sample a minute covers half of it: what it covers ends with its window of 30 s
    assert day[midnight] == 7200 * share / 2
    assert day[midnight + 2 * HOUR_MS] == 3600 * share / 2
    assert sum(day.values()) == 82_800 * share / 2
    days = seconds_of(ask(filled, "1d", zone))
    assert [value * 2 for value in days.values()] == [86_400, 82_800, 86_400]


def test_an_answer_says_its_zone_and_which_days_are_not_like_others(filled):
    body = to_json(ask(filled, "1d", CASE["zone"]), Format.COLUMNS)
    assert body["timezone"] == CASE["zone"]
    assert body["unequalWindows"] == [{"ts": "2024-03-10T05:00:00.000Z", "seconds": 82_800}]
    assert to_json(ask(filled, "1d", ""), Format.COLUMNS).keys() & {"timezone", "unequalWindows"} == set()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("resolution", ["1h", "2h", "1d", "1mo"])
def test_all_windows_of_a_zone_together_are_the_range(filled, zone, resolution):
    answer = ask(filled, resolution, zone)
    assert sum(seconds_of(answer).values()) * 2 == (END - BEGIN) / 1000
    assert answer.coverage.stored == (END - BEGIN) // 60_000


@pytest.mark.parametrize(
    ("zone", "resolution"),
    [("Europe/Berlin", "cluster_1h"), ("Asia/Kolkata", "cluster_5m"), ("UTC", "cluster_1d")],
)
def test_days_are_made_of_the_coarsest_rows_that_fit(zone, resolution):
    text = QueryText(UTIL, {}, str(BEGIN), str(END), "1d", "avg", "cluster", timezone=zone)
    query = parse_query(text, CATALOG, NOW)
    through = tuple((name, NOW) for name in ("5m", "1h", "1d", "cluster_5m", "cluster_1h", "cluster_1d"))
    plan = plan_series(query, query.selected[0], Situation(NOW, rollup_through_ms=NOW, coarse_through_ms=through))
    assert {leg.resolution for leg in plan.legs} == {resolution}


@given(
    st.sampled_from(ZONES), st.integers(0, 4_000_000_000), st.integers(1, 400), st.sampled_from([1, 2, 6, 24, 48, 168])
)
def test_windows_follow_each_other_and_hold_the_range(zone, start_s, hours, width_hours):
    from_ms, to_ms = start_s * 1000, start_s * 1000 + hours * HOUR_MS
    edges = edges_of(Calendar(zone), width_hours * HOUR_MS, from_ms, to_ms)
    assert edges[0] <= from_ms
    assert edges[-1] >= to_ms
    assert all(early < late <= early + width_hours * HOUR_MS + 2 * HOUR_MS for early, late in pairwise(edges))
    at_midnight = [datetime.fromtimestamp(edge / 1000, ZoneInfo(zone)).hour for edge in edges]
    assert width_hours < 24 or set(at_midnight) <= {0, 1}


CHANGES = [
    ("America/New_York", (2024, 11, 3), 60, [60] * 25),
    ("America/New_York", (2024, 3, 10), 60, [60] * 23),
    ("America/New_York", (2024, 11, 3), 30, [30] * 50),
    ("America/New_York", (2024, 11, 3), 360, [420, 360, 360, 360]),
    ("America/New_York", (2024, 3, 10), 45, [45, 45, 30, *[45] * 28]),
    ("America/Havana", (2024, 11, 3), 60, [60] * 25),
    ("America/Havana", (2024, 11, 3), 120, [180, *[120] * 11]),
    ("America/Sao_Paulo", (2018, 11, 4), 120, [60, *[120] * 11]),
    ("Asia/Beirut", (2022, 10, 29), 60, [60] * 25),
    ("Australia/Lord_Howe", (2024, 4, 7), 30, [30] * 49),
    ("Australia/Lord_Howe", (2024, 4, 7), 60, [60, 90, *[60] * 22]),
    ("Australia/Lord_Howe", (2024, 10, 6), 60, [60, 60, 30, *[60] * 21]),
    ("Pacific/Chatham", (2024, 4, 7), 60, [60] * 25),
    ("Pacific/Chatham", (2024, 9, 29), 180, [165, 135, *[180] * 6]),
    ("Antarctica/Troll", (2024, 10, 27), 120, [120] * 13),
    ("Asia/Kathmandu", (2024, 2, 29), 360, [360] * 4),
    ("Pacific/Apia", (2011, 12, 29), 1440, [1440]),
    ("America/New_York", (2024, 11, 3), 1440, [1500]),
]
"""Zone, a day on which clocks change, width of windows and the lengths that they have, in minutes."""


@pytest.mark.parametrize(("zone", "day", "width", "lengths"), CHANGES)
def test_windows_over_a_change_of_clocks(zone, day, width, lengths):
    begin = local_ms(zone, *day)
    edges = edges_of(Calendar(zone), width * 60_000, begin, begin + sum(lengths) * 60_000)
    assert [(late - early) // 60_000 for early, late in pairwise(edges)] == lengths
    assert edges[0] == begin


@pytest.mark.parametrize("days", [2, 7, 10, 30])
def test_several_days_are_counted_alike_in_every_zone(days):
    width_ms = days * 24 * HOUR_MS
    edges = edges_of(Calendar("UTC"), width_ms, BEGIN, END)
    assert edges[0] == BEGIN // width_ms * width_ms
    there = edges_of(Calendar("Pacific/Chatham"), width_ms, BEGIN, END)
    assert {datetime.fromtimestamp(edge / 1000, ZoneInfo("Pacific/Chatham")).toordinal() % days for edge in there} == {
        datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")).toordinal() % days
    }


def test_months_have_their_own_lengths():
    edges = edges_of(
        Calendar("Europe/Berlin", 1), 0, local_ms("Europe/Berlin", 2024, 2, 3), local_ms("Europe/Berlin", 2024, 4, 1)
    )
    assert [(late - early) // HOUR_MS for early, late in pairwise(edges)] == [29 * 24, 31 * 24 - 1]
    assert [seconds for _, seconds in unequal_windows(edges)] == [(31 * 24 - 1) * HOUR_MS]


@pytest.mark.parametrize("name", ["Nowhere/Land", "../../etc/passwd", "", "x" * 200])
def test_a_zone_that_there_is_not_is_refused(name):
    with pytest.raises(Rejected) as refused:
        parse_zone(name)
    assert refused.value.code == "bad_timezone"


def test_a_kind_of_rows_without_clusters_has_days_too():
    text = QueryText(
        "node_cpu_utilization_ratio", {}, str(BEGIN), str(END), "1d", "avg", "host", timezone="Europe/Berlin"
    )
    query = parse_query(text, CATALOG, NOW)
    assert query.selected[0].metric.kind is EntityKind.NODE
    assert plan_series(query, query.selected[0], Situation(NOW)).edges
