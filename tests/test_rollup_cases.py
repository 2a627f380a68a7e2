"""Every handed case of rollups, by its file, as its note says, read from the tables of each resolution."""

import json
from pathlib import Path

import numpy as np
import pytest

from process_oracle import nearest_rank
from process_rig import frame_bytes
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
