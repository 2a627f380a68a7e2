import math
import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import process_oracle
from process_rig import BOOT, CATALOG, OTHER_BOOT, T0, Rig, allocation, envelope_bytes, frame_bytes, new_tenant
from secondsight.errors import Retryable
from secondsight.model import EntityKind, Quality
from secondsight.process.run import ProcessorConfig
from secondsight.wire.envelope import RecordType

POWER, ENERGY, UTIL = "gpu_power_watts", "gpu_energy_joules_total", "gpu_utilization_ratio"
REASONS, PSTATE, MEMORY = "gpu_clock_event_reasons", "gpu_performance_state", "gpu_memory_total_bytes"
METRICS = [CATALOG.get(name) for name in (POWER, ENERGY, UTIL, REASONS, PSTATE, MEMORY)]
NAMES = [metric.name for metric in METRICS]
VOLATILE = {"version", "ingest_time"}
TIMES = {"event_time", "ingest_time", "first_event_time", "last_event_time"}
MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")


def ms(moment):
    return round(moment.timestamp() * 1000) if hasattr(moment, "timestamp") else moment


def raw_rows(store, tenant, kind="gpu"):
    rows = store.query(f"SELECT * FROM {kind}_1s FINAL WHERE tenant_id = {{t:String}} ORDER BY ALL", {"t": tenant})
    return [{name: ms(value) if name in TIMES else value for name, value in row.items()} for row in rows.to_pylist()]


def rollup_rows(store, tenant, kind="gpu"):
    rows = store.query(
        f"SELECT * FROM {kind}_30s FINAL WHERE tenant_id = {{t:String}} AND samples > 0 ORDER BY ALL", {"t": tenant}
    ).to_pylist()
    return [{name: ms(value) if name in TIMES else value for name, value in row.items()} for row in rows]


def tables(store, tenant):
    """Return what must not depend on the order of arrival."""
    drop = VOLATILE
    return [
        [{name: value for name, value in row.items() if name not in drop} for row in rows]
        for rows in (raw_rows(store, tenant), rollup_rows(store, tenant))
    ]


def check_rollups(store, tenant, metrics=METRICS):
    """Compare every stored rollup with one worked out from the stored raw rows."""
    expected = process_oracle.roll_up(metrics, raw_rows(store, tenant))
    found = {}
    for row in rollup_rows(store, tenant):
        key = (row["host_id"], row["entity"], row["part"], row["collector_id"], row["window_start"] * 1000)
        found[(*key, tuple(row[name] for name in process_oracle.ATTRIBUTION))] = row
    assert found.keys() == expected.keys()
    for key, made in expected.items():
        sketches = made.pop("sketches")
        made |= {f"{name}_p95": process_oracle.nearest_rank(sketch, 95) for name, sketch in sketches.items()}
        row = found[key] | {name: dict(found[key][name]) for name in MAPS}
        members = {name for name, value in row.items() if value is not None and name.startswith("gpu_")}
        assert {name: row[name] for name in made} == made, key
        assert members - {"gpu_model"} == {name for name in made if name.startswith("gpu_")}


def steady(tenant, rig, start, seconds, *, values=None, step=1000, first=1, gpus=("GPU-a",), **frame):
    """Send one frame a tick and let the processor follow."""
    for number in range(seconds):
        tick = start + number * step
        rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
        rig.clock.move(0)
        cells = values(number) if values else {POWER: 300_000, ENERGY: 1000 * (first + number)}
        body = frame_bytes({(gpu, "", 0): cells for gpu in gpus}, [tick], sequence=first + number, **frame)
        rig.send(body, tenant=tenant)
        rig.processor.step()


def test_windows_are_half_open(store, tenant):
    rig = Rig(store)
    for sequence, tick in enumerate((T0, T0 + 29_999, T0 + 30_000), 1):
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: sequence}}, [tick], sequence=sequence), tick, tenant=tenant)
    rig.settle()
    rows = rollup_rows(store, tenant)
    assert [(row["window_start"] * 1000, row["samples"], row[f"{POWER}_max"]) for row in rows] == [
        (T0, 2, 2),
        (T0 + 30_000, 1, 3),
    ]
    assert rows[0]["covered_ms"] == 1001
    check_rollups(store, tenant)


