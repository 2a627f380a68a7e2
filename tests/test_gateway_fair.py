"""Under pressure each tenant and each cluster has its share, class P0 goes first, and nobody comes back all at once."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_fixture import NOW_MS, FlakyLog, Reply, Running, content, frame, serving, stamp
from secondsight.agent.client.pace import Backoff
from secondsight.clock import ManualClock
from secondsight.contracts import LogWriter
from secondsight.gateway.app import Stores
from secondsight.gateway.behind import Behind
from secondsight.gateway.gather import Gatherer
from secondsight.gateway.returns import LONGEST_SECONDS, Returns
from secondsight.gateway.shares import Entry, Flow, Holdings, Shares
from secondsight.gateway.turns import Turns
from secondsight.model import Priority
from secondsight.wire.frame import encode
from test_gateway_quotas import frame_of, shown, stored

GIANT, SMALL = "giant", "small"
URGENT = {"X_Secondsight_Priority": "0"}
SENDERS = 60
BACKLOG_BYTES = 20_000


class HeldLog:
    """A log whose appends wait until they are let go, and that tells when one has begun."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self.began = threading.Event()
        self.go_on = threading.Event()

    def append(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        self.began.set()
        assert self.go_on.wait(30)
        self._log.append(items)

    def close(self) -> None:
        self._log.close()


def many_frames(host_id: str, first: int, frames: int = 20) -> bytes:
    """A body of some ten kilobytes."""
    made = [encode(stamp(host_id, first + at), content(host_id, entities=40), inline=True) for at in range(frames)]
    return b"".join(made)


def until(condition: Callable[[], bool]) -> None:
    assert any(condition() or threading.Event().wait(0.01) for _ in range(2000))


def waits(run: Running) -> Counter[tuple[str, str]]:
    """Requests that were told to come back, by tenant and reason."""
    return run.gateway.door.pressure.waits


@contextmanager
def held(data: Path, **config: int) -> Iterator[tuple[Running, HeldLog, ThreadPoolExecutor]]:
    """A gateway whose log stands still, and threads to send from."""
    logs: list[HeldLog] = []

    def standing(stores: Stores) -> Stores:
        logs.append(HeldLog(stores.ingest))
        return replace(stores, ingest=logs[0])

    with ThreadPoolExecutor(80) as threads, serving(data, change=standing, **config) as run:
        try:
            yield run, logs[0], threads
        finally:
            logs[0].go_on.set()


def test_a_giant_that_fills_the_memory_is_told_to_wait_and_the_small_are_not(tmp_path: Path) -> None:
    body = many_frames("host-1", 1)
    limit = 10 * len(body)
    with held(tmp_path, in_flight_bytes=limit, body_bytes=limit) as (run, log, threads):
        giant, small = run.token(tenant_id=GIANT), run.token(tenant_id=SMALL)
        giants = [threads.submit(run.post, many_frames("host-1", 100 * at), giant) for at in range(30)]
        until(lambda: waits(run)[GIANT, "memory"] > 0)
        smalls = [threads.submit(run.post, frame("host-9", number), small) for number in range(30)]
        until(lambda: run.gateway.door.pressure.requests.by_tenant().get(SMALL) == 30)
        assert shown(run)['gateway_tenant_in_flight_requests{tenant="small"}'] == 30
        log.go_on.set()
        assert Counter(statuses(smalls)) == {200: 30}
        found = Counter(statuses(giants))
        assert set(found) == {200, 429}
        assert waits(run) == {(GIANT, "memory"): found[429]}
        told = shown(run)
        assert told['gateway_tenant_waits_total{reason="memory",tenant="giant"}'] == found[429]
        assert told["gateway_in_flight_bytes"] == 0
        assert stored(run) == 20 * found[200] + 30


def test_a_cluster_that_fills_the_memory_keeps_out_no_other_of_its_tenant(tmp_path: Path) -> None:
    body = many_frames("host-1", 1)
    limit = 10 * len(body)
    with held(tmp_path, in_flight_bytes=limit, body_bytes=limit) as (run, log, threads):
        loud, quiet = run.token(cluster_id="loud", region="eu"), run.token(cluster_id="quiet", region="us")
        louds = [threads.submit(run.post, many_frames("host-1", 100 * at), loud) for at in range(30)]
        until(lambda: waits(run)["t1", "memory"] > 0)
        refused = waits(run)["t1", "memory"]
        quiets = [threads.submit(run.post, frame("host-9", number), quiet) for number in range(20)]
        until(lambda: waits(run)["t1", "memory"] + done(louds, quiets) >= refused)
        log.go_on.set()
        assert Counter(statuses(quiets)) == {200: 20}
        assert 429 in statuses(louds)


def test_many_slow_bodies_of_one_tenant_leave_room_for_others(tmp_path: Path) -> None:
    with held(tmp_path, in_flight_requests=20) as (run, log, threads):
        giant, small = run.token(tenant_id=GIANT), run.token(tenant_id=SMALL)
        giants = [threads.submit(run.post, frame("host-1", number), giant) for number in range(60)]
        until(lambda: waits(run)[GIANT, "requests"] == 40)
        smalls = [threads.submit(run.post, frame("host-9", number), small) for number in range(10)]
        until(lambda: run.gateway.door.pressure.requests.by_tenant().get(SMALL) == 10)
        log.go_on.set()
        assert Counter(statuses(smalls)) == {200: 10}
        assert Counter(statuses(giants)) == {200: 20, 429: 40}


def statuses(sent: Sequence["Future[Reply]"]) -> list[int]:
    return [one.result(30).status for one in sent]


def done(*sent: Sequence["Future[Reply]"]) -> int:
    return sum(one.done() for some in sent for one in some)


@contextmanager
def behind(data: Path, limit_bytes: int) -> Iterator[tuple[Running, list[int]]]:
    """A gateway of whose log so much waits as the list says."""
    backlog = [0]

    def measured(stores: Stores) -> Stores:
        return replace(stores, backlog_bytes=lambda: backlog[0])

    with serving(data, ManualClock(NOW_MS), measured, backlog_bytes=limit_bytes) as run:
        yield run, backlog


def move(run: Running, seconds: float = 0.25) -> None:
    assert isinstance(run.clock, ManualClock)
    run.clock.move(seconds)


def fill(run: Running, backlog: list[int], token: str) -> int:
    """Send until more waits than may; return how many bodies that took."""
    bodies = 0
    while backlog[0] <= BACKLOG_BYTES:
        assert run.post(many_frames("host-1", 100 * bodies), token).status == 200
        bodies += 1
        move(run)
        backlog[0] = sum(len(one.body) for one in run.records())
    return bodies


def test_a_giants_backlog_is_its_own(tmp_path: Path) -> None:
    with behind(tmp_path, BACKLOG_BYTES) as (run, backlog):
        giant, small = run.token(tenant_id=GIANT), run.token(tenant_id=SMALL)
        bodies = fill(run, backlog, giant)
        reply = run.post(frame("host-1", 1000), giant)
        assert (reply.status, reply.json["error"]["reason"]) == (429, "backlog")
        assert [run.post(frame("host-9", number), small).status for number in range(5)] == [200] * 5
        assert run.post(frame_of(Priority.P0, 2000), giant, **URGENT).status == 200
        for priority in (Priority.P1, Priority.P2):
            assert run.post(frame_of(priority, 3000), giant, **URGENT).status == 429  # whatever it says of itself
        told = shown(run)
        assert told['gateway_tenant_backlog_bytes{tenant="giant"}'] > BACKLOG_BYTES
        assert waits(run) == {(GIANT, "backlog"): 3}
        backlog[0] = 0
        move(run)
        assert run.post(frame("host-1", 1000), giant).status == 200
        assert stored(run) == bodies * 20 + 5 + 1 + 1


def test_another_region_of_the_same_tenant_goes_on_while_one_is_behind(tmp_path: Path) -> None:
    with behind(tmp_path, BACKLOG_BYTES) as (run, backlog):
        here, there = run.token(cluster_id="c1", region="eu"), run.token(cluster_id="c1", region="us")
        fill(run, backlog, here)
        assert run.post(frame("host-1", 1000), here).status == 429
        assert run.post(frame("host-1", 1000), there).status == 200


def test_a_full_disk_is_left_to_class_p0_until_it_is_truly_full(tmp_path: Path) -> None:
    logs: list[FlakyLog] = []
    disk = [(10_000, 1_000_000)]

    def on_disk(stores: Stores) -> Stores:
        logs.append(FlakyLog(stores.ingest))
        return replace(stores, ingest=logs[0], disk_bytes=lambda: disk[0])

    with serving(tmp_path, ManualClock(NOW_MS), on_disk) as run:
        token = run.token()
        reply = run.post(frame(), token)
        assert (reply.status, reply.json["error"]["reason"]) == (429, "disk")
        assert run.post(frame_of(Priority.P0, 1), token, **URGENT).status == 200
        logs[0].away = True
        assert [run.post(frame_of(Priority.P0, 2), token, **URGENT).status, run.post(frame(), token).status] == [
            503,
            429,
        ]
        logs[0].away, disk[0] = False, (500_000, 1_000_000)
        move(run)
        assert run.post(frame_of(Priority.P0, 2), token, **URGENT).json["accepted"] == 1
        assert run.post(frame(), token).json["accepted"] == 1
        assert stored(run) == 3


def test_events_are_urgent(tmp_path: Path) -> None:
    with behind(tmp_path, 1000) as (run, backlog):
        token = run.token()
        backlog[0] = 2000
        assert run.post(frame(), token).status == 429
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        assert run.call("POST", "/v1/events", b"[]", headers).status == 200


def test_senders_that_must_wait_come_back_apart_and_no_sooner_than_told(tmp_path: Path) -> None:
    with behind(tmp_path, 1000) as (run, backlog):
        token = run.token()
        backlog[0] = 2000
        told = [run.post(frame(f"host-{at}"), token).headers["retry-after"] for at in range(SENDERS)]
        seconds = Counter(map(int, told))
        assert len(seconds) >= 5
        assert max(seconds.values()) <= SENDERS // 4
        chance = random.Random(4)
        back = [Backoff(1.0, 60.0, chance.random).next_seconds(float(one)) for one in told]
        assert all(wait >= float(one) for wait, one in zip(back, told, strict=True))
        assert max(Counter(map(int, back)).values()) <= SENDERS // 4


def test_senders_come_back_apart_when_the_log_was_away_too(tmp_path: Path) -> None:
    with serving(tmp_path, change=lambda stores: replace(stores, ingest=away(stores.ingest))) as run:
        token = run.token()
        replies = [run.post(frame(f"host-{at}"), token) for at in range(SENDERS)]
        assert {reply.status for reply in replies} == {503}
        seconds = Counter(int(reply.headers["retry-after"]) for reply in replies)
        assert max(seconds.values()) <= SENDERS // 4
        assert stored(run) == 0


def away(log: LogWriter) -> FlakyLog:
    flaky = FlakyLog(log)
    flaky.away = True
    return flaky


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2000), st.floats(0.5, 20), st.sampled_from([0.001, 0.005, 0.1]))
def test_times_to_come_back_are_spread_whatever_the_number(senders: int, least: float, gap: float) -> None:
    returns = Returns(ManualClock())
    told = [returns.after(least, gap) for _ in range(senders)]
    assert min(told) >= least
    assert max(told) <= LONGEST_SECONDS + least + gap
    per_second = max(Counter(map(int, told)).values())
    assert per_second <= 2 + 3 / gap + 3 * senders / max(least, 1.0)


