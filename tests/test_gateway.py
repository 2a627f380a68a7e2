"""How the gateway behaves over several requests: definitions, repeats, plans, pressure, a log that fails."""

import asyncio
import http.client
import logging
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from gateway_fixture import NOW_MS, FlakyLog, content, frame, read_definitions, read_ingest, serving, stamp
from secondsight.access.audit import AuditEntry
from secondsight.access.definitions import definition_hash, get_definitions
from secondsight.access.metadata import AUDIT
from secondsight.access.schema import open_engine
from secondsight.access.tokens import list_tokens, revoke_token
from secondsight.clock import ManualClock
from secondsight.config import build
from secondsight.errors import Permanent, Rejected, Retryable
from secondsight.gateway.app import Stores
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.durations import Durations
from secondsight.gateway.gather import Gatherer
from secondsight.gateway.plan import agent_id
from secondsight.gateway.refusals import DISTINCT_MAXIMUM, Refusals
from secondsight.gateway.repeats import Repeats
from secondsight.gateway.run import open_listening
from secondsight.wire.content import Column, EntityTable
from secondsight.wire.envelope import Envelope, RecordType
from secondsight.wire.frame import Stamp, decode, encode, read_header
from secondsight.wire.header import write_header
from secondsight.wire.schema import Definitions, named_entities


def frames_of(records: Sequence[Envelope]) -> list[bytes]:
    return [record.body for record in records if record.type is RecordType.FRAME]


def plans_of(records: Sequence[Envelope]) -> list[dict[str, object]]:
    return [orjson.loads(record.body) for record in records if record.type is RecordType.PLAN]


def test_a_frame_arrives_in_the_log_as_it_was_sent(tmp_path: Path):
    with serving(tmp_path) as run:
        sent = frame()
        assert run.post(sent, run.token()).status == 200
        stored = [record for record in run.records() if record.type is RecordType.FRAME]
    assert [record.body for record in stored] == [sent]
    assert (stored[0].tenant_id, stored[0].cluster_id, stored[0].region, stored[0].ingest_time_ms) == (
        ("t1", "c1", "eu", NOW_MS)
    )


def test_an_unknown_schema_is_sent_once_and_known_ever_after(tmp_path: Path):
    plain, inline = frame("host-1", inline=False), frame("host-1", inline=True)
    with serving(tmp_path) as run:
        token = run.token()
        refused = run.post(plain, token)
        assert (refused.status, refused.code) == (424, "schema_unknown")
        header = read_header(plain).header
        assert set(refused.json["error"]["hashes"]) == {header.schema_hash.hex(), header.entities_hash.hex()}
        assert run.post(inline, token).status == 200
        assert run.post(frame("host-1", 2, inline=False), token).json["accepted"] == 1
        assert run.post(frame("host-2", 1), token).status == 200
        blobs = read_definitions(tmp_path)
        assert {definition_hash(blob) for blob in blobs} == get_definitions(
            run.stores.metadata, [definition_hash(blob) for blob in blobs]
        ).keys()
    assert len(blobs) == 3  # one schema, two entity tables
    with serving(tmp_path) as again:
        assert again.post(frame("host-2", 3, inline=False), again.token()).json["accepted"] == 1
    assert len(read_definitions(tmp_path)) == 3
    known = Definitions()
    for blob in blobs:
        known.add(blob)
    for stored in frames_of(read_ingest(tmp_path)):
        assert decode(stored, known).content.scalars is not None


def test_definitions_are_in_the_log_before_the_frame_that_uses_them(tmp_path: Path):
    flaky: list[FlakyLog] = []

    def away(stores: Stores) -> Stores:
        flaky.append(FlakyLog(stores.definitions))
        return replace(stores, definitions=flaky[0])

    with serving(tmp_path, change=away) as run:
        token = run.token()
        flaky[0].away = True
        assert run.post(frame(), token).status == 503
        assert run.records() == []
        flaky[0].away = False
        assert run.post(frame(), token).status == 200


def test_an_inline_definition_with_another_hash_refuses_its_frame_alone(tmp_path: Path):
    good, bad = frame("host-1"), frame("host-2")
    table: EntityTable = content("host-2").entities
    blob = named_entities(table).blob
    with serving(tmp_path) as run:
        sent = resealed(bad, blob, blob.replace(b"rack-1", b"rack-2"))
        answer = run.post(good + sent, run.token()).json
        assert (answer["accepted"], [item["code"] for item in answer["rejected"]]) == (1, ["bad_frame"])
        refused = [orjson.loads(record.body) for record in run.records() if record.type is RecordType.REFUSED]
    assert [(item["stage"], item["collector_id"]) for item in refused] == [("dead_letter", "host-2")]


