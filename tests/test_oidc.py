"""Sign-in by an issuer: what a token has to be, keys that rotate, what claims give, and the way of a browser."""

import base64
import json
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import RSAKey

from front_rig import NOW_MS, Front
from oidc_issuer import issuing
from secondsight.access.grants import list_grants
from secondsight.access.oidc import OidcConfig, OidcRule
from secondsight.access.scope import Grant, add_grant
from secondsight.access.signins import local_path
from secondsight.api.config import ApiConfig
from secondsight.config import build
from secondsight.errors import Rejected

RULES = (
    OidcRule("groups", "gpu", tenant="t1", teams=("red",), denied_metrics=("gpu_power_watts",)),
    OidcRule("groups", "ops", role="operator", tenant="t1"),
    OidcRule("email", "root@example.org", role="admin", tenant="t1"),
)


class Signing(Front):
    def __init__(self, folder, issuer) -> None:
        self.issuer = issuer
        super().__init__(ApiConfig(folder, oidc=OidcConfig(issuer.url, issuer.client_id, rules=RULES)), {})

    def ask(self, token, path="/v1/session"):
        return self.client.get(path, headers={"authorization": f"Bearer {token}"})

    def code(self, token):
        answer = self.ask(token)
        return answer.json()["error"]["code"] if answer.status_code != 200 else "ok"


@pytest.fixture
def front(tmp_path):
    with issuing() as issuer, Signing(tmp_path, issuer).served() as made:
        yield made


def test_a_token_of_the_issuer_is_a_person_with_the_grants_of_the_rules(front):
    answer = front.ask(front.issuer.token()).json()
    assert answer == {"tenantId": "t1", "name": "A. Person", "role": "viewer"}
    names = {one["name"] for one in front.ask(front.issuer.token(), "/v1/catalog").json()["metrics"]}
    assert "gpu_power_watts" not in names
    (record,) = list_grants(front.metadata, ["t1"])
    assert record.grant == Grant("t1", teams=frozenset({"red"}), denied_metrics=frozenset({"gpu_power_watts"}))
    assert "alice" not in record.subject
    front.issuer.person["groups"] = ["gpu", "ops"]
    assert front.ask(front.issuer.token()).json()["role"] == "operator"


