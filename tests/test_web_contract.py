"""Hold the pages, their small server and the api to one description of the answers."""

import json
from pathlib import Path
from typing import cast

import pytest
from pydantic import BaseModel

from secondsight.api.app import make_routes
from secondsight.api.config import ApiConfig
from secondsight.api.models import CatalogAnswer, FleetAnswer, GpuAnswer, GpuPage, QueryAnswer, SessionAnswer
from secondsight.api.services import Services
from secondsight.selfmetrics import SelfMetrics
from web_fake_api import SESSION, catalog, fleet_series, gpu_page, make_fleet, row, summary, telemetry

DESCRIPTION = Path(__file__).resolve().parents[1] / "web" / "openapi.json"
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
    asked = {"from": str(fleet.newest_ms - 60_000), "to": str(fleet.newest_ms), "metrics": "gpu_power_watts"}
    answers: list[tuple[type[BaseModel], dict[str, object]]] = [
        (FleetAnswer, summary(fleet)),
        (GpuPage, gpu_page(fleet, {"limit": "3"})),
        (GpuAnswer, row(fleet, fleet.cards[0])),
        (CatalogAnswer, catalog()),
        (SessionAnswer, SESSION),
        (QueryAnswer, telemetry(fleet, fleet.cards[0], asked | {"resolution": "1s"})),
        (QueryAnswer, fleet_series(fleet, asked | {"aggregate": "avg"})),
    ]
    for model, answer in answers:
        model.model_validate(answer)
