"""A table of conversions says of every cell what the conversion alone says."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secondsight.catalog.dtype import NUMPY_DTYPES
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.catalog.scale_table import ConversionTable
from secondsight.model import Quality

CATALOG = load_catalog()
SCALARS = [(metric, source) for metric in CATALOG.metrics if metric.is_scalar for source in metric.sources]
OWN = [(metric, Source("agent", metric.name)) for metric in CATALOG.metrics if metric.is_scalar]
CONVERSIONS = [conversion(metric, source) for metric, source in SCALARS + OWN]

NEAR = st.sampled_from((0, 1, 2, 31, 63, 64, 100, 101, 255, 2**31 - 1, 2**32 - 1, 2**47, 2**53, 2**63 - 17, 2**63 - 1))
INTEGERS = st.one_of(NEAR, NEAR.map(lambda value: -value), st.integers(-(2**63), 2**64 - 1), st.integers(-200, 3000))
REALS = st.one_of(
    NEAR.map(float),
    st.floats(-10, 200),
    st.floats(),
    st.sampled_from((math.nan, math.inf, -math.inf, 140737488355328.0, 1.02, 100.5, 105.0, 106.0)),
)


def expected(one: Conversion, value: float) -> tuple[float | None, Quality]:
    return one.one(value)


def stored(pattern: int, dtype: str) -> float:
    wide = np.array([pattern], np.int64)
    return wide.view(NUMPY_DTYPES[dtype])[0].item() if dtype in ("f64", "u64") else int(pattern)


def check(patterns, quality, row: int, column: int, value: float) -> None:
    want, want_quality = expected(CONVERSIONS[column], value)
    assert quality[row, column] == want_quality, (CONVERSIONS[column], value)
    if want is not None:
        assert stored(int(patterns[row, column]), CONVERSIONS[column].dtype) == want, (CONVERSIONS[column], value)


@settings(max_examples=60, deadline=None)
@given(st.lists(INTEGERS, min_size=1, max_size=5))
def test_integers(values: list[int]) -> None:
    odd = {
        (row, column): value for row, value in enumerate(values) if value >= 2**63 for column in range(len(CONVERSIONS))
    }
    matrix = np.array([[value if value < 2**63 else 7] * len(CONVERSIONS) for value in values], np.int64)
    patterns, quality = ConversionTable(CONVERSIONS).integers(matrix, np.ones(matrix.shape, np.bool_), odd)
    for row, value in enumerate(values):
        for column in range(len(CONVERSIONS)):
            check(patterns, quality, row, column, value)


@settings(max_examples=60, deadline=None)
@given(st.lists(REALS, min_size=1, max_size=5))
@example([-5.992310449541053e307])
def test_reals(values: list[float]) -> None:
    matrix = np.array([[value] * len(CONVERSIONS) for value in values], np.float64)
    patterns, quality = ConversionTable(CONVERSIONS).reals(matrix, np.ones(matrix.shape, np.bool_))
    for row, value in enumerate(values):
        for column in range(len(CONVERSIONS)):
            check(patterns, quality, row, column, value)


@pytest.mark.parametrize("method", ["integers", "reals"])
def test_what_is_not_asked_is_no_claim(method: str) -> None:
    table = ConversionTable(CONVERSIONS)
    asked = np.zeros((2, len(CONVERSIONS)), np.bool_)
    if method == "integers":
        patterns, quality = table.integers(np.ones(asked.shape, np.int64), asked, {})
    else:
        patterns, quality = table.reals(np.ones(asked.shape), asked)
    assert not patterns.any()
    assert (quality == Quality.NONE).all()
