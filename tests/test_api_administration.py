"""Tenants, grants, tokens and the audit by the api: who may administer what, and what is put on record."""

import json
import time

import pytest

from front_rig import Front
from secondsight.access.identity import Role
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec
from secondsight.api.config import ApiConfig

SPECS = {
    "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
    "other": TokenSpec(Role.ADMIN, "t2", "other"),
    "half": TokenSpec(Role.ADMIN, "t1", "half", grants=(Grant("t1", clusters=frozenset({"c1"})),)),
    "operator": TokenSpec(Role.OPERATOR, "t1", "operator", grants=(Grant("t1"),)),
    "viewer": TokenSpec(Role.VIEWER, "t1", "viewer"),
}


class Desk(Front):
    """An api and its administrators."""

    def send(self, method, path, body=None, who="admin", **headers):
        secret = self.issued[who].secret if who in self.issued else who
        sent = {"authorization": f"Bearer {secret}", "content-type": "application/json"} | headers
        return self.client.request(method, path, None if body is None else json.dumps(body), sent)

    def later(self):
        """Let what is remembered for seconds be forgotten."""
        self.clock.move(10)


@pytest.fixture
def front(tmp_path):
    with Desk(ApiConfig(tmp_path), SPECS).served() as made:
        yield made


ADMINISTRATION = [
    ("GET", "/v1/tenants", None),
    ("POST", "/v1/tenants", {"tenantId": "t9"}),
    ("GET", "/v1/grants", None),
    ("POST", "/v1/grants", {"subject": "token:x", "tenantId": "t1"}),
    ("DELETE", "/v1/grants/1", None),
    ("GET", "/v1/tokens", None),
    ("POST", "/v1/tokens", {"role": "viewer", "name": "x"}),
    ("DELETE", "/v1/tokens/x", None),
    ("GET", "/v1/users", None),
    ("DELETE", "/v1/users/x", None),
    ("GET", "/v1/audit", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ADMINISTRATION)
@pytest.mark.parametrize("who", ["viewer", "operator"])
def test_only_admins_administer(front, method, path, body, who):
    answer = front.send(method, path, body, who)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "role_cannot_administer"


def test_a_token_is_made_used_and_revoked(front):
    asked = {"role": "viewer", "name": "wall", "expires": "now+1h", "grants": [{"tenantId": "t1", "teams": ["red"]}]}
    made = front.send("POST", "/v1/tokens", asked)
    assert made.status_code == 201
    token = made.json()
    listed = front.send("GET", "/v1/tokens").json()["tokens"]
    assert token["secret"] not in str(listed)
    assert {one["name"] for one in listed} == {"admin", "half", "operator", "viewer", "wall"}
    assert front.send("GET", "/v1/session", who=token["secret"]).json()["role"] == "viewer"
    assert front.send("GET", "/v1/catalog", who=token["secret"]).status_code == 200
    assert front.send("DELETE", f"/v1/tokens/{token['tokenId']}").status_code == 204
    assert front.send("DELETE", f"/v1/tokens/{token['tokenId']}").status_code == 404
    front.later()
    assert front.send("GET", "/v1/catalog", who=token["secret"]).status_code == 401


def test_a_token_expires(front):
    asked = {"role": "viewer", "name": "wall", "expires": "now+1h", "grants": [{"tenantId": "t1"}]}
    secret = front.send("POST", "/v1/tokens", asked).json()["secret"]
    front.clock.move(3600)
    assert front.send("GET", "/v1/catalog", who=secret).json()["error"]["code"] == "token_expired"
    assert front.send("POST", "/v1/tokens", asked | {"expires": "now-1s"}).json()["error"]["code"] == "bad_expiry"


def test_a_grant_is_given_and_taken_back(front):
    subject = front.issued["viewer"].subject
    assert front.send("GET", "/v1/catalog", who="viewer").json()["error"]["code"] == "no_grant"
    asked = {"subject": subject, "tenantId": "t1", "clusters": ["c1"], "deniedMetrics": ["power"]}
    made = front.send("POST", "/v1/grants", asked)
    assert made.status_code == 201
    grant = made.json()
    assert grant["deniedMetrics"] == ["gpu_power_watts"]
    names = {one["name"] for one in front.send("GET", "/v1/catalog", who="viewer").json()["metrics"]}
    assert "gpu_power_watts" not in names
    assert "gpu_utilization_ratio" in names
    assert grant["grantId"] in {one["grantId"] for one in front.send("GET", "/v1/grants").json()["grants"]}
    assert front.send("DELETE", f"/v1/grants/{grant['grantId']}").status_code == 204
    assert front.send("DELETE", f"/v1/grants/{grant['grantId']}").status_code == 404
    front.later()
    assert front.send("GET", "/v1/catalog", who="viewer").json()["error"]["code"] == "no_grant"


@pytest.mark.parametrize("who", ["other", "half"])
def test_an_admin_administers_only_tenants_that_it_holds_whole(front, who):
    subject = front.issued["viewer"].subject
    grant = front.send("POST", "/v1/grants", {"subject": subject, "tenantId": "t1"}).json()
    for method, path, body in (
        ("POST", "/v1/grants", {"subject": subject, "tenantId": "t1"}),
        ("DELETE", f"/v1/grants/{grant['grantId']}", None),
        ("POST", "/v1/tokens", {"role": "admin", "name": "x", "tenantId": "t1"}),
        ("POST", "/v1/tokens", {"role": "viewer", "name": "x", "tenantId": "t2", "grants": [{"tenantId": "t1"}]}),
        ("DELETE", f"/v1/tokens/{front.issued['viewer'].token_id}", None),
    ):
        assert front.send(method, path, body, who).status_code == 404, path
    for path in ("/v1/tenants", "/v1/grants", "/v1/tokens", "/v1/audit"):
        told = front.send("GET", path, None, who).text
        assert "t1" not in told
        assert subject not in told


def test_a_new_tenant_belongs_to_whoever_made_it(front):
    assert front.send("POST", "/v1/tenants", {"tenantId": "t3", "name": "three"}).status_code == 201
    assert front.send("POST", "/v1/tenants", {"tenantId": "t3"}, "other").status_code == 409
    assert front.send("POST", "/v1/tenants", {"tenantId": "t2"}).status_code == 409
    assert {one["tenantId"] for one in front.send("GET", "/v1/tenants").json()["tenants"]} == {"t1", "t3"}
    assert front.send("POST", "/v1/tokens", {"role": "viewer", "name": "x", "tenantId": "t3"}).status_code == 201
    assert {one["tenantId"] for one in front.send("GET", "/v1/tenants", who="other").json()["tenants"]} == {"t2"}


def test_lists_are_paged(front):
    for number in range(5):
        front.send("POST", "/v1/tokens", {"role": "viewer", "name": f"n{number}"})
    for path, name in (("/v1/tokens", "tokens"), ("/v1/grants", "grants"), ("/v1/audit", "entries")):
        whole = front.send("GET", f"{path}?subject=" if name == "entries" else path).json()[name]
        seen, cursor = [], ""
        while cursor is not None:
            page = front.send("GET", f"{path}?limit=2&cursor={cursor}").json()
            seen += page[name]
            cursor = page["nextCursor"]
        wanted = [one for one in whole if "/v1/audit" not in str(one)]
        assert [one for one in seen if "/v1/audit" not in str(one)] == wanted


def test_changes_reads_and_refusals_are_on_record(front):
    front.send("GET", "/v1/catalog?limit=1", who="operator")
    front.send("GET", "/v1/catalog", who="operator")
    front.send("GET", "/v1/grants", who="viewer")
    front.send("POST", "/v1/tokens", {"role": "viewer", "name": "wall"})
    entries = front.send("GET", "/v1/audit").json()["entries"]
    told = {(one["subject"], one["action"], one["outcome"], one["detail"]) for one in entries}
    operator, viewer, admin = (front.issued[name].subject for name in ("operator", "viewer", "admin"))
    assert (operator, "read", "ok", "/v1/catalog") in told
    assert (viewer, "read", "role_cannot_administer", "/v1/grants") in told
    assert any(one[:3] == (admin, "token_create", "ok") and "'wall'" in one[3] for one in told)
    only = front.send("GET", "/v1/audit?action=token_create").json()["entries"]
    assert {one["action"] for one in only} == {"token_create"}


def test_reads_reach_the_record_without_being_asked_for(front):
    front.send("GET", "/v1/catalog", who="operator")
    until = time.monotonic() + 20
    while front.services.audit.flush() or not _entries(front):
        assert time.monotonic() < until
        time.sleep(0.05)


def _entries(front):
    from sqlalchemy import select

    from secondsight.access.metadata import AUDIT, reading

    with reading(front.metadata) as connection:
        return connection.execute(select(AUDIT).where(AUDIT.c.action == "read")).all()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_site_cannot_make_a_browser_send_anything(front, headers):
    client = front.open()
    assert client.post("/v1/session", {"token": front.issued["admin"].secret}).status_code == 200
    typed = {"content-type": "application/json"}
    for method, path in (("POST", "/v1/tenants"), ("DELETE", "/v1/session"), ("POST", "/v1/session")):
        answer = client.request(method, path, "{}", typed | headers)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "cross_site"
    own = {"origin": f"http://127.0.0.1:{front.client.port}", "sec-fetch-site": "same-origin"}
    assert client.request("POST", "/v1/tenants", '{"tenantId": "t4"}', typed | own).status_code == 201
    assert front.send("GET", "/v1/tenants", None, **headers).status_code == 200
