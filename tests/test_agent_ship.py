"""Frames reach a gateway that is away, busy, strict or mistaken, each exactly as often as it must."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_fixture import FakeGateway, content_of, down, error_answer, frame_of, json_answer
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.offset import ClockOffset, Exchange
from secondsight.clock import Clock, SystemClock
from secondsight.wire.content import Frame
from ship_rig import START_MS, Rig


@pytest.fixture
def rig_of(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Make rigs that end with the test."""
    made: list[Rig] = []

    def rig_of(gateway: FakeGateway, *further: Clock, **config: float) -> Rig:
        made.append(Rig(tmp_path, gateway, *further, **config))
        return made[-1]

    yield rig_of
    for rig in made:
        rig.spools.close()


@pytest.fixture
def rig(rig_of: Callable[..., Rig]) -> Rig:
    return rig_of(FakeGateway())


def test_records_become_one_frame_per_collector_with_definitions_inside_once(rig: Rig) -> None:
    rig.spool_ticks(5)
    rig.spool_ticks(3, collector="host-1/dcgm")
    rig.ship_until_empty()
    headers = [frame.header for frame in rig.gateway.frames]
    assert [(h.collector_id, len(h.tick_times_ms), h.first_sequence, h.last_sequence) for h in headers] == [
        ("host-1", 5, 0, 4),
        ("host-1/dcgm", 3, 5, 7),
    ]
    assert {h.spool_id for h in headers} == {rig.spool_id()}
    rig.spool_ticks(1)
    rig.ship_until_empty()
    assert rig.gateway.statuses == [200, 200]
    assert sorted(rig.gateway.ticks) == sorted(rig.expected)


def test_a_gateway_that_forgot_definitions_gets_them_again(rig: Rig) -> None:
    rig.spool_ticks(2)
    rig.ship_until_empty()
    rig.gateway.definitions = type(rig.gateway.definitions)()
    rig.spool_ticks(2)
    rig.ship_until_empty()
    assert rig.gateway.statuses == [200, 424, 200]
    assert rig.gateway.ticks == rig.expected


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503, 301])
def test_what_may_pass_is_kept_and_sent_again(rig: Rig, status: int) -> None:
    rig.spool_ticks(3)
    rig.gateway.script = [status, status]
    rig.ship_until_empty()
    assert rig.gateway.ticks == rig.expected
    assert not (rig.folder / "refused").exists()
    assert rig.counts.get("ship_failed") == 2


