"""Look at the way to the gateway, one step after the other: name, connection, TLS, the gateway, clocks, the token.

The first step that fails ends it, as those behind it would only say the same. Everything has a deadline.
"""

import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

from secondsight.agent.client.answers import code_and_message
from secondsight.agent.client.connection import Answer, Connection, Proxy, parse_proxy
from secondsight.agent.config import AgentConfig
from secondsight.agent.health.words import plain, short, width
from secondsight.agent.plan.fetch import plan_path
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, Level, fault, ok, warning
from secondsight.errors import Rejected, SecondsightError

WAIT_SECONDS = 10.0
LIMIT_BYTES = 1 << 20
CLOCK_SECONDS = 1.0
CLOCK_REFUSED_SECONDS = 60.0
EXPIRES_DAYS = 21.0
PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EXPIRED, NOT_YET = 10, 9
UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
OTHER_NAME = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class Way:
    """Where requests go.

    Attributes:
        host, port: Of the gateway.
        proxy: None for none.
    """

    parts: SplitResult
    host: str
    port: int
    proxy: Proxy | None

    @property
    def first(self) -> tuple[str, int]:
        """Return what is connected to."""
        return (self.host, self.port) if self.proxy is None else (self.proxy.host, self.proxy.port)

    @property
    def first_name(self) -> str:
        """Return what that is called."""
        host, port = self.first
        return f"the {'gateway' if self.proxy is None else 'proxy'} {host}:{port}"


