"""The sketch's bins, their error, and sums of 128 bits."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from process_oracle import nearest_rank
from secondsight.rollup import wide
from secondsight.rollup.sketch import gather, quantile_bins
from secondsight.store.bins import RELATIVE_ERROR, bin_table, bins_of, figures_of

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32).filter(
    lambda value: value == 0 or abs(value) > 1e-37
)


def test_the_table_is_what_stored_sketches_were_made_with() -> None:
    digest = hashlib.sha256(bin_table().astype("<i2").tobytes()).hexdigest()
    assert digest == "2a2cd9a451e1dcfcc19542b9ae9e154adeca3604b3c432e19a79d79522bfa156"


@given(st.lists(FINITE | st.integers(-(1 << 62), 1 << 62), min_size=1))
def test_a_bin_stands_for_its_values_within_the_error(values: list[float]) -> None:
    given_values = np.array(values, np.float64)
    found = figures_of(bins_of(given_values))
    assert (np.abs(found - given_values) <= RELATIVE_ERROR * np.abs(given_values)).all()
    order = np.argsort(given_values)
    assert (np.diff(bins_of(given_values)[order].astype(int)) >= 0).all()


def test_values_beyond_float32_are_in_the_outermost_bins() -> None:
    assert bins_of(np.array([1e300, -1e300, 1e-300, 0.0])).tolist() == [9144, -9144, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1000, 1000), st.integers(1, 1000)), min_size=1), st.data())
def test_any_grouping_and_order_gives_the_same_sketch(samples: list[tuple[int, int, int]], data: st.DataObject) -> None:
    groups, values, weights = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    whole = gather(groups, bins_of(values), weights, 4)
    parts = data.draw(st.lists(st.integers(0, 2), min_size=groups.size, max_size=groups.size).map(np.array))
    pieces = [
        gather(groups[parts == part], bins_of(values[parts == part]), weights[parts == part], 4) for part in range(3)
    ]
    joined = gather(
        np.concatenate([np.repeat(np.arange(4), np.diff(offsets)) for offsets, _, _ in pieces]),
        np.concatenate([bins for _, bins, _ in pieces]),
        np.concatenate([weight for _, _, weight in pieces]),
        4,
    )
    assert all((one == other).all() for one, other in zip(whole, joined, strict=True))
    found, known = quantile_bins(*whole, 95)
    for group in range(4):
        own = [(value, weight) for which, value, weight in samples if which == group]
        assert known[group] == bool(own)
        if own:
            exact = nearest_rank(own, 95)
            assert abs(figures_of(found[group : group + 1])[0] - exact) <= RELATIVE_ERROR * abs(exact)


@given(st.lists(st.integers(-(1 << 126), 1 << 126), min_size=1, max_size=20), st.integers(1, 5))
def test_wide_sums_are_exact(numbers: list[int], step: int) -> None:
    numbers = [number >> 5 for number in numbers]
    array = wide.Wide(
        np.array([number >> 64 for number in numbers], np.int64),
        np.array([number & (1 << 64) - 1 for number in numbers], np.uint64),
    )
    starts = np.arange(0, len(numbers), step)
    total = wide.add_by(array, starts)
    present = np.ones(starts.size, np.bool_)
    again, there = wide.of_arrow(wide.to_arrow(total, present))
    sums = [int(high) * (1 << 64) + int(low) for high, low in zip(again.high, again.low, strict=True)]
    assert sums == [sum(numbers[start : start + step]) for start in starts.tolist()]
    assert there.all()