FAULTS = {
    "another issuer": {"iss": "https://elsewhere.example"},
    "another audience": {"aud": "another"},
    "no audience": {"aud": None},
    "no expiry": {"exp": None},
    "no subject": {"sub": None},
    "not yet good": {"nbf": 1_700_000_000 + 3_600},
    "no issuer": {"iss": None},
    "audiences without us": {"aud": ["another", "third"]},
    "audience that holds ours": {"aud": "secondsight-other"},
    "a subject that is a number": {"sub": 7},
    "an empty subject": {"sub": ""},
    "an expiry that is a text": {"exp": "soon"},
    "an expiry that is true": {"exp": True},
    "an expiry without end": {"exp": float("inf")},
    "an expiry that is no number": {"exp": float("nan")},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_token_that_was_not_made_for_us_is_refused(front, name):
    assert front.code(front.issuer.token(**FAULTS[name])) == "token_invalid"


def test_expiry_knows_some_leeway(front):
    front.clock.move(600 + 20)
    assert front.code(front.issuer.token()) in ("ok", "token_expired")
    front.clock.move(20)
    assert front.code(front.issuer.token()) == "token_expired"


def test_a_signature_by_another_key_or_algorithm_is_refused(front):
    assert front.code(front.issuer.token()) == "ok"
    own = front.issuer.keys[-1]
    forged = RSAKey.generate_key(2048, {"kid": own.kid})
    assert front.code(front.issuer.token(key=forged)) == "token_invalid"
    assert front.code(front.issuer.confused()) == "token_invalid"
    assert front.code(front.issuer.token(algorithm="RS512")) == "token_invalid"
    head, body, _ = front.issuer.token().split(".")
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": own.kid}).encode()).decode().rstrip("=")
    for text in (
        f"{none}.{body}.",
        f"{head}.{body}.",
        f"{head}.{body}.AAAA",
        "a.b.c",
        "..",
        "é.é.é",
        "a" * 20_000 + "..",
    ):
        assert front.ask(text.encode("utf-8").decode("latin-1")).status_code == 401, text[:20]


def test_keys_are_kept_and_looked_up_again_when_they_rotate(front):
    for _ in range(3):
        front.clock.move(6)
        assert front.code(front.issuer.token()) == "ok"
    assert front.issuer.key_reads == 1
    front.issuer.away = True
    front.clock.move(6)
    assert front.code(front.issuer.token()) == "ok"
    front.issuer.away = False
    for kind in ("ES256", "RS256"):
        old = front.issuer.token(iat=1)
        front.issuer.rotate(kind)
        front.clock.move(11)
        assert front.code(front.issuer.token()) == "ok"
        assert front.code(old) == "token_invalid"
    reads = front.issuer.key_reads
    for _ in range(5):
        assert front.code(front.issuer.token(key=RSAKey.generate_key(2048, {"kid": "unknown"}))) == "token_invalid"
    assert front.issuer.key_reads <= reads + 1, "a flood of unknown keys asks the issuer little"


@pytest.mark.parametrize("is_known", [True, False])
def test_an_issuer_that_is_away_is_asked_little_however_many_tokens_come(front, is_known):
    if is_known:
        assert front.code(front.issuer.token()) == "ok"
    front.clock.move(11)
    front.issuer.away = True
    reads = front.issuer.asked
    stranger = front.issuer.token(key=RSAKey.generate_key(2048, {"kid": "unknown"}))
    told = {front.code(stranger) for _ in range(5)}
    assert told == {"token_invalid" if is_known else "unavailable"}
    assert front.issuer.asked <= reads + 1
    front.issuer.away = False
    front.clock.move(11)
    assert front.code(front.issuer.token()) == "ok"


def test_an_address_that_is_not_verified_lets_nobody_in(front):
    front.issuer.person |= {"groups": [], "email": "root@example.org"}
    for told in (False, "false", 0, None):
        front.issuer.person |= {"email_verified": told}
        front.clock.move(6)
        assert front.code(front.issuer.token(email_verified=told, sub=f"s-{told}")) == (
            "ok" if told is None else "no_grant"
        )
    assert front.code(front.issuer.token(email_verified=True, sub="s")) == "ok"


def test_rules_decide_who_may_sign_in(front):
    front.issuer.person["groups"] = ["others"]
    assert front.code(front.issuer.token()) == "no_grant"
    front.issuer.person |= {"email": "root@example.org"}
    assert front.ask(front.issuer.token()).json()["role"] == "admin"


def test_grants_follow_the_claims_and_those_of_an_admin_stay(front):
    assert front.code(front.issuer.token()) == "ok"
    (record,) = list_grants(front.metadata, ["t1"])
    add_grant(front.metadata, record.subject, Grant("t1", clusters=frozenset({"c9"})), NOW_MS)
    front.issuer.person["groups"] = ["ops"]
    assert front.code(front.issuer.token()) == "ok"
    live = {one.grant for one in list_grants(front.metadata, ["t1"]) if one.revoked_ms is None}
    assert live == {Grant("t1"), Grant("t1", clusters=frozenset({"c9"}))}


def browse(front, client, path):
    """Follow a browser from the api to the issuer and back; return the answer of the callback."""
    sent = client.get(path)
    assert sent.status_code == 303
    target = urlsplit(sent.headers["location"])
    connection = HTTPConnection(target.netloc, timeout=20)
    connection.request("GET", f"{target.path}?{target.query}")
    back = connection.getresponse().getheader("location")
    connection.close()
    parts = urlsplit(back)
    return f"{parts.path}?{parts.query}", parse_qs(target.query)


def test_a_browser_signs_in_by_a_code_bound_to_it(front):
    client, other = front.open(), front.open()
    callback, asked = browse(front, client, "/v1/session/login?back=/gpus/GPU-a")
    assert asked["code_challenge_method"] == ["S256"]
    assert other.get(callback).json()["error"]["code"] == "sign_in_refused", "another browser cannot finish it"
    answer = client.get(callback)
    assert answer.status_code == 200
    assert 'url=/gpus/GPU-a"' in answer.text
    assert client.get("/v1/session").json()["name"] == "A. Person"
    assert client.get("/v1/catalog").status_code == 200
    assert client.get(callback).status_code == 403, "a code serves once"


def test_a_sign_in_takes_no_token_that_was_made_for_another_client(front):
    for client_id, status in (("another", 401), (front.issuer.client_id, 200)):
        front.issuer.person["azp"] = client_id
        client = front.open()
        callback, _ = browse(front, client, "/v1/session/login")
        assert client.get(callback).status_code == status


def test_a_person_who_is_erased_is_shut_out_and_named_nowhere(front):
    desk, client = front.open(), front.open()
    front.issuer.person |= {"sub": "root", "email": "root@example.org", "name": "Root"}
    admin = {"authorization": f"Bearer {front.issuer.token()}"}
    assert desk.get("/v1/session", headers=admin).json()["role"] == "admin"
    front.issuer.person |= {"sub": "alice", "email": "alice@example.org", "name": "A. Person"}
    callback, _ = browse(front, client, "/v1/session/login")
    client.get(callback)
    bearer = front.issuer.token()
    assert front.code(bearer) == "ok"
    people = desk.get("/v1/users", headers=admin).json()["users"]
    (mine,) = (one for one in people if one["name"] == "A. Person")
    assert (mine["role"], mine["tenantId"], mine["erased"]) == ("viewer", "t1", None)
    path = f"/v1/users/{mine['userId']}"
    assert client.request("DELETE", path).status_code == 403
    assert desk.request("DELETE", path, None, admin).status_code == 204
    assert client.get("/v1/session").json()["error"]["code"] == "session_ended"
    assert front.code(bearer) == "no_grant", "tokens of the issuer are refused at once"
    assert front.code(front.issuer.token()) == "no_grant"
    again = desk.request("DELETE", path, None, admin)
    assert (again.status_code, again.json()["error"]["code"]) == (404, "not_found")
    erased = next(
        one for one in desk.get("/v1/users", headers=admin).json()["users"] if one["userId"] == mine["userId"]
    )
    assert (erased["name"], erased["erased"] is None) == ("", False)
    (grant,) = (one for one in list_grants(front.metadata, ["t1"]) if one.subject == f"user:{mine['userId']}")
    assert grant.revoked_ms is not None
    told = desk.get("/v1/audit?action=person_erase", headers=admin).json()["entries"]
    assert [(one["detail"], one["tenantId"]) for one in told] == [(mine["userId"], "t1")]
    assert "A. Person" not in desk.get("/v1/audit", headers=admin).text


@pytest.mark.parametrize("back", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere", "x", "/a\nb", ""])
def test_a_sign_in_leads_back_to_this_address_alone(back):
    assert local_path(back) == "/"
    assert local_path("/clusters/c1?x=1") == "/clusters/c1?x=1"


@pytest.mark.parametrize(
    "settings",
    [
        {"issuer": "http://elsewhere.example"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"rules": [{"claim": "a", "value": "b", "role": "collector"}]},
    ],
)
def test_settings_that_are_not_safe_are_refused(settings, tmp_path):
    whole = {"data": tmp_path, "oidc": {"issuer": "https://i.example", "client_id": "x"} | settings}
    with pytest.raises(Rejected):
        build(ApiConfig, whole, "api")
