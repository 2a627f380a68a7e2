"""What one tenant may ask: turns, rates, budgets, kept answers, tags, and clients that go away."""

import asyncio
import os
import socket
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_client import serving
from query_fixture import T0, Row, insert_entity, insert_progress, insert_rewrite, insert_rows, scope_of
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.admission import Admission, Limits, Throttled
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.api.tagged import is_known
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.query.cache import AnswerCache, Epoch, is_settled
from secondsight.query.request import QueryText, parse_query
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.statement import MUCH_PRIORITY

CATALOG = load_catalog()
GAUGE = "gpu_utilization_ratio"
NOW = T0 + 1_000_000
RANGE = {"from": str(T0), "to": str(T0 + 120_000)}
LIMITS = Limits(1000, 1000, 4, 3, 50, 1000, 30)


def rows(first, last):
    return [Row(T0 + second * 1000, "GPU-a", {GAUGE: 1000 + second}) for second in range(first, last)]


class Counting:
    """A store that counts its statements."""

    def __init__(self, store):
        self._store = store
        self.statements = []

    def query(self, sql, params=None, settings=None):
        self.statements.append(sql)
        return self._store.query(sql, params, settings)

    def insert(self, table, data):
        self._store.insert(table, data)

    def close(self):
        self._store.close()

    def points(self):
        return sum("gpu_1s" in sql for sql in self.statements)


class Api:
    def __init__(self, folder, **config) -> None:
        self.clock = ManualClock(NOW)
        owner = ChdbStore(folder / "hot", readers=4)
        migrate(owner, CATALOG)
        self.store = Counting(owner)
        insert_rows(self.store, rows(0, 100))
        insert_entity(self.store, rows(0, 1)[0], T0)
        insert_progress(self.store, rows(0, 1)[0], T0 + 900_000, T0)
        self.metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        self.config = ApiConfig(data=folder, **config)
        self.services = make_services(self.config, self.store, self.metadata, CATALOG, self.clock)
        specs = {
            "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
            "same": TokenSpec(Role.VIEWER, "t1", "same", grants=(Grant("t1"),)),
            "other": TokenSpec(Role.VIEWER, "t2", "other", grants=(Grant("t2"),)),
        }
        self.tokens = {name: create_token(self.metadata, spec, NOW).secret for name, spec in specs.items()}

    def get(self, path, token="admin", headers=None, **params):
        return self.client.get(path, params, {"authorization": f"Bearer {self.tokens[token]}"} | (headers or {}))


@pytest.fixture
def make(tmp_path):
    stack = []

    def start(**config):
        made = Api(tmp_path, **config)
        block = serving(make_app(made.services), made.config)
        made.client = block.__enter__()
        stack.append(block)
        return made

    yield start
    for block in stack:
        block.__exit__(None, None, None)


def asked(api, token="admin"):
    return api.get("/v1/metrics/query", token, metric=GAUGE, resolution="30s", **RANGE).json()


def test_an_answer_that_cannot_change_is_kept_and_seen_by_all_who_may_read_the_same(make):
    api = make()
    first = asked(api)
    assert asked(api) == first, "what is asked twice is kept"
    read = api.store.points()
    assert read
    assert asked(api) == first
    assert asked(api, "same") == first
    assert api.store.points() == read
    assert asked(api, "other")["series"] == []
    assert api.store.points() > read


def test_rows_that_come_later_are_seen(make):
    """CAC-1: a query, rows inside its range, the query again; a kept answer never differs from a fresh one."""
    api = make()
    first = asked(api)
    assert [asked(api), asked(api)] == [first, first]
    insert_rows(api.store, rows(100, 110))
    insert_rewrite(api.store, "gpu_30s", T0 + 90_000, T0 + 120_000)
    api.clock.move(1)
    second = asked(api)
    assert second["coverage"]["storedSamples"] == first["coverage"]["storedSamples"] + 10


