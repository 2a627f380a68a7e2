"""Statements of untrusted authors against a real store with two tenants' rows."""

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from query_fixture import scope_of
from secondsight.access.audit import AuditQuestion, read_entries
from secondsight.access.scope import Scope
from secondsight.clock import SystemClock
from secondsight.errors import Rejected, Retryable
from secondsight.guard.audit import DAY_MS, TEXT_DAYS, Wanted, forget_texts, read_question, read_questions
from secondsight.guard.budget import Budget, OverQuota
from secondsight.guard.refusal import Refused
from secondsight.store.cancel import AskerGone, Cancellation, cancellable
from sql_rig import DURING, FOREIGN, NOW_MS, Rig, rig

MINE = scope_of("t1", clusters=frozenset({"c1", "c2"}))
RAW = "gpu_telemetry_1s_secure"
ALL = Wanted(0, 1 << 62)
ONE = "SELECT count() AS one FROM gpu_error_events_secure"


def during(alias: str) -> str:
    return " AND ".join(f"{alias}.{part}" for part in DURING.split(" AND "))


LONG = (
    f"SELECT count() AS n FROM {RAW} AS a INNER JOIN {RAW} AS b ON a.gpu_id = b.gpu_id "
    f"INNER JOIN {RAW} AS c ON a.gpu_id = c.gpu_id INNER JOIN {RAW} AS d ON a.gpu_id = d.gpu_id "
    f"WHERE {during('a')} AND {during('b')} AND {during('c')} AND {during('d')}"
)
"""Few rows are read, and very many are made of them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("sql")) as made:
        yield made


def test_rows_come_with_units_and_what_they_are_worth(made: Rig) -> None:
    answer = made.service().ask(
        f"SELECT host_id, avg(gpu_power_watts) AS watts, count() AS n FROM {RAW} WHERE {DURING} "
        "GROUP BY host_id ORDER BY host_id",
        MINE,
    )
    assert answer.rows.to_pylist() == [
        {"host_id": "h1", "watts": 100.0, "n": 600},
        {"host_id": "h2", "watts": 200.0, "n": 600},
    ]
    assert [(column.name, column.unit) for column in answer.columns] == [("host_id", ""), ("watts", "W"), ("n", "")]
    assert answer.quality.coverage == pytest.approx(1.0)
    assert (answer.truncated, answer.quality.complete_through_ms) == (False, NOW_MS - 10_000)
    assert answer.estimated_rows is not None
    assert answer.read_rows >= 1200
    assert [read.view for read in answer.reads] == [RAW]


def test_a_range_that_begins_before_what_is_left_says_so(made: Rig) -> None:
    sql = f"SELECT count() AS n FROM {RAW} WHERE {DURING}"
    floors = {"gpu_1s": NOW_MS - 300_000, "gpu_30s": NOW_MS}
    (more,) = set(made.service(floors=floors).ask(sql, MINE).warnings) - set(made.service().ask(sql, MINE).warnings)
    told = "has rows from 2023-11-14T22:25:00.000Z on; older ones are in the lake alone, which the API reads"
    assert more == f"{RAW} {told}"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT DISTINCT tenant_id, cluster_id, host_id, model FROM {RAW} WHERE {DURING}",
        f"SELECT DISTINCT host_id FROM {RAW} WHERE {DURING} AND (1 OR tenant_id = 't2')",
        f"SELECT a.host_id FROM {RAW} AS a LEFT JOIN {RAW} AS b ON a.gpu_id = b.gpu_id "
        f"WHERE {during('a')} AND {during('b')} LIMIT 5",
        "SELECT host_id, max(gpu_power_watts_max) AS w FROM gpu_telemetry_30s_secure GROUP BY host_id",
        f"SELECT host_id FROM {RAW} WHERE {DURING} AND host_id NOT IN "
        f"(SELECT host_id FROM {RAW} WHERE {DURING} AND host_id = 'h1')",
        f"SELECT count() AS n FROM {RAW} WHERE {DURING} AND host_id = '{FOREIGN}' AND throwIf(1) = 0",
        "SELECT * FROM system.tables",
        "SELECT * FROM gpu_1s",
        "SELECT dictGet('secondsight.gpu_products', 'gpu_model', tuple('t2', 'GPU-x')) AS m "
        f"FROM {RAW} WHERE {DURING} LIMIT 1",
    ],
)
def test_nothing_of_anybody_else_comes_out(made: Rig, sql: str) -> None:
    try:
        told = str(made.service().ask(sql, MINE).rows.to_pylist())
    except Rejected as error:
        told = f"{error.message} {error.hint}".replace(repr(getattr(error, "name", "")), "")
    assert not any(word in told for word in (FOREIGN, "t2", "c3", "h3", "secret", "gpu_1s"))


def test_filters_lie_below_the_views_as_well(made: Rig) -> None:
    wall = made.service()._executor.wall(MINE, shared=False)
    reply = made.service()._executor.run(f"SELECT DISTINCT host_id FROM {RAW} ORDER BY host_id", "f" * 32, wall)
    assert [row["host_id"] for row in reply.rows.to_pylist()] == ["h1", "h2"]


@pytest.mark.parametrize(
    ("fields", "hosts"),
    [
        ({"clusters": frozenset({"c2"})}, ["h2"]),
        ({"clusters": frozenset()}, []),
        ({"teams": frozenset({"vision"})}, ["h1"]),
        ({}, ["h1", "h2", "h3"]),
        ({"clusters": frozenset({"c2"}), "others": (scope_of("t1", teams=frozenset({"vision"})),)}, ["h1", "h2"]),
    ],
)
def test_each_grant_has_its_own_rows(made: Rig, fields: dict[str, Any], hosts: list[str]) -> None:
    sql = f"SELECT DISTINCT host_id FROM {RAW} WHERE {DURING} ORDER BY host_id"
    answer = made.service().ask(sql, scope_of("t1", **fields))
    assert [row["host_id"] for row in answer.rows.to_pylist()] == hosts


def test_times_of_whole_seconds_are_times(made: Rig) -> None:
    text = f"SELECT toStartOfMinute(event_time) AS m, toHour(event_time) AS h FROM {RAW} WHERE {DURING} LIMIT 1"
    answer = made.service().ask(text, MINE)
    assert [str(kind) for kind in answer.rows.schema.types] == ["timestamp[s, tz=UTC]", "uint8"]


def test_windows_answer_what_is_too_wide_for_seconds_where_they_give_the_same(made: Rig) -> None:
    wide = "event_time >= '2023-11-01 00:00:00' AND event_time < '2023-11-14 22:30:00'"
    answer = made.service().ask(
        f"SELECT host_id, max(gpu_power_watts) AS w FROM {RAW} WHERE {wide} GROUP BY host_id", MINE
    )
    assert sorted(answer.rows.to_pylist(), key=str) == [{"host_id": "h1", "w": 100.0}, {"host_id": "h2", "w": 200.0}]
    assert [read.view for read in answer.reads] == ["gpu_telemetry_30s_secure"]
    assert "gpu_telemetry_30s_secure" in answer.warnings[0]
    with pytest.raises(Refused, match="range_too_wide"):
        made.service().ask(f"SELECT avg(gpu_power_watts) AS w FROM {RAW} WHERE {wide}", MINE)


def test_denied_metrics_are_unknown_names(made: Rig) -> None:
    scope = scope_of("t1", denied_metrics=frozenset({"gpu_power_watts"}))
    with pytest.raises(Refused) as caught:
        made.service().ask(f"SELECT max(gpu_power_watts) AS w FROM {RAW} WHERE {DURING}", scope)
    with pytest.raises(Refused) as unknown:
        made.service().ask(f"SELECT max(gpu_no_such) AS w FROM {RAW} WHERE {DURING}", scope)
    assert (caught.value.code, caught.value.message) == (unknown.value.code, unknown.value.message)
    assert "nothing here is called 'gpu_power_watts'" in caught.value.hint
    assert "gpu_power_watts" not in caught.value.hint.replace("'gpu_power_watts'", "")
    with pytest.raises(Refused) as misspelt:
        made.service().ask(f"SELECT max(gpu_power_wats) AS w FROM {RAW} WHERE {DURING}", scope)
    assert "gpu_power_watts" not in misspelt.value.hint
    with pytest.raises(Refused) as near:
        made.service().ask(f"SELECT max(gpu_power_wats) AS w FROM {RAW} WHERE {DURING}", MINE)
    assert "near: gpu_power_watts" in near.value.hint
    with pytest.raises(Refused) as view:
        made.service().ask(f"SELECT count() AS n FROM {RAW[:-3]}", MINE)
    assert f"near: {RAW}" in view.value.hint


def test_more_rows_than_fit_are_said(made: Rig) -> None:
    service = made.service()
    service._plans._limits = dataclasses.replace(service._plans._limits, rows=100)
    answer = service.ask(f"SELECT event_time FROM {RAW} WHERE {DURING}", MINE)
    assert (answer.rows.num_rows, answer.truncated) == (100, True)
    assert "there are more" in answer.warnings[0]


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ({"read_rows": 100}, "query_too_expensive"),
        ({"rows_per_second": 1, "seconds": 1.0}, "query_too_slow"),
        ({"memory_bytes": 1}, "query_too_large"),
        ({"result_bytes": 10}, "result_too_large"),
        ({"read_bytes": 10}, "query_too_expensive"),
    ],
)
def test_budgets_hold_with_fixed_words(made: Rig, budget: dict[str, Any], code: str) -> None:
    sql = f"SELECT event_time, gpu_power_watts FROM {RAW} WHERE {DURING} ORDER BY event_time"
    with pytest.raises(Rejected) as caught:
        made.service(Budget(**budget)).ask(sql, MINE)
    assert caught.value.code == code
    assert RAW not in caught.value.message


def test_a_statement_past_its_time_is_gone_from_the_engine(made: Rig) -> None:
    with pytest.raises(Rejected) as caught:
        made.service(Budget(seconds=0.5)).ask(LONG, MINE)
    assert caught.value.code == "query_too_slow"
    assert made.running() == 0


def test_a_statement_nobody_waits_for_is_gone_from_the_engine(made: Rig) -> None:
    cancellation, heard = Cancellation(), []

    def ask() -> None:
        with cancellable(cancellation):
            try:
                made.service(Budget(seconds=60.0, rows_per_second=1 << 40)).ask(LONG, MINE)
            except Retryable as error:
                heard.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    _until(lambda: made.running() == 1)
    cancellation.cancel()
    assert made.running() == 0
    thread.join()
    assert heard == [AskerGone]
    assert len(read_questions(made.metadata, ["t1"], dataclasses.replace(ALL, outcomes=("cancelled",)))) == 1


def test_a_caller_and_a_tenant_have_so_many_at_once(made: Rig) -> None:
    service = made.service(Budget(seconds=60.0, at_once_per_user=1, at_once_per_tenant=2, at_once=2))
    cancellations = [Cancellation(), Cancellation()]
    threads = [
        threading.Thread(target=_ask_quietly, args=(service, dataclasses.replace(MINE, subject=subject), cancellation))
        for subject, cancellation in zip(("token:a", "token:b"), cancellations, strict=True)
    ]
    for thread in threads:
        thread.start()
    _until(lambda: made.running() == 2)
    for subject, word in (("token:a", "you have"), ("token:c", "your tenant")):
        with pytest.raises(OverQuota, match=word) as caught:
            service.ask(LONG, dataclasses.replace(MINE, subject=subject))
        assert (caught.value.code, caught.value.retry_after_seconds) == ("too_many_at_once", 1.0)
    for cancellation, thread in zip(cancellations, threads, strict=True):
        cancellation.cancel()
        thread.join()
    assert made.running() == 0


def test_a_day_costs_so_much_and_no_more(made: Rig) -> None:
    scope = dataclasses.replace(MINE, subject="token:daily")
    service = made.service(Budget(daily_questions_per_user=2))
    for _ in range(2):
        service.ask(ONE, scope)
    with pytest.raises(OverQuota) as caught:
        service.ask(ONE, scope)
    assert caught.value.code == "daily_quota"
    assert 0 < caught.value.retry_after_seconds <= DAY_MS / 1000
    with pytest.raises(OverQuota, match="tenant"):
        made.service(Budget(daily_rows_per_tenant=1)).ask(ONE, dataclasses.replace(MINE, subject="token:e"))


def test_every_question_is_on_record_and_texts_go_after_their_days(made: Rig) -> None:
    scope = dataclasses.replace(MINE, subject="token:record")
    service = made.service()
    service.ask(ONE, scope)
    with pytest.raises(Refused):
        service.ask("DROP TABLE gpu_1s", scope)
    refused, answered = read_questions(made.metadata, ["t1"], dataclasses.replace(ALL, subjects=("token:record",)))
    assert {answered.recorded.outcome, refused.recorded.outcome} == {"ok", "not_a_query"}
    refused, answered = sorted((refused, answered), key=lambda one: one.recorded.outcome == "ok")
    assert (refused.recorded.rule, refused.recorded.sql, refused.recorded.generated) == (
        "tokens",
        "DROP TABLE gpu_1s",
        "",
    )
    assert (answered.recorded.result_rows, len(answered.recorded.result_sha256)) == (1, 64)
    assert read_questions(made.metadata, ["t2"], ALL) == ()
    assert read_question(made.metadata, ["t2"], answered.question_id) is None
    assert forget_texts(made.metadata, NOW_MS + TEXT_DAYS * DAY_MS) == 0
    assert forget_texts(made.metadata, NOW_MS + TEXT_DAYS * DAY_MS + 1) > 0
    kept = read_question(made.metadata, ["t1"], answered.question_id)
    assert kept is not None
    assert (kept.recorded.sql, kept.text_sha256) == ("", answered.text_sha256)
    with pytest.raises(Rejected):
        service.replay(kept, MINE)


def test_pages_of_questions_meet(made: Rig) -> None:
    whole = read_questions(made.metadata, ["t1"], dataclasses.replace(ALL, limit=1000))
    first = read_questions(made.metadata, ["t1"], dataclasses.replace(ALL, limit=3))
    last = first[-1]
    rest = read_questions(
        made.metadata, ["t1"], dataclasses.replace(ALL, limit=1000, before=(last.recorded.time_ms, last.question_id))
    )
    assert (*first, *rest) == whole


def test_a_question_can_be_asked_again_by_those_who_may_see_all_of_it(made: Rig) -> None:
    service = made.service()
    lately = "event_time >= now() - INTERVAL 5 MINUTE AND event_time < now()"
    sql = f"SELECT host_id, max(gpu_power_watts) AS w FROM {RAW} WHERE {lately} GROUP BY host_id ORDER BY host_id"
    answer = service.ask(sql, MINE)
    filed = read_question(made.metadata, ["t1"], answer.question_id)
    assert filed is not None
    made.clock.move(3600)
    again = service.replay(filed, scope_of("t1"))
    assert (again.result_sha256, again.rows.num_rows) == (answer.result_sha256, 2)
    children = read_questions(made.metadata, ["t1"], dataclasses.replace(ALL, parent_id=answer.question_id))
    assert [(child.recorded.channel, child.recorded.outcome) for child in children] == [("replay", "ok")]
    for narrow in (scope_of("t1", clusters=frozenset({"c1"})), scope_of("t2")):
        with pytest.raises(Rejected, match="grants"):
            service.replay(filed, narrow)


def test_many_refusals_of_one_caller_are_told_to_the_operator(made: Rig, caplog: pytest.LogCaptureFixture) -> None:
    service = made.service(Budget(refusals=5))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            with pytest.raises(Refused):
                service.ask("DROP TABLE x", dataclasses.replace(MINE, subject="token:storm"))
    assert "token:storm was refused 5 questions" in caplog.text
    entries = read_entries(made.metadata, ["t1"], AuditQuestion(0, 1 << 62, actions=("questions_refused",)))
    assert [entry.subject for _, entry in entries] == ["token:storm"]


def test_what_the_engine_says_is_not_repeated(made: Rig, caplog: pytest.LogCaptureFixture) -> None:
    executor = made.service()._executor
    wall = executor.wall(MINE, shared=False)
    with pytest.raises(Rejected) as caught:
        executor.run(f"SELECT toUInt8(host_id) FROM {RAW}", "a" * 32, wall)
    assert caught.value.code == "query_failed"
    assert "h1" not in caplog.text + caught.value.message
    assert "CANNOT_PARSE_TEXT" in caplog.text


def _ask_quietly(service: Any, scope: Scope, cancellation: Cancellation) -> None:
    with cancellable(cancellation):
        try:
            service.ask(LONG, scope)
        except (Rejected, Retryable):
            return


def _until(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        SystemClock().sleep(0.01)
