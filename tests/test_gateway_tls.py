"""TLS of a gateway with real sockets: renewed files, and certificates of senders beside their tokens."""

import http.client
import json
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway_fixture import FRAMES, NOW_MS, Running, frame, serving
from secondsight.access.enrolment import JoinSpec, create_join_token
from secondsight.access.identity import Identity, Role
from secondsight.agent.client.connection import ClientCertificate
from secondsight.agent.client.transport import GatewayTransport
from secondsight.clock import SystemClock
from secondsight.config import build
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.tls import names_of, require_named
from tls_fixture import needs_openssl

pytestmark = needs_openssl
HOST = "host-1"


class Authority:
    """Whoever signs certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.certificate, self._key = folder / "ca.pem", folder / "ca.key"
        _openssl("req", "-x509", *KEY, "-days", "1", "-subj", "/CN=authority", *self._out(self._key, self.certificate))

    def sign(self, name: str, *others: str) -> ClientCertificate:
        """Return a certificate of a common name and others, such as `DNS:localhost`."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.cnf"
        extensions.write_text(f"subjectAltName={','.join(others or ('DNS:' + name,))}\n")
        _openssl("req", *KEY, "-subj", f"/CN={name}", *self._out(key, request))
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", "1")
        _openssl("x509", "-req", "-in", str(request), *by, "-extfile", str(extensions), "-out", str(certificate))
        return ClientCertificate(certificate, key)

    def _out(self, key: Path, certificate: Path) -> tuple[str, ...]:
        return "-keyout", str(key), "-out", str(certificate)


KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture(scope="module")
def server(ours: Authority) -> ClientCertificate:
    return ours.sign("gateway", "DNS:localhost", "IP:127.0.0.1")


def settings(server: ClientCertificate, authority: Authority, **more: Any) -> dict[str, Any]:
    own = {"tls_certificate": server.certificate, "tls_key": server.key}
    return own | {"tls_client_ca": authority.certificate} | more


def open_to(run: Running, ca: Path, client: ClientCertificate | None = None) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(ca))
    if client is not None:
        client.load(context)
    return http.client.HTTPSConnection("127.0.0.1", run.port, timeout=20, context=context)


