"""What doctor finds on the way to a gateway: real ones, and servers that are none, refuse, or have bad certificates."""

from collections.abc import Iterable
from dataclasses import replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import answer_over_http, error_answer, http_server, json_answer
from gateway_fixture import Running, serving
from proxy_server import proxy_server
from secondsight.access.identity import Role
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.enrol import EnrolSettings
from secondsight.agent.config import AgentConfig
from secondsight.clock import SystemClock
from secondsight.doctor.findings import Finding, Level
from secondsight.doctor.gateway import gateway
from tls_fixture import make_certificate, needs_openssl, tls_server

CLOCK = SystemClock()


def config_of(folder: Path, url: str, **changes: Any) -> AgentConfig:
    token = folder / "token"
    if not token.exists():
        token.write_text("very-secret\n")
    base = AgentConfig(gateway=url, spool_dir=folder / "spool", token_file=token, host_id="host-1")
    return replace(base, **changes)


def look(config: AgentConfig, **environment: str) -> list[Finding]:
    found = list(gateway(config, CLOCK, environment))
    assert "very-secret" not in str(found)
    assert "hunter2" not in str(found)
    return found


def assert_found(found: Iterable[Finding], *wanted: tuple[str, str, str]) -> None:
    """Everything that is not fine is, in order, of these (level, part of what, part of the remedy)."""
    bad = [one for one in found if one.level in (Level.WARNING, Level.FAULT)]
    assert len(bad) == len(wanted), bad
    for one, (level, part, todo) in zip(bad, wanted, strict=True):
        assert (one.level.value, part in one.what, todo in one.remedy) == (level, True, True), one


