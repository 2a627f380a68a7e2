import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from process_rig import CATALOG
from secondsight.model import EntityKind, Quality
from secondsight.process.cells import Window
from secondsight.process.columns import layout_of, plan_schema
from secondsight.process.counters import Pairs, increase_of
from secondsight.process.enrich import FOREVER_MS, NOBODY, Allocations, Fact
from secondsight.process.memory import memory_bytes
from secondsight.process.misfits import with_sums
from secondsight.process.percentile import weighted_p95
from secondsight.process.pieces import Block, Origin, Piece
from secondsight.process.spans import Span, is_due
from secondsight.process.watermark import Progress
from secondsight.process.window import Cells, Priors, Samples, roll_up
from secondsight.wire.content import Column, HistogramRows, Schema

LAYOUT = layout_of(EntityKind.GPU, CATALOG.scalars(EntityKind.GPU))
POWER = LAYOUT.place["gpu_power_watts"]
START = 1_700_000_010_000
ORIGIN = Origin(7, 1, 3, 0, "", "nvml", False)
COUNTER = CATALOG.get("gpu_pcie_correctable_errors_total")


def piece(value, quality=Quality.OK, *, sequence=1, second=0, interval_ms=1000, ingest_ms=5):
    dtype = LAYOUT.groups[POWER[0]].dtype
    block = Block(POWER[0], np.array([POWER[1]]), np.array([[value]], dtype), np.array([[quality]], np.uint8))
    return Piece(
        0,
        np.array([0], np.int32),
        np.array([START + 1000 * second], np.int64),
        np.array([sequence], np.int32),
        np.array([interval_ms], np.int64),
        np.array([ingest_ms], np.int64),
        (ORIGIN._replace(sequence=sequence),),
        np.array([0], np.int32),
        (block,),
    )


def settled(pieces):
    window = Window(LAYOUT, START, capacity=1)
    window.apply(pieces)
    order = np.argsort(window.time_ms[: window.size])
    origins = [window.origins[code] for code in window.origin[order].tolist()]
    columns = (window.time_ms, window.interval_ms, window.ingest_ms, window.observed_delta_ms)
    cells = [matrix[POWER[0]][POWER[1], order].tolist() for matrix in (window.values, window.quality)]
    return [column[order].tolist() for column in columns], origins, cells


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ([(2, Quality.OK), (0, Quality.STALE), (0, Quality.BAD_PARSE)], (2, Quality.OK)),
        ([(1, Quality.OK), (2, Quality.OK), (1, Quality.OK)], (2, Quality.OK)),
        ([(9, Quality.ESTIMATE), (2, Quality.OK)], (2, Quality.OK)),
        ([(0, Quality.NONE), (0, Quality.ABSENT_NOT_SUPPORTED)], (0, Quality.ABSENT_NOT_SUPPORTED)),
    ],
)
def test_a_cell_is_settled_alike_in_every_order(cells, kept):
    for some in itertools.permutations(cells):
        assert settled([piece(*cell) for cell in some])[2] == [[kept[0]], [int(kept[1])]]


PIECES = st.lists(
    st.builds(
        piece,
        st.integers(0, 3),
        st.sampled_from([Quality.OK, Quality.ESTIMATE, Quality.STALE]),
        sequence=st.integers(1, 3),
        second=st.integers(0, 4),
        interval_ms=st.sampled_from([1000, 30_000]),
        ingest_ms=st.integers(1, 3),
    ),
    min_size=1,
    max_size=8,
)


@given(pieces=PIECES, data=st.data())
def test_a_row_is_described_alike_in_every_order(pieces, data):
    pieces = [each if each.blocks[0].quality[0, 0] <= 2 else piece(0, Quality.STALE, second=1) for each in pieces]
    shuffled = data.draw(st.permutations(pieces + pieces[:2]))
    assert settled(shuffled) == settled(pieces)


def test_conflicts_are_counted_and_repeats_are_not():
    window = Window(LAYOUT, START)
    assert window.apply([piece(1)]).conflicts == 0
    assert window.apply([piece(1)]).conflicts == 0
    done = window.apply([piece(2)])
    assert (done.conflicts, done.changed, done.touched, done.appended) == (1, 1, 1, 0)