def resealed(sent: bytes, old: bytes, new: bytes) -> bytes:
    """The frame with other bytes in its body, under checksums that are right."""
    head = read_header(sent)
    raw = zstandard.ZstdDecompressor().decompress(sent[head.body_start : head.end])
    assert old in raw
    body = zstandard.ZstdCompressor().compress(raw.replace(old, new))
    return write_header(replace(head, body_bytes=len(body), body_crc=google_crc32c.value(body))) + body


def test_a_frame_that_was_decoded_and_encoded_again_names_the_same_definitions(tmp_path: Path):
    whole_numbers = [Column("gpu_temperature_celsius", "Cel", "u8", 1)]
    sent = encode(stamp(), content(columns=whole_numbers), inline=True)
    again = decode(sent, Definitions())
    resent = encode(stamp(sequence=2), again.content)
    with serving(tmp_path) as run:
        token = run.token()
        assert [run.post(body, token).status for body in (sent, resent)] == [200, 200]


def test_a_repeat_is_acknowledged_and_not_stored_twice(tmp_path: Path):
    with serving(tmp_path) as run:
        token = run.token()
        answers = [run.post(frame(), token).json for _ in range(3)]
        assert [(answer["accepted"], answer["duplicate"]) for answer in answers] == [(1, 0), (0, 1), (0, 1)]
        assert len(frames_of(run.records())) == 1


def test_frames_that_were_not_acknowledged_are_no_repeats(tmp_path: Path):
    flaky: list[FlakyLog] = []

    def away(stores: Stores) -> Stores:
        flaky.append(FlakyLog(stores.ingest))
        return replace(stores, ingest=flaky[0])

    with serving(tmp_path, change=away) as run:
        token = run.token()
        flaky[0].away = True
        for _ in range(2):
            reply = run.post(frame(), token)
            assert (reply.status, reply.code) == (503, "unavailable")
            assert 7 <= int(reply.headers["retry-after"]) <= 14  # as the log says at least, and not all at once
        assert run.records() == []
        flaky[0].away = False
        assert run.post(frame(), token).json["accepted"] == 1
        assert len(frames_of(run.records())) == 1
        assert len(plans_of(run.records())) == 1


def test_a_backlog_makes_senders_wait(tmp_path: Path):
    backlog = [0]
    clock = ManualClock(NOW_MS)

    def measured(stores: Stores) -> Stores:
        return replace(stores, backlog_bytes=lambda: backlog[0])

    with serving(tmp_path, clock, measured, backlog_bytes=1000, retry_after_seconds=3) as run:
        token = run.token()
        backlog[0] = 1000
        assert run.post(frame("host-1", 1), token).status == 200
        backlog[0] = 1001
        assert run.post(frame("host-1", 2), token).status == 200  # looked at most every 250 ms
        clock.move(0.25)
        reply = run.post(frame("host-1", 3), token)
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (429, "overloaded", "3")
        assert len(frames_of(run.records())) == 2
        backlog[0] = 0
        clock.move(0.25)
        assert run.post(frame("host-1", 3), token).status == 200


def test_bodies_in_memory_are_bounded_over_all_requests(tmp_path: Path):
    with serving(tmp_path, body_bytes=1000, in_flight_bytes=1000) as run:
        token = run.token()
        waiting = http.client.HTTPConnection("127.0.0.1", run.port, timeout=20)
        waiting.putrequest("POST", "/v1/frames")
        headers = {"Content-Type": "application/x-secondsight-frame", "Authorization": f"Bearer {token}"}
        for name, value in (headers | {"Content-Length": "900"}).items():
            waiting.putheader(name, value)
        waiting.endheaders(b"x" * 800)
        reply = run.post(b"x" * 800, token)
        while reply.code == "bad_frame":  # the waiting request was not read yet
            reply = run.post(b"x" * 800, token)
        assert (reply.status, reply.code) == (429, "overloaded")
        waiting.close()
        while run.post(frame(), token).status != 200:
            pass
        assert "gateway_in_flight_bytes 0\n" in run.call("GET", "/metrics").body.decode()


