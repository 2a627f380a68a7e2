"""No byte of what a grant does not show leaves through any route, parameter, stream, export, kept answer or error.

Everything that one tenant must not see has a name that holds a mark of its own; answers are searched for the marks of
all that the grants of the moment do not show. The routes and their parameters come from the description itself.
"""

import json
import re
import socket
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api_client import serving
from query_fixture import (
    T0,
    Row,
    insert_allocation,
    insert_entity,
    insert_progress,
    insert_rollups,
    insert_rows,
)
from secondsight.access.debug import Budget, DebugSession, start_session
from secondsight.access.identity import Role
from secondsight.access.maintenance import MaintenanceWindow, add_windows
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant, add_grant, revoke_grants
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app, make_routes
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
NOW = T0 + 605_000
GAUGE, POWER = "gpu_utilization_ratio", "gpu_power_watts"
EVENT = "gpu_xid"


@dataclass(frozen=True)
class Place:
    """One GPU of one tenant, cluster, team and job; each name is a mark."""

    tenant: str
    cluster: str
    host: str
    gpu: str
    team: str
    job: str
    model: str


PLACES = tuple(
    Place(
        tenant,
        f"cl-{tenant}{n}",
        f"ho-{tenant}{n}",
        f"GPU-{tenant}{n}",
        f"te-{tenant}{n}",
        f"jo-{tenant}{n}",
        f"mo-{tenant}{n}",
    )
    for tenant in ("qaaq", "zbbz")
    for n in range(3)
)
SHARED = Place("qaaq", "cl-qaaq0", "ho-qaaq0", "GPU-qaaq9", "te-qaaq9", "jo-qaaq9", "mo-qaaq9")
"""A second customer's card on the host of another one."""
EVERY = (*PLACES, SHARED)


def rows_of(place):
    return [
        Row(
            T0 + second * 1000,
            place.gpu,
            {GAUGE: 1000 + second, POWER: 77_777_000},
            tenant=place.tenant,
            cluster=place.cluster,
            host=place.host,
            collector=f"agent-{place.host}",
            team=place.team,
            job=place.job,
            model=place.model,
        )
        for second in range(600)
    ]


def events_of(place):
    texts = {
        "tenant_id": place.tenant,
        "cluster_id": place.cluster,
        "host_id": place.host,
        "entity": place.gpu,
        "kind": "gpu",
        "metric": EVENT,
        "severity": "critical",
        "collector_id": f"agent-{place.host}",
        "owner_team": place.team,
        "job_id": place.job,
        "model_id": place.model,
    }
    columns = {name: pa.array([value], pa.string()) for name, value in texts.items()}
    columns["event_time"] = pa.array([T0 + 60_000], pa.timestamp("ms", "UTC"))
    columns["ingest_time"] = columns["event_time"]
    columns["code"] = pa.array([79], pa.int64())
    columns["event_version"] = pa.array([1], pa.uint32())
    return pa.table(columns)


class Api:
    def __init__(self, folder) -> None:
        self.clock = ManualClock(NOW)
        self.store = ChdbStore(folder / "hot", readers=4)
        migrate(self.store, CATALOG)
        for place in EVERY:
            rows = rows_of(place)
            insert_rows(self.store, rows)
            insert_rollups(self.store, rows, T0 + 300_000)
            insert_entity(self.store, rows[0], T0)
            insert_allocation(self.store, rows[0], T0)
            insert_progress(self.store, rows[0], T0 + 602_000, T0 + 300_000)
            self.store.insert("events", events_of(place))
        self.metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        for place in PLACES:
            window = (NOW - 60_000, NOW + 600_000, f"why-{place.host}", f"who-{place.host}", NOW)
            add_windows(self.metadata, [MaintenanceWindow(place.tenant, place.cluster, place.host, *window)])
            session = DebugSession(
                tenant_id=place.tenant,
                cluster_id=place.cluster,
                target_kind="host",
                target=place.host,
                hosts={place.host: ()},
                start_ms=NOW,
                until_ms=NOW + 600_000,
                back_ms=0,
                values_per_second=1,
                subject=f"who-{place.host}",
            )
            start_session(self.metadata, session, Budget(1_000, per_host=1, per_gpu=1))
        self.config = ApiConfig(folder, requests_burst=1e9, tenant_query_seconds=1e9)
        self.services = make_services(self.config, self.store, self.metadata, CATALOG, self.clock)
        self.routes = make_routes(self.services).openapi()["paths"]
        self.people = {}
        for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
            spec = TokenSpec(role, "home", f"person-{role}", grants=(Grant("home"),))
            self.people[role] = create_token(self.metadata, spec, NOW)

    def granted(self, role, grants):
        """Give somebody these grants alone, and return the secret."""
        issued = self.people[role]
        revoke_grants(self.metadata, issued.subject, NOW)
        for grant in grants:
            add_grant(self.metadata, issued.subject, grant, NOW)
        self.clock.move(6)
        return issued.secret

    def ask(self, secret, method, path, body=None, accept="application/json"):
        headers = {"authorization": f"Bearer {secret}", "accept": accept}
        if body is not None:
            headers["content-type"] = "application/json"
        return self.client.request(method, path, None if body is None else json.dumps(body), headers)

    def stream(self, secret, query):
        """Return the beginning of a live stream."""
        with socket.create_connection(("127.0.0.1", self.client.port), timeout=20) as connection:
            head = f"GET /v1/live{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {secret}\r\n\r\n"
            connection.sendall(head.encode())
            text = b""
            while b"data:" not in text and b'"error"' not in text:
                piece = connection.recv(65_536)
                if not piece:
                    break
                text += piece
            return text


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    made = Api(tmp_path_factory.mktemp("scope"))
    with serving(make_app(made.services), made.config) as made.client:
        yield made


