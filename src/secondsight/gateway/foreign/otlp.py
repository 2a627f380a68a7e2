"""Turn OTLP metrics, protobuf or JSON, into points.

A number is a point of the series that its metric's name and the attributes of resource and point make. A sum that
counts from its last point on (delta) is marked as such; a point without a recorded value says that its series ended.
"""

import base64
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError

from secondsight.errors import Rejected
from secondsight.gateway.foreign.labels import series_of
from secondsight.gateway.foreign.messages import otlp
from secondsight.gateway.foreign.native_histogram import SCALES, on_grid, require_bounds
from secondsight.gateway.foreign.points import (
    HISTOGRAM_SCOPE,
    STALE,
    Gathering,
    HistogramSample,
    Index,
    Points,
    require_few,
)
from secondsight.mapping.grid import GRID_BOUNDS

NANOSECONDS_PER_MS = 1_000_000
NO_RECORDED_VALUE = 1
"""Bit of a point's flags."""
DELTA, CUMULATIVE = 1, 2
EXACT_MAXIMUM = 2**53
"""Greatest integer up to which every one is a 64-bit float."""
VALUE_CHARACTERS = 1024

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NAME = b"__name__"

Attributes = tuple[tuple[bytes, bytes], ...]


def read_protobuf(body: bytes) -> Any:
    """Return the `ExportMetricsServiceRequest` of a body.

    Raises:
        Rejected(bad_body)
    """
    try:
        return otlp("ExportRequest").FromString(body)
    except DecodeError as error:
        raise Rejected("bad_body", f"the body is no OTLP metrics request: {error}", "check Content-Type") from error