def test_a_constant_stays_what_it_is(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 65, values=lambda _: {UTIL: 100})
    rig.settle()
    for row in rollup_rows(store, tenant):
        assert row[f"{UTIL}_sum"] / row["covered_ms"] == row[f"{UTIL}_p95"] == 100


def counter_rows(store, tenant, samples, *, gaps=None, boots=None, metric="gpu_pcie_correctable_errors_total"):
    rig = Rig(store)
    tick = T0
    for number, value in enumerate(samples):
        tick += (gaps or {}).get(number, 1000)
        rig.clock.step_wall((tick - rig.clock.now_ms()) / 1000)
        body = frame_bytes(
            {("GPU-a", "", 0): {metric: value}}, [tick], sequence=number + 1, boot=(boots or {}).get(number, BOOT)
        )
        rig.send(body, tenant=tenant)
        rig.processor.step()
    rig.settle()
    check_rollups(store, tenant, [CATALOG.get(metric)])
    rows = rollup_rows(store, tenant)
    increases = [row[f"{metric}_increase"] or 0 for row in rows]
    resets = sum(dict(row["resets"]).get(metric, 0) for row in rows)
    seconds = [
        dict(row["increase_other"]).get(metric, row["covered_ms"])
        for row in rows
        if row[f"{metric}_increase"] is not None
    ]
    return sum(increases), resets, sum(seconds)


def test_resets_are_counted_and_never_negative(store, tenant):
    samples = [1, 3, 5, 1, 8, 10, 1, 18, 20, 21, 38, 40]
    assert counter_rows(store, tenant, samples) == (54, 2, 11_000)


def test_a_gap_does_not_inflate_a_rate(store, tenant):
    assert counter_rows(store, tenant, [0, 10, 6010, 6020], gaps={2: 600_000}) == (6020, 0, 602_000)


def test_a_gap_longer_than_the_lookback_is_unknown(store, tenant):
    assert counter_rows(store, tenant, [0, 10, 90_000, 90_010], gaps={2: 3_600_001}) == (20, 0, 2000)


def test_a_new_boot_starts_at_zero_where_that_is_known(store, tenant):
    assert counter_rows(store, tenant, [50, 60, 7, 9], boots={2: OTHER_BOOT, 3: OTHER_BOOT}) == (19, 0, 3000)


def test_a_new_boot_is_unknown_for_counters_the_device_keeps(store, tenant):
    name = next(
        metric.name
        for metric in CATALOG.scalars(EntityKind.GPU)
        if metric.rollup == "increase" and "aggregate" in metric.name
    )
    found = counter_rows(store, tenant, [5, 6, 6, 8], boots={2: OTHER_BOOT, 3: OTHER_BOOT}, metric=name)
    assert found == (3, 0, 2000)


def test_an_impossible_step_is_unknown(store, tenant):
    assert counter_rows(store, tenant, [0, 1000, 10**15, 10**15 + 5], metric=ENERGY)[0] == 1005


def test_rounding_of_a_great_value_is_no_reset(store, tenant):
    assert counter_rows(store, tenant, [10**15, 10**15 - 1, 10**15 + 4])[:2] == (5, 0)


def test_an_idle_collector_is_written_as_it_stands_and_its_backlog_reopens_it(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 10)
    rig.clock.move(31)
    rig.processor.drain()
    rig.clock.move(6)
    rig.processor.drain()
    assert [row["samples"] for row in rollup_rows(store, tenant)] == [10]
    progress = store.query("SELECT * FROM progress FINAL WHERE tenant_id = {t:String}", {"t": tenant}).to_pylist()
    assert [(row["idle"], ms(row["watermark"])) for row in progress] == [(1, T0 - 1000)]
    for number in range(10, 40):
        cells = {POWER: 300_000, ENERGY: 1000 * (1 + number)}
        rig.send(frame_bytes({("GPU-a", "", 0): cells}, [T0 + 1000 * number], sequence=number + 1), tenant=tenant)
    rig.settle()
    assert [row["samples"] for row in rollup_rows(store, tenant)] == [30, 10]
    check_rollups(store, tenant)