def post(connection: http.client.HTTPSConnection, path: str, body: bytes, token: str, kind: str) -> tuple[int, Any]:
    connection.request("POST", path, body, {"Authorization": f"Bearer {token}", "Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def send(run: Running, ca: Path, token: str, client: ClientCertificate | None = None) -> tuple[int, str]:
    """Post a frame; return the status and the code of a refusal."""
    connection = open_to(run, ca, client)
    try:
        status, told = post(connection, "/v1/frames", frame(HOST), token, FRAMES)
    finally:
        connection.close()
    return status, told.get("error", {}).get("code", "")


def test_an_optional_certificate_says_on_which_machine_a_token_is_good(
    tmp_path: Path, server: ClientCertificate, ours: Authority
) -> None:
    mine, other = ours.sign(HOST), ours.sign("host-2")
    with serving(tmp_path, **settings(server, ours)) as run:
        bound, wide = run.token(HOST, host_id=HOST), run.token("*")
        assert send(run, ours.certificate, bound) == (200, "")
        assert send(run, ours.certificate, bound, mine) == (200, "")
        assert send(run, ours.certificate, bound, other) == (403, "certificate_mismatch")
        assert send(run, ours.certificate, wide, other) == (200, "")


def test_a_stranger_is_not_served_and_nobody_without_a_certificate_where_it_is_required(
    tmp_path: Path, server: ClientCertificate, ours: Authority, theirs: Authority
) -> None:
    with serving(tmp_path, **settings(server, ours, tls_client_required=True)) as run:
        token = run.token(HOST)
        assert send(run, ours.certificate, token, ours.sign(HOST)) == (200, "")
        for client in (None, theirs.sign(HOST)):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                send(run, ours.certificate, token, client)


def test_renewed_files_are_taken_into_use_and_connections_go_on(
    tmp_path: Path, server: ClientCertificate, ours: Authority, theirs: Authority
) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(ours.certificate.read_bytes())
    options = settings(server, ours, tls_client_required=True) | {"tls_client_ca": trusted}
    with serving(tmp_path / "data", **options) as run:
        token, old, new = run.token("*"), ours.sign(HOST), theirs.sign(HOST)
        connection = open_to(run, ours.certificate, old)
        assert post(connection, "/v1/frames", frame(HOST), token, FRAMES)[0] == 200
        sock = connection.sock
        fresh = tmp_path / "fresh.pem"
        fresh.write_bytes(theirs.certificate.read_bytes())
        fresh.rename(trusted)
        while not is_served(run, ours, token, new):
            threading.Event().wait(0.1)  # the gateway looks at the files every few seconds
        assert not is_served(run, ours, token, old)
        assert post(connection, "/v1/frames", frame(HOST, 2), token, FRAMES)[0] == 200
        assert connection.sock is sock
        connection.close()


def is_served(run: Running, authority: Authority, token: str, client: ClientCertificate) -> bool:
    try:
        return send(run, authority.certificate, token, client)[0] == 200
    except OSError:
        return False


def test_an_agent_shows_its_certificate_and_takes_a_renewed_one(
    tmp_path: Path, server: ClientCertificate, ours: Authority, theirs: Authority
) -> None:
    own = ClientCertificate(tmp_path / "own.pem", tmp_path / "own.key")
    token_file = tmp_path / "token"
    with serving(tmp_path / "data", **settings(server, ours, tls_client_required=True)) as run:
        token_file.write_text(run.token(HOST, host_id=HOST))
        url = f"https://127.0.0.1:{run.port}"
        transport = GatewayTransport(url, token_file, SystemClock(), ca_file=ours.certificate, client=own)
        with pytest.raises(Retryable, match=r"own\.pem"):
            transport.post(frame(HOST))
        for signed, is_good in ((theirs.sign(HOST), False), (ours.sign(HOST), True)):
            own.certificate.write_bytes(signed.certificate.read_bytes())
            own.key.write_bytes(signed.key.read_bytes())
            if is_good:
                assert transport.post(frame(HOST)).status == 200
            else:
                with pytest.raises(Retryable):
                    transport.post(frame(HOST))
        transport.close()


def test_an_agent_enrols_as_whom_its_certificate_names(
    tmp_path: Path, server: ClientCertificate, ours: Authority
) -> None:
    with serving(tmp_path, **settings(server, ours)) as run:
        join = create_join_token(run.stores.metadata, JoinSpec("t1", "all", "c1"), NOW_MS).secret

        def enrol(client: ClientCertificate, host: str) -> int:
            connection = open_to(run, ours.certificate, client)
            body = json.dumps({"collectorId": host, "hostId": host, "machine": "m"}).encode()
            try:
                return post(connection, "/v1/agents/enroll", body, join, "application/json")[0]
            finally:
                connection.close()

        mine = ours.sign(HOST)
        assert [enrol(mine, "host-2"), enrol(mine, HOST)] == [403, 200]


def test_names_are_common_names_and_alternatives() -> None:
    subject = ((("organizationName", "x"),), (("commonName", "host-1"),))
    found = names_of({"subject": subject, "subjectAltName": (("DNS", "host-1"), ("URI", "a:b"), ("IP Address", "::1"))})
    assert found == ("host-1", "a:b")
    assert names_of({}) is None
    assert names_of(None) is None


def test_a_certificate_without_names_is_of_nobody() -> None:
    identity = Identity("token:1", Role.COLLECTOR, "t1", "one", collector_pattern="host-1", host_id="host-1")
    require_named(None, identity)
    with pytest.raises(Rejected) as caught:
        require_named((), identity)
    assert caught.value.code == "certificate_mismatch"


@pytest.mark.parametrize(
    "given", [{"tls_client_ca": "/ca"}, {"tls_certificate": "/c", "tls_key": "/k", "tls_client_required": True}]
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(Rejected):
        build(GatewayConfig, {"data": "/d"} | given, "gateway")
