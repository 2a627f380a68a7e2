import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.catalog.dtype import NUMPY_DTYPES, dtype_limits
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import MetricType
from secondsight.catalog.scale import (
    check,
    conversion,
    physical_array,
    source_for_help,
    stored_array,
    to_physical,
    to_stored,
)
from secondsight.model import Quality

CASES = Path(__file__).parent / "cases" / "catalog"
CATALOG = load_catalog()
SCALARS = [m for m in CATALOG.metrics if m.is_scalar]
PAIRS = [
    (m, s)
    for m in CATALOG.metrics
    if m.type not in (MetricType.INFO, MetricType.HISTOGRAM)
    for s in (*m.sources, CATALOG.exposition(m.name)[0][1])
]


def rows():
    lines = (CASES / "source_values.tsv").read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def number(text):
    return int(text) if text.lstrip("-").isdigit() else float(text)


def pair(name, source_name):
    metric = CATALOG.get(name)
    own = CATALOG.exposition(metric.name)[0][1]
    return metric, next(s for s in (*metric.sources, own) if s.name == source_name)


@pytest.mark.parametrize(("name", "source_name", "value", "stored", "quality"), rows())
def test_source_values(name, source_name, value, stored, quality):
    metric, source = pair(name, source_name)
    expected = None if stored == "-" else number(stored)
    assert check(metric, number(value), source) == (expected, Quality[quality])
    kept, codes = conversion(metric, source).many(np.array([number(value)]))
    assert (kept[0].item(), codes[0]) == (expected or 0, Quality[quality])


@given(st.data())
def test_stored_values_come_back_exactly(data):
    metric = data.draw(st.sampled_from([m for m in SCALARS if m.dtype != "f64"]))
    low, high = dtype_limits(metric.dtype)
    stored = data.draw(st.integers(max(low, -(2**51)), min(high, 2**51)))
    assert to_stored(metric, to_physical(metric, stored)) == stored
    array = np.array([stored], NUMPY_DTYPES[metric.dtype])
    assert stored_array(metric, physical_array(metric, array)).tolist() == [stored]
    assert physical_array(metric, array)[0] == pytest.approx(to_physical(metric, stored), rel=1e-15)


@given(st.integers(0, 2000 * 1000))
def test_milliwatts_come_back(milliwatts):
    metric, source = pair("gpu_power_watts", "FI 185")
    stored, _ = check(metric, milliwatts, source)
    assert stored == milliwatts
    assert f"{to_physical(metric, stored):.3f}" == f"{milliwatts // 1000}.{milliwatts % 1000:03}"
    metric, source = pair("gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE")
    assert check(metric, milliwatts / 1000, source)[0] == milliwatts


@given(st.integers(0, 100), st.integers(0, 4000), st.integers(0, 2**20), st.integers(0, 2**62))
def test_percent_clocks_and_counters_come_back(percent, megahertz, mebibytes, millijoules):
    for name, source_name, value, physical in (
        ("gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", percent, percent / 100),
        ("gpu_sm_clock_hertz", "DCGM_FI_DEV_SM_CLOCK", megahertz, megahertz * 1_000_000),
        ("gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", mebibytes, mebibytes * 2**20),
        ("gpu_energy_joules_total", "FI 83", millijoules, millijoules / 1000),
    ):
        metric, source = pair(name, source_name)
        stored, quality = check(metric, value, source)
        assert quality is Quality.OK
        assert to_physical(metric, stored) == physical


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_stored_as_they_are(loss):
    metric, source = pair("training_loss", "training_loss")
    assert check(metric, loss, source) == (loss, Quality.OK)
    assert to_physical(metric, to_stored(metric, loss)) == loss


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-200, 200),
    st.sampled_from([2**31 - 16, 2**47, 2**47 + 2, 2**63 - 16, 2**63 - 14, 2**63 - 1024, 255, 65535]),
)
FLOATS = st.one_of(
    st.floats(), st.floats(-2, 200), st.sampled_from([2.0**47, 2.0**47 + 3, 2.0**63, 2.0**64, 1.05, 1.02])
)


@given(st.sampled_from(PAIRS), st.lists(NUMBERS, max_size=8), st.lists(FLOATS, max_size=8))
def test_many_is_one_by_one(pair_, whole, floats):
    convert = conversion(*pair_)
    for values in (np.array(whole, np.int64), np.array(floats, np.float64)):
        stored, quality = convert.many(values)
        cells = [convert.one(value) for value in values.tolist()]
        assert quality.tolist() == [code for _, code in cells]
        assert stored.tolist() == [value or 0 for value, _ in cells]


@given(st.sampled_from(PAIRS), st.one_of(NUMBERS, FLOATS))
def test_a_cell_has_a_value_exactly_where_its_quality_says_so(pair_, value):
    metric, source = pair_
    stored, quality = check(metric, value, source)
    assert (stored is not None) == quality.has_value
    if stored is None or metric.dtype in ("", "f64"):
        return
    low, high = dtype_limits(metric.dtype)
    assert low <= stored <= high
    assert math.isfinite(stored)
    if metric.maximum is not None:
        assert to_physical(metric, stored) <= (metric.clamp_maximum or metric.maximum)
    if metric.minimum is not None:
        assert to_physical(metric, stored) >= metric.minimum


def test_help_decides_between_two_units_of_one_name():
    metric, source = pair("gpu_throttle_sw_power_cap_seconds_total", "DCGM_FI_DEV_POWER_VIOLATION")
    micro = source_for_help(source, "Throttling duration due to power constraints (in us).")
    nano = source_for_help(source, "Throttling duration due to power constraints (in ns).")
    assert nano is source
    assert check(metric, 2000, micro) == (2_000_000, Quality.OK)
    assert check(metric, 5_000_000, nano) == (5_000_000, Quality.OK)


def test_infos_and_histograms_have_no_cell():
    for name in ("gpu_info", "query_duration_seconds"):
        metric = CATALOG.get(name)
        with pytest.raises(ValueError, match="no cell"):
            conversion(metric, CATALOG.exposition(name)[0][1])


def test_unsigned_counters_keep_all_their_bits():
    metric, source = pair("nvlink_port_io_bytes_total", "FI 202")
    values = np.array([0, 2**63, 2**64 - 1], np.uint64)
    stored, quality = conversion(metric, source).many(values)
    assert stored.tolist() == values.tolist()
    assert set(quality.tolist()) == {Quality.OK}