def read_json(body: bytes) -> Any:
    """Return the same of a body of JSON; fields that nobody knows are passed over.

    Raises:
        Rejected(bad_body)
    """
    try:
        return ParseDict(
            _object(orjson.loads(body.removeprefix(BYTE_ORDER_MARK))),
            otlp("ExportRequest")(),
            ignore_unknown_fields=True,
        )
    except (orjson.JSONDecodeError, ParseError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Rejected("bad_body", f"the body is no OTLP metrics request: {error}"[:500], "check the JSON") from error


def _object(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise TypeError("the JSON is no object")
    return told


def decode(message: Any, index: Index) -> Points:
    """Return the points of a request."""
    reading = _Reading(index)
    for resource in message.resource_metrics:
        shared = tuple(_pairs(resource.resource.attributes))
        for scope in (*resource.scope_metrics, *resource.instrumentation_library_metrics):
            for metric in scope.metrics:
                reading.take(metric, shared)
    return reading.finished()


class _Reading:
    """Points as they are read."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._numbers = Gathering()
        self._deltas: list[bool] = []
        self._exact: dict[int, int] = {}
        self._out = Points(np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64))

    def finished(self) -> Points:
        """Return all that was read."""
        points = self._numbers.points()
        points.exact, points.histograms = self._exact, self._out.histograms
        points.refused, points.details, points.exemplars = self._out.refused, self._out.details, self._out.exemplars
        if any(self._deltas):
            points.deltas = np.array(self._deltas, np.bool_)
            points.starts_ms = np.array(self._numbers.starts_ms, np.int64)
        return points

    def take(self, metric: Any, shared: Attributes) -> None:
        """Read one metric."""
        if metric.HasField("gauge"):
            self._take_numbers(metric, shared, metric.gauge.data_points, "gauge")
        elif metric.HasField("sum"):
            self._take_sum(metric, shared)
        elif metric.HasField("histogram"):
            self._take_histograms(metric, shared, metric.histogram, _explicit)
        elif metric.HasField("exponential_histogram"):
            self._take_histograms(metric, shared, metric.exponential_histogram, _exponential)
        elif metric.HasField("summary"):
            self._take_summaries(metric, shared)
        else:
            self._out.refuse("no_data", metric.name, f"{metric.name} has no data of a known type")

    def _take_sum(self, metric: Any, shared: Attributes) -> None:
        points, temporality = metric.sum.data_points, metric.sum.aggregation_temporality
        if temporality not in (DELTA, CUMULATIVE):
            self._refuse(metric, points, "temporality", "does not say whether it is delta or cumulative")
        elif temporality == DELTA and not metric.sum.is_monotonic:
            detail = "is a delta of something that also falls: only its sender knows where it stands"
            self._refuse(metric, points, "delta_not_monotonic", detail)
        else:
            form = "counter" if metric.sum.is_monotonic else "gauge"
            self._take_numbers(metric, shared, points, form, is_delta=temporality == DELTA)

    def _take_numbers(
        self, metric: Any, shared: Attributes, points: Iterable[Any], form: str, *, is_delta: bool = False
    ) -> None:
        for point in points:
            self._out.exemplars += len(point.exemplars)
            number = self._series(metric, shared, point, form)
            start_ms = _ms(point.start_time_unix_nano)
            if is_delta and not start_ms:
                self._out.refuse("no_start_time", metric.name, f"a delta of {metric.name} has no start")
                continue
            value = self._value(point)
            if value is None:
                self._out.refuse("no_value", metric.name, f"a point of {metric.name} has neither number nor flag")
                continue
            self._numbers.add(number, value, _ms(point.time_unix_nano), start_ms if form == "counter" else 0)
            self._deltas.append(is_delta)

    def _value(self, point: Any) -> float | None:
        """Return the value of a point; an integer beyond what floats hold is noted as it is."""
        if point.flags & NO_RECORDED_VALUE:
            return STALE
        if point.HasField("as_double"):
            return float(point.as_double)
        if not point.HasField("as_int"):
            return None
        if abs(point.as_int) > EXACT_MAXIMUM:
            self._exact[len(self._numbers.series)] = point.as_int
        return float(point.as_int)

    def _take_histograms(self, metric: Any, shared: Attributes, data: Any, read: Any) -> None:
        if data.aggregation_temporality not in (DELTA, CUMULATIVE):
            self._refuse(metric, data.data_points, "temporality", "does not say whether it is delta or cumulative")
            return
        is_delta = data.aggregation_temporality == DELTA
        for point in data.data_points:
            self._out.exemplars += len(point.exemplars)
            number = self._series(metric, shared, point, HISTOGRAM_SCOPE)
            at_ms = _ms(point.time_unix_nano), _ms(point.start_time_unix_nano)
            if point.flags & NO_RECORDED_VALUE:
                sample = HistogramSample(number, (), (), 0.0, *at_ms)
            elif is_delta and not at_ms[1]:
                sample = HistogramSample(number, (), (), 0.0, *at_ms, fault="no_start_time")
            else:
                sample = _read_with(read, number, point, at_ms)
            self._out.histograms.append(sample._replace(is_delta=is_delta))

    def _take_summaries(self, metric: Any, shared: Attributes) -> None:
        """Take sum and count, which are a histogram of one bucket; quantiles of others cannot be merged."""
        for point in metric.summary.data_points:
            number = self._series(metric, shared, point, HISTOGRAM_SCOPE)
            at_ms = _ms(point.time_unix_nano), _ms(point.start_time_unix_nano)
            if point.flags & NO_RECORDED_VALUE:
                sample = HistogramSample(number, (), (), 0.0, *at_ms)
            else:
                fault = "" if math.isfinite(point.sum) else "histogram_sum"
                sample = HistogramSample(number, (), (point.count,), point.sum, *at_ms, fault)
            self._out.histograms.append(sample)

    def _series(self, metric: Any, shared: Attributes, point: Any, form: str) -> int:
        own = tuple(_pairs(point.attributes))
        key = (metric.name, metric.unit, form, shared, own)
        number = self._index.get(key)
        require_few(len(self._deltas) + len(self._out.histograms))
        if number < 0:
            named = {name for name, _ in own}
            pairs = [*(pair for pair in shared if pair[0] not in named), *own]
            attributes = [(NAME, metric.name.encode()), *(pair for pair in pairs if pair[0] != NAME)]
            series = series_of(attributes, metric.description, metric.unit)
            number = self._index.put(key, series._replace(scope=form))
        return number

    def _refuse(self, metric: Any, points: Any, code: str, what: str) -> None:
        self._out.refuse(code, metric.name, f"{metric.name} {what}", max(1, len(points)))


def _read_with(read: Any, number: int, point: Any, at_ms: tuple[int, int]) -> HistogramSample:
    try:
        bounds, buckets, total = read(point)
    except ValueError as error:
        return HistogramSample(number, (), (), 0.0, *at_ms, fault=str(error))
    return HistogramSample(number, bounds, buckets, total, *at_ms)


def _explicit(point: Any) -> tuple[tuple[float, ...], tuple[int, ...], float]:
    """Return bounds, buckets and sum; a histogram without bounds has one bucket.

    Raises:
        ValueError
    """
    bounds, buckets = tuple(point.explicit_bounds), tuple(point.bucket_counts)
    if bounds and bounds[-1] == math.inf:
        bounds = bounds[:-1]
    require_bounds(bounds)
    if not buckets and not bounds:
        buckets = (point.count,)
    if len(buckets) != len(bounds) + 1:
        raise ValueError("histogram_buckets")
    return bounds, _counted(point, buckets), _sum(point)


def _exponential(point: Any) -> tuple[tuple[float, ...], tuple[int, ...], float]:
    """Return bounds, buckets and sum on the grid.

    Raises:
        ValueError
    """
    if point.scale not in SCALES:
        raise ValueError("histogram_schema")
    positive = ((point.positive.offset + step + 1, n) for step, n in enumerate(point.positive.bucket_counts))
    below = sum(point.negative.bucket_counts)
    counts = on_grid(point.scale, positive, below, (point.zero_threshold, point.zero_count))
    return GRID_BOUNDS, _counted(point, counts), _sum(point)


def _counted(point: Any, buckets: tuple[int, ...]) -> tuple[int, ...]:
    if sum(buckets) != point.count:
        raise ValueError("histogram_count")
    return buckets


def _sum(point: Any) -> float:
    """Return the sum, NaN where a histogram of values that may be negative has none."""
    if not point.HasField("sum") or not math.isfinite(point.sum):
        raise ValueError("histogram_sum")
    return float(point.sum)


def _pairs(attributes: Iterable[Any]) -> Iterator[tuple[bytes, bytes]]:
    for attribute in attributes:
        yield attribute.key.encode(), _text(attribute.value).encode()


def _text(value: Any) -> str:
    """Return an attribute's value as a label has it; lists and maps as JSON."""
    if value.HasField("string_value"):
        return str(value.string_value)
    if value.HasField("int_value"):
        return str(value.int_value)
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)[:VALUE_CHARACTERS]


def _plain(value: Any) -> Any:
    for name in ("string_value", "bool_value", "int_value", "double_value"):
        if value.HasField(name):
            return getattr(value, name)
    if value.HasField("bytes_value"):
        return base64.b64encode(value.bytes_value).decode()
    if value.HasField("array_value"):
        return [_plain(item) for item in value.array_value.values]
    if value.HasField("kvlist_value"):
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    return ""


def _ms(nanoseconds: int) -> int:
    """Return epoch milliseconds, cut and never rounded up."""
    return int(nanoseconds // NANOSECONDS_PER_MS)
