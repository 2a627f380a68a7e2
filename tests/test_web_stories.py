"""Walk through the pages as people do who are called at night, by mouse and by keys alone."""

import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from test_web_pages import PLOT, Tab, browser, expect, findings, fleet, gpu_path, server, tab
from test_web_pages import pytestmark as browser_marks
from web_fake_api import STRAGGLER, FakeApi, Fleet, make_fleet, serve

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = browser_marks
__all__ = ["browser", "fleet", "server", "tab"]


class Clicks:
    """Counts what a person presses."""

    def __init__(self, tab: Tab) -> None:
        self.page = tab.page
        self.count = 0

    def __call__(self, locator: playwright.Locator) -> None:
        locator.click()
        self.count += 1


def test_on_call_the_second_of_an_xid_is_a_few_clicks_away(
    browser: playwright.Browser, server: FakeApi, tab: Tab
) -> None:
    page, click = tab.page, Clicks(tab)
    page.goto("/")
    click(page.locator(".verdict-line").get_by_role("link", name="lotus"))
    expect(page.get_by_role("heading", level=1)).to_have_text("lotus")
    click(page.get_by_role("table", name="Hosts").locator(".t-row").first.get_by_role("link"))
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0002")
    hosts = page.get_by_role("table", name="GPUs of this host")
    click(hosts.locator(".t-row", has_text="Unavailable").first.get_by_role("link").first)
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0002 · GPU 5")
    click(page.locator(".event-mark", has_text="Xid 79"))
    page.wait_for_url(re.compile(r"from=.*&to="))
    assert click.count < 6
    mark = page.locator(".event-mark", has_text="Xid 79")
    expect(mark).to_be_visible()
    told = mark.get_attribute("title")
    second = Tab(browser, server.address).sign_in(server.address)
    second.page.goto(page.url)
    expect(second.page.locator(".event-mark", has_text="Xid 79")).to_have_attribute("title", told or "")
    expect(second.page.get_by_role("button", name="Paused")).to_be_visible()
    assert tab.complaints + second.complaints == []
    second.context.close()


