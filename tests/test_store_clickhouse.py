"""The store over a real ClickHouse server does what every store does."""

import dataclasses
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from clickhouse_server import BrokenAnswers, Server, front, server
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.errors import Permanent, Rejected, Retryable
from secondsight.process.deadletter import drop_letters
from secondsight.store.blocks import newest_blocks
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.store import ClickHouseStore
from secondsight.store.clickhouse.text import PARAMETER_BYTES
from secondsight.store.failures import QueryLimited, StatementFailed, StoreBusy
from secondsight.store.migrate import migrate
from secondsight.store.reach import reach_store
from store_contract import ENDLESS, StoreContract, rows
from tls_fixture import needs_openssl


@pytest.fixture
def store(clickhouse: Server) -> Iterator[ClickHouseStore]:
    before = ClickHouseStore(ClickHouseConfig(clickhouse.url))
    before.query("DROP DATABASE IF EXISTS secondsight SYNC")
    before.close()
    opened = ClickHouseStore(ClickHouseConfig(clickhouse.url))
    yield opened
    opened.close()


class TestClickHouse(StoreContract):
    @pytest.fixture
    def writer(self, store: ClickHouseStore) -> ClickHouseStore:
        return store


def test_a_reader_refuses_to_write_and_makes_nothing(clickhouse: Server) -> None:
    config = ClickHouseConfig(clickhouse.url, database="nowhere")
    reader = ClickHouseStore(config, read_only=True)
    for attempt in (lambda: reader.query("CREATE DATABASE nowhere"), lambda: reader.insert("t", pa.table({"a": [1]}))):
        with pytest.raises(Rejected) as caught:
            attempt()
        assert caught.value.code == "read_only"
    with pytest.raises(StoreBusy, match="a processor makes it"):
        reader.query("SELECT 1")
    reader.close()


def test_who_reaches_a_server_waits_for_its_tables(clickhouse: Server) -> None:
    config = ClickHouseConfig(clickhouse.url, database="reached")
    reached = reach_store("", config, SystemClock())
    with pytest.raises(Retryable, match="a processor makes them"):
        reached.query("SELECT * FROM gpu_1s")
    made = ClickHouseStore(config)
    migrate(made, load_catalog(), config.database, made.deployment)
    assert reached.query("SELECT count() AS n FROM gpu_1s").to_pylist() == [{"n": 0}]
    with pytest.raises(StatementFailed):
        reached.query("SELECT nothing FROM gpu_1s")
    made.close()
    reached.close()


def test_a_closed_store_says_so(clickhouse: Server) -> None:
    store = ClickHouseStore(ClickHouseConfig(clickhouse.url))
    store.close()
    with pytest.raises(StoreBusy):
        store.query("SELECT 1")
    with pytest.raises(StoreBusy):
        store.insert("t", pa.table({"a": [1]}))


def test_a_statement_without_limits_is_killed_at_the_deadline(clickhouse: Server) -> None:
    store = ClickHouseStore(ClickHouseConfig(clickhouse.url), deadline_seconds=-0.5)
    with pytest.raises(QueryLimited) as caught:
        store.query(ENDLESS)
    assert caught.value.code == "query_killed"
    store.close()


def test_questions_hold_up_no_insert_and_further_ones_wait(clickhouse: Server, store: ClickHouseStore) -> None:
    store.query("CREATE TABLE written (v UInt8) ENGINE = MergeTree ORDER BY v")
    codes: list[str] = []

    def ask_for_long() -> None:
        try:
            store.query(ENDLESS, None, {"max_execution_time": 2})
        except QueryLimited as error:
            codes.append(error.code)

    threads = [threading.Thread(target=ask_for_long) for _ in range(5)]
    for thread in threads:
        thread.start()
    store.insert("written", pa.table({"v": pa.array([1], pa.uint8())}))
    assert all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    assert codes == ["query_timeout"] * 5


@pytest.mark.parametrize("text", ["é'\\\t\n\"{b:String}", "x" * PARAMETER_BYTES])
def test_long_lists_arrive_as_short_ones_do(store: ClickHouseStore, text: str) -> None:
    texts = [f"{text}{number}" for number in range(30)]
    sql = "SELECT {a:Array(String)} AS a, {n:UInt8} AS n, {one:String} IN {a:Array(String)} AS is_in"
    for some in (texts[:1], texts):
        expected = [{"a": some, "n": 7, "is_in": 1}]
        assert rows(store, sql, {"a": some, "n": 7, "one": some[-1]}) == expected


def test_an_insert_whose_answer_was_lost_is_there_once(clickhouse: Server, store: ClickHouseStore) -> None:
    migrate(store, load_catalog(), deployment=store.deployment)
    broken = BrokenAnswers(clickhouse, 0)
    other = ClickHouseStore(ClickHouseConfig(broken.url))
    other.query("SELECT 1")
    broken.left = 1
    other.insert("rewrites", pa.table({"table_name": ["t"], "tenant_id": ["a"]}))
    assert broken.left == 0
    assert rows(store, "SELECT count() AS n FROM rewrites") == [{"n": 1}]
    broken.left = 9
    with pytest.raises(Retryable):
        other.insert("rewrites", pa.table({"table_name": ["t"], "tenant_id": ["b"]}))
    other.close()
    broken.close()


