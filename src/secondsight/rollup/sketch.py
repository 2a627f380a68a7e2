"""Turn values into bins of equal relative width and back: a quantile sketch that merges by adding.

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
I64 = NDArray[np.int64]
Rows = NDArray[np.intp]

BINS_PER_OCTAVE = 36
RELATIVE_ERROR = 0.0098
MANTISSA_BITS = 11
EXPONENTS = 254
DENSE_CELLS = 4
"""Cells of a table that adding up may cost for each value; where there would be more, values are sorted."""
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
    octave = ", ".join(
        repr(each) for each in figures_of(np.arange(BINS_PER_OCTAVE) + 1 + BINS_PER_OCTAVE * 126).tolist()
    )
    place = f"abs(toInt32({bins})) - 1"
    step = f"[{octave}][toUInt32(greatest({place}, 0) % {BINS_PER_OCTAVE}) + 1]"
    return f"if({bins} = 0, 0., sign({bins}) * {step} * exp2(intDiv({place}, {BINS_PER_OCTAVE}) - 126))"


def gather(groups: Rows, bins: Bins, weights: I64, count: int) -> tuple[I64, Bins, I64]:
    """Add up weights by group and bin.

    Args:
        groups: Group of each value, 0 to `count` - 1.
        bins: Bin of each.
        weights: Weight of each, more than 0.
        count: Number of groups.

    Returns:
        (offsets of each group, bins ascending within a group, weights).
    """
    if bins.size:
        low = int(bins.min())
        width = int(bins.max()) - low + 1
        if count * width <= DENSE_CELLS * bins.size:
            return _gather_densely(groups * width + (bins - low), weights, (count, width), low)
    keys = groups.astype(np.int64) << 16 | (bins.astype(np.int64) + 32768)
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    if not starts.size:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64)
    distinct = ranked[starts]
    offsets = np.searchsorted(distinct >> 16, np.arange(count + 1))
    return offsets, ((distinct & 0xFFFF) - 32768).astype(np.int16), np.add.reduceat(weights[order], starts)


def _gather_densely(cells: I64, weights: I64, shape: tuple[int, int], low: int) -> tuple[I64, Bins, I64]:
    """Add up weights in a table of all groups and bins; weights of a cell stay below 2^53."""
    count, width = shape
    table = np.bincount(cells, weights, count * width).astype(np.int64)
    filled = np.flatnonzero(table)
    offsets = np.searchsorted(filled, np.arange(count + 1) * width)
    return offsets, (filled % width + low).astype(np.int16), table[filled]


def quantile_bins(offsets: I64, bins: Bins, weights: I64, percent: int) -> tuple[Bins, NDArray[np.bool_]]:
    """Return the bin of a percentile of each group by nearest rank, and which groups have any weight."""
    known = np.diff(offsets) > 0
    answer = np.zeros(known.size, np.int16)
    if not known.any():
        return answer, known
    heads, tails = offsets[:-1][known], offsets[1:][known]
    running = np.cumsum(weights)
    before = running[heads] - weights[heads]
    total = running[tails - 1] - before
    wanted = before + -(-total * percent // 100)
    place = np.searchsorted(running, wanted)
    answer[known] = bins[place]
    return answer, known
