"""Statements of somebody who has gone are ended in the engine, whichever way the store is reached."""

import threading
import time

import pytest

from secondsight.errors import Rejected
from secondsight.store.cancel import AskerGone, Cancellation, cancellable
from secondsight.store.chdb import ChdbStore
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.store import ClickHouseStore
from secondsight.store.client import FlightStore
from secondsight.store.failures import StoreBusy
from secondsight.store.messages import checked_marker
from secondsight.store.serve import start_store_server

ENDLESS = "SELECT count() AS never FROM system.numbers WHERE NOT ignore(sleepEachRow(0.01)) SETTINGS max_block_size=10"
RUNNING = (
    "SELECT query FROM system.processes WHERE position(query, 'AS never') > 0 AND position(query, 'processes') = 0"
)


@pytest.fixture(params=["chdb", "flight", "clickhouse"])
def store(request, tmp_path):
    if request.param == "clickhouse":
        running = request.getfixturevalue("clickhouse")
        made = ClickHouseStore(ClickHouseConfig(running.url), readers=2)
        yield made
        made.close()
        return
    owner = ChdbStore(tmp_path / "hot", readers=2)
    if request.param == "chdb":
        yield owner
    else:
        server = start_store_server(owner, tmp_path / "run")
        client = FlightStore(server.address)
        yield client
        client.close()
        server.close()
    owner.close()


def test_a_statement_of_somebody_who_has_gone_is_ended_in_the_engine(store):
    cancellation, ended = Cancellation(), []

    def ask():
        with cancellable(cancellation):
            try:
                store.query(ENDLESS)
            except AskerGone as error:
                ended.append(error)

    asker = threading.Thread(target=ask)
    asker.start()
    until = time.monotonic() + 30
    while not store.query(RUNNING).num_rows:
        assert time.monotonic() < until
        time.sleep(0.01)
    cancellation.cancel()
    asker.join(30)
    assert len(ended) == 1
    assert store.query(RUNNING).num_rows == 0


def test_nothing_begins_for_somebody_who_has_gone(store):
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellable(cancellation), pytest.raises(AskerGone):
        store.query("SELECT 1")
    assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_a_statement_that_is_ended_before_the_engine_knows_it_is_ended_again():
    cancellation, tries, began = Cancellation(), [], threading.Event()
    done, gone = threading.Event(), []

    def end():
        tries.append(1)
        if len(tries) == 3:
            done.set()

    def ask():
        try:
            with cancellation.running(end):
                began.set()
                done.wait(30)
                raise StoreBusy("killed")
        except AskerGone:
            gone.append(1)

    asker = threading.Thread(target=ask)
    asker.start()
    began.wait(30)
    cancellation.cancel()
    asker.join(30)
    assert gone
    assert len(tries) >= 3


def test_a_marker_is_nothing_else(tmp_path):
    for text in ("x' OR 1", "g" * 32, "a" * 31):
        with pytest.raises(Rejected):
            checked_marker(text)
    assert checked_marker("a" * 32) == "a" * 32