def test_one_bad_clock_moves_only_its_own_watermark(store, tenant):
    rig = Rig(store)
    ahead = frame_bytes({("GPU-b", "", 0): {POWER: 1}}, [T0 + 250_000], collector="c2", host="h2")
    rig.send(ahead, T0, tenant=tenant)
    steady(tenant, rig, T0, 35)
    assert len(rollup_rows(store, tenant)) == 0
    rig.settle()
    check_rollups(store, tenant)
    assert {row["skew"] for row in raw_rows(store, tenant) if row["entity"] == "GPU-b"} == {1}


def test_rows_too_far_ahead_are_quarantined(store, tenant):
    rig = Rig(store)
    rows = {("GPU-a", "", 0): {POWER: 1}, ("GPU-a", "", 1): {POWER: 2}}
    rig.send(frame_bytes(rows, [T0, T0 + 300_001]), T0, tenant=tenant)
    rig.settle()
    assert [row[POWER] for row in raw_rows(store, tenant)] == [1]
    dead = store.query("SELECT * FROM dead_letters FINAL WHERE tenant_id = {t:String}", {"t": tenant}).to_pylist()
    assert [(row["stage"], row["code"], row["rows"], row["values"]) for row in dead] == [
        ("quarantine", "future_time", 1, 1)
    ]


def test_a_poison_record_between_good_ones_stops_nobody(store, tenant):
    rig = Rig(store)
    good = [frame_bytes({("GPU-a", "", 0): {POWER: n}}, [T0 + n * 1000], sequence=n) for n in (1, 2)]
    rig.send(good[0], tenant=tenant)
    rig.log.append(b"no envelope")
    rig.send(good[0][:-7] + b"1234567", tenant=tenant)
    rig.send(b"{", tenant=tenant, kind=RecordType.PLAN)
    rig.send(good[1], tenant=tenant)
    rig.settle()
    assert [row[POWER] for row in raw_rows(store, tenant)] == [1, 2]
    assert rig.processor.metrics.total("processor_dead_letters_total") == 3
    dead = store.query("SELECT code FROM dead_letters FINAL WHERE tenant_id = {t:String} ORDER BY code", {"t": tenant})
    assert dead.column("code").to_pylist() == ["bad_checksum", "bad_plan"]
    assert rig.log.committed == {0: 5}


def test_floats_that_are_no_numbers_are_absent_and_said_to_be_out_of_range(store, tenant):
    """Alone and among frames like it; no agent sends such."""
    loss, step = "training_loss", "training_learning_rate"
    rig = Rig(store)
    values = [1.0, math.nan, math.inf, -math.inf, 3.0, 0.0]
    for number, value in enumerate(values):
        body = frame_bytes(
            {("job-a", "", 0): {loss: value, step: 0.5}},
            [T0 + 1000 * number],
            kind=EntityKind.TRAINING,
            sequence=number + 1,
            inline=number == 0,
        )
        rig.send(body, tenant=tenant)
    rig.settle()
    rows = raw_rows(store, tenant, "training")
    assert [row[loss] for row in rows] == [1.0, None, None, None, 3.0, 0.0]
    assert [dict(row["quality"]) for row in rows] == [
        {} if math.isfinite(value) else {loss: Quality.BAD_RANGE} for value in values
    ]
    (made,) = rollup_rows(store, tenant, "training")
    assert made[f"{loss}_sum"] == 4000.0
    assert (made["covered_ms"], made[f"{step}_sum"], dict(made["covered_other"])) == (6000, 3000.0, {loss: 3000})
    told = store.query(
        "SELECT outcome, sum(values) AS n FROM ledger FINAL WHERE tenant_id = {t:String} GROUP BY ALL", {"t": tenant}
    )
    assert {row["outcome"]: row["n"] for row in told.to_pylist()} == {"received": 9, "stored": 9}


