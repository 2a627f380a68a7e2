"""Turn requests of Prometheus remote write, 1.0 and 2.0, into points.

The common form of a series, labels and one sample, is not parsed: its sample is its tail, whose form is fixed, and the
bytes before are a key of the sender's index. A key enters the index only when a parse of those bytes found labels and
nothing else, so whatever ends in such a tail after a known key means what a parse would find. All else is parsed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from secondsight.errors import Rejected
from secondsight.gateway.foreign.labels import series_of
from secondsight.gateway.foreign.messages import remote_write
from secondsight.gateway.foreign.native_histogram import histogram_sample
from secondsight.gateway.foreign.points import HISTOGRAM_SCOPE, Gathering, Index, Points, Series, joined, require_few

TAIL_BYTES, ZERO_TAIL_BYTES = 18, 9
"""A sample at the end of a series: with a value, and with the value 0, which is left out."""
TIME_BYTES = 6
"""Of a varint that holds epoch milliseconds between 1971 and 2109."""
HELP_CHARACTERS = 1000

ONE_BYTE_MAXIMUM, TWO_BYTES_MAXIMUM, THREE_BYTES_MAXIMUM = 1 << 7, 1 << 14, 1 << 21
"""From which length on a varint takes a byte more."""
TIME_HIGH_BITS, TIME_HIGH_BITS_WANTED = np.uint64(0x808080808080), np.uint64(0x008080808080)

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def decode_first(body: bytes, index: Index, learn_help: Callable[[str, str], None]) -> Points:
    """Return the points of a `prometheus.WriteRequest`.

    Args:
        body: Uncompressed.
        index: Of the sender.
        learn_help: Takes name and help text of metrics that the request describes.

    Raises:
        Rejected(bad_body): It is no such message.
    """
    message: Any = _parse("WriteRequest", body)
    if message.later_series:
        raise Rejected("bad_body", "the body is of remote write 2.0, and its Content-Type says 1.0")
    for described in message.metadata:
        learn_help(_text(described.name), _text(described.help)[:HELP_CHARACTERS])
    packed = list(message.timeseries)
    require_few(len(packed))
    if not packed:
        return Gathering().points()
    tails = _tails(body, packed)
    keys = [one[:-cut] if cut else b"" for one, cut in zip(packed, tails.cuts.tolist(), strict=True)]
    numbers = index.many(keys)
    known = numbers >= 0
    if known.all():
        return _of_tails(numbers, tails)
    common, odd = np.flatnonzero(known), np.flatnonzero(~known).tolist()
    points = _of_tails(numbers[common], tails.chosen(common))
    reading = _Reading(index)
    for place in odd:
        reading.take_first(place, packed[place], keys[place])
    return reading.united(points, common)


def decode_second(body: bytes, index: Index) -> Points:
    """Return the points of an `io.prometheus.write.v2.Request`.

    Raises:
        Rejected(bad_body): It is no such message.
    """
    message: Any = _parse("Request", body)
    if message.earlier_series:
        raise Rejected("bad_body", "the body is of remote write 1.0, and its Content-Type says 2.0")
    symbols = list(message.symbols)
    if symbols and symbols[0]:
        raise Rejected("bad_body", "the first symbol is not the empty text")
    reading = _Reading(index)
    for place, packed in enumerate(message.timeseries):
        reading.take_second(place, packed, symbols)
    return reading.united(Gathering().points(), np.zeros(0, np.intp))


class _Reading:
    """Series that are parsed, and the points that they hold."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._first, self._second = remote_write("TimeSeries"), remote_write("Series")
        self._gathering = Gathering()
        self._places: list[int] = []
        self._points = Points(np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64))

    def united(self, common: Points, places: NDArray[np.intp]) -> Points:
        """Return these points and those that were read, in the order of the request."""
        read = self._gathering.points()
        read.histograms, read.refused = self._points.histograms, self._points.refused
        read.details, read.exemplars = self._points.details, self._points.exemplars
        if not common.series.size:
            return read
        both = joined(common, read)
        order = np.argsort(np.concatenate([places, np.array(self._places, np.intp)]), kind="stable")
        both.series, both.values, both.times_ms = both.series[order], both.values[order], both.times_ms[order]
        if both.starts_ms is not None:
            both.starts_ms = both.starts_ms[order]
        return both

    def take_first(self, place: int, packed: bytes, key: bytes) -> None:
        """Read a series of 1.0, and have its key known where it is of the common form."""
        one = self._parsed(self._first, packed)
        if one is None:
            return
        series = series_of((label.name, label.value) for label in one.labels)
        series = series._replace(scope=HISTOGRAM_SCOPE) if one.histograms else series
        is_common = key and len(one.samples) == 1 and not (one.histograms or one.exemplars)
        if is_common and self._holds_labels_alone(key):
            number = self._index.put(key, series)
        else:
            number = self._index.put(series, series)
        self._take(place, number, one, series, 0)

    def take_second(self, place: int, packed: bytes, symbols: Sequence[bytes]) -> None:
        """Read a series of 2.0."""
        one = self._parsed(self._second, packed)
        if one is None:
            return
        try:
            texts = [symbols[reference] for reference in one.labels_refs]
            help_text = symbols[one.metadata.help_ref]
        except IndexError:
            self._refuse(one, "symbol_missing", "", f"a series names a symbol beyond the {len(symbols)} there are")
            return
        if len(texts) % 2:
            self._refuse(one, "bad_series", "", "a series has a label name without a value")
            return
        scope = HISTOGRAM_SCOPE if one.histograms else ""
        key = (scope, *texts, help_text)
        number = self._index.get(key)
        if number < 0:
            series = series_of(zip(texts[::2], texts[1::2], strict=True), _text(help_text)[:HELP_CHARACTERS])
            number = self._index.put(key, series._replace(scope=scope))
        self._take(place, number, one, None, one.created_timestamp)

    def _parsed(self, kind: Any, packed: bytes) -> Any:
        try:
            return kind.FromString(packed)
        except DecodeError:
            self._points.refuse("bad_series", "", "a series is no protobuf message")
            return None

    def _holds_labels_alone(self, key: bytes) -> bool:
        try:
            one: Any = self._first.FromString(key)
        except DecodeError:
            return False
        return not (one.samples or one.histograms or one.exemplars)

    def _take(self, place: int, number: int, one: Any, series: Series | None, created_ms: int) -> None:
        require_few(len(self._places) + len(one.samples) + len(self._points.histograms) + len(one.histograms))
        for sample in one.samples:
            start_ms = getattr(sample, "start_timestamp", 0) or created_ms
            self._gathering.add(number, sample.value, sample.timestamp, start_ms)
            self._places.append(place)
        for histogram in one.histograms:
            self._points.histograms.append(histogram_sample(number, histogram, created_ms))
        self._points.exemplars += len(one.exemplars)
        is_empty = not (one.samples or one.histograms or one.exemplars)
        if is_empty and series is not None and series.fault:
            self._points.refuse(series.fault, series.name, series.detail)

    def _refuse(self, one: Any, code: str, metric: str, detail: str) -> None:
        self._points.refuse(code, metric, detail, max(1, len(one.samples) + len(one.histograms)))


