"""What is shipped of a window at 30 s gives the rollup that all its seconds give: for any values, gaps and changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from process_rig import CATALOG, content_of
from secondsight.agent.plan.model import EVERYTHING, NOTHING, WINDOW_MS, Selection
from secondsight.agent.plan.stream import Shipped, Stream
from secondsight.model import EntityKind
from secondsight.process.cells import Window
from secondsight.process.close import samples_of, sorted_rows
from secondsight.process.columns import layout_of, plan_schema
from secondsight.process.decode import Subjects, decode_rows
from secondsight.process.kinds import KindState
from secondsight.process.owners import Owners
from secondsight.process.secondary import fold, told_of
from secondsight.process.series import Interner
from secondsight.process.stamps import Stamps
from secondsight.process.window import Rollup, no_priors, roll_up
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, decode, encode
from secondsight.wire.schema import Definitions

START_MS = 1_700_000_010_000
KIND = EntityKind.GPU
GAUGES = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio")
COUNTERS = ("gpu_energy_joules_total",)
STATES = ("gpu_recovery_action", "gpu_clock_event_reasons")
NAMES = (*GAUGES, *COUNTERS, *STATES)
GPUS = ("GPU-a", "GPU-b")

Second = dict[str, dict[str, int]]
"""GPU -> metric -> stored value; what is lacking was not read."""


def poll(cells: Second) -> Content:
    return content_of({(gpu, "", 0): values for gpu, values in cells.items()}, ticks=[0], names=NAMES)


def seconds_as_shipped(seconds: Sequence[Second], phase_ms: int) -> list[Shipped]:
    return [
        Shipped(START_MS + 1000 * number + phase_ms, poll(cells), 1000) for number, cells in enumerate(seconds) if cells
    ]


def summed_up(
    seconds: Sequence[Second], phase_ms: int, session: Selection = NOTHING, session_from: int = 0
) -> list[Shipped]:
    stream = Stream(lambda name: CATALOG.get(name).rollup)
    shipped: list[Shipped] = []
    for number, cells in enumerate(seconds):
        if cells:
            wanted = session if session and number >= session_from else NOTHING
            shipped += stream.take(START_MS + 1000 * number + phase_ms, poll(cells), 0, wanted)[0]
    return shipped + stream.close()


def rolled_up(shipped: Sequence[Shipped]) -> dict[str, dict[str, Any]]:
    """Send everything over the wire into a window, and roll it up as the processor does: GPU -> member -> value."""
    collectors = Interner(("t", "r", "c", "host-1"))
    state = KindState(KIND, CATALOG.scalars(KIND), collectors)
    window = Window(layout_of(KIND, CATALOG.scalars(KIND)), START_MS)
    definitions = Definitions()
    for number, item in enumerate(shipped):
        stamp = Stamp("host-1", "host-1", "nvml", 7, number, number, np.array([item.tick_ms]), item.interval_ms)
        frame = decode(encode(stamp, item.content, inline=True), definitions)
        plan = plan_schema(frame.content.schema, state.layout)
        subjects = Subjects(state.subjects(0, frame.header.entities_hash, frame.content.entities).series, 0)
        for start_ms, piece in decode_rows(frame, item.tick_ms, plan, subjects).pieces:
            assert start_ms == START_MS
            window.apply([piece])
    rows = sorted_rows(window, [0])
    secondary = state.secondary.split(window.series[rows])
    told = told_of(window, rows[secondary], state.secondary) if secondary is not None else {}
    plain = rows if secondary is None else rows[~secondary]
    samples = samples_of(state, window, plain, Stamps(Owners(), state.kind, state.series))
    series = np.unique(samples.series)
    from dataclasses import replace

    rollup = roll_up(replace(samples, priors=tuple(no_priors(cells, series.size) for cells in samples.cells)))
    fold(rollup, told, samples)
    return members_of(rollup, state)


def members_of(rollup: Rollup, state: KindState) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row, series in enumerate(rollup.series.tolist()):
        names = state.series.names_of(series)
        mine = found[names[4]] = {"covered": int(rollup.covered_ms[row])}
        for name, (values, present) in rollup.members.items():
            if present is None or present[row]:
                mine[name] = values[row].item()
        for kind in ("covered_other", "changes", "state_ms", "resets"):
            sparse = getattr(rollup, kind)
            for rows, key, numbers in zip(sparse.rows, sparse.keys, sparse.numbers, strict=True):
                for place, at in enumerate(rows.tolist()):
                    if at == row:
                        mine[f"{kind}:{key if isinstance(key, str) else key[place]}"] = int(numbers[place])
    return found


def comparable(found: dict[str, dict[str, Any]], *, whole: bool = False) -> dict[str, dict[str, Any]]:
    """Leave out what the number of rows decides: first values, and, unless the window is whole, what its rows cover.

    Between two rows of 30 s a state and a counter are known to have been what they were; of a gauge the polls count.
    """
    return {gpu: _comparable(members, whole) for gpu, members in found.items()}


def _comparable(members: dict[str, Any], whole: bool) -> dict[str, Any]:
    left = {name: value for name, value in members.items() if not name.endswith("_first")}
    for name in GAUGES:
        if f"{name}_sum" in left:
            left[f"{name} covers"] = left.get(f"covered_other:{name}", left["covered"])
    durations = () if whole else ("state_ms", "covered")
    return {name: value for name, value in left.items() if not name.startswith(("covered_other", *durations))}


def cells(energy: int, *, whole: bool) -> st.SearchStrategy[dict[str, int]]:
    others = {
        "gpu_power_watts": st.integers(0, 700_000),
        "gpu_temperature_celsius": st.integers(-20, 110),
        "gpu_utilization_ratio": st.integers(0, 100),
        "gpu_recovery_action": st.integers(0, 1),
        "gpu_clock_event_reasons": st.sampled_from([0, 0, 0, 4, 5]),
    }
    known = {"gpu_energy_joules_total": st.just(energy)}
    if whole:
        return st.fixed_dictionaries(known | others)
    return st.fixed_dictionaries(known, optional=others)


@st.composite
def windows(draw: st.DrawFn, *, whole: bool = False) -> list[Second]:
    """Draw the seconds of a window; some have no poll, and some cells are missing in any but a whole one."""
    energy = draw(st.integers(0, 1000))
    made: list[Second] = []
    for _ in range(30):
        if draw(st.integers(0, 12)) == 0 and not whole:
            made.append({})
            continue
        energy = draw(st.integers(0, 9)) if draw(st.integers(0, 20)) == 0 else energy + draw(st.integers(0, 500))
        made.append({gpu: draw(cells(energy + 7 * place, whole=whole)) for place, gpu in enumerate(GPUS)})
    return made


@settings(max_examples=40)
@given(seconds=windows(), phase_ms=st.sampled_from([0, 1, 421, 999]))
def test_the_rollup_of_what_is_shipped_is_that_of_all_seconds(seconds: list[Second], phase_ms: int):
    if not any(seconds):
        return
    assert comparable(rolled_up(summed_up(seconds, phase_ms))) == comparable(
        rolled_up(seconds_as_shipped(seconds, phase_ms))
    )


@settings(max_examples=20)
@given(seconds=windows(whole=True), phase_ms=st.sampled_from([0, 421]))
def test_of_a_whole_window_nothing_at_all_is_lost(seconds: list[Second], phase_ms: int):
    every = comparable(rolled_up(seconds_as_shipped(seconds, phase_ms)), whole=True)
    assert comparable(rolled_up(summed_up(seconds, phase_ms)), whole=True) == every


@settings(max_examples=20)
@given(seconds=windows(), arrived=st.sets(st.integers(0, 29)), phase_ms=st.sampled_from([0, 421]))
def test_seconds_that_arrive_after_all_change_nothing(seconds: list[Second], arrived: set[int], phase_ms: int):
    if not any(seconds):
        return
    shipped = summed_up(seconds, phase_ms)
    fetched = [item for item in seconds_as_shipped(seconds, phase_ms) if (item.tick_ms - START_MS) // 1000 in arrived]
    assert comparable(rolled_up([*shipped, *fetched])) == comparable(rolled_up(shipped))


@pytest.mark.parametrize("session", [EVERYTHING, Selection(entities=frozenset({"GPU-b"}))])
@pytest.mark.parametrize("begins", [0, 1, 17, 29])
def test_a_session_ships_every_second_of_the_window_that_it_begins_in(session: Selection, begins: int):
    seconds = [{gpu: dict.fromkeys(NAMES, number) for gpu in GPUS} for number in range(30)]
    shipped = summed_up(seconds, 421, session, begins)
    ticks: dict[str, set[int]] = {gpu: set() for gpu in GPUS}
    secondary: set[str] = set()
    for item in shipped:
        block = item.content.scalars
        for at in () if block is None else block.entity_index.tolist():
            entity = item.content.entities.entities[at]
            if entity.part:
                secondary.add(entity.entity)
            elif item.interval_ms == 1000:
                ticks[entity.entity].add(item.tick_ms)
    every = {START_MS + 1000 * number + 421 for number in range(30)}
    assert ticks["GPU-b"] == every
    assert (ticks["GPU-a"] == every) is session.everything
    assert secondary == (set() if session.everything else {"GPU-a"})
    assert comparable(rolled_up(shipped)) == comparable(rolled_up(seconds_as_shipped(seconds, 421)))


def test_little_is_shipped_of_a_quiet_window():
    seconds = [
        {gpu: dict.fromkeys((*GAUGES, *STATES), 1) | {COUNTERS[0]: number} for gpu in GPUS} for number in range(30)
    ]
    shipped = summed_up(seconds, 0)
    assert [item.tick_ms for item in shipped] == [START_MS, START_MS + 29_000]
    assert {item.interval_ms for item in shipped} == {WINDOW_MS}
    values = sum(
        int(group.values.size if group.present is None else group.present.sum())
        for item in shipped
        if item.content.scalars is not None
        for group in item.content.scalars.groups
    )
    assert values <= 30 * len(GPUS) * len(NAMES) / 5
