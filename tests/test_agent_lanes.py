"""A backlog drains faster than it grows, in an order that is never late, while fresh samples overtake it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_fixture import FakeGateway, content_of, down, error_answer, frame_of, json_answer
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.pace import Backoff, BatchBytes
from secondsight.agent.ship.lanes import LEAD_SECONDS
from secondsight.agent.spool.losses import LossReason
from secondsight.model import Priority
from secondsight.process.watermark import AGENT_LATENESS_MS
from ship_rig import Rig

P0, P1, P2 = Priority


class Post(FakeGateway):
    """A gateway that takes `seconds` for each body, during which the agent goes on sampling."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.rig: Rig | None = None
        self.sizes: list[int] = []
        self.delivered: list[tuple[int, int, bool, int]] = []

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        assert self.rig is not None
        self.sizes.append(len(body))
        before = len(self.frames)
        if self.seconds >= 1:
            self.rig.produce(int(self.seconds))
        else:
            self.rig.clock.move(self.seconds)
        answer = super().post(body, urgent=urgent)
        now_ms = self.rig.clock.now_ms()
        for frame in self.frames[before:]:
            block, header = frame.content.scalars, frame.header
            if block is not None:
                values = block.groups[0].values[0]
                for tick, value in zip(block.tick_index, values, strict=True):
                    self.delivered.append((int(header.tick_times_ms[tick]), int(value) - 1, header.live, now_ms))
        return answer


def rig_of(folder: Path, seconds: float = 0.0, **config: float) -> tuple[Rig, Post]:
    gateway = Post(seconds)
    rig = Rig(folder, gateway, **({"batch_seconds": 5.0} | config))
    gateway.rig = rig
    rig.definitions.keep(content_of())
    return rig, gateway


def outage(rig: Rig, seconds: int) -> None:
    """Produce while the gateway is away."""
    for _ in range(0, seconds, 60):
        rig.gateway.script = [down()]
        rig.produce(60)
        rig.shipper.step()
    rig.gateway.script = []


def test_an_hours_backlog_drains_while_fresh_samples_arrive_at_once(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path, seconds=1.0)
    outage(rig, 3600)
    began_ms = rig.clock.now_ms()
    for _ in range(2000):
        wait = rig.shipper.step()
        rig.produce(round(wait))
        if rig.spools.oldest_age_seconds < 20:
            break
    took_seconds = (rig.clock.now_ms() - began_ms) / 1000
    assert took_seconds < 3600 / 20
    fresh = [now_ms - tick_ms for tick_ms, _, _, now_ms in gateway.delivered if tick_ms > began_ms]
    assert max(fresh) <= 25_000
    assert sum(age <= 12_000 for age in fresh) > 0.9 * len(fresh)
    gateway.seconds = 0.0
    rig.ship_until_empty()
    assert sorted((tick, value) for tick, value, _, _ in gateway.delivered) == sorted(
        (tick_ms, value) for _, tick_ms in rig.expected for value in range(3)
    )
    never_late(gateway)
    rig.spools.close()


def never_late(gateway: Post) -> None:
    """No tick arrives behind the watermark that the ticks before it have moved."""
    watermark = 0
    for tick_ms, _, is_live, _ in gateway.delivered:
        assert tick_ms >= watermark
        if not is_live:
            watermark = max(watermark, tick_ms - AGENT_LATENESS_MS)


def test_the_most_important_class_leads_by_a_bounded_time(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path, batch_bytes=20_000, least_bytes=20_000)
    outage(rig, 3600)
    rig.ship_until_empty(steps=5000)
    start = rig.expected[0][1]
    newest = dict.fromkeys(range(3), start)
    for tick_ms, value, _, _ in gateway.delivered:
        if tick_ms < start + 3_500_000:
            newest[value] = max(newest[value], tick_ms)
            assert newest[0] >= newest[1] - LEAD_SECONDS * 1000
            assert newest[2] >= min(newest[0], newest[1]) - 2 * LEAD_SECONDS * 1000 - 200_000
    first = [value for tick_ms, value, _, _ in gateway.delivered if tick_ms < start + 600_000]
    assert first[:600] == [0] * 600
    never_late(gateway)
    rig.spools.close()


def test_a_restart_amid_a_backlog_repeats_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path, batch_bytes=10_000, least_bytes=10_000)
    outage(rig, 1200)
    for _ in range(12):
        rig.shipper.step(flush=True)
        rig.produce(1)
    rig.spools.close()
    again, _ = rig_of(tmp_path, batch_bytes=10_000)
    again.gateway = gateway
    gateway.rig = again
    again.clock.move((rig.clock.now_ms() - again.clock.now_ms()) / 1000)
    again.shipper = again.new_shipper()
    again.ship_until_empty(steps=1000)
    sent = [(tick, value) for tick, value, _, _ in gateway.delivered]
    assert len(sent) == len(set(sent)) == 3 * len(rig.expected)
    again.spools.close()


def test_in_ordinary_times_nothing_is_marked_live(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path)
    for _ in range(60):
        rig.produce(1)
        rig.shipper.step()
    rig.ship_until_empty()
    assert {is_live for _, _, is_live, _ in gateway.delivered} == {False}
    assert 10 <= len(gateway.sizes) <= 14
    rig.spools.close()


