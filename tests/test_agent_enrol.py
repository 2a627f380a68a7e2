"""A real agent enrols at a real gateway, renews its token, is revoked and admitted again, and loses nothing by it."""

import json
import logging
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from gateway_fixture import Running, read_ingest, serving
from secondsight.access.enrolment import JoinSpec, create_join_token, readmit, revoke
from secondsight.access.metadata import AUDIT, ENROLMENTS, TOKENS, reading
from secondsight.agent.client.enrol import EnrolSettings
from secondsight.agent.config import AgentConfig
from secondsight.agent.run import run_agent
from secondsight.clock import SystemClock
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import read_header

PATIENCE_SECONDS = 40.0


def config_of(folder: Path, run: Running, join: Path) -> AgentConfig:
    return AgentConfig(
        gateway=f"http://127.0.0.1:{run.port}",
        spool_dir=folder / "spool",
        host_id="host-1",
        collector_id="agent-1",
        interval_ms=100,
        batch_seconds=0.1,
        stop_seconds=3.0,
        enrol=EnrolSettings(join),
    )


@contextmanager
def running(config: AgentConfig) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def wait_for(condition: Callable[[], object], what: str) -> None:
    for _ in range(round(PATIENCE_SECONDS / 0.05)):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError(what)


def ticks_of(run: Running) -> list[int]:
    """Ticks of the host's own rows, as they are in the log."""
    heads = [
        read_header(record.body).header for record in read_ingest(run.config.data) if record.type is RecordType.FRAME
    ]
    return sorted({tick for head in heads if head.source == "self" for tick in head.tick_times_ms.tolist()})


def missing_records(run: Running) -> dict[int, set[int]]:
    """Spool -> records that are not in the log, though later ones are."""
    heads = [
        read_header(record.body).header for record in read_ingest(run.config.data) if record.type is RecordType.FRAME
    ]
    found: dict[int, set[int]] = {}
    for head in heads:
        found.setdefault(head.spool_id, set()).update(range(head.first_sequence, head.last_sequence + 1))
    missing = {spool: set(range(max(there) + 1)) - there for spool, there in found.items()}
    return {spool: records for spool, records in missing.items() if records}


def token_ids(run: Running) -> list[str]:
    with reading(run.stores.metadata) as connection:
        rows = connection.execute(
            select(TOKENS).where(TOKENS.c.host_id == "host-1").order_by(TOKENS.c.created_ms)
        ).all()
    return [row.token_id for row in rows]


def test_an_agent_enrols_renews_is_revoked_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    join = tmp_path / "join-token"
    with serving(tmp_path / "gateway", SystemClock(), agent_token_days=6 / 86_400) as run:
        metadata = run.stores.metadata
        secret = create_join_token(metadata, JoinSpec("t1", "fleet", "c1", "eu", "agent-*", 1), 0).secret
        join.write_text(secret + "\n")
        with running(config_of(tmp_path, run, join)):
            wait_for(lambda: len(ticks_of(run)) > 3, "nothing arrived after enrolment")
            token = tmp_path / "spool" / "token"
            first = token.read_text()
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            wait_for(lambda: token.read_text() != first and len(token_ids(run)) >= 2, "the token was not renewed")
            count = len(ticks_of(run))
            wait_for(lambda: len(ticks_of(run)) > count + 3, "nothing arrived after the renewal")
            what = revoke(metadata, "t1", token_ids(run)[-1], SystemClock().now_ms())
            assert what == "agent agent-1"
            wait_for(lambda: "collector_revoked" in caplog.text, "the agent does not say that it was revoked")
            wait_for(lambda: "401 token_" in caplog.text, "the gateway still takes what it sends")
            assert "waits in its spool" in caplog.text
            silent = ticks_of(run)
            threading.Event().wait(1.0)
            assert ticks_of(run) == silent
            assert readmit(metadata, "t1", "agent-1", SystemClock().now_ms())
            join.write_text(create_join_token(metadata, JoinSpec("t1", "again", "c1"), 0).secret)
            wait_for(lambda: len(ticks_of(run)) > len(silent) + 5, "nothing arrived after it was admitted again")
            secrets = {secret, first.strip(), token.read_text().strip(), join.read_text()}
        missing = missing_records(run)
        with reading(metadata) as connection:
            actions = [row.outcome for row in connection.execute(select(AUDIT).where(AUDIT.c.action == "agent_enrol"))]
            known = connection.execute(select(ENROLMENTS)).one()
    assert missing == {}
    assert actions.count("ok") >= 3
    assert "collector_revoked" in actions
    assert (known.collector_id, known.host_id) == ("agent-1", "host-1")
    assert not any(each in caplog.text for each in secrets)