def test_a_job_names_the_gpu_that_holds_it_back(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    card = fleet.cards[STRAGGLER]
    page.goto(f"/jobs/{card.job}")
    expect(page.locator(".strip-cells")).to_have_attribute("data-rows", re.compile(r"^2\d$"))
    diagnosis = page.get_by_role("region", name="Diagnosis")
    expect(diagnosis).to_contain_text("One slow GPU holds back")
    expect(diagnosis).to_contain_text(f"{card.host} · {card.index} stays")
    expect(page.locator(".straggler-list li").first).to_contain_text(f"{card.host} · {card.index}")
    page.get_by_role("link", name=f"Open {card.host} · {card.index}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{card.host} · GPU {card.index}")
    assert tab.complaints == []


def test_the_search_finds_places_and_runs_commands(tab: Tab) -> None:
    page = tab.page
    page.goto("/")
    expect(page.locator(".map-canvas")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("node-0007")
    expect(page.get_by_role("option").first).to_contain_text("gpu-node-0007")
    assert findings(tab) == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0007")
    page.keyboard.press("Control+k")
    page.keyboard.type("go to gaps")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Gaps and ledger")
    assert tab.complaints == []


def test_the_map_is_walked_by_keys_and_opens_a_gpu(tab: Tab) -> None:
    page = tab.page
    page.goto("/")
    canvas = page.locator(".map-canvas")
    expect(canvas).to_have_attribute("data-cells", "96")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    expect(page.locator(".map-selection")).to_contain_text("1 selected")
    expect(page.locator(".map-card b").first).to_contain_text("gpu-node-")
    assert findings(tab) == []
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("GPU")
    page.go_back()
    page.goto("/?zoom=cedar")
    expect(page.locator(".map-canvas")).to_have_attribute("data-cells", "32")
    assert tab.complaints == []


@pytest.fixture
def large(browser: playwright.Browser) -> Iterator[Tab]:
    with serve(make_fleet(hosts=1250)) as served:
        opened = Tab(browser, served.address).sign_in(served.address)
        yield opened
        opened.context.close()


def test_ten_thousand_cells_fit_and_none_is_lost(large: Tab) -> None:
    large.page.goto("/")
    canvas = large.page.locator(".map-canvas")
    expect(canvas).to_have_attribute("data-cells", "10000")
    box = canvas.bounding_box()
    assert box is not None
    assert box["height"] <= 320


def test_scrubbing_shows_the_past_and_stands_in_the_address(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto("/")
    expect(page.locator(".map-canvas")).to_be_visible()
    slider = page.get_by_role("slider", name="time of the map")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_url(re.compile(r"at=2.*Z"))
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    tab.wait_until(lambda: any("/fleet/map" in request and "at=" in request for request in fleet.requests))
    shown = slider.input_value()
    tab.wait_until(lambda: address_ms(page.url) == int(shown))
    expect(page.locator(".map")).to_have_attribute("data-at", shown)
    page.reload()
    expect(page.locator(".map")).to_have_attribute("data-at", shown)


def address_ms(address: str) -> int:
    """Return the time that an address names."""
    (at,) = parse_qs(urlsplit(address).query)["at"]
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def test_explore_compares_with_a_week_before(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto("/explore?metrics=gpu_utilization_ratio,gpu_power_watts&groupBy=gpu&cluster=cedar&range=1h")
    expect(page.locator(PLOT)).to_have_count(2)
    page.get_by_label("against").select_option("7d")
    page.wait_for_url(re.compile(r"vs=7d"))
    tab.wait_until(
        lambda: any("groupBy=gpu" in request and re.search(r"from=\d+&", request) for request in fleet.requests)
    )
    expect(page.get_by_role("table", name="Series")).to_have_attribute("aria-rowcount", "63")
    page.keyboard.press("t")
    expect(page.locator(".sample-table")).to_be_visible()
    assert tab.complaints == []


def test_a_question_is_answered_and_followed_up(tab: Tab) -> None:
    page = tab.page
    page.goto("/ask")
    page.get_by_label("Your question").fill("How busy is that cluster?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Which of these do you mean?")).to_be_visible()
    page.get_by_role("button", name="Mean utilisation of cedar in the last hour").click()
    expect(page.locator(".bars li")).to_have_count(3)
    expect(page.get_by_role("list", name="asked before")).to_contain_text("How busy is that cluster?")
    page.get_by_text("SQL written by").click()
    expect(page.locator(".sql pre")).to_contain_text("gpu_30s")
    page.reload()
    expect(page.locator(".answer-text")).to_contain_text("cedar had 71.4 %")
    assert tab.complaints == []


def test_a_piece_of_the_reading_is_changed_and_a_figure_leads_to_its_place(tab: Tab) -> None:
    page = tab.page
    page.goto("/ask?q=How+busy+is+every+cluster")
    figure = page.get_by_role("link", name="71.4 %, where it comes from")
    expect(figure).to_have_attribute("href", re.compile(r"^/clusters/cedar\?from=2026-11-29T10:00:00Z&to="))
    chips = page.locator(".chips")
    chips.get_by_role("combobox", name=re.compile("^time")).select_option(label="last 7 days")
    page.wait_for_url(re.compile(r"q=How\+busy.*&q=in\+the\+last\+7\+days"))
    expect(page.get_by_role("list", name="asked before")).to_contain_text("How busy is every cluster")
    assert findings(tab) == []
    figure.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("cedar")
    page.go_back()
    expect(page.get_by_role("list", name="asked before")).to_be_visible()
    assert tab.complaints == []


def tab_to(tab: Tab, target: playwright.Locator, most: int = 120) -> None:
    """Press Tab until something is focused, as one without a mouse does."""
    target.wait_for()
    for _ in range(most):
        tab.page.keyboard.press("Tab")
        if target.evaluate("element => element === document.activeElement"):
            return
    pytest.fail(f"{target} was not reached by Tab")


def test_keys_alone_lead_from_the_fleet_to_the_second_of_an_xid(tab: Tab) -> None:
    page = tab.page
    page.goto("/")
    tab_to(tab, page.locator(".verdict-line").get_by_role("link", name="lotus"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lotus")
    page.keyboard.press("/")
    page.keyboard.type("gpu-node-0002")
    expect(page.get_by_role("option").first).to_contain_text("gpu-node-0002")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0002")
    lost = page.get_by_role("table", name="GPUs of this host").locator(".t-row", has_text="Unavailable").first
    tab_to(tab, lost.get_by_role("link").first)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0002 · GPU 5")
    tab_to(tab, page.locator(".event-mark", has_text="Xid 79").first)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"from=.*&to="))
    page.keyboard.press("t")
    expect(page.locator(".sample-table")).to_be_visible()
    assert tab.complaints == []


def test_keys_alone_lead_from_the_fleet_to_a_range_of_time(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    page.get_by_role("button", name=re.compile("^time range")).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"range=5m"))
    page.keyboard.press(",")
    page.wait_for_url(re.compile(r"from=.*&to="))
