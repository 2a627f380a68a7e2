"""An index of series that resolves nothing, and requests of foreign senders built field by field."""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import cramjam
import numpy as np

from secondsight.gateway.foreign.messages import remote_write
from secondsight.gateway.foreign.points import I32, STALE_BITS, Points, Series

STALE_NAN = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]


class PlainIndex:
    """Numbers series and remembers keys, for ever."""

    def __init__(self) -> None:
        self.known: dict[object, int] = {}
        self.series: list[Series] = []
        self.tables: dict[bytes, dict[bytes, int]] = {}

    def get(self, key: object) -> int:
        return self.known.get(key, -1)

    def many(self, keys: list[bytes]) -> I32:
        return np.fromiter(map(self.known.get, keys, repeat(-1)), np.int32, len(keys))

    def table(self, name: bytes) -> dict[bytes, int]:
        return self.tables.setdefault(name, {})

    def put(self, key: object, series: Series) -> int:
        number = self.known.setdefault(series, len(self.series))
        if number == len(self.series):
            self.series.append(series)
        self.known[key] = number
        return number


def series_message(labels: Iterable[tuple[str, str]], samples: Sequence[tuple[float, int]]) -> Any:
    """A `TimeSeries` of 1.0 with these samples, in milliseconds."""
    message: Any = remote_write("TimeSeries")()
    for name, value in labels:
        message.labels.add(name=name.encode(), value=value.encode())
    for value, time_ms in samples:
        message.samples.add(value=value, timestamp=time_ms)
    return message


def first_request(*series: Any) -> bytes:
    """The bytes of a request of 1.0, uncompressed."""
    message: Any = remote_write("WriteRequest")()
    message.timeseries.extend(one.SerializeToString() for one in series)
    return message.SerializeToString()


class SecondRequest:
    """Builds a request of 2.0 with its table of symbols."""

    def __init__(self) -> None:
        self.message: Any = remote_write("Request")()
        self.message.symbols.append(b"")
        self._places: dict[bytes, int] = {b"": 0}

    def symbol(self, text: str) -> int:
        raw = text.encode()
        if raw not in self._places:
            self._places[raw] = len(self.message.symbols)
            self.message.symbols.append(raw)
        return self._places[raw]

    def series(
        self,
        labels: Iterable[tuple[str, str]],
        samples: Iterable[tuple[float, int] | tuple[float, int, int]] = (),
        **more: Any,
    ) -> Any:
        """Return a series, not yet part of the request; `more` has created_timestamp, help, histograms, exemplars."""
        one: Any = remote_write("Series")(created_timestamp=more.get("created_timestamp", 0))
        one.labels_refs.extend(self.symbol(text) for pair in labels for text in pair)
        for value, time_ms, *start in samples:
            one.samples.add(value=value, timestamp=time_ms, start_timestamp=start[0] if start else 0)
        if "help" in more:
            one.metadata.help_ref = self.symbol(more["help"])
        for histogram in more.get("histograms", ()):
            one.histograms.add(**histogram)
        for _ in range(more.get("exemplars", 0)):
            one.exemplars.add()
        return one

    def bytes(self, *series: Any) -> bytes:
        self.message.timeseries.extend(one.SerializeToString() for one in series)
        return bytes(self.message.SerializeToString())


def snappy(body: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(body))


def told(points: Points, index: PlainIndex) -> list[tuple[str, tuple[tuple[str, str], ...], str, int]]:
    """Return (name, labels, bits of the value, time) of each point."""
    rows = zip(points.series.tolist(), points.values.view(np.uint64).tolist(), points.times_ms.tolist(), strict=True)
    return [(index.series[n].name, index.series[n].labels, f"{bits:x}", time_ms) for n, bits, time_ms in rows]