def admits(grant, place):
    sets = (
        (grant.clusters, place.cluster),
        (grant.teams, place.team),
        (grant.jobs, place.job),
        (grant.model_ids, place.model),
    )
    return grant.tenant_id == place.tenant and all(names is None or name in names for names, name in sets)


def is_whole(grant):
    return grant.teams is grant.jobs is grant.model_ids is None


def hidden_marks(grants):
    """Return every name that these grants do not show."""
    shown = set()
    for place in EVERY:
        mine = [grant for grant in grants if admits(grant, place)]
        if mine:
            shown |= {place.tenant, place.cluster, place.host, place.gpu, place.team, place.job, place.model}
    every = {mark for place in EVERY for mark in vars_of(place)}
    named = {grant.tenant_id for grant in grants}
    named |= {name for grant in grants for names in (grant.clusters, grant.teams, grant.jobs) for name in names or ()}
    return every - shown - named


def vars_of(place):
    return [getattr(place, name) for name in Place.__dataclass_fields__]


def some(names):
    return st.none() | st.frozensets(st.sampled_from(names), min_size=1, max_size=2)


def grants_of(tenant):
    mine = [place for place in EVERY if place.tenant == tenant]
    return st.builds(
        Grant,
        tenant_id=st.just(tenant),
        clusters=some([place.cluster for place in mine]),
        teams=some([place.team for place in mine]),
        jobs=st.none() | some([place.job for place in mine]),
        denied_metrics=st.sampled_from([frozenset(), frozenset({POWER}), frozenset({GAUGE, EVENT})]),
    )


SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
GRANTS = st.lists(st.sampled_from(["qaaq", "zbbz"]).flatmap(grants_of), max_size=3)
VALUES = {
    "metric": [GAUGE, POWER, f"{GAUGE},{POWER}", "nothing", "temp"],
    "metrics": [GAUGE, f"{GAUGE},{POWER}", ""],
    "cluster": [place.cluster for place in EVERY],
    "cluster_id": [place.cluster for place in EVERY],
    "host": [place.host for place in EVERY],
    "host_id": [place.host for place in EVERY],
    "gpu": [place.gpu for place in EVERY],
    "gpu_id": [place.gpu for place in EVERY],
    "entity": [place.gpu for place in EVERY],
    "job": [place.job for place in EVERY],
    "job_id": [place.job for place in EVERY],
    "team": [place.team for place in EVERY],
    "model": [place.model for place in EVERY],
    "model_id": [place.model for place in EVERY],
    "q": ["gpu-", "cl-", "ho-", "te-", "jo-", "mo-", "q", "zbbz"],
    "from": [str(T0), str(NOW - 600_000), "now-15m"],
    "to": [str(T0 + 600_000), "now"],
    "start": [str(T0 // 1000)],
    "end": [str(T0 // 1000 + 600)],
    "step": ["30"],
    "at": [str(T0 + 590_000), "now"],
    "by": ["gpu", "host", "cluster", "team", "job", "model"],
    "groupBy": ["gpu", "host", "cluster", "team", "job", "model", "total", ""],
    "resolution": ["auto", "30s", "range", "1s"],
    "aggregate": ["", "avg", "max", "p95", "sum"],
    "format": ["rows", "columns", "csv", "arrow", ""],
    "query": [GAUGE, "DCGM_FI_DEV_GPU_UTIL", f"sum by (cluster) ({GAUGE})", POWER, "("],
    "match[]": [GAUGE, POWER, '{__name__=~".+"}'],
    "name": ["cluster", "team", "job", "__name__"],
    "reason": ["", "findings"],
    "kind": ["gpu", "node", ""],
    "history": ["true", "false"],
    "limit": ["1", "200"],
    "cursor": ["", "1"],
}
LEFT_OUT = re.compile(r"/healthz|/readyz|/v1/session.*|/v1/live|/v1/ask.*|/v1/questions.*|/v1/sql.*")
"""Asked of no scope, asked below, or tested where questions are."""


def requests_of(routes):
    """Return a strategy for requests of the described GET routes."""
    reads = [
        (path, methods["get"]) for path, methods in routes.items() if "get" in methods and not LEFT_OUT.fullmatch(path)
    ]
    return st.sampled_from(reads).flatmap(_request_of)


@st.composite
def _request(draw, route=None):
    path, described = route
    asked = []
    for parameter in described.get("parameters", ()):
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(draw(st.sampled_from(VALUES.get(name, ["x"]))), safe=""))
        elif parameter["in"] == "query" and name in VALUES and (parameter.get("required") or draw(st.booleans())):
            asked.append((name, draw(st.sampled_from(VALUES[name]))))
    return f"{path}?{urlencode(asked)}"


def _request_of(route):
    return _request(route=route)


def told_of(answer, path):
    """Return all that an answer says, but what the request said itself."""
    text = json.dumps(dict(answer.headers)) + answer.content.decode("utf-8", "replace")
    for said in re.split(r"[/?&=,]", path):
        text = text.replace(f"'{said}'", "")  # a hint that says what was asked
        text = text.replace(said, "") if len(said) > 3 and answer.status_code >= 400 else text
    return text


@pytest.mark.parametrize("examples", [40, pytest.param(600, marks=pytest.mark.soak)])
def test_no_route_tells_what_the_grants_do_not_show(api, examples):
    walked = given(data=st.data(), role=st.sampled_from([Role.VIEWER, Role.OPERATOR, Role.ADMIN]), grants=GRANTS)(walk)
    settings(deadline=None, max_examples=examples, suppress_health_check=SLOW)(walked)(api)


def walk(api, data, role, grants):
    """Ask four routes with some grants, twice each: no answer has a mark of what they hide."""
    secret = api.granted(role, grants)
    hidden = hidden_marks(grants)
    for _ in range(4):
        path = data.draw(requests_of(api.routes))
        accept = data.draw(st.sampled_from(["application/json", "text/csv", "application/vnd.apache.arrow.stream"]))
        for _ in ("fresh", "kept"):
            answer = api.ask(secret, "GET", path, accept=accept)
            assert answer.status_code < 500 or answer.status_code == 503, (path, answer.content[:500])
            text = told_of(answer, path)
            asked = set(re.split(r"[/?&=,]", path))
            told = [mark for mark in hidden if mark in text and not (answer.status_code < 400 and mark in asked)]
            assert not told, (path, told)
            denied = grants and all({POWER} <= grant.denied_metrics for grant in grants)
            if denied and "power" not in path.lower():
                assert POWER not in text or "/v1/fleet/map" in path, path


@settings(deadline=None, max_examples=25, suppress_health_check=SLOW)
@given(grants=GRANTS, place=st.sampled_from(EVERY))
def test_no_stream_tells_what_the_grants_do_not_show(api, grants, place):
    secret = api.granted(Role.VIEWER, grants)
    hidden = hidden_marks(grants)
    for query in ("", f"?cluster={place.cluster}", f"?gpu={place.gpu}&metrics={POWER}"):
        text = api.stream(secret, query).decode()
        assert not [mark for mark in hidden if mark in text], query


@settings(deadline=None, max_examples=15, suppress_health_check=SLOW)
@given(grants=GRANTS)
def test_two_customers_on_one_host_see_their_own(api, grants):
    secret = api.granted(Role.VIEWER, grants)
    answer = api.ask(
        secret, "GET", f"/v1/metrics/query?metric={GAUGE}&from={T0}&to={T0 + 600_000}&resolution=30s"
    ).json()
    seen = {series["gpuId"] for series in answer.get("series", ())}
    showing = [grant for grant in grants if GAUGE not in grant.denied_metrics]
    assert seen == {place.gpu for place in EVERY if any(admits(grant, place) for grant in showing)}


def test_a_card_that_changes_customer_shows_each_its_own_seconds(api):
    for team, first, last in (("te-turn-a", 0, 17), ("te-turn-b", 17, 40)):
        rows = [
            Row(
                T0 + second * 1000,
                "GPU-turn",
                {GAUGE: 1},
                "qaaq",
                cluster="cl-turn",
                host="ho-turn",
                team=team,
                job=team,
            )
            for second in range(first, last)
        ]
        insert_rows(api.store, rows)
        insert_allocation(api.store, rows[0], T0 + first * 1000, T0 + last * 1000)
    insert_entity(api.store, Row(T0, "GPU-turn", {}, "qaaq", cluster="cl-turn", host="ho-turn"), T0)
    for team, count, other in (("te-turn-a", 17, "te-turn-b"), ("te-turn-b", 23, "te-turn-a")):
        secret = api.granted(Role.VIEWER, [Grant("qaaq", teams=frozenset({team}))])
        path = f"/v1/gpus/GPU-turn/telemetry?metric={GAUGE}&from={T0}&to={T0 + 60_000}&resolution=1s"
        answer = api.ask(secret, "GET", path)
        (series,) = answer.json()["series"]
        assert len(series["points"]) == count
        assert other not in answer.text


def test_every_described_read_is_walked(api):
    reads = {path for path, methods in api.routes.items() if "get" in methods}
    left_out = {path for path in reads if LEFT_OUT.fullmatch(path)}
    assert len(reads - left_out) > 25
    names = {
        parameter["name"]
        for path in reads - left_out
        for parameter in api.routes[path]["get"].get("parameters", ())
        if parameter["in"] == "path"
    }
    assert names <= VALUES.keys() | {"letter_id", "question_id"}
