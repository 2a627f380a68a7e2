"""Readers that hang, fail or break cost their own ticks and nothing else."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_fixture import content_of
from secondsight.agent.counts import Counts
from secondsight.agent.tick.lane import Hooks
from secondsight.agent.tick.sample import Sampler
from secondsight.clock import ManualClock
from secondsight.contracts import Tick
from secondsight.errors import Retryable
from secondsight.wire.content import Content, Event

START_MS = 1_700_000_000_000
PATIENCE_SECONDS = 20.0


class ScriptedReader:
    """Does at each read what it is told; `entered` counts reads, `hold` keeps one from returning."""

    def __init__(self, name: str, act: Callable[[int], Tick] = lambda _tick: Tick(())) -> None:
        self.name = name
        self.interval_ms = 1000
        self.act = act
        self.entered = threading.Semaphore(0)
        self.hold = threading.Event()
        self.hold.set()
        self.ticks: list[int] = []
        self.closed = 0

    def read(self, tick_ms: int) -> Tick:
        self.ticks.append(tick_ms)
        self.entered.release()
        assert self.hold.wait(PATIENCE_SECONDS)
        return self.act(tick_ms)

    def close(self) -> None:
        self.closed += 1


class Rig:
    """A sampler whose looks are made by hand, on a manual clock."""

    def __init__(self, *readers: ScriptedReader) -> None:
        self.readers = readers
        self.clock = ManualClock(START_MS)
        self.counts = Counts()
        self.delivered: list[tuple[str, int]] = []
        self.arrived = threading.Condition()
        self.steps = 0
        self.contents: list[Content] = []
        self.sampler = Sampler(
            readers, Hooks(self.deliver, stepped=self.step), self.clock, self.counts, host_id="host-1"
        )
        self.sampler.look()

    def deliver(self, reader: ScriptedReader, tick_ms: int, tick: Tick) -> None:
        with self.arrived:
            self.contents += tick.contents
            self.delivered.append((reader.name, tick_ms))
            self.arrived.notify_all()

    def step(self) -> None:
        self.steps += 1

    def second(self) -> None:
        """Let a second pass, with a look at its end."""
        self.clock.move(1.0)
        self.sampler.look()

    def wait_delivered(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.delivered) >= count, PATIENCE_SECONDS)

    def wait_idle(self) -> None:
        """Wait until no reader is at a tick."""
        for lane in self.sampler._lanes:
            for _ in range(2000):
                if lane.is_idle:
                    break
                threading.Event().wait(0.01)
            else:
                pytest.fail(f"{lane.name} does not come back")

    def end(self) -> None:
        assert self.sampler.end() == []


def test_every_reader_gets_every_tick() -> None:
    rig = Rig(ScriptedReader("a"), ScriptedReader("b"))
    for count in (2, 4, 6):
        rig.second()
        rig.wait_delivered(count)
        rig.wait_idle()
    rig.end()
    ticks = {name: [tick for reader, tick in rig.delivered if reader == name] for name in ("a", "b")}
    assert ticks["a"] == ticks["b"] == list(range(ticks["a"][0], ticks["a"][0] + 3000, 1000))
    assert rig.counts.get("ticks_missed") == 0
    assert [reader.closed for reader in rig.readers] == [1, 1]


def test_a_hanging_reader_is_given_up_and_left_alone_until_it_returns() -> None:
    slow, quick = ScriptedReader("slow"), ScriptedReader("quick")
    rig = Rig(slow, quick)
    slow.hold.clear()
    rig.second()
    assert slow.entered.acquire(timeout=PATIENCE_SECONDS)
    rig.wait_delivered(1)
    for count in (2, 3, 4):
        rig.second()
        rig.wait_delivered(count)
    assert [name for name, _ in rig.delivered] == ["quick"] * 4
    assert len(slow.ticks) == 1
    assert rig.counts.labelled("read_timed_out") == {"slow": 1}
    assert rig.counts.get("ticks_missed") == 4
    slow.hold.set()
    rig.wait_idle()
    rig.second()
    rig.wait_delivered(6)
    assert [tick for name, tick in rig.delivered if name == "slow"] == slow.ticks[1:]
    rig.end()


def failing(error: Exception) -> Callable[[int], Tick]:
    def act(_tick_ms: int) -> Tick:
        raise error

    return act


@pytest.mark.parametrize("error", [Retryable("away"), OSError("gone"), ZeroDivisionError("a bug")])
def test_a_failing_reader_is_called_again_next_time(error: Exception) -> None:
    bad, good = ScriptedReader("bad", failing(error)), ScriptedReader("good")
    rig = Rig(bad, good)
    for count in (1, 2, 3):
        rig.second()
        rig.wait_delivered(count)
        rig.wait_idle()
    rig.end()
    assert len(bad.ticks) == 3
    assert rig.counts.labelled("read_failed") == {"bad": 3}
    assert rig.counts.get("ticks_missed") == 3


def test_a_tick_that_cannot_be_kept_is_counted() -> None:
    reader, counts, clock = ScriptedReader("a"), Counts(), ManualClock(START_MS)
    sampler = Sampler([reader], Hooks(lambda *_: failing(ValueError("full"))(0)), clock, counts, host_id="host-1")
    sampler.look()
    clock.move(1.0)
    sampler.look()
    assert reader.entered.acquire(timeout=PATIENCE_SECONDS)
    assert sampler.end() == []
    assert counts.get("ticks_missed") == 1


def test_of_a_tick_that_comes_too_late_only_events_and_facts_are_kept() -> None:
    event = Event("node_boot", "host-1", "", START_MS, 0)
    content = replace(content_of(), events=(event,))
    late = ScriptedReader("late", lambda _tick: Tick((content, content_of())))
    rig = Rig(late)
    late.hold.clear()
    rig.second()
    assert late.entered.acquire(timeout=PATIENCE_SECONDS)
    rig.second()
    late.hold.set()
    rig.wait_delivered(1)
    rig.end()
    (kept,) = rig.contents
    assert (kept.scalars, kept.events) == (None, (event,))


def test_a_step_of_the_clock_is_counted_and_sampling_goes_on() -> None:
    rig = Rig(ScriptedReader("a"))
    rig.second()
    rig.wait_delivered(1)
    rig.wait_idle()
    rig.clock.step_wall(-100)
    rig.sampler.look()
    rig.second()
    rig.wait_delivered(2)
    rig.end()
    assert (rig.counts.get("clock_stepped"), rig.steps) == (1, 1)
    assert rig.counts.get("ticks_missed") == 0


def test_a_stopped_sampler_names_the_reader_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondsight.agent.tick.lane.JOIN_SECONDS", 0.05)
    stuck = ScriptedReader("stuck")
    rig = Rig(stuck)
    stuck.hold.clear()
    rig.second()
    assert stuck.entered.acquire(timeout=PATIENCE_SECONDS)
    rig.sampler._thread.start()
    assert rig.sampler.stop() == ["stuck"]
    assert stuck.closed == 0
    stuck.hold.set()
