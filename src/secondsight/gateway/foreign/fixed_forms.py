"""Find the one sample of each series by its fixed form, without parsing the series.

A sample is a field of 18 bytes, or of 9 where its value is 0 and left out. In remote write 1.0 it ends the series; in
2.0 it follows the references of the labels, which are a field of less than 128 bytes.
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
LABELS_TAG = 0x0A
TIME_HIGH_BITS, TIME_HIGH_BITS_WANTED = np.uint64(0x808080808080), np.uint64(0x008080808080)

U64 = NDArray[np.uint64]


class Samples(NamedTuple):
    """The samples of series.

    Attributes:
        cuts: Bytes of the one sample of each series: 18, 9, or 0 where its form is another.
        values: The bits of its value; anything where that is left out.
        varints: The six bytes of its time.
    """

    cuts: I64
    values: U64
    varints: U64

    def chosen(self, places: NDArray[np.intp]) -> "Samples":
        """Return those of some series."""
        return Samples(self.cuts[places], self.values[places], self.varints[places])


def points_of(numbers: I32, samples: Samples) -> Points:
    """Return the points of series that are one sample each."""
    values = np.where(samples.cuts == ZERO_TAIL_BYTES, np.uint64(0), samples.values).view(np.float64)
    times_ms = np.zeros(numbers.size, np.uint64)
    for place in range(TIME_BYTES):
        times_ms |= (samples.varints >> np.uint64(place)) & np.uint64(0x7F << (7 * place))
    return Points(numbers, values, times_ms.view(np.int64))


def at_ends(body: bytes, series: list[bytes]) -> Samples:
    """Return how each series ends; `body` is the message that holds them."""
    lengths = np.fromiter(map(len, series), np.int64, len(series))
    ends = np.cumsum(lengths + 2 + (lengths >= ONE_BYTE_MAXIMUM) + (lengths >= TWO_BYTES_MAXIMUM))
    if ends[-1] != len(body) or int(lengths.max()) >= THREE_BYTES_MAXIMUM or lengths[0] < TAIL_BYTES:
        body = b"".join([bytes(TAIL_BYTES), *series])
        ends = np.cumsum(lengths) + TAIL_BYTES
    heads = _at_any_byte(body, "<u4")[ends - TAIL_BYTES]
    values = _at_any_byte(body, "<u8")[ends - 15]
    last = _at_any_byte(body, "<u8")[ends - 8]
    varints = last >> np.uint64(16)
    timed = ((last & np.uint64(0xFF00)) == 0x1000) & ((varints & TIME_HIGH_BITS) == TIME_HIGH_BITS_WANTED)
    with_value = timed & ((heads & np.uint32(0xFFFFFF)) == 0x091012)
    without = timed & ((values >> np.uint64(48)) == 0x0712)
    return Samples(np.where(with_value, TAIL_BYTES, np.where(without, ZERO_TAIL_BYTES, 0)), values, varints)


def _at_any_byte(body: bytes, kind: str) -> NDArray[Any]:
    """Return the numbers that begin at each byte."""
    width = np.dtype(kind).itemsize
    return np.ndarray((len(body) - width + 1,), kind, body, strides=(1,))


def after_labels(series: list[bytes]) -> tuple[Samples, I64]:
    """Return the samples of series that begin with a field of less than 128 bytes, and where each begins."""
    lengths = np.fromiter(map(len, series), np.int64, len(series))
    body = b"".join([*series, bytes(2 * ONE_BYTE_MAXIMUM)])
    firsts = np.cumsum(lengths) - lengths
    whole = np.frombuffer(body, np.uint8)
    starts = firsts + 2 + whole[firsts + 1]
    heads = _at_any_byte(body, "<u4")[starts]
    values = _at_any_byte(body, "<u8")[starts + 3]
    is_labelled = (whole[firsts] == LABELS_TAG) & (whole[firsts + 1] < ONE_BYTE_MAXIMUM) & (lengths > 2)
    with_value = is_labelled & ((heads & np.uint32(0xFFFFFF)) == 0x091012) & (whole[starts + 11] == 0x10)
    without = is_labelled & ((heads & np.uint32(0xFFFFFF)) == 0x100712)
    cuts = np.where(with_value, TAIL_BYTES, np.where(without, ZERO_TAIL_BYTES, 0))
    varints = _at_any_byte(body, "<u8")[starts + np.maximum(cuts, TIME_BYTES) - TIME_BYTES] & np.uint64(2**48 - 1)
    is_whole = ((varints & TIME_HIGH_BITS) == TIME_HIGH_BITS_WANTED) & (starts + cuts <= firsts + lengths)
    return Samples(np.where(is_whole, cuts, 0), values, varints), starts - firsts
