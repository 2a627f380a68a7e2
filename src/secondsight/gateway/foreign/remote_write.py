"""Turn requests of Prometheus remote write, 1.0 and 2.0, into points.

The common form of a series, labels and samples, is not parsed: samples are found by their form, and the bytes beside
them are a key of the sender's index, in 2.0 together with the request's symbols. A key is known only when a parse of
those bytes found labels (and in 2.0 metadata) and nothing else, so key and samples mean what a parse would find.
All else is parsed.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from secondsight.errors import Rejected
from secondsight.gateway.foreign.fixed_forms import after_labels, at_ends, points_of
from secondsight.gateway.foreign.labels import series_of
from secondsight.gateway.foreign.messages import remote_write
from secondsight.gateway.foreign.native_histogram import histogram_sample
from secondsight.gateway.foreign.points import HISTOGRAM_SCOPE, Gathering, Index, Points, Series, joined, require_few

HELP_CHARACTERS = 1000


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
    samples = at_ends(body, packed)
    keys = [one[:-cut] if cut else b"" for one, cut in zip(packed, samples.cuts.tolist(), strict=True)]
    numbers = np.where(samples.cuts > 0, index.many(keys), np.int32(-1))
    require_few(samples.owners.size)
    points, places = points_of(numbers, samples)
    odd = np.flatnonzero(numbers < 0).tolist()
    if not odd:
        return points
    reading = _Reading(index)
    for place in odd:
        reading.take_first(place, packed[place], keys[place])
    return reading.united(points, places)


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
    packed = list(message.timeseries)
    require_few(len(packed))
    if not packed:
        return Gathering().points()
    table = index.table(_table_name(symbols))
    samples, starts = after_labels(packed)
    keys = [
        one[:start] + one[start + cut :] if cut else b""
        for one, start, cut in zip(packed, starts.tolist(), samples.cuts.tolist(), strict=True)
    ]
    numbers = np.fromiter(map(table.get, keys, repeat(-1)), np.int32, len(keys))
    require_few(samples.owners.size)
    points, places = points_of(numbers, samples)
    reading = _Reading(index)
    for place in np.flatnonzero(numbers < 0).tolist():
        number = reading.take_second(place, packed[place], symbols, keys[place])
        if number >= 0:
            table[keys[place]] = number
    return reading.united(points, places)


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
        is_common = key and not (one.histograms or one.exemplars)
        if is_common and self._holds_labels_alone(self._first, key):
            number = self._index.put(key, series)
        else:
            number = self._index.put(series, series)
        self._take(place, number, one, series, 0)

    def take_second(self, place: int, packed: bytes, symbols: Sequence[bytes], key: bytes) -> int:
        """Read a series of 2.0; return its number where it is of the common form and its key all but its sample."""
        one = self._parsed(self._second, packed)
        if one is None:
            return -1
        try:
            texts = [symbols[reference] for reference in one.labels_refs]
            help_text = symbols[one.metadata.help_ref]
        except IndexError:
            self._refuse(one, "symbol_missing", "", f"a series names a symbol beyond the {len(symbols)} there are")
            return -1
        if len(texts) % 2:
            self._refuse(one, "bad_series", "", "a series has a label name without a value")
            return -1
        scope = HISTOGRAM_SCOPE if one.histograms else ""
        meant = (scope, *texts, help_text)
        number = self._index.get(meant)
        if number < 0:
            series = series_of(zip(texts[::2], texts[1::2], strict=True), _text(help_text)[:HELP_CHARACTERS])
            number = self._index.put(meant, series._replace(scope=scope))
        self._take(place, number, one, None, one.created_timestamp)
        is_common = key and not (one.histograms or one.exemplars or one.created_timestamp)
        return self._index.get(meant) if is_common and self._holds_labels_alone(self._second, key) else -1

    def _parsed(self, kind: Any, packed: bytes) -> Any:
        try:
            return kind.FromString(packed)
        except DecodeError:
            self._points.refuse("bad_series", "", "a series is no protobuf message")
            return None

    def _holds_labels_alone(self, kind: Any, key: bytes) -> bool:
        try:
            one = kind.FromString(key)
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


def _table_name(symbols: Sequence[bytes]) -> bytes:
    """Return what two requests share when their symbols are the same."""
    table: Any = remote_write("Request")(symbols=symbols)
    return blake2b(table.SerializeToString(), digest_size=16).digest()


def _parse(name: str, body: bytes) -> Any:
    try:
        return remote_write(name).FromString(body)
    except DecodeError as error:
        raise Rejected("bad_body", f"the body is no {name}: {error}", "check Content-Type and its proto") from error


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
