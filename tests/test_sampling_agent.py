"""An agent follows plans: fetched on change, kept for restarts, applied cleanly, seconds fetched back from its ring."""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_fixture import content_of, error_answer
from secondsight.agent.client.connection import Answer
from secondsight.agent.counts import Counts
from secondsight.agent.plan.fetch import Follower, FollowParts
from secondsight.agent.plan.model import WINDOW_MS, Plan, parse_plan
from secondsight.agent.plan.ring import Ring
from secondsight.agent.plan.stage import Gated, Stage, StageParts
from secondsight.catalog.load import load_catalog
from secondsight.catalog.secondary import is_secondary
from secondsight.clock import ManualClock
from secondsight.contracts import Reader, Tick
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Event

START_MS = 1_700_000_010_000
"""Start of a window."""
NODE_30S = {"node": {"intervalMs": 30_000, "metrics": "all"}}


@dataclass
class Source:
    """A reader of one node metric whose value is the second of its tick."""

    name: str = "host"
    interval_ms: int = 1000
    reads: list[int] = field(default_factory=list)

    def read(self, tick_ms: int) -> Tick:
        self.reads.append(tick_ms)
        return Tick((content_of((tick_ms - START_MS) // 1000),))

    def close(self) -> None:
        pass


@dataclass
class Written:
    """What was handed to the spool."""

    ticks: list[tuple[str, int, Tick]] = field(default_factory=list)

    def write(self, reader: Reader, tick_ms: int, tick: Tick) -> None:
        self.ticks.append((reader.name, tick_ms, tick))

    def rows(self, interval_ms: int, *, secondary: bool = False, live: bool = False) -> list[tuple[int, int]]:
        """(second, value) of plain or secondary rows shipped at a cadence; 0 stands for the reader's own."""
        return [
            ((at_ms - START_MS) // 1000, value)
            for _, at_ms, tick in self.ticks
            if tick.interval_ms == interval_ms and tick.live is live
            for content in tick.contents
            for value in values_of(content, secondary=secondary)
        ]


def values_of(content: Content, *, secondary: bool) -> Iterator[int]:
    block = content.scalars
    for row, at in enumerate(() if block is None else block.entity_index.tolist()):
        group = block.groups[0]
        there = group.present is None or bool(group.present[0, row])
        if there and is_secondary(content.entities.entities[at].part) is secondary:
            yield int(group.values[0, row])


class Rig:
    """A stage with its ring, driven tick by tick."""

    def __init__(self, folder: Path) -> None:
        self.written = Written()
        self.counts = Counts()
        self.ring = Ring(folder / "ring", 8 << 20, 0, self.counts)
        rings.append(self.ring)
        parts = StageParts(self.written.write, self.ring, load_catalog(), lambda: 0)
        self.stage = Stage(parts, ("host-1", "host-1", ""))

    def run(self, reader: Reader, seconds: Sequence[int]) -> None:
        for second in seconds:
            tick_ms = START_MS + 1000 * second
            tick = reader.read(tick_ms)
            if tick.contents:
                self.stage.deliver(reader, tick_ms, tick)


rings: list[Ring] = []


@pytest.fixture(autouse=True)
def _closed_with_the_test() -> Iterator[None]:
    yield
    while rings:
        rings.pop().close()


def plan(kinds: dict[str, Any], *sessions: dict[str, Any], etag: str = '"a"', **more: Any) -> Plan:
    return parse_plan(json.dumps({"kinds": kinds, "sessions": sessions, **more}).encode(), etag)


def session(from_second: int, until_second: int, **changes: Any) -> dict[str, Any]:
    times = {"fromMs": START_MS + 1000 * from_second, "untilMs": START_MS + 1000 * until_second}
    return {"id": "s1", "kinds": "all", "entities": "all", "intervalMs": 1000, **times, **changes}


def test_without_a_plan_everything_passes_as_it_is(tmp_path: Path):
    rig = Rig(tmp_path)
    rig.run(Source(), range(40))
    assert rig.written.rows(0) == [(second, second) for second in range(40)]
    assert not (tmp_path / "ring").exists()


def test_every_switch_lies_on_a_window_and_no_second_is_missed_or_taken_twice(tmp_path: Path):
    """30 s from the middle of one window, back to seconds in the middle of another."""
    rig, source = Rig(tmp_path), Source()
    rig.run(source, range(40))
    rig.stage.apply(plan(NODE_30S))
    rig.run(source, range(40, 100))
    rig.stage.apply(plan({}))
    rig.run(source, range(100, 125))
    full = sorted([*rig.written.rows(0), *rig.written.rows(1000)])
    assert full == [(second, second) for second in [*range(60), *range(90, 125)]]
    assert rig.written.rows(WINDOW_MS) == [(60, 60), (89, 89), (90, 90)]
    assert source.reads == [START_MS + 1000 * second for second in range(125)]


def test_a_session_ends_by_itself_with_its_window(tmp_path: Path):
    rig = Rig(tmp_path)
    rig.stage.apply(plan(NODE_30S, session(0, 70)))
    rig.run(Source(), range(150))
    assert rig.written.rows(1000) == [(second, second) for second in range(90)]
    assert rig.written.rows(WINDOW_MS) == [(90, 90), (119, 119), (120, 120)]
    rig.stage.close()
    assert rig.written.rows(WINDOW_MS)[-1] == (149, 149)


def test_the_secondary_rows_of_a_window(tmp_path: Path):
    rig = Rig(tmp_path)
    rig.stage.apply(plan(NODE_30S))
    rig.run(Source(), range(31))
    assert sorted(rig.written.rows(WINDOW_MS, secondary=True)) == [(29, 0), (29, 14), (29, 15), (29, 29)]


def test_columns_that_are_off_are_not_shipped(tmp_path: Path):
    rig = Rig(tmp_path)
    rig.stage.apply(plan({"node": {"intervalMs": 1000, "metrics": ["node_load5"]}}))
    rig.run(Source(), range(3))
    assert rig.written.ticks == []
    rig.stage.apply(plan({"node": {"intervalMs": 1000, "metrics": ["node_load1"]}}))
    rig.run(Source(), range(3, 5))
    assert rig.written.rows(0) == [(3, 3), (4, 4)]


def test_a_job_of_which_every_second_is_wanted(tmp_path: Path):
    """Its GPUs are those that allocations told of, for as long as they do."""
    rig = Rig(tmp_path)
    stage = rig.stage
    stage.apply(plan({"gpu": {"intervalMs": 30_000, "metrics": "all"}}, jobs=["job-7"]))
    text = {"job_id": "job-7"}
    begun = Event("job_gpu_allocation", "GPU-a", "", START_MS, 0, attributes=text)
    ended = Event("job_gpu_allocation", "GPU-a", "", START_MS, 0, START_MS + 5000, 2, text)
    for event, entities in ((begun, {"GPU-a"}), (ended, set())):
        stage.deliver(
            Source("kubelet"), START_MS, Tick((Content(content_of().schema, content_of().entities, events=(event,)),))
        )
        assert stage._jobs.of(EntityKind.GPU, frozenset({"job-7"})).entities == entities


def test_a_reader_that_costs_is_called_once_a_window(tmp_path: Path):
    rig, source = Rig(tmp_path), Source("dcgm")
    gated = Gated(source, rig.stage.wants)
    rig.run(gated, range(5))
    rig.stage.apply(plan(NODE_30S))
    rig.run(gated, range(5, 100))
    assert source.reads == [START_MS + 1000 * second for second in [*range(30), 30, 60, 90]]
    assert rig.written.rows(WINDOW_MS) == [(30, 30), (60, 60), (90, 90)]
    rig.stage.apply(plan(NODE_30S, session(100, 110)))
    rig.run(gated, range(100, 125))
    assert source.reads[-21:] == [START_MS + 1000 * second for second in [*range(100, 120), 120]]


@dataclass
class Gateway:
    """Answers requests for a plan, and remembers what was known when it was asked."""

    answers: list[Answer | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    closed: bool = False

    def get(self, _target: str, etag: str = "") -> Answer:
        self.asked.append(etag)
        answer = self.answers.pop(0) if self.answers else Answer(304, {"etag": etag}, b"")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def answer_of(kinds: dict[str, Any], *sessions: dict[str, Any], etag: str = '"a"') -> Answer:
    return Answer(200, {"etag": etag}, json.dumps({"kinds": kinds, "sessions": sessions}).encode())


def follower_of(rig: Rig, gateway: Gateway, folder: Path, clock: ManualClock | None = None) -> Follower:
    parts = FollowParts(
        gateway, "/plan", folder / "plan", rig.stage, rig.ring, rig.written.write, rig.counts, lambda: 0.0
    )
    return Follower(parts, clock or ManualClock(START_MS))


def test_a_plan_is_kept_and_a_restart_without_a_gateway_goes_on_with_it(tmp_path: Path):
    rig = Rig(tmp_path)
    assert follower_of(rig, Gateway([answer_of(NODE_30S)]), tmp_path).step()
    assert rig.stage.plan.kind(EntityKind.NODE).interval_ms == 30_000
    again = Rig(tmp_path)
    gateway = Gateway([Retryable("away")])
    follower = follower_of(again, gateway, tmp_path)
    assert again.stage.plan == rig.stage.plan
    assert not follower.step()
    assert gateway.asked == ['"a"']


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {}, b"{}"),
        Answer(200, {"etag": '"x"'}, b"no json"),
        Answer(200, {"etag": '"x"'}, b'{"kinds": 7}'),
        error_answer(403, "collector_not_allowed"),
        Retryable("away"),
    ],
)
def test_what_is_no_plan_changes_nothing(tmp_path: Path, answer: Answer | Exception):
    rig = Rig(tmp_path)
    follower = follower_of(rig, Gateway([answer_of(NODE_30S), answer]), tmp_path)
    assert follower.step()
    assert not follower.step()
    assert rig.stage.plan.etag == '"a"'
    assert rig.counts.get("plan_failed") == 1


def test_a_damaged_kept_plan_is_no_plan(tmp_path: Path):
    (tmp_path / "plan").write_bytes(b'"a"\n{"kinds": ')
    rig = Rig(tmp_path)
    follower_of(rig, Gateway(), tmp_path)
    assert rig.stage.plan == Plan()


def test_only_another_tag_makes_a_request(tmp_path: Path):
    rig, gateway = Rig(tmp_path), Gateway([answer_of({}, etag='"a"')])
    follower = follower_of(rig, gateway, tmp_path)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        wait_for(lambda: rig.stage.plan.etag == '"a"')
        for _ in range(5):
            follower.observe(Answer(200, {"x-secondsight-plan": '"a"'}, b""))
        gateway.answers.append(answer_of(NODE_30S, etag='"b"'))
        follower.observe(Answer(200, {"x-secondsight-plan": '"b"'}, b""))
        wait_for(lambda: rig.stage.plan.etag == '"b"')
        follower.observe(Answer(503, {}, b""))
    finally:
        follower.end()
        thread.join(20)
    assert not thread.is_alive()
    assert gateway.asked == ["", '"a"']
    assert gateway.closed


def wait_for(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("waited too long")


def test_a_session_fetches_back_what_the_ring_has_once(tmp_path: Path):
    rig, clock = Rig(tmp_path), ManualClock(START_MS + 100_000)
    rig.stage.apply(plan(NODE_30S))
    rig.run(Source(), range(100))
    asked = session(40, 400)
    follower = follower_of(rig, Gateway([answer_of(NODE_30S, asked), answer_of(NODE_30S, asked)]), tmp_path, clock)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        wait_for(lambda: rig.counts.get("ring_shipped_ticks"))
        follower.observe(Answer(200, {"x-secondsight-plan": '"other"'}, b""))
        wait_for(lambda: rig.counts.get("plan_changed") == 2)
    finally:
        follower.end()
        thread.join(20)
    assert rig.written.rows(1000, live=True) == [(second, second) for second in range(30, 100)]


def test_a_ring_is_bounded_and_survives_damage_and_restarts(tmp_path: Path):
    counts = Counts()
    rig = Rig(tmp_path)
    rig.ring = Ring(tmp_path / "ring", 1 << 20, 0, counts)
    rig.stage._parts = StageParts(rig.written.write, rig.ring, load_catalog(), lambda: 0)
    rig.stage.apply(plan(NODE_30S))
    source = Source()
    for start in range(0, 9000, 900):
        rig.run(source, range(start, start + 900))
    assert rig.ring.size_bytes <= 1 << 20
    again = Ring(tmp_path / "ring", 1 << 20, 0, counts)
    ticks = [int(frame.header.tick_times_ms[0]) for frame in again.read(0, START_MS + 9_000_000)]
    assert ticks == list(range(ticks[0], START_MS + 9_000_000, 1000))
    assert ticks[0] > START_MS
    newest = max((tmp_path / "ring").iterdir())
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    newest.write_bytes(bytes(damaged))
    left = [int(frame.header.tick_times_ms[0]) for frame in again.read(0, START_MS + 9_000_000)]
    assert left == ticks[: len(left)]
    assert len(left) < len(ticks)
    assert counts.get("ring_damaged") == 1


def test_a_disk_without_room_keeps_no_ring_and_ships_all_the_same(tmp_path: Path):
    rig = Rig(tmp_path)
    rig.stage._parts = StageParts(
        rig.written.write, Ring(tmp_path / "ring", 1 << 20, 1 << 62, rig.counts), load_catalog(), lambda: 0
    )
    rig.stage.apply(plan(NODE_30S))
    rig.run(Source(), range(61))
    assert rig.counts.get("ring_write_failed") == 61
    assert rig.written.rows(WINDOW_MS) == [(0, 0), (29, 29), (30, 30), (59, 59), (60, 60)]


def test_a_plan_of_a_newer_gateway_is_read_as_far_as_it_is_known():
    told = {"kinds": {"gpu": {"intervalMs": 30_000}, "quantum": {"intervalMs": 1}}, "untilMs": None, "colour": "red"}
    made = parse_plan(json.dumps(told).encode(), '"a"')
    assert set(made.kinds) == {EntityKind.GPU}
    with pytest.raises(Rejected):
        parse_plan(b"[]", '"a"')
