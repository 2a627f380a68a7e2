"""What receivers of remote write are held to, by the names of Prometheus' own list, and what this one adds.

docs/reference/foreign-senders.md has every name with the test here that covers it, or with the reason why not.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from foreign_index import STALE_NAN, SecondRequest, first_request, series_message, snappy
from foreign_rig import CASE_MS, FIRST, SECOND, Foreign, foreign

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
NAMES = CORPUS / "captures" / "otlp" / "remote_write_v2_receiver_test_names.txt"
TABLE = Path(__file__).parents[1] / "docs" / "reference" / "foreign-senders.md"
GPU = [("UUID", "GPU-1"), ("Hostname", "node-a")]

WRITTEN = {name: f"x-prometheus-remote-write-{name}-written" for name in ("samples", "histograms", "exemplars")}
EXPONENTIAL = {
    "count_int": 4,
    "sum": 3.5,
    "schema": 0,
    "zero_count_int": 1,
    "positive_spans": [{"offset": 0, "length": 2}],
    "positive_deltas": [1, 1],
    "timestamp": CASE_MS,
}
CUSTOM = {
    "count_int": 6,
    "sum": 3.5,
    "schema": -53,
    "positive_spans": [{"offset": 0, "length": 3}],
    "positive_deltas": [1, 1, 1],
    "custom_values": [0.1, 1.0],
    "timestamp": CASE_MS,
}


def written(reply: Any) -> tuple[int, int, int]:
    samples, histograms, exemplars = (int(reply.headers[name]) for name in WRITTEN.values())
    return samples, histograms, exemplars


def send(gateway: Foreign, *series: tuple[list[tuple[str, str]], dict[str, Any]]) -> Any:
    request = SecondRequest()
    made = [request.series(labels, **more) for labels, more in series]
    return gateway.write(request.bytes(*made), SECOND)


UP = ([("__name__", "up")], {"samples": [(1.0, CASE_MS)]})


def test_samples_histograms_and_exemplars_are_counted(tmp_path: Path) -> None:
    wait = ([("__name__", "wait_seconds")], {"histograms": [EXPONENTIAL], "exemplars": 2, "help": "How long."})
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([*UP[0]], UP[1] | {"exemplars": 3, "help": "Up."}), wait)
        assert (reply.status, reply.body, written(reply)) == (204, b"", (1, 1, 0))
        left_out = {"protocol": "remote-write", "reason": "not_kept"}
        assert gateway.run.gateway.selfmetrics.value("foreign_dropped_exemplars_total", **left_out) == 5
        assert gateway.cells() == {f"up prom @{CASE_MS}": 1.0}
        (reading,) = gateway.histograms()
        assert (reading[0], sum(reading[4]), reading[5]) == ("wait_seconds", 4, 3.5)


@pytest.mark.parametrize(
    ("change", "buckets"),
    [
        ({}, 4),
        (CUSTOM, 6),
        ({"zero_count_int": 0, "count_int": 3}, 3),
        ({"positive_spans": [], "positive_deltas": [], "count_int": 1}, 1),
        (
            {
                "positive_spans": [],
                "positive_deltas": [],
                "negative_spans": [{"offset": 0, "length": 1}],
                "negative_deltas": [2],
                "count_int": 3,
                "sum": -3.0,
            },
            3,
        ),
        ({"positive_spans": [], "positive_deltas": [], "zero_count_int": 0, "count_int": 0, "sum": 0.0}, 0),
    ],
)
def test_histograms_of_every_form_are_taken(tmp_path: Path, change: dict[str, Any], buckets: int) -> None:
    histogram = change if "custom_values" in change else EXPONENTIAL | change
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "wait_seconds")], {"histograms": [histogram]}))
        assert (reply.status, written(reply)) == (204, (0, 1, 0))
        assert sum(gateway.histograms()[0][4]) == buckets


def test_a_histogram_that_contradicts_itself_costs_itself(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        bad = ([("__name__", "wait_seconds")], {"histograms": [EXPONENTIAL | {"count_int": 99}]})
        reply = send(gateway, bad, UP)
        assert (reply.status, reply.code, written(reply)) == (400, "bad_histogram", (1, 0, 0))


def test_a_histogram_of_what_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "a")], {"histograms": [EXPONENTIAL]}), UP)
        assert (reply.status, written(reply)) == (204, (1, 0, 0))
        assert [(one["code"], one["metric"]) for one in gateway.refused()] == [("no_histogram", "a")]


def test_a_histogram_says_when_it_began(tmp_path: Path) -> None:
    for place, created in enumerate(({"created_timestamp": CASE_MS - 60}, {})):
        histogram = EXPONENTIAL | ({} if created else {"start_timestamp": CASE_MS - 60})
        with foreign(tmp_path / str(place)) as gateway:
            send(gateway, ([("__name__", "wait_seconds")], {"histograms": [histogram]} | created))
            assert gateway.histograms()[0][6] == CASE_MS - 60


def test_a_counter_says_when_it_began(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        labels = [("__name__", "gpu_pcie_replay_total"), *GPU]
        reply = send(gateway, (labels, {"samples": [(5.0, CASE_MS)], "created_timestamp": CASE_MS - 60}))
        assert written(reply) == (1, 0, 0)
        assert gateway.cells() == {
            f"gpu_pcie_replay_total GPU-1 @{CASE_MS - 60}": 0.0,
            f"gpu_pcie_replay_total GPU-1 @{CASE_MS}": 5.0,
        }


@pytest.mark.parametrize("series", [{"help": "What it is."}, {"exemplars": 3}, {}])
def test_a_series_without_points_is_taken_and_stores_nothing(tmp_path: Path, series: dict[str, Any]) -> None:
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "up")], series))
        assert (reply.status, written(reply)) == (204, (0, 0, 0))
        assert gateway.run.records() == []


@pytest.mark.parametrize("labels", [[], [("x", "1")], [("__name__", "")], [("__name__", ""), ("x", "1")]])
@pytest.mark.parametrize("points", [{"samples": [(1.0, CASE_MS)]}, {"histograms": [EXPONENTIAL]}])
def test_a_series_without_a_name_is_an_error_and_costs_itself(
    tmp_path: Path, labels: list[tuple[str, str]], points: dict[str, Any]
) -> None:
    with foreign(tmp_path) as gateway:
        reply = send(gateway, (labels, points), UP)
        assert (reply.status, reply.code, written(reply)) == (400, "name_missing", (1, 0, 0))


@pytest.mark.parametrize("value", ["a\nb", "a.b", "a b", "\u00e9\u4e2d\U0001f600", 'q"\\{}=,%', "x" * 100])
def test_any_text_is_a_label_value(tmp_path: Path, value: str) -> None:
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "b"), ("i", value)], {"samples": [(1.0, CASE_MS)]}))
        assert (reply.status, written(reply)) == (204, (1, 0, 0))
        assert len(gateway.cells()) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), STALE_NAN, 1e308, -0.0])
def test_values_that_are_no_numbers_kill_nothing(tmp_path: Path, value: float) -> None:
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "a")], {"samples": [(value, CASE_MS)]}), UP)
        assert (reply.status, written(reply)) == (204, (2, 0, 0))
        assert gateway.cells()[f"up prom @{CASE_MS}"] == 1.0


def test_points_of_several_times_in_any_order(tmp_path: Path) -> None:
    times = [CASE_MS, CASE_MS - 5000, CASE_MS + 1000, CASE_MS - 5000]
    with foreign(tmp_path) as gateway:
        reply = send(gateway, ([("__name__", "a")], {"samples": [(float(time % 7), time) for time in times]}))
        assert (reply.status, written(reply)) == (204, (4, 0, 0))
        assert gateway.cells() == {f"a prom @{time}": float(time % 7) for time in times}


@pytest.mark.parametrize(
    ("off_ms", "code", "status"),
    [
        (80_000, "", 204),
        (360_000, "future_time", 204),
        (-500 * 86_400_000, "too_old", 204),
        (CASE_MS // 1000 - CASE_MS, "time_unit", 400),
        (CASE_MS * 999, "time_unit", 400),
        (CASE_MS * 999_999, "time_unit", 400),
        (12_345 - CASE_MS, "time_unit", 400),
        (-CASE_MS, "time_unit", 400),
        (-2 * CASE_MS, "time_unit", 400),
    ],
)
def test_impossible_times_cost_their_samples(tmp_path: Path, off_ms: int, code: str, status: int) -> None:
    series = series_message([("__name__", "a")], [(1.0, CASE_MS + off_ms)])
    with foreign(tmp_path) as gateway:
        for _ in range(2):
            reply = gateway.write(first_request(series_message(*UP_FIRST), series))
            assert (reply.status, written(reply)[0]) == (status, 1 if code else 2)
        stage = "dead_letter" if code == "time_unit" else "quarantine"
        told = {(one["code"], one["metric"], one["stage"], one["last_tick_ms"]) for one in gateway.refused()}
        assert told == ({(code, "a", stage, CASE_MS + off_ms)} if code else set())
        skewed = gateway.run.gateway.selfmetrics.total("foreign_skewed_samples_total")
        assert skewed == (2 if off_ms == 80_000 else 0)


UP_FIRST = ([("__name__", "up")], [(1.0, CASE_MS)])


def test_many_samples_and_many_histograms(tmp_path: Path) -> None:
    with foreign(tmp_path) as gateway:
        points = {"samples": [(float(n), CASE_MS - 1000 * n) for n in range(1000)]}
        reply = send(gateway, ([("__name__", "a")], points))
        assert (reply.status, written(reply), len(gateway.cells())) == (204, (1000, 0, 0), 1000)
        readings = [EXPONENTIAL | {"timestamp": CASE_MS - 1000 * n} for n in range(100)]
        reply = send(gateway, ([("__name__", "wait_seconds")], {"histograms": readings}))
        assert (reply.status, written(reply), len(gateway.histograms())) == (204, (0, 100, 0), 100)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "text/plain",
        "application/x-protobuf;proto=io.prometheus.write.v3.Request",
        "application/x-protobuf;proto=nothing",
        "application/protobuf",
    ],
)
def test_other_content_types_are_answered_415(tmp_path: Path, content_type: str) -> None:
    with foreign(tmp_path) as gateway:
        reply = gateway.write(first_request(series_message(*UP_FIRST)), FIRST | {"Content-Type": content_type})
        assert (reply.status, reply.code) == (415, "content_type")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "identity", "snappy, zstd", "zsnappy"])
def test_other_encodings_are_answered_415_with_those_that_are_taken(tmp_path: Path, encoding: str) -> None:
    with foreign(tmp_path) as gateway:
        reply = gateway.write(first_request(series_message(*UP_FIRST)), FIRST | {"Content-Encoding": encoding})
        assert (reply.status, reply.code) == (415, "content_encoding")
        assert reply.headers["accept-encoding"] == "snappy, zstd"


@pytest.mark.parametrize("headers", [FIRST, SECOND])
@pytest.mark.parametrize("body", [b"", b"\xff" * 10, snappy(b"\xff" * 10), b"plain"])
def test_corrupt_bodies_are_answered_400(tmp_path: Path, headers: dict[str, str], body: bytes) -> None:
    with foreign(tmp_path) as gateway:
        reply = gateway.post("/api/v1/write", body, headers)
        assert (reply.status, reply.code) == (400, "bad_body")
        assert gateway.run.records() == []


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-protobuf",
        "application/x-protobuf;proto=prometheus.WriteRequest",
        'Application/X-Protobuf; PROTO="prometheus.WriteRequest"',
    ],
)
def test_the_first_version_is_taken(tmp_path: Path, content_type: str) -> None:
    with foreign(tmp_path) as gateway:
        headers = FIRST | {"Content-Type": content_type}
        reply = gateway.write(first_request(series_message(*UP_FIRST)), headers)
        assert (reply.status, written(reply)) == (204, (1, 0, 0))
        without = {name: value for name, value in headers.items() if name != "Content-Encoding"}
        assert gateway.write(first_request(series_message(*UP_FIRST)), without).status == 204


@pytest.mark.parametrize("version", ["0.1.0", "1.0.0", "2.0.0"])
def test_faults_of_the_first_version_are_answered_400(tmp_path: Path, version: str) -> None:
    headers = FIRST | {"X-Prometheus-Remote-Write-Version": version}
    with foreign(tmp_path) as gateway:
        for body in (snappy(b"\x0a\xff"), b"\x01", b""):
            assert gateway.post("/api/v1/write", body, headers).status == 400
        bad = first_request(series_message([("x", "1")], [(1.0, CASE_MS)]), series_message(*UP_FIRST))
        reply = gateway.write(bad, headers)
        assert (reply.status, reply.code, written(reply)) == (400, "name_missing", (1, 0, 0))


def test_an_unknown_metric_is_no_error_of_its_sender(tmp_path: Path) -> None:
    known = series_message([("__name__", "DCGM_FI_DEV_GPU_TEMP"), *GPU], [(40.0, CASE_MS)])
    unknown = [series_message([("__name__", f"unknown_{n}"), *GPU], [(1.0, CASE_MS)]) for n in range(30)]
    with foreign(tmp_path) as gateway:
        for _ in range(2):
            reply = gateway.write(first_request(*unknown, known))
            assert (reply.status, written(reply)) == (204, (1, 0, 0))
        first, second = gateway.refused()
        assert (first["code"], first["values"], first["stage"]) == ("unknown_metric", 30, "dead_letter")
        assert "unknown_0" in first["message"]
        assert first["payload_base64"]
        assert not second["payload_base64"]


def test_who_may_write_of_which_host(tmp_path: Path) -> None:
    of = {
        host: series_message(
            [("__name__", "DCGM_FI_DEV_GPU_TEMP"), ("UUID", f"GPU-{host}"), ("Hostname", host)], [(40.0, CASE_MS)]
        )
        for host in ("node-a", "other-b")
    }
    with foreign(tmp_path) as gateway:
        token = gateway.run.token("prom-a,node-*", name="someone")
        reply = gateway.write(first_request(*of.values()), FIRST | {"Authorization": f"Bearer {token}"})
        assert (reply.status, written(reply)) == (204, (1, 0, 0))
        assert [one["code"] for one in gateway.refused()] == ["host_not_allowed"]
        assert {frame.header.collector_id for frame in gateway.frames()} == {"prom-a/remote-write/node-a"}
        narrow = gateway.run.token("node-*", name="someone")
        reply = gateway.write(first_request(*of.values()), FIRST | {"Authorization": f"Bearer {narrow}"})
        assert (reply.status, reply.code) == (403, "collector_not_allowed")
        assert gateway.write(b"", FIRST | {"Authorization": "Bearer nothing"}).status == 401


def test_a_sender_has_only_so_many_series(tmp_path: Path) -> None:
    series = [series_message([("__name__", f"unknown_{n}")], [(1.0, CASE_MS)]) for n in range(30)]
    with foreign(tmp_path, foreign_series=10) as gateway:
        reply = gateway.write(
            first_request(series_message(*UP_FIRST), *series, series_message([("__name__", "a")], [(1.0, CASE_MS)]))
        )
        assert (reply.status, written(reply)) == (204, (1, 0, 0))
        assert {one["code"]: one["values"] for one in gateway.refused()} == {"unknown_metric": 9, "series_limit": 22}


def conformance() -> dict[str, str]:
    """Return each name of the table with what stands beside it."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", TABLE.read_text(), re.MULTILINE)
    return dict(rows)


