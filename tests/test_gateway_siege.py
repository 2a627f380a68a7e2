"""A gateway under siege stays within its bounds, says who besieges it, and serves the others."""

import gzip
import http.client
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zstandard

from foreign_index import snappy
from foreign_rig import FIRST, foreign
from gateway_fixture import FRAMES, Running, frame, serving
from secondsight.gateway.connection import Caller, Connection, surplus
from secondsight.gateway.run import connections_maximum
from test_gateway_fair import GIANT, SMALL, until
from test_gateway_quotas import shown

BODY_BYTES = 1 << 20
ZEROS = bytes(40 * BODY_BYTES)


@contextmanager
def slow_bodies(run: Running, token: str, number: int) -> Iterator[list[socket.socket]]:
    """Requests whose bodies are announced, begun and not ended."""
    head = (
        f"POST /v1/frames HTTP/1.1\r\nHost: x\r\nContent-Type: {FRAMES}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: 100000\r\n\r\nSSFR"
    )
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_connection(("127.0.0.1", run.port), 20)) for _ in range(number)]
        for one in sockets:
            one.sendall(head.encode())
        yield sockets


def test_bodies_that_drip_take_a_bounded_number_of_requests_and_end(tmp_path: Path) -> None:
    with serving(tmp_path, in_flight_requests=50, body_timeout_seconds=3.0) as run:
        giant, small = run.token(tenant_id=GIANT), run.token(tenant_id=SMALL)
        with slow_bodies(run, giant, 120) as sockets:
            until(lambda: run.gateway.door.pressure.waits[GIANT, "requests"] == 70)
            assert [run.post(frame("host-9", number), small).status for number in range(5)] == [200] * 5
            told = shown(run)
            assert told['gateway_tenant_in_flight_requests{tenant="giant"}'] == 50
            assert told['gateway_tenant_in_flight_bytes{tenant="giant"}'] == 4 * 50
            assert told['gateway_tenant_waits_total{reason="requests",tenant="giant"}'] == 70
            statuses = Counter(one.recv(12) for one in sockets)
            assert statuses == {b"HTTP/1.1 429": 70, b"HTTP/1.1 408": 50}
        assert 'gateway_tenant_in_flight_requests{tenant="giant"}' not in shown(run)


def test_hundreds_of_connections_of_one_tenant_make_room_for_another(tmp_path: Path) -> None:
    with serving(tmp_path, connections=60) as run, ExitStack() as opened:
        giant, small = run.token(tenant_id=GIANT), run.token(tenant_id=SMALL)
        for number in range(300):
            connection = run.connect()
            opened.callback(connection.close)
            connect_and_post(connection, giant, number)
        until(lambda: 0 < run.gateway.connections.get(GIANT, 0) <= 45)
        until(lambda: is_taken(run, small))
        told = shown(run)
        assert 0 < told['gateway_tenant_connections{tenant="giant"}'] <= 60


def is_taken(run: Running, token: str) -> bool:
    """Send a frame and tell whether it is stored; who connects before room is made is sent away unread."""
    try:
        return run.post(frame("host-9", 1), token).status == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def connect_and_post(connection: http.client.HTTPConnection, token: str, number: int) -> None:
    """Send a frame; a server that has too many connections closes this one without an answer."""
    try:
        connection.request(
            "POST",
            "/v1/frames",
            frame("host-1", number),
            {"Authorization": f"Bearer {token}", "Content-Type": FRAMES},
        )
        connection.getresponse().read()
    except (ConnectionError, http.client.HTTPException):
        connection.close()


class Idle(Connection):
    """A connection that is not served."""

    def __init__(self, tenant_id: str, *, is_idle: bool = True) -> None:
        self.caller = Caller(tenant_id=tenant_id)
        self._is_idle = is_idle

    @property
    def is_idle(self) -> bool:
        return self._is_idle

    def __hash__(self) -> int:
        return id(self)


def test_room_is_made_by_those_who_have_most_and_wait_for_nothing() -> None:
    made = [Idle(GIANT) for _ in range(60)] + [Idle(GIANT, is_idle=False) for _ in range(20)]
    made += [Idle(SMALL) for _ in range(10)]
    counts = Counter({GIANT: 80, SMALL: 10})
    assert list(surplus(made, counts, 200)) == []
    closed = list(surplus(made, counts, 100))
    assert len(closed) == 80 - 25
    assert all(one.caller.tenant_id == GIANT and one.is_idle for one in closed)


def test_no_more_connections_are_wanted_than_files_may_be_open() -> None:
    assert connections_maximum(10) == 10
    assert connections_maximum(1 << 40) < 1 << 40


BOMBS: dict[str, Callable[[], bytes]] = {
    "gzip": lambda: gzip.compress(ZEROS),
    "zstd": lambda: zstandard.compress(ZEROS),
    "deflate": lambda: zlib.compress(ZEROS),
}


@pytest.mark.parametrize("encoding", BOMBS)
@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/events"])
def test_a_body_that_expands_is_given_up_at_its_bound(tmp_path: Path, path: str, encoding: str) -> None:
    with foreign(tmp_path, body_bytes=BODY_BYTES) as gateway:
        packed = BOMBS[encoding]()
        assert len(packed) < BODY_BYTES // 8
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        reply = gateway.post(path, packed, headers)
        assert (reply.status, refused(gateway.run)) == (413, {"body_too_large": 1})
        assert gateway.frames() == []


@pytest.mark.parametrize("encoding", ["snappy", "zstd"])
def test_a_remote_write_that_expands_is_given_up_at_its_bound(tmp_path: Path, encoding: str) -> None:
    with foreign(tmp_path, body_bytes=BODY_BYTES * 4) as gateway:
        packed = snappy(ZEROS) if encoding == "snappy" else zstandard.compress(ZEROS)
        reply = gateway.post("/api/v1/write", packed, FIRST | {"Content-Encoding": encoding})
        assert (reply.status, refused(gateway.run)) == (413, {"body_too_large": 1})


def refused(run: Running) -> dict[str, float]:
    """Refused requests by code."""
    name = 'gateway_refused_requests_total{code="'
    return {key.removeprefix(name)[:-2]: value for key, value in shown(run).items() if key.startswith(name)}


def test_threads_do_not_pile_up_for_what_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, in_flight_requests=5) as run:
        token = run.token(tenant_id=GIANT)
        assert run.post(frame(), token).status == 200
        before = threading.active_count()
        with slow_bodies(run, token, 60):
            until(lambda: run.gateway.door.pressure.waits[GIANT, "requests"] == 55)
            assert threading.active_count() <= before + 2