def gateway(config: AgentConfig, clock: Clock, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check that this host reaches its gateway and is let in."""
    way = _way(config)
    if isinstance(way, Finding):
        yield way
        return
    yield from _hints(config, way, environment)
    for step in (_name, _connect):
        found = step(way)
        yield found
        if found.level is Level.FAULT:
            return
    if way.parts.scheme == "https":
        shown = _tls(config, way, clock)
        yield shown
        if shown.level is Level.FAULT:
            return
    yield from _talk(config, clock)


def _way(config: AgentConfig) -> Way | Finding:
    try:
        parts = urlsplit(config.gateway)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        proxy = parse_proxy(config.proxy) if config.proxy else None
    except (ValueError, Rejected) as error:
        return fault(f"agent.gateway or agent.proxy is no address: {error}", "write https://HOST:PORT")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return fault(f"agent.gateway {config.gateway!r} is no address of a gateway", "write https://HOST:PORT")
    return Way(parts, parts.hostname, port, proxy)


def _hints(config: AgentConfig, way: Way, environment: Mapping[str, str]) -> Iterator[Finding]:
    if way.parts.scheme == "http" and way.host not in LOOPBACK:
        remedy = "put TLS before the gateway (gateway.tls_certificate), and say https://"
        yield warning(f"the token goes to {way.host} in the clear, as the address begins with http://", remedy)
    if way.parts.path.strip("/"):
        yield warning(f"the path {way.parts.path} of agent.gateway is not used", "end the address with the port")
    named = sorted({name for name in PROXY_VARIABLES if environment.get(name)})
    if named and not config.proxy:
        words = f"{', '.join(named)} names a proxy, and the agent goes without one"
        yield warning(words, "where the gateway is only reached through it, set agent.proxy")


def _name(way: Way) -> Finding:
    host, port = way.first
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def look() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        found = answers.get(timeout=WAIT_SECONDS)
    except queue.Empty:
        remedy = "see /etc/resolv.conf; the name servers there do not answer"
        return fault(f"the name {host} was not resolved in {WAIT_SECONDS:g} s", remedy)
    if isinstance(found, OSError):
        return fault(
            f"the name {host} is not known: {found.strerror or found}", "mend the name, or the DNS of this host"
        )
    addresses = sorted({str(one[4][0]) for one in found} - {host})
    return ok(f"{host} is {', '.join(addresses)}") if addresses else ok(f"{host} is an address")


def _connect(way: Way) -> Finding:
    remedies = {
        "ConnectionRefusedError": "nothing listens there: is it running, and is the port right?",
        "TimeoutError": "no answer at all: a firewall drops it, or the host is off",
    }
    try:
        socket.create_connection(way.first, timeout=WAIT_SECONDS).close()
    except OSError as error:
        remedy = remedies.get(
            type(error).__name__, "see routes and firewalls of this host: outgoing TCP is all it needs"
        )
        return fault(f"{way.first_name} is not reached: {error.strerror or error}", remedy)
    return ok(f"{way.first_name} takes connections")


def _tls(config: AgentConfig, way: Way, clock: Clock) -> Finding:
    try:
        context = ssl.create_default_context(cafile=None if config.ca_file is None else str(config.ca_file))
    except (OSError, ssl.SSLError) as error:
        remedy = "agent.ca_file is a file of PEM certificates that the agent's user may read"
        return fault(f"certificates of {config.ca_file} cannot be used: {error.strerror or error}", remedy)
    try:
        if config.client is not None:
            config.client.load(context)
    except OSError as error:
        remedy = "agent.client_certificate and agent.client_key are PEM files that fit together, and are readable"
        return fault(str(error), remedy)
    connection = http.client.HTTPSConnection(*way.first, timeout=WAIT_SECONDS, context=context)
    if way.proxy is not None:
        connection.set_tunnel(way.host, way.port, dict(way.proxy.headers))
    try:
        connection.connect()
        shown = connection.sock.getpeercert() if isinstance(connection.sock, ssl.SSLSocket) else None
        version = connection.sock.version() if isinstance(connection.sock, ssl.SSLSocket) else ""
    except ssl.SSLCertVerificationError as error:
        return _untrusted(config, way, error)
    except ssl.SSLError as error:
        remedy = "is it an https port at all? A gateway without tls_certificate is reached by http://"
        return fault(f"{way.host}:{way.port} does not speak TLS as it should: {error.reason or error}", remedy)
    except OSError as error:
        return _broken(way, str(error))
    finally:
        connection.close()
    return _certificate(way, shown or {}, version or "TLS", clock)


def _broken(way: Way, words: str) -> Finding:
    if way.proxy is None:
        return fault(
            f"{way.host}:{way.port} broke off: {words}", "see the log of the gateway, or of what stands before it"
        )
    if "407" in words:
        return fault(f"{way.first_name} wants another user or password: {words}", "write them into agent.proxy")
    remedy = f"let the proxy pass CONNECT {way.host}:{way.port}"
    return fault(f"{way.first_name} does not let through to {way.host}:{way.port}: {words}", remedy)


def _untrusted(config: AgentConfig, way: Way, error: ssl.SSLCertVerificationError) -> Finding:
    code, words = error.verify_code, error.verify_message
    what = f"the certificate of {way.host}:{way.port} is not accepted: {words}"
    if code == EXPIRED:
        return fault(what, "renew it at the gateway; if it is good, this host's clock is wrong")
    if code == NOT_YET:
        return fault(what, "this host's clock is behind, or the certificate is for later")
    if code in OTHER_NAME:
        return fault(what, f"use a name that is in it as agent.gateway, or make one for {way.host}")
    if code in UNKNOWN_ISSUER:
        now = "the system's certificates are trusted" if config.ca_file is None else f"{config.ca_file} is trusted"
        return fault(what, f"{now}: set agent.ca_file to the certificate of whoever signed it")
    return fault(what, "mend the certificate, or set agent.ca_file")


def _certificate(way: Way, shown: Mapping[str, Any], version: str, clock: Clock) -> Finding:
    until = shown.get("notAfter")
    if not isinstance(until, str):
        return ok(f"{version} with {way.host}")
    left_seconds = ssl.cert_time_to_seconds(until) - clock.now_ms() / 1000
    if left_seconds < EXPIRES_DAYS * 86_400:
        return warning(f"the certificate of {way.host} expires in {width(left_seconds)}", "renew it at the gateway")
    return ok(f"{version} with {way.host}, whose certificate is good for {left_seconds / 86_400:.0f} days")


def _talk(config: AgentConfig, clock: Clock) -> Iterator[Finding]:
    connection = Connection(config.gateway, clock, ca_file=config.ca_file, proxy=config.proxy, client=config.client)
    try:
        answer = _get(connection, "/healthz", {})
        found = _health(config, answer)
        yield found
        if found.level is Level.FAULT:
            return
        readiness = _get(connection, "/readyz", {})
        if readiness.status >= 500:
            remedy = "see the gateway's log; what agents collect waits in their spools"
            yield warning(f"the gateway is there and not ready: {'; '.join(code_and_message(readiness))}", remedy)
        sent_ms = clock.now_ms()
        answer = _get(connection, "/healthz", {})
        yield from _clocks(answer, (sent_ms + clock.now_ms()) / 2, (clock.now_ms() - sent_ms) / 2)
        yield from _token(config, connection)
    except SecondsightError as error:
        remedy = "see the log of the gateway, or of what stands before it"
        if config.client is None and config.gateway.startswith("https"):
            remedy += "; where it lets in nobody without a certificate, set agent.client_certificate and client_key"
        yield fault(f"the gateway broke off: {plain(str(error))}", remedy)
    finally:
        connection.close()


def _get(connection: Connection, target: str, headers: Mapping[str, str]) -> Answer:
    named = {"User-Agent": "secondsight-doctor", **headers}
    return connection.request("GET", target, named, timeout_seconds=WAIT_SECONDS, limit_bytes=LIMIT_BYTES)


def _health(config: AgentConfig, answer: Answer) -> Finding:
    try:
        is_ours = json.loads(answer.body).get("status") == "ok"
    except (ValueError, AttributeError):
        is_ours = False
    if answer.status == 200 and is_ours:
        return ok(f"a gateway answers at {config.gateway}")
    kind = answer.headers.get("content-type", "an unknown type")
    if answer.status in (502, 503, 504):
        remedy = "the gateway behind it is away: see its log, or that of the load balancer"
        return fault(f"what stands at {config.gateway} answers {answer.status}", remedy)
    remedy = "agent.gateway is another server, or a portal stands before it: mend the address or the port"
    return fault(f"{config.gateway} is no gateway of ours: it answers {answer.status} with {plain(kind)}", remedy)


def _clocks(answer: Answer, middle_ms: float, half_ms: float) -> Iterator[Finding]:
    received, exact = answer.headers.get("x-secondsight-received-ms", ""), True
    if not received.isdigit():
        date, exact = answer.headers.get("date", ""), False
        try:
            received = str(int(parsedate_to_datetime(date).timestamp() * 1000 + 500))
        except ValueError:
            return
    off_seconds = (middle_ms - int(received)) / 1000
    unsure = half_ms / 1000 + (0 if exact else 0.5)
    way = "ahead of" if off_seconds > 0 else "behind"
    words = f"this host's clock is {width(abs(off_seconds))} {way} the gateway's"
    if abs(off_seconds) - unsure > CLOCK_REFUSED_SECONDS:
        yield fault(words, "set the clock: chronyc makestep, or timedatectl set-ntp true")
    elif abs(off_seconds) - unsure > CLOCK_SECONDS:
        yield warning(words, "times are corrected by it; still, look after chrony or ntpd")
    else:
        yield ok(f"this host's clock agrees with the gateway's, within {short(abs(off_seconds) + unsure)}")


def _token(config: AgentConfig, connection: Connection) -> Iterator[Finding]:
    try:
        secret = config.token_path.read_text().strip()
    except OSError:
        return
    target = plan_path(config.collector, config.host, config.interval_ms)
    answer = _get(connection, target, {"Authorization": f"Bearer {secret}"})
    if answer.status in (200, 304):
        yield ok(f"the token is good for collector {config.collector} on host {config.host}")
        return
    code, message = code_and_message(answer)
    words = f"{answer.status} {plain(code)}: {plain(message)}"
    if answer.status == 401:
        yield fault(f"the gateway does not know the token ({words})", _new_token(config))
    elif answer.status == 403:
        remedy = f"the token is another's: it must allow collector {config.collector} and host {config.host}"
        yield fault(f"the token is known and may not do this ({words})", remedy)
    elif answer.status == 404:
        yield fault(f"there is no plan to be had ({words})", "agent.gateway is no gateway, or of an earlier version")
    else:
        yield warning(f"the gateway is busy ({words})", "nothing to do here: agents come back by themselves")


def _new_token(config: AgentConfig) -> str:
    if config.enrol is None:
        return (
            f"it was revoked, has expired, or is of another platform: secondsight tokens create --role collector "
            f"--cluster ID --collector {config.collector} --name {config.host}, into {config.token_path}"
        )
    return (
        f"it was revoked or has expired. If this host was revoked: secondsight tokens readmit {config.collector}, on "
        f"the platform; then the agent enrols anew with {config.enrol.join_token_file}"
    )