def test_after_an_outage_the_first_body_is_small_and_they_grow(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path)
    outage(rig, 1800)
    gateway.sizes.clear()
    rig.ship_until_empty(steps=5000)
    assert gateway.sizes[0] < 8 * 1024
    assert max(gateway.sizes) > 2 * gateway.sizes[1]
    rig.spools.close()


def test_a_clock_set_back_or_forth_loses_and_repeats_nothing(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path)
    for step_seconds in (3600, -3600, -3600, 3600):
        rig.produce(30)
        rig.shipper.step()
        rig.clock.step_wall(step_seconds)
    rig.produce(30)
    rig.ship_until_empty(steps=500)
    sent = [(tick, value) for tick, value, _, _ in gateway.delivered]
    assert sorted(sent) == sorted((tick_ms, value) for _, tick_ms in rig.expected for value in range(3))
    rig.spools.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["ok", "down", "503", "restart"])), max_size=8))
def test_every_tick_of_every_class_arrives_once_and_never_late(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[int, str]]
) -> None:
    rig, gateway = rig_of(tmp_path_factory.mktemp("lanes"), batch_bytes=8000, least_bytes=2000)
    for seconds, event in turns:
        rig.produce(seconds)
        gateway.script = {"down": [down()], "503": [error_answer(503, "unavailable")]}.get(event, [])
        if event == "restart":
            rig.spools.close()
            expected, clock = rig.expected, rig.clock
            rig = Rig(rig.folder, gateway, batch_seconds=5.0, batch_bytes=8000, least_bytes=2000, clock=clock)
            rig.expected, gateway.rig = expected, rig
        rig.clock.move(rig.shipper.step())
    gateway.script = []
    rig.ship_until_empty(steps=2000)
    sent = [(tick, value) for tick, value, _, _ in gateway.delivered]
    assert sorted(sent) == sorted((tick_ms, value) for _, tick_ms in rig.expected for value in range(3))
    never_late(gateway)
    rig.spools.close()


def test_losses_are_declared_as_events_until_a_gateway_took_them(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path)
    rig.produce(10)
    member = next(one for one in rig.spools.members if one.priority == P2)
    for record in rig.spools.read(member, 4, 1 << 20):
        rig.spools.lose(member, record, LossReason.SPOOL_FULL)
    gateway.script = [json_answer(200, {"accepted": 3}), down()]
    rig.shipper.step(flush=True)
    rig.clock.move(100)
    rig.ship_until_empty()
    rig.shipper.step(flush=True)
    events = [event for frame in gateway.frames for event in frame.content.events]
    (event,) = events
    first_ms = rig.expected[0][1]
    assert (event.metric, event.entity, event.code) == ("agent_shed", "host-1", 2)
    assert (event.time_ms, event.end_ms) == (first_ms, first_ms + 4000)
    attributes = dict(event.attributes)
    assert {
        name: attributes[name] for name in ("reason", "class", "kind", "collector", "records", "rows", "values")
    } == {
        "reason": "spool_full",
        "class": "P2",
        "kind": "node",
        "collector": "host-1",
        "records": "4",
        "rows": "4",
        "values": "4",
    }
    assert (attributes["first_sequence"], attributes["last_sequence"]) == ("0", "3")
    assert rig.spools.losses == ()
    header = next(frame.header for frame in gateway.frames if frame.content.events)
    assert (header.rows, header.host_id, header.collector_id) == (0, "host-1", "host-1")
    rig.spools.close()


def test_a_declaration_that_is_repeated_has_the_same_identity(tmp_path: Path) -> None:
    rig, gateway = rig_of(tmp_path)
    rig.append(frame_of(1, 1), P2)
    member = next(one for one in rig.spools.members if one.priority == P2)
    rig.spools.lose(member, rig.spools.read(member, 1, 1000)[0], LossReason.RETENTION)
    for _ in range(2):
        book_id, entries = rig.spools.to_report()
        rig.spools.close()
        rig = Rig(tmp_path, gateway, clock=rig.clock)
        assert rig.spools.to_report() == (book_id, entries)
    rig.shipper.step(flush=True)
    assert rig.spools.to_report() == (book_id, ())
    rig.spools.close()


def test_waits_have_full_jitter_on_top_of_what_was_asked_for() -> None:
    chances = iter([0.0, 1.0, 0.5, 0.25])
    backoff = Backoff(1.0, 60.0, lambda: next(chances))
    assert [backoff.next_seconds(told) for told in (None, None, 30.0, 1e9)] == [0.05, 2.0, 32.0, 602.0]


def test_batches_shrink_after_a_failure_and_grow_with_success() -> None:
    batch = BatchBytes(10, 80)
    assert batch.now == 80
    batch.failed()
    seen = [batch.now]
    for seconds in (0.1, 0.1, 3.0, 9.0, 0.1, 0.1, 0.1, 0.1):
        batch.succeeded(seconds)
        seen.append(batch.now)
    assert seen == [10, 20, 40, 40, 20, 40, 80, 80, 80]
