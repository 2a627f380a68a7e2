"""Intervals: what an allocator says now and then becomes who had what from when to when, through every silence."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs_fixture import T0
from secondsight.agent.counts import Counts
from secondsight.agent.jobs.kept import SAVE_EVERY_MS, KeptIntervals
from secondsight.mapping.allocation import CONFLICT, Holding, Owner, Share
from secondsight.mapping.intervals import CLOSED_REMEMBERED, OPEN_MAXIMUM, REPEAT_MS, Intervals, Kept, Listing
from secondsight.wire.content import Event

TICK_MS = 5000
SILENCE_MS = 15_000


def holds(job: str, gpu: str = "GPU-a", part: str = "", start: int | None = None, **more: Any) -> Holding:
    start_ms = None if start is None else T0 + 1000 * start
    return Holding(gpu, part, Owner(job, owner_team=f"team-{job}"), start_ms=start_ms, exact=start is not None, **more)


class Told:
    """An allocator that is asked every 5 s, and what came of it: (gpu, part, job, start) -> newest event."""

    def __init__(self) -> None:
        self.intervals = Intervals("test", SILENCE_MS)
        self.events: dict[tuple[str, str, str, int], Event] = {}
        self.conflicts: list[Event] = []
        self.tick_ms = T0

    def say(self, *holdings: Holding, after: int = 5, **listing: Any) -> list[Event]:
        events = self.intervals.see(Listing(holdings, **listing), self.tick_ms)
        for event in events:
            if event.metric == CONFLICT:
                self.conflicts.append(event)
                continue
            key = (event.entity, event.part, event.attributes["job_id"], event.time_ms)
            before = self.events.get(key)
            assert before is None or before.version < event.version or before == event
            self.events[key] = event
        self.tick_ms += 1000 * after
        return events

    @property
    def spans(self) -> list[tuple[str, int, int | None]]:
        """Return (job, start, end) in seconds of the intervals that are longer than nothing and owned."""
        found = []
        for event in self.events.values():
            end = None if event.end_ms is None else (event.end_ms - T0) / 1000
            start = (event.time_ms - T0) / 1000
            if end != start and not event.attributes.get("share"):
                found.append((event.attributes["job_id"], start, end))
        return sorted(found, key=str)


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_label_that_flaps_is_one_interval(told: Told) -> None:
    told.say(holds("a"), complete=False)
    for _ in range(3):
        told.say(complete=False)
    told.say(holds("a"), complete=False)
    assert told.spans == [("a", 0, None)]
    told.say(holds("b"), complete=False)
    assert told.spans == [("a", 0, 25), ("b", 25, None)]


def test_silence_is_not_an_end(told: Told) -> None:
    told.say(holds("a"), after=1000)
    told.say(holds("a"))
    assert told.spans == [("a", 0, None)]


def test_who_is_gone_after_a_silence_was_last_there_when_last_seen(told: Told) -> None:
    told.say(holds("a"))
    told.say(holds("a"), after=1000)
    told.say()
    assert told.spans == [("a", 0, 5)]


def test_an_end_comes_no_later_than_the_next_start(told: Told) -> None:
    told.say(holds("a"))
    told.say(holds("b", start=3))
    assert told.spans == [("a", 0, 3), ("b", 3, None)]


def test_an_end_that_is_told_counts_whatever_is_listed(told: Told) -> None:
    told.say(holds("a", start=0))
    events = told.say(holds("a", start=0), ends={"a": T0 + 4321})
    assert told.spans == [("a", 0, 4.321)]
    assert events[-1].attributes["end"] == "exact"


def test_a_job_that_comes_back_at_the_same_start_goes_on_in_versions(told: Told) -> None:
    told.say(holds("a", start=0))
    told.say()
    told.say(holds("a", start=0))
    assert told.spans == [("a", 0, None)]
    assert [event.version for event in told.events.values()] == [3]


def test_a_job_that_starts_again_is_a_second_interval(told: Told) -> None:
    told.say(holds("a", start=0))
    told.say(holds("a", start=3))
    assert told.spans == [("a", 0, 3), ("a", 3, None)]


def test_a_guess_that_turns_out_wrong_never_was(told: Told) -> None:
    told.say(holds("a"))
    told.say(holds("a", start=-60))
    assert told.spans == [("a", -60, None)]
    assert sorted(event.version for event in told.events.values()) == [1, 2]


def test_jobs_that_go_on_unseen_do_not_end(told: Told) -> None:
    told.say(holds("a"), holds("b", "GPU-b"))
    told.say(alive=frozenset({"a"}))
    assert told.spans == [("a", 0, None), ("b", 0, 5)]


def test_history_is_taken_before_now(told: Told) -> None:
    told.say(holds("a", start=0))
    past = [
        Listing((holds(job, start=start),), {job: T0 + 1000 * end}, complete=False)
        for job, start, end in (("b", 2, 3), ("c", 3, 4))
    ]
    for event in told.intervals.see(Listing((holds("d", start=4),)), told.tick_ms, 0, past):
        told.events[event.entity, event.part, event.attributes["job_id"], event.time_ms] = event
    assert told.spans == [("a", 0, 2), ("b", 2, 3), ("c", 3, 4), ("d", 4, None)]


def test_a_past_run_ends_nothing_that_began_after_it(told: Told) -> None:
    told.say(holds("now", start=10))
    past = [Listing((holds("then", start=2),), {"then": T0 + 4000}, complete=False)]
    told.intervals.see(Listing((holds("now", start=10),)), told.tick_ms, 0, past)
    assert [(one.owner.job_id, one.end_ms) for one in told.intervals.open] == [("now", None)]


def test_a_conflict_is_said_once_while_it_lasts(told: Told) -> None:
    for _ in range(3):
        told.say(holds("a"), holds("b"))
    told.say(holds("a"), holds("b"), holds("c"))
    told.say(holds("a"))
    told.say(holds("a"), holds("b"))
    assert [event.code for event in told.conflicts] == [2, 3, 2]
    assert "a, b" in told.conflicts[0].attributes["text"]


def test_the_whole_and_its_slices_are_no_conflict(told: Told) -> None:
    told.say(holds("a"), holds("b", part="gi=1"), holds("c", part="gi=2"))
    assert told.conflicts == []
    assert told.spans == [("a", 0, None), ("b", 0, None), ("c", 0, None)]


def test_open_intervals_are_said_again_now_and_then(told: Told) -> None:
    told.say(holds("a"), holds("b", "GPU-b"))
    told.say(holds("a"), after=REPEAT_MS // 1000)
    said = told.say(holds("a"))
    assert sorted((event.attributes["job_id"], event.end_ms is None) for event in said) == [("a", True), ("b", False)]
    assert told.say(holds("a")) == []


def test_a_clock_that_steps_back_ends_nothing_before_it_began(told: Told) -> None:
    told.say(holds("a"))
    told.tick_ms -= 3_600_000
    told.say()
    assert all(event.end_ms is None or event.end_ms >= event.time_ms for event in told.events.values())


def test_holders_without_end_are_bounded() -> None:
    intervals = Intervals("test", SILENCE_MS)
    many = tuple(holds(f"j{n}", f"GPU-{n}") for n in range(OPEN_MAXIMUM + 5))
    intervals.see(Listing(many), T0)
    assert (len(intervals.open), intervals.refused) == (OPEN_MAXIMUM, 5)
    intervals.see(Listing(()), T0 + TICK_MS)
    assert len(intervals.kept().closed) == CLOSED_REMEMBERED


@pytest.fixture
def state(tmp_path: Path) -> KeptIntervals:
    return KeptIntervals(tmp_path / "deep" / "state.json", Counts())


def test_what_is_kept_comes_back(state: KeptIntervals, tmp_path: Path) -> None:
    intervals = Intervals("test", SILENCE_MS)
    intervals.see(Listing((holds("a", start=-3), holds("b", "GPU-b", share=Share.SHARED))), T0, -7)
    intervals.see(Listing((holds("a", start=-3),)), T0 + TICK_MS)
    state.save(intervals, T0)
    kept = state.load()
    assert kept == intervals.kept()
    assert kept.open[0].correction_ms == -7
    again = Intervals("test", SILENCE_MS, kept)
    said = again.see(Listing((holds("a", start=-3),)), T0 + 2 * TICK_MS)
    assert sorted((event.attributes["job_id"], event.version) for event in said) == [("a", 1), ("b", 2)]


def test_nothing_is_written_while_nothing_changes(state: KeptIntervals, tmp_path: Path) -> None:
    intervals, path = Intervals("test", SILENCE_MS), tmp_path / "deep" / "state.json"
    listing = Listing((holds("a"),))
    written = []
    for number in range(2 * SAVE_EVERY_MS // TICK_MS):
        tick_ms = T0 + number * TICK_MS
        intervals.see(listing, tick_ms)
        before = path.stat().st_mtime_ns if path.exists() else 0
        state.save(intervals, tick_ms)
        written.append(path.stat().st_mtime_ns != before)
    assert 3 <= sum(written) <= 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 9}',
        '{"format": 1, "open": [{}], "closed": [], "unsure": []}',
        "\0\0",
        '{"format": 1}',
    ],
)
def test_a_damaged_state_is_put_aside(tmp_path: Path, text: str) -> None:
    counts = Counts()
    path = tmp_path / "state.json"
    path.write_text(text)
    assert KeptIntervals(path, counts).load() == Kept()
    assert counts.get("job_state_unreadable") == 1
    assert (tmp_path / "state.json.damaged").read_text() == text


def test_a_disk_that_refuses_is_counted_and_asked_again(tmp_path: Path) -> None:
    counts = Counts()
    (tmp_path / "file").write_text("")
    state = KeptIntervals(tmp_path / "file" / "state.json", counts)
    intervals = Intervals("test", SILENCE_MS)
    intervals.see(Listing((holds("a"),)), T0)
    state.save(intervals, T0)
    state.save(intervals, T0 + TICK_MS)
    assert counts.get("job_state_write_failed") == 2
    (tmp_path / "file").unlink()
    state.save(intervals, T0 + 2 * TICK_MS)
    assert len(json.loads((tmp_path / "file" / "state.json").read_text())["open"]) == 1


HELD = st.fixed_dictionaries({gpu: st.sampled_from(["", "a", "b", "c"]) for gpu in ("GPU-a", "GPU-b")})
STEP = st.tuples(st.sampled_from(["look", "away", "restart"]), HELD)


@settings(max_examples=200)
@given(st.lists(STEP, min_size=1, max_size=25))
def test_no_two_owned_intervals_of_one_gpu_overlap_and_what_is_held_is_open(
    steps: list[tuple[str, dict[str, str]]],
) -> None:
    told = Told()
    held: dict[str, str] = {}
    for word, now in steps:
        if word == "away":
            told.tick_ms += TICK_MS
            continue
        if word == "restart":
            told.intervals = Intervals("test", SILENCE_MS, told.intervals.kept())
            told.tick_ms += 100_000
        held = now
        told.say(*(holds(job, gpu) for gpu, job in held.items() if job))
    owned = {(one.entity, one.owner.job_id) for one in told.intervals.open}
    assert owned == {(gpu, job) for gpu, job in held.items() if job}
    for gpu in ("GPU-a", "GPU-b"):
        spans = sorted(
            (event.time_ms, event.end_ms if event.end_ms is not None else 1 << 60)
            for event in told.events.values()
            if event.entity == gpu
        )
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