@pytest.mark.parametrize("greatest", [1 << 55, 1 << 56, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("swapped", [False, True])
def test_of_great_values_the_greater_wins_whichever_comes_first(store, tenant, greatest, swapped):
    transmit = "gpu_pcie_transmit_bytes_per_second"
    rig = Rig(store)
    rows = [{ENERGY: greatest - more, transmit: greatest - 1, POWER: 5} for more in (1, 0)]
    for number, cells in enumerate(rows[::-1] if swapped else rows):
        rig.send(frame_bytes({("GPU-a", "", 0): cells}, [T0], sequence=number + 1), tenant=tenant)
        rig.settle()
        rig.restart()
    versions = store.query("SELECT toString(version) AS v FROM gpu_1s WHERE tenant_id = {t:String}", {"t": tenant})
    assert len({row["v"] for row in versions.to_pylist()}) == (1 if swapped else 2)
    store.query("OPTIMIZE TABLE gpu_1s FINAL")
    assert [row[ENERGY] for row in raw_rows(store, tenant)] == [greatest]


def test_columns_that_do_not_fit_the_catalogue_are_dead_letters_and_the_rest_is_stored(store, tenant):
    rig = Rig(store)
    body = frame_bytes({("GPU-a", "", 0): {POWER: 5, UTIL: 7}}, [T0])
    state = rig.processor.world.kinds[EntityKind.GPU]
    state.layout = replace(state.layout, place={name: at for name, at in state.layout.place.items() if name != UTIL})
    rig.send(body, T0, tenant=tenant)
    rig.settle()
    assert [(row[POWER], row[UTIL]) for row in raw_rows(store, tenant)] == [(5, None)]
    dead = store.query("SELECT * FROM dead_letters FINAL WHERE tenant_id = {t:String}", {"t": tenant}).to_pylist()
    assert [(row["code"], row["metric"]) for row in dead] == [("unknown_metric", UTIL)]


def test_definitions_come_from_their_topic(store, tenant):
    rig = Rig(store)
    rows = {("GPU-a", "", 0): {POWER: 5}}
    rig.send(frame_bytes(rows, [T0], inline=False), T0, tenant=tenant)
    rig.processor.step()
    assert rig.processor.metrics.value("processor_dead_letters_total", stage="dead_letter", code="schema_unknown") == 1
    from process_rig import content_of
    from secondsight.wire.schema import entity_table_blob, schema_blob

    content = content_of(rows, ticks=[T0])
    for blob in (schema_blob(content.schema), entity_table_blob(content.entities)):
        rig.log.definitions.append(replace(rig.log.partitions[0][0], value=blob, offset=len(rig.log.definitions)))
    rig.send(frame_bytes(rows, [T0 + 1000], inline=False, sequence=2), T0, tenant=tenant)
    rig.settle()
    assert [row["event_time"] for row in raw_rows(store, tenant)] == [T0 + 1000]


def test_a_piece_after_its_window_closed_is_merged_and_the_next_window_follows(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 29)
    steady(tenant, rig, T0 + 30_000, 45, first=31)
    rig.settle()
    before = {row["window_start"]: row for row in rollup_rows(store, tenant)}
    late = {("GPU-a", "", 0): {POWER: 1, ENERGY: 29_500}}
    rig.send(frame_bytes(late, [T0 + 29_000], sequence=30), tenant=tenant)
    rig.settle()
    check_rollups(store, tenant)
    after = {row["window_start"]: row for row in rollup_rows(store, tenant)}
    assert after[T0 // 1000]["samples"] == 30
    assert after[T0 // 1000]["version"] >> 32 == 1
    follower = T0 // 1000 + 30
    assert after[follower][f"{ENERGY}_increase"] == before[follower][f"{ENERGY}_increase"] - 500
    ranges = store.query("SELECT * FROM rewrites FINAL WHERE tenant_id = {t:String}", {"t": tenant}).to_pylist()
    assert ("gpu_30s", T0) in {(row["table_name"], ms(row["from_time"])) for row in ranges}


def test_an_exact_repeat_after_closing_rewrites_nothing(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 45)
    rig.settle()
    rig.restart()
    rig.clock.move(1)
    body = frame_bytes({("GPU-a", "", 0): {POWER: 300_000, ENERGY: 5000}}, [T0 + 4000], sequence=5)
    written = rig.processor.metrics.value("processor_rows_written_total", table="gpu_1s")
    rig.send(body, T0 + 4300, tenant=tenant)
    rig.settle()
    assert rig.processor.metrics.value("processor_rows_written_total", table="gpu_1s") == written
    assert {row["version"] >> 32 for row in rollup_rows(store, tenant)} == {0}


def test_rows_older_than_the_horizon_are_stored_and_counted(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 12)
    old = T0 - 25 * 3_600_000
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 9}}, [old], sequence=99, spool_id=1), tenant=tenant)
    rig.settle()
    assert [row["window_start"] * 1000 for row in rollup_rows(store, tenant)] == [old // 30_000 * 30_000, T0]
    assert rig.processor.metrics.value("processor_late_rows_total", horizon="beyond") == 1
    check_rollups(store, tenant)


def test_two_attributions_in_one_window_are_two_rows(store, tenant):
    rig = Rig(store)
    rig.send(
        frame_bytes({}, [T0], events=[allocation("GPU-a", T0 + 12_000)], names=[POWER], sequence=500), tenant=tenant
    )
    steady(tenant, rig, T0, 45)
    rig.settle()
    check_rollups(store, tenant)
    found = [(row["window_start"] * 1000, row["owner_team"], row["samples"]) for row in rollup_rows(store, tenant)]
    assert sorted(found) == [(T0, "", 12), (T0, "team-a", 18), (T0 + 30_000, "team-a", 15)]


def test_a_late_allocation_stamps_stored_windows_again(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 45, gpus=("GPU-a", "GPU-b"))
    rig.settle()
    fact = allocation("GPU-a", T0 + 12_000, T0 + 40_000)
    rig.send(frame_bytes({}, [T0], events=[fact], names=[POWER], sequence=500), tenant=tenant)
    rig.settle()
    check_rollups(store, tenant)
    stamped = [row for row in raw_rows(store, tenant) if row["owner_team"] == "team-a"]
    assert [row["event_time"] for row in stamped] == [T0 + 1000 * n for n in range(12, 40)]
    assert {row["entity"] for row in stamped} == {"GPU-a"}
    everything = [allocation("GPU-a", T0, T0 + 60_000, version=3, job="j2", team="team-b")]
    everything.append(allocation("GPU-a", T0 + 12_000, T0 + 12_000, version=2))
    rig.send(frame_bytes({}, [T0], events=everything, names=[POWER], sequence=501), tenant=tenant)
    rig.settle()
    check_rollups(store, tenant)
    assert {row["owner_team"] for row in rollup_rows(store, tenant) if row["entity"] == "GPU-a"} == {"team-b"}
    assert store.query("SELECT count() AS n FROM allocations FINAL WHERE tenant_id = {t:String}", {"t": tenant}).column(
        "n"
    ).to_pylist() == [2]


def test_a_live_frame_moves_no_watermark(store, tenant):
    rig = Rig(store)
    rig.send(
        frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0 + 600_000], sequence=900, live=True),
        T0 + 600_000,
        tenant=tenant,
    )
    rig.clock.move(600)
    rig.processor.drain()
    steady(tenant, rig, T0, 3)
    progress = next(iter(rig.processor.world.progress.values()))
    assert progress.watermark_ms == T0 + 2000 - 10_000
    assert progress.has_backlog()


