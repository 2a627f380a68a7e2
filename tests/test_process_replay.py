"""What an earlier process may have written is read again: by few statements, and a bit further each time."""

import pytest

from process_rig import T0, Counting, Rig, allocation, frame_bytes
from secondsight.errors import Retryable
from secondsight.process import run
from secondsight.process.findingbook import FindingBook
from test_process_flow import ENERGY, POWER, check_rollups, raw_rows, rollup_rows

HOSTS, WINDOWS = 12, 20
SECONDS = range(0, 30 * WINDOWS, 10)
FRAME_BYTES = 400
"""Less than a frame of these tests has."""


def fleet_rig(store, tenant):
    """Return a rig whose store has the rows of a small fleet, of which nothing was committed."""
    rig = Rig(Counting(store), T0)
    for number, second in enumerate(SECONDS):
        for host in range(HOSTS):
            name, now_ms = f"h{host}", T0 + 1000 * second
            rows = {(f"GPU-{host}", "", 0): {POWER: host, ENERGY: 7 * second}}
            body = frame_bytes(rows, [now_ms], collector=name, host=name, sequence=number + 1, interval_ms=10_000)
            rig.send(body, now_ms, tenant=tenant)
        rig.clock.move(10)
        if number % 15 == 14:
            rig.processor.step()
    rig.processor.drain()
    rig.log.committed.clear()
    return rig


def check_all(store, tenant):
    check_rollups(store, tenant)
    assert len(raw_rows(store, tenant)) == HOSTS * len(SECONDS)
    assert sum(row["samples"] for row in rollup_rows(store, tenant)) == HOSTS * len(SECONDS)


def test_a_fleet_is_replayed_by_few_statements(store):
    rig = fleet_rig(store, "replay-few")
    rig.restart()
    before = rig.store.calls
    rig.settle()
    assert rig.store.calls - before < HOSTS * WINDOWS / 3
    assert rig.log.committed == {0: HOSTS * len(SECONDS)}
    check_all(store, "replay-few")


def test_a_replay_that_never_ends_gets_further_each_time(store, monkeypatch):
    monkeypatch.setattr(run, "REPLAY_BYTES", FRAME_BYTES * HOSTS * len(SECONDS) // 5)
    rig = fleet_rig(store, "replay-killed")
    reached = [0]
    while reached[-1] < HOSTS * len(SECONDS):
        rig.restart()
        for _ in range(3):
            rig.processor.step()
        rig.clock.move(6)
        rig.processor.step()  # it is time to commit; then it is killed
        reached.append(rig.log.committed.get(0, 0))
        assert len(reached) < 40, reached
        if reached[-1] == reached[-2]:
            break
    rig.clock.move(60)
    rig.settle()
    assert len(reached) > 3, reached
    check_all(store, "replay-killed")


def test_a_window_whose_close_fails_leaves_no_rollups_behind(store, monkeypatch):
    """Rows of the attempt that failed know no owner yet, and could outlive those of the next one."""
    rig, tenant = Rig(store, T0), "replay-fails"
    for second in (0, 15):
        body = frame_bytes({("GPU-a", "", 0): {POWER: 5}}, [T0 + 1000 * second], sequence=second + 1)
        rig.send(body, T0 + 1000 * second, tenant=tenant)
    rig.clock.move(60)
    body = frame_bytes({("GPU-a", "", 0): {POWER: 5}}, [T0 + 60_000], sequence=60)
    rig.send(body, T0 + 60_000, tenant=tenant)
    settle = FindingBook.settle
    failures = iter([True])

    def fail_once(*args):
        if next(failures, False):
            raise Retryable("busy")
        settle(*args)

    monkeypatch.setattr(FindingBook, "settle", fail_once)
    with pytest.raises(Retryable):
        rig.processor.step()
    owner = [allocation("GPU-a", T0 + 10_000, T0 + 20_000)]
    rig.send(frame_bytes({}, [T0 + 60_000], sequence=99, events=owner), T0 + 60_000, tenant=tenant)
    rig.settle()
    check_rollups(store, tenant)
