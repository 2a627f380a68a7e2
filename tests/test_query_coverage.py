"""Expected slots follow the phase at which a host ticks, and what follows from expected rows goes with them."""

from typing import Any
from weakref import ref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.clock import ManualClock
from secondsight.query.coverage import Held, Stretch, coverage_of, slots_between
from secondsight.query.inventory import Inventory

T0 = 1_700_000_000_000


@given(
    st.integers(0, 999),
    st.integers(0, 5_000),
    st.integers(4_000, 60_000),
    st.sampled_from([1000, 2000, 30_000]),
)
def test_unbroken_ticks_are_whole_whatever_their_phase_and_the_edges(
    phase: int, lead: int, width: int, step: int
) -> None:
    start, end = T0 + lead, T0 + lead + width
    ticks = [tick for tick in range(T0 - 60_000 + phase, end, step) if tick >= start]
    if not ticks:
        return
    stretch = Stretch(int(slots_between(start, end, step)), step, start, end)
    held = Held(len(ticks), ticks[0], ticks[-1], 0)
    coverage = coverage_of({"k": stretch}, {"k": held}, counts_gaps=False)
    assert (coverage.expected, coverage.stored) == (len(ticks), len(ticks))


@pytest.mark.parametrize("missing", [1, 3])
def test_a_missing_tick_still_counts(missing: int) -> None:
    start, end = T0, T0 + 10_000
    stretch = Stretch(10, 1000, start, end)
    held = Held(10 - missing, T0 + 671, T0 + 9_671, 0)
    coverage = coverage_of({"k": stretch}, {"k": held}, counts_gaps=False)
    assert (coverage.expected, coverage.stored) == (10, 10 - missing)


def test_what_was_made_of_a_table_goes_with_it() -> None:
    never_asked: Any = None
    inventory = Inventory(never_asked, ManualClock(0))

    def made() -> Any:
        source, found = pa.table({"a": [1]}), pa.table({"b": [2]})
        assert inventory.derive((source,), "x", lambda: found) is found
        assert inventory.derive((source,), "x", lambda: None) is found
        return ref(found)

    left = [made() for _ in range(5)]
    kept = pa.table({"c": [3]})
    inventory.derive((kept,), "y", lambda: 1)
    assert [one() for one in left] == [None] * 5