@pytest.mark.skipif(not NAMES.exists(), reason=f"the list of names is not at {NAMES}")
def test_the_table_has_every_handed_name() -> None:
    handed, group = [], ""
    for line in NAMES.read_text().splitlines():
        if line.startswith("Test"):
            group = line.strip()
            handed.append(group)
        elif line.strip().startswith("- "):
            handed.append(f"{group}/{line.strip()[2:]}")
    assert list(conformance()) == handed


def test_every_pass_of_the_table_names_a_test_of_this_file() -> None:
    here = Path(__file__).read_text()
    for name, told in conformance().items():
        if told.startswith("pass"):
            (test,) = re.findall(r"`(test_\w+)`", told)
            assert f"def {test}(" in here, name
        else:
            assert told.startswith("no: "), name


def test_two_readings_of_one_histogram_at_one_time(tmp_path: Path) -> None:
    other = EXPONENTIAL | {"sum": 4.5}
    with foreign(tmp_path) as gateway:
        same = send(gateway, ([("__name__", "wait_seconds")], {"histograms": [EXPONENTIAL, EXPONENTIAL]}))
        assert (same.status, written(same), len(gateway.histograms())) == (204, (0, 2, 0), 1)
        unlike = send(gateway, ([("__name__", "wait_seconds")], {"histograms": [EXPONENTIAL, other]}), UP)
        assert (unlike.status, unlike.code, written(unlike)) == (400, "conflict", (1, 1, 0))


def test_requests_that_hold_no_plain_cell(tmp_path: Path) -> None:
    name, model = "vllm:time_to_first_token_seconds", [("model_name", "m"), ("instance", "node-a:8000")]
    bucket = [("__name__", f"{name}_bucket"), *model, ("le", "+Inf")]
    requests = (
        [series_message(bucket, [(3.0, CASE_MS)])],
        [series_message([("__name__", "DCGM_FI_DEV_XID_ERRORS"), *GPU], [(31.0, CASE_MS)])],
        [series_message([("__name__", f"{name}_{end}"), *model], [(3.0, CASE_MS)]) for end in ("sum", "count")],
    )
    with foreign(tmp_path) as gateway:
        for series in requests:
            reply = gateway.write(first_request(*series))
            assert (reply.status, written(reply)) == (204, (len(series), 0, 0))
        ((metric, entity, _, bounds, buckets, total, _),) = gateway.histograms()
        assert (metric, entity) == ("inference_time_to_first_token_seconds", "node-a:8000/m")
        assert (bounds, buckets, total) == ((), [3], 3.0)
        events = [(event.metric, event.code) for one in gateway.frames() for event in one.content.events]
        assert events == [("gpu_xid", 31)]
