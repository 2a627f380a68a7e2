"""SQL over HTTP: forms of rows, refusals, turns, clients that go, and the record of questions."""

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from api_client import Answer, Client, serving
from secondsight.access.identity import Role
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.series import ARROW, CSV
from secondsight.api.services import make_services
from secondsight.api.sqlforms import SqlResult, cell_of
from secondsight.cli import main
from secondsight.guard.budget import Budget
from secondsight.query.answer import inert
from sql_rig import CATALOG, DURING, NOW_MS, Rig, rig

RAW = "gpu_telemetry_1s_secure"
SELECT = f"SELECT host_id, max(gpu_power_watts) AS watts FROM {RAW} WHERE {DURING} GROUP BY host_id ORDER BY host_id"
SOURCES = [f"{RAW} AS a", *(f"INNER JOIN {RAW} AS {name} ON a.gpu_id = {name}.gpu_id" for name in "bcd")]
LONG = f"SELECT count() AS n FROM {' '.join(SOURCES)} WHERE " + " AND ".join(
    f"{name}.{part}" for name in "abcd" for part in DURING.split(" AND ")
)


class Api:
    def __init__(self, made: Rig, folder: Path) -> None:
        self.rig = made
        budget = Budget(seconds=60.0, rows_per_second=1 << 40, at_once=2, at_once_per_user=1)
        self.config = ApiConfig(data=folder, sql=budget)
        services = make_services(self.config, made.reached, made.metadata, CATALOG, made.clock)
        self.app = make_app(services)
        specs = {
            "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
            "narrow": TokenSpec(Role.VIEWER, "t1", "narrow", grants=(Grant("t1", frozenset({"c2"})),)),
            "other": TokenSpec(Role.ADMIN, "t2", "other"),
            "collector": TokenSpec(Role.COLLECTOR, "t1", "c", cluster_id="c1", collector_pattern="*"),
        }
        self.tokens = {name: create_token(made.metadata, spec, NOW_MS).secret for name, spec in specs.items()}
        self.client: Client

    def headers(self, token: str, **more: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[token]}", "content-type": "application/json", **more}

    def sql(self, text: str, token: str = "admin", form: str = "", **more: str) -> Answer:
        path = f"/v1/sql?format={form}" if form else "/v1/sql"
        return self.client.request("POST", path, json.dumps({"sql": text}), self.headers(token, **more))

    def get(self, path: str, token: str = "admin", **params: str) -> Answer:
        return self.client.get(path, params, self.headers(token))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("api")
    with rig(folder) as made:
        found = Api(made, folder)
        with serving(found.app, found.config) as found.client:
            yield found


def test_rows_come_as_lists_with_what_they_are_worth(api: Api) -> None:
    answer = api.sql(SELECT)
    assert answer.status_code == 200
    body = answer.json()
    SqlResult.model_validate(body)
    assert body["rows"] == [["h1", 100.0], ["h2", 200.0], ["h3", 300.0]]
    assert body["columns"][1] == {"name": "watts", "type": "double", "unit": "W"}
    assert (body["truncated"], body["rowCount"], body["coverage"]) == (False, 3, 1.0)
    assert body["reads"][0]["view"] == RAW
    assert body["reads"][0]["stated"]


def test_rows_come_in_columns_csv_and_arrow_too(api: Api) -> None:
    assert api.sql(SELECT, form="columns").json()["values"] == [["h1", "h2", "h3"], [100.0, 200.0, 300.0]]
    assert api.sql(SELECT, accept=CSV).text == "host_id,watts\nh1,100.0\nh2,200.0\nh3,300.0\n"
    table = pa.ipc.open_stream(api.sql(SELECT, accept=ARROW).content).read_all()
    assert table.to_pydict() == {"host_id": ["h1", "h2", "h3"], "watts": [100.0, 200.0, 300.0]}
    assert json.loads(table.schema.metadata[b"units"]) == {"host_id": "", "watts": "W"}


def test_each_caller_has_its_own_rows(api: Api) -> None:
    assert api.sql(SELECT, "narrow").json()["rows"] == [["h2", 200.0]]
    assert api.sql(SELECT, "other").json()["rows"] == [["foreign-host", 400.0]]


@pytest.mark.parametrize(
    ("token", "body", "status", "code"),
    [
        ("admin", {"sql": "DROP TABLE gpu_1s"}, 400, "not_a_query"),
        ("admin", {"sql": f"SELECT * FROM {RAW}"}, 400, "no_time_range"),
        ("admin", {"sql": "SELECT * FROM gpu_1s"}, 400, "unknown_name"),
        ("admin", {"sql": SELECT, "settings": {}}, 422, "bad_request"),
        ("admin", {}, 422, "bad_request"),
        ("collector", {"sql": SELECT}, 403, "role_cannot_read"),
    ],
)
def test_refusals_have_a_code_and_a_hint(api: Api, token: str, body: dict[str, Any], status: int, code: str) -> None:
    answer = api.client.request("POST", "/v1/sql", json.dumps(body), api.headers(token))
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["hint"]


def test_a_client_that_goes_takes_its_statement_along_and_one_more_comes_back_later(api: Api) -> None:
    body = json.dumps({"sql": LONG}).encode()
    head = f"POST /v1/sql HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in api.headers("narrow").items()
    )
    gone = socket.create_connection(("127.0.0.1", api.client.port))
    gone.sendall(head.encode() + b"\r\n" + body)
    _until(lambda: api.rig.running() == 1)
    refused = api.sql(SELECT, "narrow")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_at_once")
    assert refused.headers["retry-after"] == "1"
    gone.close()
    _until(lambda: api.rig.running() == 0)
    _until(lambda: api.sql(SELECT, "narrow").status_code == 200)


