"""What silent collectors left in memory goes, and who comes back goes on as if it had never gone."""

import random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from process_rig import CATALOG, T0, Rig, frame_bytes, new_tenant
from secondsight.model import EntityKind
from secondsight.process.evict import SILENT_MS, Evictor
from test_process_findings import UNCORRECTED, found
from test_process_flow import ENERGY, METRICS, POWER, UTIL, anonymous, check_rollups, rollup_rows, steady, tables


def evictor(rig, **how):
    return Evictor(rig.processor.world, rig.processor._settler.findings, **how)


def test_a_silent_collector_goes_and_comes_back_with_its_counter(store):
    rig, tenant = Rig(store), new_tenant()
    steady(tenant, rig, T0, 40, collector="c0", host="h0")
    steady(tenant, rig, T0 + 40_000, 40, first=41)
    rig.settle()
    world, state = rig.processor.world, rig.processor.world.kinds[EntityKind.GPU]
    assert evictor(rig, silent_ms=SILENT_MS).run() == 0
    assert evictor(rig, silent_ms=0, least_series=1).run() == 2
    assert (len(world.progress), len(state.series)) == (0, 0)
    steady(tenant, rig, T0 + 300_000, 40, first=101)
    rig.settle()
    assert len(state.series) == 1
    check_rollups(store, tenant)
    assert rig.processor.metrics.total("processor_late_rows_total") == 0
    first = next(row for row in rollup_rows(store, tenant) if row["window_start"] * 1000 == T0 + 300_000)
    assert first[f"{ENERGY}_increase"] == 1000 * (130 - 80)


def test_what_is_open_late_or_unwritten_stays(store):
    rig, tenant = Rig(store), new_tenant()
    steady(tenant, rig, T0, 5)
    rig.clock.move(7200)
    assert evictor(rig, silent_ms=0, least_series=1).run() == 0
    assert len(rig.processor.world.progress) == 1


def test_senders_that_come_and_go_leave_nothing_behind(store):
    rig, tenant = Rig(store), new_tenant()
    rig.processor.evictor = evictor(rig, silent_ms=60_000, least_series=8)
    world, sizes = rig.processor.world, []
    for day in range(12):
        for number in range(6):
            name = f"pod-{day}-{number}"
            tick = T0 + 400_000 * day
            rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
            rig.send(frame_bytes({("GPU-a", "", 0): {POWER: day}}, [tick], collector=name, host=name), tenant=tenant)
        rig.processor.step()
        for _ in range(4):
            rig.clock.move(100)
            rig.processor.step()
        sizes.append((len(world.progress), len(world.kinds[EntityKind.GPU].series)))
    assert max(sizes) <= (12, 24)
    rig.settle()
    assert len(rollup_rows(store, tenant)) == 72
    check_rollups(store, tenant)


def test_one_that_is_far_behind_holds_up_nobody(store):
    rig, tenant = Rig(store), new_tenant()
    steady(tenant, rig, T0, 1, collector="old", host="h9")
    for second in range(70):
        tick = T0 + 1000 * second
        rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
        body = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [tick], sequence=second + 1)
        rig.send(body, tenant=tenant)
        old = frame_bytes({("GPU-z", "", 0): {POWER: 1}}, [T0 - 90_000 + second], collector="old", host="h9")
        rig.send(old, tenant=tenant)
        rig.processor.step()
    rig.processor.checkpoint()
    rows = [row for row in rollup_rows(store, tenant) if row["collector_id"] == "c1"]
    assert [(row["window_start"] * 1000 - T0, row["samples"]) for row in rows] == [(0, 30)]
    rig.settle()
    check_rollups(store, tenant)


# -- properties ------------------------------------------------------------------------------------------------------

FRAMES = st.lists(
    st.tuples(
        st.sampled_from(["c1", "c2", "c3"]),
        st.integers(0, 200),
        st.fixed_dictionaries(
            {ENERGY: st.integers(0, 60_000)},
            optional={POWER: st.integers(0, 700_000), UTIL: st.integers(0, 100), UNCORRECTED: st.integers(0, 3)},
        ),
    ),
    min_size=4,
    max_size=14,
)


def run(store, bodies, chance=None):
    """Send bodies; with a chance, let time pass, forget who is silent, and start anew in between."""
    rig, tenant = Rig(store, T0 + 201_000), new_tenant()
    for body in bodies:
        rig.send(body, T0 + 201_000, tenant=tenant)
        if chance is None:
            continue
        rig.processor.step()
        if chance.random() < 0.5:
            rig.clock.move(chance.choice([5, 33, 70]))
            rig.processor.drain()
            rig.clock.move(11)
            rig.processor.drain()
            evictor(rig, silent_ms=0, least_series=1).run()
        if chance.random() < 0.2:
            rig.restart()
    rig.settle()
    check_rollups(store, tenant, [*METRICS, CATALOG.get(UNCORRECTED)])
    return anonymous(tables(store, tenant)), sorted(found(store, tenant))


@settings(
    max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
@given(frames=FRAMES, seed=st.integers(0, 2**32))
def test_evictions_restarts_and_repeats_change_nothing(store, frames, seed):
    chance = random.Random(seed)
    bodies = [
        frame_bytes(
            {("GPU-a", "", 0): cells}, [T0 + 1000 * second], collector=name, host=f"h-{name}", sequence=number + 1
        )
        for number, (name, second, cells) in enumerate(frames)
    ]
    expected = run(store, bodies)
    disturbed = bodies + chance.choices(bodies, k=4)
    chance.shuffle(disturbed)
    assert run(store, disturbed, chance) == expected