def test_a_body_that_never_ends_is_given_up(tmp_path: Path):
    with serving(tmp_path, body_timeout_seconds=0.05) as run:
        headers = {"Content-Type": "application/x-secondsight-frame", "Authorization": f"Bearer {run.token()}"}
        waiting = http.client.HTTPConnection("127.0.0.1", run.port, timeout=20)
        waiting.putrequest("POST", "/v1/frames")
        for name, value in (headers | {"Content-Length": "900"}).items():
            waiting.putheader(name, value)
        waiting.endheaders(b"x")
        assert waiting.getresponse().status == 408
        waiting.close()


def test_a_head_that_never_ends_is_given_up(tmp_path: Path):
    with serving(tmp_path, head_timeout_seconds=0.05) as run:
        for begun in (b"", b"POST /v1/frames HTTP/1.1\r\nHost: x\r\n"):
            with socket.create_connection(("127.0.0.1", run.port), timeout=20) as waiting:
                waiting.sendall(begun)
                assert waiting.recv(1) == b""
        slow = http.client.HTTPConnection("127.0.0.1", run.port, timeout=20)
        for _ in range(2):
            slow.request("GET", "/healthz")
            assert slow.getresponse().read()
        slow.close()


def test_a_head_without_end_is_cut_off(tmp_path: Path):
    with serving(tmp_path) as run, socket.create_connection(("127.0.0.1", run.port), timeout=20) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\n")
        lines = b"".join(b"x-%d: %s\r\n" % (number, b"y" * 1000) for number in range(20_000))
        with pytest.raises(ConnectionError):
            endless.sendall(lines)


def test_refused_callers_are_audited_once_with_their_number(tmp_path: Path):
    with serving(tmp_path) as run:
        token = run.token("host-1")
        for _ in range(3):
            assert run.post(frame("host-1"), "wrong").status == 401
            assert run.post(frame("host-2"), token).status == 403
        assert run.post(b"nonsense", token).status == 400
        subject = list_tokens(run.stores.metadata, "t1")[0].token_id
    engine = open_engine(str(tmp_path / "metadata.sqlite"))
    with engine.connect() as connection:
        rows = connection.execute(select(AUDIT)).all()
    engine.dispose()
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        counted[row.subject, row.action, row.outcome] += int(row.detail.split()[0])
    assert counted == {
        ("address:127.0.0.1", "ingest frames", "token_invalid"): 3,
        (f"token:{subject}", "ingest frames", "collector_not_allowed"): 3,
    }


def test_refusals_are_kept_within_bounds_until_they_can_be_written():
    written: list[AuditEntry] = []
    failures = iter((True, True))

    def write(entries: Sequence[AuditEntry]) -> None:
        if next(failures, False):
            raise Retryable("away")
        written.extend(entries)

    async def run() -> None:
        refusals = Refusals(write, lambda: NOW_MS)
        for number in range(DISTINCT_MAXIMUM + 50):
            refusals.note(f"address:{number}", "", "token_invalid", "frames")
        await refusals.close()  # away
        refusals.note("address:1", "", "token_invalid", "frames")
        await refusals.close()  # away
        refusals.note("address:1", "", "token_invalid", "frames")
        await refusals.close()
        await refusals.close()

    asyncio.run(run())
    assert len(written) == DISTINCT_MAXIMUM + 1
    assert {entry.subject: entry.detail for entry in written}.items() >= {("", "50 times"), ("address:1", "3 times")}


def test_concurrent_posts_share_appends_and_are_all_durable(tmp_path: Path):
    hosts, posts = 8, 12
    flaky: list[FlakyLog] = []

    def counted(stores: Stores) -> Stores:
        flaky.append(FlakyLog(stores.ingest))
        return replace(stores, ingest=flaky[0])

    with serving(tmp_path, change=counted) as run:
        token = run.token()

        def send(host: int) -> list[bytes]:
            sent = [frame(f"host-{host}", sequence) for sequence in range(1, posts + 1)]
            assert [run.post(body, token).json["accepted"] for body in sent] == [1] * posts
            return sent

        with ThreadPoolExecutor(hosts) as threads:
            sent = [body for bodies in threads.map(send, range(hosts)) for body in bodies]
        stored = frames_of(run.records())
    assert sorted(stored) == sorted(sent)
    per_host: dict[str, list[int]] = {}
    for body in stored:
        header = read_header(body).header
        per_host.setdefault(header.host_id, []).append(header.first_sequence)
    assert all(sequences == sorted(sequences) for sequences in per_host.values())


