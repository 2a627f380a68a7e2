"""Ticks come at wall-clock multiples, once each, through lateness and steps of the clock."""

from hypothesis import given
from hypothesis import strategies as st

from secondsight.agent.tick.schedule import Schedule, phase_ms
from secondsight.clock import ManualClock

START_MS = 1_700_000_000_000


def look(schedule: Schedule, clock: ManualClock):
    return schedule.look(clock.now_ms(), clock.monotonic_seconds())


def test_the_first_tick_is_the_next_multiple_plus_phase() -> None:
    clock, schedule = ManualClock(START_MS + 10), Schedule(1000, 250)
    due = look(schedule, clock)
    assert (due.tick_ms, due.wait_seconds) == (None, 0.24)
    clock.move(0.24)
    assert look(schedule, clock).tick_ms == START_MS + 250


@given(st.integers(0, 999), st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40))
def test_ticks_never_repeat_never_bunch_and_all_are_accounted_for(phase: int, moves: list[float]) -> None:
    clock, schedule = ManualClock(START_MS), Schedule(1000, phase)
    first_wait = look(schedule, clock).wait_seconds
    first = round(START_MS + first_wait * 1000)
    taken, skipped = [], 0
    for seconds in moves:
        clock.move(seconds)
        due = look(schedule, clock)
        skipped += due.skipped
        if due.tick_ms is not None:
            taken.append(due.tick_ms)
            assert clock.now_ms() - 1000 < due.tick_ms <= clock.now_ms()
    assert all((tick - phase) % 1000 == 0 for tick in taken)
    assert taken == sorted(set(taken))
    passed = max((clock.now_ms() - first) // 1000 + 1, 0)
    assert len(taken) + skipped == passed


@given(st.lists(st.floats(0.0, 0.4), min_size=30, max_size=30))
def test_no_tick_is_missed_while_looks_come_in_time(delays: list[float]) -> None:
    clock, schedule = ManualClock(START_MS), Schedule(1000, 300)
    taken = []
    for delay in delays:
        due = look(schedule, clock)
        assert due.skipped == 0
        taken += [] if due.tick_ms is None else [due.tick_ms]
        clock.move(due.wait_seconds + delay)
    assert taken == list(range(taken[0], taken[-1] + 1000, 1000))
    assert len(taken) == 29


def test_a_step_of_the_wall_clock_starts_the_schedule_anew() -> None:
    clock, schedule = ManualClock(START_MS), Schedule(1000, 0)
    look(schedule, clock)
    clock.move(1.0)
    assert look(schedule, clock).tick_ms == START_MS + 1000
    clock.move(0.5)
    clock.step_wall(-3600)
    due = look(schedule, clock)
    assert (due.stepped, due.tick_ms, due.skipped, due.wait_seconds) == (True, None, 0, 0.5)
    clock.move(0.5)
    assert look(schedule, clock).tick_ms == START_MS + 2000 - 3_600_000
    clock.step_wall(7200)
    assert look(schedule, clock).stepped
    clock.move(1.0)
    due = look(schedule, clock)
    assert (due.tick_ms, due.skipped, due.stepped) == (START_MS + 3000 + 3_600_000, 0, False)


def test_a_small_correction_back_repeats_no_tick() -> None:
    clock, schedule = ManualClock(START_MS), Schedule(1000, 0)
    look(schedule, clock)
    clock.move(1.05)
    assert look(schedule, clock).tick_ms == START_MS + 1000
    clock.step_wall(-0.2)
    assert look(schedule, clock).tick_ms is None
    clock.move(0.2)
    assert look(schedule, clock).tick_ms is None
    clock.move(0.95)
    assert look(schedule, clock).tick_ms == START_MS + 2000


def test_phases_are_stable_and_spread() -> None:
    phases = [phase_ms(f"host-{number}", 1000) for number in range(1000)]
    assert phases[7] == phase_ms("host-7", 1000)
    assert all(60 < sum(low <= phase < low + 100 for phase in phases) < 150 for low in range(0, 1000, 100))
