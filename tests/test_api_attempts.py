"""Sign-ins that fail: how many may, of one address and of one account, and what is said, counted and put on record."""

import pytest

from front_rig import Front
from oidc_issuer import issuing
from secondsight.access.audit import AuditQuestion, read_entries
from secondsight.access.identity import Role
from secondsight.access.oidc import OidcConfig, OidcRule
from secondsight.access.tokens import TokenSpec, revoke_token
from secondsight.api import attempts
from secondsight.api.config import ApiConfig

SPECS = {"admin": TokenSpec(Role.ADMIN, "t1", "admin"), "viewer": TokenSpec(Role.ADMIN, "t1", "viewer")}
ADDRESS, ACCOUNT = 8, 3


def config(folder, **more):
    return ApiConfig(folder, sign_in_address_failures=ADDRESS, sign_in_account_failures=ACCOUNT, **more)


@pytest.fixture
def front(tmp_path):
    with Front(config(tmp_path, proxies=("127.0.0.1",)), SPECS).served() as made:
        yield made


def bearer(front, secret, address="203.0.113.7"):
    return front.client.get("/v1/session", headers={"authorization": f"Bearer {secret}", "x-forwarded-for": address})


def sign_in(front, secret, address="203.0.113.7"):
    headers = {"content-type": "application/json", "x-forwarded-for": address}
    return front.client.request("POST", "/v1/session", f'{{"token": "{secret}"}}', headers)


WAYS = [bearer, sign_in]


def told(answer):
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("way", WAYS)
def test_one_account_may_fail_so_often_and_then_waits(front, way):
    answers = [way(front, "guess", f"198.51.{number}.1") for number in range(ACCOUNT + 2)]
    assert [one.status_code for one in answers] == [401] * ACCOUNT + [429] * 2
    assert told(answers[-1]) == (429, "rate_limited")
    seconds = int(answers[-1].headers["retry-after"])
    assert 1 <= seconds <= 60
    front.clock.move(seconds)
    assert way(front, "guess").status_code == 401


@pytest.mark.parametrize("way", WAYS)
def test_one_address_may_fail_so_often_and_right_and_wrong_secrets_are_told_the_same(front, way):
    for number in range(ADDRESS):
        assert way(front, f"guess {number}").status_code == 401
    wrong, right = way(front, "another"), way(front, front.issued["viewer"].secret)
    assert told(wrong) == told(right) == (429, "rate_limited")
    assert wrong.json() == right.json()
    assert wrong.headers["retry-after"] == right.headers["retry-after"]
    assert way(front, front.issued["viewer"].secret, "203.0.113.8").status_code == 200
    front.clock.move(60)
    assert way(front, front.issued["viewer"].secret).status_code == 200


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_that_was_right_lately_is_not_shut_out_by_its_neighbours(front, way):
    assert way(front, front.issued["admin"].secret).status_code == 200
    for number in range(ADDRESS + 2):
        way(front, f"guess {number}")
    front.clock.move(6)
    assert way(front, front.issued["admin"].secret).status_code == 200
    assert revoke_token(front.metadata, front.issued["admin"].token_id, front.clock.now_ms())
    front.clock.move(6)
    assert way(front, front.issued["admin"].secret).status_code == 401, "it is looked up all the same"
    for number in range(3):
        way(front, f"further guess {number}")
    assert way(front, front.issued["admin"].secret).status_code == 429


def test_one_site_of_ipv6_is_one_address(front):
    answers = [bearer(front, f"guess {number}", f"2001:db8::{number}") for number in range(ADDRESS + 1)]
    assert answers[-1].status_code == 429
    assert bearer(front, "guess", "2001:db8:0:1::1").status_code == 401


def test_only_a_known_proxy_is_believed(tmp_path):
    with Front(config(tmp_path), SPECS).served() as front:
        answers = [bearer(front, f"guess {number}", f"198.51.{number}.1") for number in range(ADDRESS + 1)]
        assert answers[-1].status_code == 429


def test_who_says_nothing_has_not_failed(front):
    for _ in range(ADDRESS + 2):
        assert front.client.get("/v1/session", headers={"x-forwarded-for": "203.0.113.7"}).status_code == 401
    assert bearer(front, front.issued["viewer"].secret).status_code == 200


def test_failures_are_counted_and_put_on_record_once_without_whole_addresses(front):
    for number in range(ADDRESS + 5):
        sign_in(front, f"guess {number}")
    shown = front.client.get("/metrics").text
    assert f'api_sign_in_failures_total{{reason="token_invalid",way="session"}} {ADDRESS}' in shown
    assert 'api_sign_in_limited_total{limit="address",way="session"} 5' in shown
    entries = read_entries(front.metadata, ["default"], AuditQuestion(0, 1 << 60))
    mine = [entry for _, entry in reversed(entries) if entry.action == "sign_in"]
    assert [entry.outcome for entry in mine] == ["token_invalid"] * ADDRESS + ["rate_limited"]
    assert {entry.subject for entry in mine} == {"network:203.0.113.0/24"}
    assert "guess" not in str(mine)


def test_memory_is_bounded(front, monkeypatch):
    monkeypatch.setattr(attempts, "KEPT_MAXIMUM", 5)
    for number in range(30):
        bearer(front, f"guess {number}", f"198.51.{number}.1")
    assert front.services.attempts.kept <= 15


def test_sign_ins_by_the_issuer_are_limited_too(tmp_path):
    with issuing() as issuer:
        rules = (OidcRule("groups", "gpu", tenant="t1"),)
        with Front(config(tmp_path, oidc=OidcConfig(issuer.url, issuer.client_id, rules=rules)), {}).served() as front:
            begun = [front.client.get("/v1/session/login").status_code for _ in range(ADDRESS + 1)]
            assert begun == [303] * ADDRESS + [429]
            states = [front.client.get(f"/v1/session/callback?state=x{number}") for number in range(ADDRESS + 1)]
            assert [one.status_code for one in states] == [403] * ADDRESS + [429]
            assert bearer(front, issuer.token()).status_code == 429, "an address is one for all ways"
            front.clock.move(60)
            issuer.person["groups"] = ["others"]
            same = issuer.token()
            assert [bearer(front, same).status_code for _ in range(ACCOUNT + 1)] == [403] * ACCOUNT + [429]


def test_an_api_that_was_killed_says_so_at_its_next_start(tmp_path):
    (tmp_path / "audit.open").touch()
    with Front(config(tmp_path), SPECS).served() as front:
        (entry,) = (one for _, one in read_entries(front.metadata, ["default"], AuditQuestion(0, 1 << 60)))
        assert (entry.action, entry.subject) == ("audit_gap", "platform:api")
        assert (tmp_path / "audit.open").exists()
    assert not (tmp_path / "audit.open").exists()
