"""Watch the pages live in a real Chromium: the stream, its end and its return, and that nothing is left behind."""

import os
import re
import time
from collections.abc import Iterator

import pytest

from test_web_pages import PLOT, Tab, browser, expect, gpu_path
from test_web_pages import pytestmark as browser_marks
from web_fake_api import FakeApi, Fleet, State, make_fleet, serve
from web_fake_lists import layout_of

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = browser_marks
__all__ = ["browser"]

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "900"))
WAIT_MS = 30_000
GONE = "Failed to load resource"
"""What a browser says by itself of a server that does not answer."""


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return make_fleet()


@pytest.fixture(scope="module")
def server(fleet: Fleet) -> Iterator[FakeApi]:
    with serve(fleet) as started:
        yield started


@pytest.fixture
def tab(browser: playwright.Browser, server: FakeApi) -> Iterator[Tab]:
    opened = Tab(browser, server.address).sign_in(server.address)
    yield opened
    opened.context.close()


def of(fleet: Fleet, path: str) -> list[str]:
    return [request for request in fleet.requests if request.startswith(path)]


def shown_second(tab: Tab) -> str:
    return tab.page.locator(".map-panel .sub b").inner_text()


@pytest.mark.soak
def test_the_map_follows_the_stream_and_is_not_asked_for_again(tab: Tab, fleet: Fleet) -> None:
    fleet.requests.clear()
    tab.page.goto("/")
    tab.wait_until(lambda: fleet.streams.open == 1)
    first = shown_second(tab)
    tab.wait_until(lambda: shown_second(tab) != first)
    (asked,) = of(fleet, "/v1/live")
    assert re.search(r"coding=bytes&layout=layout-96-", asked), "the map's answer has named the GPUs already"
    asked_before = len(of(fleet, "/v1/fleet/map"))
    second = shown_second(tab)
    tab.wait_until(lambda: shown_second(tab) != second)
    assert len(of(fleet, "/v1/fleet/map")) == asked_before
    tab.page.locator(".map-panel").get_by_role("button", name="Power", exact=True).click()
    expect(tab.page.locator(".map-panel .legend")).to_contain_text("800 W")
    assert len(of(fleet, "/v1/fleet/map")) == asked_before, "the stream has every metric of the map"
    tab.page.goto("/catalog")
    tab.wait_until(lambda: fleet.streams.open == 0)
    assert tab.complaints == []


def test_a_lag_is_said_beside_the_second_that_is_shown(tab: Tab, fleet: Fleet) -> None:
    tab.page.goto("/")
    said = tab.page.locator(".map-panel .sub").first
    expect(said).to_have_text(re.compile(r"^at \d\d:\d\d:\d\d$"))
    fleet.lag_ms = 8_000
    try:
        expect(said).to_have_text(re.compile(r"^as of \d\d:\d\d:\d\d, [89] s behind$"), timeout=WAIT_MS)
    finally:
        fleet.lag_ms = 1_000
    expect(said).to_have_text(re.compile(r"^at \d\d:\d\d:\d\d$"), timeout=WAIT_MS)
    assert tab.complaints == []


STAYS = """() => new Promise(done => {
  const until = performance.now() + 2500;
  const look = now => {
    if (document.querySelector(".map-panel .state") === null) done(false);
    else if (now > until) done(true);
    else requestAnimationFrame(look);
  };
  look(0);
})"""


def test_what_went_wrong_stays_while_it_is_tried_again(tab: Tab, fleet: Fleet) -> None:
    fleet.state = State.BROKEN
    try:
        tab.page.goto("/")
        expect(tab.page.locator(".map-panel .state")).to_be_visible()
        fleet.requests.clear()
        assert tab.page.evaluate(STAYS)
        assert of(fleet, "/v1/fleet/map"), "it was tried again meanwhile"
    finally:
        fleet.state = State.WELL
    expect(tab.page.locator(".map-canvas")).to_be_visible()


SEEN = """() => {
  const told = (name, get) => Object.defineProperty(document, name, { get });
  told("hidden", () => window.isAway === true);
  told("visibilityState", () => document.hidden ? "hidden" : "visible");
}"""
TURN = """isAway => {
  window.isAway = isAway;
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
}"""


