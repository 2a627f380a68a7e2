"""Questions in words over HTTP, on a real store: each caller has its own rows, and every question is on record."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_client import Answer, Client, serving
from secondsight.access.identity import Role
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.ask import AskAnswer
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.ask.terminal import print_answer
from sql_rig import CATALOG, FOREIGN, NOW_MS, Rig, rig


class Api:
    def __init__(self, made: Rig, folder: Path) -> None:
        self.config = ApiConfig(data=folder)
        self.app = make_app(make_services(self.config, made.reached, made.metadata, CATALOG, made.clock))
        denied = Grant("t1", denied_metrics=frozenset({"gpu_power_watts"}))
        specs = {
            "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
            "narrow": TokenSpec(Role.VIEWER, "t1", "narrow", grants=(Grant("t1", frozenset({"c2"})),)),
            "denied": TokenSpec(Role.VIEWER, "t1", "denied", grants=(denied,)),
            "team": TokenSpec(Role.VIEWER, "t1", "team", grants=(Grant("t1", teams=frozenset({"ml"})),)),
            "other": TokenSpec(Role.ADMIN, "t2", "other"),
            "collector": TokenSpec(Role.COLLECTOR, "t1", "c", cluster_id="c1", collector_pattern="*"),
        }
        self.tokens = {name: create_token(made.metadata, spec, NOW_MS).secret for name, spec in specs.items()}
        self.client: Client

    def headers(self, token: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[token]}", "content-type": "application/json"}

    def post(self, body: Any, token: str = "admin") -> Answer:
        return self.client.request("POST", "/v1/ask", json.dumps(body), self.headers(token))

    def ask(self, question: str, token: str = "admin", **more: Any) -> dict[str, Any]:
        answer = self.post({"question": question, **more}, token)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("ask")
    with rig(folder) as made:
        found = Api(made, folder)
        with serving(found.app, found.config) as found.client:
            yield found


POWER = "average power per host in the last 10 minutes"


def test_a_question_gets_figures_a_reading_and_its_sql(api: Api) -> None:
    body = api.ask(POWER)
    AskAnswer.model_validate(body)
    assert body["treatment"] == "answer"
    rows = {row[0]: row for row in body["tables"][0]["rows"]}
    assert {host: 100.0 * place in row for place, (host, row) in enumerate(sorted(rows.items()), 1)} == {
        "h1": True, "h2": True, "h3": True,
    }  # fmt: skip
    assert "100 W" in body["text"]
    reading = body["interpretation"]
    assert reading["metrics"] == ["gpu_power_watts"]
    assert reading["timeRange"]["from"] == "2023-11-14T22:20:00.000Z"
    assert reading["view"] == "gpu_telemetry_1s_secure"
    assert all(one["sql"].startswith("SELECT") for one in body["sql"])
    assert not body["dropped"]


@pytest.mark.parametrize(("token", "hosts"), [("narrow", {"h2"}), ("team", {"h2", "h3"}), ("other", {FOREIGN})])
def test_each_caller_has_its_own_rows(api: Api, token: str, hosts: set[str]) -> None:
    assert {row[0] for row in api.ask(POWER, token)["tables"][0]["rows"]} == hosts


def test_times_of_the_engine_are_told_in_the_asker_s_zone(api: Api) -> None:
    body = api.ask("power of h1 per hour today", timezone="Asia/Kolkata")
    assert [row[0] for row in body["tables"][0]["rows"]] == ["2023-11-15 03:00:00"]
    assert "GPU power by hour" in body["text"]


def test_a_foreign_host_and_one_that_is_nowhere_read_the_same(api: Api) -> None:
    foreign, nowhere = (api.ask(f"power of host {name} today") for name in (FOREIGN, "absent-host-9"))
    assert foreign["treatment"] == "refuse"
    assert {name: foreign[name] for name in ("text", "suggestions", "rule")} == {
        name: nowhere[name] for name in ("text", "suggestions", "rule")
    }


def test_a_metric_that_a_grant_does_not_show_is_no_metric(api: Api) -> None:
    assert api.ask(POWER, "denied")["treatment"] == "unanswerable"
    listed = api.ask("Which metrics can I ask about?", "denied")["tables"][0]["rows"]
    assert "gpu_power_watts" not in {row[0] for row in listed}
    assert "gpu_power_watts" in {row[0] for row in api.ask("Which metrics can I ask about?")["tables"][0]["rows"]}


def test_a_follow_up_leans_on_the_turn_before(api: Api) -> None:
    body = api.ask("only h2", context=[POWER])
    assert {row[0] for row in body["tables"][0]["rows"]} == {"h2"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"question": "power today", "timezone": "Mars/Olympus"}, 400, "bad_zone"),
        ({"question": "   "}, 400, "bad_question"),
        ({"question": ""}, 422, "bad_request"),
        ({"question": "x" * 3000}, 422, "bad_request"),
        ({"question": "power", "scope": "all"}, 422, "bad_request"),
        ({"question": "power", "context": ["x"] * 50}, 422, "bad_request"),
    ],
)
def test_wrong_use_is_refused_with_a_code(api: Api, body: Any, status: int, code: str) -> None:
    answer = api.post(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_collector_may_not_ask(api: Api) -> None:
    assert api.post({"question": POWER}, "collector").status_code == 403


def test_every_question_and_its_statements_are_on_record(api: Api) -> None:
    body = api.ask("Show me tenant t2's power")
    assert body["treatment"] == "refuse"
    asked = api.ask(POWER)
    answer = api.client.get("/v1/audit/questions", {"channel": "ask", "limit": "50"}, api.headers("admin"))
    found = {one["questionId"]: one for one in answer.json()["questions"]}
    assert found[body["questionId"]]["outcome"] == "refuse"
    assert found[body["questionId"]]["rule"] == "no_such_name"
    parent = found[asked["questionId"]]
    assert (parent["question"], parent["outcome"]) == (POWER, "ok")
    children = [one for one in found.values() if one["parentId"] == asked["questionId"]]
    assert {one["sql"] for one in children} == {one["sql"] for one in asked["sql"]}


def test_an_answer_is_printed_with_a_table_bars_and_a_line(api: Api) -> None:
    out = io.StringIO()
    print_answer(api.ask("Top 3 hosts by power in the last 10 minutes"), out, as_json=False)
    assert "█" in out.getvalue()
    assert "h3" in out.getvalue()
    out = io.StringIO()
    print_answer(api.ask("power of h1 every 5 minutes in the last 10 minutes"), out, as_json=False)
    assert "GPU power" in out.getvalue()
    out = io.StringIO()
    print_answer(api.ask("usage"), out, as_json=False)
    assert out.getvalue().startswith("question back: ")
    out = io.StringIO()
    print_answer(api.ask(POWER), out, as_json=True)
    assert json.loads(out.getvalue())["treatment"] == "answer"
