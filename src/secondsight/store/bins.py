"""Turn values into bins of equal relative width and back, in arrays and in SQL: what a quantile sketch counts.

A bin is read from a table by the first 20 bits of the value as float32: sign, exponent and 11 bits of the mantissa. An
octave has 36 bins, so a value and the figure of its bin differ by less than 1 %. The table is made of whole numbers
alone, so it is the same on every machine. Bin 0 holds what is nearer to zero than 2^-126.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bins = NDArray[np.int16]
Values = NDArray[Any]

BINS_PER_OCTAVE = 36
RELATIVE_ERROR = 0.0098
MANTISSA_BITS = 11
EXPONENTS = 254
_SHIFT = 23 - MANTISSA_BITS
_FLOAT32_MAXIMUM = float(np.finfo(np.float32).max)


@cache
def _steps() -> NDArray[np.int64]:
    """Return the bin within an octave of each mantissa, in whole numbers: floor(36 log2(mantissa))."""
    cells = 1 << MANTISSA_BITS
    powers = (((cells + cell) ** BINS_PER_OCTAVE).bit_length() for cell in range(cells))
    return np.array([bits - 1 - MANTISSA_BITS * BINS_PER_OCTAVE for bits in powers], np.int64)


@cache
def bin_table() -> Bins:
    """Return the bin of every 20-bit prefix of a float32; infinities and NaN have the outermost ones."""
    exponents = np.minimum(np.arange(256), EXPONENTS)[:, None]
    positive = 1 + BINS_PER_OCTAVE * (exponents - 1) + _steps()
    positive[0] = 0
    flat = positive.astype(np.int16).ravel()
    return np.concatenate([flat, -flat])


def bins_of(values: Values) -> Bins:
    """Return the bin of each finite value."""
    narrow = np.clip(values.astype(np.float64), -_FLOAT32_MAXIMUM, _FLOAT32_MAXIMUM).astype(np.float32)
    found: Bins = bin_table()[narrow.view(np.uint32) >> _SHIFT]
    return found


def figures_of(bins: NDArray[Any]) -> NDArray[np.float64]:
    """Return the value that stands for each bin: the one with the least greatest relative error."""
    place = np.abs(bins.astype(np.int64))
    exponent, step = np.divmod(place - 1, BINS_PER_OCTAVE)
    edges = np.append(np.searchsorted(_steps(), np.arange(BINS_PER_OCTAVE)), 1 << MANTISSA_BITS)
    low, high = (1 + edges[step + more] / (1 << MANTISSA_BITS) for more in (0, 1))
    figures: NDArray[np.float64] = 2 * low * high / (low + high) * np.exp2(exponent - 126.0)
    return np.where(place == 0, 0.0, np.sign(bins) * figures)


def bin_expression(value: str) -> str:
    """Return the SQL expression for the bin of a finite value, an expression of a number itself."""
    clipped = f"greatest(least(toFloat64({value}), {_FLOAT32_MAXIMUM!r}), -{_FLOAT32_MAXIMUM!r})"
    bits = f"reinterpretAsUInt32(toFloat32({clipped}))"
    exponent = f"bitAnd(bitShiftRight({bits}, 23), 255)"
    step = f"{_steps().tolist()}[bitAnd(bitShiftRight({bits}, {_SHIFT}), {(1 << MANTISSA_BITS) - 1}) + 1]"
    place = f"if({exponent} = 0, 0, 1 + {BINS_PER_OCTAVE} * (toInt32({exponent}) - 1) + {step})"
    return f"toInt16(if(bitShiftRight({bits}, 31) = 1, -1, 1) * {place})"


def bin_figure(bins: str) -> str:
    """Return the SQL expression for the value that stands for a bin, an expression of integers itself."""
    place = f"abs(toInt32({bins})) - 1"
    step = f"[{octave_list()}][toUInt32(greatest({place}, 0) % {BINS_PER_OCTAVE}) + 1]"
    return f"if({bins} = 0, 0., sign({bins}) * {step} * exp2(intDiv({place}, {BINS_PER_OCTAVE}) - 126))"


def octave_list() -> str:
    """Return the values that stand for the bins between 1 and 2, as the elements of a list of SQL."""
    return ", ".join(map(repr, figures_of(np.arange(BINS_PER_OCTAVE) + 1 + BINS_PER_OCTAVE * 126).tolist()))
