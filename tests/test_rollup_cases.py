"""Every handed case of rollups, by its file, as its note says, read from the tables of each resolution."""

import json
from pathlib import Path

import numpy as np
import pytest

from process_oracle import nearest_rank
from process_rig import CATALOG, frame_bytes
from query_fixture import asked, scope_of
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.request import parse_query
from secondsight.query.run import QueryRunner
from secondsight.store.bins import RELATIVE_ERROR, figures_of
from test_rollup import Site, read

CASES = Path(__file__).parent / "cases"
TEMPERATURE, COUNTER = "gpu_temperature_celsius", "gpu_pcie_correctable_errors_total"
RATE = "gpu_pcie_transmit_bytes_per_second"


def lines(name):
    (path,) = CASES.glob(f"*/{name}")
    return [json.loads(line) for line in path.read_text().splitlines()]


def rolled(store, tenant, samples, metric, **frame):
    """Send (time, GPU, value) samples and make every rollup."""
    times = [time_ms for time_ms, _, _ in samples]
    site = Site(store, tenant, max(times) + 1000)
    for number, (time_ms, gpu, value) in enumerate(samples, 1):
        body = frame_bytes({(gpu, "", 0): {metric: value}}, [time_ms], sequence=number, **frame)
        site.rig.send(body, tenant=tenant)
    site.settle()
    return {level: read(store, f"gpu_{level}", tenant) for level in ("5m", "1h", "1d")}


def test_029_a_reset_at_the_border_of_two_windows_counts_once(store):
    samples = [(line["t"], "GPU-a", line["v"]) for line in lines("029-reset-at-rollup-boundary.jsonl")]
    found = rolled(store, "029", samples, COUNTER, interval_ms=60_000)
    rows = sorted(found["5m"], key=lambda row: row["window_start"])
    assert [row[f"{COUNTER}_increase"] for row in rows] == [50, 5 + 165]
    assert [dict(row["resets"]) for row in rows] == [{}, {COUNTER: 1}]
    assert [row[f"{COUNTER}_increase"] for row in found["1h"] + found["1d"]] == [220, 220]


def test_031_a_sum_over_series_is_the_same_at_every_resolution(store):
    samples = [
        (line["t"], f"GPU-{line['lb']}", line["bytes_per_s"])
        for line in lines("031-auto-downsample-inflates-sum.jsonl")
    ]
    for rows in rolled(store, "031", samples, RATE, interval_ms=30_000).values():
        for start in {row["window_start"] for row in rows}:
            averages = [int(row[f"{RATE}_sum"]) / row["covered_ms"] for row in rows if row["window_start"] == start]
            assert sum(averages) == 600


def test_107_a_percentile_is_of_all_samples_never_of_percentiles(store):
    start_ms = 1_717_236_000_000
    samples = [
        (start_ms + 300_000 * (line["part"] - 1) + 1000 * number, "GPU-a", line["v"] * 1000)
        for number, line in enumerate(lines("107-quantile-of-merged-states.jsonl"))
    ]
    for level in ("1h", "1d"):
        row = rolled(store, f"107-{level}", samples, "gpu_power_watts")[level][0]
        figure = nearest_rank(figures_of_row(row, "gpu_power_watts"), 80)
        assert abs(figure - 79_000) <= RELATIVE_ERROR * 79_000


def figures_of_row(row, metric):
    return list(zip(figures_of(np.array(row[f"{metric}_bins"])).tolist(), row[f"{metric}_weights"], strict=True))


def test_109_a_sample_on_a_border_belongs_to_the_later_window(store):
    samples = [(line["t"], "GPU-a", line["v"]) for line in lines("109-alias-shadows-raw-time.jsonl")]
    rows = sorted(rolled(store, "109", samples, TEMPERATURE)["1h"], key=lambda row: row["window_start"])
    assert [(row["samples"], row[f"{TEMPERATURE}_min"], row[f"{TEMPERATURE}_max"]) for row in rows] == [
        (2, 1, 2),
        (2, 3, 4),
    ]


def test_111_a_peak_survives_two_levels_and_means_are_of_samples(store):
    samples = [(line["t"], "GPU-a", line["v"]) for line in lines("111-min-max-survive-two-levels.jsonl")]
    found = rolled(store, "111", samples, TEMPERATURE)
    for level in ("1h", "1d"):
        (row,) = found[level]
        assert (row[f"{TEMPERATURE}_max"], row[f"{TEMPERATURE}_min"], row["samples"]) == (99, 10, 13)
        assert row[f"{TEMPERATURE}_sum"] / row["covered_ms"] == pytest.approx((549 + 30) / 13)


GREAT = [
    ("node_clock_offset_seconds", EntityKind.NODE, -864_000_000_000_000, 1e-9),
    ("node_filesystem_available_bytes", EntityKind.NODE, 5_000_000_000_000_000, 1),
    ("gpu_memory_used_bytes", EntityKind.GPU, 192_000_000_000, 1),
]
"""A clock ten days off, 5 PB, and the memory of a card: times milliseconds they leave 64 bits sooner or later."""


@pytest.mark.parametrize(("name", "kind", "value", "unit"), GREAT)
def test_averages_of_great_values_are_right_at_every_resolution(store, name, kind, value, unit):
    tenant, start_ms = f"great-{name}", 1_717_200_000_000
    site = Site(store, tenant, start_ms + 90_000_000)
    times = [start_ms + 2_400_000 * number for number in range(36)]
    for number, time_ms in enumerate(times, 1):
        cells = {("e", "", 0): {name: value + number % 2}}
        site.rig.send(
            frame_bytes(cells, [time_ms], kind=kind, sequence=number, interval_ms=2_400_000),
            tenant=tenant,
            cluster="k1",
        )
    site.settle()
    now_ms = site.rig.clock.now_ms()
    runner = QueryRunner(store, site.rig.clock, Inventory(store, site.rig.clock))
    for resolution in ("10s", "30s", "5m", "1h", "1d", "range", "50000s"):
        text = asked(name, start_ms, times[-1] + 30_000, aggregate="avg,max", group_by="host", resolution=resolution)
        for one in runner.run(parse_query(text, CATALOG, now_ms), scope_of(tenant)).series:
            assert one.values.tolist() == pytest.approx([value * unit] * one.values.size, rel=1e-9), resolution


STEPS = [2**64 - 6, 2**64 - 1, 3, 2**63 + 2, 2**63 + 5_000_000, 10, 1, 3, 5, 1, 8, 10, 1, 18, 20, 21, 38, 40]
"""A counter at the greatest number of 64 bits, a step that no such counter makes, and thanos#1568's sequence."""


def test_a_counter_that_falls_from_the_end_of_64_bits_is_reset_at_every_resolution(store):
    tenant, start_ms = "end-of-64-bits", 1_717_236_294_000
    samples = [(start_ms + 1000 * number, "GPU-a", value) for number, value in enumerate(STEPS)]
    rolled(store, tenant, samples, COUNTER)
    clock = ManualClock(start_ms + 90_000_000)
    runner = QueryRunner(store, clock, Inventory(store, clock))
    for resolution in ("1s", "7s", "10s", "30s", "5m", "1h", "1d", "range"):
        text = asked(
            COUNTER,
            start_ms - 6000,
            start_ms + 54_000,
            aggregate="increase,resets",
            group_by="cluster",
            resolution=resolution,
        )
        found = runner.run(parse_query(text, CATALOG, clock.now_ms()), scope_of(tenant)).series
        assert sorted(sum(one.values.tolist()) for one in found) == [5, 5 + 3 + 4_999_998 + 10 + 1 + 54], resolution