def test_a_backlog_that_moves_a_watermark_inside_the_range_is_seen(make):
    api = make()
    insert_progress(api.store, Row(T0, "GPU-b", {}, collector="agent-b"), T0 + 60_000, T0, idle=True)
    api.clock.move(1)
    first = asked(api)
    assert [asked(api), asked(api)] == [first, first]
    insert_rows(api.store, [replace(row, entity="GPU-b", collector="agent-b") for row in rows(0, 100)])
    insert_progress(api.store, Row(T0, "GPU-b", {}, collector="agent-b"), T0 + 900_000, T0, idle=True, version=2)
    api.clock.move(1)
    assert {series["gpuId"] for series in asked(api)["series"]} == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"partial": True}, False),
        ({"complete_through_ms": T0}, False),
        ({"complete_through_ms": None}, False),
    ],
)
def test_nothing_partial_or_past_the_watermark_is_kept(make, changes, kept):
    """CAC-2: what was cut short, or may still grow, is asked for anew."""
    api = make()
    query = parse_query(QueryText(GAUGE, {}, str(T0), str(T0 + 120_000)), CATALOG, NOW)
    scope = scope_of("t1")
    answer = replace(api.services.runner.run(query, scope), **changes)
    assert is_settled(answer, Epoch(b"", 0), NOW) is kept
    assert not is_settled(answer, Epoch(b"", NOW - 1000), NOW)


def test_kept_answers_stay_inside_their_bound(make):
    api = make()
    query = parse_query(QueryText(GAUGE, {}, str(T0), str(T0 + 120_000)), CATALOG, NOW)
    answer = api.services.runner.run(query, scope_of("t1"))
    cache = AnswerCache(40_000, api.clock)
    for number in range(200):
        cache.put(number, answer)
        assert cache.used_bytes <= 40_000
    assert cache.get(199) is answer
    assert cache.get(0) is None
    api.clock.move(61)
    assert cache.get(199) is None