def test_events_infos_and_entities_land_once(store, tenant):
    rig = Rig(store)
    event = allocation("GPU-a", T0)
    for sequence in (1, 1, 2):
        body = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0], events=[event], sequence=sequence)
        rig.send(body, tenant=tenant)
    rig.settle()
    count = "SELECT count() AS n FROM {table:Identifier} FINAL WHERE tenant_id = {t:String}"
    for table in ("events", "allocations", "entities"):
        assert store.query(count, {"t": tenant, "table": table}).column("n").to_pylist() == [1]


def test_a_card_that_moves_keeps_its_history(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 5)
    steady(tenant, rig, T0 + 100_000, 5, host="h2", collector="c2")
    rig.settle()
    rows = store.query(
        "SELECT host_id, from_time, to_time FROM entities FINAL WHERE tenant_id = {t:String} ORDER BY host_id",
        {"t": tenant},
    ).to_pylist()
    assert [(row["host_id"], ms(row["from_time"]), row["to_time"] and ms(row["to_time"])) for row in rows] == [
        ("h1", T0, T0 + 100_000),
        ("h2", T0 + 100_000, None),
    ]
    steady(tenant, rig, T0 + 200_000, 5, first=1000)
    rig.settle()
    rows = store.query(
        "SELECT host_id, from_time, to_time FROM entities FINAL WHERE tenant_id = {t:String} ORDER BY ALL",
        {"t": tenant},
    ).to_pylist()
    assert [(row["host_id"], ms(row["from_time"]), row["to_time"] and ms(row["to_time"])) for row in rows] == [
        ("h1", T0, T0 + 100_000),
        ("h1", T0 + 200_000, None),
        ("h2", T0 + 100_000, T0 + 200_000),
    ]


