"""What the agent is handed by gateways, jobs and operators that mean it ill, or well and wrongly: it goes on."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from secondsight.agent.client.answers import json_of, retry_after_seconds, shown
from secondsight.agent.client.connection import Answer, Connection
from secondsight.agent.client.enrol import Enroller, EnrolParts, EnrolSettings
from secondsight.agent.client.transport import GatewayTransport
from secondsight.agent.counts import Counts
from secondsight.agent.jobs.gpufiles import job_files, json_files
from secondsight.agent.jobs.hooks import read_hooks, write_hook
from secondsight.agent.plan.model import DAY_MS, TIME_MAXIMUM_MS, parse_plan
from secondsight.agent.ship.aside import Aside
from secondsight.agent.training.config import TrainingConfig
from secondsight.agent.training.receive import Datagram, Receiver
from secondsight.clock import ManualClock, SystemClock
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind

DEEP = b"[" * 100_000
NOW_MS = 1_704_067_200_000
DATE = "Mon, 01 Jan 2024 00:00:00 GMT"
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "data", [b"ss_cHIDDEN\nmore", b"ss_cHIDDEN\xff", "ss_cHIDDEN\u20ac".encode(), b"ss_cHIDDEN\0x"]
)
def test_a_token_that_cannot_be_sent_is_in_no_error(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(data)
    transport = GatewayTransport("http://127.0.0.1:9", file, SystemClock())
    with pytest.raises(Retryable, match="one line") as found:
        transport.post(b"x")
    assert "HIDDEN" not in repr(found.value)
    with pytest.raises(Retryable) as found:
        transport.enrol(data.decode(errors="replace") + "\r\nX-More: 1", b"x")
    assert "HIDDEN" not in repr(found.value)
    assert found.value.__cause__ is None


@pytest.mark.parametrize(
    "url", ["http://me:HIDDEN@", "ftp://me:HIDDEN@h", "http://me:HIDDEN@h", "http://me:HIDDEN@h:99999"]
)
def test_an_address_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(Rejected, match="bad_url") as found:
        Connection(url, SystemClock())
    assert "HIDDEN" not in repr(found.value)


@contextmanager
def dripping(head: bytes, each: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Serve one request with `head` and then drops for ever; the event says that the other side hung up."""
    gone, over = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            one, _ = server.accept()
            with one:
                one.recv(65_536)
                try:
                    one.sendall(head)
                    while not over.wait(0.02):
                        one.sendall(each)
                except OSError:
                    gone.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", gone
        over.set()
        thread.join(20)


@pytest.mark.parametrize(
    ("head", "each"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: a\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"a"),
    ],
)
def test_an_answer_that_drips_is_given_up_at_the_deadline(head: bytes, each: bytes) -> None:
    with dripping(head, each) as (url, gone):
        connection = Connection(url, SystemClock())
        with pytest.raises(Retryable):
            connection.request("GET", "/", {}, timeout_seconds=0.3, limit_bytes=1 << 20)
        assert gone.wait(20)


def test_what_a_server_says_is_one_short_line() -> None:
    assert shown("a\nb\x1b[31m" + "x" * 10_000) == "a?b?[31m" + "x" * 492
    assert json_of(Answer(200, {}, DEEP)) == {}
    late = {"retry-after": "Mon, 01 Jan 9999999999 00:00:00 GMT", "date": DATE}
    assert retry_after_seconds(Answer(429, late, b"")) is None


@pytest.mark.parametrize(
    "body", [DEEP, b'{"kinds":{"gpu":{"intervalMs":Infinity}}}', b'{"kinds":{},"sessions":[{"fromMs":1e999}]}']
)
def test_a_plan_that_cannot_be_read_is_none(body: bytes) -> None:
    with pytest.raises(Rejected, match="bad_plan"):
        parse_plan(body, '"a"')


def test_numbers_of_a_plan_are_bounded() -> None:
    times = {"id": "a", "fromMs": -(10**30), "untilMs": 10**30}
    body = {"kinds": {"gpu": {"intervalMs": 10**30}}, "sessions": [times]}
    plan = parse_plan(json.dumps(body).encode(), '"a"')
    assert plan.kinds[EntityKind.GPU].interval_ms == DAY_MS
    assert (plan.sessions[0].from_ms, plan.sessions[0].until_ms) == (0, TIME_MAXIMUM_MS)


@pytest.mark.parametrize("time", ["1e999", "NaN", "-5", "9" * 400, '"x"', "null"])
def test_a_hook_that_is_wrong_costs_itself(tmp_path: Path, time: str) -> None:
    good = {"time_ms": NOW_MS, "variables": {"SLURM_JOB_ID": "1"}}
    (tmp_path / "1.start").write_text(json.dumps(good))
    (tmp_path / "2.start").write_text(f'{{"time_ms":{time},"variables":{{"SLURM_JOB_ID":"2"}}}}')
    (tmp_path / "3.start").write_text('{"a":' * 100_000)
    hooks, refused = read_hooks(tmp_path)
    assert hooks[0].time_ms == NOW_MS
    assert all(0 < hook.time_ms <= TIME_MAXIMUM_MS for hook in hooks)
    assert refused == 3 - len(hooks)


