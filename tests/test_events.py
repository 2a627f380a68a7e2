"""Events by `POST /v1/events`: what is taken, what is refused and why, and that telling again doubles nothing."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events_rig import NOW_MS, Platform, platform
from secondsight.access.eventids import FORGET_SECONDS, KEPT_MS, Claim, EventIds, Held, id_hash
from secondsight.access.metadata import open_metadata
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds
from secondsight.gateway.events.body import read_body
from secondsight.gateway.events.item import _FIELDS, Reading, read_event
from secondsight.store.chdb import ChdbStore
from secondsight.wire.content import Event
from secondsight.wire.events import read_events, read_infos, write_events, write_infos

CASES = Path(__file__).parent / "cases" / "events"
GPU = "GPU-00000000-0000-0000-0000-00000000000a"
READING = Reading(load_catalog(), "ops", NOW_MS, Bounds(300_000, 86_400_000))
EXIT = {"metric": "job_exit", "time": NOW_MS - 5000, "job": "j1", "code": 0}

XID_LINE = json.dumps({"metric": "gpu_xid", "time": NOW_MS, "host": "h1", "gpu": GPU, "code": 79}).encode()


@pytest.fixture
def site(tmp_path: Path, store: ChdbStore) -> Iterator[Platform]:
    for table in ("events", "event_history", "allocations", "dead_letters", "infos"):
        store.query(f"TRUNCATE TABLE {table}")
    with platform(tmp_path, store) as made:
        yield made


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((CASES / "items.json").read_text())
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["name"])
def test_what_an_event_says_is_stored_or_refused_by_name(case: dict[str, Any]) -> None:
    fields = {"time": NOW_MS - 5000} | case["event"]
    if "refused" in case:
        with pytest.raises(Rejected) as refused:
            read_event({name: value for name, value in fields.items() if value is not None}, READING)
        assert refused.value.code == case["refused"]
        return
    said = read_event(fields, READING)
    item = said.item
    got = {"kind": said.kind.value, "host": said.host, "metric": item.metric, "entity": item.entity}
    got |= {name: getattr(item, name) for name in ("code", "end_ms", "version") if name in case["stored"]}
    got |= {"attributes": dict(item.attributes)} if "attributes" in case["stored"] else {}
    got |= {"time_ms": item.time_ms} if "time_ms" in case["stored"] else {}
    assert got == case["stored"]


def test_events_of_many_forms_become_rows_and_are_read_back(site: Platform) -> None:
    taken = [
        site.events(EXIT | {"id": "e1", "message": "done", "team": "team-a"}),
        site.events({"events": [EXIT | {"job": "j2", "code": 137}]}),
        site.events(XID_LINE + b'\n\n{"metric":', content_type="application/x-ndjson"),
        site.events(gzip.compress(json.dumps([EXIT | {"job": "j3"}]).encode()), Content_Encoding="gzip"),
        site.events(
            {"specversion": "1.0", "id": "7", "source": "ci", "type": "org.example.platform_deployment",
             "subject": "gateway", "time": "2023-11-14T22:13:19Z", "traceparent": "00-ab",
             "data": {"code": "finished", "attributes": {"version": "1.4.2"}}},
            content_type="application/cloudevents+json",
        ),
        site.events({"code": 1}, ce_specversion="1.0", ce_id="8", ce_source="ci", ce_type="platform_deployment",
                    ce_subject="api", ce_time="2023-11-14T22:13:19Z"),
    ]  # fmt: skip
    assert [reply.status for reply in taken] == [200] * 6
    assert [reply.json["accepted"] for reply in taken] == [1] * 6
    assert [(one["index"], one["code"]) for one in taken[2].json["rejected"]] == [(1, "bad_json")]
    site.settle()
    with site.api() as api:
        page = api.get("/v1/events", from_=NOW_MS - 60_000, to=NOW_MS + 1000)
        assert page["total"] == 6
        found = {(one["metric"], one["entityId"], one["code"], one["meaning"]) for one in page["events"]}
        assert found == {
            ("job_exit", "j1", 0, None),
            ("job_exit", "j2", 137, None),
            ("job_exit", "j3", 0, None),
            ("gpu_xid", GPU, 79, None),
            ("platform_deployment", "gateway", 2, "finished"),
            ("platform_deployment", "api", 1, "started"),
        }
        times = [one["time"] for one in page["events"]]
        assert times == sorted(times, reverse=True)
        (first,) = api.get("/v1/events", job="j1", from_=NOW_MS - 60_000)["events"]
        assert (first["attributes"]["id"], first["team"], first["collectorId"]) == ("e1", "team-a", "ops/events")
        (xid,) = api.get("/v1/events", gpu=GPU, metric="xid", host="h1", from_=NOW_MS - 60_000)["events"]
        assert (xid["gpuId"], xid["collectorId"]) == (GPU, "ops/events/h1")
        few = api.get("/v1/events", limit=2, from_=NOW_MS - 60_000)
        rest = api.get("/v1/events", limit=4, cursor=few["nextCursor"], from_=NOW_MS - 60_000)
        assert (len(few["events"]), len(rest["events"]), rest["nextCursor"]) == (2, 4, None)
        assert api.get("/v1/events", "other", from_=NOW_MS - 60_000)["total"] == 0
        assert api.get("/v1/events", code="137,79", kind="process_job", from_=NOW_MS - 60_000)["total"] == 1
        for wrong in ({"kind": "cat"}, {"code": "x"}, {"from_": "now", "to": "now-1h"}, {"metric": "nothing_such"}):
            assert api.ask("GET", "/v1/events", **wrong).status_code in (400, 404, 422)


def test_telling_again_doubles_nothing_through_any_gateway(site: Platform, tmp_path: Path) -> None:
    body = [EXIT | {"id": "e1"}, EXIT | {"job": "j2"}, EXIT | {"job": "j2"}]
    first, second = site.events(body), site.events(body)
    assert (first.json["accepted"], first.json["duplicate"]) == (2, 1)
    assert (second.json["accepted"], second.json["duplicate"]) == (0, 3)
    assert second.status == 200
    site.run.gateway._intake._repeats.__init__()
    from secondsight.gateway.repeats import Repeats

    routes = site.run.gateway._foreign["/v1/events"][1].__self__
    routes._intake._durable = Repeats()
    assert site.events(body[1:]).json["accepted"] == 1
    site.settle()
    assert len(site.rows("events")) == 2
    assert len(site.rows("event_history")) == 2


def test_115_one_id_never_means_two_things(site: Platform) -> None:
    """The first that an id was used for stands, in each tenant; the same again is a duplicate."""
    lines = [json.loads(line) for line in (CASES / "115-retried-usage-event.jsonl").read_text().splitlines()]
    tokens = {tenant: site.run.token(tenant_id=tenant, name="meter") for tenant in ("t1", "t2")}
    got = []
    for line in lines:
        event = {"metric": "job_lifecycle", "job": "j", "code": 3, "time": NOW_MS, "id": line["id"]}
        reply = site.events(event | {"attributes": {"gpu_s": line["gpu_s"]}}, tokens[line["tenant"]])
        got.append((line["tenant"], reply.status, reply.json["accepted"], reply.json["duplicate"]))
    assert got == [("t1", 200, 1, 0), ("t1", 200, 0, 1), ("t2", 200, 1, 0), ("t1", 409, 0, 0)]
    site.settle()
    kept = site.rows("events", "tenant_id, attributes['gpu_s'] AS gpu_s")
    assert [(row["tenant_id"], row["gpu_s"]) for row in kept] == [("t1", "3600"), ("t2", "10")]
    (letter,) = site.rows("dead_letters", "code, payload")
    assert letter["code"] == "id_conflict"


def test_ids_are_remembered_for_a_month_and_the_first_meaning_stands_for_all_gateways(tmp_path: Path) -> None:
    metadata, clock = open_metadata(str(tmp_path / "m.sqlite")), ManualClock(NOW_MS)
    gateways = [EventIds(metadata, clock) for _ in range(2)]
    name = id_hash("t1", "e1")
    mine, other = Claim(name, b"a" * 16), Claim(name, b"b" * 16)
    many = [Claim(id_hash("t1", str(number)), b"c" * 16) for number in range(1200)]
    assert gateways[0].claim([mine, other])[name] == Held(b"a" * 16, is_new=True)
    assert gateways[1].claim([other])[name] == Held(b"a" * 16, is_new=False)
    assert id_hash("t2", "e1") not in gateways[1].claim([mine])
    assert {held.is_new for held in gateways[0].claim(many).values()} == {True}
    assert {held.is_new for held in gateways[1].claim(many).values()} == {False}
    clock.step_wall(KEPT_MS / 1000 + 1)
    clock.move(2 * FORGET_SECONDS)
    assert gateways[0].claim([other])[name] == Held(b"b" * 16, is_new=True)
    metadata.dispose()


def test_a_list_takes_what_it_can_and_an_event_alone_has_a_status(site: Platform) -> None:
    mixed = [EXIT, {"metric": "nothing_such"}, EXIT | {"time": NOW_MS + 10**7}, 7, EXIT | {"host": "h9", "color": 1}]
    reply = site.events(mixed)
    assert (reply.status, reply.json["accepted"]) == (200, 1)
    codes = {one["index"]: one["code"] for one in reply.json["rejected"]}
    assert codes == {1: "unknown_metric", 2: "future_time", 3: "bad_event", 4: "bad_event"}
    alone = {
        400: EXIT | {"code": "x"},
        403: {"metric": "node_boot", "host": "not-mine", "code": 0, "time": NOW_MS},
        413: EXIT | {"attributes": {"a": "x" * 70_000}},
    }
    narrow = site.run.token("ops-*,ops", name="ops")
    for status, event in alone.items():
        reply = site.events(event, narrow if status == 403 else "")
        assert (reply.status, reply.json["accepted"]) == (status, 0)
        assert reply.code == reply.json["rejected"][0]["code"]
    site.settle()
    letters = site.rows(
        "dead_letters", "stage, code, metric, host_id, rows, `values`, payload, log_offset", order="code"
    )
    assert {row["code"] for row in letters} == {*codes.values(), "bad_code", "host_not_allowed", "event_too_large"}
    assert all(row["payload"] and row["log_offset"] >= 0 for row in letters)
    assert site.rows("ledger", where="outcome != 'begun'") == []


def test_whole_bodies_are_refused_for_what_they_are(site: Platform) -> None:
    many = [EXIT] * 10_001
    told = {
        "content_type": site.events(b"{}", content_type="text/plain"),
        "bad_json": site.events(b"{"),
        "bad_event": site.events(b"7"),
        "too_many_events": site.events(many),
        "token_missing": site.run.call("POST", "/v1/events", b"[]", {"Content-Type": "application/json"}),
        "role_cannot_write": site.events([], site.tokens["viewer"]),
        "content_encoding": site.events(b"x", Content_Encoding="br"),
        "bad_body": site.events(b"x", Content_Encoding="gzip"),
        "method_not_allowed": site.run.call("PUT", "/v1/events"),
    }
    statuses = {code: (reply.code, reply.status) for code, reply in told.items()}
    assert {code: got for code, (got, _) in statuses.items()} == {code: code for code in told}
    assert {code: status for code, (_, status) in statuses.items()} == {
        "content_type": 415,
        "bad_json": 400,
        "bad_event": 400,
        "too_many_events": 413,
        "token_missing": 401,
        "role_cannot_write": 403,
        "content_encoding": 415,
        "bad_body": 400,
        "method_not_allowed": 405,
    }
    assert site.events([]).json == {"accepted": 0, "duplicate": 0, "rejected": []}


def test_a_job_that_begins_and_ends_owns_its_gpu_meanwhile_and_every_version_is_kept(site: Platform) -> None:
    begins = {"metric": "job_gpu_allocation", "time": NOW_MS - 60_000, "host": "h1", "gpu": GPU.upper(), "job": "j1",
              "team": "team-a", "model": "llama", "id": "start-1", "message": "began"}  # fmt: skip
    ends = begins | {"endTime": NOW_MS - 1000, "id": "end-1", "message": "ended"}
    assert [site.events(one).status for one in (begins, ends, begins)] == [200, 200, 200]
    site.settle()
    (row,) = site.rows("allocations", "entity, job_id, owner_team, model_id, version, isNull(end_time) AS open")
    assert row == {
        "entity": GPU, "job_id": "j1", "owner_team": "team-a", "model_id": "llama", "version": 2, "open": 0
    }  # fmt: skip
    site.store.query("OPTIMIZE TABLE events FINAL")
    site.store.query("OPTIMIZE TABLE event_history FINAL")
    (newest,) = site.rows("events", "event_version, attributes['note'] AS note")
    assert newest == {"event_version": 2, "note": "ended"}
    with site.api() as api:
        told = api.get("/v1/events", history="true", metric="job_gpu_allocation", from_=NOW_MS - 120_000)["events"]
        assert [(one["version"], one["endTime"] is None) for one in told] == [(1, True), (2, False)]
        assert [one["attributes"]["event_id"] for one in told] == ["start-1", "end-1"]


def test_facts_are_taken_and_read(site: Platform) -> None:
    fact = {"metric": "job_info", "job": "j1", "time": NOW_MS, "attributes": {"image": "train:7", "nodes": 4}}
    assert site.events([fact, fact | {"time": NOW_MS + 1000}]).json["accepted"] == 2
    site.settle()
    with site.api() as api:
        facts = api.get("/v1/infos", metric="job_info", job="j1", from_=NOW_MS - 1000, to=NOW_MS + 60_000)["facts"]
        assert [one["attributes"] for one in facts] == [{"image": "train:7", "nodes": "4", "job_id": "j1"}] * 2
        assert api.get("/v1/infos", "other", from_=NOW_MS - 1000)["total"] == 0


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20)
WORDS = st.sampled_from(
    ["job_exit", "gpu_xid", "node_boot", "job_gpu_allocation", "job_info", "h1", "GPU-a", "17", NOW_MS, 2, "started"]
)
VALUES = st.recursive(
    SCALARS | WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
NAMES = st.sampled_from([*_FIELDS, "specversion", "type", "source", "subject", "data"])
FIELDS = st.dictionaries(NAMES | st.text(max_size=6), VALUES | WORDS, max_size=9)


@settings(max_examples=300, deadline=None)
@given(fields=FIELDS | FIELDS.map(lambda more: EXIT | more), cut=st.integers(0, 400))
def test_whatever_is_sent_is_an_event_that_a_frame_can_hold_or_is_refused(fields: dict[str, Any], cut: int) -> None:
    text = json.dumps(fields).encode()
    for body in (text, text[:cut], b"[" + text + b"]"):
        for content_type in ("application/json", "application/x-ndjson"):
            try:
                pieces = read_body(body, content_type, {}).items
            except Rejected:
                continue
            for piece in pieces:
                _take(piece.fields)


def _take(fields: Any) -> None:
    if isinstance(fields, Rejected):
        return
    try:
        said = read_event(fields, READING)
    except Rejected:
        return
    if isinstance(said.item, Event):
        assert read_events(write_events((said.item,))) == (said.item,)
    else:
        assert read_infos(write_infos((said.item,))) == (said.item,)
