"""What is read from the lake, or from both tiers, is what the hot store gave before it let go of its rows."""

import os
import signal
from dataclasses import replace
from itertools import product

import pytest

from cold_rig import COUNTER, EDGE, END, FROM, GAUGE, MASK, STATE, USED, Site, comparable
from query_fixture import scope_of
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_pool import ColdPool
from secondsight.lake.cold_request import ColdRequest, Reach
from secondsight.lake.config import CatalogConfig
from secondsight.query.aggregates import BUCKETS
from secondsight.store.failures import QueryLimited
from test_query_histograms import LATENCY

FINE = {"gpu_1s": EDGE, "histograms_1s": EDGE}
FLOORS = {
    "seconds": FINE,
    "fine": FINE | {"gpu_30s": EDGE},
    "all": FINE | {"gpu_30s": EDGE, "gpu_5m": EDGE, "gpu_1h": EDGE, "gpu_1d": EDGE},
    "gone": dict.fromkeys(("gpu_1s", "gpu_30s", "gpu_5m", "gpu_1h", "gpu_1d", "histograms_1s"), END + 86_400_000),
}
"""Name -> table -> from when on the hot store has every row."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


AGGREGATES = [
    *product([GAUGE], ["avg", "min", "max", "last", "count", "sum", "p95"]),
    *product([USED], ["avg", "max", "sum"]),
    *product([COUNTER], ["rate", "increase", "resets"]),
    *product([STATE, MASK], ["last", "changes"]),
]
SHAPES = [
    ("10s", "gpu"),
    ("1m", "cluster"),
    ("7m", "gpu"),
    ("15m", "total"),
    ("2h", "gpu,team"),
    ("1d", "cluster"),
    ("range", "gpu"),
    ("range", "gpuModel"),
]
QUESTIONS = [
    (metric, {"aggregate": aggregate, "resolution": resolution, "group_by": "gpu" if aggregate == "last" else group})
    for number, (metric, aggregate) in enumerate(AGGREGATES)
    for resolution, group in [SHAPES[(number + step) % len(SHAPES)] for step in (0, 4)]
]


def drop(site: Site, floors) -> None:
    """Take from the hot store what lies below floors; it is put back by `restored`."""
    site.floors = dict(floors)
    for table, floor in floors.items():
        time = "event_time" if table.endswith("1s") else "window_start"
        site.store.query(
            f"ALTER TABLE {table} DELETE WHERE {time} < fromUnixTimestamp({floor // 1000}) SETTINGS mutations_sync = 1"
        )


WIDER = [
    (GAUGE, {"resolution": "1s", "from_": str(EDGE - 30_000), "to": str(EDGE + 30_000)}),
    (f"{GAUGE},{COUNTER},{STATE}", {"resolution": "10s", "gpu": ("GPU-a",)}),
    (GAUGE, {"resolution": "1m", "team": ("blue",), "group_by": "total"}),
    (GAUGE, {"resolution": "1m", "gpu_model": ("H100",), "group_by": "gpuModel"}),
    (USED, {"resolution": "45s", "host": ("h2",), "aggregate": "max"}),
    (COUNTER, {"resolution": "90s", "cluster": ("c1",), "group_by": "cluster"}),
    (GAUGE, {"resolution": "15m", "from_": str(FROM), "to": str(EDGE)}),
    (GAUGE, {"resolution": "1h", "timezone": "Asia/Kathmandu", "group_by": "cluster"}),
    (GAUGE, {"resolution": "range", "group_by": "cluster", "from_": str(EDGE - 300_000), "to": str(EDGE + 300_000)}),
    *(
        (LATENCY, {"aggregate": aggregate, "resolution": resolution, "group_by": "cluster"})
        for aggregate, resolution in product(["p95", "avg", "rate", "count"], ["1m", "1h", "range"])
    ),
    *(
        (LATENCY, {"by_bucket": aggregate, "resolution": resolution, "group_by": "host,gpu"})
        for aggregate, resolution in product(sorted(BUCKETS), ["1m", "range"])
    ),
]
"""Filters, several metrics at once, edges, resolutions between the stored ones, histograms."""


@pytest.fixture(scope="module")
def before(site: Site):
    """What the hot store answers while it has everything, and which gaps there are."""
    return [comparable(site.ask(metric, **fields)) for metric, fields in [*QUESTIONS, *WIDER]], told(site)


def told(site: Site):
    """Return gaps with their reasons, and what a backlog closed."""
    found, filled = site.gaps()
    gaps = [(one.gap.key, one.gap.start_ms, one.gap.end_ms, one.gap.expected, one.reason) for one in found.gaps]
    return gaps, filled[0]


@pytest.mark.parametrize("name", FLOORS)
def test_answers_are_the_same_whichever_tier_they_are_of(site, before, name):
    answers, (gaps, filled) = before
    assert all(series for series, *_ in answers)
    assert any(start_ms < EDGE < end_ms for _, start_ms, end_ms, *_ in gaps)
    assert filled
    drop(site, FLOORS[name])
    differing = []
    for (metric, fields), wanted in zip([*QUESTIONS, *WIDER], answers, strict=True):
        answer = site.ask(metric, **fields)
        if comparable(answer) != wanted:
            differing.append((metric, fields, answer.tier, answer.warnings, comparable(answer), wanted))
    assert not differing, (len(differing), [each[:4] for each in differing], differing[0])
    assert told(site) == (gaps, filled)
    found, closed = site.gaps()
    assert found.tier == closed[1] == ("cold" if name == "gone" else "hot+cold")
    assert not found.missing


SCOPES = {
    "other tenant": scope_of("t2"),
    "both tenants": scope_of("t1", "t2"),
    "one cluster": scope_of("t1", clusters=frozenset({"c2"})),
    "a team": scope_of("t1", teams=frozenset({"red"})),
    "nobody's team": scope_of("t1", teams=frozenset({"green"})),
    "two boxes": replace(scope_of("t1", clusters=frozenset({"c2"})), others=(scope_of("t2"),)),
}


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("fields", [{"resolution": "10s"}, {"resolution": "5m", "group_by": "team"}])
def test_the_lake_shows_what_the_scope_shows_and_no_more(site, name, fields):
    """The rows of the hot store are gone by now: `test_answers_are_the_same` ran before."""
    site.floors = FLOORS["gone"]
    scope = SCOPES[name]
    answer = site.ask(GAUGE, scope=scope, group_by=fields.get("group_by", "gpu"), resolution=fields["resolution"])
    seen = {(one.labels["tenantId"], one.labels.get("clusterId"), one.labels.get("ownerTeam")) for one in answer.series}
    tenants = {tenant for tenant, *_ in seen}
    assert tenants <= set(scope.all_tenant_ids)
    assert bool(seen) == (name != "nobody's team")
    if name == "a team":
        latest = max(one.times_ms.max() for one in answer.series)
        assert latest < EDGE  # the second half is of another team
        assert {team for *_, team in seen} <= {"red", None}
    if name == "one cluster" and "group_by" not in fields:
        assert {cluster for _, cluster, _ in seen} == {"c2"}


def test_an_answer_says_which_tier_it_is_of(site):
    site.floors = {}
    assert site.ask(GAUGE).tier == "hot"
    site.floors = FLOORS["seconds"]
    assert site.ask(GAUGE, resolution="10s").tier == "hot+cold"
    assert site.ask(GAUGE, resolution="10s", to=str(EDGE)).tier == "cold"
    assert site.ask(GAUGE, resolution="10s", from_=str(EDGE)).tier == "hot"


def test_a_lake_that_is_away_makes_the_answer_partial(site, tmp_path):
    site.floors = FLOORS["seconds"]
    broken = ColdPool(ColdConfig(CatalogConfig(uri=f"sqlite:///{tmp_path}/none/catalog.sqlite")), tmp_path)
    answer = site.ask(GAUGE, resolution="10s", pool=broken)
    found, closed = site.gaps(pool=broken)
    latency = site.ask(LATENCY, resolution="1m", group_by="cluster", pool=broken)
    broken.close()
    assert latency.partial
    assert found.missing
    assert closed[2]
    assert all(one.gap.end_ms > EDGE for one in found.gaps)
    assert answer.partial
    assert answer.tier == "hot"
    assert any("lake" in warning for warning in answer.warnings)


def test_a_process_that_was_killed_is_replaced(site):
    site.floors = FLOORS["gone"]
    first = comparable(site.ask(GAUGE, resolution="1m"))
    worker = site.pool._free.get()
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()
    worker.kill()
    site.pool._free.put(worker)
    assert comparable(site.ask(GAUGE, resolution="1m")) == first


def test_a_question_that_takes_too_long_is_given_up_and_its_process_killed(site):
    slow = ColdPool(ColdConfig(), site.folder)
    reach = Reach(FROM, END)
    endless = "SELECT sum(hash(range)) AS n FROM range(1000000000000)"
    assert slow.query(ColdRequest("SELECT 1 AS n", {}, reach)).to_pylist() == [{"n": 1}]
    quick = ColdPool(ColdConfig(seconds=0.3), site.folder)
    quick._free = slow._free
    with pytest.raises(QueryLimited) as limited:
        quick.query(ColdRequest(endless, {}, reach))
    assert limited.value.code == "query_timeout"
    assert slow.query(ColdRequest("SELECT 2 AS n", {}, reach)).to_pylist() == [{"n": 2}]
    slow.close()


def test_a_question_that_needs_too_much_memory_is_refused(site):
    small = ColdPool(ColdConfig(memory_mib=64), site.folder)
    wide = "SELECT count(DISTINCT x) AS n FROM (SELECT hash(range) AS x FROM range(50000000))"
    with pytest.raises(QueryLimited) as limited:
        small.query(ColdRequest(wide, {}, Reach(FROM, END)))
    assert limited.value.code == "memory_limit"
    assert small.query(ColdRequest("SELECT 3 AS n", {}, Reach(FROM, END))).to_pylist() == [{"n": 3}]
    small.close()
