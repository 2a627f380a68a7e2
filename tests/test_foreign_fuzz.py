"""Damaged bodies of every foreign protocol: refused or taken, never a crash, never an answer that asks to try again."""

import gzip
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
import zstandard
from google.protobuf import json_format

from foreign_index import STALE_NAN, SecondRequest, first_request, series_message, snappy
from foreign_rig import CASE_MS, CATALOGUE, FIRST, JSON, SECOND, Foreign, foreign
from secondsight.catalog.load import load_catalog
from secondsight.errors import Rejected
from secondsight.gateway.foreign import otlp as otlp_body
from secondsight.gateway.foreign.messages import otlp
from secondsight.gateway.foreign.remote_write import decode_first, decode_second
from secondsight.gateway.foreign.sender import Sender, Settings, Who
from secondsight.wire.frame import decode
from secondsight.wire.schema import Definitions

QUICK, LONG, SENT = 2_000, 200_000, 60
CUT_SHARE = 0.1
PROTOBUF = {"Content-Type": "application/x-protobuf"}
GPU = [("UUID", "GPU-1"), ("Hostname", "node-a"), ("job", "dcgm")]
WAIT = "vllm:time_to_first_token_seconds"

Sample = tuple[str, bytes, dict[str, str], Callable[[bytes], bytes]]
"""Path, body before compression, headers, compression."""


def first() -> bytes:
    series = [series_message([("__name__", "DCGM_FI_DEV_GPU_TEMP"), *GPU], [(40.0, CASE_MS)])]
    series += [series_message([("__name__", "b"), ("i", str(n))], [(float(n), CASE_MS)]) for n in range(5)]
    series += [series_message([("__name__", "up")], [(STALE_NAN, CASE_MS), (0.0, CASE_MS + 1)])]
    for bound, count in (("0.1", 1.0), ("+Inf", 2.0)):
        series.append(series_message([("__name__", f"{WAIT}_bucket"), *GPU, ("le", bound)], [(count, CASE_MS)]))
    series += [series_message([("__name__", f"{WAIT}_{end}"), *GPU], [(2.0, CASE_MS)]) for end in ("sum", "count")]
    series += [series_message([("__name__", "DCGM_FI_DEV_XID_ERRORS"), *GPU, ("pod", "p")], [(31.0, CASE_MS)])]
    return first_request(*series)


def second() -> bytes:
    request = SecondRequest()
    histogram = {
        "count_int": 4,
        "sum": 3.5,
        "schema": 1,
        "zero_count_int": 1,
        "positive_spans": [{"offset": -2, "length": 1}, {"offset": 3, "length": 1}],
        "positive_deltas": [1, 1],
        "timestamp": CASE_MS,
    }
    return request.bytes(
        request.series([("__name__", "gpu_pcie_replay_total"), *GPU], [(5.0, CASE_MS, CASE_MS - 10)], help="Replays."),
        request.series([("__name__", "wait_seconds")], histograms=[histogram], exemplars=1),
        request.series([("__name__", "e"), ("zone", "z")], [(1.0, CASE_MS), (2.0, CASE_MS - 1000)]),
    )


def export() -> dict[str, object]:
    point = {"timeUnixNano": f"{CASE_MS}000000", "startTimeUnixNano": f"{CASE_MS - 10}000000"}
    histogram = point | {"count": "3", "sum": 2.5, "bucketCounts": ["1", "2"], "explicitBounds": [0.5]}
    exponential = point | {"count": "2", "sum": 2.5, "scale": 1, "positive": {"offset": -3, "bucketCounts": ["1", "1"]}}
    attributes = [{"key": "hw.id", "value": {"stringValue": "GPU-1"}}, {"key": "n", "value": {"intValue": "1"}}]
    metrics = [
        {
            "name": "hw.power",
            "unit": "mW",
            "gauge": {"dataPoints": [point | {"asInt": "400", "attributes": attributes}]},
        },
        {
            "name": "tokens",
            "sum": {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": [point | {"asDouble": 5}]},
        },
        {"name": "wait_seconds", "histogram": {"aggregationTemporality": 1, "dataPoints": [histogram]}},
        {"name": "wait_seconds", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [exponential]}},
        {"name": "wait_seconds", "summary": {"dataPoints": [point | {"count": "4", "sum": 1.0}]}},
    ]
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "node-a"}}]}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}


