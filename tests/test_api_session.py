"""Sign-in for the pages, and what the api's server takes from callers who are not known yet."""

import socket

import pytest

from front_rig import NOW_MS, Front
from secondsight.access.identity import Role
from secondsight.access.tokens import TokenSpec, revoke_token
from secondsight.api.config import ApiConfig


@pytest.fixture
def front(tmp_path):
    with Front(ApiConfig(tmp_path), {"admin": TokenSpec(Role.ADMIN, "t1", "admin")}).served() as made:
        yield made


def test_a_head_without_end_is_cut_off(front):
    lines = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(20_000))
    with socket.create_connection(("127.0.0.1", front.client.port), timeout=20) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            endless.sendall(lines)
    assert front.client.get("/healthz").status_code == 200


def signed_in(front):
    client = front.open()
    answer = client.post("/v1/session", {"token": front.issued["admin"].secret})
    assert answer.status_code == 200
    assert client.get("/v1/session").json()["name"] == "admin"
    return client, answer


def test_the_cookie_is_neither_the_token_nor_kept(front, tmp_path):
    client, answer = signed_in(front)
    named = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Max-Age=43200"} <= set(named)
    (value,) = client.cookies.values()
    assert value != front.issued["admin"].secret
    assert client.get("/v1/session", headers={"authorization": f"Bearer {value}"}).status_code == 401
    front.metadata.dispose()
    for file in tmp_path.glob("metadata*"):
        assert value.encode() not in file.read_bytes()


def test_a_token_is_no_session(front):
    client = front.open()
    client.cookies = {"secondsight_session": front.issued["admin"].secret}
    assert client.get("/v1/session").json()["error"]["code"] == "session_ended"


def test_a_session_that_was_ended_stays_ended(front):
    client, _ = signed_in(front)
    other, _ = signed_in(front)
    kept = dict(client.cookies)
    assert client.request("DELETE", "/v1/session").status_code == 204
    assert client.request("DELETE", "/v1/session").status_code == 204
    client.cookies = kept
    refused = client.get("/v1/session")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "session_ended")
    assert other.get("/v1/session").status_code == 200


def test_that_nobody_is_signed_in_is_no_refusal(front):
    nobody = {"token": True, "issuer": None, "session": None}
    client, stranger = signed_in(front)[0], front.open()
    assert stranger.get("/v1/session/ways").json() == nobody
    assert client.get("/v1/session/ways").json()["session"] == {"tenantId": "t1", "name": "admin", "role": "admin"}
    stranger.cookies = dict(client.cookies)
    client.request("DELETE", "/v1/session")
    answer = stranger.get("/v1/session/ways")
    assert (answer.status_code, answer.json()) == (200, nobody), "a session that has ended is nobody's"


def test_a_session_expires(front):
    client, _ = signed_in(front)
    front.clock.move(12 * 3600 - 1)
    assert client.get("/v1/session").status_code == 200
    front.clock.move(1)
    assert client.get("/v1/session").status_code == 401


def test_revoking_a_token_ends_its_sessions(front):
    client, _ = signed_in(front)
    assert revoke_token(front.metadata, front.issued["admin"].token_id, NOW_MS)
    assert client.get("/v1/session").status_code == 401


@pytest.mark.parametrize("body", [r'{"token":"\ud800"}', r'{"token":"\udcff\u0000"}', r'{"token":""}', '{"token":" "}'])
def test_texts_that_are_no_token_are_refused(front, body):
    answer = front.client.request("POST", "/v1/session", body, {"content-type": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [r'{"\ud800":1}', "[]", "{", b"\xff", "9" * 5000, "[" * 100_000])
def test_bodies_that_are_no_request_are_refused(front, body):
    answer = front.client.request("POST", "/v1/session", body, {"content-type": "application/json"})
    assert answer.status_code in {400, 422}


@pytest.mark.parametrize("path", ["/healthz", "/", "/v1/session", "/assets/none.js", "/metrics"])
def test_head_is_answered_as_get_without_the_body(front, path):
    got, asked = front.client.get(path), front.client.request("HEAD", path)
    assert (asked.status_code, asked.content) == (got.status_code, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]
    assert front.client.get("/healthz").json() == {"status": "ok"}


def test_a_wrong_method_is_told_the_right_one(front):
    answer = front.client.request("DELETE", "/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_a_body_too_large_to_be_a_sign_in_is_not_taken(front):
    body = b'{"token":"' + b"x" * (2 << 20) + b'"}'
    answer = front.open().request("POST", "/v1/session", body, {"content-type": "application/json"})
    assert answer.status_code == 400