def test_loaded_rows_are_not_written_again_until_they_change():
    window = Window(LAYOUT, START)
    window.apply([replace(piece(5), stored=True)])
    window.apply([piece(5)])
    assert not window.dirty[:1].any()
    window.apply([piece(6)])
    assert window.dirty[:1].all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"metric": "no_such_metric"}, "unknown_metric"),
        ({"dtype": "u8"}, "dtype_mismatch"),
        ({"unit": "By"}, "unit_mismatch"),
        ({"resolution": 1.0}, "resolution_mismatch"),
    ],
)
def test_a_column_that_does_not_fit_is_dropped_with_its_reason(change, reason):
    metric = CATALOG.get("gpu_power_watts")
    good = Column("gpu_temperature_celsius", *_shape("gpu_temperature_celsius"))
    bad = replace(Column(metric.name, metric.unit, metric.dtype, metric.resolution), **change)
    plan = plan_schema(Schema(EntityKind.GPU, (bad, good)), LAYOUT)
    assert plan.dropped == ((bad.metric, reason),)
    assert [group.target for group in plan.groups] == [LAYOUT.place[good.metric][0]]


def _shape(name):
    metric = CATALOG.get(name)
    return metric.unit, metric.dtype, metric.resolution


def increase(before, value, *, metric=COUNTER, gap_ms=1000, new_epoch=False, known=True):
    found = increase_of(
        metric,
        Pairs(
            np.array([value], np.uint64),
            np.array([before], np.uint64),
            np.array([gap_ms], np.int64),
            np.array([new_epoch]),
            np.array([known]),
        ),
    )
    return int(found.increase[0]), bool(found.counted[0]), bool(found.reset[0])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"before": 5, "value": 5}, (0, True, False)),
        ({"before": 5, "value": 9}, (4, True, False)),
        ({"before": 52_030_000, "value": 51_990}, (51_990, True, True)),
        ({"before": 5, "value": 9, "known": False}, (0, False, False)),
        ({"before": 5, "value": 9, "gap_ms": 3_600_001}, (0, False, False)),
        ({"before": 2**64 - 1, "value": 3}, (3, True, True)),
        ({"before": 2**63, "value": 2**63 + 2}, (2, True, False)),
        ({"before": 10**15, "value": 10**15 - 1}, (0, True, False)),
        ({"before": 50, "value": 7, "new_epoch": True}, (7, True, False)),
        ({"before": 50, "value": 70, "new_epoch": True}, (70, True, False)),
        ({"before": 5, "value": 9, "metric": replace(COUNTER, cap=9.0)}, (0, False, False)),
        ({"before": 9, "value": 2, "metric": replace(COUNTER, cap=9.0)}, (2, True, True)),
        ({"before": 0, "value": 10**9, "metric": replace(COUNTER, step_maximum=1000.0)}, (0, False, False)),
    ],
)
def test_the_counter_rule(arguments, expected):
    assert increase(**arguments) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=40))
