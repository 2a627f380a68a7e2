"""Posts that are there as a whole are answered as any other, whatever pieces and whatever company they come in."""

import asyncio
import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_fixture import FRAMES, Running, frame, serving
from secondsight.gateway.whole import KnownHead, Run, learnt


def post(token: str, body: bytes, *, length: str = "", **more: str) -> bytes:
    """The bytes of a post of frames."""
    headers = {"Host": "x", "Authorization": f"Bearer {token}", "Content-Type": FRAMES, **more}
    lines = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in headers.items())
    return f"POST /v1/frames HTTP/1.1\r\n{lines}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


class Line:
    """One connection, on which answers are read in their order."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.read: IO[bytes] = link.makefile("rb")

    def send(self, data: bytes) -> None:
        self.link.sendall(data)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self.read.readline().split()[1])
        headers = dict(http.client.parse_headers(self.read).items())
        return status, headers, self.read.read(int(headers.get("content-length", "0")))

    def told(self) -> tuple[int, int, int]:
        """Status, and how many frames were accepted and were duplicates."""
        status, _, body = self.answer()
        told = orjson.loads(body)
        return status, told.get("accepted", 0), told.get("duplicate", 0)

    def ended(self) -> bool:
        return self.read.read(1) == b""


@contextmanager
def line(run: Running) -> Iterator[Line]:
    """Connect to a gateway."""
    with socket.create_connection(("127.0.0.1", run.port), 20) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = Line(link)
        yield made
        made.read.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def test_posts_with_one_head_are_each_stored_once(run: Running) -> None:
    token, before = run.token(), len(run.records())
    frames = [frame("host-1", 1), frame("host-1", 2), frame("host-2", 3), frame("host-1", 4, inline=False)]
    bodies = [frames[0], frames[1] + frames[2], frames[3]]
    with line(run) as opened:
        for body, accepted in zip(bodies, (1, 2, 1), strict=True):
            opened.send(post(token, body))
            assert opened.told() == (200, accepted, 0)
        opened.send(post(token, bodies[1]))
        assert opened.told() == (200, 0, 2)
    stored = [envelope.body for envelope in run.records()[before:]]
    assert sorted(body for body in stored if body.startswith(b"SSFR")) == sorted(frames)


@pytest.mark.parametrize("place", ["request", "head", "digits", "end of head", "body", "last"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_post_in_two_pieces_is_answered(run: Running, place: str, is_first: bool) -> None:
    token, body = run.token(), frame("host-3", 1)
    sent = post(token, body)
    head = len(sent) - len(body)
    at = {"request": 5, "head": 40, "digits": head - 5, "end of head": head, "body": head + 9, "last": len(sent) - 1}
    with line(run) as opened:
        if not is_first:
            opened.send(sent)
            assert opened.told()[0] == 200
        for piece in (sent[: at[place]], sent[at[place] :]):
            opened.send(piece)
            time.sleep(0.02)
        status, accepted, duplicate = opened.told()
        assert (status, accepted + duplicate) == (200, 1)
        opened.send(sent)
        assert opened.told() == (200, 0, 1)


def test_requests_in_a_row_are_answered_in_their_order(run: Running) -> None:
    token = run.token()
    known = post(token, frame("host-4", 1))
    others = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with line(run) as opened:
        opened.send(known)
        assert opened.told() == (200, 1, 0)
        opened.send(post(token, frame("host-4", 2)) + others + post(token, frame("host-4", 3)) + others + known)
        assert opened.told() == (200, 1, 0)
        assert opened.answer()[2] == b'{"status":"ok"}'
        assert opened.told() == (200, 1, 0)
        assert opened.answer()[2] == b'{"status":"ok"}'
        assert opened.told() == (200, 0, 1)
        opened.send(known)
        opened.send(others)
        assert opened.told() == (200, 0, 1)
        assert opened.answer()[2] == b'{"status":"ok"}'


def test_another_head_is_read_anew(run: Running) -> None:
    body = frame("host-5", 1)
    mine, other = run.token("host-5"), run.token("host-6")
    with line(run) as opened:
        for token, more, status in (
            (mine, {}, 200),
            (other, {}, 403),
            ("wrong", {}, 401),
            (mine, {"Content_Encoding": "gzip"}, 415),
            (mine, {"Expect": "100-continue"}, 100),
        ):
            opened.send(post(token, body, **more))
            assert opened.answer()[0] == status
        assert opened.told() == (200, 0, 1)
        opened.send(post(mine, body, Connection="close"))
        status, headers, _ = opened.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert opened.ended()


@pytest.mark.parametrize("length", ["-1", "+5", "5x", "99999999999999999999", "0x10", " 7 7"])
def test_a_length_that_is_none_is_refused(run: Running, length: str) -> None:
    token, body = run.token(), frame("host-7", 1)
    with line(run) as opened:
        opened.send(post(token, body))
        assert opened.told()[0] == 200
        opened.send(post(token, body, length=length))
        assert opened.answer()[0] == 400
        assert opened.ended()


def test_a_refused_body_is_answered_and_the_next_one_is_taken(run: Running) -> None:
    token, body = run.token(), frame("host-8", 1)
    with line(run) as opened:
        opened.send(post(token, body))
        assert opened.told() == (200, 1, 0)
        opened.send(post(token, body[:-1] + b"?"))
        status, _, told = opened.answer()
        assert (status, orjson.loads(told)["error"]["code"]) == (400, "bad_checksum")
        opened.send(post(token, b""))
        assert opened.told() == (200, 0, 0)
        opened.send(post(token, frame("host-8", 2)))
        assert opened.told() == (200, 1, 0)


def test_idle_connections_are_closed_and_late_bodies_are_given_up(tmp_path: Path) -> None:
    with serving(tmp_path, keep_alive_seconds=1, body_timeout_seconds=0.5) as run, line(run) as idle, line(run) as late:
        token, body = run.token(), frame("host-1", 1)
        for opened in (idle, late):
            opened.send(post(token, body))
            assert opened.told()[0] == 200
        late.send(post(token, body)[: -len(body)])
        assert late.answer()[0] == 408
        assert idle.ended()


def test_what_is_on_its_way_at_the_end_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as run:
        token = run.token()
        with line(run) as opened:
            opened.send(post(token, frame("host-1", 1)))
            assert opened.told() == (200, 1, 0)
            opened.send(post(token, frame("host-1", 2)))
            assert opened.told() == (200, 1, 0)
    assert len([envelope for envelope in run.records() if envelope.body.startswith(b"SSFR")]) == 2


@given(
    before=st.binary(max_size=30),
    length=st.integers(0, 10**9 - 1),
    after=st.binary(max_size=30),
    data=st.binary(max_size=60),
)
def test_a_known_head_finds_its_like_and_nothing_else(before: bytes, length: int, after: bytes, data: bytes) -> None:
    known = KnownHead(b"POST " + before, b"\r\n" + after, {})
    like = known.before + b"%d" % length + known.after
    assert known.body_at(like + data) == (len(like), length)
    found = known.body_at(data)
    assert found is None or data[: found[0]] == known.before + data[len(known.before) : found[0] - len(known.after)] + (
        known.after
    )


@pytest.mark.parametrize(
    ("head", "is_known"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nA: b\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\ncontent-length:5\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nA: Content-Length: 5\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 5 \r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n", False),
    ],
)
def test_heads_with_one_length_are_learnt(head: bytes, is_known: bool) -> None:
    found = learnt(head, {})
    assert (found is not None) == is_known
    assert found is None or found.before + b"5" + found.after == head


def test_a_run_goes_as_far_as_it_can_and_on_from_what_it_waits_for() -> None:
    answers: list[bytes] = []

    async def waits(some: "list[asyncio.Future[bytes]]") -> bytes:
        return b"".join([await one for one in some])

    async def runs() -> None:
        loop = asyncio.get_running_loop()
        Run(waits([]), answers.append)
        assert answers == [b""]
        done, later = loop.create_future(), loop.create_future()
        done.set_result(b"a")
        Run(waits([done, later]), answers.append)
        assert answers == [b""]
        later.set_result(b"b")
        await asyncio.sleep(0)
        assert answers == [b"", b"ab"]

    asyncio.run(runs())


def test_a_run_that_cannot_go_on_ends_without_an_answer() -> None:
    answers: list[bytes] = []

    async def waits(one: "asyncio.Future[bytes]") -> bytes:
        return await one

    async def runs() -> list[object]:
        loop = asyncio.get_running_loop()
        told: list[object] = []
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        given_up, failed = loop.create_future(), loop.create_future()
        for one in (given_up, failed):
            Run(waits(one), answers.append)
        given_up.cancel()
        failed.set_exception(ValueError("of its own"))
        await asyncio.sleep(0)
        return told

    told = asyncio.run(runs())
    assert answers == [b"", b""]
    assert [type(one) for one in told] == [asyncio.CancelledError, ValueError]
