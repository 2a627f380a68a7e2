"""Rollups of 5 min, 1 h and 1 d equal what is worked out from the stored raw rows, whatever came when."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import cluster_oracle
import process_oracle
from process_rig import BOOT, CATALOG, OTHER_BOOT, Rig, allocation, frame_bytes, new_tenant
from secondsight.model import Quality
from secondsight.rollup.run import Roller
from secondsight.store.bins import RELATIVE_ERROR, figures_of
from secondsight.store.coarse import LEVELS

T0 = 1_700_006_400_000
"""Start of an hour, half an hour before the end of a day."""
POWER, ENERGY, UTIL = "gpu_power_watts", "gpu_energy_joules_total", "gpu_utilization_ratio"
REASONS, PSTATE, MEMORY = "gpu_clock_event_reasons", "gpu_performance_state", "gpu_memory_total_bytes"
USED, TRANSMIT = "gpu_memory_used_bytes", "gpu_pcie_transmit_bytes_per_second"
METRICS = [CATALOG.get(name) for name in (POWER, ENERGY, UTIL, REASONS, PSTATE, MEMORY, USED, TRANSMIT)]
NAMES = [metric.name for metric in METRICS]
TIMES = ("event_time", "ingest_time", "first_event_time", "last_event_time")
MAPS = ("covered_other", "increase_other", "resets", "changes", "state_ms")
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id")
WIDTHS = {level.name: level.width_ms for level in LEVELS}
DAY_MS = 86_400_000


def read(store, table, tenant, where="1"):
    rows = store.query(f"SELECT * FROM {table} FINAL WHERE tenant_id = {{t:String}} AND {where}", {"t": tenant})
    return [
        {name: round(value.timestamp() * 1000) if name in TIMES else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def key_of(row):
    owner = tuple(row[name] for name in ATTRIBUTION)
    return (row["host_id"], row["entity"], row["part"], row["collector_id"], row["window_start"] * 1000, owner)


class Site:
    """A processor and the stage that makes rollups, over one store."""

    def __init__(self, store, tenant, now_ms=T0 + 4_100_000):
        self.store, self.tenant = store, tenant
        self.rig = Rig(store, now_ms)
        self.roller = Roller(store, CATALOG, self.rig.clock)

    def send(self, cells, tick, cluster="k1", **frame):
        rows = {("GPU-a", "", 0): cells} if not isinstance(next(iter(cells), None), tuple) else cells
        self.rig.send(frame_bytes(rows, [tick], names=NAMES, **frame), tenant=self.tenant, cluster=cluster)

    def settle(self, pause_seconds=DAY_MS / 1000):
        """Let every window close, end and be made, of all resolutions if nothing is said."""
        self.rig.settle()
        for _ in range(4):
            self.rig.clock.move(pause_seconds)
            self.rig.processor.step()
            self.roller.step()

    def check(self, metrics=METRICS, levels=tuple(WIDTHS)):
        """Compare every stored rollup with one worked out from the stored raw rows."""
        raw = by_cluster(read(self.store, "gpu_1s", self.tenant))
        for level in levels:
            stored = by_cluster(read(self.store, f"gpu_{level}", self.tenant, "samples > 0"))
            pooled = by_cluster(read(self.store, f"gpu_cluster_{level}", self.tenant, "samples > 0"))
            assert raw.keys() == stored.keys() == pooled.keys()
            for cluster in raw:
                self.check_cluster(metrics, raw[cluster], stored[cluster], pooled[cluster], WIDTHS[level])

    def check_cluster(self, metrics, raw, stored, stored_pooled, width_ms):
        expected = process_oracle.roll_up_settled(metrics, raw, width_ms)
        found = {key_of(row): row for row in stored}
        assert found.keys() == expected.keys(), width_ms
        pooled = cluster_oracle.pool(metrics, copied(expected), width_ms, products_of(self.store, self.tenant))
        for key, made in expected.items():
            compare(found[key], made, metrics)
        clusters = {cluster_key_of(row): row for row in stored_pooled}
        assert clusters.keys() == pooled.keys(), width_ms
        for key, made in pooled.items():
            compare(clusters[key], made, metrics)


def by_cluster(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["cluster_id"]].append(row)
    return found


def copied(rows):
    """Return rows that stay as they are while others are compared: comparing takes from them."""
    return {key: dict(row) for key, row in rows.items()}


def products_of(store, tenant):
    sql = "SELECT entity, max(gpu_model) AS product FROM entities WHERE tenant_id = {t:String} GROUP BY entity"
    return {row["entity"]: row["product"] for row in store.query(sql, {"t": tenant}).to_pylist()}


def cluster_key_of(row):
    owner = ("job_id", "workload_id", "owner_team", "model_id")
    return (row["window_start"] * 1000, tuple(row[name] for name in owner), row["gpu_model"], row["part"])


def compare(row, made, metrics):
    sketches = made.pop("sketches")
    row = row | {name: dict(row[name]) for name in (*MAPS, "gpus_other") if name in row}
    assert {name: row[name] for name in made} == made
    row.pop("gpu_model", None)
    members = {name for name, value in row.items() if value is not None and not isinstance(value, list)}
    named = {name for name in made if name.startswith("gpu_")} | {f"{name}_p95" for name in sketches}
    assert {name for name in members if name.startswith("gpu_")} == named
    for metric in metrics:
        weighted = sketches.get(metric.name)
        if weighted is not None:
            compare_sketch(row, metric.name, weighted)


def compare_sketch(row, name, weighted):
    bins, weights = np.array(row[f"{name}_bins"]), row[f"{name}_weights"]
    assert sum(weights) == sum(weight for _, weight in weighted)
    assert sorted(set(bins.tolist())) == bins.tolist()
    for percent in (1, 50, 95, 99):
        exact = process_oracle.nearest_rank(weighted, percent)
        figure = figures_of(bins)[np.searchsorted(np.cumsum(weights) * 100, sum(weights) * percent)]
        assert abs(figure - exact) <= RELATIVE_ERROR * abs(exact)
    exact = process_oracle.nearest_rank(weighted, 95)
    assert abs(row[f"{name}_p95"] - exact) <= RELATIVE_ERROR * abs(exact) + 0.5


def test_windows_are_half_open_at_every_resolution(store, tenant):
    site = Site(store, tenant)
    ticks = [T0 - 1, T0, T0 + 299_999, T0 + 300_000, T0 + 3_599_999, T0 + 3_600_000]
    for number, tick in enumerate(ticks):
        site.send({POWER: 1000 + number}, tick, sequence=number + 1)
    site.settle()
    site.check()
    hours = sorted((row["window_start"], row["samples"]) for row in read(store, "gpu_1h", tenant))
    assert hours == [(T0 // 1000 - 3600, 1), (T0 // 1000, 4), (T0 // 1000 + 3600, 1)]


def test_a_constant_stays_what_it_is_at_every_resolution(store, tenant):
    site = Site(store, tenant)
    for number in range(0, 700, 10):
        site.send({UTIL: 100, USED: 90 << 30}, T0 + 1000 * number, sequence=number + 1, interval_ms=10_000)
    site.settle()
    site.check()
    for level in WIDTHS:
        for row in read(store, f"gpu_{level}", tenant):
            assert row[f"{UTIL}_sum"] / row["covered_ms"] == row[f"{UTIL}_p95"] == 100
            assert int(row[f"{USED}_sum"]) == (90 << 30) * row["covered_ms"]
            assert row[f"{USED}_p95"] == 90 << 30


def test_time_of_an_owner_between_that_of_another_is_what_it_covers(store, tenant):
    """Two owners inside the time of a third: only the first of them lies next to it in order of time."""
    site = Site(store, tenant)
    for number, second in enumerate((5, 15, 117, 250)):
        site.send({UTIL: 61, USED: 52}, T0 + 1000 * second, sequence=number + 1, interval_ms=5000)
    facts = [
        allocation("GPU-a", T0 + 1000 * start, T0 + 1000 * (start + 10), job=job, team=job)
        for start, job in ((10, "x"), (110, "y"))
    ]
    site.rig.send(frame_bytes({}, [T0], events=facts, sequence=90, names=[POWER]), tenant=tenant)
    site.settle()
    site.check()
    for level in WIDTHS:
        rows = read(store, f"gpu_cluster_{level}", tenant, "samples > 0")
        assert {row["job_id"]: row["expected_ms"] for row in rows} == {"": 10_000, "x": 5000, "y": 3000}


def test_late_rows_and_owners_are_made_again_and_what_is_gone_is_empty(store, tenant):
    site = Site(store, tenant)
    for number in range(0, 400, 20):
        site.send({POWER: 1000 * number, ENERGY: number}, T0 + 1000 * number, sequence=number + 1)
    site.settle(900)
    site.check(levels=("5m", "1h"))
    for level in ("5m", "1h"):
        assert {row["version"] >> 32 for row in read(store, f"gpu_{level}", tenant)} == {0}
    site.send({POWER: 700_000, ENERGY: 5}, T0 + 5_000, sequence=900, live=True)
    fact = allocation("GPU-a", T0, T0 + 3_600_000, job="j", team="team-a")
    site.rig.send(frame_bytes({}, [T0], events=[fact], sequence=901, names=[POWER]), tenant=tenant)
    site.settle()
    site.check()
    rows = read(store, "gpu_5m", tenant)
    assert {row["owner_team"] for row in rows if row["samples"]} == {"team-a"}
    assert {row["owner_team"] for row in rows if not row["samples"]} == {""}


def test_what_did_not_change_is_not_made_again(store, tenant):
    site = Site(store, tenant)
    for number in range(0, 400, 20):
        site.send({POWER: 1000 * number}, T0 + 1000 * number, sequence=number + 1)
    site.settle()
    store.query("OPTIMIZE TABLE gpu_30s FINAL")
    site.rig.clock.move(100)
    assert site.roller.step() == 0
    again = Roller(store, CATALOG, site.rig.clock)
    again.step()
    site.rig.clock.move(100)
    assert again.step() == 0
    assert again.waiting == 0


HANDED = [  # (start, end, collector, source, every, metrics), in seconds
    ("one after the other", [(0, 200, "c1", "nvml", 10, (UTIL, ENERGY)), (200, 700, "c2", "nvml", 10, (UTIL, ENERGY))]),
    (
        "the later one is the first by rank",
        [(0, 400, "c2", "scrape", 10, (UTIL,)), (390, 3700, "c3", "nvml", 5, (UTIL, USED))],
    ),
    (
        "one fills the holes of the other",
        [
            (0, 90, "c1", "nvml", 10, (UTIL,)),
            (0, 600, "c2", "smi", 30, (UTIL, POWER)),
            (300, 330, "c1", "nvml", 10, (UTIL,)),
        ],
    ),
    (
        "each has metrics of its own",
        [
            (0, 300, "c1", "nvml", 10, (UTIL, ENERGY)),
            (0, 300, "c2", "dcgm", 10, (TRANSMIT, POWER)),
            (300, 620, "c2", "dcgm", 10, (UTIL, TRANSMIT)),
        ],
    ),
    ("both all the time", [(0, 3700, "c1", "nvml", 100, (UTIL, USED)), (0, 3700, "c2", "dcgm", 30, (UTIL, USED))]),
    ("for a window of 30 s", [(0, 900, "c1", "nvml", 10, (UTIL,)), (330, 360, "c0", "nvml", 10, (UTIL,))]),
]


@pytest.mark.parametrize("late", [False, True])
def test_where_collectors_follow_each_other_all_of_them_count(store, tenant, late):
    """In one order and the other: what comes later may count before what is stored."""
    site = Site(store, tenant)
    cases = [(f"GPU-{number}", case[::-1] if late else case) for number, (_, case) in enumerate(HANDED)]
    facts = [allocation(gpu, T0 + 95_000, T0 + 305_000, job="j", team="a") for gpu, _ in cases]
    site.rig.send(frame_bytes({}, [T0], events=facts, sequence=9000, names=[POWER]), tenant=tenant)
    sequence = 0
    for turn in range(max(len(case) for _, case in cases)):
        for gpu, (start, end, collector, source, every, names) in (
            (gpu, case[turn]) for gpu, case in cases if turn < len(case)
        ):
            for second in range(start, end, every):
                sequence += 1
                cells = {name: second % 100 if name == UTIL else second + 7 * int(collector[1]) for name in names}
                about = {"sequence": sequence, "collector": collector, "source": source, "interval_ms": 1000 * every}
                site.send({(gpu, "", 0): cells}, T0 + 1000 * second, live=True, **about)
        if late:
            site.settle(4000)
    site.settle()
    site.check()


CELLS = st.fixed_dictionaries(
    {},
    optional={
        POWER: st.integers(0, 700_000) | st.sampled_from([Quality.ABSENT_SOURCE_BLANK, Quality.BAD_RANGE]),
        ENERGY: st.integers(0, 60_000),
        UTIL: st.integers(0, 100) | st.tuples(st.integers(0, 100), st.just(Quality.ESTIMATE)),
        REASONS: st.integers(0, 15),
        PSTATE: st.integers(0, 3),
        MEMORY: st.integers(1, 1000),
        USED: st.integers(0, 1 << 37),
        TRANSMIT: st.integers(0, 1 << 36),
    },
)
TICKS = st.integers(-400, 4000).map(lambda n: T0 + 1000 * n) | st.integers(0, 700_000).map(lambda n: T0 + n)
FRAME = st.fixed_dictionaries(
    {
        "rows": st.dictionaries(
            st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.sampled_from(["", "gi=1"]), st.just(0)), CELLS, min_size=1
        ),
        "tick": TICKS,
        "interval": st.sampled_from([1000, 5000, 30_000]),
        "boot": st.sampled_from([BOOT, OTHER_BOOT, ""]),
        "teller": st.sampled_from([("c1", "nvml"), ("c1", "nvml"), ("c2", "dcgm")]),
        "place": st.sampled_from([("k1", "h1"), ("k1", "h1"), ("k1", "h2"), ("k2", "h1")]),
        "pause": st.sampled_from([0, 0, 0, 40, 4000]),
        "restart": st.booleans(),
    }
)
FACTS = st.lists(
    st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.integers(-5, 900), st.integers(0, 600), st.sampled_from("xy")),
    max_size=2,
)
USUAL = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate], database=None
)


def check_recomputation(store, frames, facts):
    """Random order, gaps, mixed cadence, late rows, boots, owners, repeats, two tellers, moves, restarts anywhere."""
    tenant = new_tenant()
    site = Site(store, tenant)
    for number, frame in enumerate(frames):
        rows, (collector, source), (cluster, host) = frame["rows"], frame["teller"], frame["place"]
        told = {"collector": collector, "source": source, "spool_id": 7 if collector == "c1" else 8, "host": host}
        for _ in range(1 + number % 2):
            about = {"sequence": number + 1, "interval_ms": frame["interval"], "boot": frame["boot"]}
            site.send(rows, frame["tick"], cluster, **about, **told)
        site.rig.processor.step()
        site.rig.clock.move(frame["pause"])
        if frame["pause"]:
            site.roller.step()
        if frame["restart"]:
            site.roller = Roller(store, CATALOG, site.rig.clock)
    for number, (gpu, start, length, job) in enumerate(facts):
        fact = allocation(gpu, T0 + 1000 * start, T0 + 1000 * (start + length), job=f"{job}{number}", team=job)
        site.rig.send(frame_bytes({}, [T0], events=[fact], sequence=900 + number, names=[POWER]), tenant=tenant)
    site.settle()
    site.check()


@settings(USUAL, max_examples=6)
@given(frames=st.lists(FRAME, min_size=5, max_size=40), facts=FACTS)
def test_a_rollup_is_a_recomputation_from_raw(store, frames, facts):
    check_recomputation(store, frames, facts)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(USUAL, max_examples=300)
@given(frames=st.lists(FRAME, min_size=5, max_size=40), facts=FACTS)
def test_many_rollups_are_recomputations_from_raw(store, frames, facts):
    check_recomputation(store, frames, facts)
