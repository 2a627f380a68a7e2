"""Findings are what all stored samples say, whatever the order in which they came, and none is told twice."""

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import findings_oracle
from process_rig import BOOT, CATALOG, OTHER_BOOT, T0, Rig, allocation, frame_bytes, new_tenant
from secondsight.catalog.findings import load_rules, parse_rules
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from test_process_flow import Failing, ms, raw_rows, steady

REASONS, PENDING, MARGIN = "gpu_clock_event_reasons", "gpu_row_remap_pending", "gpu_temperature_margin_celsius"
UNCORRECTED, CORRECTED = "gpu_ecc_uncorrected_volatile_total", "gpu_ecc_corrected_volatile_total"
ENERGY, LOST, LINK = "gpu_energy_joules_total", "gpu_lost", "gpu_nvlink_link_state"
NAMES = [REASONS, PENDING, MARGIN, UNCORRECTED, CORRECTED, ENERGY, LOST, LINK]
RULES = load_rules(CATALOG)
GPU_RULES = [rule for rule in RULES if rule.kind is EntityKind.GPU and {m.name for m in rule.metrics} & set(NAMES)]


def event_rows(store, tenant, *, retracted=False):
    sql = (
        "SELECT * FROM events FINAL WHERE tenant_id = {t:String} AND source = 'findings' "
        f"AND mapContains(attributes, 'retracted') = {int(retracted)} ORDER BY ALL"
    )
    rows = store.query(sql, {"t": tenant}).to_pylist()
    return [{**row, "attributes": dict(row["attributes"])} for row in rows]


def found(store, tenant):
    return [
        (
            row["metric"],
            row["code"],
            *(row[name] for name in ("host_id", "entity", "part", "collector_id")),
            ms(row["event_time"]),
            row["end_time"] and ms(row["end_time"]),
            int(row["attributes"]["count"]),
            row["severity"],
        )
        for row in event_rows(store, tenant)
    ]


def check(store, tenant):
    """Compare what is stored with what the stored samples say."""
    names = [metric.name for rule in GPU_RULES for metric in rule.metrics]
    rows = [dict.fromkeys(names) | row for row in raw_rows(store, tenant)]
    told = found(store, tenant)
    assert set(told) == findings_oracle.expected(GPU_RULES, rows)
    assert len(told) == len(set(told))
    return told


def brief(told):
    return [(row[0], row[1], row[3], (row[6] - T0) / 1000, row[7] and (row[7] - T0) / 1000, *row[8:]) for row in told]


def test_quiet_samples_are_no_findings(store, tenant):
    rig = Rig(store)
    cells = {REASONS: 4, PENDING: 0, MARGIN: 20, UNCORRECTED: 5, ENERGY: 7, LOST: 0, LINK: 0}
    steady(tenant, rig, T0, 65, values=lambda _: cells)
    rig.settle()
    assert check(store, tenant) == []
    assert rig.processor.metrics.total("processor_findings_total") == 0


def test_a_slowdown_has_a_beginning_and_an_end_windows_later(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 120, values=lambda second: {REASONS: 64 if 10 <= second < 95 else 4})
    rig.processor.checkpoint()
    assert brief(found(store, tenant)) == [("gpu_thermal_finding", 1, "GPU-a", 10.0, None, 1, "error")]
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_thermal_finding", 1, "GPU-a", 10.0, 95.0, 1, "error")]
    (row,) = event_rows(store, tenant)
    assert row["event_version"] == 2
    message = row["attributes"]["message"]
    assert message.startswith(
        "GPU GPU-a of host h1: the hardware slows the clocks down because of heat, over after 85 s"
    )
    assert row["attributes"]["action"] in message


