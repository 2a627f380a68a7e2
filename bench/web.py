"""The pages with 10,000 GPUs live at 1 Hz: first useful paint, frames while scrolling and scrubbing, weight of scripts.

The built pages run in a real Chromium, one process, against the small server of the browser tests, which answers at
once: what is measured is the browser's work. `first_paint_ms` is from the start of loading to the first frame that
shows the counts of the fleet and its map, the median of several cold loads. Frames are those of
requestAnimationFrame while the list of 10,000 GPUs scrolls and the map is scrubbed a second each frame; a machine that
is busy with other work lengthens them. `script_ms_...` is the time of scripts themselves, a frame on average, which
other work changes least.
`script_kib_gzip` counts all scripts, whichever page they belong to.
"""

import gzip
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from web_fake_api import STATIC, make_fleet, serve  # noqa: E402

QUICK = bool(os.environ.get("BENCH_QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "8" if QUICK else "30"))
LOADS = 3 if QUICK else 7
HOSTS = 1_250
CHROMIUM = os.environ.get("SECONDSIGHT_CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
USEFUL = ".map-canvas canvas"

FRAMES = """([seconds, kind]) => new Promise(done => {
  const frames = [];
  const box = document.querySelector(".gpu-panel .t-rows");
  const slider = document.querySelector(".scrub input");
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
  const until = performance.now() + seconds * 1000;
  let last = performance.now(), step = 0;
  const next = now => {
    frames.push(now - last);
    last = now;
    step += 1;
    if (kind === "scroll") box.scrollTop = (step * 112) % (box.scrollHeight - box.clientHeight);
    else {
      set.call(slider, String(Number(slider.max) - 1000 * (30 + step % 1200)));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }
    if (now < until) requestAnimationFrame(next);
    else done(frames.slice(5));
  };
  requestAnimationFrame(next);
})"""


def main() -> None:
    """Measure, say with what, and print the figures."""
    with serve(make_fleet(hosts=HOSTS)) as server, sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def opened() -> Page:
            context = chromium.new_context(base_url=server.address, viewport={"width": 1280, "height": 900})
            context.add_cookies([{"name": "secondsight_session", "value": "open", "url": server.address}])
            return context.new_page()

        loads = [first_paint_ms(opened) for _ in range(LOADS)]
        page = opened()
        page.goto("/")
        page.locator(".gpu-panel .t-row").first.wait_for()
        page.wait_for_timeout(2_000)
        half = SECONDS / 2
        heap_before = heap_mib(page)
        scrolled, script_scroll_ms = frames_of(page, half, "scroll")
        scrubbed, script_scrub_ms = frames_of(page, half, "scrub")
        heap_after = heap_mib(page)
        version = chromium.version
        chromium.close()
    frames = scrolled + scrubbed
    print(
        f"chromium {version}, {platform.machine()}, load {os.getloadavg()[0]:.1f}, {len(frames)} frames, {LOADS} loads"
    )
    figures = {
        "first_paint_ms": round(statistics.median(paint for paint, _ in loads), 1),
        "script_ms_first_paint": round(statistics.median(script for _, script in loads), 1),
        "p95_frame_ms": round(p95(frames), 1),
        "worst_frame_ms": round(max(frames), 1),
        "script_kib_gzip": round(script_kib(), 1),
        "p95_frame_scroll_ms": round(p95(scrolled), 1),
        "p95_frame_scrub_ms": round(p95(scrubbed), 1),
        "script_ms_scroll": round(script_scroll_ms / len(scrolled), 2),
        "script_ms_scrub": round(script_scrub_ms / len(scrubbed), 2),
        "frames_per_second": round(1000 * len(frames) / sum(frames), 1),
        "heap_mib_before": heap_before,
        "heap_mib_after": heap_after,
        "gpus": HOSTS * 8,
    }
    print(json.dumps({"name": "web", "figures": figures}))


def first_paint_ms(opened: Callable[[], Page]) -> tuple[float, float]:
    """Return the milliseconds of one cold load until counts and map are drawn, and those of scripts among them."""
    page = opened()
    scripts = Scripts(page)
    page.goto("/", wait_until="commit")
    page.locator(".counts .count-figure").first.wait_for()
    page.locator(USEFUL).wait_for()
    elapsed = page.evaluate("new Promise(done => requestAnimationFrame(() => done(performance.now())))")
    script = scripts.ms()
    page.context.close()
    return float(elapsed), script


def frames_of(page: Page, seconds: float, kind: str) -> tuple[list[float], float]:
    """Return how long each frame took, and the milliseconds of scripts in all of them."""
    scripts = Scripts(page)
    frames: list[float] = page.evaluate(FRAMES, [seconds, kind])
    return frames, scripts.ms()


class Scripts:
    """How long scripts run in a page from now on."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")
        self._before = self._total_ms()

    def ms(self) -> float:
        """Return the milliseconds until now, and stop."""
        found = self._total_ms() - self._before
        self._session.detach()
        return found

    def _total_ms(self) -> float:
        told = {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(told["ScriptDuration"])


def heap_mib(page: Page) -> float:
    """Return the live JavaScript heap after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    time.sleep(0.2)
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return round(float(used) / 2**20, 1)


def p95(values: list[float]) -> float:
    """Return the nearest-rank 95th percentile."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


def script_kib() -> float:
    """Return the weight of all scripts as they are sent."""
    return sum(len(gzip.compress(path.read_bytes(), 6)) for path in (STATIC / "assets").glob("*.js")) / 1024


if __name__ == "__main__":
    main()