def test_no_answer_is_backed_off_from_later_and_later(rig: Rig) -> None:
    rig.spool_ticks(1)
    rig.gateway.script = [down() for _ in range(9)]
    waits = [rig.shipper.step(flush=True) for _ in range(9)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    rig.shipper.step(flush=True)
    assert rig.gateway.ticks == rig.expected


def test_a_new_token_ends_the_wait_of_what_was_refused_for_want_of_one(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(FakeGateway(), SystemClock(), backoff_seconds=7200.0, backoff_maximum_seconds=7200.0)
    rig.definitions.keep(content_of())
    rig.append(frame_of(rig.clock.now_ms()))
    rig.gateway.script = [error_answer(401, "token_invalid")]
    stop = threading.Event()
    thread = threading.Thread(target=rig.shipper.run, args=(stop,))
    thread.start()
    try:
        assert eventually(lambda: rig.shipper.delivery.waits_for != "")
        assert rig.spools.records == 1
        rig.shipper.hurry()
        assert eventually(lambda: rig.spools.records == 0)
        assert rig.gateway.statuses == [401, 200]
    finally:
        stop.set()
        thread.join()


def eventually(condition: Callable[[], bool]) -> bool:
    return any(condition() or threading.Event().wait(0.05) for _ in range(1200))


def test_retry_after_is_honoured_with_jitter_on_top(rig: Rig) -> None:
    rig.spool_ticks(1)
    rig.gateway.script = [error_answer(429, "overloaded", {"retry-after": "17"})] * 2
    assert rig.shipper.step(flush=True) == 17.5  # what is urgent was tried, and is not taken either
    rig.gateway.script = [error_answer(503, "away", {"retry-after": "1e9"})]
    assert rig.shipper.step(flush=True) == 601.0
    dates = {"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    rig.gateway.script = [error_answer(503, "away", dates)]
    assert rig.shipper.step(flush=True) == 32.0


def test_an_answer_that_is_no_gateways_does_not_empty_the_spool(rig: Rig) -> None:
    rig.spool_ticks(1)
    rig.gateway.script = [Answer(200, {}, b"<html>sign in</html>"), json_answer(200, ["ok"])]
    rig.shipper.step(flush=True)
    rig.shipper.step(flush=True)
    assert rig.spools.records == 1
    rig.ship_until_empty()
    assert rig.gateway.ticks == rig.expected


def poison(frame: Frame) -> str | None:
    block = frame.content.scalars
    bad = block is not None and any(666 in group.values for group in block.groups)
    return "poison" if bad else None


def test_a_poisonous_record_is_set_aside_and_the_rest_goes_on(rig_of: Callable[..., Rig], tmp_path: Path) -> None:
    rig = rig_of(FakeGateway(refuse=poison))
    rig.spool_ticks(6)
    rig.spool_ticks(1, value=666)
    poisoned = rig.expected.pop()
    rig.expected.append(("gap", poisoned[1]))
    rig.spool_ticks(4, collector="host-1/dcgm")
    rig.expected.remove(("gap", poisoned[1]))
    rig.ship_until_empty()
    assert sorted(set(rig.gateway.ticks)) == sorted(rig.expected)
    kept = list((tmp_path / "refused").iterdir())
    assert [path.name.split("-", 1)[1] for path in kept] == ["6-poison.frame"]
    assert rig.counts.labelled("rejected") == {"poison": 1}


def test_a_body_that_is_too_large_is_divided(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(FakeGateway(body_limit_frames=2))
    for number in range(7):
        rig.spool_ticks(2, collector=f"host-{number}", host=f"host-{number}")
    rig.ship_until_empty()
    assert sorted(rig.gateway.ticks) == sorted(rig.expected)
    assert 413 in rig.gateway.statuses


def test_unreadable_records_are_set_aside(rig: Rig) -> None:
    rig.spool_ticks(1)
    rig.append(b"no frame at all")
    rig.spool_ticks(1)
    rig.ship_until_empty()
    assert rig.gateway.ticks == rig.expected
    assert sum(rig.counts.labelled("rejected").values()) == 1


def test_refused_items_of_an_accepted_body_are_counted_by_code(rig: Rig) -> None:
    rig.spool_ticks(1)
    rejected = [{"index": 0, "code": "future_time", "message": "6 min ahead"}] * 2
    rig.gateway.script = [json_answer(200, {"accepted": 0, "duplicate": 0, "rejected": rejected})]
    rig.shipper.step(flush=True)
    assert rig.spools.records == 0
    assert rig.counts.labelled("rejected") == {"future_time": 2}


def test_a_gateway_that_says_anything_costs_no_memory_and_no_time(rig: Rig) -> None:
    strange = [None, 5, {}, {"code": "a\nb" * 100, "index": -9}, {"index": 10**30, "message": ["x"] * 1000}]
    rejected = [*strange, *({"index": number, "code": f"c{number}"} for number in range(300))]
    times = {"receivedMs": 10**300, "sentMs": 10**300}
    rig.gateway.script = [json_answer(200, {"accepted": 1, "duplicate": 0, "rejected": rejected} | times)]
    rig.spool_ticks(1)
    rig.shipper.step(flush=True)
    assert rig.spools.records == 0
    counted = rig.counts.labelled("rejected")
    assert len(counted) < 110
    assert counted["other"] > 190
    assert all(code.isprintable() and len(code) <= 100 for code in counted)
    assert rig.offset.now(rig.clock.monotonic_seconds()) == (None, 0)


def test_a_batch_waits_for_company_but_not_longer(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(FakeGateway(), batch_seconds=5.0, batch_records=4)
    rig.spool_ticks(1)
    assert rig.shipper.step() == 5.0
    rig.clock.move(2.0)
    assert rig.shipper.step() == 3.0
    rig.clock.move(3.0)
    assert rig.shipper.step() == 5.0
    assert rig.gateway.ticks == rig.expected
    rig.spool_ticks(9)
    assert rig.shipper.step() == 0.0
    assert rig.spools.records == 5


def test_after_a_restart_spooled_frames_are_still_readable(rig_of: Callable[..., Rig]) -> None:
    rig = rig_of(FakeGateway())
    rig.spool_ticks(3)
    rig.spools.close()
    again = rig_of(rig.gateway)
    again.ship_until_empty()
    assert rig.gateway.ticks == rig.expected


def test_a_clock_set_back_repeats_ticks_in_frames_of_their_own(rig: Rig) -> None:
    rig.definitions.keep(content_of())
    for tick_ms in (1000, 2000, 3000, 2000, 3000, 4000):
        rig.append(frame_of(START_MS + tick_ms))
    rig.ship_until_empty()
    assert [frame.header.tick_times_ms.size for frame in rig.gateway.frames] == [3, 3]


def test_the_clock_offset_comes_from_the_answer(rig: Rig) -> None:
    rig.gateway.now_ms = lambda: rig.clock.now_ms() - 90_000
    rig.spool_ticks(1)
    rig.ship_until_empty()
    assert rig.offset.now(rig.clock.monotonic_seconds()) == (90_000, 1)


def test_the_best_exchange_counts_until_it_is_old() -> None:
    offset = ClockOffset()
    offset.learn(Exchange(1000, 500, 500, 1010), 0.0)
    offset.learn(Exchange(2000, 1400, 1400, 2200), 1.0)
    assert offset.now(1.0) == (505, 7)
    assert offset.now(1800.0) == (505, 186)
    assert offset.now(1801.0) == (None, 0)
    offset.learn(Exchange(2000, 1400, 1400, 1999), 1.0)
    offset.forget()
    assert offset.now(1.0) == (None, 0)


ANSWERS = st.sampled_from([401, 429, 500, 424, "down", "html"])


@settings(max_examples=25, deadline=None)
@given(st.lists(ANSWERS, max_size=6), st.integers(1, 12), st.integers(1, 5))
def test_every_tick_arrives_whatever_the_gateway_answers_first(
    tmp_path_factory: pytest.TempPathFactory, first: list[int | str], ticks: int, batch: int
) -> None:
    rig = Rig(tmp_path_factory.mktemp("ship"), FakeGateway(), batch_records=batch)
    rig.gateway.script = [
        down() if answer == "down" else Answer(200, {}, b"hello") if answer == "html" else int(answer)
        for answer in first
    ]
    rig.spool_ticks(ticks)
    rig.ship_until_empty()
    assert sorted(set(rig.gateway.ticks)) == sorted(rig.expected)
    rig.spools.close()
