import json
import socket

import pytest

from api_client import Client, serving
from secondsight.api.config import ApiConfig
from secondsight.api.forward import Forward, is_ingest, parse_target
from secondsight.clock import ManualClock
from secondsight.errors import Rejected


async def gateway(scope, receive, send):
    """Echo what came: method, path, query, headers of interest, and the body's size, in two pieces."""
    if scope["type"] != "http":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    told = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "bearer": headers.get("authorization", ""),
        "cookie": headers.get("cookie", ""),
        "bytes": size,
    }
    body = json.dumps(told).encode()
    answered = [(b"content-type", b"application/json"), (b"etag", b'"7"')]
    if scope["query_string"] == b"length":
        answered.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 207, "headers": answered})
    await send({"type": "http.response.body", "body": body[:10], "more_body": True})
    await send({"type": "http.response.body", "body": body[10:]})


async def inside(scope, receive, send):
    """Stand for the read API."""
    if scope["type"] != "http":
        await gateway(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory):
    config = ApiConfig(tmp_path_factory.mktemp("api"))
    with serving(gateway, config) as behind:
        address = f"http://127.0.0.1:{behind.port}"
        app = Forward(inside, address, clock=ManualClock(), body_bytes=1 << 20, patience_seconds=10)
        with serving(app, config) as client:
            yield client


@pytest.mark.parametrize("query", ["", "?length", "?a=1&b=%20"])
@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_ingest_passes_through_unchanged(front, query, size):
    headers = {"authorization": "Bearer x", "cookie": "secondsight_session=y"}
    answer = front.request("POST", f"/v1/frames{query}", b"z" * size, headers)
    assert (answer.status_code, answer.headers["etag"]) == (207, '"7"')
    assert answer.json() == {
        "method": "POST",
        "path": "/v1/frames",
        "query": query[1:],
        "bearer": "Bearer x",
        "cookie": "",
        "bytes": size,
    }


def test_plans_pass_and_reads_stay(front):
    assert front.get("/v1/agents/agent%3Aa/plan").json()["path"] == "/v1/agents/agent%3Aa/plan"
    assert front.get("/v1/metrics/query").text == "inside"
    assert front.get("/").text == "inside"


def test_chunked_bodies_pass(front):
    client = Client(front.port)
    answer = client.request("POST", "/v1/events", iter([b"a" * 1000, b"b" * 1000]))
    assert answer.json()["bytes"] == 2000
    client.close()


def test_too_large_bodies_are_refused(front):
    client = Client(front.port)
    answer = client.request("POST", "/v1/frames", b"z" * (2 << 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    client.close()


def test_a_gateway_that_is_away_may_come_back(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for target, status, code in ((f"http://127.0.0.1:{port}", 503, "gateway_away"), ("", 404, "not_found")):
        app = Forward(inside, target, clock=ManualClock(), body_bytes=1000, patience_seconds=5)
        with serving(app, ApiConfig(tmp_path)) as client:
            answers = [client.request("POST", "/v1/frames", b"z") for _ in range(20)]
            assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(status, code)}
            times = [int(answer.headers["retry-after"]) for answer in answers if "retry-after" in answer.headers]
            assert (min(times) >= 5 and max(times) <= 11 and len(set(times)) > 3) if status == 503 else not times


@pytest.mark.parametrize(
    ("method", "path", "is_one"),
    [
        ("POST", "/v1/frames", True),
        ("POST", "/v1/metrics", True),
        ("POST", "/api/v1/write", True),
        ("POST", "/v1/events", True),
        ("POST", "/v1/agents/enroll", True),
        ("GET", "/v1/agents/a/plan", True),
        ("GET", "/v1/events", False),
        ("GET", "/v1/metrics", False),
        ("GET", "/v1/agents/a/b/plan", False),
        ("POST", "/v1/session", False),
    ],
)
def test_which_requests_are_the_gateways(method, path, is_one):
    assert is_ingest(method, path) is is_one


@pytest.mark.parametrize("address", ["localhost:1", "https://h:1", "http://h", "ftp://h:1"])
def test_bad_addresses_are_refused(address):
    with pytest.raises(Rejected):
        parse_target(address)
