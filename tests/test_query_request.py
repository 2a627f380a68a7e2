import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.catalog.load import load_catalog
from secondsight.errors import Rejected
from secondsight.query.aggregates import legal_aggregates
from secondsight.query.coverage import Held, Stretch, coverage_of, slots_between
from secondsight.query.members import members_of
from secondsight.query.plan import POINTS_WANTED, Rewrite, Situation, Span, automatic_resolution, plan_series
from secondsight.query.request import Group, QueryText, parse_filters, parse_query
from secondsight.query.times import format_time, format_width, parse_time, parse_width

CATALOG = load_catalog()
T0 = 1_700_000_400_000 // 3_600_000 * 3_600_000
ROUTING = json.loads((Path(__file__).parent / "cases" / "query" / "routing.json").read_text())
TIMES = st.integers(0, 4_102_444_800_000)


def span_of(seconds):
    return None if seconds is None else Span(T0 + seconds[0] * 1000, T0 + seconds[1] * 1000)


@pytest.mark.parametrize("case", ROUTING, ids=lambda case: case["name"])
def test_routing(case):
    start = T0 + case.get("from_s", 0) * 1000
    now = start + case["range_s"] * 1000
    text = QueryText(
        "power", {}, str(start), str(now), resolution=case.get("asked", ""), aggregate=case.get("aggregate", "")
    )
    query = parse_query(text, CATALOG, now)
    rewrite = case.get("rewrite")
    situation = Situation(
        now,
        entities=1,
        rollup_through_ms=T0 + case["through_s"] * 1000 if "through_s" in case else None,
        rewrites=(Rewrite(rewrite[0], span_of(rewrite[1:])),) if rewrite else (),
    )
    plan = plan_series(query, query.selected[0], situation)
    assert format_width(plan.resolution_ms) == case["resolution"]
    assert (plan.rollup, plan.raw) == (span_of(case["rollup"]), span_of(case["raw"]))
    assert plan.head == span_of(case.get("head"))
    assert plan.final_rollup is case.get("final_rollup", False)
    assert plan.final_raw is case.get("final_raw", False)


@given(st.integers(1, 300 * 86_400_000))
def test_an_automatic_resolution_bounds_the_points(range_ms):
    width_ms = automatic_resolution(range_ms)
    assert range_ms / width_ms <= POINTS_WANTED
    assert width_ms == 1000 or width_ms % 30_000 == 0


@given(TIMES)
def test_times_survive_writing_and_reading(time_ms):
    assert parse_time(format_time(time_ms), 0) == time_ms
    assert parse_time(str(time_ms), 0) == time_ms


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("now-15m", -900), ("now+1h", 3600), ("now-2d", -172_800), ("2023-11-14T22:13:20+01:00", -3600)],
)
def test_times_as_people_write_them(text, seconds):
    assert parse_time(text, 1_700_000_000_000) == 1_700_000_000_000 + seconds * 1000


@pytest.mark.parametrize(
    "text", ["\u0661\u0665", "now-\u0661\u0665m", "\uff12023-11-14T22:13:20Z", "2023-11-14T22:13:2\u0660Z"]
)
def test_digits_of_other_scripts_are_no_times(text):
    with pytest.raises(Rejected) as refusal:
        parse_time(text, 1_700_000_000_000)
    assert refusal.value.code == "bad_time"


@pytest.mark.parametrize("text", ["999999999w", "367d", "53w", "\u0661\u0665m"])
def test_widths_are_bounded(text):
    with pytest.raises(Rejected) as refusal:
        parse_width(text)
    assert refusal.value.code == "bad_resolution"
    assert parse_width("366d") == 366 * 86_400_000


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_times(text):
    for read in (lambda: parse_time(text, 0), lambda: parse_width(text)):
        try:
            assert read() >= 0
        except Rejected:
            continue


@given(
    st.dictionaries(
        st.sampled_from(["metrics", "from_", "to", "resolution", "aggregate", "group_by", "format"]),
        st.text(max_size=30),
    )
)
def test_no_text_breaks_the_reading_of_queries(fields):
    try:
        parse_query(QueryText(**({"metrics": "power", "filters": {}} | fields)), CATALOG, T0)
    except Rejected:
        return


