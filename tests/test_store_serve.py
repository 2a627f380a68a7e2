import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from secondsight.errors import Permanent, Rejected, Retryable, SecondsightError
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore
from secondsight.store.failures import QueryLimited, StatementFailed, StoreBusy
from secondsight.store.messages import decode_failure, decode_request, encode_failure, encode_request
from secondsight.store.serve import ADDRESS_FILE, start_store_server
from store_contract import StoreContract, rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChdbStore]:
    opened = ChdbStore(tmp_path / "hot", readers=4)
    yield opened
    opened.close()


@pytest.fixture
def client(store: ChdbStore, tmp_path: Path) -> Iterator[FlightStore]:
    server = start_store_server(store, tmp_path / "run")
    opened = FlightStore(tmp_path / "run" / ADDRESS_FILE)
    yield opened
    opened.close()
    server.close()


class TestFlight(StoreContract):
    @pytest.fixture
    def writer(self, store: ChdbStore) -> ChdbStore:
        return store

    @pytest.fixture
    def reader(self, client: FlightStore) -> FlightStore:
        return client


@pytest.mark.parametrize(
    "sql", ["DROP TABLE gpu_1s", "INSERT INTO t VALUES (1)", "SET readonly = 0", "/* SELECT */ OPTIMIZE TABLE t"]
)
def test_writes_are_refused(client: FlightStore, sql: str) -> None:
    with pytest.raises(Rejected) as caught:
        client.query(sql)
    assert caught.value.code == "read_only"


def test_inserts_are_refused(client: FlightStore) -> None:
    with pytest.raises(Permanent):
        client.insert("gpu_1s", pa.table({"entity": ["GPU-a"]}))


def test_only_the_user_may_enter(store: ChdbStore, tmp_path: Path) -> None:
    server = start_store_server(store, tmp_path)
    socket_path = Path(server.address.removeprefix("grpc+unix://"))
    assert socket_path.is_socket()
    assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
    server.close()
    server.close()
    assert not socket_path.parent.exists()
    assert not (tmp_path / ADDRESS_FILE).exists()


def test_a_long_path_falls_back_to_a_short_one(store: ChdbStore, tmp_path: Path) -> None:
    run_dir = tmp_path / ("deep" * 30)
    server = start_store_server(store, run_dir)
    client = FlightStore(run_dir / ADDRESS_FILE)
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]
    assert stat.S_IMODE(Path(server.address.removeprefix("grpc+unix://")).parent.stat().st_mode) == 0o700
    client.close()
    server.close()


@pytest.mark.parametrize("name", ["a b", "50%", "é", "q'\"\\", "a?b#c", "a,b=c;[d]"])
def test_a_path_that_is_no_address_is_served_too(store: ChdbStore, tmp_path: Path, name: str) -> None:
    server = start_store_server(store, tmp_path / name)
    client = FlightStore(tmp_path / name / ADDRESS_FILE)
    assert client.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    client.close()
    server.close()


def test_a_client_outlives_the_server(store: ChdbStore, tmp_path: Path) -> None:
    client = FlightStore(tmp_path / ADDRESS_FILE)
    for life in range(3):
        with pytest.raises(Retryable):
            client.query("SELECT 1")
        server = start_store_server(store, tmp_path)
        assert rows(client, "SELECT {life:UInt8} AS life", {"life": life}) == [{"life": life}]
        server.close()
    client.close()
    with pytest.raises(Retryable):
        client.query("SELECT 1")


@pytest.mark.timeout(60)
def test_a_server_that_says_nothing_is_away_however_long_the_statement_may_take(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        client = FlightStore(f"grpc+unix://{path}")
        with pytest.raises(StoreBusy):
            client.query("SELECT 1", settings={"max_execution_time": 600})
        client.close()


def test_what_a_killed_server_left_is_replaced(store: ChdbStore, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o755)
    (tmp_path / "store" / "sock").write_text("stale")
    (tmp_path / ADDRESS_FILE).write_text("grpc+unix:///nowhere")
    server = start_store_server(store, tmp_path)
    client = FlightStore(tmp_path / ADDRESS_FILE)
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]
    client.close()
    server.close()


def test_a_client_loads_no_engine() -> None:
    script = "import sys, secondsight.store.client; sys.exit('chdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_large_answers_arrive_whole(client: FlightStore) -> None:
    answer = client.query("SELECT number, toString(number) AS text FROM numbers(1000000)")
    assert (answer.num_rows, answer["number"].chunk(0)[0].as_py()) == (1_000_000, 0)


@pytest.mark.parametrize(
    "error",
    [
        QueryLimited(159),
        StatementFailed(47, "Code: 47. no such thing (UNKNOWN_IDENTIFIER)", "UNKNOWN_IDENTIFIER"),
        StatementFailed(0, "?"),
        Rejected("read_only", "no", "hint"),
        Permanent("no"),
        StoreBusy("later", retry_after_seconds=2.0),
    ],
)
def test_failures_keep_their_kind(error: SecondsightError) -> None:
    again = decode_failure(encode_failure(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_requests_come_back() -> None:
    request = decode_request(encode_request("SELECT 1", {"a": "x\ny", "b": ["c"]}, {"max_threads": 1}))
    assert (request.sql, request.params, request.settings) == (
        "SELECT 1",
        {"a": "x\\ny", "b": "['c']"},
        {"max_threads": 1},
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"sql": 1, "params": [], "settings": {}}', b"\xff"])
def test_noise_is_no_request(body: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        decode_request(body)
    assert caught.value.code == "bad_request"


def test_an_unknown_failure_may_be_tried_again() -> None:
    assert isinstance(decode_failure(b""), Retryable)