def test_the_small_and_the_urgent_wait_for_one_call_at_most() -> None:
    calls: list[list[str]] = []
    began, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[str]) -> None:
        calls.append(list(items))
        began.set()
        assert go_on.wait(10)

    def entry(tenant: str, place: str = "c1", *, urgent: bool = False) -> Entry:
        return Entry(Flow(tenant, ("eu", place)), urgent)

    async def run() -> None:
        gatherer = Gatherer[str, None]("test", work, len, 100, lambda tenant: 3 if tenant == "heavy" else 1)
        first = asyncio.create_task(gatherer.submit(["x" * 100], entry(GIANT)))
        await asyncio.to_thread(began.wait)
        sent = [first]
        for at in range(50):
            sent.append(asyncio.create_task(gatherer.submit([f"giant-{at:04}"], entry(GIANT))))
        for at in range(4):
            sent.append(asyncio.create_task(gatherer.submit([f"heavy-{at:04}"], entry("heavy"))))
        sent.append(asyncio.create_task(gatherer.submit(["small-0000"], entry(SMALL))))
        sent.append(asyncio.create_task(gatherer.submit(["other-0000"], entry(GIANT, "c2"))))
        sent.append(asyncio.create_task(gatherer.submit(["first-0000"], entry(GIANT, urgent=True))))
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*sent)
        await gatherer.close()

    asyncio.run(run())
    second = calls[1]
    assert len(second) == 10
    assert second[0] == "first-0000"
    assert {"small-0000", "other-0000", "heavy-0000", "heavy-0001", "heavy-0002"} <= set(second)
    giants = [item for call in calls[1:] for item in call if item.startswith("giant")]
    assert giants == [f"giant-{at:04}" for at in range(50)]