def healthy(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
    answer_over_http(handler, json_answer(200, {"status": "ok"}))


def token_of(running: Running, folder: Path, pattern: str = "*", **changes: Any) -> None:
    (folder / "token").write_text(running.token(pattern, **changes) + "\n")


def test_a_gateway_that_lets_this_agent_in(tmp_path: Path) -> None:
    with serving(tmp_path / "gateway", CLOCK) as running:
        token_of(running, tmp_path)
        found = look(config_of(tmp_path, f"http://127.0.0.1:{running.port}"))
    assert_found(found)
    assert any("good for collector host-1 on host host-1" in one.what for one in found)
    assert any("clock agrees with the gateway's" in one.what for one in found)


def test_tokens_that_a_gateway_does_not_take(tmp_path: Path) -> None:
    with serving(tmp_path / "gateway", CLOCK) as running:
        config = config_of(tmp_path, f"http://127.0.0.1:{running.port}")
        assert_found(look(config), ("fault", "does not know the token (401 ", "tokens create --role collector"))
        enrolling = replace(config, token_file=None, enrol=EnrolSettings(tmp_path / "join"))
        (tmp_path / "spool").mkdir()
        (tmp_path / "spool" / "token").write_text("very-secret\n")
        assert_found(look(enrolling), ("fault", "does not know the token", "tokens readmit host-1"))
        token_of(running, tmp_path, "other-*")
        words = "the token is known and may not do this (403 collector_not_allowed"
        assert_found(look(config), ("fault", words, "must allow collector host-1"))
        token_of(running, tmp_path, role=Role.VIEWER)
        assert_found(look(config), ("fault", "403 role_cannot_write", "must allow collector host-1"))
        (tmp_path / "token").unlink()
        assert_found(look(replace(config, token_file=tmp_path / "none")))


@needs_openssl
def test_a_gateway_over_tls_through_a_proxy(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls")
    with serving(tmp_path / "gateway", CLOCK, tls_certificate=certificate, tls_key=key) as running:
        token_of(running, tmp_path)
        config = config_of(tmp_path, f"https://127.0.0.1:{running.port}", ca_file=certificate)
        assert_found(look(config))
        with proxy_server("who:hunter2") as passed:
            assert_found(look(replace(config, proxy=passed.url)))
            assert set(passed.targets) == {f"CONNECT 127.0.0.1:{running.port}"}
            wrong = passed.url.replace("hunter2", "other")
            assert_found(look(replace(config, proxy=wrong)), ("fault", "another user or password", "into agent.proxy"))
        closed = ("fault", "the proxy 127.0.0.1:9 is not reached", "nothing listens there")
        assert_found(look(replace(config, proxy="http://127.0.0.1:9")), closed)


@needs_openssl
@pytest.mark.parametrize(
    ("name", "end", "trusted", "words", "remedy"),
    [
        ("IP:127.0.0.1", "20991231000000Z", False, "self-signed certificate", "the system's certificates are trusted"),
        ("IP:127.0.0.1", "20210101000000Z", True, "certificate has expired", "renew it at the gateway"),
        ("DNS:other.example", "20991231000000Z", True, "IP address mismatch", "use a name that is in it"),
    ],
)
def test_certificates_that_are_not_accepted(
    tmp_path: Path, name: str, end: str, trusted: bool, words: str, remedy: str
) -> None:
    made = make_certificate(tmp_path / "tls", name, end=end)
    with tls_server(made, healthy) as url:
        found = look(config_of(tmp_path, url, ca_file=made[0] if trusted else None))
    assert_found(found, ("fault", words, remedy))


@needs_openssl
def test_another_ca_than_the_gateways_is_named(tmp_path: Path) -> None:
    made, other = make_certificate(tmp_path / "tls"), make_certificate(tmp_path / "other")
    with tls_server(made, healthy) as url:
        found = look(config_of(tmp_path, url, ca_file=other[0]))
        assert_found(found, ("fault", "is not accepted", f"{other[0]} is trusted: set agent.ca_file"))
        missing = look(config_of(tmp_path, url, ca_file=tmp_path / "none.pem"))
        assert_found(missing, ("fault", "none.pem cannot be used: No such file", "PEM certificates"))
        (tmp_path / "empty.pem").write_text("no certificate\n")
        empty = look(config_of(tmp_path, url, ca_file=tmp_path / "empty.pem"))
        assert_found(empty, ("fault", "empty.pem cannot be used", "PEM certificates"))


@needs_openssl
def test_a_gateway_that_asks_for_certificates(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path / "tls", "IP:127.0.0.1,URI:host-1")
    tls = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": certificate, "tls_client_required": True}
    with serving(tmp_path / "gateway", CLOCK, **tls) as running:
        (tmp_path / "token").write_text(running.token("host-1", host_id="host-1"))
        url, ours = f"https://127.0.0.1:{running.port}", {"client_certificate": certificate, "client_key": key}
        found = look(config_of(tmp_path, url, ca_file=certificate, **ours))
        assert not [one for one in found if one.level is Level.FAULT]
        missing = look(config_of(tmp_path, url, ca_file=certificate, **ours | {"client_key": tmp_path / "none"}))
        assert_found(missing, ("fault", "cannot be used", "agent.client_key"))
        none = look(config_of(tmp_path, url, ca_file=certificate))
        assert_found(none, ("fault", "broke off", "set agent.client_certificate"))


@needs_openssl
def test_tls_and_plain_are_told_apart(tmp_path: Path) -> None:
    with http_server(healthy) as url:
        found = look(config_of(tmp_path, url.replace("http:", "https:")))
        assert_found(found, ("fault", "does not speak TLS", "is it an https port at all"))
    with tls_server(make_certificate(tmp_path / "tls"), healthy) as url:
        found = look(config_of(tmp_path, url.replace("https:", "http:")))
        assert [one.level for one in found if one.level is Level.FAULT] == [Level.FAULT]


def test_names_and_ports_that_lead_nowhere(tmp_path: Path) -> None:
    found = look(config_of(tmp_path, "https://no-such-host.invalid"))
    assert_found(found, ("fault", "no-such-host.invalid is not known", "DNS"))
    refused = look(config_of(tmp_path, "http://127.0.0.1:9"))
    assert_found(refused, ("fault", "the gateway 127.0.0.1:9 is not reached: Connection refused", "nothing listens"))
    for address in ("gateway.example:8471", "ftp://gateway.example", "http://"):
        assert_found(look(config_of(tmp_path, address)), ("fault", "is no address", "write https://HOST:PORT"))


@pytest.mark.parametrize(
    ("answer", "words", "remedy"),
    [
        (Answer(200, {"content-type": "text/html"}, b"<html>log in</html>"), "is no gateway of ours", "portal"),
        (json_answer(200, ["ok"]), "is no gateway of ours", "another server"),
        (error_answer(404, "not_found"), "is no gateway of ours: it answers 404", "another server"),
        (Answer(502, {}, b""), "answers 502", "load balancer"),
    ],
)
def test_what_is_no_gateway(tmp_path: Path, answer: Answer, words: str, remedy: str) -> None:
    with http_server(lambda handler, _body: answer_over_http(handler, answer)) as url:
        assert_found(look(config_of(tmp_path, url)), ("fault", words, remedy))


def test_a_gateway_that_is_busy_or_not_ready(tmp_path: Path) -> None:
    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/healthz":
            healthy(handler, body)
        else:
            status = 503 if handler.path == "/readyz" else 429
            answer_over_http(handler, error_answer(status, "busy", {"retry-after": "3"}))

    with http_server(respond) as url:
        ready = ("warning", "there and not ready: busy", "see the gateway's log")
        assert_found(look(config_of(tmp_path, url)), ready, ("warning", "is busy (429", "come back by themselves"))


@pytest.mark.parametrize(
    ("header", "seconds", "wanted"),
    [
        ("x-secondsight-received-ms", 0.0, []),
        ("x-secondsight-received-ms", 5.0, [("warning", "behind the gateway's", "chrony")]),
        ("x-secondsight-received-ms", -3600.0, [("fault", "1 h ahead of the gateway's", "chronyc makestep")]),
        ("date", 0.0, []),
        ("date", 90.0, [("fault", "behind the gateway's", "chronyc makestep")]),
        ("date", None, []),
    ],
)
def test_clocks_that_differ(
    tmp_path: Path, header: str, seconds: float | None, wanted: list[tuple[str, str, str]]
) -> None:
    def respond(handler: BaseHTTPRequestHandler, _body: bytes) -> None:
        told_ms = CLOCK.now_ms() + round(1000 * (seconds or 0.0))
        text = str(told_ms) if header != "date" else formatdate(told_ms / 1000, usegmt=True)
        handler.send_response_only(200)
        handler.send_header(header, text if seconds is not None else "no date at all")
        body = b'{"status":"ok"}'
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    with http_server(respond) as url:
        assert_found(look(config_of(tmp_path, url)), *wanted)


def test_hints_about_the_address_and_the_environment(tmp_path: Path) -> None:
    config = config_of(tmp_path, "http://no-such-host.invalid:1/path")
    assert_found(
        look(config, HTTPS_PROXY="http://user:hunter2@proxy:1"),
        ("warning", "in the clear", "say https://"),
        ("warning", "the path /path", "end the address with the port"),
        ("warning", "HTTPS_PROXY names a proxy, and the agent goes without one", "set agent.proxy"),
        ("fault", "is not known", "DNS"),
    )