def test_a_page_that_nobody_sees_asks_for_nothing(tab: Tab, fleet: Fleet) -> None:
    tab.page.goto("/")
    tab.wait_until(lambda: fleet.streams.open == 1)
    tab.page.evaluate(SEEN)
    tab.page.evaluate(TURN, True)
    tab.wait_until(lambda: fleet.streams.open == 0)
    fleet.requests.clear()
    tab.page.wait_for_timeout(6_000)
    assert fleet.requests == []
    tab.page.evaluate(TURN, False)
    tab.wait_until(lambda: fleet.streams.open == 1)
    tab.wait_until(lambda: "/v1/fleet" in fleet.requests)
    tab.wait_until(lambda: bool(of(fleet, "/v1/fleet/gpus")))
    (asked,) = of(fleet, "/v1/fleet/gpus")[:1]
    assert asked == "/v1/fleet/gpus?layout=gpus-" + layout_of(fleet.cards), "who they are is known"
    expect(tab.page.locator(".gpu-panel .t-row").first).to_contain_text("gpu-node-")
    assert tab.complaints == []


@pytest.mark.soak
def test_a_stream_that_is_refused_leaves_asking(tab: Tab, fleet: Fleet) -> None:
    fleet.streams.is_offered = False
    try:
        tab.page.goto("/")
        expect(tab.page.locator(".map-canvas")).to_be_visible()
        first = shown_second(tab)
        tab.wait_until(lambda: shown_second(tab) > first)
        expect(tab.page.locator("header .lost")).to_have_count(0)
    finally:
        fleet.streams.is_offered = True
    assert [each for each in tab.complaints if GONE not in each] == []


@pytest.mark.soak
def test_a_server_that_comes_back_is_followed_from_where_it_was_left(browser: playwright.Browser) -> None:
    fleet = make_fleet()
    with serve(fleet) as server:
        port = server.server_address[1]
        tab = Tab(browser, server.address).sign_in(server.address)
        tab.page.goto("/")
        tab.wait_until(lambda: fleet.streams.open == 1)
        first = shown_second(tab)
        tab.wait_until(lambda: shown_second(tab) != first)
    lost = tab.page.locator("header .lost >> visible=true")
    expect(lost).to_contain_text(re.compile(r"reconnecting, stale since \d\d:\d\d:\d\d"), timeout=WAIT_MS)
    told, kept = lost.inner_text(), shown_second(tab)
    tab.page.wait_for_timeout(1_200)
    assert (lost.inner_text(), shown_second(tab)) == (told, kept), "said once, not counted up"
    fleet.requests.clear()
    with serve(fleet, port):
        expect(lost).to_have_count(0, timeout=WAIT_MS)
        tab.wait_until(lambda: shown_second(tab) > kept)
        assert of(fleet, "/v1/live")[0].endswith(" after a board"), "it goes on after its last event"
        tab.context.close()
    assert [each for each in tab.complaints if GONE not in each] == []


def counts(tab: Tab) -> dict[str, int]:
    """Return what the page holds after a collection: elements, listeners, and arrays of figures."""
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Performance.enable")
    session.send("HeapProfiler.collectGarbage")
    found: dict[str, int] = {}
    for kind in ("Uint8Array", "Map", "AbortController", "ResizeObserver"):
        prototype = session.send("Runtime.evaluate", {"expression": f"{kind}.prototype", "objectGroup": "counted"})
        objects = session.send(
            "Runtime.queryObjects",
            {"prototypeObjectId": prototype["result"]["objectId"], "objectGroup": "counted"},
        )["objects"]
        size = session.send(
            "Runtime.callFunctionOn",
            {"objectId": objects["objectId"], "functionDeclaration": "function () { return this.length }"},
        )
        found[kind] = size["result"]["value"]
    session.send("Runtime.releaseObjectGroup", {"objectGroup": "counted"})
    for _ in range(4):  # elements of the page that was left last, and what listens to them, go with later ones
        session.send("HeapProfiler.collectGarbage")
    told = {one["name"]: int(one["value"]) for one in session.send("Performance.getMetrics")["metrics"]}
    found |= {"nodes": told["Nodes"], "listeners": told["JSEventListeners"], "documents": told["Documents"]}
    found["heap_kib"] = int(session.send("Runtime.getHeapUsage")["usedSize"]) // 1024
    session.detach()
    return found