def test_parts_are_taken_whole_and_other_filters_at_their_commas():
    written = {"part": ("mig=1,slice=a", "", "link=3", "link=3"), "gpu": "a, b,,a", "host": "", "cluster": None}
    filters = parse_filters(written)
    assert (filters.part, filters.gpu) == (("mig=1,slice=a", "link=3"), ("a", "b"))
    assert (filters.host, filters.cluster) == ((), ())
    assert parse_filters({"part": ",,"}).part == (",,",)
    for hostile in ({"gpu": ",,"}, {"part": "x" * 301}, {"part": tuple(map(str, range(1001)))}):
        with pytest.raises(Rejected) as refusal:
            parse_filters(hostile)
        assert refusal.value.code == "bad_filter"


def test_every_legal_aggregate_of_every_metric_has_its_figures():
    for metric in CATALOG.metrics:
        legal = legal_aggregates(metric)
        assert bool(legal) == metric.is_scalar, metric.name
        for aggregate in legal:
            text = QueryText(metric.name, {}, aggregate=aggregate, group_by="gpu")
            assert parse_query(text, CATALOG, T0).selected[0].aggregate is aggregate
            members_of(aggregate)


def test_parts_stay_apart_where_adding_them_up_would_not_be_exact():
    def groups(metric, aggregate):
        query = parse_query(QueryText(metric, {}, aggregate=aggregate, group_by="gpu"), CATALOG, T0)
        return query.groups_of(query.selected[0])

    assert groups("gpu_power_watts", "avg") == (Group.GPU,)
    assert groups("gpu_temperature_celsius", "avg") == (Group.GPU, Group.PART)
    assert groups("gpu_temperature_celsius", "max") == (Group.GPU,)
    assert groups("gpu_sm_active_ratio", "sum") == (Group.GPU, Group.PART)


def test_too_much_is_refused_before_it_is_read():
    query = parse_query(QueryText("power", {}, "now-1h", "now"), CATALOG, T0)
    with pytest.raises(Rejected) as refusal:
        plan_series(query, query.selected[0], Situation(T0, entities=100_000))
    assert refusal.value.code == "too_many_series"
    query = parse_query(QueryText("power", {}, "now-30d", aggregate="p95", group_by="total"), CATALOG, T0)
    with pytest.raises(Rejected) as refusal:
        plan_series(query, query.selected[0], Situation(T0, entities=1000))
    assert refusal.value.code == "range_too_wide"


@given(TIMES, st.integers(0, 10_000_000), st.sampled_from([1000, 5000, 30_000]))
def test_slots_add_up_over_any_cut(start, length, interval):
    def slots(a, b):
        return int(slots_between(np.array([a]), np.array([b]), np.array([interval]))[0])

    cut = start + length // 3
    assert slots(start, start + length) == slots(start, cut) + slots(cut, start + length)
    assert slots(start, start + length) == len(range(-(-start // interval) * interval, start + length, interval))


@given(st.sets(st.integers(0, 99)), st.sampled_from([1000, 30_000]))
def test_gaps_are_runs_of_missing_slots_over_three_slots_and_three_seconds(stored, interval):
    times = sorted(slot * interval for slot in stored)
    jumps = [later - earlier for earlier, later in pairwise(times)]
    inner = sum(jump > interval + max(3 * interval, 3000) for jump in jumps)
    held = {"e": Held(len(times), times[0], times[-1], inner)} if times else {}
    coverage = coverage_of({"e": Stretch(100, interval, 0, 100 * interval)}, held, counts_gaps=True)
    missing = "".join(" " if slot in stored else "x" for slot in range(100))
    assert coverage.gaps == sum(len(run) > 3 for run in missing.split())
    assert (coverage.expected, coverage.stored) == (100, len(stored))
    assert 0 <= coverage.ratio <= 1


def test_nothing_expected_is_full_coverage():
    assert coverage_of({}, {}, counts_gaps=True).ratio == 1.0
