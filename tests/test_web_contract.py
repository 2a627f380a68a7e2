"""Hold the pages, their small server and the api to one description of the answers."""

import json
import re
import tomllib
from pathlib import Path
from typing import cast

import pytest
from pydantic import BaseModel

import web_fake_lists as lists
from ask_rig import plan
from secondsight.api.administration import GrantPage, TenantPage, TokenPage
from secondsight.api.app import make_routes
from secondsight.api.ask import AskAnswer
from secondsight.api.config import ApiConfig
from secondsight.api.events import EventPage
from secondsight.api.fleetmap import MapAnswer, SearchPage
from secondsight.api.gaps import GapPage
from secondsight.api.gpucolumns import GpuColumns
from secondsight.api.ledger import LedgerPage
from secondsight.api.models import (
    CatalogAnswer,
    ClusterAnswer,
    ClusterPage,
    CollectorPage,
    DebugList,
    FleetAnswer,
    GpuAnswer,
    GpuPage,
    QueryAnswer,
    SessionAnswer,
    TopAnswer,
)
from secondsight.api.services import Services
from secondsight.api.signin import WaysAnswer
from secondsight.ask.question import Question, Treatment
from secondsight.query.health import SILENT
from secondsight.selfmetrics import SelfMetrics
from web_fake_api import (
    SESSION,
    VALUES,
    catalog,
    fleet_series,
    freshness,
    gpu_columns,
    gpu_page,
    iso,
    make_fleet,
    row,
    summary,
    telemetry,
    ways,
)

TESTS = Path(__file__).resolve().parent
WEB = TESTS.parent / "web"
DESCRIPTION = WEB / "openapi.json"
NEVER_ASKED = {name: None for name in Services.__slots__ if name not in ("config", "selfmetrics")}


def described() -> str:
    config = ApiConfig(data=Path("nowhere"))
    services = Services(config=config, selfmetrics=SelfMetrics(), **cast("dict[str, object]", NEVER_ASKED))
    return json.dumps(make_routes(services).openapi(), indent=1, sort_keys=True) + "\n"


def test_the_pages_are_built_on_the_description_of_this_api(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        DESCRIPTION.write_text(described())
    assert DESCRIPTION.read_text() == described(), "pytest --rewrite tests/test_web_contract.py; cd web; npm run types"


def test_the_small_server_answers_as_the_api_does() -> None:
    fleet = make_fleet()
    cards, now_ms, quality = fleet.cards, fleet.newest_ms, freshness(fleet)
    asked = {"from": str(fleet.newest_ms - 60_000), "to": str(fleet.newest_ms), "metrics": "gpu_power_watts"}
    answers: list[tuple[type[BaseModel], dict[str, object]]] = [
        (FleetAnswer, summary(fleet)),
        (GpuColumns, gpu_columns(fleet, {})),
        (GpuPage, gpu_page(fleet, {"limit": "3"})),
        (GpuAnswer, row(fleet, fleet.cards[0])),
        (CatalogAnswer, catalog()),
        (SessionAnswer, SESSION),
        (WaysAnswer, ways(True)),
        (WaysAnswer, ways(False)),
        (QueryAnswer, telemetry(fleet, fleet.cards[0], asked | {"resolution": "1s"})),
        (QueryAnswer, fleet_series(fleet, asked | {"aggregate": "avg"})),
        (QueryAnswer, fleet_series(fleet, asked | {"groupBy": "gpu"})),
        (MapAnswer, lists.frame(cards, {}, VALUES, now_ms, iso)),
        (ClusterPage, lists.clusters(cards, quality)),
        (ClusterAnswer, lists.cluster(cards, "cedar", quality)),
        (EventPage, lists.events(cards, {}, now_ms, iso, quality)),
        (GapPage, lists.stories(cards, now_ms, iso)),
        (LedgerPage, lists.ledger(cards, now_ms, iso)),
        (CollectorPage, lists.collectors(cards, now_ms, iso)),
        (TopAnswer, lists.top(cards, {"metric": "gpu_power_watts"}, VALUES, now_ms // 1000, quality)),
        (SearchPage, lists.search(cards, "cedar")),
        (DebugList, lists.debug()),
        (TokenPage, lists.administration("tokens", iso, now_ms)),
        (GrantPage, lists.administration("grants", iso, now_ms)),
        (TenantPage, lists.administration("tenants", iso, now_ms)),
        (AskAnswer, lists.answer("How busy is that cluster?")),
        (AskAnswer, lists.answer("How busy is cedar?")),
    ]
    for model, answer in answers:
        model.model_validate(answer)


def test_the_pages_know_which_rules_make_a_gpu_unavailable() -> None:
    rules = tomllib.loads((TESTS.parent / "src" / "secondsight" / "catalog" / "health.toml").read_text())
    unavailable = {name for name, rule in rules.items() if rule["verdict"] == "unavailable"}
    words = (WEB / "src" / "panels" / "status.tsx").read_text().partition("UNUSABLE = new Set([")[2].partition("]")[0]
    assert set(json.loads(f"[{words}]")) == unavailable | {SILENT}


def test_the_pages_are_tried_on_the_case_of_a_last_value_that_is_nan() -> None:
    case = json.loads((TESTS / "cases" / "dashboards" / "125-last-value-is-nan.json").read_text())
    seconds, values = zip(*case["values"], strict=True)
    tried = (WEB / "src" / "model" / "spread.test.ts").read_text()
    assert f"[{', '.join(map(str, seconds))}]" in tried
    assert f"[{', '.join(values).replace('NaN', 'Number.NaN')}]" in tried


ASKED = "What was the average GPU utilization of each cluster yesterday?"
CHANGED = {
    "METRICS": lambda read: read.measures[0].metric,
    "AGGREGATES": lambda read: read.measures[0].stat,
    "DIMENSIONS": lambda read: read.dimensions,
    "TIMES": lambda read: read.ranges[0].words,
}


def test_every_turn_of_the_chips_changes_one_piece_of_a_reading() -> None:
    text = (WEB / "src" / "features" / "ask" / "chips.ts").read_text()
    for name, piece in CHANGED.items():
        _, _, rest = text.partition(f"const {name} = ")
        turns = re.findall(r'\["[^"]+", "([^"]+)"\]', rest.partition("]);")[0])
        readings = [plan(turn, context=[ASKED]) for turn in turns]
        assert {read.treatment for read in readings} == {Treatment.ANSWER}
        assert len({piece(read) for read in readings}) == len(turns) >= 4, name
        kept = [other for other in CHANGED.values() if other is not piece]
        if name != "METRICS":  # each metric has its own usual figures
            assert {tuple(other(read) for other in kept) for read in readings} == {
                tuple(other(plan(ASKED)) for other in kept)
            }


def test_a_turn_of_a_chip_names_another_cluster() -> None:
    read: Question = plan("only cluster c2", context=["Average utilization of cluster c1 by host yesterday"])
    assert read.filtered("cluster_id") == ("c2",)