def test_p95_is_the_nearest_rank_of_the_expanded_values(samples):
    values = np.array([[value for value, _ in samples]], np.uint16)
    weights = np.array([weight for _, weight in samples], np.int64)
    expanded = sorted(value for value, weight in samples for _ in range(weight))
    expected = expanded[-(-95 * len(expanded) // 100) - 1]
    found = weighted_p95(values, weights, np.array([0]), np.array([len(samples)]))
    assert found.tolist() == [[expected]]


def fact(start, end, job="j", version=1):
    return Fact(("t", "k", "GPU-a", ""), "h", (job, "", f"team-{job}", ""), start, end, version)


def test_a_fact_changes_only_the_range_whose_owner_it_changes():
    known = Allocations()
    assert known.add(fact(10, None)) == (10, FOREVER_MS)
    assert known.add(fact(10, None)) is None
    assert known.add(fact(10, 20, version=2)) == (20, FOREVER_MS)
    assert known.add(fact(15, 30, job="k")) == (15, 30)
    owners = [known.at(("t", "k", "GPU-a", ""), instant).attribution[0] for instant in (9, 10, 14, 15, 20, 29, 30)]
    assert owners == ["", "j", "j", "k", "k", "k", ""]


@given(
    st.permutations(
        [fact(10, None), fact(10, 20, version=2), fact(15, 30, "k"), fact(5, 12, "l"), fact(10, 25, version=2)]
    )
)
def test_facts_in_any_order_give_one_timeline(facts):
    known, again = Allocations(), Allocations()
    for each in facts:
        known.add(each)
    for each in sorted(facts, key=lambda item: (item.start_ms, item.version)):
        again.add(each)
    subject = ("t", "k", "GPU-a", "")
    assert known.spans(subject) == again.spans(subject)
    assert known.at((*subject[:3], "gi=1"), 11) == known.at(subject, 11)
    assert known.at(("t", "k", "GPU-b", ""), 11).attribution == NOBODY


@pytest.mark.parametrize(
    ("span", "watermark_ms", "log_ms", "due"),
    [
        (Span(opened_ms=100, touched_ms=100), START + 29_999, 200, False),
        (Span(opened_ms=100, touched_ms=100), START + 30_000, 200, True),
        (Span(opened_ms=100, touched_ms=100), 0, 30_100, True),
        (Span(opened_ms=100, touched_ms=100, reopened=True), START + 30_000, 10_099, False),
        (Span(opened_ms=100, touched_ms=100, reopened=True), START + 30_000, 10_100, True),
        (Span(forced=True, reopened=True), 0, 0, True),
    ],
)
def test_when_a_window_is_due(span, watermark_ms, log_ms, due):
    assert is_due(span, Progress("h", 0, watermark_ms=watermark_ms), START, log_ms) is due


CASES = json.loads((Path(__file__).parent / "cases" / "process" / "counters.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@pytest.mark.parametrize("cut", [1, 3, 100])
def test_counter_cases_in_windows_of_any_size(case, cut):
    """The increase adds up over windows of `cut` samples, each taking the last sample of the one before."""
    prior = Priors(np.zeros((1, 1), np.uint64), np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int32))
    total, resets, known = 0, 0, False
    for first in range(0, len(case["samples"]), cut):
        values = np.array([case["samples"][first : first + cut]], np.uint64)
        count = values.shape[1]
        rollup = roll_up(
            Samples(
                START + 1000 * first,
                START + 1000 * (first + count),
                np.zeros(count, np.int32),
                START + 1000 * np.arange(first, first + count),
                np.full(count, 1000),
                np.ones(count, np.int32),
                np.zeros(count, np.int32),
                (Cells((COUNTER,), values, np.ones_like(values, np.bool_)),),
                (prior,),
            )
        )
        prior = rollup.lasts[0]
        increase, present = rollup.members[f"{COUNTER.name}_increase"]
        total, known = total + int(increase[0]), known or present is None or bool(present[0])
        resets += sum(int(numbers.sum()) for numbers in rollup.resets.numbers)
    assert ((total if known else None), resets) == (case["increase"], case["resets"])


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "1048576\n", 1 << 20),
        ("memory/memory.limit_in_bytes", "2097152\n", 2 << 20),
        ("memory.max", "max\n", None),
        ("memory.else", "5\n", None),
    ],
)
def test_memory_is_what_the_control_group_leaves(tmp_path, name, text, limit):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert memory_bytes(tmp_path) == (limit or memory_bytes(tmp_path / "nowhere"))


def test_a_histogram_row_wants_a_sum_that_is_a_number():
    def rows(*sums):
        many = len(sums)
        index = np.arange(many, dtype=np.uint32)
        counts = np.ones((many, 2), np.uint64)
        return HistogramRows(0, index, index.astype(np.uint16), counts, np.array(sums), np.zeros(many, np.int64))

    assert with_sums(rows(1.0, np.nan, 2.0, np.inf)).entity_index.tolist() == [0, 2]
    assert with_sums(rows()).sums.size == 0