# -- properties ------------------------------------------------------------------------------------------------------

CELLS = st.fixed_dictionaries(
    {},
    optional={
        POWER: st.integers(0, 700_000) | st.sampled_from([Quality.ABSENT_SOURCE_BLANK, Quality.BAD_RANGE]),
        ENERGY: st.integers(0, 60_000),
        UTIL: st.integers(0, 100) | st.tuples(st.integers(0, 100), st.just(Quality.ESTIMATE)),
        REASONS: st.integers(0, 15),
        PSTATE: st.integers(0, 3),
        MEMORY: st.integers(1, 1000),
    },
)
TICKS = st.integers(0, 95).map(lambda n: T0 + 1000 * n) | st.integers(0, 95_000).map(lambda n: T0 + n)
FRAME = st.fixed_dictionaries(
    {
        "rows": st.dictionaries(
            st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.sampled_from(["", "gi=1"]), st.just(0)), CELLS, min_size=1
        ),
        "tick": TICKS,
        "interval": st.sampled_from([1000, 5000, 30_000]),
        "boot": st.sampled_from([BOOT, OTHER_BOOT, ""]),
    }
)
FACTS = st.lists(
    st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.integers(-5, 90), st.integers(0, 60), st.sampled_from("xy")),
    max_size=2,
)


def bodies_of(frames, facts):
    made = []
    for number, frame in enumerate(frames):
        made.append(
            frame_bytes(
                frame["rows"],
                [frame["tick"]],
                sequence=number + 1,
                interval_ms=frame["interval"],
                boot=frame["boot"],
                names=NAMES,
            )
        )
    for number, (gpu, start, length, job) in enumerate(facts):
        fact = allocation(gpu, T0 + 1000 * start, T0 + 1000 * (start + length), job=f"{job}{number}", team=job)
        made.append(frame_bytes({}, [T0], events=[fact], sequence=900 + number, names=[POWER]))
    return made


def run(store, bodies, *, disturb=None, pause=0):
    """Run the bodies through a processor; `disturb` restarts it at random points without closing it."""
    tenant = new_tenant()
    rig = Rig(store, T0 + 100_000)
    for body in bodies:
        rig.send(body, T0 + 100_000, tenant=tenant)
        if disturb is not None:
            disturb(rig)
        elif pause:
            rig.processor.step()
            rig.clock.move(pause)
    rig.settle()
    check_rollups(store, tenant)
    return anonymous(tables(store, tenant))


def anonymous(found):
    return [[{name: value for name, value in row.items() if name != "tenant_id"} for row in rows] for rows in found]


FEW = settings(
    max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)
"""Each example is a second of work on a real store, so shrinking would take many minutes."""


@FEW
@given(frames=st.lists(FRAME, min_size=1, max_size=14), facts=FACTS, seed=st.integers(0, 2**32))
def test_order_repeats_and_pauses_change_nothing(store, frames, facts, seed):
    bodies = bodies_of(frames, facts)
    expected = run(store, bodies)
    chance = random.Random(seed)
    shuffled = bodies + chance.choices(bodies, k=3)
    chance.shuffle(shuffled)
    assert run(store, shuffled) == expected
    assert run(store, shuffled, pause=chance.choice([3, 17, 32])) == expected


@FEW
@given(frames=st.lists(FRAME, min_size=1, max_size=10), facts=FACTS, seed=st.integers(0, 2**32))
def test_a_crash_at_any_step_changes_nothing(store, frames, facts, seed):
    bodies = bodies_of(frames, facts)
    expected = run(store, bodies)
    chance = random.Random(seed)

    def disturb(rig):
        if chance.random() < 0.7:
            rig.processor.step()
        if chance.random() < 0.3:
            rig.clock.move(chance.choice([2, 7, 33]))
            rig.processor.step()
        if chance.random() < 0.4:
            rig.restart()

    assert run(store, bodies, disturb=disturb) == expected


