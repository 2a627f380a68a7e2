"""The second wall, on a server with users of its own, through its HTTP interface.

The server of these tests keeps users in a file, so the grants, the rows that are shown, and the limits of the wall
stand there; the statements that make them elsewhere are read by the engine's own parser.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.sax.saxutils import escape

import pytest

from clickhouse_server import server
from query_fixture import T0, Row, insert_rows, scope_of
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.errors import Permanent, Rejected
from secondsight.guard.budget import Budget
from secondsight.guard.execute import Executor, limits_of
from secondsight.store.cancel import AskerGone, Cancellation, cancellable
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.store import ClickHouseStore
from secondsight.store.clickhouse.wall import ROWS_SHOWN, Wall, asker_grants, reader_grants, wall_statements
from secondsight.store.deployment import Deployment
from secondsight.store.failures import QueryLimited
from secondsight.store.migrate import migrate
from secondsight.store.question import Question
from secondsight.store.reach import reach_store
from secondsight.store.schema import DATABASE
from secondsight.store.views import curated_views, tables_below

CATALOG = load_catalog()
RAW = "gpu_telemetry_1s_secure"
VIEWS = [view.name for view in curated_views(CATALOG, DATABASE)]
TABLES = sorted({view.table for view in curated_views(CATALOG, DATABASE)})
WALL = Wall("asker", "views", "secondsight", 20.0, 1 << 30, 1000, 2, 10, 1000, 60)
ENDLESS = (
    "SELECT count() FROM (SELECT arrayJoin(range(500000)) AS a) AS x, (SELECT arrayJoin(range(500000)) AS b) AS y "
    "WHERE NOT ignore(sipHash64(a, b))"
)


def user(name: str, grants: list[str], *, profile: str = "default", rows: str = "") -> str:
    granted = "".join(f"<query>GRANT {grant}</query>" for grant in grants)
    return (
        f"<{name}><password>pw</password><networks><ip>::/0</ip></networks><profile>{profile}</profile>"
        f"<quota>default</quota><grants>{granted}</grants>{rows}</{name}>"
    )


def settings() -> str:
    shown = "".join(f"<{table}><filter>{escape(ROWS_SHOWN)}</filter></{table}>" for table in TABLES)
    rows = f"<databases><{DATABASE}>{shown}</{DATABASE}></databases>"
    owner = [
        f"ALL ON {DATABASE}.*",
        f"ALL ON {DATABASE}_shared.*",
        "TABLE ENGINE ON ReplacingMergeTree",
        "SELECT ON system.processes",
        "SET DEFINER ON views",
        "KILL QUERY ON *.*",
    ]
    users = user("secondsight", owner) + user("views", reader_grants(DATABASE, TABLES), rows=rows)
    users += user("asker", asker_grants(DATABASE, VIEWS), profile="questions")
    capped = "<constraints><max_execution_time><max>20</max></max_execution_time></constraints>"
    text = (
        "<clickhouse><http_port>@port@</http_port><listen_host>127.0.0.1</listen_host>"
        "<users><default><password></password><networks><ip>::/0</ip></networks><profile>default</profile>"
        f"<quota>default</quota></default>{users}</users><profiles><default/><questions>{capped}</questions></profiles>"
        "<quotas><default/></quotas><user_directories><users_xml><path>clickhouse-local.xml</path></users_xml>"
        "</user_directories></clickhouse>"
    )
    return text.replace("{", "{{").replace("}", "}}").replace("@port@", "{port}")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseConfig]:
    folder = tmp_path_factory.mktemp("wall")
    secret = folder / "password"
    secret.write_text("pw")
    with server(folder, settings()) as running:
        yield ClickHouseConfig(
            running.url,
            user="secondsight",
            password_file=secret,
            question_user="asker",
            question_password_file=secret,
            view_user="views",
        )


@pytest.fixture(scope="module")
def store(config: ClickHouseConfig) -> Iterator[ClickHouseStore]:
    made = ClickHouseStore(config)
    migrate(made, CATALOG, config.database, made.deployment)
    rows = [
        Row(T0 + second * 1000, f"GPU-{tenant}-{cluster}", {"gpu_power_watts": 1000}, tenant=tenant, cluster=cluster)
        for tenant, cluster in (("t1", "c1"), ("t1", "c2"), ("t2", "c1"))
        for second in range(10)
    ]
    insert_rows(made, rows)
    yield made
    made.close()


def question(sql: str, marker: str = "a1", tenants: tuple[str, ...] = ("t1",), **more: Any) -> Question:
    return Question(sql, marker, 20.0, **{"scope": {"tenants": tenants}, "limits": {"max_threads": 1}, **more})


def gpus(store: ClickHouseStore, **more: Any) -> list[str]:
    reply = store.ask(question(f"SELECT DISTINCT gpu_id FROM {RAW} ORDER BY gpu_id", **more))
    return [row["gpu_id"] for row in reply.rows.to_pylist()]


def test_row_policies_show_the_rows_of_the_caller_alone(store: ClickHouseStore) -> None:
    assert gpus(store) == ["GPU-t1-c1", "GPU-t1-c2"]
    assert gpus(store, tenants=("t2",)) == ["GPU-t2-c1"]
    assert gpus(store, scope={"tenants": ["t1"], "clusters": ["c2"]}) == ["GPU-t1-c2"]
    assert gpus(store, scope={"tenants": ["t1"], "clusters": []}) == []
    assert gpus(store, scope={}) == []
    assert gpus(store, shared=True) == ["GPU-t1-c1", "GPU-t1-c2"]


@pytest.mark.parametrize(
    "sql",
    [
        f'SELECT gpu_id FROM {RAW} SETTINGS log_comment = \'{{"tenants":["t2"]}}\'',
        "SELECT entity FROM gpu_1s",
        "SELECT entity FROM entities",
        f"SELECT gpu_id FROM {RAW} WHERE gpu_id IN (SELECT entity FROM gpu_1s)",
        "SELECT * FROM system.processes",
        "SELECT * FROM system.users",
        "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM remote('127.0.0.1', 'secondsight', 'gpu_1s')",
        "SELECT * FROM merge('secondsight', '^gpu_1s$')",
        "SELECT dictGet('secondsight.gpu_products', 'gpu_model', ('t2', 'GPU-t2-c1'))",
        "WITH 1 AS a SELECT 1 INTO OUTFILE '/x'",
    ],
)
def test_whatever_a_statement_says_nothing_else_can_be_read(store: ClickHouseStore, sql: str) -> None:
    with pytest.raises(Permanent):
        store.ask(question(sql))


def test_tables_by_pattern_are_views_with_the_rows_of_the_caller(store: ClickHouseStore) -> None:
    reply = store.ask(question("SELECT DISTINCT tenant_id FROM merge('secondsight', '^gpu_telemetry')"))
    assert reply.rows.to_pylist() == [{"tenant_id": "t1"}]


def test_limits_of_the_profile_are_the_most(store: ClickHouseStore) -> None:
    with pytest.raises(Permanent):
        store.ask(question("SELECT 1", limits={"max_execution_time": 21}))
    assert store.ask(question("SELECT 1 AS one", limits={"max_execution_time": 19})).rows.to_pylist() == [{"one": 1}]


def test_the_limits_of_every_question_are_settings_of_the_server(store: ClickHouseStore) -> None:
    reply = store.ask(question(f"SELECT count() AS n FROM {RAW}", limits=limits_of(Budget(), 20.0)))
    assert (reply.rows.to_pylist(), reply.rows_read) == ([{"n": 20}], 30)


def test_a_question_nobody_waits_for_is_gone_from_the_server(store: ClickHouseStore) -> None:
    cancellation, heard = Cancellation(), []

    def ask() -> None:
        with cancellable(cancellation):
            try:
                store.ask(question(ENDLESS, "b2"))
            except AskerGone as error:
                heard.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    end = time.monotonic() + 60
    while not running(store):
        assert time.monotonic() < end
        time.sleep(0.01)
    cancellation.cancel()
    assert running(store) == 0
    thread.join()
    assert len(heard) == 1


def test_a_question_past_its_deadline_is_killed(store: ClickHouseStore) -> None:
    with pytest.raises(QueryLimited) as caught:
        store.ask(replace(question(ENDLESS, "c3"), deadline_seconds=-0.5))
    assert caught.value.code == "query_killed"
    assert running(store) == 0


def test_the_guard_asks_through_the_same_wall(store: ClickHouseStore, config: ClickHouseConfig) -> None:
    reached = reach_store("", config, SystemClock())
    executor = Executor(reached, Budget(), tables_below(CATALOG, DATABASE))  # type: ignore[arg-type]
    wall = executor.wall(scope_of("t1", clusters=frozenset({"c1"})), shared=False)
    reply = executor.run(f"SELECT DISTINCT gpu_id FROM {RAW}", "d4", wall)
    assert reply.rows.to_pylist() == [{"gpu_id": "GPU-t1-c1"}]
    assert executor.estimate(f"SELECT gpu_id FROM {RAW}", "d5", wall).rows == 30
    reached.close()


def test_nobody_asks_without_a_user_for_it(config: ClickHouseConfig) -> None:
    bare = ClickHouseStore(replace(config, question_user=""))
    with pytest.raises(Rejected) as caught:
        bare.ask(question("SELECT 1"))
    assert caught.value.code == "sql_not_offered"
    bare.close()


@pytest.mark.parametrize("cluster", ["", "fleet"])
def test_the_statements_of_the_wall_are_read_by_the_engine(store: ClickHouseStore, cluster: str) -> None:
    statements = wall_statements(CATALOG, DATABASE, WALL, Deployment(server=True, cluster=cluster))
    for statement in statements:
        read = store.query("SELECT formatQuerySingleLine({sql:String}) AS sql", {"sql": statement}).to_pylist()
        assert read[0]["sql"].split()[:2] == statement.split()[:2]
        assert not cluster or f"ON CLUSTER {cluster}" in read[0]["sql"].replace("`", "")
    text = "\n".join(statements)
    assert all(f"`{DATABASE}`.`{table}` AS RESTRICTIVE" in text for table in TABLES)
    assert "GRANT SELECT ON `secondsight`.`gpu_1s` TO `asker`" not in text


def running(store: ClickHouseStore) -> int:
    sql = "SELECT count() AS n FROM system.processes WHERE user = 'asker'"
    return int(store.query(sql).to_pylist()[0]["n"])
