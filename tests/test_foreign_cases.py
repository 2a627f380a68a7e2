"""Every handed case of payload and cardinality that a gateway meets, by its file, as its note says, with variants."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from foreign_index import first_request, series_message
from foreign_rig import CASE_MS, FIRST, JSON, case, foreign, lines


def test_039_one_bad_sample_costs_itself(tmp_path: Path) -> None:
    sent = case("039-one-bad-sample-kills-batch.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert reply.status == 400
        assert reply.json["error"]["stored"]["samples"] == 6
        assert reply.json["error"]["refused"] == [{"code": "conflict", "metric": "a", "count": 1}]
        assert reply.headers["x-prometheus-remote-write-samples-written"] == "6"
        wanted = {f"b prom i={n} @{CASE_MS}": float(n) for n in range(5)} | {f"a prom @{CASE_MS}": 1.0}
        assert gateway.cells() == wanted
        assert [(one["code"], one["metric"], one["values"]) for one in gateway.refused()] == [("conflict", "a", 1)]
        again = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (again.status, gateway.cells()) == (400, wanted)


def test_085_all_members_of_a_gzip_body_count(tmp_path: Path) -> None:
    sent = case("085-gzip-two-members.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (reply.status, reply.json) == (200, {})
        cut = gateway.post(sent["path"], gzip.compress(b'{"resourceMet') + gzip.compress(b"rics"), sent["headers"])
        assert cut.status == 400


EMPTY = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize("body", [None, b"\x1f\x8b\x08\x00", EMPTY[:-4], EMPTY + b"x"])
def test_087_a_body_that_is_no_gzip_is_told_so(tmp_path: Path, body: bytes | None) -> None:
    sent = case("087-bad-gzip-is-400.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"] if body is None else body, sent["headers"])
        assert reply.status == 400
        assert "gzip" in reply.json["message"]
        assert gateway.run.records() == []


def test_089_a_declared_length_is_checked_first(tmp_path: Path) -> None:
    sent = case("089-snappy-declared-length-huge.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (reply.status, reply.code) == (413, "body_too_large")
        assert gateway.run.gateway.selfmetrics.value("gateway_in_flight_bytes") == 0
        assert gateway.run.records() == []


def test_091_zstd_is_taken_where_it_is_declared(tmp_path: Path) -> None:
    sent = case("091-zstd-body-with-snappy-header.request.json")
    with foreign(tmp_path) as gateway:
        wrong = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (wrong.status, wrong.code) == (415, "content_encoding")
        assert "snappy, zstd" in wrong.json["error"]["hint"]
        right = gateway.post(sent["path"], sent["body"], sent["headers"] | sent["also_send_with"])
        assert right.status == 204
        assert gateway.cells() == {f"up prom @{CASE_MS}": 1.0}


def test_093_a_label_twice_is_named_and_the_rest_is_stored(tmp_path: Path) -> None:
    sent = case("093-duplicate-label-name.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (reply.status, reply.code) == (400, "label_twice")
        assert "zone" in reply.json["error"]["message"]
        assert gateway.cells() == {f"up prom @{CASE_MS}": 1.0}


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ([("__name__", "a"), ("__name__", "b")], "label_twice"),
        ([("__name__", "a"), ("x", "1"), ("x", "1")], "label_twice"),
        ([("__name__", "a"), ("", "1")], "label_name_empty"),
        ([("x", "1")], "name_missing"),
        ([("__name__", "")], "name_missing"),
        ([], "name_missing"),
        ([("__name__", "a"), *((f"l{n}", "v") for n in range(150))], "labels_limit"),
        ([("__name__", "a"), ("x", "v" * 10_000)], "labels_limit"),
    ],
)
def test_faults_of_labels_cost_their_series(tmp_path: Path, labels: list[tuple[str, str]], code: str) -> None:
    request = first_request(
        series_message([("__name__", "up")], [(1.0, CASE_MS)]), series_message(labels, [(5.0, CASE_MS)])
    )
    with foreign(tmp_path) as gateway:
        for _ in range(2):
            reply = gateway.write(request)
            assert (reply.status, reply.code) == (400, code)
            assert reply.headers["x-prometheus-remote-write-samples-written"] == "1"
        assert gateway.cells() == {f"up prom @{CASE_MS}": 1.0}


def test_a_label_that_is_no_utf8_costs_its_series(tmp_path: Path) -> None:
    bad = series_message([("__name__", "a")], [(1.0, CASE_MS)])
    bad.labels.add(name=b"x", value=b"\xff\xfe")
    with foreign(tmp_path) as gateway:
        reply = gateway.write(first_request(series_message([("__name__", "up")], [(1.0, CASE_MS)]), bad))
        assert (reply.status, reply.code) == (400, "not_utf8")
        assert gateway.cells() == {f"up prom @{CASE_MS}": 1.0}


def test_095_an_empty_value_is_no_label_and_an_empty_name_is_an_error(tmp_path: Path) -> None:
    sent = case("095-empty-label-values.request.json")
    with foreign(tmp_path) as gateway:
        reply = gateway.post(sent["path"], sent["body"], sent["headers"])
        assert (reply.status, reply.code) == (400, "label_name_empty")
        assert "e2" in reply.json["error"]["message"]
        assert gateway.cells() == {f"e prom zone=z @{CASE_MS}": 1.0}


def test_097_a_body_over_the_limit_is_refused_whole_and_visible(tmp_path: Path) -> None:
    for told in lines("097-body-size-and-sample-limit.jsonl"):
        with foreign(tmp_path / told["target"], body_bytes=told["limit_bytes"]) as gateway:
            sample = series_message([("__name__", "up"), ("pad", "x" * 40)], [(1.0, CASE_MS)])
            body = bytes(told["bytes"]) if told["bytes"] > told["limit_bytes"] else first_request(sample)
            reply = gateway.post("/api/v1/write", body, FIRST) if len(body) > 5000 else gateway.write(body)
            refused = gateway.run.gateway.selfmetrics.value("gateway_refused_requests_total", code="body_too_large")
            if told["bytes"] > told["limit_bytes"]:
                assert (reply.status, reply.code, refused) == (413, "body_too_large", 1)
                assert str(told["limit_bytes"]) in reply.json["error"]["message"]
                assert gateway.run.records() == []
            else:
                assert (reply.status, refused) == (204, 0)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_refused_at_the_limit(tmp_path: Path, encoding: str) -> None:
    with foreign(tmp_path, body_bytes=1 << 20, in_flight_bytes=1 << 20) as gateway:
        bomb = gzip.compress(bytes(20 << 20)) if encoding == "gzip" else zstandard.compress(bytes(20 << 20))
        reply = gateway.post("/v1/metrics", bomb, JSON | {"Content-Encoding": encoding})
        assert reply.status == 413


def test_099_an_explosion_of_names_goes_to_one_part(tmp_path: Path) -> None:
    told = lines("099-process-name-explosion.jsonl")
    series = [
        series_message([("__name__", one["name"]), *one["labels"].items()], [(one["value"], CASE_MS)]) for one in told
    ]
    with foreign(tmp_path) as gateway:
        for _ in range(2):
            assert gateway.write(first_request(*series)).status == 204
        cells = gateway.cells()
        overflow = f"proc_rtts_total prom process_name=__overflow__ @{CASE_MS}"
        assert (len(cells), cells.pop(overflow)) == (201, 60.0)
        assert set(cells.values()) == {1.0}
        assert gateway.run.gateway.selfmetrics.value("foreign_overflow_series_total", protocol="remote-write") == 60
        events = [(event.metric, event.entity, event.code) for one in gateway.frames() for event in one.content.events]
        assert events == [("ingest_label_overflow", "prom", 200)]


def test_101_only_the_label_that_explodes_is_replaced(tmp_path: Path) -> None:
    told = lines("101-per-label-limit-keeps-others.jsonl")
    by_tenant = {
        tenant: [one for one in told if one["tenant"] == tenant] for tenant in sorted({one["tenant"] for one in told})
    }
    with foreign(tmp_path) as gateway:
        for tenant, some in by_tenant.items():
            token = gateway.run.token(name=tenant, tenant_id=tenant)
            sent = [
                series_message([("__name__", "http_requests_total"), *one["labels"].items()], [(one["v"], CASE_MS)])
                for one in some
            ]
            headers = FIRST | {"Authorization": f"Bearer {token}"}
            assert gateway.write(first_request(*sent), headers).status == 204
        cells = gateway.cells()
    replaced = {name: value for name, value in cells.items() if "__overflow__" in name}
    assert replaced == {f"http_requests_total a code=200,url=__overflow__ @{CASE_MS}": 10.0}
    kept = Counter(name.split()[1] for name in cells if name not in replaced)
    assert kept == {"a": 50, "b": len(by_tenant["b"])}


def test_a_request_of_too_many_points_is_refused_whole(tmp_path: Path) -> None:
    samples = [(1.0, CASE_MS + n) for n in range(500_001)]
    with foreign(tmp_path) as gateway:
        reply = gateway.write(first_request(series_message([("__name__", "up")], samples)))
        assert (reply.status, reply.code) == (413, "too_many_samples")
        assert gateway.run.records() == []


def test_series_of_all_senders_are_bounded(tmp_path: Path) -> None:
    series = [series_message([("__name__", f"unknown_{n}")], [(1.0, CASE_MS)]) for n in range(30)]
    with foreign(tmp_path, foreign_series_in_all=40) as gateway:
        for name in ("a", "b", "a", "b"):
            headers = FIRST | {"Authorization": f"Bearer {gateway.run.token(name=name)}"}
            assert gateway.write(first_request(*series), headers).status == 204
        assert sum(one["values"] for one in gateway.refused()) == 120
