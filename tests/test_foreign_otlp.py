"""OTLP at the gateway: from the OpenTelemetry SDK's own exporter, and point by point in both encodings."""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from foreign_rig import CASE_MS, CATALOGUE, JSON, Foreign, foreign
from gateway_fixture import serving
from secondsight.clock import SystemClock

GPU = "GPU-00000000-0000-0000-0000-000000000001"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
DELTA, CUMULATIVE = 1, 2
Exporting = tuple[Any, Foreign, Callable[[], bool]]


@contextmanager
def exporting(
    data: Path, views: tuple[View, ...] = (), **more: Any
) -> Iterator[tuple[Any, Foreign, Callable[[], bool]]]:
    """A meter of the SDK whose exporter sends to a gateway; the third is its flush."""
    with serving(data, SystemClock(), catalogue=(CATALOGUE,)) as run:
        gateway = Foreign(run, run.token(name="app"))
        exporter = OTLPMetricExporter(
            endpoint=f"http://127.0.0.1:{run.port}/v1/metrics",
            headers={"authorization": f"Bearer {gateway.token}"},
            **more,
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        resource = Resource.create({"host.name": "node-a", "service.name": "trainer"})
        provider = MeterProvider([reader], resource, views=views, shutdown_on_exit=False)
        try:
            yield provider.get_meter("test"), gateway, provider.force_flush
        finally:
            provider.shutdown()


def values_of(gateway: Foreign, metric: str) -> list[float | str]:
    found = {name: value for name, value in gateway.cells().items() if name.startswith(metric + " ")}
    return [found[name] for name in sorted(found, key=lambda name: int(name.rpartition("@")[2]))]


@pytest.mark.parametrize("compression", list(Compression))
def test_gauges_counters_and_histograms_of_the_sdk(tmp_path: Path, compression: Compression) -> None:
    with exporting(tmp_path, compression=compression) as (meter, gateway, flush):
        meter.create_observable_gauge("hw.gpu.utilization", [lambda _: [Observation(0.5, {"hw.id": GPU})]], unit="1")
        meter.create_observable_gauge("hw.power", [lambda _: [Observation(412_500, {"hw.id": GPU})]], unit="mW")
        replays = meter.create_counter("gpu_pcie_replay_total")
        waits = meter.create_histogram("wait_seconds", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0])
        for step in range(3):
            replays.add(10, {"hw.id": GPU})
            waits.record(0.05)
            waits.record(0.5 + step)
            assert flush()
        assert values_of(gateway, "gpu_utilization_ratio") == [0.5] * 3
        assert values_of(gateway, "gpu_power_watts") == [412.5] * 3
        assert [value for value in values_of(gateway, "gpu_pcie_replay_total") if value] == [10, 20, 30]
        readings = sorted(gateway.histograms(), key=lambda reading: reading[2])
        assert [(bounds, buckets) for _, _, _, bounds, buckets, _, _ in readings] == [
            ((0.1, 1.0), [1, 1, 0]),
            ((0.1, 1.0), [2, 1, 1]),
            ((0.1, 1.0), [3, 1, 2]),
        ]
        assert gateway.refused() == []
        assert {one.header.collector_id for one in gateway.frames() if one.header.rows} == {"app/otlp/node-a/trainer"}


def test_deltas_and_exponential_histograms_of_the_sdk(tmp_path: Path) -> None:
    preferred = {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}
    views = (View(instrument_name="wait_seconds", aggregation=ExponentialBucketHistogramAggregation()),)
    with exporting(tmp_path, views, preferred_temporality=preferred) as (meter, gateway, flush):
        replays, waits = meter.create_counter("gpu_pcie_replay_total"), meter.create_histogram("wait_seconds")
        for step in range(3):
            replays.add(10 + step, {"hw.id": GPU})
            waits.record(0.5)
            waits.record(8.0)
            assert flush()
        assert values_of(gateway, "gpu_pcie_replay_total") == [0, 10, 0, 11, 0, 12]
        readings = sorted(gateway.histograms(), key=lambda reading: reading[2])
        assert [sum(buckets) for _, _, _, _, buckets, _, _ in readings] == [0, 2, 0, 2, 0, 2]
        assert {total for _, _, _, _, _, total, _ in readings} == {0.0, 8.5}


def test_the_sdk_is_told_what_was_refused(tmp_path: Path) -> None:
    with exporting(tmp_path) as (meter, gateway, flush):
        meter.create_counter("not_in_the_catalogue").add(1)
        meter.create_up_down_counter("queue.depth").add(-3)
        assert flush()
        assert values_of(gateway, "queue_depth") == [-3.0]
        assert [(one["code"], one["metric"]) for one in gateway.refused()] == [
            ("unknown_metric", "not_in_the_catalogue")
        ]


