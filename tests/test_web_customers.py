"""Two customers have GPUs of one host: each sees its own in the pages, and its browser is told of no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from api_client import Client, serving
from query_fixture import T0, Row, insert_entity, insert_rows
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from test_web_pages import Tab, browser, expect
from test_web_pages import pytestmark as browser_marks
from web_fake_api import STATIC

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = browser_marks
__all__ = ["browser"]

CATALOG = load_catalog()
HOST = "shared-0001"
GPUS = {"north": "GPU-of-north", "south": "GPU-of-south"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, dict[str, str]]]:
    folder: Path = tmp_path_factory.mktemp("customers")
    store = ChdbStore(folder / "hot", readers=4)
    migrate(store, CATALOG)
    rows = [
        Row(
            T0 + second * 1000,
            gpu,
            {"gpu_utilization_ratio": 5_000, "gpu_temperature_celsius": 60},
            tenant=tenant,
            cluster="c1",
            host=HOST,
            collector=f"a-{HOST}",
        )
        for tenant, gpu in GPUS.items()
        for second in range(12)
    ]
    insert_rows(store, rows)
    for row in {row.series: row for row in rows}.values():
        insert_entity(store, row, T0)
    metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
    config = ApiConfig(data=folder, static=STATIC)
    services = make_services(config, store, metadata, CATALOG, ManualClock(T0 + 12_000))
    secrets = {
        tenant: create_token(metadata, TokenSpec(Role.VIEWER, tenant, tenant, grants=(Grant(tenant),)), T0).secret
        for tenant in GPUS
    }
    with serving(make_app(services), config) as client:
        yield client, secrets


@pytest.mark.parametrize("mine", GPUS)
def test_two_customers_on_one_host_see_their_own(
    browser: playwright.Browser, served: tuple[Client, dict[str, str]], mine: str
) -> None:
    client, secrets = served
    (other,) = GPUS.keys() - {mine}
    tab = Tab(browser, f"http://127.0.0.1:{client.port}")
    page = tab.page
    told: list[str] = []
    page.route(lambda url: "/v1/" in url and "/v1/live" not in url, lambda route: heard(route, told))
    page.goto("/signin")
    page.get_by_label("Token").fill(secrets[mine])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator(".counts")).to_contain_text("of 1 GPU on 1 host")
    expect(page.locator(".map-canvas")).to_have_attribute("data-cells", "1")
    page.goto(f"/hosts/{HOST}")
    expect(page.get_by_role("table", name="GPUs of this host").locator(".t-row")).to_have_count(1)
    page.goto(f"/gpus/{GPUS[other]}")
    expect(page.get_by_role("alert").first).to_be_visible()
    page.goto("/events")
    expect(page.get_by_role("heading", level=1)).to_have_text("Events")
    page.keyboard.press("/")
    page.keyboard.type("GPU-of-")
    expect(page.get_by_role("option")).to_have_count(1)
    answers = [each for each in told if GPUS[mine] in each]
    assert answers
    assert [each for each in told if GPUS[other] in each and "no GPU" not in each] == []
    tab.context.close()


def heard(route: playwright.Route, told: list[str]) -> None:
    response = route.fetch()
    told.append(response.text())
    route.fulfill(response=response)