def test_who_has_an_answer_is_told_that_nothing_changed(make):
    api = make()
    first = api.get("/v1/catalog")
    assert first.headers["etag"].startswith('W/"')
    again = api.get("/v1/catalog", headers={"if-none-match": f'"x", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert api.get("/v1/catalog", headers={"if-none-match": '"x"'}).content == first.content
    assert is_known('W/"a"', "*")


def test_a_client_that_goes_ends_its_question(make):
    api = make()
    began, ended = threading.Event(), threading.Event()
    endless = "SELECT count() FROM system.numbers WHERE NOT ignore(sleepEachRow(0.01)) SETTINGS max_block_size=10"
    query = api.store.query

    def slow(sql, params=None, settings=None):
        if "gpu_1s" in sql:
            began.set()
            try:
                return query(endless)
            finally:
                ended.set()
        return query(sql, params, settings)

    api.store.query = slow
    with socket.create_connection(("127.0.0.1", api.client.port), timeout=30) as client:
        head = f"GET /v1/metrics/query?metric={GAUGE}&from={T0} HTTP/1.1\r\nhost: x\r\n"
        client.sendall(f"{head}authorization: Bearer {api.tokens['admin']}\r\n\r\n".encode())
        assert began.wait(30)
    assert ended.wait(30)
    api.store.query = query
    running = "SELECT 1 AS one FROM system.processes WHERE query LIKE '%sleepEachRow%' AND query NOT LIKE '%processes%'"
    assert query(running).num_rows == 0
    until = time.monotonic() + 30
    while api.services.admission.running:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_too_many_requests_are_told_when_to_come_back(make):
    api = make(requests_per_second=1.0, requests_burst=3.0)
    answers = [api.get("/v1/fleet") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].json()["error"]["code"] == "rate_limited"
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert api.get("/v1/fleet", "same").status_code == 200
    api.clock.move(2)
    assert api.get("/v1/fleet").status_code == 200
    told = api.client.get("/metrics").text
    assert 'api_rate_limited_total{limit="rate_limited",route="/v1/fleet"} 2' in told
    assert (
        api.services.selfmetrics.value("api_rate_limited_total", limit="rate_limited", route="/v1/fleet", tenant="t1")
        == 2
    )


def test_a_tenant_that_used_its_time_waits_for_more(make):
    api = make(tenant_query_seconds=6.0)
    api.services.admission._tenants["t1"].budget.take(6.0)
    answer = api.get("/v1/fleet")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "query_budget")
    assert api.get("/v1/fleet", "other").status_code == 200
    api.clock.move(10)
    assert api.get("/v1/fleet").status_code == 200


async def _turns(limits, script):
    """Run a script of (tenant, "ask"), (tenant, "done"); return who runs after each step."""
    admission = Admission(limits, ManualClock())
    running, tasks, history = [], [], []

    async def ask(tenant):
        done = asyncio.Event()
        try:
            async with admission.turn(tenant):
                running.append((tenant, done))
                await done.wait()
        except Throttled:
            return

    for tenant, what in script:
        if what == "ask":
            tasks.append(asyncio.create_task(ask(tenant)))
        else:
            for each in [one for one in running if one[0] == tenant][:1]:
                running.remove(each)
                each[1].set()
        for _ in range(5):
            await asyncio.sleep(0)
        history.append([name for name, _ in running])
        assert len(running) == admission.running
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert admission.running == 0
    return history


def test_a_tenant_that_asks_little_never_waits_behind_those_that_ask_much():
    script = [(f"t{number % 3}", "ask") for number in range(30)]
    history = asyncio.run(_turns(LIMITS, [*script, ("quiet", "ask")]))
    assert len(history[-2]) == 3, "the last turn is kept for a tenant that has none running"
    assert history[-1].count("quiet") == 1


def test_ten_that_ask_as_much_as_they_may_leave_an_eleventh_its_turn_each_time():
    script = [(f"t{number % 10}", "ask") for number in range(40)] + [("t2", "done"), ("t2", "ask")]
    for number in range(30):
        busy = f"t{number % 10}"
        script += [("quiet", "ask"), (busy, "done"), (busy, "ask"), ("quiet", "done"), (busy, "done"), (busy, "ask")]
    limits = replace(LIMITS, at_once=3)
    history = asyncio.run(_turns(limits, script))
    asked = [running for (who, what), running in zip(script, history, strict=True) if (who, what) == ("quiet", "ask")]
    assert all("quiet" in running for running in asked), "it begins at once, whoever else waits"
    beside = [sum(name != "quiet" for name in running) for running in history[42:]]
    assert max(beside) == limits.at_once - 1


def test_questions_beside_others_have_a_share_of_the_cores_and_come_after_those_who_ask_little(make):
    api = make(queries=8)
    asked, query, tenant = [], api.store.query, api.services.admission._tenants["t1"]
    api.store.query = lambda sql, params=None, settings=None: asked.append(settings) or query(sql, params, settings)

    def manners():
        asked.clear()
        api.clock.move(10)
        assert api.get("/v1/fleet").status_code == 200
        return [{name: each[name] for name in ("max_threads", "priority") if name in each} for each in asked]

    assert manners()
    assert not any(manners())
    api.services.admission._running += 2
    share = {"max_threads": max((os.cpu_count() or 1) // 3, 1)}
    assert [each for each in manners() if each != share] == []
    tenant.running += 2
    assert [each for each in manners() if each != share] == [], "nobody else asks"
    api.services.admission._tenants["t2"].running += 1
    assert [each for each in manners() if each != share | {"priority": MUCH_PRIORITY}] == []
    tenant.running -= 2
    api.services.admission._tenants["t2"].running -= 1
    api.services.admission._running -= 2


def test_a_page_that_asks_several_things_at_once_goes_before_those_that_used_much():
    async def run():
        clock = ManualClock()
        admission, done = Admission(replace(LIMITS, at_once=3), clock), asyncio.Event()
        began = []

        async def ask(tenant):
            async with admission.turn(tenant):
                began.append(tenant)
                await done.wait()

        for tenant in ("t1", "t2"):
            async with admission.turn(tenant):
                clock.move(5)
        tasks = [asyncio.create_task(ask(f"t{1 + number % 2}")) for number in range(8)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(ask("page")) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        first = list(began)
        done.set()
        await asyncio.gather(*tasks)
        return first, began

    first, began = asyncio.run(run())
    assert first == ["t1", "t2", "page"]
    assert sorted(began) == ["page"] * 3 + ["t1"] * 4 + ["t2"] * 4


STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["ask", "ask", "done"])), max_size=60)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_turns_stay_within_their_limits_and_none_is_lost(script):
    for running in asyncio.run(_turns(LIMITS, script)):
        assert len(running) <= LIMITS.at_once
        assert all(running.count(tenant) <= LIMITS.tenant_at_once for tenant in running)


def test_a_question_that_waits_too_long_is_sent_away():
    async def run():
        admission = Admission(replace(LIMITS, at_once=1, wait_seconds=0.01), ManualClock())
        async with admission.turn("a"):
            with pytest.raises(Throttled):
                async with admission.turn("b"):
                    raise AssertionError
        async with admission.turn("b"):
            return admission.running

    assert asyncio.run(run()) == 1