def enrol(run: Running, secret: str, **changes: object) -> tuple[int, dict]:
    told = {"collectorId": "agent-1", "hostId": "host-1", "machine": "m1"} | changes
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    reply = run.call("POST", "/v1/agents/enroll", json.dumps(told).encode(), headers)
    return reply.status, reply.json


def test_who_may_enrol_as_what(tmp_path: Path):
    with serving(tmp_path) as run:
        metadata, now_ms = run.stores.metadata, run.clock.now_ms()
        join = create_join_token(
            metadata, JoinSpec("t1", "j", "c1", "eu", "agent-*", 2, now_ms + 60_000), now_ms
        ).secret
        status, first = enrol(run, join)
        assert status == 200
        assert first["expiresMs"] == now_ms + 30 * 86_400_000
        assert enrol(run, join, machine="m2")[1]["error"]["code"] == "collector_taken"
        status, again = enrol(run, join)
        assert (status, again["renewed"]) == (200, True)
        assert enrol(run, join, collectorId="other-1")[1]["error"]["code"] == "collector_not_allowed"
        assert enrol(run, join, collectorId="agent-2", hostId="host-2")[0] == 200
        assert enrol(run, join, collectorId="agent-3")[1]["error"]["code"] == "join_used_up"
        assert enrol(run, join)[0] == 200, "enrolling again uses nothing up"
        assert enrol(run, join + "x")[0] == 401
        assert enrol(run, run.token("agent-1"))[1]["error"]["code"] == "collector_not_allowed"
        assert enrol(run, again["token"], collectorId="agent-2")[1]["error"]["code"] == "collector_not_allowed"
        renewed = enrol(run, again["token"])[1]["token"]
        for secret, collector, host, status in (
            (renewed, "agent-1", "host-1", 200),
            (renewed, "agent-1/dcgm", "host-1", 200),
            (renewed, "agent-2", "host-1", 403),
            (renewed, "agent-1", "host-2", 403),
        ):
            path = f"/v1/agents/{collector}/plan?host={host}"
            assert run.call("GET", path, headers={"Authorization": f"Bearer {secret}"}).status == status
        for body in (
            {"collectorId": "a*"},
            {"collectorId": "a/b"},
            {"hostId": ""},
            {"machine": 7},
            {"machine": "m" * 300},
        ):
            assert enrol(run, join, **body)[1]["error"]["code"] == "bad_enrolment"
        assert run.call("GET", "/v1/agents/enroll").status == 405


def test_a_replaced_token_stays_good_for_its_grace_time(tmp_path: Path):
    with serving(tmp_path, agent_token_grace_hours=1) as run:
        join = create_join_token(run.stores.metadata, JoinSpec("t1", "j", "c1"), run.clock.now_ms()).secret
        old = enrol(run, join)[1]["token"]
        assert enrol(run, old)[0] == 200
        headers = {"Authorization": f"Bearer {old}"}
        assert run.call("GET", "/v1/agents/agent-1/plan?host=host-1", headers=headers).status == 200
        run.clock.move(3601)
        assert run.call("GET", "/v1/agents/agent-1/plan?host=host-1", headers=headers).code == "token_expired"


def test_a_machine_that_was_replaced_has_no_token_any_more(tmp_path: Path):
    with serving(tmp_path) as run:
        metadata, now_ms = run.stores.metadata, run.clock.now_ms()
        join = create_join_token(metadata, JoinSpec("t1", "j", "c1"), now_ms).secret
        old, known = (enrol(run, join)[1]["token"] for _ in range(2))
        headers = {"Authorization": f"Bearer {known}"}
        assert run.call("GET", "/v1/agents/agent-1/plan?host=host-1", headers=headers).status == 200
        assert readmit(metadata, "t1", "agent-1", now_ms)
        assert enrol(run, old, machine="thief")[0] == 401
        assert enrol(run, known)[1]["error"]["code"] == "collector_not_allowed", "remembered, and yet refused"
        assert enrol(run, join, machine="m2")[0] == 200
        assert enrol(run, join)[1]["error"]["code"] == "collector_taken"
        with reading(metadata) as connection:
            told = connection.execute(select(AUDIT.c.outcome, AUDIT.c.tenant_id).where(AUDIT.c.action == "agent_enrol"))
            refused = {row.outcome: row.tenant_id for row in told}
    assert refused["collector_taken"] == refused["collector_not_allowed"] == "t1"


def test_attempts_from_one_address_are_limited(tmp_path: Path):
    with serving(tmp_path, enrol_burst=3, enrol_per_second=0.5) as run:
        assert [enrol(run, "ss_jnonsense")[0] for _ in range(5)] == [401, 401, 401, 429, 429]
        reply = run.call("POST", "/v1/agents/enroll", b"{}", {"Content-Type": "application/json"})
        assert int(reply.headers["retry-after"]) == 2
        run.clock.move(2)
        assert [enrol(run, "ss_jnonsense")[0] for _ in range(2)] == [401, 429]