def test_a_store_outlives_its_server(tmp_path: Path, clickhouse: Server) -> None:
    port = 1
    away = ClickHouseStore(ClickHouseConfig(f"http://127.0.0.1:{port}"))
    with pytest.raises(StoreBusy, match=r"http://127\.0\.0\.1:1 cannot be reached: "):
        away.query("SELECT 1")
    away.close()


NUMBERS = "(SELECT arrayJoin(range(500000)) AS {name}) AS of_{name}"
LONG = f"SELECT count() FROM {NUMBERS.format(name='a')}, {NUMBERS.format(name='b')} WHERE NOT ignore(sipHash64(a, b))"
USER = (
    "<{name}><password>pw</password><networks><ip>::/0</ip></networks><profile>{name}</profile><quota>default</quota>"
    "<grants>{grants}</grants></{name}>"
)
ADMITTING = (
    "<clickhouse><http_port>{{port}}</http_port><listen_host>127.0.0.1</listen_host><users><default><password></password>"
    "<networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></default>{users}</users>"
    "<profiles><default/><secondsight/><secondsight_reader><readonly>2</readonly></secondsight_reader></profiles>"
    "<quotas><default/></quotas><user_directories><users_xml><path>clickhouse-local.xml</path></users_xml>"
    "</user_directories></clickhouse>"
)


def test_the_grants_that_the_guide_names_are_enough(tmp_path: Path) -> None:
    guide = (Path(__file__).parent.parent / "docs" / "guides" / "scaling-out.md").read_text()
    named = re.findall(r"^(GRANT .*) TO (\w+);$", guide, re.MULTILINE)
    users = ""
    for name in ("secondsight", "secondsight_reader"):
        grants = "".join(f"<query>{grant}</query>" for grant, user in named if user == name)
        users += USER.format(name=name, grants=grants)
    (tmp_path / "password").write_text("pw")
    with server(tmp_path, ADMITTING.format(users=users)) as running:
        config = ClickHouseConfig(running.url, user="secondsight", password_file=tmp_path / "password")
        writer = ClickHouseStore(config)
        migrate(writer, load_catalog(), config.database, writer.deployment)
        assert set(newest_blocks(writer)) == {"schema_version"}
        drop_letters(writer, 1)
        reads = dataclasses.replace(config, user="secondsight_reader")
        reader = reach_store("", reads, SystemClock(), read_only=True)
        assert reader.query("SELECT count() AS n FROM gpu_1s").to_pylist() == [{"n": 0}]
        for user in (config, reads):
            impatient = ClickHouseStore(user, read_only=True, deadline_seconds=0.1)
            with pytest.raises(QueryLimited):
                impatient.query(LONG)
            impatient.close()
        writer.close()
        reader.close()


@needs_openssl
def test_tls_and_a_password(clickhouse: Server, tmp_path: Path) -> None:
    secret, wrong = tmp_path / "password", tmp_path / "wrong"
    with front(clickhouse, tmp_path) as made:
        secret.write_text(f"{made.password}\n")
        wrong.write_text("hunter2")
        good = ClickHouseConfig(made.url, made.user, secret, ca_file=made.ca_file)
        store = ClickHouseStore(good)
        assert rows(store, "SELECT {a:String} AS a", {"a": "b"}) == [{"a": "b"}]
        store.close()
        for config, code, words in (
            (ClickHouseConfig(made.url, made.user, wrong, ca_file=made.ca_file), "store_refused", "password_file"),
            (ClickHouseConfig(made.url, made.user, ca_file=made.ca_file), "store_refused", "clickhouse.user"),
            (ClickHouseConfig(made.url, made.user, secret), "store_untrusted", "ca_file"),
        ):
            store = ClickHouseStore(config)
            with pytest.raises(Rejected) as caught:
                store.query("SELECT 1")
            store.close()
            assert caught.value.code == code
            assert words in caught.value.hint
            assert "hunter2" not in str(caught.value)
            assert made.password not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"url": "http://fleet:secret@db:8123"}, "password_file"),
        ({"url": "clickhouse://db"}, "https://HOST:8443"),
        ({"url": "http://db:many"}, "url"),
        ({"url": "http://db/path"}, "url"),
        ({"url": "http://db", "user": ""}, "user"),
        ({"url": "https://db", "certificate_file": Path("c")}, "key_file"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict, word: str) -> None:
    with pytest.raises(Rejected) as caught:
        ClickHouseConfig(**settings)
    assert word in caught.value.message + caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["password_file", "ca_file"])
def test_files_that_are_not_there_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected, match=f"{name}|no-such"):
        ClickHouseStore(ClickHouseConfig("https://127.0.0.1", **{name: tmp_path / "no-such"}))


def test_what_is_no_clickhouse_is_said(tmp_path: Path) -> None:
    import http.server

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.serve_forever, args=(0.01,))
        thread.start()
        store = ClickHouseStore(ClickHouseConfig(f"http://127.0.0.1:{other.server_port}"))
        with pytest.raises(Permanent, match="not as ClickHouse does"):
            store.query("SELECT 1")
        store.close()
        other.shutdown()
        thread.join()


def test_a_store_over_a_server_loads_no_engine() -> None:
    script = "import sys, secondsight.store.clickhouse.store; sys.exit('chdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
