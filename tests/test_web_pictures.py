"""Take a picture of every page in every state, width and theme, and look for what no picture should show.

`pytest -m soak tests/test_web_pictures.py` leaves them in .build/pictures, or in SECONDSIGHT_SHOTS; with `-k tour` it
takes those of the tour alone, and SECONDSIGHT_SHOTS=docs/pictures puts them where docs/guides/pages.md shows them.
"""

import base64
import json
import os
from pathlib import Path

import pytest

from test_web_pages import PAGES, WIDTHS, Tab, browser, expect, findings
from test_web_pages import pytestmark as browser_marks
from web_fake_api import Fleet, State, make_fleet, serve

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = browser_marks
__all__ = ["browser"]

SHOTS = Path(os.environ.get("SECONDSIGHT_SHOTS", ".build/pictures"))
WAITS_MS = {State.SLOW: 2600}
LOST = "disconnected"
TOUCH_PX = 40
CUT = """() => {
  const cut = [];
  for (const control of document.querySelectorAll("main button, main a, header button")) {
    const box = control.getBoundingClientRect();
    if (box.width > 0 && box.height > 0 && control.scrollWidth > control.clientWidth + 1 &&
        getComputedStyle(control).textOverflow !== "ellipsis" && getComputedStyle(control).overflow !== "visible")
      cut.push(control.className + ": " + control.textContent.slice(0, 40));
  }
  return cut;
}"""
SMALL = """least => {
  const small = [];
  for (const control of document.querySelectorAll("main :is(button, select, input), header button, .bottom-bar *")) {
    const box = control.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    if (control.closest(".map, .scrub, .event-lane, .story-strip")) continue;
    if (!control.matches("button, a, select, input")) continue;
    if (box.height < least - 0.5 && !control.closest("label, .picks, .zoom-levels, .question"))
      small.push(control.className + " " + Math.round(box.height) + ": " + control.textContent.slice(0, 30));
  }
  return [...new Set(small)];
}"""


def evaluate(tab: Tab, script: str, argument: object = None) -> list[str]:
    found: list[str] = tab.page.evaluate(f"({script})({json.dumps(argument)})")
    return found


def wrong_with(tab: Tab, width: str) -> list[str]:
    """Return what is wrong with the page as it stands: too wide, cut off, too small to touch, or found by axe."""
    wide = tab.page.evaluate("document.documentElement.scrollWidth")
    wrong = [f"{wide} px wide"] * (wide > WIDTHS[width][0])
    wrong += [f"cut off: {each}" for each in evaluate(tab, CUT)]
    if width == "390":
        wrong += [f"too small to touch: {each}" for each in evaluate(tab, SMALL, TOUCH_PX)]
    return wrong + findings(tab)


def picture(tab: Tab, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def fleet_in(state: str) -> Fleet:
    fleet = make_fleet(hosts=12)
    fleet.state = State.WELL if state == LOST else State(state)
    if state == State.EMPTY:
        fleet.cards.clear()
    return fleet


def gpu_of(fleet: Fleet) -> str:
    return fleet.cards[1].gpu_id if fleet.cards else "GPU-00000001-9e3b-4d18-b6a4-2f90c8d1e37b"


@pytest.mark.soak
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS))
@pytest.mark.parametrize("state", [*State, LOST])
def test_pictures(browser: playwright.Browser, width: str, theme: str, state: str) -> None:
    fleet = fleet_in(state)
    wrong: list[str] = []
    with serve(fleet) as server:
        for name, (path, ready) in PAGES.items():
            tab = Tab(browser, server.address, width, theme).sign_in(server.address)
            tab.page.goto(path.format(gpu=gpu_of(fleet)))
            if state in (State.WELL, LOST):
                expect(tab.page.locator(ready).first).to_be_visible()
            if state == LOST:
                tab.context.set_offline(True)
                tab.page.wait_for_timeout(7000)  # every list was asked for once more
            tab.page.wait_for_timeout(WAITS_MS.get(State(state), 700) if state != LOST else 0)
            picture(tab, f"{name}-{state}-{width}-{theme}")
            if state != State.SLOW:
                wrong += [f"{name}: {each}" for each in wrong_with(tab, width)]
            tab.context.close()
    (SHOTS / f"wrong-{state}-{width}-{theme}.txt").write_text("\n".join(wrong))
    assert wrong == []


TOUR = {
    "fleet": ("fleet", "1280", "light"),
    "fleet-health": ("fleet-health", "1280", "dark"),
    "cluster": ("cluster", "1280", "light"),
    "host": ("host", "1280", "light"),
    "gpu": ("gpu", "1280", "dark"),
    "job": ("job", "1280", "light"),
    "explore": ("explore", "1280", "light"),
    "ask": ("ask", "1280", "light"),
    "events": ("events", "1280", "light"),
    "gaps": ("gaps", "1280", "light"),
    "collectors": ("collectors", "1280", "light"),
    "catalogue": ("catalogue", "1280", "light"),
    "phone-fleet": ("fleet", "390", "light"),
    "phone-gpu": ("gpu", "390", "dark"),
}
"""Name of each picture of the tour: which page, how wide, which theme."""
LARGE = frozenset({"fleet", "fleet-health"})
TO_WEBP = """async png => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.82).split(",")[1];
}"""


def test_pictures_of_the_tour_are_there_and_small() -> None:
    docs = Path(__file__).resolve().parents[1] / "docs"
    told = (docs / "guides" / "pages.md").read_text()
    pictures = {path.stem: path for path in (docs / "pictures").iterdir()}
    assert set(TOUR) == set(pictures)
    assert all(f"../pictures/{path.name})" in told for path in pictures.values())
    assert sum(path.stat().st_size for path in pictures.values()) < 1_500_000


@pytest.mark.soak
def test_take_the_tour(browser: playwright.Browser) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    blank = browser.new_page()
    for name, (page, width, theme) in TOUR.items():
        fleet = make_fleet(hosts=600 if name in LARGE else 24)
        with serve(fleet) as server:
            tab = Tab(browser, server.address, width, theme).sign_in(server.address)
            path, ready = PAGES[page]
            tab.page.goto(path.format(gpu=gpu_of(fleet)))
            expect(tab.page.locator(ready).first).to_be_visible(timeout=30_000)
            expect(tab.page.locator(".skeleton")).to_have_count(0, timeout=30_000)
            tab.page.wait_for_timeout(1000)
            png = base64.b64encode(tab.page.screenshot()).decode()
            (SHOTS / f"{name}.webp").write_bytes(base64.b64decode(blank.evaluate(TO_WEBP, png)))
            tab.context.close()
    blank.close()
