"""Turn a matrix of source values, one column for each conversion, into stored values with a few array operations.

Values that plainly are in order go the fast way together. Every other one (sentinel, out of range, clamped, translated)
goes through `Conversion.one`, so both ways say the same, cell by cell. Stored values are given as 64-bit patterns, as
columns of one row differ in type: two's complement for integers (unsigned ones of 64 bits included), IEEE 754 for f64.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.dtype import dtype_limits
from secondsight.catalog.scale import Conversion
from secondsight.model import Quality

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
Bools = NDArray[np.bool_]

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_LEGAL_MAXIMUM = 63
_REAL_MAXIMUM = 2.0**62
"""Greatest stored value that the fast way makes of a floating-point one."""


class ConversionTable:
    """Conversions side by side; column c of a matrix is converted by the c-th."""

    def __init__(self, conversions: Sequence[Conversion]) -> None:
        self._conversions = tuple(conversions)
        one_by_one = np.array([_is_one_by_one(c) for c in conversions], np.bool_)
        least, greatest = [_least(c) for c in conversions], [_greatest(c) for c in conversions]
        self._least = np.where(one_by_one, _GREATEST, np.array(least, np.int64))
        self._greatest = np.where(one_by_one, _LEAST, np.array(greatest, np.int64))
        self._least_real = np.where(
            one_by_one, math.inf, np.array([float(max(c.least, _least(c))) for c in conversions])
        )
        bounds = [min(c.greatest, c.clamp_above, _REAL_MAXIMUM * c.denominator / c.numerator) for c in conversions]
        self._greatest_real = np.array([float(bound) for bound in bounds])
        self._sentinel_real = np.array([float(c.sentinel) for c in conversions])
        self._numerator = np.array([c.numerator if c.numerator < _GREATEST else 1 for c in conversions], np.int64)
        self._denominator = np.array([c.denominator for c in conversions], np.int64)
        self._divided = np.flatnonzero(self._denominator != 1)
        self._legal = np.array([_legal_mask(c) for c in conversions], np.uint64)
        self._with_legal = np.flatnonzero(self._legal != np.uint64(2**64 - 1))
        self._whole = np.array([c.whole for c in conversions], np.bool_)
        self._quality = np.array([c.quality for c in conversions], np.uint8)
        self._refused = [
            (column, value)
            for column, c in enumerate(conversions)
            for value in (*c.absent, *(() if c.cap is None else (c.cap,)))
            if _LEAST <= value <= _GREATEST
        ]

    def integers(self, values: I64, asked: Bools, odd: Mapping[tuple[int, int], float]) -> tuple[I64, U8]:
        """Return the patterns and qualities of integers; 0 and NONE where nothing is asked.

        Args:
            values: Source values, shape (rows, conversions).
            asked: Same shape; False where there is no value.
            odd: (row, column) -> value, for those that are no signed 64-bit integers.
        """
        good = asked & (values >= self._least) & (values <= self._greatest)
        for row, column in odd:
            good[row, column] = False
        self._refuse(values, good)
        safe = np.where(good, values, 0)
        stored = safe * self._numerator
        if self._divided.size:
            denominator = self._denominator[self._divided]
            stored[:, self._divided] = (stored[:, self._divided] + denominator // 2) // denominator
        self._check_legal(stored, good)
        return self._finished(stored, good, asked, lambda row, column: odd.get((row, column), int(values[row, column])))

    def reals(self, values: F64, asked: Bools) -> tuple[I64, U8]:
        """Return the patterns and qualities of floating-point values; 0 and NONE where nothing is asked."""
        good = asked & (values >= self._least_real) & (values <= self._greatest_real) & (values < self._sentinel_real)
        good &= ~self._whole | (values == np.trunc(values))
        self._refuse(values, good)
        safe = np.where(good, values, 0.0)
        stored = np.rint(safe * self._numerator / self._denominator).astype(np.int64)
        self._check_legal(stored, good)
        return self._finished(stored, good, asked, lambda row, column: float(values[row, column]))

    def _refuse(self, values: NDArray[np.int64] | NDArray[np.float64], good: Bools) -> None:
        for column, value in self._refused:
            good[:, column] &= values[:, column] != value

    def _check_legal(self, stored: I64, good: Bools) -> None:
        columns = self._with_legal
        if columns.size:
            shift = np.clip(stored[:, columns], 0, _LEGAL_MAXIMUM).astype(np.uint64)
            inside = (stored[:, columns] >= 0) & (stored[:, columns] <= _LEGAL_MAXIMUM)
            good[:, columns] &= inside & ((self._legal[columns] >> shift) & np.uint64(1)).astype(np.bool_)

    def _finished(
        self, stored: I64, good: Bools, asked: Bools, value_at: Callable[[int, int], float]
    ) -> tuple[I64, U8]:
        quality = np.where(good, self._quality, np.uint8(Quality.NONE)).astype(np.uint8)
        left = asked & ~good
        if left.any():
            for row, column in np.argwhere(left).tolist():
                value, quality[row, column] = self._conversions[column].one(value_at(row, column))
                stored[row, column] = 0 if value is None else _pattern(value, self._conversions[column].dtype)
        return np.where(quality == Quality.NONE, 0, stored), quality


def _is_one_by_one(conversion: Conversion) -> bool:
    """Tell whether a conversion has no fast way."""
    odd_legal = any(not 0 <= value <= _LEGAL_MAXIMUM for value in conversion.legal)
    return bool(conversion.translate) or conversion.dtype == "f64" or odd_legal or conversion.numerator >= _GREATEST


def _least(conversion: Conversion) -> int:
    """Return the least source value of the fast way: legal, and not below what the dtype holds."""
    low, _ = dtype_limits(conversion.dtype)
    bounds = [conversion.least, low * conversion.denominator / conversion.numerator if low else 0]
    return max([math.ceil(bound) for bound in bounds if bound != -math.inf] + [_LEAST])


def _greatest(conversion: Conversion) -> int:
    """Return the greatest source value of the fast way: no sentinel, not clamped, and exact in 64 bits."""
    bounds = [conversion.greatest, conversion.clamp_above, (_GREATEST - conversion.denominator) // conversion.numerator]
    whole = [math.floor(bound) for bound in bounds if bound != math.inf]
    if conversion.sentinel != math.inf:
        whole.append(math.ceil(conversion.sentinel) - 1)
    return max(min(whole), _LEAST)


def _legal_mask(conversion: Conversion) -> int:
    if not conversion.legal:
        return 2**64 - 1
    return sum(1 << value for value in conversion.legal if 0 <= value <= _LEGAL_MAXIMUM)


def _pattern(value: float, dtype: str) -> int:
    """Return the 64-bit pattern of a stored value as a signed integer."""
    if dtype == "f64":
        return int(np.float64(value).view(np.int64))
    whole = int(value)
    return whole - 2**64 if whole > _GREATEST else whole
