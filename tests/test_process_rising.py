"""Counters that only rose are added up at once, with the very figures that the rule gives row by row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.catalog.load import load_catalog
from secondsight.process import window as window_module
from secondsight.process.window import Cells, Priors, Rollup, Samples, roll_up

COUNTER = load_catalog().get("gpu_energy_joules_total")
STATE = load_catalog().get("gpu_performance_state")
START_MS = 1_764_500_010_000
STEPS = st.sampled_from([0, 0, 1, 5, 10**9])


@st.composite
def windows(draw: st.DrawFn) -> Samples:
    """A window of one counter and one state: few falls, few boots, few owners, with or without samples before."""
    series, times, values, states, epochs, owners = [], [], [], [], [], []
    count = draw(st.integers(1, 4))
    for number in range(count):
        value, epoch = draw(st.integers(0, 50)), draw(st.sampled_from([0, 1, 1, 2]))
        for tick in sorted(draw(st.sets(st.integers(0, 29), min_size=1, max_size=6))):
            value = max(0, value + draw(STEPS) - draw(st.sampled_from([0, 0, 0, 0, 40])))
            series.append(number)
            times.append(START_MS + 1000 * tick)
            values.append(value)
            states.append(draw(st.sampled_from([0, 0, 0, 8])))
            epochs.append(epoch)
            owners.append(draw(st.sampled_from([0, 0, 0, 1])))
    metric = replace(
        COUNTER,
        cap=draw(st.sampled_from([None, None, 60.0])),
        step_maximum=draw(st.sampled_from([None, None, 3.0, 1e6])),
        resolution=1.0,
    )
    back_ms = draw(st.sampled_from([0, 1000, 1000, 4_000_000]))
    before_ms = np.full((1, count), START_MS - back_ms if back_ms else 0, np.int64)
    if draw(st.integers(0, 9)) == 0:
        before_ms[0, 0] = 0
    before = draw(st.sampled_from([0, 0, 30]))
    return Samples(
        START_MS,
        START_MS + 30_000,
        np.array(series, np.int32),
        np.array(times, np.int64),
        np.full(len(times), 1000, np.int64),
        np.array(epochs, np.int32),
        np.array(owners, np.int32),
        (_cells(metric, values, np.uint64), _cells(STATE, states, np.uint8)),
        tuple(
            Priors(np.full((1, count), before, dtype), before_ms, np.full((1, count), epochs[0], np.int32))
            for dtype in (np.uint64, np.uint8)
        ),
    )


def _cells(metric, values, dtype) -> Cells:
    return Cells((metric,), np.array([values], dtype), np.ones((1, len(values)), np.bool_))


def told(rollup: Rollup) -> object:
    """Return what a rollup says, as plain values."""
    members = {
        name: [None if there is not None and not there[row] else value for row, value in enumerate(values.tolist())]
        for name, (values, there) in rollup.members.items()
    }
    maps = [
        sorted(
            (row, key, number)
            for rows, keys, numbers in zip(sparse.rows, sparse.keys, sparse.numbers, strict=True)
            for row, key, number in zip(
                rows.tolist(), [keys] * len(rows) if isinstance(keys, str) else keys, numbers.tolist(), strict=True
            )
        )
        for sparse in (rollup.increase_other, rollup.resets, rollup.changes, rollup.state_ms, rollup.covered_other)
    ]
    return members, maps, rollup.implausible


@given(windows())
def test_the_quick_way_and_the_rule_agree(samples: Samples) -> None:
    quick = told(roll_up(samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_module, "rise_of", lambda *_: None)
        assert told(roll_up(samples)) == quick


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    inner = window_module.rise_of

    def noted(*arguments):
        taken.append(inner(*arguments))
        return taken[-1]

    monkeypatch.setattr(window_module, "rise_of", noted)
    times = np.arange(START_MS, START_MS + 30_000, 1000)
    rows = times.size
    prior = Priors(np.array([[7]], np.uint64), np.array([[START_MS - 1000]]), np.array([[1]], np.int32))
    samples = Samples(
        START_MS,
        START_MS + 30_000,
        np.zeros(rows, np.int32),
        times,
        np.full(rows, 1000, np.int64),
        np.ones(rows, np.int32),
        np.zeros(rows, np.int32),
        (_cells(COUNTER, list(range(10, 10 + rows)), np.uint64),),
        (prior,),
    )
    rollup = roll_up(samples)
    assert [each.tolist() for each in taken] == [[32]]
    assert rollup.members["gpu_energy_joules_total_increase"][0].tolist() == [32]