def test_a_plan_is_handed_out_once_and_only_changes_are_sent(tmp_path: Path):
    with serving(tmp_path) as run:
        headers = {"Authorization": f"Bearer {run.token('host-1,node-7')}"}
        first = run.call("GET", "/v1/agents/host-1/plan?host=node-7", headers=headers)
        assert first.status == 200
        assert first.json["kinds"]["gpu"] == {"intervalMs": 1000, "metrics": "all"}
        again = run.call("GET", "/v1/agents/host-1/plan", headers=headers | {"If-None-Match": first.headers["etag"]})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
        long = run.call("GET", f"/v1/agents/host-1/plan?host={'x' * 600}", headers=headers)
        assert (long.status, long.code) == (400, "bad_host")
        other = run.call("GET", "/v1/agents/host-2/plan", headers=headers)
        assert (other.status, other.code) == (403, "collector_not_allowed")
        assert run.post(frame(), run.token()).headers["x-secondsight-plan"] == first.headers["etag"]
        plans = plans_of(run.records())
    assert {plan["host_id"] for plan in plans} == {"node-7"}
    assert len(plans) == 7
    with serving(tmp_path) as restarted:
        headers = {"Authorization": f"Bearer {restarted.token()}"}
        assert restarted.call("GET", "/v1/agents/host-1/plan?host=node-7", headers=headers).status == 200
        assert len(plans_of(restarted.records())) == 7
    with serving(tmp_path, interval_ms=5000) as changed:
        headers = {"Authorization": f"Bearer {changed.token()}"}
        reply = changed.call("GET", "/v1/agents/host-1/plan?host=node-7", headers=headers)
        assert reply.headers["etag"] != first.headers["etag"]
        written = plans_of(changed.records())[7:]
    assert sorted((plan["interval_ms"], plan["version"], plan["to_ms"]) for plan in written) == (
        [(1000, 1, NOW_MS)] * 7 + [(5000, 2, None)] * 7
    )


def test_a_collector_that_never_asks_gets_a_plan_learnt_from_its_frames(tmp_path: Path):
    sent = encode(stamp("host-1", 1, NOW_MS, ticks=3, interval_ms=30_000), content(ticks=3), inline=True)
    with serving(tmp_path) as run:
        token = run.token()
        assert run.post(sent, token).status == 200
        assert run.post(frame("host-1", 9), token).status == 200
        plans = plans_of(run.records())
    expected = {"collector_id": "host-1", "host_id": "host-1", "kind": "gpu", "interval_ms": 30_000}
    assert plans == [expected | {"from_ms": NOW_MS - 2000, "to_ms": None, "version": 1}]
    with serving(tmp_path) as restarted:
        assert restarted.post(frame("host-1", 10), restarted.token()).status == 200
        assert len(plans_of(restarted.records())) == 1


def cadence(sequence: int, newest_ms: int, interval_ms: int) -> bytes:
    return encode(stamp("host-1", sequence, newest_ms, interval_ms=interval_ms), content(), inline=True)


def test_a_learnt_plan_follows_a_cadence_that_was_changed(tmp_path: Path):
    start_ms = NOW_MS - 600_000
    with serving(tmp_path) as run:
        token = run.token()
        sent = [
            cadence(1, start_ms, 1000),
            cadence(2, start_ms + 1000, 1000),
            cadence(3, start_ms + 30_000, 30_000),  # both cadences may go on side by side
            cadence(4, start_ms + 90_000, 30_000),  # the old one has gone
            cadence(5, start_ms + 500, 1000),  # a backlog of the old one changes nothing
        ]
        assert [run.post(body, token).status for body in sent] == [200] * 5
        plans = plans_of(run.records())
    assert [(plan["interval_ms"], plan["from_ms"], plan["to_ms"]) for plan in plans] == [
        (1000, start_ms, None),
        (1000, start_ms, start_ms + 30_000),
        (30_000, start_ms + 30_000, None),
    ]