flows = st.builds(Flow, st.sampled_from("abc"), st.tuples(st.just("eu"), st.sampled_from("xy")))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(flows, st.integers(0, 100)), max_size=40))
def test_shares_add_up_to_the_whole_and_what_is_given_back_is_gone(taken: list[tuple[Flow, int]]) -> None:
    shares = Shares(lambda tenant: ord(tenant) - ord("a") + 1)
    for flow, amount in taken:
        shares.take(flow, amount)
    holding = {flow for flow, amount in taken if amount}
    if holding:
        assert sum(shares.share(flow, 1.0) for flow in holding) == pytest.approx(1.0)
    assert shares.total == sum(amount for _, amount in taken)
    for flow, amount in taken:
        shares.give_back(flow, amount)
    assert shares.total == 0
    assert shares.by_tenant() == {}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(flows, st.booleans(), st.integers(1, 400)), max_size=200))
def test_there_is_never_more_than_twice_a_limit_and_the_small_are_let_in(
    asked: list[tuple[Flow, bool, int]],
) -> None:
    held, limit = Holdings(lambda _tenant: 1), 1000
    for flow, urgent, amount in asked:
        entry = Entry(flow, urgent)
        if held.total <= limit or not held.must_wait(entry, limit):
            held.take(entry, amount)
    assert held.total <= 2 * limit + 2 * limit // 4 + 2 * 400
    newcomer = Flow("new", ("eu", "x"))
    for _ in range(3):
        assert not held.must_wait(Entry(newcomer), limit) or held.total > 2 * limit


