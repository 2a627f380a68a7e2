"""Dead letters: seen by those who may, sent again after what was wrong is put right, and never stored twice."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from events_rig import NOW_MS, Api, Platform, platform
from foreign_index import first_request, series_message, snappy
from gateway_fixture import column, content, frame, stamp
from secondsight.catalog.load import load_catalog
from secondsight.cli import main
from secondsight.clock import ManualClock
from secondsight.errors import Retryable
from secondsight.process.balance import differences
from secondsight.process.deadletter import drop_letters
from secondsight.replay.again import places_between, records_of_files, tell_again
from secondsight.replay.journal import Journal
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.wire.content import Event
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope, partition_key
from secondsight.wire.frame import encode
from secondsight.wire.letters import letter_id

LAB = Path(__file__).parent / "cases" / "events" / "catalogue" / "gpu.toml"
START = NOW_MS - 10**6
STRAIN, TOUCH = "gpu_lab_strain_ratio", "gpu_lab_touch"
REMOTE_WRITE = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
TABLES = ("events", "event_history", "dead_letters", "ledger", "gpu_1s", "gpu_30s", "progress", "entities")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


Open = Callable[..., Any]


@pytest.fixture
def site(tmp_path: Path, store: ChdbStore, clock: ManualClock) -> Open:
    """Open the platform, again and with other catalogues as often as asked."""
    for table in TABLES:
        store.query(f"TRUNCATE TABLE {table}")

    def opened(*catalogue: Path) -> Any:
        migrate(store, load_catalog(catalogue))
        return platform(tmp_path, store, catalogue, clock)

    return opened


def letters(api: Api, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/v1/deadletters", to=NOW_MS + 10**8, **({"from_": START} | params))[
        "letters"
    ]
    return found


def replay(api: Api, some: list[dict[str, Any]], *, dry: bool = False, who: str = "operator") -> list[tuple[str, str]]:
    """Send letters again and return what became of each."""
    named = ("id", "partition", "offset", "stage", "code", "metric")
    body = {"dryRun": dry, "letters": [{name: one[name] for name in named} for one in some]}
    answer = api.ask("POST", "/v1/deadletters/replay", who, body)
    assert answer.status_code == 200, answer.text
    return [(one["outcome"], one["code"]) for one in answer.json()["results"]]


def ledger(one: Platform) -> dict[tuple[str, str], int]:
    """Return (outcome, reason) -> values, of what counts."""
    rows = one.rows("ledger", "outcome, reason, sum(`values`) AS v", "outcome != 'begun' GROUP BY outcome, reason")
    return {(row["outcome"], row["reason"]): row["v"] for row in rows if row["v"]}


def balanced(one: Platform) -> bool:
    found = ledger(one)
    refused = sum(found.get(key, 0) for key in found if key[0] in ("dead_letter", "quarantine"))
    told = found.get(("received", ""), 0)
    assert not differences(one.store, NOW_MS - 10**7, NOW_MS + 10**7)
    return told == found.get(("stored", ""), 0) + refused and ("unexplained", "more") not in found


def strained(sequence: int = 1) -> bytes:
    columns = [column("gpu_power_watts"), column(STRAIN)]
    return encode(stamp(sequence=sequence, newest_ms=NOW_MS, ticks=3), content(columns=columns, ticks=3), inline=True)


def test_a_metric_that_is_registered_later_joins_its_rows_and_the_ledger_balances(site: Open) -> None:
    with site() as one:
        assert [item["metric"] for item in one.run.post(strained(), one.token).json["rejected"]] == [STRAIN]
        one.settle()
        assert ledger(one) == {("received", ""): 12, ("stored", ""): 6, ("dead_letter", "unknown_metric"): 6}
        with one.api() as api:
            (letter,) = letters(api, reason="unknown_metric")
            assert (letter["metric"], letter["hostId"], letter["values"]) == (STRAIN, "host-1", 6)
            assert replay(api, [letter], dry=True) == [("refused", "unknown_metric")]
            assert replay(api, [letter]) == [("refused", "unknown_metric")]
    with site(LAB) as one, one.api() as api:
        one.settle()
        (letter,) = letters(api, replayed="false")
        assert replay(api, [letter], dry=True) == [("replayed", "")]
        assert letters(api, replayed="true") == []
        for _ in range(3):
            assert replay(api, [letter]) == [("replayed", "")]
            one.settle()
            stored = one.rows("gpu_1s", f"gpu_power_watts, {STRAIN}")
            assert len(stored) == 6
            assert all(None not in row.values() for row in stored)
            assert ledger(one) == {("received", ""): 12, ("stored", ""): 12}
            assert balanced(one)
        (marked,) = letters(api, replayed="true")
        assert marked["id"] == letter["id"]
        assert letters(api, replayed="false") == []
        assert [row["code"] for row in one.rows("dead_letters", "code", "stage = 'replayed'")] == ["unknown_metric"] * 3


def test_what_came_from_the_future_is_stored_when_it_is_the_past(site: Open, clock: ManualClock) -> None:
    with site() as one, one.api() as api:
        ahead = frame(sequence=4, newest_ms=NOW_MS + 600_000)
        assert [item["code"] for item in one.run.post(ahead, one.token).json["rejected"]] == ["future_time"]
        one.settle()
        (letter,) = letters(api, stage="quarantine")
        assert replay(api, [letter]) == [("refused", "future_time")]
        before = ledger(one)
        assert before["quarantine", "future_time"] == 6
        clock.step_wall(1000)
        assert replay(api, [letter]) == [("replayed", "")]
        one.settle()
        assert ("quarantine", "future_time") not in ledger(one)
        assert len(one.rows("gpu_1s", "entity", "host_id = 'host-1'")) == 2
        assert balanced(one)


def test_ticks_that_lay_ahead_of_their_admission_leave_the_quarantine(site: Open, clock: ManualClock) -> None:
    with site() as one, one.api() as api:
        times = _times(NOW_MS - 1000, NOW_MS + 400_000, NOW_MS + 401_000)
        body = encode(stamp(sequence=3, ticks=3, tick_times_ms=times), content(ticks=3), inline=True)
        one.run.post(frame(sequence=1), one.token)
        _append(one, body)
        one.settle()
        assert ledger(one) == {("received", ""): 12, ("stored", ""): 12, ("quarantine", "future_time"): 12}
        (letter,) = letters(api, stage="quarantine")
        clock.step_wall(1000)
        for _ in range(2):
            assert replay(api, [letter]) == [("replayed", "")]
            one.settle()
            assert ledger(one) == {("received", ""): 24, ("stored", ""): 24}
            assert balanced(one)


def test_a_frame_whose_definitions_come_later(site: Open) -> None:
    with site() as one, one.api() as api:
        bare = encode(stamp("host-3", 5), content("host-3"))
        _append(one, bare)
        one.settle()
        (letter,) = letters(api, reason="schema_unknown")
        assert ledger(one) == {("dead_letter", "schema_unknown"): 6}
        assert replay(api, [letter]) == [("refused", "schema_unknown")]
        one.run.post(frame("host-3", 1, newest_ms=NOW_MS - 5000), one.token)
        for _ in range(2):
            assert replay(api, [letter]) == [("replayed", "")]
            one.settle()
            assert ledger(one) == {("received", ""): 12, ("stored", ""): 12}


def test_poison_stops_nobody_and_says_that_it_can_never_be_sent_again(site: Open) -> None:
    with site() as one, one.api() as api:
        good, broken = frame("host-1", 1), frame("host-1", 2, newest_ms=NOW_MS + 1000)
        key = partition_key("t1", "c1", "host-1")
        one.run.post(good, one.token)
        one.run.stores.ingest.append([(key, b"no envelope"), (key, b"")])
        _append(one, broken[:-2] + b"\0\0")
        one.run.post(frame("host-1", 3, newest_ms=NOW_MS + 2000), one.token)
        one.settle()
        assert len(one.rows("gpu_1s", "entity")) == 4
        assert {row["code"] for row in one.rows("dead_letters", "code")} == {"bad_envelope", "bad_checksum"}
        found = letters(api)
        assert [row["code"] for row in found] == ["bad_checksum"]
        assert replay(api, found) == [("never", "bad_checksum")]
        assert ledger(one)["dead_letter", "bad_checksum"] == 6
        nobody = one.rows(
            "dead_letters", "id, log_partition, log_offset, code, stage, metric", "tenant_id = 'unreadable'"
        )
        assert len(nobody) == 2
        told = [
            {"id": f"{row['id']:016x}", "partition": row["log_partition"], "offset": row["log_offset"]}
            | {name: row[name] for name in ("code", "stage", "metric")}
            for row in nobody
        ]
        assert {outcome for outcome, _ in replay(api, told)} == {"refused"}
        one.settle()
        assert len(one.rows("gpu_1s", "entity")) == 4
        one.stop()
        one.start()
        one.settle()
        assert len(one.rows("dead_letters", "id")) == 3


def test_events_and_foreign_points_of_a_metric_that_is_registered_later(site: Open) -> None:
    touched = {"metric": TOUCH, "time": NOW_MS, "host": "host-1", "gpu": "GPU-a", "code": 3}
    place = [("UUID", "GPU-a"), ("Hostname", "host-1"), ("job", "lab")]
    series = [
        series_message([("__name__", name), *place], [(value, NOW_MS - 1000)])
        for name, value in (("lab_strain", 7.0), ("lab_mystery", 1.0), ("DCGM_FI_DEV_GPU_TEMP", 40.0))
    ]
    with site() as one:
        assert one.events([touched]).json["rejected"][0]["code"] == "unknown_metric"
        in_frame = encode(
            stamp("host-1", 1, tick_times_ms=_times()),
            _with_event(Event(TOUCH, "GPU-b", "", NOW_MS, 4)),
            inline=True,
        )
        one.run.post(in_frame, one.token)
        headers = {"Authorization": f"Bearer {one.token}", **REMOTE_WRITE}
        assert one.run.call("POST", "/api/v1/write", snappy(first_request(*series)), headers).status == 204
        one.settle()
        assert ledger(one)["dead_letter", "unknown_metric"] == 2
    with site(LAB) as one, one.api() as api:
        one.settle()
        for wanted in ("replayed", "refused"):
            found = letters(api, reason="unknown_metric", replayed="false")
            outcomes = replay(api, found)
            assert {outcome for outcome, _ in outcomes} == {wanted}
            one.settle()
            assert {(row["entity"], row["code"]) for row in one.rows("events", "entity, code")} == {
                ("GPU-a", 3),
                ("GPU-b", 4),
            }
            assert one.rows("gpu_1s", f"{STRAIN}, gpu_temperature_celsius") == [
                {STRAIN: 7, "gpu_temperature_celsius": 40}
            ]
            assert ledger(one)["dead_letter", "unknown_metric"] == 1


def test_what_can_never_be_sent_again_says_why(site: Open) -> None:
    with site() as one, one.api() as api:
        one.events(
            {"metric": "node_boot", "host": "not-mine", "code": 0, "time": NOW_MS}, one.run.token("ops", name="ops")
        )
        one.events([{"metric": "job_exit", "job": "j", "code": code, "time": NOW_MS, "id": "x"} for code in (0, 1)])
        one.settle()
        found = {row["code"]: row for row in letters(api)}
        assert replay(api, [found["host_not_allowed"], found["id_conflict"]]) == [
            ("never", "host_not_allowed"),
            ("never", "id_conflict"),
        ]
        gone = dict(found["id_conflict"])
        gone["offset"] = 10**6
        gone["id"] = f"{letter_id(gone['partition'], 10**6, gone['stage'], gone['code'], gone['metric']):016x}"
        assert replay(api, [gone]) == [("never", "record_gone")]
        assert replay(api, [found["id_conflict"]], who="other") == [("never", "not_yours")]
        forged = found["id_conflict"] | {"code": "unknown_metric"}
        body = {"letters": [forged]}
        assert api.ask("POST", "/v1/deadletters/replay", body=body).json()["error"]["code"] == "bad_request"
        assert api.ask("POST", "/v1/deadletters/replay", "viewer", {"letters": []}).status_code == 403


def test_operators_see_the_letters_of_their_tenant_with_their_bytes(
    site: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site() as one, one.api() as api:
        one.events([{"metric": "nothing_such", "time": NOW_MS, "host": "host-7"}] * 3)
        one.settle()
        (first, *_) = found = letters(api, host="host-7")
        assert len(found) == 3
        assert first["message"].startswith("there is no metric nothing_such")
        detail = api.get(f"/v1/deadletters/{first['id']}", from_=START)
        assert json.loads(base64.b64decode(detail["payload"]))["host"] == "host-7"
        assert api.get("/v1/deadletters", "other", from_=START)["total"] == 0
        assert api.ask("GET", "/v1/deadletters", "viewer").status_code == 403
        assert api.ask("GET", f"/v1/deadletters/{'0' * 16}").status_code == 404
        assert api.ask("GET", "/v1/deadletters/xyz").status_code == 400
        counted = api.get("/v1/deadletters/counts", from_=START)
        assert [(row["code"], row["letters"], row["replayed"]) for row in counted["reasons"]] == [
            ("unknown_metric", 3, 0)
        ]
        token = tmp_path / "operator"
        token.write_text(api.tokens["operator"])
        ends = ("--server", f"http://127.0.0.1:{api.client.port}", "--token-file", str(token))
        assert main(["deadletters", "list", "--from", str(START), *ends]) == 0
        assert "3 of 3" in capsys.readouterr().out
        assert main(["deadletters", "count", "--from", str(START), *ends]) == 0
        assert "unknown_metric" in capsys.readouterr().out
        assert main(["deadletters", "show", first["id"], "--from", str(START), *ends]) == 0
        assert "nothing_such" in capsys.readouterr().out
        assert main(["replay", "--from", str(START), *ends]) == 1
        out = capsys.readouterr().out
        assert "3 are still refused: unknown_metric" in out
        assert "(of host-7)" in out
        assert "dry run" in out
        assert main(["events", "--from", str(NOW_MS - 1000), *ends]) == 0
        assert "0 of 0" in capsys.readouterr().out


def _times(*times: int) -> Any:
    import numpy as np

    return np.array(times, np.int64)


def _with_event(event: Event) -> Any:
    from dataclasses import replace

    from secondsight.model import EntityKind
    from secondsight.wire.content import Content, EntityTable
    from secondsight.wire.schema import make_schema

    empty = Content(make_schema(EntityKind.GPU, ()), EntityTable(EntityKind.GPU, "host-1", "", ()))
    return replace(empty, events=(event,))


def _append(one: Platform, body: bytes) -> None:
    """Append a frame as a gateway that did not look would have."""
    host = "host-1"
    envelope = Envelope(RecordType.FRAME, "t1", "eu", "c1", one.clock.now_ms(), body)
    one.run.stores.ingest.append([(partition_key("t1", "c1", host), encode_envelope(envelope))])


def test_letters_are_deleted_by_months_and_their_bytes_are_bounded(site: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secondsight.process.lander.PAYLOAD_BYTES_PER_HOUR", 300)
    with site() as one:
        one.events([{"metric": "nothing_such", "time": NOW_MS, "host": "host-7"}] * 9)
        one.settle()
        kept = [row["n"] for row in one.rows("dead_letters", "length(payload) AS n")]
        assert len(kept) == 9
        assert 0 < sum(kept) <= 300
        assert drop_letters(one.store, NOW_MS) == []
        assert drop_letters(one.store, NOW_MS + 40 * 86_400_000) == ["202311"]
        assert one.rows("dead_letters", "id") == []


def test_frames_of_the_log_are_told_again_and_what_was_lost_is_there_again(site: Open, clock: ManualClock) -> None:
    with site() as one, one.api() as api:
        for number in range(3):
            one.run.post(frame(sequence=number + 1, newest_ms=NOW_MS - 100_000 + 1000 * number), one.token)
        one.settle()
        before = {table: one.rows(table, "* EXCEPT (version)") for table in ("gpu_1s", "gpu_30s")}
        assert before["gpu_1s"]
        root, told = one.run.config.data / "log", ledger(one)
        places = list(places_between(records_of_files(root, clock), 0, NOW_MS + 10**8))
        assert not list(places_between(records_of_files(root, clock), 0, NOW_MS - 10**8))
        for table in before:
            one.store.query(f"ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 1")
        one.stop()
        one.start()  # what it remembers having taken in it passes over
        for _ in range(2):
            body = {"records": [list(place) for place in [*places, (0, 10**6)]]}
            answer = api.ask("POST", "/v1/log/replay", body=body).json()
            assert answer == {"outcomes": {"gone": 1, "replayed": len(places)}}
            one.settle()
            assert {table: one.rows(table, "* EXCEPT (version)") for table in before} == before
            assert ledger(one) == told
        assert api.ask("POST", "/v1/log/replay", "other", {"records": [list(places[0])]}).json() == {
            "outcomes": {"not_yours": 1}
        }
        assert api.ask("POST", "/v1/log/replay", "viewer", {"records": []}).status_code == 403
        for wrong in ({"records": [[0]]}, {"records": [[0, -1]]}, {"records": {}}, {}):
            assert api.ask("POST", "/v1/log/replay", body=wrong).json()["error"]["code"] == "bad_request"


def test_a_replay_of_the_log_that_was_cut_off_goes_on_where_it_ended(tmp_path: Path) -> None:
    places = [(number % 3, number) for number in range(1_700)]
    sent: list[tuple[int, int]] = []

    def send(some: Any) -> None:
        if len(sent) == 1_000 and not is_back:
            raise Retryable("the gateway is away")
        sent.extend(some)

    is_back = False
    with pytest.raises(Retryable):
        tell_again(places, send, Journal(tmp_path / "journal", "a range"), lambda *_: None)
    is_back = True
    assert tell_again(places, send, Journal(tmp_path / "journal", "a range"), lambda *_: None) == 700
    assert sent == places