def _parse(name: str, body: bytes) -> Any:
    try:
        return remote_write(name).FromString(body)
    except DecodeError as error:
        raise Rejected("bad_body", f"the body is no {name}: {error}", "check Content-Type and its proto") from error


class _Tails(NamedTuple):
    """The last 18 bytes of each series as little-endian numbers.

    Attributes:
        cuts: How many of them are the one sample of the series: 18, 9 or 0.
        values: The bits of its value.
        varints: The six bytes of its time.
    """

    cuts: I64
    values: U64
    varints: U64

    def chosen(self, places: NDArray[np.intp]) -> "_Tails":
        """Return those of some series."""
        return _Tails(self.cuts[places], self.values[places], self.varints[places])


def _of_tails(numbers: I32, tails: _Tails) -> Points:
    """Return the points of series that are one sample each."""
    values = np.where(tails.cuts == ZERO_TAIL_BYTES, np.uint64(0), tails.values).view(np.float64)
    times_ms = np.zeros(numbers.size, np.uint64)
    for place in range(TIME_BYTES):
        times_ms |= (tails.varints >> np.uint64(place)) & np.uint64(0x7F << (7 * place))
    return Points(numbers, values, times_ms.view(np.int64))


def _tails(body: bytes, series: list[bytes]) -> _Tails:
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
    return _Tails(np.where(with_value, TAIL_BYTES, np.where(without, ZERO_TAIL_BYTES, 0)), values, varints)


def _at_any_byte(body: bytes, kind: str) -> NDArray[Any]:
    """Return the numbers that begin at each byte."""
    width = np.dtype(kind).itemsize
    return np.ndarray((len(body) - width + 1,), kind, body, strides=(1,))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