def walk(tab: Tab, fleet: Fleet) -> None:
    """Go once around the pages without loading any anew, scrub, turn to tables and back."""
    page = tab.page
    page.get_by_role("slider", name="time of the map").focus()
    for key in ("Shift+ArrowLeft", "ArrowLeft", "End"):
        page.keyboard.press(key)
    page.get_by_role("link", name="Clusters").first.click()
    page.get_by_role("table", name="Clusters").get_by_role("link", name="cedar").click()
    expect(page.locator(".map-canvas")).to_have_attribute("data-cells", "32")
    page.locator(".gpu-panel .t-row").first.get_by_role("link").click()
    expect(page.locator(PLOT)).to_have_count(7)
    page.keyboard.press("t")
    expect(page.locator(".sample-table")).to_be_visible()
    page.keyboard.press("t")
    page.get_by_role("link", name="Fleet").first.click()
    expect(page.locator(".band canvas")).to_have_count(4)
    tab.wait_until(lambda: fleet.streams.open == 1)


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what there is clearly more of; answers of the last minute may still be kept."""
    slack = {"nodes": 400, "listeners": 60, "Uint8Array": 120, "Map": 400, "AbortController": 40, "ResizeObserver": 2}
    return {name: (before[name], after[name]) for name, more in slack.items() if after[name] > before[name] + more}


def left_behind(tab: Tab, before: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return what grew and stays: the page that was left last may go with one of the next collections."""
    left: dict[str, tuple[int, int]] = {}
    for _ in range(10):
        left = grown(before, counts(tab))
        if not left:
            break
        tab.page.wait_for_timeout(500)
    return left


def test_walking_the_pages_leaves_nothing_behind(tab: Tab, fleet: Fleet) -> None:
    tab.page.goto("/")
    for _ in range(2):
        walk(tab, fleet)
    before = counts(tab)
    for _ in range(3):
        walk(tab, fleet)
    assert left_behind(tab, before) == {}
    assert tab.complaints == []


@pytest.mark.soak
@pytest.mark.parametrize("hosts", [12, 1250])
def test_a_long_open_tab_does_not_grow(browser: playwright.Browser, hosts: int) -> None:
    """Of a small fleet the pages are walked every minute; the map of 10,000 GPUs stays open."""
    fleet = make_fleet(hosts=hosts)
    with serve(fleet) as server:
        tab = Tab(browser, server.address).sign_in(server.address)
        tab.page.goto("/")
        expect(tab.page.locator(".gpu-panel .t-row").first).to_be_visible(timeout=WAIT_MS)
        tab.page.wait_for_timeout(90_000)
        seen = [counts(tab)]
        until = time.monotonic() + SOAK_SECONDS
        while time.monotonic() < until:
            if hosts == 12:
                walk(tab, fleet)
            tab.page.wait_for_timeout(60_000)
            seen.append(counts(tab))
        assert left_behind(tab, seen[0]) == {}
        third = len(seen) // 3 or 1
        early, late = (min(one["heap_kib"] for one in part) for part in (seen[:third], seen[-third:]))
        assert late < early * 1.1 + 2048, [one["heap_kib"] for one in seen]
        tab.context.close()


def test_three_months_become_single_seconds_in_place(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(f"{gpu_path(fleet, 9)}?range=90d")
    expect(page.locator(PLOT)).to_have_count(7)
    badge = page.locator(".zoom-levels")
    expect(badge).to_contain_text("1 h")
    seen = []
    for _ in range(12):
        if resolution(fleet) == "1s":
            break
        seen.append(resolution(fleet))
        answered = len(fleet.widths)
        drag(tab)
        assert page.locator(f"{PLOT} canvas").count() == 7, "the old picture stays until the new one comes"
        tab.wait_until(lambda answered=answered: len(fleet.widths) > answered)
    assert resolution(fleet) == "1s"
    assert len(seen) <= 5, seen
    expect(page.locator(PLOT).first).to_have_attribute("data-points", re.compile(r"^\d{2,}$"))
    for _ in range(len(seen)):
        page.go_back()
    assert "range=90d" in page.url
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    assert tab.complaints == []


def resolution(fleet: Fleet) -> str:
    """Return the width of the rows of the newest answer about one GPU."""
    return fleet.widths[-1]


def drag(tab: Tab) -> None:
    """Zoom into a twentieth of what is shown, near its end."""
    box = tab.page.locator(f"{PLOT} .u-over").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    tab.page.mouse.move(box["x"] + box["width"] * 0.9, y)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.95, y, steps=3)
    tab.page.mouse.up()
    tab.page.wait_for_url(re.compile(r"from=.*&to="))
