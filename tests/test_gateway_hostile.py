"""Whatever bytes come, the gateway answers: it never fails, and stores nothing of a body that it refuses whole."""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway_fixture import FRAMES, NOW_MS, content, frame, serving, stamp
from secondsight.access.identity import Role
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.gateway.admission import Bounds, refused_columns, refused_time
from secondsight.gateway.app import Gateway
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.run import open_stores
from secondsight.gateway.tls import Certificate
from secondsight.model import EntityKind
from secondsight.wire.content import Column
from secondsight.wire.frame import encode
from secondsight.wire.header import read_view
from secondsight.wire.schema import make_schema

GOOD = frame("host-1") + frame("host-2", 2) + frame("host-1", 3, inline=False)


class Recording:
    """A log that keeps everything in memory."""

    def __init__(self) -> None:
        self.items: list[tuple[bytes, bytes]] = []

    def append(self, items: Any) -> None:
        self.items.extend(items)

    def close(self) -> None:
        pass


class InProcess:
    """A gateway asked without a server."""

    def __init__(self, data: Path) -> None:
        stores = open_stores(GatewayConfig(data=data), ManualClock(NOW_MS))
        stores.ingest.close()
        self.log = Recording()
        self._runner = asyncio.Runner()
        self._gateway = Gateway(
            GatewayConfig(data=data), replace(stores, ingest=self.log), load_catalog(), ManualClock(NOW_MS)
        )
        spec = TokenSpec(Role.COLLECTOR, "t1", "test", cluster_id="c1", collector_pattern="host-*")
        self._secret = create_token(stores.metadata, spec, NOW_MS).secret

    def post(self, body: bytes) -> tuple[int, Any]:
        return self._runner.run(self._post(body))

    def close(self) -> None:
        self._runner.run(self._gateway.close())
        self._runner.close()

    async def _post(self, body: bytes) -> tuple[int, Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {self._secret}".encode()), (b"content-type", FRAMES.encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/frames", "query_string": b"", "headers": headers}
        await self._gateway(scope, receive, send)
        return sent[0]["status"], orjson.loads(sent[1]["body"])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    made = InProcess(tmp_path_factory.mktemp("gateway"))
    yield made
    made.close()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bodies_are_answered_and_leave_nothing(gateway: InProcess, data: st.DataObject):
    body = bytearray(GOOD)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    sent = bytes(body[:cut]) if data.draw(st.booleans()) else bytes(body) + data.draw(st.binary(max_size=40))
    before = len(gateway.log.items)
    status, answer = gateway.post(sent)
    assert status in {200, 400, 403, 413, 424}
    if status == 200:
        assert answer["accepted"] + answer["duplicate"] + len(answer["rejected"]) in range(4)
    else:
        assert answer["error"]["code"]
        assert len(gateway.log.items) == before


@settings(max_examples=100, deadline=None)
@given(
    ahead_ms=st.integers(-(10**10), 10**9),
    offset_ms=st.none() | st.integers(-(10**9), 10**9),
    width=st.integers(0, 400),
)
def test_a_time_is_refused_only_outside_the_bounds(ahead_ms: int, offset_ms: int | None, width: int):
    sent = stamp(newest_ms=NOW_MS + ahead_ms, clock_offset_ms=offset_ms, clock_uncertainty_ms=width)
    header = read_view(encode(sent, content()))
    refusal = refused_time(header, NOW_MS, Bounds(300_000, 10**9))
    newest_ms = NOW_MS + ahead_ms + header.correction_ms
    expected = "future_time" if newest_ms > NOW_MS + 300_000 else "too_old" if newest_ms < NOW_MS - 10**9 else None
    assert (refusal.code if refusal else None) == expected


@pytest.mark.parametrize("kind", list(EntityKind))
def test_the_catalogue_admits_its_own_columns(kind: EntityKind):
    catalog = load_catalog()
    columns = [Column(m.name, m.unit, m.dtype, m.resolution) for m in catalog.scalars(kind)]
    assert refused_columns(make_schema(kind, columns), catalog) == ()


needs_openssl = pytest.mark.skipif(which("openssl") is None, reason="needs openssl to make a certificate")


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN={name}"
    subprocess.run(
        [*command.split(), "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_files_that_do_not_fit_are_not_taken_into_use(tmp_path: Path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    watched = Certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert not watched.refresh(context)
    for path in (certificate, key):
        path.write_text("nonsense")
    assert not watched.refresh(context)


@needs_openssl
def test_a_gateway_serves_tls_and_takes_a_renewed_certificate(tmp_path: Path):
    certificate, key = make_certificate(tmp_path, "one.test")
    data = tmp_path / "data"
    with serving(data, tls_certificate=certificate, tls_key=key) as run:
        assert subject(run.port) == "one.test"
        make_certificate(tmp_path, "two.test")
        while subject(run.port) != "two.test":
            pass  # the server looks at the files every few seconds


def subject(port: int) -> str:
    pem = ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
    told = subprocess.run(
        ["openssl", "x509", "-noout", "-subject", "-nameopt", "multiline"],
        input=pem,
        text=True,
        check=True,
        capture_output=True,
    )
    return told.stdout.rsplit("= ", 1)[1].strip()
