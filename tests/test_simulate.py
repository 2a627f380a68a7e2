"""The simulator: the same twice, plausible, and incidents that show in what is measured."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.agent.simulate.cluster import (
    SETTLE_SECONDS,
    ClusterSpec,
    Second,
    SimulatedCluster,
    gpu_uuid,
    host_name,
)
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.simulate.fleet import _keep_counters, _take_counters
from secondsight.agent.simulate.incidents import INCIDENTS, incident_named
from secondsight.agent.simulate.jobs import job_at, load_of
from secondsight.agent.simulate.machines import BOARDS, H100
from secondsight.agent.simulate.physics import COUNTERS, REASON_HW_THERMAL, REASON_SW_THERMAL
from secondsight.agent.simulate.reader import SimulatedGpus, SimulateReader
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import MetricType
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, decode, encode
from secondsight.wire.schema import Definitions

START = 1_790_000_000


def run(spec: ClusterSpec, seconds: int) -> list[Second]:
    cluster = SimulatedCluster(spec, START)
    return [cluster.advance(START + second) for second in range(seconds)]


def spec(hosts: int = 4, seed: int = 7, *incidents: str) -> ClusterSpec:
    return ClusterSpec("cedar", hosts, 8, H100, seed, tuple(incident_named(name, 10) for name in incidents))


def series(seconds: list[Second], metric: str) -> np.ndarray:
    return np.stack([second.gpu[metric] for second in seconds])


def test_a_run_repeats_exactly() -> None:
    first, second = run(spec(), 40), run(spec(), 40)
    for one, other in zip(first, second, strict=True):
        assert one.jobs == other.jobs
        for name, values in one.gpu.items():
            np.testing.assert_array_equal(values, other.gpu[name])


def test_another_seed_is_another_fleet() -> None:
    assert not np.array_equal(
        run(spec(seed=1), 3)[2].gpu["gpu_power_watts"], run(spec(seed=2), 3)[2].gpu["gpu_power_watts"]
    )


def test_every_metric_is_in_the_catalogue_and_in_its_range() -> None:
    catalog = load_catalog()
    for second in run(spec(6, 3), 30):
        for name, values in second.gpu.items():
            metric = catalog.get(name)
            assert metric.kind is EntityKind.GPU
            assert metric.minimum is None or values.min() >= metric.minimum, name
            assert metric.maximum is None or values.max() <= metric.maximum, name


def test_values_lie_on_the_source_s_own_steps() -> None:
    catalog = load_catalog()
    for name, values in run(spec(), 5)[-1].gpu.items():
        resolution = catalog.get(name).resolution
        if resolution:
            np.testing.assert_allclose(values / resolution, np.rint(values / resolution), atol=1e-3, err_msg=name)


def test_counters_never_fall() -> None:
    seconds = run(spec(), 60)
    for name in COUNTERS:
        assert (np.diff(series(seconds, name), axis=0) >= 0).all(), name


def test_a_cluster_goes_on_where_its_past_ends() -> None:
    past = run(spec(), 90)[-1]
    live = SimulatedCluster(spec(), START + 60, SETTLE_SECONDS + 60)
    after = [live.advance(START + 60 + second) for second in range(30)][-1]
    for name, values in past.gpu.items():
        np.testing.assert_array_equal(values, after.gpu[name])


def test_counters_go_on_over_a_stop() -> None:
    stopped = SimulatedCluster(spec(), START)
    last = [stopped.advance(START + second) for second in range(30)][-1]
    again = SimulatedCluster(spec(), START + 600)
    again.count_on({**stopped.counters(), "unknown": np.zeros(3), "gpu_pcie_replay_total": np.zeros(3)})
    first = again.advance(START + 600)
    for name in set(COUNTERS) - {"gpu_pcie_replay_total"}:
        assert (first.gpu[name] >= last.gpu[name]).all(), name
        assert (first.gpu[name] <= last.gpu[name] + 1000).all(), name
    assert (first.network_receive_bytes >= last.network_receive_bytes).all()


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04 half of one"])
def test_counters_that_cannot_be_read_begin_anew(tmp_path: Path, damage: bytes) -> None:
    path, stopped, again = tmp_path / "counters.npz", SimulatedCluster(spec(), START), SimulatedCluster(spec(), START)
    stopped.advance(START)
    _keep_counters(path, stopped)
    _take_counters(path, again)
    for name, values in stopped.counters().items():
        np.testing.assert_array_equal(values, again.counters()[name])
    path.write_bytes(damage)
    _take_counters(path, again)
    assert [each.name for each in tmp_path.iterdir()] == ["counters.npz"]


def test_energy_is_the_sum_of_power() -> None:
    seconds = run(spec(), 30)
    energy, power = series(seconds, "gpu_energy_joules_total"), series(seconds, "gpu_power_watts")
    np.testing.assert_allclose(np.diff(energy, axis=0), power[1:], atol=0.002)


def test_temperature_follows_power_with_a_lag() -> None:
    seconds = run(spec(40, 5), 400)
    power, temperature = series(seconds, "gpu_power_watts"), series(seconds, "gpu_temperature_celsius")
    cold = (temperature[:290] < 45) & (power[10:300] > power[:290] + 300) & (power[100:390] > 400)
    assert cold.any()
    at, gpu = np.argwhere(cold)[0]
    assert temperature[at + 1, gpu] - temperature[at, gpu] <= 5
    assert temperature[at + 100, gpu] > temperature[at, gpu] + 9


def test_thermal_runaway_throttles_the_rack_and_its_clocks_fall() -> None:
    seconds = run(spec(8, 7, "thermal_runaway"), 500)
    reasons = series(seconds, "gpu_clock_event_reasons").astype(int)
    hot = (reasons & (REASON_SW_THERMAL | REASON_HW_THERMAL)) != 0
    assert hot[-100:, :32].any()
    assert not hot[:, 32:].any()
    clocks = series(seconds, "gpu_sm_clock_hertz")
    throttled = hot[-1, :32]
    assert (clocks[-1, :32][throttled] < H100.boost_clock_mhz * 1e6).all()


def test_straggler_works_less_than_its_peers() -> None:
    seconds = run(spec(2, 7, "straggler"), 90)
    active = series(seconds, "gpu_sm_active_ratio")[-20:].mean(axis=0)
    assert active[3] < 0.75 * np.median(active[:8])


def test_node_lost_sends_nothing() -> None:
    lost = spec(3, 7, "node_lost")
    contents = HostContents(lost, load_catalog())
    seconds = run(lost, 15)
    assert set(contents.batch(seconds[:5])) == {0, 1, 2}
    assert set(contents.batch(seconds[10:15])) == {1, 2}


def test_ecc_storm_counts_errors_of_one_gpu_and_says_so_once() -> None:
    seconds = run(spec(2, 7, "ecc_storm"), 80)
    errors = series(seconds, "gpu_ecc_corrected_volatile_total")
    assert errors[-1, 1] - errors[0, 1] > 10_000
    assert errors[-1, 2] - errors[0, 2] < 10
    assert [xid.gpu for second in seconds for xid in second.xids if xid.code == 92] == [1]


def test_clock_drift_moves_one_host() -> None:
    offsets = run(spec(3, 7, "clock_drift"), 30)[-1].causes.clock_offset_ms
    assert offsets[0] > 1000
    assert not offsets[1:].any()


def test_nvlink_degraded_takes_links_of_one_gpu_and_slows_its_host() -> None:
    seconds = run(spec(4, 7, "nvlink_degraded"), 140)
    links = series(seconds, "gpu_nvlink_links_active")
    assert (links[:10] == 18).all()
    assert (np.diff(links[10:, 2]) <= 0).all()
    assert links[-1, 2] == 6
    assert (np.delete(links, 2, axis=1) == 18).all()
    errors = series(seconds, "gpu_nvlink_replay_errors_total")
    assert errors[-1, 2] - errors[10, 2] > 1000
    healthy = series(run(spec(4, 7), 140), "gpu_sm_active_ratio")[-20:].mean(axis=0)
    slowed = series(seconds, "gpu_sm_active_ratio")[-20:].mean(axis=0)
    assert (slowed[:8] < 0.9 * healthy[:8]).all()
    np.testing.assert_allclose(slowed[8:], healthy[8:], rtol=0.1)
    assert [(xid.gpu, xid.code) for second in seconds for xid in second.xids if xid.code == 74] == [(2, 74)]


def test_dataloader_stall_lets_a_job_s_gpus_work_in_bursts() -> None:
    seconds = run(spec(4, 7, "dataloader_stall"), 90)
    active = series(seconds, "gpu_sm_active_ratio")[20:90].reshape(7, 10, 32)
    assert (active[:, 4:7, :16].mean(axis=(0, 1)) < 0.3 * active[:, 9, :16].mean(axis=0)).all()
    assert (active[:, :, 16:].min(axis=(0, 1)) > 0.3 * active[:, :, 16:].mean(axis=(0, 1))).all()


def test_network_partition_cuts_a_rack_off_for_a_while_and_nothing_else() -> None:
    seconds = run(spec(6, 7, "network_partition"), 110)
    reachable = np.stack([second.causes.reachable for second in seconds])
    assert not reachable[10:100, :4].any()
    assert reachable[:10].all()
    assert reachable[100:].all()
    assert reachable[:, 4:].all()
    assert np.array_equal(series(seconds, "gpu_power_watts"), series(run(spec(6, 7), 110), "gpu_power_watts"))


def test_collector_restart_leaves_a_gap_and_its_counters_begin_again() -> None:
    restarted = spec(2, 7, "collector_restart")
    maker, seconds = HostContents(restarted, load_catalog()), run(restarted, 24)
    sent = [maker.batch([second]) for second in seconds]
    assert [second for second, hosts in enumerate(sent) if 0 not in hosts] == list(range(10, 18))
    assert all(1 in hosts for hosts in sent)
    cpu = [agent_cpu_seconds(hosts[0]) for hosts in sent if 0 in hosts]
    assert cpu[:10] == sorted(cpu[:10])
    assert cpu[10] == 0
    assert cpu[9] > cpu[-1] > 0


def agent_cpu_seconds(contents: tuple[Content, ...]) -> float:
    """Return a host's counter of its agent's CPU time, as stored."""
    [own] = [content for content in contents if content.schema.kind is EntityKind.PLATFORM]
    column = next(i for i, c in enumerate(own.schema.columns) if c.metric == "agent_cpu_seconds_total")
    assert own.scalars is not None
    group = next(g for g in own.scalars.groups if g.first_column <= column < g.first_column + len(g.values))
    return float(group.values[column - group.first_column][0])


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_incident_has_a_name_that_works(name: str) -> None:
    assert incident_named(name).name == name


def test_an_unknown_incident_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        incident_named("meteor")
    assert caught.value.code == "unknown_incident"


@given(st.integers(0, 2**31), st.integers(0, 500), st.integers(START, START + 10**7))
@settings(max_examples=200, deadline=None)
def test_a_job_s_schedule_is_a_function_of_the_second(seed: int, group: int, second: int) -> None:
    job = job_at(seed, group, second)
    if job is None:
        return
    assert job.start_seconds <= second < job.end_seconds
    assert job_at(seed, group, job.start_seconds) == job
    assert job_at(seed, group, job.end_seconds) != job
    load = load_of(job, second)
    assert 0 <= load.activity <= 1
    assert 0 <= load.memory_ratio <= 1


def test_contents_decode_to_what_was_simulated() -> None:
    fleet, catalog, known = spec(2, 9), load_catalog(), Definitions()
    seconds = run(fleet, 5)
    contents = HostContents(fleet, catalog).batch(seconds)[1]
    kinds = [content.schema.kind for content in contents]
    assert kinds[:3] == [EntityKind.GPU, EntityKind.NODE, EntityKind.PLATFORM]
    times = np.array([second.second * 1000 for second in seconds])
    name = host_name(fleet, 1)
    frame = decode(encode(Stamp(name, name, "simulate", 1, 0, 4, times, 1000), contents[0], inline=True), known)
    power = next(i for i, c in enumerate(frame.content.schema.columns) if c.metric == "gpu_power_watts")
    scalars = frame.content.scalars
    assert scalars is not None
    group = next(g for g in scalars.groups if g.first_column <= power < g.first_column + len(g.values))
    stored = group.values[power - group.first_column].reshape(5, 8)
    np.testing.assert_allclose(stored * 0.001, [second.gpu["gpu_power_watts"][8:] for second in seconds])
    assert frame.content.entities.entities[3].entity == gpu_uuid(fleet, 1, 3)


def test_job_changes_become_allocation_facts() -> None:
    fleet = spec(2, 9)
    maker = HostContents(fleet, load_catalog())
    job = job_at(9, 0, START)
    assert job is not None
    cluster = SimulatedCluster(fleet, job.end_seconds - 3)
    events = []
    for second in range(job.end_seconds - 3, job.end_seconds + 600):
        for content in maker.batch([cluster.advance(second)])[0]:
            events += [event for event in content.events if event.metric == "job_gpu_allocation"]
    mine = [event for event in events if event.entity == gpu_uuid(fleet, 0, 0)]
    assert [(event.attributes["job_id"], event.version, event.end_ms) for event in mine[:2]] == [
        (job.job_id, 1, None),
        (job.job_id, 2, job.end_seconds * 1000),
    ]
    assert mine[2].version == 1


def test_the_reader_gives_one_tick_and_only_what_no_other_reader_has() -> None:
    reader = SimulateReader(SimulatedGpus(gpus=2), load_catalog(), "node-a")
    tick = reader.read(START * 1000 + 137)
    assert EntityKind.GPU in {content.schema.kind for content in tick.contents}
    assert not {content.schema.kind for content in tick.contents} & {EntityKind.NODE, EntityKind.PLATFORM}
    assert all(content.entities.host_id == "node-a" for content in tick.contents)
    assert reader.read(START * 1000 + 140).contents == ()
    assert reader.read((START + 5) * 1000).contents
    reader.close()
    reader.close()


def test_boards_differ() -> None:
    assert len({board.name for board in BOARDS}) == len(BOARDS)


def test_only_states_gauges_and_counters_are_simulated() -> None:
    catalog = load_catalog()
    types = {catalog.get(name).type for name in run(spec(), 1)[0].gpu}
    assert types == {MetricType.GAUGE, MetricType.COUNTER, MetricType.STATE}