def test_what_waits_is_known_by_tenant_until_it_is_processed() -> None:
    waiting = Behind(lambda _tenant: 1)
    one, other = Entry(Flow("a", ("", "x"))), Entry(Flow("b", ("", "x")))
    for step in range(3000):
        waiting.appended(one if step % 3 else other, 10)
        waiting.measured(10 * (step + 1))
    found = waiting.by_tenant()
    assert (found["a"], found["b"]) == (20_000, 10_000)
    waiting.measured(100)
    assert 100 <= sum(waiting.by_tenant().values()) <= 400
    waiting.measured(0)
    assert waiting.by_tenant() == {}


def test_a_large_body_of_a_small_tenant_waits_for_one_of_a_giants_at_most() -> None:
    order: list[str] = []
    go_on = threading.Event()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            assert go_on.wait(10)
            order.append(name)

        return run

    async def run() -> None:
        turns = Turns(1, lambda _tenant: 1)
        giant, small = Entry(Flow(GIANT, ("", ""))), Entry(Flow(SMALL, ("", "")))
        sent = [asyncio.create_task(turns.run(giant, 100, work(f"giant-{at}"))) for at in range(20)]
        sent.append(asyncio.create_task(turns.run(small, 100, work("small"))))
        urgent = giant._replace(urgent=True)
        sent.append(asyncio.create_task(turns.run(urgent, 100, work("urgent"))))
        await asyncio.sleep(0)
        sent[5].cancel()
        go_on.set()
        await asyncio.gather(*sent, return_exceptions=True)
        assert await turns.run(small, 1, lambda: "again") == "again"
        turns.close()
        turns.close()

    asyncio.run(run())
    assert order[:3] == ["giant-0", "urgent", "small"]
    assert [name for name in order if name.startswith("giant")] == [f"giant-{at}" for at in range(20) if at != 5]
