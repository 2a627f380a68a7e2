"""Find the samples of each series by their fixed form, without parsing the series.

A sample is a field of 18 bytes, or of 9 where its value is 0 and left out. In remote write 1.0 samples end the series;
in 2.0 they follow the references of the labels, which are a field of less than 128 bytes.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.gateway.foreign.points import I32, I64, Points

TAIL_BYTES, ZERO_TAIL_BYTES = 18, 9
"""A sample as a field of a series: with a value, and with the value 0, which is left out."""
TIME_BYTES = 6
"""Of a varint that holds epoch milliseconds between 1971 and 2109."""
ONE_BYTE_MAXIMUM, TWO_BYTES_MAXIMUM, THREE_BYTES_MAXIMUM = 1 << 7, 1 << 14, 1 << 21
"""From which length on a varint takes a byte more."""
SAMPLES_MAXIMUM = 128
"""Of one series; those with more are of another form."""
LABELS_TAG = 0x0A
TIME_HIGH_BITS, TIME_HIGH_BITS_WANTED = np.uint64(0x808080808080), np.uint64(0x008080808080)

U64 = NDArray[np.uint64]


class Samples(NamedTuple):
    """The samples of series that are of the fixed form.

    Attributes:
        cuts: Bytes that the samples of each series take, 0 where their form is another.
        owners: Place of the series of each sample; those of one series lie together, in its order.
        values: The bits of each value.
        varints: The six bytes of each time.
    """

    cuts: I64
    owners: I64
    values: U64
    varints: U64


class _Found(NamedTuple):
    """One sample of some series each: their places, the bytes it takes, the bits of its value and of its time."""

    places: I64
    cuts: I64
    values: U64
    varints: U64

    def chosen(self, which: NDArray[np.bool_]) -> "_Found":
        """Return some of them."""
        return _Found(self.places[which], self.cuts[which], self.values[which], self.varints[which])


def points_of(numbers: I32, samples: Samples) -> tuple[Points, I64]:
    """Return the points of the series that have a number, and the place of the series of each."""
    known = numbers[samples.owners] >= 0
    owners, values, varints = samples.owners[known], samples.values[known], samples.varints[known]
    times_ms = np.zeros(owners.size, np.uint64)
    for place in range(TIME_BYTES):
        times_ms |= (varints >> np.uint64(place)) & np.uint64(0x7F << (7 * place))
    return Points(numbers[owners], values.view(np.float64), times_ms.view(np.int64)), owners


def at_ends(body: bytes, series: list[bytes]) -> Samples:
    """Return the samples at the end of each series; `body` is the message that holds them."""
    lengths = np.fromiter(map(len, series), np.int64, len(series))
    ends = np.cumsum(lengths + 2 + (lengths >= ONE_BYTE_MAXIMUM) + (lengths >= TWO_BYTES_MAXIMUM))
    if ends[-1] != len(body) or int(lengths.max()) >= THREE_BYTES_MAXIMUM or lengths[0] < TAIL_BYTES:
        body = b"".join([bytes(TAIL_BYTES), *series])
        ends = np.cumsum(lengths) + TAIL_BYTES
    firsts = ends - lengths
    heads, words = _at_any_byte(body, "<u4"), _at_any_byte(body, "<u8")
    found: list[_Found] = []
    left: I64 = np.arange(len(series))
    for _ in range(SAMPLES_MAXIMUM + 1):
        left = left[(ends[left] > firsts[left]) & (ends[left] >= TAIL_BYTES)]
        one = _last_sample(heads, words, left, ends[left])
        one = one.chosen(ends[one.places] - one.cuts >= firsts[one.places])
        found.append(one)
        left = one.places
        ends[left] -= one.cuts
        if not left.size:
            break
    return _gathered(found[::-1], len(series), left)


def _last_sample(heads: NDArray[np.uint32], words: U64, places: I64, ends: I64) -> _Found:
    """Return the samples that end there; `heads` and `words` are the numbers that begin at each byte."""
    values, last = words[ends - 15], words[ends - 8]
    varints = last >> np.uint64(16)
    timed = ((last & np.uint64(0xFF00)) == 0x1000) & ((varints & TIME_HIGH_BITS) == TIME_HIGH_BITS_WANTED)
    with_value = timed & ((heads[ends - TAIL_BYTES] & np.uint32(0xFFFFFF)) == 0x091012)
    without = timed & ((values >> np.uint64(48)) == 0x0712)
    return _found(places, (with_value, without), values, varints)


def _at_any_byte(body: bytes, kind: str) -> NDArray[Any]:
    """Return the numbers that begin at each byte."""
    width = np.dtype(kind).itemsize
    return np.ndarray((len(body) - width + 1,), kind, body, strides=(1,))


def after_labels(series: list[bytes]) -> tuple[Samples, I64]:
    """Return the samples of series that begin with a field of less than 128 bytes, and where each begins."""
    lengths = np.fromiter(map(len, series), np.int64, len(series))
    body = b"".join([*series, bytes(2 * ONE_BYTE_MAXIMUM)])
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    whole = np.frombuffer(body, np.uint8)
    begins = firsts + 2 + whole[firsts + 1]
    heads, words = _at_any_byte(body, "<u4"), _at_any_byte(body, "<u8")
    is_labelled = (whole[firsts] == LABELS_TAG) & (whole[firsts + 1] < ONE_BYTE_MAXIMUM) & (lengths > 2)
    found: list[_Found] = []
    starts = begins.copy()
    left: I64 = np.flatnonzero(is_labelled)
    for _ in range(SAMPLES_MAXIMUM + 1):
        left = left[starts[left] + ZERO_TAIL_BYTES <= ends[left]]
        one = _first_sample((whole, heads, words), left, starts[left], ends[left])
        found.append(one)
        left = one.places
        starts[left] += one.cuts
        if not left.size:
            break
    return _gathered(found, len(series), left), begins - firsts


def _first_sample(
    body: tuple[NDArray[np.uint8], NDArray[np.uint32], U64], places: I64, starts: I64, ends: I64
) -> _Found:
    """Return the samples that begin there; `body` is what begins at each byte, in three widths."""
    whole, heads, words = body
    head = heads[starts] & np.uint32(0xFFFFFF)
    with_value = (head == 0x091012) & (whole[starts + 11] == 0x10) & (starts + TAIL_BYTES <= ends)
    without = head == 0x100712
    offsets = np.where(with_value, TAIL_BYTES, ZERO_TAIL_BYTES) - TIME_BYTES
    varints = words[starts + offsets] & np.uint64(2**48 - 1)
    timed = (varints & TIME_HIGH_BITS) == TIME_HIGH_BITS_WANTED
    return _found(places, (with_value & timed, without & timed), words[starts + 3], varints)


def _found(places: I64, forms: tuple[NDArray[np.bool_], NDArray[np.bool_]], values: U64, varints: U64) -> _Found:
    """Return those that are of one of the two forms, with a value and without."""
    with_value, without = forms
    there = with_value | without
    cuts = np.where(with_value, TAIL_BYTES, ZERO_TAIL_BYTES)
    return _Found(places, cuts, np.where(with_value, values, np.uint64(0)), varints).chosen(there)


def _gathered(found: list[_Found], series: int, longer: I64) -> Samples:
    """Return the samples of all series but the longer ones; an earlier entry of `found` holds earlier samples."""
    owners, sizes, values, varints = (np.concatenate(column) for column in zip(*found, strict=True))
    if longer.size:
        kept = ~np.isin(owners, longer)
        owners, sizes, values, varints = owners[kept], sizes[kept], values[kept], varints[kept]
    cuts = np.bincount(owners, weights=sizes, minlength=series).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    return Samples(cuts, owners[order], values[order], varints[order])
