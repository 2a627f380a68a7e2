"""Inputs of the same kinds as the handed cases of payload, counters, time and cardinality, over one gateway.

Each case writes at an instant of its own, and looks at the cells of that instant alone.
"""

import gzip
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from foreign_index import STALE_NAN, SecondRequest, first_request, series_message, snappy
from foreign_rig import CASE_MS, FIRST, JSON, SECOND, Foreign, foreign
from gateway_fixture import Reply

Labels = Mapping[str, str]
STEP_MS = 600_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    with foreign(tmp_path_factory.mktemp("further")) as one:
        yield one


INSTANTS = itertools.count(CASE_MS - 1000 * STEP_MS, STEP_MS)


@pytest.fixture
def at() -> int:
    return next(INSTANTS)


def cells(gateway: Foreign, at: int, before_ms: int = 300_000) -> dict[str, float | str]:
    """Return `metric part @ms after at` -> value of what was stored around an instant."""
    found = {}
    for name, value in gateway.cells().items():
        what, _, time = name.rpartition(" @")
        if -before_ms <= int(time) - at < STEP_MS - before_ms:
            after = int(time) - at
            found[" ".join(filter(None, (what.replace(" prom", ""), f"@{after}" if after else "")))] = value
    return found


def sample(name: str, values: Sequence[tuple[float, int]], **labels: str) -> Any:
    return series_message([("__name__", name), *labels.items()], values)


def refused(reply: Reply) -> dict[str, int]:
    return {one["code"]: one["count"] for one in reply.json["error"]["refused"]} if reply.body else {}


# one cell, several points


@pytest.mark.parametrize("order", list(itertools.permutations([2.0, math.nan, STALE_NAN])))
def test_a_value_counts_whatever_stands_beside_it(gateway: Foreign, at: int, order: tuple[float, ...]) -> None:
    assert gateway.write(first_request(sample("a", [(value, at) for value in order]))).status == 204
    assert cells(gateway, at) == {"a": 2.0}


@pytest.mark.parametrize(
    ("values", "stored", "conflicts"),
    [
        ([1.0, 2.0, 1.0], 1.0, 1),
        ([0.0, -0.0], 0.0, 0),
        ([-0.0, 0.0, 0.0], 0.0, 0),
        ([3.0, 3.0], 3.0, 0),
        ([math.nan, STALE_NAN], "STALE", 0),
        ([STALE_NAN, math.nan], "STALE", 0),
        ([math.nan, math.nan], "ABSENT_SOURCE_BLANK", 0),
        ([math.inf, 1.0], "BAD_RANGE", 1),
    ],
)
def test_of_values_that_differ_the_first_counts(
    gateway: Foreign, at: int, values: list[float], stored: float | str, conflicts: int
) -> None:
    reply = gateway.write(first_request(sample("a", [(value, at) for value in values])))
    assert (cells(gateway, at), refused(reply)) == ({"a": stored}, {"conflict": conflicts} if conflicts else {})


# times


@pytest.mark.parametrize(
    ("unit", "factor"), [("seconds", 1e-3), ("microseconds", 1e3), ("nanoseconds", 1e6), ("", 0), ("", 1e-9), ("", -1)]
)
def test_a_time_of_another_unit_is_named(gateway: Foreign, at: int, unit: str, factor: float) -> None:
    reply = gateway.write(first_request(sample("a", [(1.0, int(at * factor)), (2.0, at)])))
    message = reply.json["error"]["message"]
    assert (reply.status, refused(reply), cells(gateway, at)) == (400, {"time_unit": 1}, {"a": 2.0})
    assert f"this looks like {unit}" in message if unit else "looks like" not in message
    assert "times are epoch milliseconds" in message