@FEW
@given(cells=st.lists(CELLS.filter(bool), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_a_scrape_in_pieces_gives_one_full_row(store, cells, seed):
    whole = [(T0 + 1000 * number, each) for number, each in enumerate(cells)]
    expected = run(store, [frame_bytes({("GPU-a", "", 0): each}, [tick], names=NAMES) for tick, each in whole])
    chance = random.Random(seed)
    pieces = []
    for tick, each in whole:
        for _ in range(7):
            some = {name: value for name, value in each.items() if chance.random() < 0.4}
            pieces.append(frame_bytes({("GPU-a", "", 0): some}, [tick], names=NAMES))
        pieces += [frame_bytes({("GPU-a", "", 0): {name: value}}, [tick], names=NAMES) for name, value in each.items()]
    chance.shuffle(pieces)
    assert run(store, pieces) == expected
    assert run(store, pieces, pause=chance.choice([0.5, 4])) == expected


class Failing:
    """A store that is busy now and then."""

    def __init__(self, store, chance):
        self._store = store
        self._chance = chance
        self.calm = False

    def insert(self, table, data):
        self._maybe_fail()
        self._store.insert(table, data)
        self._maybe_fail()

    def query(self, sql, params=None, settings=None):
        self._maybe_fail()
        return self._store.query(sql, params, settings)

    def _maybe_fail(self):
        if not self.calm and self._chance.random() < 0.2:
            raise Retryable("busy")


@FEW
@given(frames=st.lists(FRAME, min_size=1, max_size=10), facts=FACTS, seed=st.integers(0, 2**32))
def test_a_busy_store_loses_nothing(store, frames, facts, seed):
    bodies = bodies_of(frames, facts)
    expected = run(store, bodies)
    tenant = new_tenant()
    failing = Failing(store, random.Random(seed))
    failing.calm = True
    rig = Rig(failing, T0 + 100_000)
    failing.calm = False
    for body in bodies:
        rig.send(body, T0 + 100_000, tenant=tenant)
        try:
            rig.processor.step()
        except Retryable:
            rig.clock.move(3)
    failing.calm = True
    rig.settle()
    check_rollups(store, tenant)
    assert anonymous(tables(store, tenant)) == expected


def test_a_partition_that_moves_away_and_back_is_read_again(store, tenant):
    rig = Rig(store, partitions=2)
    rig.clock.move(1)
    for number in range(20):
        body = frame_bytes({("GPU-a", "", 0): {POWER: 1, ENERGY: number}}, [T0 + 1000 * number], sequence=number + 1)
        rig.send(body, T0 + 1000 * number, partition=1, tenant=tenant)
    rig.processor.step()
    rig.processor._intake.assign([0])
    assert not rig.processor.world.spans.open
    assert rig.processor.world.progress == {}
    rig.processor._intake.assign([0, 1])
    rig.processor._intake.keep(rig.log.partitions[1])
    rig.settle()
    assert rig.log.committed[1] == 20
    assert [row["samples"] for row in rollup_rows(store, tenant)] == [20]
    check_rollups(store, tenant)


def test_memory_pressure_writes_the_oldest_windows_early(store, tenant):
    rig = Rig(store, config=ProcessorConfig(window_bytes=1_000))
    for number in range(60):
        body = frame_bytes({("GPU-a", "", 0): {POWER: number}}, [T0 + 30_000 * number], sequence=number + 1, live=True)
        rig.send(body, T0 + 30_000 * number, tenant=tenant)
        rig.processor.step()
    assert rig.processor.world.window_bytes() <= 1_000
    assert rig.processor.metrics.total("processor_windows_pressed_total") > 0
    rig.settle()
    assert len(rollup_rows(store, tenant)) == 60
    check_rollups(store, tenant)


def test_an_envelope_of_another_tenant_is_another_row(store):
    first, second = new_tenant(), new_tenant()
    rig = Rig(store)
    body = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0])
    rig.log.append(envelope_bytes(body, T0, tenant=first))
    rig.log.append(envelope_bytes(body, T0, tenant=second))
    rig.settle()
    assert len(raw_rows(store, first)) == len(raw_rows(store, second)) == 1