def number(**more: Any) -> dict[str, Any]:
    return {"timeUnixNano": f"{CASE_MS}000000"} | more


def request(*metrics: dict[str, Any], **resource: str) -> dict[str, Any]:
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in resource.items()]
    return {"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [{"metrics": list(metrics)}]}]}


def gauge(name: str, *points: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "gauge": {"dataPoints": list(points)}} | more


def sums(name: str, temporality: int, *points: dict[str, Any], monotonic: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "sum": {"aggregationTemporality": temporality, "isMonotonic": monotonic, "dataPoints": list(points)},
    }


def cumulative(*points: dict[str, Any]) -> dict[str, Any]:
    return {"aggregationTemporality": CUMULATIVE, "dataPoints": list(points)}


def histogram(name: str, *points: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "histogram": cumulative(*points)}


START = {"startTimeUnixNano": f"{CASE_MS - 5000}000000"}
EXPONENTIAL = {
    "count": "6",
    "sum": 20.0,
    "scale": 0,
    "zeroCount": "1",
    "positive": {"offset": 0, "bucketCounts": ["2", "3"]},
}
SUMMARY = {"count": "4", "sum": 9.0, "quantileValues": [{"quantile": 0.5, "value": 2.0}]}
HISTOGRAM = {"count": "3", "sum": 2.5, "bucketCounts": ["1", "2"], "explicitBounds": [0.5]}


@pytest.mark.parametrize(
    ("metric", "cells", "refused"),
    [
        (gauge("a", number(asDouble=1.5)), {f"a app @{CASE_MS}": 1.5}, {}),
        (gauge("a", number(asInt="-7")), {f"a app @{CASE_MS}": -7.0}, {}),
        (gauge("a", number(flags=1)), {f"a app @{CASE_MS}": "STALE"}, {}),
        (gauge("a", number()), {}, {"no_value": 1}),
        (gauge("a", number(asDouble="NaN")), {f"a app @{CASE_MS}": "ABSENT_SOURCE_BLANK"}, {}),
        (gauge("a", number(asDouble=1.0), number(asDouble=2.0)), {f"a app @{CASE_MS}": 1.0}, {"conflict": 1}),
        (gauge("a"), {}, {}),
        ({"name": "a"}, {}, {"no_data": 1}),
        (gauge("", number(asInt="1")), {}, {"name_missing": 1}),
        (sums("tokens", CUMULATIVE, number(asInt="5")), {f"tokens_total app @{CASE_MS}": 5.0}, {}),
        (
            sums("tokens", CUMULATIVE, number(asInt=str(2**62 + 1))),
            {f"tokens_total app @{CASE_MS}": 2**62 + 1},
            {},
        ),
        (
            sums("tokens", DELTA, number(asInt="5", **START)),
            {f"tokens_total app @{CASE_MS}": 5.0, f"tokens_total app @{CASE_MS - 4999}": 0.0},
            {},
        ),
        (sums("tokens", DELTA, number(asInt="5")), {}, {"no_start_time": 1}),
        (sums("tokens", 0, number(asInt="5")), {}, {"temporality": 1}),
        (
            sums("queue.depth", CUMULATIVE, number(asInt="-3"), monotonic=False),
            {f"queue_depth app @{CASE_MS}": -3.0},
            {},
        ),
        (sums("queue.depth", DELTA, number(asInt="-3", **START), monotonic=False), {}, {"delta_not_monotonic": 1}),
        (sums("a", DELTA, number(asInt="3", **START)), {}, {"delta_of_gauge": 1}),
        (gauge("wait_seconds", number(asInt="3")), {}, {"parse": 1}),
        (
            {"name": "a", "histogram": {"aggregationTemporality": 2, "dataPoints": [number(**HISTOGRAM)]}},
            {},
            {"no_histogram": 1},
        ),
        (histogram("wait_seconds", number(**(HISTOGRAM | {"count": "9"}))), {}, {"bad_histogram": 1}),
        (gauge("a", {"timeUnixNano": "5", "asInt": "1"}), {}, {"time_unit": 1}),
        (gauge("a", {"asInt": "1"}), {}, {"time_unit": 1}),
        (gauge("a", {"timeUnixNano": f"{CASE_MS + 360_000}000000", "asInt": "1"}), {}, {"future_time": 1}),
        (gauge("a", number(asInt="50"), unit="%"), {f"a app @{CASE_MS}": 0.5}, {}),
    ],
)
def test_points_in_both_encodings(
    tmp_path: Path, metric: dict[str, Any], cells: dict[str, float | str], refused: dict[str, int]
) -> None:
    body = request(metric)
    for place, (encoded, headers) in enumerate(
        (
            (orjson.dumps(body), JSON),
            (gzip.compress(orjson.dumps(body)), JSON | {"Content-Encoding": "gzip"}),
            (json_format.ParseDict(body, ExportMetricsServiceRequest()).SerializeToString(), PROTOBUF),
        )
    ):
        with foreign(tmp_path / str(place)) as gateway:
            gateway = Foreign(gateway.run, gateway.run.token(name="app"))
            reply = gateway.post("/v1/metrics", encoded, headers)
            assert reply.status == 200
            assert gateway.cells() == cells
            assert {one["code"]: one["values"] for one in gateway.refused()} == refused
            assert rejected(reply) == sum(refused.values())


def rejected(reply: Any) -> int:
    if reply.headers["content-type"] == "application/json":
        return int(reply.json.get("partialSuccess", {}).get("rejectedDataPoints", 0))
    return int(ExportMetricsServiceResponse.FromString(reply.body).partial_success.rejected_data_points)


EXEMPLAR = {"timeUnixNano": f"{CASE_MS}000000", "asDouble": 0.5, "traceId": "00" * 16, "spanId": "00" * 8}


@pytest.mark.parametrize(
    ("metric", "rejected_points", "message"),
    [
        (sums("a", CUMULATIVE, number(asInt="5", exemplars=[EXEMPLAR] * 2)), 0, "2 exemplars_not_kept"),
        (gauge("a", number(asInt="5", exemplars=[EXEMPLAR])), 0, "1 exemplars_not_kept"),
        (histogram("wait_seconds", number(**HISTOGRAM, exemplars=[EXEMPLAR])), 0, "1 exemplars_not_kept"),
        (gauge("a", {"asInt": "1", "exemplars": [EXEMPLAR]}), 1, "1 exemplars_not_kept"),
        (gauge("a", number(asInt="5")), 0, ""),
    ],
)
def test_exemplars_are_left_out_and_told(
    tmp_path: Path, metric: dict[str, Any], rejected_points: int, message: str
) -> None:
    parsed = json_format.ParseDict(request(metric), ExportMetricsServiceRequest())
    with foreign(tmp_path) as gateway:
        told = gateway.metrics(request(metric)).json.get("partialSuccess", {})
        reply = gateway.post("/v1/metrics", parsed.SerializeToString(), PROTOBUF)
        partial = ExportMetricsServiceResponse.FromString(reply.body).partial_success
        assert (int(told.get("rejectedDataPoints", 0)), partial.rejected_data_points) == (rejected_points,) * 2
        for text in (told.get("errorMessage", ""), partial.error_message):
            assert message in text
            assert bool(text) == bool(message)
        left_out = gateway.run.gateway.selfmetrics.value(
            "foreign_dropped_exemplars_total", protocol="otlp", reason="not_kept"
        )
        assert left_out == 2 * int(message[:1] or 0)


@pytest.mark.parametrize(
    ("metric", "count", "total"),
    [
        (lambda: histogram("wait_seconds", number(**HISTOGRAM), number(flags=1)), 3, 2.5),
        (lambda: {"name": "wait_seconds", "exponentialHistogram": cumulative(number(**EXPONENTIAL))}, 6, 20.0),
        (lambda: {"name": "wait_seconds", "summary": {"dataPoints": [number(**SUMMARY)]}}, 4, 9.0),
    ],
)
def test_histograms_summaries_and_their_ends(
    tmp_path: Path, metric: Callable[[], dict[str, Any]], count: int, total: float
) -> None:
    with foreign(tmp_path) as gateway:
        assert gateway.metrics(request(metric())).json == {}
        (reading,) = gateway.histograms()
        assert (sum(reading[4]), reading[5]) == (count, total)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"\xff", PROTOBUF, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {}, 415),
        (b"{}", JSON | {"Content-Encoding": "snappy"}, 415),
        (zstandard.compress(b"{}")[:-2], JSON | {"Content-Encoding": "zstd"}, 400),
        (b"{}", JSON | {"Authorization": "Bearer no"}, 401),
    ],
)
def test_a_refused_request_is_told_as_a_status(
    tmp_path: Path, body: bytes, headers: dict[str, str], status: int
) -> None:
    with foreign(tmp_path) as gateway:
        reply = gateway.post("/v1/metrics", body, headers)
        assert reply.status == status
        if headers.get("Content-Type") == "application/json":
            assert reply.json["message"]
        else:
            assert reply.headers["content-type"] == "application/x-protobuf"
        assert gateway.run.records() == []


def test_one_path_has_one_method(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        assert gateway.run.call("GET", "/v1/metrics").status == 405
        assert gateway.run.call("GET", "/api/v1/write").status == 405