@pytest.mark.parametrize("together", [False, True])
def test_a_cadence_is_left_at_the_first_tick_of_the_next_one(tmp_path: Path, together: bool):
    start_ms = NOW_MS - 900_000
    times = start_ms + 30_000 * np.arange(20, dtype=np.int64)
    long = Stamp("host-1", "host-1", "nvml", 77, 1, 20, times, 30_000)
    sent = [encode(long, content(ticks=20), inline=True)]
    sent += [cadence(21 + number, start_ms + 600_000 + 1000 * number, 1000) for number in range(100)]
    with serving(tmp_path) as run:
        token = run.token()
        assert [run.post(body, token).status for body in ([b"".join(sent)] if together else sent)][-1] == 200
        plans = plans_of(run.records())
    assert [(plan["interval_ms"], plan["from_ms"], plan["to_ms"]) for plan in plans] == [
        (30_000, start_ms, None),
        (30_000, start_ms, start_ms + 600_000),
        (1000, start_ms + 600_000, None),
    ]


def test_head_is_answered_as_get_and_a_wrong_method_is_told_the_right_one(tmp_path: Path):
    with serving(tmp_path) as run:
        got, asked = run.call("GET", "/healthz"), run.call("HEAD", "/healthz")
        assert (asked.status, asked.body) == (200, b"")
        assert asked.headers["content-length"] == got.headers["content-length"]
        for method, path, allowed in (("DELETE", "/healthz", "GET, HEAD"), ("GET", "/v1/frames", "POST")):
            refused = run.call(method, path)
            assert (refused.status, refused.headers["allow"]) == (405, allowed)


def claim(collector_id: str, host_id: str, entities_host_id: str) -> bytes:
    return encode(stamp(host_id, collector_id=collector_id), content(entities_host_id), inline=True)


@pytest.mark.parametrize(
    ("pattern", "collector_id", "host_id", "entities_host_id", "allowed"),
    [
        ("host-1", "host-1", "host-1", "host-1", True),
        ("host-1", "host-1/dcgm", "host-1", "host-1", True),
        ("host-1", "host-1", "host-2", "host-2", False),
        ("host-1", "host-1/dcgm", "host-2", "host-1", False),
        ("host-1", "host-1", "host-1", "host-2", False),
        ("host-1/dcgm", "host-1/dcgm", "host-1", "host-1", True),
        ("host-*", "host-1", "host-2", "host-3", True),
        ("host-*", "host-1", "host-1", "other", False),
        ("*", "host-1", "host-2", "other", True),
    ],
)
def test_a_bound_token_speaks_for_its_hosts_alone(
    tmp_path: Path, pattern: str, collector_id: str, host_id: str, entities_host_id: str, allowed: bool
):
    with serving(tmp_path) as run:
        token = run.token(pattern)
        answer = run.post(claim(collector_id, host_id, entities_host_id), token)
        if allowed:
            assert answer.status == 200
        else:
            assert (answer.status, answer.code) == (403, "host_not_allowed")
            assert run.records() == []


def test_a_bound_token_puts_no_plan_on_record_for_another_host(tmp_path: Path):
    with serving(tmp_path) as run:
        headers = {"Authorization": f"Bearer {run.token('host-1')}"}
        assert run.call("GET", "/v1/agents/host-1/plan?host=host-2", headers=headers).code == "host_not_allowed"
        assert run.records() == []
        assert run.call("GET", "/v1/agents/host-1/plan?host=host-1", headers=headers).status == 200


def test_a_plan_that_could_not_be_announced_is_announced_later(tmp_path: Path):
    flaky: list[FlakyLog] = []

    def away(stores: Stores) -> Stores:
        flaky.append(FlakyLog(stores.ingest))
        flaky[0].away = True
        return replace(stores, ingest=flaky[0])

    with serving(tmp_path, change=away) as run:
        assert run.post(frame(), run.token()).status == 503
    with serving(tmp_path) as restarted:
        assert restarted.post(frame(), restarted.token()).status == 200
        assert [plan["version"] for plan in plans_of(restarted.records())] == [1]


def test_secrets_are_in_no_log_and_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with serving(tmp_path) as run:
        secret = run.token("host-1")
        answers = [
            run.post(frame("host-2"), secret),
            run.post(b"garbage", secret),
            run.call("GET", f"/v1/agents/{secret}/plan", headers={"Authorization": f"Bearer {secret}"}),
            run.post(frame("host-1"), secret + "x"),
        ]
    assert [answer.status for answer in answers] == [403, 400, 403, 401]
    assert secret not in caplog.text
    assert not any(secret.encode() in answer.body for answer in (answers[0], answers[1], answers[3]))