@pytest.mark.parametrize(("unit", "factor"), [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)])
def test_senders_of_otlp_are_told_of_nanoseconds(gateway: Foreign, at: int, unit: str, factor: int) -> None:
    reply = gateway.metrics(request(metric("a", gauge=[{"timeUnixNano": str(at // 1000 * factor), "asDouble": 1}])))
    message = reply.json["partialSuccess"]["errorMessage"]
    assert f"times are epoch nanoseconds, and this looks like {unit}" in message


# OTLP


def test_metrics_of_an_instrumentation_library_are_those_of_a_scope(gateway: Foreign, at: int) -> None:
    told = request(metric("a", gauge=[{"timeUnixNano": str(at * 10**6), "asDouble": 4}]))
    (resource,) = told["resourceMetrics"]
    resource["instrumentationLibraryMetrics"] = resource.pop("scopeMetrics")
    assert gateway.metrics(told).status == 200
    assert cells(gateway, at) == {"a": 4.0}


def attributes(pairs: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = pairs.items()
    return [{"key": key, "value": value if isinstance(value, dict) else {"stringValue": value}} for key, value in named]


def metric(name: str, unit: str = "", **data: Any) -> dict[str, Any]:
    ((kind, points),) = ((key, value) for key, value in data.items() if key != "temporality")
    told: dict[str, Any] = {"dataPoints": points}
    if kind != "gauge" and kind != "summary":
        told["aggregationTemporality"] = data.get("temporality", 2)
    if kind == "sum":
        told["isMonotonic"] = True
    return {"name": name, "unit": unit, kind: told}


def request(*metrics: dict[str, Any], shared: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    resource = {"attributes": list(shared)}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": list(metrics)}]}]}


def point(at: int, value: float, **more: Any) -> dict[str, Any]:
    return {"timeUnixNano": f"{at}000000", "asDouble": value, **more}


TWICE = [*attributes({"i": "x"}), *attributes({"i": "y"})]


@pytest.mark.parametrize(
    ("own", "shared", "part", "code"),
    [
        (TWICE, [], None, "label_twice"),
        ([], TWICE, None, "label_twice"),
        (attributes({"i": "x"}), TWICE, "i=x", ""),
        (attributes({"i": "x"}), attributes({"i": "y"}), "i=x", ""),
        (attributes({"__name__": "zz"}), attributes({"__name__": "yy"}), "", ""),
        (attributes({"": "x"}), [], None, "label_name_empty"),
        (attributes({"i": ""}), [], "", ""),
        ([{"key": "i"}], [], "", ""),
        (attributes({"i": {"bytesValue": "aGk="}}), [], "i=aGk%3D", ""),
        (attributes({"i": {"boolValue": False}}), [], "i=false", ""),
        (attributes({"i": {"intValue": "-7"}}), [], "i=-7", ""),
        (attributes({"i": {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "q"}]}}}), [], None, ""),
    ],
)
def test_attributes(gateway: Foreign, at: int, own: Any, shared: Any, part: str | None, code: str) -> None:
    told = request(metric("b", gauge=[point(at, 5.0, attributes=own)]), shared=shared)
    reply = gateway.metrics(told)
    said = reply.json.get("partialSuccess", {}).get("errorMessage", "")
    assert (code in said) if code else not said
    if part is not None:
        assert cells(gateway, at) == {" ".join(filter(None, ("b", part))): 5.0}


def histogram(at: int, count: int, total: float, buckets: Sequence[int], **more: Any) -> dict[str, Any]:
    bounds = {"explicitBounds": [100, 500]} if len(buckets) == 3 else {}
    return {"timeUnixNano": f"{at}000000", "count": count, "sum": total, "bucketCounts": buckets, **bounds, **more}


def readings(gateway: Foreign, at: int) -> list[tuple[tuple[float, ...], list[int], float]]:
    return [(one[3], one[4], one[5]) for one in gateway.histograms() if one[2] == at]


@pytest.mark.parametrize(("unit", "bounds", "total"), [("ms", (0.1, 0.5), 1.0), ("s", (100.0, 500.0), 1000.0)])
def test_the_unit_of_a_histogram_is_heeded(
    gateway: Foreign, at: int, unit: str, bounds: tuple[float, ...], total: float
) -> None:
    gateway.metrics(request(metric("wait_seconds", unit, histogram=[histogram(at, 6, 1000, [1, 2, 3])])))
    ((found, buckets, added),) = readings(gateway, at)
    assert (found, buckets, added) == (pytest.approx(bounds), [1, 2, 3], pytest.approx(total))


@pytest.mark.parametrize(
    ("name", "unit", "value", "stored"),
    [
        ("DCGM_FI_DEV_FB_USED", "", 1.0, 2**20),
        ("DCGM_FI_DEV_FB_USED", "MiBy", 1.0, 2**20),
        ("DCGM_FI_DEV_FB_USED", "By", 2**20, 2**20),
        ("DCGM_FI_DEV_SM_CLOCK", "Hz", 1.98e9, 1_980_000_000),
        ("DCGM_FI_DEV_SM_CLOCK", "furlongs", 1980.0, 1_980_000_000),
        ("DCGM_FI_DEV_GPU_UTIL", "1", 50.0, 0.5),
        ("DCGM_FI_DEV_GPU_UTIL", "%", 50.0, 0.5),
    ],
)
def test_the_unit_that_a_sender_names_counts(
    gateway: Foreign, at: int, name: str, unit: str, value: float, stored: float
) -> None:
    named = point(at, value, attributes=attributes({"UUID": "GPU-a"}))
    gateway.metrics(request(metric(name, unit, gauge=[named]), shared=attributes({"host.name": "n1"})))
    assert list(cells(gateway, at).values()) == [stored]


def test_a_pod_s_own_name_is_no_host_where_the_node_is_named(gateway: Foreign, at: int) -> None:
    shared = attributes({"host.name": "exporter-x2k", "k8s.node.name": "node-7"})
    gateway.metrics(request(metric("node_load1", gauge=[point(at, 1.5)]), shared=shared))
    assert cells(gateway, at) == {"node_load1 node-7": 1.5}


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (lambda at: histogram(at, 208, 0.0, [208, 0, 0]), "histogram_not_measured"),
        (lambda at: histogram(at, 20, 0.0, [20, 0, 0]), ""),
        (lambda at: histogram(at, 208, 0.0, [200, 8, 0]), ""),
        (lambda at: histogram(at, 7, 9.0, [1, 2, 3]), "bad_histogram"),
        (lambda at: histogram(at + STEP_MS * 2000, 6, 9.0, [1, 2, 3]), "future_time"),
    ],
)
def test_readings_that_say_nothing_are_refused(gateway: Foreign, at: int, one: Any, code: str) -> None:
    said = gateway.metrics(request(metric("wait_seconds", histogram=[one(at)]))).json
    assert (code in said["partialSuccess"]["errorMessage"]) if code else said == {}
    assert len(readings(gateway, at)) == (not code)


@pytest.mark.parametrize(("threshold", "below"), [(0.0, 1e-5), (1.5, 1.0), (1e9, 1e6)])
def test_what_counts_as_zero_lies_where_it_may_at_most(
    gateway: Foreign, at: int, threshold: float, below: float
) -> None:
    told = {"timeUnixNano": f"{at}000000", "count": 4, "sum": 9, "scale": 0, "zeroCount": 4, "zeroThreshold": threshold}
    gateway.metrics(request(metric("wait_seconds", exponentialHistogram=[told])))
    ((bounds, buckets, _),) = readings(gateway, at)
    assert sum(count for bound, count in zip(bounds, buckets[:-1], strict=True) if bound <= below) == (
        4 * (not threshold)
    )
    assert sum(buckets) == 4


def test_a_histogram_of_what_is_there_now_is_refused_by_name(gateway: Foreign, at: int) -> None:
    second = SecondRequest()
    now = {"count_int": 0, "sum": 0.0, "timestamp": at, "reset_hint": 3}
    reply = gateway.write(second.bytes(second.series([("__name__", "wait_seconds")], histograms=[now])), SECOND)
    assert (reply.status, reply.code, "histogram_gauge" in reply.body.decode()) == (400, "bad_histogram", True)


@pytest.mark.parametrize(
    ("start", "stored", "code"),
    [
        (lambda at: at - 10_000, {"tokens_total @-9999": 0, "tokens_total": 5}, ""),
        (lambda at: at, {"tokens_total @-1": 0, "tokens_total": 5}, ""),
        (lambda at: at + 10_000, {"tokens_total @-1": 0, "tokens_total": 5}, ""),
        (lambda _: 1000, {}, "no_start_time"),
        (lambda at: at // 1000, {}, "no_start_time"),
        (lambda at: at - 5000 * 86_400_000, {}, "no_start_time"),
    ],
)
def test_a_delta_counts_whole_or_is_refused(
    gateway: Foreign, at: int, start: Callable[[int], int], stored: dict[str, float], code: str
) -> None:
    began = {"startTimeUnixNano": f"{start(at)}000000"}
    reply = gateway.metrics(request(metric("tokens", sum=[point(at, 5.0, **began)], temporality=1)))
    assert cells(gateway, at) == stored
    assert code in reply.body.decode()
    gateway.metrics(
        request(metric("wait_seconds", histogram=[histogram(at, 6, 9.0, [1, 2, 3], **began)], temporality=1))
    )
    assert len(readings(gateway, at)) == (not code)


# bodies


@pytest.mark.parametrize(
    ("encoding", "pack", "status"),
    [
        ("identity", lambda body: body, 200),
        ("gzip, identity", gzip.compress, 200),
        ("identity,gzip", gzip.compress, 200),
        ("x-gzip", gzip.compress, 200),
        ("GZip", gzip.compress, 200),
        ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body)), 200),
        ("gzip, gzip", gzip.compress, 400),
        ("gzip, br", gzip.compress, 415),
        ("gzip, gzip, gzip, gzip", gzip.compress, 415),
        ("none", lambda body: body, 415),
    ],
)
def test_codings_of_a_body(gateway: Foreign, encoding: str, pack: Callable[[bytes], bytes], status: int) -> None:
    reply = gateway.post("/v1/metrics", pack(b"{}"), JSON | {"Content-Encoding": encoding})
    assert reply.status == status
    if status == 415:
        assert reply.headers["accept-encoding"] == "gzip, zstd, deflate"
        assert "use one of: gzip, zstd, deflate" in reply.json["message"]


def test_twice_packed_bombs_are_refused_at_the_limit(gateway: Foreign) -> None:
    limit = gateway.run.config.body_bytes
    bomb = gzip.compress(gzip.compress(bytes(3 * limit), 9), 9)
    reply = gateway.post("/v1/metrics", bomb, JSON | {"Content-Encoding": "gzip, gzip"})
    assert reply.status == 413


def test_json_with_a_byte_order_mark_is_read(gateway: Foreign) -> None:
    assert gateway.post("/v1/metrics", b"\xef\xbb\xbf{}", JSON).json == {}


@pytest.mark.parametrize("path", ["/api/v1/write/", "/v1/metrics/", "/v1/traces", "/otlp/v1/metrics"])
def test_a_wrong_path_is_told_the_right_ones(gateway: Foreign, path: str) -> None:
    reply = gateway.post(path, b"{}", JSON)
    assert (reply.status, "/api/v1/write" in reply.json["error"]["hint"]) == (404, True)


def test_names_reach_an_operator_s_terminal_as_plain_text(gateway: Foreign, at: int) -> None:
    gateway.write(first_request(sample("un\x1b[31mknown\n", [(1.0, at)]), sample("b", [(1.0, at)], i="1.5")))
    letters = [one for one in gateway.refused() if one["first_tick_ms"] == at]
    assert all(one["message"].isprintable() and one["metric"].isprintable() for one in letters)
    said = {one["code"]: one["message"] for one in letters}
    assert "register it" in said["unknown_metric"]
    assert "holds a reading" in said["label_reading"]


# cardinality


@pytest.mark.parametrize("value", ["53.1", "-0.5", "1.5e-05", "1e+06", "53.1W", "53.1 W", "12.5 %", "81.2GiB"])
def test_a_reading_is_no_part(gateway: Foreign, at: int, value: str) -> None:
    gateway.write(first_request(sample("b", [(1.0, at)], i=value), sample("b", [(2.0, at)], i="ok")))
    assert cells(gateway, at) == {"b i=ok": 2.0}


@pytest.mark.parametrize("value", ["1e5", "10.0.0.1:9100", "550.54.14", "2024-06-01T10:00:00Z", "1.5b", "node-1.5"])
def test_a_name_that_looks_like_a_number_is_a_part(gateway: Foreign, at: int, value: str) -> None:
    gateway.write(first_request(sample("b", [(1.0, at)], i=value)))
    assert len(cells(gateway, at)) == 1


def burst(at: int, number: int, **labels: str) -> bytes:
    """One request: a point of a known metric and one of an unknown, under labels that never come again."""
    own = {name: value.format(number) for name, value in labels.items()}
    return first_request(sample("a", [(float(number), at + number)], **own), sample("zz", [(1.0, at + number)], **own))


@pytest.mark.parametrize("label", ["trace_id", "url", "card_power_watts", "timestamp"])
def test_a_label_that_means_nothing_makes_no_series(
    tmp_path_factory: pytest.TempPathFactory, at: int, label: str
) -> None:
    with foreign(tmp_path_factory.mktemp("labels"), foreign_series=8) as gateway:
        body = first_request(*(sample("a", [(float(n), at + n)], **{label: f"{n}.5"}) for n in range(50)))
        for one in (body, *(burst(at, n, **{label: "{}-x"}) for n in range(50, 60))):
            assert gateway.write(one).status == 204
        assert len(gateway.cells()) == 60
        assert {one["code"] for one in gateway.refused()} == {"unknown_metric"}


def test_parts_overflow_whatever_other_labels_say(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    def named(n: int) -> Any:
        return sample("proc_rtt_seconds_count", [(1.0, at)], process_name=f"p{n}", trace_id=f"t{n}")

    with foreign(tmp_path_factory.mktemp("parts")) as gateway:
        assert gateway.write(first_request(*map(named, range(260)))).status == 204
        found = gateway.cells()
        overflow = f"proc_rtts_total prom process_name=__overflow__ @{at}"
        assert (len(found), found[overflow]) == (201, 60.0)


def test_entities_have_parts_of_their_own(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    with foreign(tmp_path_factory.mktemp("entities")) as gateway:
        name = "node_network_receive_bytes_total"
        devices = [(host, f"eth{n}") for host in ("n1", "n2") for n in range(40)]
        some = [sample(name, [(1.0, at)], instance=f"{host}:9100", device=device) for host, device in devices]
        assert gateway.post("/api/v1/write", snappy(first_request(*some)), FIRST).status == 204
        found = gateway.cells()
        assert len(found) == len(devices)
        assert not any("__overflow__" in name for name in found)


# what comes out of its order


def classic(at: int, count: float) -> list[Any]:
    name = "wait_seconds"
    buckets = [sample(f"{name}_bucket", [(count, at)], le=bound) for bound in ("1", "+Inf")]
    return [*buckets, sample(f"{name}_sum", [(count, at)]), sample(f"{name}_count", [(count, at)])]


def test_an_older_reading_of_a_histogram_is_stored_too(gateway: Foreign, at: int) -> None:
    for time_ms, count in ((at + 30_000, 9.0), (at, 4.0), (at + 30_000, 9.0), (at + 15_000, 6.0)):
        assert gateway.write(first_request(*classic(time_ms, count))).status == 204
    found = {one[2] - at: sum(one[4]) for one in gateway.histograms() if at <= one[2] <= at + 30_000}
    assert found == {0: 4, 15_000: 6, 30_000: 9}


def test_a_last_xid_is_one_event_whatever_comes_late(tmp_path_factory: pytest.TempPathFactory, at: int) -> None:
    def xid(seconds: int, code: float) -> bytes:
        return first_request(
            sample("DCGM_FI_DEV_XID_ERRORS", [(code, at + 1000 * seconds)], UUID="GPU-a", Hostname="n1")
        )

    told = [(0, 0.0), (30, 31.0), (15, 0.0), (45, 31.0), (20, 48.0), (60, 31.0), (75, 0.0), (90, 31.0)]
    with foreign(tmp_path_factory.mktemp("xids")) as gateway:
        for seconds, code in told:
            assert gateway.write(xid(seconds, code)).status == 204
        events = [event for frame in gateway.frames() for event in frame.content.events]
    assert [(event.code, (event.time_ms - at) // 1000) for event in events] == [(31, 30), (31, 90)]
    assert ["before_start" in event.attributes for event in events] == [True, False]