def samples() -> dict[str, Sample]:
    told = export()
    packed = json_format.ParseDict(told, otlp("ExportRequest")()).SerializeToString()
    return {
        "remote write 1.0": ("/api/v1/write", first(), FIRST, snappy),
        "remote write 2.0": ("/api/v1/write", second(), SECOND, snappy),
        "remote write in zstd": ("/api/v1/write", first(), FIRST | {"Content-Encoding": "zstd"}, zstandard.compress),
        "OTLP protobuf": ("/v1/metrics", packed, PROTOBUF | {"Content-Encoding": "gzip"}, gzip.compress),
        "OTLP JSON": ("/v1/metrics", orjson.dumps(told), JSON, bytes),
    }


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Return a body with some damage: bits, bytes, pieces cut, repeated, moved or of other numbers."""
    out = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        place, width = chance.randrange(len(out) or 1), chance.choice((1, 1, 2, 4, 8, 30))
        piece = out[place : place + width]
        other = chance.randrange(len(out) or 1)
        damages = (
            bytes(byte ^ (1 << chance.randrange(8)) for byte in piece[:1]) + piece[1:],
            chance.randbytes(width),
            b"",
            piece * chance.choice((2, 3, 50)),
            chance.choice((b"\xff", b"\x00", b"\x80", b"-", b"9")) * width,
            out[other : other + width],
        )
        out[place : place + width] = chance.choice(damages)
        if chance.random() < CUT_SHARE:
            del out[place:]
    return bytes(out)


def take(sender: Sender, sample: Sample, body: bytes) -> int:
    """Take a body in as a gateway does, and return the frames that it made; all of them can be read."""
    path, _, headers, _ = sample
    sender.prepare(CASE_MS)
    if path == "/v1/metrics":
        read = otlp_body.read_json if headers["Content-Type"] == "application/json" else otlp_body.read_protobuf
        points = otlp_body.decode(read(body), sender.index)
    elif headers["Content-Type"] == SECOND["Content-Type"]:
        points = decode_second(body, sender.index)
    else:
        points = decode_first(body, sender.index, sender.learn_help)
    taken = sender.take(points, 1, CASE_MS)
    for made in taken.frames:
        known = Definitions()
        known.add(made.schema.blob)
        known.add(made.entities.blob)
        decode(made.frame, known)
    return len(taken.frames)


def attack(gateway: Foreign, sample: Sample, chances: Sequence[random.Random]) -> Counter[int]:
    """Send damaged bodies over one connection and count the answers by status."""
    path, body, headers, pack = sample
    found: Counter[int] = Counter()
    connection = gateway.run.connect()
    named = {"Authorization": f"Bearer {gateway.token}", **headers}
    for number, chance in enumerate(chances):
        sent = mutated(pack(body), chance) if number % 4 == 0 else pack(mutated(body, chance))
        connection.request("POST", path, sent, named)
        answer = connection.getresponse()
        answer.read()
        found[answer.status] += 1
        assert answer.status in (200, 204, 400, 413, 415), (path, answer.status, sent.hex())
    connection.close()
    return found


def check(name: str, bodies: int, seed: int) -> None:
    """Take damaged bodies in without a server."""
    sample, catalog = samples()[name], load_catalog((CATALOGUE,))
    who = Who("prom", "remote-write", 1, lambda _: True)
    sender = Sender(who, catalog, Settings(300_000, 400 * 86_400_000, 5_000))
    found: Counter[str] = Counter()
    for number in range(bodies):
        body = mutated(sample[1], random.Random(seed * 1_000_003 + number))
        try:
            found["frames"] += take(sender, sample, body)
        except Rejected as error:
            found[error.code] += 1
    assert found.keys() == {"frames", "bad_body"}
    assert found["frames"] > bodies // 20
    assert found["bad_body"] > bodies // 20


@pytest.mark.parametrize("name", list(samples()))
def test_damaged_bodies_crash_nothing(name: str) -> None:
    check(name, QUICK, int(os.environ.get("FUZZ_SEED", "1")))


@pytest.mark.parametrize("name", list(samples()))
def test_a_gateway_answers_damaged_bodies_as_faults_of_their_sender(tmp_path: Path, name: str) -> None:
    sample = samples()[name]
    with foreign(tmp_path, foreign_series=5_000) as gateway:
        found = attack(gateway, sample, [random.Random(number) for number in range(SENT)])
        assert found[400]
        assert found[200] + found[204]
        assert gateway.run.gateway.selfmetrics.value("gateway_refused_requests_total", code="internal") == 0
        assert gateway.post(sample[0], sample[3](sample[1]), sample[2]).status in (200, 204)


@pytest.mark.soak
@pytest.mark.parametrize("name", list(samples()))
def test_many_damaged_bodies_crash_nothing(name: str) -> None:
    check(name, LONG // 5, random.SystemRandom().randrange(2**32))
