"""Drive the built pages in a real Chromium against a small real server.

With SECONDSIGHT_SHOTS=DIR a picture of every page in each width and theme is left in DIR.
"""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from web_fake_api import STATIC, TOKEN, FakeApi, Fleet, State, make_fleet, serve

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("SECONDSIGHT_CHROMIUM", "/usr/bin/chromium")
AXE = Path(__file__).resolve().parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = {"1280": (1280, 860), "390": (390, 844)}
PLOT = ".theme-row .plot-canvas"
PATIENCE_MS = 30_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="no Chromium on this machine"),
    pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the pages are not built: npm run build in web/"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def fleet() -> Fleet:
    return make_fleet()


@pytest.fixture
def server(fleet: Fleet) -> Iterator[FakeApi]:
    with serve(fleet) as started:
        yield started


class Tab:
    """One page and what its console complained of."""

    def __init__(self, browser: playwright.Browser, address: str, width: str = "1280", theme: str = "light") -> None:
        size = {"width": WIDTHS[width][0], "height": WIDTHS[width][1]}
        self.context = browser.new_context(base_url=address, viewport=size, color_scheme=theme, reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )

    def sign_in(self, address: str) -> "Tab":
        self.context.add_cookies([{"name": "secondsight_session", "value": "open", "url": address}])
        return self

    def wait_until(self, holds: Callable[[], bool], limit_ms: int = PATIENCE_MS) -> None:
        """Ask every tenth of a second; the pages' policy forbids the browser to evaluate a text by itself."""
        for _ in range(limit_ms // 100):
            if holds():
                return
            self.page.wait_for_timeout(100)
        pytest.fail("waited in vain")

    def count(self, attribute: str) -> int:
        return int(self.page.locator(PLOT).first.get_attribute(attribute) or 0)


@pytest.fixture
def tab(browser: playwright.Browser, server: FakeApi) -> Iterator[Tab]:
    opened = Tab(browser, server.address).sign_in(server.address)
    yield opened
    opened.context.close()


def gpu_path(fleet: Fleet, number: int = 1) -> str:
    return f"/gpus/{fleet.cards[number].gpu_id}"


def expect(locator: playwright.Locator) -> playwright.LocatorAssertions:
    playwright.expect.set_options(timeout=PATIENCE_MS)  # a machine with much to do is no fault of the page
    return playwright.expect(locator)


def test_signing_in_leads_back_to_where_one_was_going(
    browser: playwright.Browser, server: FakeApi, fleet: Fleet
) -> None:
    tab = Tab(browser, server.address)
    page = tab.page
    for path in ("/", f"{gpu_path(fleet)}?range=5m"):
        fleet.requests.clear()
        page.goto(path)
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert fleet.requests == ["/v1/session/ways"], "nothing else is asked before it is known who is there"
    assert tab.complaints == []
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known, or it has expired")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0000 · GPU 1")
    assert page.url == f"{server.address}{gpu_path(fleet)}?range=5m"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    tab.context.close()


def test_signing_in_follows_no_other_site(browser: playwright.Browser, server: FakeApi) -> None:
    tab = Tab(browser, server.address)
    tab.page.goto("/signin?return=//elsewhere.example/")
    tab.page.get_by_label("Token").fill(TOKEN)
    tab.page.get_by_role("button", name="Sign in").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Fleet")
    assert tab.page.url == f"{server.address}/"
    tab.context.close()


def test_signing_in_with_an_issuer_leads_back_too(browser: playwright.Browser, server: FakeApi) -> None:
    tab = Tab(browser, server.address)
    ways = {"token": True, "issuer": "https://login.example.org/realm", "session": None}
    tab.page.route("**/v1/session/ways", lambda route: route.fulfill(json=ways))
    tab.page.goto("/clusters/cedar?range=6h")
    link = tab.page.get_by_role("link", name="Sign in with login.example.org")
    expect(link).to_have_attribute("href", "/v1/session/login?back=%2Fclusters%2Fcedar%3Frange%3D6h")
    assert findings(tab) == []
    shoot(tab, "signin-issuer")
    tab.context.close()