def test_a_revoked_token_stops_working_within_seconds(tmp_path: Path):
    clock = ManualClock(NOW_MS)
    with serving(tmp_path, clock) as run:
        secret = run.token()
        assert run.post(frame("host-1", 1), secret).status == 200
        identity = run.gateway._authenticator.authenticate(secret)
        assert revoke_token(run.stores.metadata, identity.subject.removeprefix("token:"), NOW_MS)
        clock.move(5)
        assert run.post(frame("host-1", 2), secret).status == 401


def test_counts_are_exposed(tmp_path: Path):
    with serving(tmp_path) as run:
        token = run.token()
        run.post(frame(), token)
        run.post(frame(), token)
        run.post(frame("host-1", 2, newest_ms=NOW_MS + 360_000), token)
        run.post(b"garbage", token)
        text = run.call("GET", "/metrics").body.decode()
    for line in (
        'ingest_records_total{outcome="accepted"} 2',
        'ingest_records_total{outcome="duplicate"} 2',
        'ingest_records_total{outcome="quarantined"} 2',
        'ingest_dropped_records_total{reason="future"} 2',
        'gateway_refused_requests_total{code="truncated"} 1',
        'gateway_request_seconds_count{route="frames",status="200"} 3',
    ):
        assert f"{line}\n" in text


def test_health_and_readiness(tmp_path: Path):
    with serving(tmp_path) as run:
        assert run.call("GET", "/healthz").status == 200
        assert run.call("GET", "/readyz").status == 200
        assert (run.call("GET", "/nowhere").status, run.call("DELETE", "/v1/frames").status) == (404, 405)


def test_a_second_gateway_on_one_log_does_not_start(tmp_path: Path):
    with serving(tmp_path), pytest.raises(Permanent), serving(tmp_path):
        pass


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=20))
def test_gathered_work_is_in_order_and_within_size(submissions: list[list[int]]):
    calls: list[list[int]] = []

    async def run() -> None:
        gatherer = Gatherer[int, None]("test", lambda items: calls.append(list(items)), lambda item: item, 10)
        await asyncio.gather(*(gatherer.submit(items) for items in submissions))
        await gatherer.close()
        await gatherer.close()

    asyncio.run(run())
    assert [item for call in calls for item in call] == [item for items in submissions for item in items]
    assert all(sum(call) <= 10 or any(call == items for items in submissions) for call in calls)


def test_a_failing_call_fails_those_whose_items_it_had():
    started, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[str]) -> int:
        started.set()
        go_on.wait(10)
        if "bad" in items:
            raise Retryable("no")
        return len(items)

    async def run() -> list[object]:
        gatherer = Gatherer[str, int]("test", work, len, 100)
        first = asyncio.create_task(gatherer.submit(["good"]))
        await asyncio.to_thread(started.wait)
        rest = [asyncio.create_task(gatherer.submit([word])) for word in ("bad", "beside")]
        await asyncio.sleep(0)
        go_on.set()
        outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
        later = await gatherer.submit(["good", "good"])
        await gatherer.close()
        return [*outcomes, later]

    first, bad, beside, later = asyncio.run(run())
    assert (first, later) == (1, 2)
    assert isinstance(bad, Retryable)
    assert isinstance(beside, Retryable)


def test_repeats_are_remembered_within_bounds():
    repeats = Repeats(remembered_frames=3)
    repeats.add(range(5))
    assert [key in repeats for key in range(5)] == [False, False, True, True, True]


def test_durations_fall_into_their_buckets():
    durations = Durations()
    assert durations.render() == ""
    for seconds in (0.001, 0.0011, 99.0):
        durations.observe("frames", 200, seconds)
    text = durations.render()
    assert 'le="0.001"} 1\n' in text
    assert 'le="0.0025"} 2\n' in text
    assert 'le="+Inf"} 3\n' in text


@pytest.mark.parametrize(
    "given_settings",
    [{"data": "/d", "nonsense": 1}, {"data": "/d", "tls_key": "/k"}, {"data": "/d", "partitions": 0}, {}],
)
def test_wrong_settings_are_errors(given_settings: dict[str, object]):
    with pytest.raises(Rejected) as caught:
        build(GatewayConfig, given_settings, "gateway")
    assert caught.value.code == "bad_config"


@pytest.mark.parametrize("listen", ["", "8471", "localhost:", "host:port"])
def test_wrong_addresses_are_errors(listen: str):
    with pytest.raises(Rejected):
        open_listening(listen)


def test_an_agent_is_what_stands_before_the_first_slash():
    assert [agent_id(name) for name in ("host-1", "host-1/dcgm", "host-1/a/b")] == ["host-1"] * 3