def test_waiting_statements_hold_up_no_other_route(api: Api) -> None:
    done: list[int] = []

    def ask(token: str) -> None:
        connection = HTTPConnection("127.0.0.1", api.client.port, timeout=60)
        connection.request("POST", "/v1/sql", json.dumps({"sql": LONG}), api.headers(token))
        done.append(connection.getresponse().status)
        connection.close()

    tokens = ("admin", "narrow", "other")
    threads = [threading.Thread(target=ask, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    _until(lambda: api.rig.running() == 2)
    assert api.get("/v1/clusters").status_code == 200
    _until(lambda: _killed_all(api, done, len(tokens)))
    for thread in threads:
        thread.join()
    assert done == [422] * len(tokens)


def test_views_are_described_without_denied_metrics(api: Api) -> None:
    views = {view["name"]: view for view in api.get("/v1/sql/views").json()["views"]}
    assert len(views) == 6
    columns = {column["name"]: column for column in views[RAW]["columns"]}
    assert columns["gpu_power_watts"]["unit"] == "W"
    assert "avg" in columns["gpu_power_watts"]["legal"]
    assert not any(name.startswith("time_bucket") for name in columns)


def test_admins_read_the_record_page_by_page_and_ask_again(api: Api) -> None:
    answered = api.sql(SELECT).json()
    one = api.get(f"/v1/audit/questions/{answered['questionId']}").json()
    assert (one["sql"], one["outcome"], one["resultSha256"]) == (SELECT, "ok", answered["resultSha256"])
    again = api.client.request(
        "POST", f"/v1/audit/questions/{answered['questionId']}/replay", None, api.headers("admin")
    )
    assert again.json()["same"] is True
    assert again.json()["result"]["rows"] == answered["rows"]
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = api.get("/v1/audit/questions", limit="2", cursor=cursor).json()
        seen += [row["questionId"] for row in page["questions"]]
        cursor = page["nextCursor"]
    assert len(seen) == len(set(seen)) > 2
    outcomes = api.get("/v1/audit/questions", outcome="not_a_query").json()["questions"]
    assert {row["rule"] for row in outcomes} == {"tokens"}


def test_nobody_else_reads_the_record(api: Api) -> None:
    asked = api.sql(SELECT).json()["questionId"]
    assert api.get("/v1/audit/questions", "narrow").status_code == 403
    assert asked not in api.get("/v1/audit/questions", "other").text
    assert api.get(f"/v1/audit/questions/{asked}", "other").status_code == 404
    replayed = api.client.request("POST", f"/v1/audit/questions/{asked}/replay", None, api.headers("other"))
    assert replayed.status_code == 404
    assert api.get("/v1/audit/questions/x").status_code == 404


def test_the_command_prints_tables_csv_views_and_replays(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "token"
    secret.write_text(api.tokens["admin"])

    def run(*words: str) -> tuple[int, str]:
        where = ("--server", f"http://127.0.0.1:{api.client.port}", "--token-file", str(secret))
        code = main(["sql", *words, *where])
        return code, capsys.readouterr().out

    code, table = run(SELECT)
    assert (code, table.splitlines()[:2]) == (0, ["host_id  watts [W]", "h1       100"])
    question = table.split()[-1]
    monkeypatch.setattr("sys.stdin", io.StringIO(SELECT))
    assert run("--csv")[1].splitlines() == ["host_id,watts", "h1,100.0", "h2,200.0", "h3,300.0"]
    assert json.loads(run(SELECT, "--json", "--tenant", "t1")[1])["rowCount"] == 3
    assert "the rows are those of then" in run("--replay", question)[1]
    assert RAW in run("--views")[1]
    assert "gpu_power_watts" in run("--views", RAW)[1]
    assert run("DROP TABLE x")[0] == 1
    assert run(SELECT, "--tenant", "t2")[0] == 1


def test_the_wall_of_a_server_is_printed_by_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "secondsight.toml"
    file.write_text(
        '[api.clickhouse]\nurl = "http://h:8123"\nuser = "api"\nquestion_user = "q"\n[api.sql]\nseconds = 7\n'
    )
    assert main(["sql", "--wall", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert "max_execution_time = 7.0 MAX 7.0" in out
    assert "GRANT KILL QUERY ON *.* TO `api`;" in out
    assert "IDENTIFIED BY 'CHANGE-ME'" in out


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]
)
def test_no_cell_is_a_formula_to_a_spreadsheet(text: str) -> None:
    assert inert(text) == f"'{text}"


def test_cells_are_written_without_loss() -> None:
    assert [cell_of(cell) for cell in (1 << 60, float("nan"), [1, None], b"x", {"a": float("inf")}, True)] == [
        str(1 << 60),
        None,
        [1, None],
        "x",
        {"a": None},
        True,
    ]


def _markers(api: Api) -> list[str]:
    sql = "SELECT extract(query, '^/. ([0-9a-f]+) ') AS marker FROM system.processes WHERE query LIKE '%gpu_telemetry%'"
    found: list[dict[str, str]] = api.rig.store.query(f"{sql} AND query NOT LIKE '%LIKE%'").to_pylist()
    return [row["marker"] for row in found]


def _killed_all(api: Api, done: list[int], count: int) -> bool:
    for marker in _markers(api):
        api.rig.reached.kill(marker)
    return len(done) == count


def _until(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