def test_fleet_says_counts_and_lists_gpus(tab: Tab) -> None:
    page = tab.page
    page.goto("/")
    counts = page.locator(".counts")
    expect(counts).to_contain_text("Healthy92")
    expect(counts).to_contain_text("Degraded1")
    expect(counts).to_contain_text("Unavailable3")
    expect(page.locator(".verdict-line")).to_contain_text("lotus is worst: 2 unavailable. Hottest is gpu-node-")
    expect(page.locator(".band .plot-canvas canvas")).to_have_count(4)
    expect(page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "97")
    assert tab.complaints == []


def test_list_draws_only_rows_in_sight(browser: playwright.Browser) -> None:
    with serve(make_fleet(hosts=250)) as server:
        tab = Tab(browser, server.address).sign_in(server.address)
        tab.page.goto("/gpus")
        rows = tab.page.locator(".t-row")
        expect(tab.page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "2001")
        assert rows.count() < 60
        tab.page.locator(".t-rows").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        expect(rows.last).to_contain_text("gpu-node-0249 · 7")
        tab.context.close()


def test_list_is_filtered_and_sorted_in_the_address(tab: Tab) -> None:
    page = tab.page
    page.goto("/")
    expect(page.get_by_role("table", name="GPUs")).to_be_visible()
    page.keyboard.press("f")
    page.keyboard.type("node-0003 iris")
    expect(page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "1")
    page.get_by_role("searchbox", name="Filter GPUs").fill("gpu-node-0003")
    expect(page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "9")
    page.get_by_role("columnheader", name="Temperature").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="Temperature")).to_have_attribute("aria-sort", "descending")
    assert page.url.endswith("/?q=gpu-node-0003&sort=-temperature")
    shown = [
        float(re.sub(r"[^\d.]", "", text))
        for text in page.locator(".gpu-panel .t-row .c-temperature").all_inner_texts()
    ]
    assert shown == sorted(shown, reverse=True)
    page.reload()
    expect(page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "9")


