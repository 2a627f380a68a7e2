"""Each file of cases/gateway: what a fresh gateway answers to one body, and what is then in its log."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixture import FRAMES, GPU_METRICS, NOW_MS, Running, column, content, serving, stamp
from secondsight.access.identity import Role
from secondsight.access.scope import Grant
from secondsight.model import EntityKind
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import encode

CASES = sorted((Path(__file__).parent / "cases" / "gateway").glob("*.json"))
BODY_BYTES = 1 << 20


def frame_bytes(spec: Mapping[str, Any]) -> bytes:
    host_id = spec.get("host", "host-1")
    columns = [column(**item) for item in spec.get("columns", [{"metric": name} for name in GPU_METRICS])]
    made = content(host_id, columns, EntityKind(spec.get("kind", "gpu")))
    newest_ms = spec.get("newest_ms", NOW_MS + 1000 * spec.get("ahead_seconds", 0))
    sent = replace(
        stamp(host_id, spec.get("sequence", 1), newest_ms),
        clock_offset_ms=spec.get("clock_offset_ms"),
        clock_uncertainty_ms=spec.get("clock_uncertainty_ms", 0),
        live=spec.get("live", False),
    )
    return encode(sent, made, inline=spec.get("inline", True))


def damaged(body: bytes, how: str | None) -> bytes:
    match how:
        case None:
            return body
        case "truncate":
            return body[:-7]
        case "flip_last":
            return body[:-1] + bytes([body[-1] ^ 1])
        case "flip_header":
            return body[:60] + bytes([body[60] ^ 1]) + body[61:]
        case "replace":
            return b"x" * len(body)
        case "version":
            return body[:4] + b"\x63" + body[5:]
        case "oversize":
            return body + bytes(BODY_BYTES)
        case _:
            raise AssertionError(how)


def token_of(run: Running, name: str) -> str:
    match name:
        case "none":
            return ""
        case "wrong":
            return "ss_c" + "A" * 43
        case "viewer":
            return run.token(role=Role.VIEWER, grants=(Grant("t1"),))
        case "expired":
            return run.token(expires_ms=NOW_MS)
        case pattern:
            return run.token(pattern)


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path):
    case = json.loads(path.read_text())
    expect = case["expect"]
    body = damaged(b"".join(frame_bytes(spec) for spec in case["frames"]), case.get("damage"))
    with serving(tmp_path, body_bytes=BODY_BYTES) as run:
        secret = token_of(run, case.get("token", "*"))
        headers = {"Content-Type": FRAMES} | ({"Authorization": f"Bearer {secret}"} if secret else {})
        sent: Any = chunks(body) if case.get("chunked") else body
        reply = run.call("POST", "/v1/frames", sent, headers | case.get("headers", {}))
        records = run.records()
    assert reply.status == expect["status"], reply.body
    assert sorted(record.type.name for record in records) == sorted(expect["records"])
    assert not secret or secret.encode() not in reply.body
    if reply.status == 200:
        check_accepted(reply.json, expect)
        check_refused(records, expect.get("refused", {}))
    else:
        error = reply.json["error"]
        assert error["code"] == expect["code"]
        assert expect.get("names", "") in error["message"]
        assert len(error.get("hashes", [])) == expect.get("hashes", 0)
        assert reply.headers.get("www-authenticate") == ("Bearer" if reply.status == 401 else None)


def check_accepted(answer: Mapping[str, Any], expect: Mapping[str, Any]) -> None:
    rejected = [{name: item[name] for name in item if name != "message"} for item in answer["rejected"]]
    assert (answer["accepted"], answer["duplicate"], rejected) == (
        expect["accepted"],
        expect["duplicate"],
        expect["rejected"],
    )
    assert all("host-" in item["message"] or item.get("metric", "?") in item["message"] for item in answer["rejected"])
    assert answer["receivedMs"] == answer["sentMs"] == NOW_MS


def check_refused(records: Any, expect: Mapping[str, Any]) -> None:
    for record in records:
        if record.type is RecordType.REFUSED:
            refused = orjson.loads(record.body)
            assert refused["rows"] == 2
            assert refused["collector_id"] == refused["host_id"] == "host-1"
            assert {name: refused[name] for name in expect} == expect
