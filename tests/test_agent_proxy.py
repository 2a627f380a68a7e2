"""Requests go through a proxy where the settings name one: whole addresses for HTTP, a tunnel for HTTPS."""

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent_fixture import FakeGateway, answer_over_http, http_server
from proxy_server import proxy_server
from secondsight.agent.client.connection import parse_proxy
from secondsight.agent.client.transport import GatewayTransport
from secondsight.clock import SystemClock
from secondsight.errors import Rejected, Retryable
from tls_fixture import make_certificate, needs_openssl, tls_server


class Site:
    """A gateway, and who asked it."""

    def __init__(self) -> None:
        self.gateway = FakeGateway()
        self.tokens: list[str] = []

    def respond(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.tokens.append(handler.headers["authorization"])
        assert handler.headers.get("proxy-authorization") is None
        answer_over_http(handler, self.gateway.post(body))


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def test_plain_requests_name_the_whole_address(token: Path) -> None:
    site = Site()
    with http_server(site.respond) as url, proxy_server("who:pass") as passed:
        transport = GatewayTransport(url, token, SystemClock(), proxy=passed.url)
        assert [transport.post(b"").status for _ in range(2)] == [200, 200]
        transport.close()
    assert passed.targets == [f"POST {url}/v1/frames"] * 2
    assert site.tokens == ["Bearer secret"] * 2


@needs_openssl
def test_tls_goes_through_a_tunnel_to_the_gateway_itself(token: Path, tmp_path: Path) -> None:
    site = Site()
    certificate = make_certificate(tmp_path / "tls")
    with tls_server(certificate, site.respond) as url, proxy_server("who:pass") as passed:
        transport = GatewayTransport(url, token, SystemClock(), ca_file=certificate[0], proxy=passed.url)
        assert transport.post(b"").status == 200
        transport.close()
    assert passed.targets == [f"CONNECT {url.removeprefix('https://')}"]
    assert site.tokens == ["Bearer secret"]


@needs_openssl
def test_a_proxy_that_refuses_is_named_without_its_password(token: Path, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "tls")
    with tls_server(certificate, Site().respond) as url, proxy_server("who:pass") as passed:
        wrong = passed.url.replace("who:pass", "who:secret-word")
        transport = GatewayTransport(url, token, SystemClock(), ca_file=certificate[0], proxy=wrong)
        with pytest.raises(Retryable, match=r"through the proxy 127\.0\.0\.1:\d+: .*407") as caught:
            transport.post(b"")
        transport.close()
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["proxy:3128", "https://proxy:3128", "http://proxy", "http://", "http://a:b@:1", "http://h:x"]
)
def test_what_is_no_proxy_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_proxy(text)
    assert caught.value.code == "bad_url"
    assert text not in str(caught.value)


def test_credentials_are_shown_as_they_were_meant() -> None:
    proxy = parse_proxy("http://me:a%40b@[::1]:3128")
    assert (proxy.host, proxy.port, dict(proxy.headers)) == (
        "::1",
        3128,
        {"Proxy-Authorization": "Basic bWU6YUBi"},
    )