def test_a_row_leads_to_its_gpu_and_back(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto("/?q=gpu-node-0004")
    page.locator(".gpu-panel .t-row", has_text="gpu-node-0004 · 2").locator(".c-power").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0004 · GPU 2")
    assert page.url.endswith(gpu_path(fleet, 34))
    page.go_back()
    expect(page.get_by_role("table", name="GPUs")).to_have_attribute("aria-rowcount", "9")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0004 · GPU 2")
    assert tab.complaints == []


def test_charts_follow_live_and_ask_only_for_the_tail(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(f"{gpu_path(fleet, 9)}?range=5m")
    expect(page.locator(PLOT)).to_have_count(7)
    newest, heights = tab.count("data-newest"), [box["height"] for box in boxes(tab)]
    tab.wait_until(lambda: tab.count("data-newest") >= newest + 3000)
    assert 295 <= tab.count("data-points") <= 312
    assert [box["height"] for box in boxes(tab)] == heights
    asked = [span_ms(request) for request in fleet.requests if "telemetry" in request]
    assert asked[0] >= 300_000
    assert asked[1:]
    assert max(asked[1:]) < 30_000
    assert tab.complaints == []


def boxes(tab: Tab) -> list[playwright.FloatRect]:
    return [box for row in tab.page.locator(".theme-row").all() if (box := row.bounding_box())]


def span_ms(request: str) -> int:
    first, last = re.search(r"from=(\d+)&to=(\d+)", request).groups()
    return int(last) - int(first)


def test_pause_holds_and_live_goes_on(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    page.keyboard.press("l")
    paused = page.get_by_role("button", name="Paused")
    expect(paused).to_be_visible()
    expect(paused).to_contain_text("behind")
    assert re.search(r"\?from=2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ&to=2", page.url)
    tab.wait_until(lambda: behind_seconds(tab) >= 3)
    newest = tab.count("data-newest")
    tab.wait_until(lambda: behind_seconds(tab) >= 5)
    assert tab.count("data-newest") == newest
    page.keyboard.press("l")
    tab.wait_until(lambda: tab.count("data-newest") > newest + 2000)
    page.go_back()
    expect(paused).to_be_visible()


def behind_seconds(tab: Tab) -> float:
    return float(tab.page.locator(".control small", has_text="behind").inner_text().split()[0])


def test_a_gap_is_drawn_and_named(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 1))
    badge = page.locator(".badge", has_text="1 gap")
    expect(badge).to_be_visible()
    assert tab.count("data-gaps") == 1
    assert page.locator(PLOT).first.evaluate(HATCHED) > 200
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    assert tab.count("data-gaps") == 0


HATCHED = """plot => {
  const canvas = plot.querySelector("canvas");
  const probe = document.createElement("i");
  probe.style.color = "var(--surface-2)";
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) count += data[i] === r && data[i + 1] === g && data[i + 2] === b;
  return count;
}"""


def test_a_drag_zooms_all_charts_and_a_double_click_goes_back(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    over = page.locator(f"{PLOT} .u-over").nth(2)
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 200, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, y, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"from=.*&to="))
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    playwright.expect(page.locator(PLOT).first).not_to_have_attribute("data-points", re.compile(r"^9\d\d$"))
    assert 80 < tab.count("data-points") < 260
    over.dblclick()
    page.wait_for_url(re.compile(r"e37b$"))
    expect(page.get_by_role("button", name="Live")).to_be_visible()


def test_the_pointer_shows_its_second_in_every_gutter(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    span = [datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (fleet.born_ms - 300_000, fleet.born_ms)]
    page.goto(f"{gpu_path(fleet, 9)}?from={span[0][:19]}Z&to={span[1][:19]}Z")
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    expect(page.locator(PLOT)).to_have_count(7)
    before = page.locator(".gutter").nth(2).inner_text()
    page.locator(f"{PLOT} .u-over").first.hover(position={"x": 120, "y": 20})
    pointed = page.locator(".time-axis-cursor")
    expect(pointed).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    assert page.locator(".gutter").nth(2).inner_text() != before
    page.mouse.move(5, 5)
    expect(pointed).to_have_count(0)
    assert page.locator(".gutter").nth(2).inner_text() == before


def test_the_same_window_as_a_table(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    page.keyboard.press("t")
    table = page.locator(".sample-table table")
    expect(table.get_by_role("columnheader", name="SM clock")).to_be_visible()
    expect(table.locator("tbody tr").nth(1)).to_contain_text("GHz")
    assert page.url.endswith("?view=table")
    assert table.locator("tr").count() < 80


def test_an_empty_fleet_says_what_would_fill_it(tab: Tab, fleet: Fleet) -> None:
    fleet.cards.clear()
    tab.page.goto("/")
    expect(tab.page.get_by_role("heading", name="No GPU has reported yet")).to_be_visible()
    expect(tab.page.locator(".state code")).to_have_text("secondsight up --simulate 200x8")
    assert tab.complaints == []


def test_a_failure_says_why_and_is_retried(tab: Tab, fleet: Fleet) -> None:
    fleet.state = State.BROKEN
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    line = page.get_by_role("region", name="Time line")
    expect(line.get_by_role("alert")).to_contain_text("The store did not answer in 10 s")
    expect(line.locator(".state code")).to_have_text("store_timeout")
    fleet.state = State.WELL
    line.get_by_role("button", name="Retry").click()
    expect(page.locator(PLOT)).to_have_count(7)


def test_a_lasting_failure_offers_no_retry(tab: Tab) -> None:
    tab.page.goto("/gpus/GPU-none")
    line = tab.page.get_by_role("region", name="Time line")
    expect(line.get_by_role("alert")).to_contain_text("No GPU is called GPU-none")
    expect(line.get_by_role("button", name="Retry")).to_have_count(0)


def test_old_data_stays_with_its_age(tab: Tab, fleet: Fleet) -> None:
    fleet.state = State.STALE
    tab.page.goto(gpu_path(fleet, 9))
    expect(tab.page.locator(".badge.warn", has_text="old")).to_contain_text("4 min")
    expect(tab.page.locator(".fact.stale").first).to_contain_text("old 4 min")
    expect(tab.page.locator(PLOT)).to_have_count(7)


def test_a_partial_answer_says_what_is_missing(tab: Tab, fleet: Fleet) -> None:
    fleet.state = State.PARTIAL
    tab.page.goto(gpu_path(fleet, 9))
    expect(tab.page.locator(".badge.warn", has_text="partial")).to_contain_text("shard 3 was not read")


def test_slow_answers_leave_an_outline(tab: Tab, fleet: Fleet) -> None:
    fleet.state = State.SLOW
    tab.page.goto(gpu_path(fleet, 9))
    line = tab.page.get_by_role("region", name="Time line")
    expect(line.locator(".skeleton-band").first).to_be_visible()
    expect(line.locator(".skeleton-words").first).to_contain_text("waiting for the samples")
    expect(tab.page.locator(PLOT)).to_have_count(7)


def test_without_a_connection_the_picture_stays_and_counts_down(browser: playwright.Browser, fleet: Fleet) -> None:
    with serve(fleet) as server:
        port = server.server_address[1]
        tab = Tab(browser, server.address).sign_in(server.address)
        tab.page.goto(f"{gpu_path(fleet, 9)}?range=5m")
        expect(tab.page.locator(PLOT)).to_have_count(7)
    tab.context.set_offline(True)
    expect(tab.page.locator(".disconnected")).to_contain_text(re.compile(r"reconnects in \d s|reconnecting"))
    expect(tab.page.locator(PLOT)).to_have_count(7)
    with serve(fleet, port):
        tab.context.set_offline(False)
        tab.page.get_by_role("button", name="Now").click()
        expect(tab.page.locator(".disconnected")).to_have_count(0)
    tab.context.close()


def test_the_gpus_of_a_host_stand_side_by_side(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(f"{gpu_path(fleet, 8)}?range=1h")
    peers = page.get_by_role("navigation", name="GPUs of this host by temperature").get_by_role("link")
    expect(peers).to_have_count(8)
    page.keyboard.press("[")
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0001 · GPU 7")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0001 · GPU 0")
    peers.nth(3).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-node-0001 · GPU 3")
    assert page.url.endswith("?range=1h")


def test_a_link_to_the_same_seconds_is_copied(tab: Tab) -> None:
    page = tab.page
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/?q=lost")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert re.search(r"/\?q=lost&from=2.*Z&to=2.*Z$", page.evaluate("navigator.clipboard.readText()"))


def test_keys_have_a_sheet_and_escape_goes_up(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("Escape")
    for heading in ("gpu-node-0001", "r01", "iris", "Clusters"):
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        expect(page.locator(".t-row").first).to_be_visible()
        page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")


def test_the_theme_can_be_chosen_and_is_kept(tab: Tab, fleet: Fleet) -> None:
    page = tab.page
    page.goto(gpu_path(fleet, 9))
    expect(page.locator(PLOT)).to_have_count(7)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="System theme").click()
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    expect(page.get_by_role("button", name="Dark theme")).to_be_visible()


def test_scripts_are_small_enough() -> None:
    import gzip

    scripts = [gzip.compress(path.read_bytes(), 9) for path in (STATIC / "assets").glob("*.js")]
    assert sum(map(len, scripts)) <= 300 * 1024


PAGES = {
    "signin": ("/signin", ".signin-button"),
    "fleet": ("/", ".band canvas >> nth=3"),
    "fleet-health": ("/?by=health", ".map-canvas"),
    "clusters": ("/clusters", ".t-row >> nth=2"),
    "cluster": ("/clusters/cedar", ".band canvas >> nth=3"),
    "rack": ("/clusters/cedar/racks/r01", ".band canvas >> nth=3"),
    "host": ("/hosts/gpu-node-0003", f"{PLOT} >> nth=2"),
    "gpus": ("/gpus", ".t-row >> nth=10"),
    "gpu": ("/gpus/{gpu}", f"{PLOT} >> nth=6"),
    "gpu-table": ("/gpus/{gpu}?view=table", ".sample-table td >> nth=20"),
    "jobs": ("/jobs", ".t-row >> nth=2"),
    "job": ("/jobs/job-48101", ".strip-cells"),
    "models": ("/models", ".t-row"),
    "model": ("/models/tern-13b", ".strip-cells"),
    "explore": ("/explore?groupBy=gpu&cluster=cedar&vs=7d", PLOT),
    "events": ("/events", ".t-row >> nth=1"),
    "gaps": ("/gaps", ".t-row >> nth=1"),
    "ledger": ("/gaps?view=ledger", ".t-row >> nth=1"),
    "collectors": ("/collectors", ".t-row >> nth=2"),
    "catalogue": ("/catalog?metric=gpu_power_watts", ".metric-detail"),
    "ask": ("/ask?q=How+busy+is+every+cluster", ".bars"),
    "admin": ("/admin", ".t-row"),
    "not-found": ("/nowhere", ".state"),
}
"""Address of each page, and what is there once it is drawn."""
LOOKS = [("1280", "light"), ("390", "dark")]
if os.environ.get("SECONDSIGHT_SHOTS"):
    LOOKS += [("1280", "dark"), ("390", "light")]


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_every_page_is_accessible_and_fits(browser: playwright.Browser, width: str, theme: str) -> None:
    fleet = make_fleet(hosts=40)
    with serve(fleet) as server:
        tab = Tab(browser, server.address, width, theme).sign_in(server.address)
        wrong: list[str] = []
        for name, (path, ready) in PAGES.items():
            tab.page.goto(path.format(gpu=fleet.cards[1].gpu_id))
            expect(tab.page.locator(ready).first).to_be_visible()
            tab.page.wait_for_timeout(300)
            shoot(tab, f"{name}-{width}-{theme}")
            wide = tab.page.evaluate("document.documentElement.scrollWidth")
            wrong += [f"{name}: {wide} px wide"] * (wide > WIDTHS[width][0])
            wrong += [f"{name}: {finding}" for finding in findings(tab)]
        assert wrong == []
        assert tab.complaints == []
        tab.context.close()


@pytest.mark.parametrize("state", [State.EMPTY, State.BROKEN, State.STALE, State.PARTIAL, State.SLOW])
def test_every_state_is_accessible(browser: playwright.Browser, state: State) -> None:
    fleet = make_fleet()
    fleet.state = state
    path = gpu_path(fleet, 9)
    if state is State.EMPTY:
        fleet.cards.clear()
    with serve(fleet) as server:
        tab = Tab(browser, server.address).sign_in(server.address)
        for name, where in (("fleet", "/"), ("gpu", path)):
            tab.page.goto(where)
            tab.page.wait_for_timeout(2500 if state is State.SLOW else 900)
            shoot(tab, f"state-{state}-{name}")
            assert findings(tab) == [], name
        tab.context.close()


def shoot(tab: Tab, name: str) -> None:
    folder = os.environ.get("SECONDSIGHT_SHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tab.page.screenshot(path=Path(folder) / f"{name}.png")


def findings(tab: Tab) -> list[str]:
    """Return what axe finds, as rule and element."""
    tab.page.evaluate(AXE.read_text())
    found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found["violations"] for node in rule["nodes"]]
