"""Questions of people outside, in the process that owns the engine, asked over its socket."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from secondsight.errors import Permanent, Rejected
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.failures import QueryLimited, StatementFailed, StoreBusy
from secondsight.store.question import Question, filter_setting
from secondsight.store.serve import ADDRESS_FILE, start_store_server

ENDLESS = "SELECT count() FROM system.numbers WHERE cityHash64(number) = 1"
RUNNING = (
    "SELECT count() AS n FROM system.processes WHERE query LIKE '%cityHash64(number) = 1%' AND query NOT LIKE '%LIKE%'"
)
LIMITS: dict[str, Any] = {"max_threads": 1, "max_execution_time": 30, "max_result_rows": 100}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChdbStore]:
    opened = ChdbStore(tmp_path_factory.mktemp("hot"), questions=2)
    opened.query("CREATE TABLE secondsight.t (tenant_id String, v UInt64) ENGINE = MergeTree ORDER BY tenant_id")
    opened.query("INSERT INTO t SELECT if(number < 3, 'mine', 'foreign'), number FROM numbers(10)")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def client(store: ChdbStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightStore]:
    folder = tmp_path_factory.mktemp("run")
    server = start_store_server(store, folder)
    opened = FlightStore(folder / ADDRESS_FILE)
    yield opened
    opened.close()
    server.close()


def question(sql: str, marker: str = "a1", deadline_seconds: float = 20.0, **more: Any) -> Question:
    return Question(sql, marker, deadline_seconds, **{"limits": LIMITS, **more})


def asked(client: FlightStore, sql: str, marker: str, heard: list[Exception], **more: Any) -> threading.Thread:
    def ask() -> None:
        try:
            client.ask(question(sql, marker, **more))
        except (Permanent, StoreBusy) as error:
            heard.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def running(store: ChdbStore) -> int:
    return int(store.query(RUNNING).to_pylist()[0]["n"])


def until_running(store: ChdbStore, count: int) -> None:
    end = time.monotonic() + 60
    while running(store) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_question_gives_rows_and_what_it_read(client: FlightStore) -> None:
    reply = client.ask(question("SELECT v FROM t ORDER BY v"))
    assert reply.rows.to_pylist() == [{"v": v} for v in range(10)]
    assert (reply.rows_read, reply.bytes_read > 0) == (10, True)


def test_filters_lie_under_whatever_is_asked(client: FlightStore) -> None:
    filters = {"secondsight.t": "tenant_id = 'mine'"}
    for sql in ("SELECT count() AS n FROM t", "SELECT count() AS n FROM t WHERE 1 OR tenant_id = 'foreign'"):
        reply = client.ask(question(sql, filters=filters))
        assert reply.rows.to_pylist() == [{"n": 3}]
        assert reply.rows_read <= 10


def test_names_in_filters_stay_names() -> None:
    assert filter_setting({"d.t": "x = 'it''s'"}) == "{'d.t': 'x = \\'it\\'\\'s\\''}"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 SETTINGS max_result_rows = 0",
        "SELECT v FROM t SETTINGS additional_table_filters = {}",
        "SELECT 1 SETTINGS readonly = 0",
        "WITH 1 AS a INSERT INTO t SELECT 'x', 1",
        "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
        "SELECT 1; DROP TABLE t",
    ],
)
def test_no_word_of_a_statement_changes_anything(client: FlightStore, store: ChdbStore, sql: str) -> None:
    with pytest.raises(Permanent):
        client.ask(question(sql, filters={"secondsight.t": "tenant_id = 'mine'"}))
    assert store.query("SELECT count() AS n FROM t").to_pylist() == [{"n": 10}]


@pytest.mark.parametrize(
    "sql", ["DROP TABLE t", "SET readonly = 0", "KILL QUERY WHERE 1 SYNC", "INSERT INTO t VALUES ('x', 1)"]
)
def test_only_reads_are_asked(client: FlightStore, sql: str) -> None:
    with pytest.raises(Permanent):
        client.ask(question(sql))


def test_rows_of_a_question_that_failed_are_in_no_other_answer(client: FlightStore, store: ChdbStore) -> None:
    failing = "SELECT number, throwIf(number = 70000, 'secret') FROM numbers(100000) SETTINGS max_block_size = 1000"
    with pytest.raises(Permanent):
        client.ask(question(failing, limits={"max_threads": 1}))
    for _ in range(3):
        assert client.ask(question("SELECT 7 AS seven")).rows.to_pylist() == [{"seven": 7}]
        assert store.query("SELECT 7 AS seven").to_pylist() == [{"seven": 7}]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max_execution_time": 0.2, "timeout_overflow_mode": "throw"}, "query_timeout"),
        ({"max_rows_to_read": 1000, "read_overflow_mode": "throw"}, "too_many_rows_read"),
        ({"max_bytes_to_read": 1000}, "too_many_bytes_read"),
    ],
)
def test_limits_end_a_question(client: FlightStore, limits: dict[str, Any], code: str) -> None:
    with pytest.raises(QueryLimited) as caught:
        client.ask(question(ENDLESS, limits={"max_threads": 1, **limits}))
    assert caught.value.code == code


def test_a_killed_question_is_gone_from_the_engine(client: FlightStore, store: ChdbStore) -> None:
    heard: list[Exception] = []
    thread = asked(client, ENDLESS, "b2", heard)
    until_running(store, 1)
    client.kill("b2")
    assert running(store) == 0
    thread.join()
    assert [error.code for error in heard if isinstance(error, QueryLimited)] == ["query_killed"]


def test_a_question_past_its_deadline_is_killed_whatever_its_limits(client: FlightStore, store: ChdbStore) -> None:
    with pytest.raises(QueryLimited) as caught:
        client.ask(question(ENDLESS, "c3", deadline_seconds=-0.5, limits={"max_threads": 1}))
    assert caught.value.code == "query_killed"
    assert running(store) == 0


def test_the_next_question_is_sent_away_while_all_places_are_taken(client: FlightStore, store: ChdbStore) -> None:
    heard: list[Exception] = []
    threads = [asked(client, ENDLESS, marker, heard) for marker in ("d4", "d5")]
    until_running(store, 2)
    with pytest.raises(StoreBusy):
        client.ask(question("SELECT 1", "d6"))
    assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    for marker in ("d4", "d5"):
        client.kill(marker)
    for thread in threads:
        thread.join()
    assert client.ask(question("SELECT 1 AS one", "d6")).rows.to_pylist() == [{"one": 1}]


def test_killing_what_does_not_run_changes_nothing(client: FlightStore) -> None:
    client.kill("e7")
    assert client.ask(question("SELECT 1 AS one", "e7")).rows.to_pylist() == [{"one": 1}]


def test_a_marker_is_hexadecimal() -> None:
    for marker in ("", "a*/ 1", "ABC"):
        with pytest.raises(Rejected):
            question("SELECT 1", marker)


def test_a_failure_is_told_as_what_it_is(client: FlightStore) -> None:
    with pytest.raises(StatementFailed) as caught:
        client.ask(question("SELECT nothing FROM t"))
    assert caught.value.engine_code == 47