def test_errors_that_grew_are_one_event_a_window_with_their_number(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 65, values=lambda second: {UNCORRECTED: [0, 0, 3, 3, 7][min(second // 5, 4)], CORRECTED: 9})
    rig.settle()
    told = brief(check(store, tenant))
    assert told == [("gpu_memory_finding", 1, "GPU-a", 10.0, 20.0, 7, "critical")]


def test_many_corrected_errors_are_worse_than_a_few(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 65, values=lambda second: {CORRECTED: second if second < 30 else second * 1000})
    rig.settle()
    assert [row[-1] for row in check(store, tenant)] == ["info", "warning", "warning"]


def test_a_lost_gpu_returns(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 100, values=lambda second: {LOST: int(20 <= second < 80)})
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_availability_finding", 1, "GPU-a", 20.0, 80.0, 1, "critical")]


def test_a_link_that_was_never_on_is_no_finding_and_one_that_goes_off_is(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 95, values=lambda second: {LINK: 0 if second < 40 or 50 <= second < 70 else 1})
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_link_finding", 1, "GPU-a", 50.0, 70.0, 1, "critical")]


def test_counters_that_fall_are_a_reset_and_on_all_gpus_of_a_host_a_driver_loaded_anew(store, tenant):
    rig = Rig(store)
    for second in range(95):
        tick = T0 + 1000 * second
        rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
        cells = {
            ("GPU-a", "", 0): {ENERGY: 100 + second if second < 70 else second - 70, CORRECTED: 8},
            ("GPU-b", "", 0): {ENERGY: 100 + second if second < 40 else second - 40 if second < 70 else second - 70},
        }
        rig.send(frame_bytes(cells, [tick], sequence=second + 1), tenant=tenant)
        rig.processor.step()
    rig.settle()
    told = sorted((row for row in brief(check(store, tenant)) if row[0] == "gpu_counter_reset"), key=lambda row: row[3])
    assert told == [
        ("gpu_counter_reset", 1, "GPU-b", 40.0, 40.0, 1, "info"),
        ("gpu_counter_reset", 2, "GPU-a", 70.0, 70.0, 1, "info"),
        ("gpu_counter_reset", 2, "GPU-b", 70.0, 70.0, 1, "info"),
    ]
    assert {row["attributes"]["counters"] for row in event_rows(store, tenant)} == {ENERGY}


def test_a_new_boot_is_no_reset(store, tenant):
    rig = Rig(store)
    for second in range(65):
        body = {("GPU-a", "", 0): {ENERGY: 500 + second if second < 30 else second}}
        tick = T0 + 1000 * second
        rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
        boot = BOOT if second < 30 else OTHER_BOOT
        rig.send(frame_bytes(body, [tick], sequence=second + 1, boot=boot), tenant=tenant)
        rig.processor.step()
    rig.settle()
    assert check(store, tenant) == []


def test_late_samples_move_split_and_retract(store, tenant):
    rig = Rig(store)
    hot = {10, 11, 12, *range(40, 62), 80}

    def send(seconds, sequence):
        rows = {("GPU-a", "", n): {REASONS: 64 if second in hot else 4} for n, second in enumerate(seconds)}
        rig.send(frame_bytes(rows, [T0 + 1000 * second for second in seconds], sequence=sequence), tenant=tenant)
        rig.settle()

    rig.clock.step_wall(400)
    send([n for n in range(120) if n not in (10, 50, 51, 61, 62)], 1)
    assert brief(check(store, tenant)) == [
        ("gpu_thermal_finding", 1, "GPU-a", start, end, 1, "error") for start, end in [(11, 13), (40, 63), (80, 81)]
    ]
    hot -= {50, 80}
    send([10, 50, 61, 62], 2)
    told = [(row[3], row[4], row[5]) for row in brief(check(store, tenant))]
    assert told == [(10, 13, 1), (40, 62, 2), (80, 81, 1)]
    assert [ms(row["event_time"]) for row in event_rows(store, tenant, retracted=True)] == [T0 + 11_000]


def test_a_card_that_wavers_at_its_limit_is_one_finding(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 200, values=lambda second: {MARGIN: second % 3 if 10 <= second < 160 else 4})
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_thermal_finding", 5, "GPU-a", 12.0, 160.0, 1, "error")]


def test_a_card_that_never_passed_its_limit_has_no_finding(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 65, values=lambda second: {MARGIN: 1 + second % 3})
    rig.settle()
    assert check(store, tenant) == []


def test_a_wavering_card_stays_over_its_limit_through_a_restart_and_late_samples(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 50, values=lambda second: {MARGIN: 0 if second == 20 else 2})
    rig.settle()
    rig.restart()
    steady(tenant, rig, T0 + 400_000, 70, first=60, values=lambda second: {MARGIN: 2 if second < 35 else 3})
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_thermal_finding", 5, "GPU-a", 20.0, 435.0, 1, "error")]
    late = frame_bytes({("GPU-a", "", 0): {MARGIN: 7}}, [T0 + 100_000], sequence=500)
    rig.send(late, tenant=tenant)
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_thermal_finding", 5, "GPU-a", 20.0, 100.0, 1, "error")]


def test_a_finding_that_lasts_survives_a_restart_and_ends_once(store, tenant):
    rig = Rig(store)
    steady(tenant, rig, T0, 50, values=lambda second: {PENDING: int(second >= 20)})
    rig.settle()
    rig.restart()
    steady(tenant, rig, T0 + 400_000, 70, first=60, values=lambda second: {PENDING: int(second < 35)})
    rig.settle()
    assert brief(check(store, tenant)) == [("gpu_memory_finding", 3, "GPU-a", 20.0, 435.0, 1, "warning")]


def test_a_finding_is_of_who_had_the_gpu(store, tenant):
    rig = Rig(store)
    fact = allocation("GPU-a", T0 - 1000)
    rig.send(frame_bytes({}, [T0], events=[fact], sequence=900, names=[ENERGY]), tenant=tenant)
    steady(tenant, rig, T0, 45, values=lambda second: {UNCORRECTED: int(second > 10)})
    rig.settle()
    assert [(row["job_id"], row["owner_team"]) for row in event_rows(store, tenant)] == [("j1", "team-a")]


def test_a_port_that_goes_down_is_told(store, tenant):
    rig = Rig(store)
    for second in range(65):
        tick = T0 + 1000 * second
        rig.clock.step_wall((tick + 300 - rig.clock.now_ms()) / 1000)
        cells = {"fabric_port_state": 1 if second >= 35 else 4, "fabric_port_symbol_errors_total": second // 40 * 50}
        rows = {("h1/mlx5_0/1", "", 0): cells}
        body = frame_bytes(rows, [tick], sequence=second + 1, kind=EntityKind.FABRIC_PORT, source="fabric")
        rig.send(body, tenant=tenant)
        rig.processor.step()
    rig.settle()
    told = [(row["metric"], row["code"], row["severity"]) for row in event_rows(store, tenant)]
    assert told == [("fabric_port_finding", 1, "critical"), ("fabric_port_finding", 2, "info")]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('metric="gpu_lost", is=[1], severity="bad"', "severity"),
        ('metric="gpu_lost", severity="error"', "no test"),
        ('metric="gpu_lost", is=[1], bits=2, severity="error"', "several"),
        ('metric="gpu_lost", grows=[[1, "error"]]', "does not fit"),
        ('metric="gpu_lost", is=[1], severity="error", colour="red"', "unknown key"),
        ('metrics=[], is=[1], severity="error"', "no metrics"),
        ('metric="gpu_temperature_margin_celsius", most=0, until=-1, severity="error"', "lies beyond"),
        ('metric="gpu_lost", is=[1], until=3, severity="error"', "until goes with"),
    ],
)
def test_a_line_that_is_nearly_right_is_refused(line, what):
    with pytest.raises(Rejected, match=what):
        parse_rules(f'x = {{event="gpu_memory_finding", code=1, {line}}}', CATALOG)


# -- properties ------------------------------------------------------------------------------------------------------

CELLS = st.fixed_dictionaries(
    {},
    optional={
        REASONS: st.sampled_from([0, 4, 8, 64, 72, 96]),
        PENDING: st.integers(0, 1),
        MARGIN: st.sampled_from([-1, 0, 1, 2, 3, 9]),
        UNCORRECTED: st.integers(0, 3),
        CORRECTED: st.sampled_from([0, 1, 5000]),
        ENERGY: st.integers(0, 400),
        LINK: st.integers(0, 1),
    },
)
SAMPLES = st.dictionaries(
    st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.integers(0, 119)), CELLS.filter(bool), min_size=1, max_size=40
)
FEW = settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)


def bodies_of(samples):
    """Return frames of one instant each: of several GPUs at once, or of one."""
    by_second = {}
    for (gpu, second), cells in sorted(samples.items()):
        by_second.setdefault(second, {})[gpu, "", 0] = cells
    return [
        (T0 + 1000 * second, frame_bytes(rows, [T0 + 1000 * second], sequence=number + 1, names=NAMES))
        for number, (second, rows) in enumerate(sorted(by_second.items()))
    ]


def run(store, bodies, chance, *, crashes=False, in_order=False):
    """Send bodies with pauses between, which close windows, and crashes; return what was found."""
    tenant = new_tenant()
    rig = Rig(store, T0 + 121_000)
    for tick, body in bodies:
        rig.send(body, tick + 300 if in_order else T0 + 121_000, tenant=tenant)
        if chance.random() < 0.5:
            rig.processor.step()
        if chance.random() < 0.3:
            rig.clock.move(chance.choice([2, 11, 33]))
            rig.processor.step()
        if crashes and chance.random() < 0.15:
            rig.restart()
    rig.settle()
    check(store, tenant)
    return [row[:5] + row[6:] for row in found(store, tenant)]


@FEW
@given(samples=SAMPLES, seed=st.integers(0, 2**32))
def test_order_repeats_pauses_and_crashes_change_no_finding(store, samples, seed):
    bodies, chance = bodies_of(samples), random.Random(seed)
    expected = run(store, bodies, chance, in_order=True)
    shuffled = bodies + chance.choices(bodies, k=3)
    chance.shuffle(shuffled)
    assert run(store, shuffled, chance) == expected
    assert run(store, shuffled, chance, crashes=True) == expected


@FEW
@given(samples=SAMPLES, seed=st.integers(0, 2**32))
def test_a_busy_store_tells_nothing_twice(store, samples, seed):
    chance, tenant = random.Random(seed), new_tenant()
    failing = Failing(store, chance)
    failing.calm = True
    rig = Rig(failing, T0 + 121_000)
    failing.calm = False
    for _, body in bodies_of(samples):
        rig.send(body, T0 + 121_000, tenant=tenant)
        try:
            rig.processor.step()
        except Retryable:
            rig.clock.move(chance.choice([1, 12, 33]))
    failing.calm = True
    rig.settle()
    check(store, tenant)