def test_links_and_pipes_in_folders_of_jobs_are_not_read(tmp_path: Path) -> None:
    hidden, hooks, gpus = tmp_path / "hidden", tmp_path / "hooks", tmp_path / "gpus"
    hidden.write_text("SLURM_JOB_ID=9\n")
    for folder, names in ((hooks, ("1.start", "2.start")), (gpus, ("0", "1", "2.json"))):
        folder.mkdir()
        (folder / names[0]).symlink_to(hidden)
        os.mkfifo(folder / names[1])
    (gpus / "2.json").write_text('{"a":' * 10_000)
    assert read_hooks(hooks) == ([], 2)
    assert job_files(gpus, ()).unplaced == {(gpus / "2.json").read_text()}
    assert json_files(gpus, (), {}).unplaced == set()


def test_what_a_prolog_writes_follows_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / f".7-{NOW_MS}.start.{os.getpid()}").symlink_to(other)
    written = write_hook(hooks, "start", {"SLURM_JOB_ID": "7"}, NOW_MS)
    assert (other.read_text(), written.is_symlink()) == ("kept", False)


@pytest.mark.parametrize("code", ["../../x", "/etc/x", "€" * 100, "a\0b", "x" * 400])
def test_a_code_names_no_path(tmp_path: Path, code: str) -> None:
    Aside(tmp_path / "aside", 1 << 20, ManualClock(NOW_MS)).keep(b"frame", 1, code)
    assert [path.read_bytes() for path in (tmp_path / "aside").iterdir()] == [b"frame"]


def test_a_job_does_not_put_its_datagrams_in_place_of_another_users(tmp_path: Path) -> None:
    sent = [(1, 10, 1000), (2, 10, 1000), (3, 66, 6666)]
    receiver = Receiver(TrainingConfig(socket=tmp_path / "socket"), SystemClock())
    try:
        same = [Datagram(b'{"v":1,"seq":%d}' % number, 0.0, pid, uid) for number, pid, uid in sent]
        receiver._pile = list(same)
        assert receiver.take() == [same[1], same[2]]
    finally:
        receiver.close()


class Asked:
    """A gateway that gives tokens by its own clock."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self.answer = answer
        self.shown: list[str] = []

    def enrol(self, secret: str, _body: bytes) -> Answer:
        self.shown.append(secret)
        return self.answer()

    def close(self) -> None:
        """Nothing is open."""


def given(token: object = "ss_cNEW", expires_ms: object = NOW_MS + 30 * HOUR_MS) -> Answer:
    return Answer(200, {"date": DATE}, json.dumps({"token": token, "expiresMs": expires_ms}).encode())


def enroller(folder: Path, asked: Asked, clock: ManualClock) -> Enroller:
    join = folder / "join"
    join.write_text("ss_jJOIN\n")
    parts = EnrolParts(EnrolSettings(join), asked, folder / "spool", folder, "a", "h", Counts(), lambda: 0.5)
    return Enroller(parts, clock)


@pytest.mark.parametrize("off_ms", [0, 365 * 24 * HOUR_MS, -365 * 24 * HOUR_MS])
def test_a_clock_that_is_off_changes_nothing_about_when_a_token_is_renewed(tmp_path: Path, off_ms: int) -> None:
    clock = ManualClock(NOW_MS + off_ms)
    asked = Asked(given)
    one = enroller(tmp_path, asked, clock)
    assert one.step()
    assert one.renew_ms == NOW_MS + off_ms + 20 * HOUR_MS
    assert one.step()
    assert asked.shown == ["ss_jJOIN"]


def test_a_clock_that_went_back_has_the_token_renewed(tmp_path: Path) -> None:
    asked = Asked(given)
    assert enroller(tmp_path, asked, ManualClock(NOW_MS)).step()
    again = enroller(tmp_path, asked, ManualClock(NOW_MS - 100 * HOUR_MS))
    assert again.step()
    assert asked.shown == ["ss_jJOIN", "ss_cNEW"]
    assert again.renew_ms == NOW_MS - 80 * HOUR_MS


@pytest.mark.parametrize("token", ["a\nb", "", "\u20ac", "x" * 100_000, 5, None])
def test_a_token_that_could_not_be_sent_is_not_kept(tmp_path: Path, token: object) -> None:
    one = enroller(tmp_path, Asked(lambda: given(token)), ManualClock(NOW_MS))
    assert not one.step()
    assert not one.has_token


def test_no_token_is_asked_for_that_the_disk_would_not_take(tmp_path: Path) -> None:
    asked = Asked(given)
    one = enroller(tmp_path, asked, ManualClock(NOW_MS))
    (tmp_path / "spool").write_text("no folder")
    with pytest.raises(OSError, match="spool"):
        one.step()
    assert asked.shown == []


def test_while_the_gateway_gives_none_a_token_stays_due(tmp_path: Path) -> None:
    asked = Asked(given)
    clock = ManualClock(NOW_MS)
    one = enroller(tmp_path, asked, clock)
    assert one.step()
    asked.answer = lambda: Answer(503, {}, DEEP)
    clock.move(21 * HOUR_MS / 1000)
    for _ in range(2):
        assert not one.step()
        clock.move(60)
    assert one.renew_ms == NOW_MS + 20 * HOUR_MS
    asked.answer = given
    assert one.step()
    assert asked.shown == ["ss_jJOIN", *["ss_cNEW"] * 3]
