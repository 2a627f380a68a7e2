"""Serve the built pages and a small invented fleet over real HTTP, in the shapes of the api.

Values are a pure function of the GPU and the second, so two requests never disagree. `state` chooses what goes wrong.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import web_fake_lists as lists
import web_fake_live as live
from secondsight.api.pages import POLICY
from web_fake_lists import Card

STATIC = Path(__file__).resolve().parents[1] / "src" / "secondsight" / "api" / "static"
TOKEN = "sst_pages"
COOKIE = "secondsight_session=open"
SESSION: dict[str, object] = {"tenantId": "north", "name": "on-call", "role": "viewer"}
LATENESS_MS = 10_000
DAY_MS = 86_400_000
WIDTHS_MS = {"1s": 1_000, "30s": 30_000, "5m": 300_000, "1h": 3_600_000}
GIB = 2**30
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
UNITS = {
    "gpu_utilization_ratio": "1",
    "gpu_sm_active_ratio": "1",
    "gpu_tensor_active_ratio": "1",
    "gpu_dram_active_ratio": "1",
    "gpu_memory_used_bytes": "By",
    "gpu_memory_total_bytes": "By",
    "gpu_power_watts": "W",
    "gpu_power_limit_watts": "W",
    "gpu_sm_clock_hertz": "Hz",
    "gpu_memory_clock_hertz": "Hz",
    "gpu_temperature_celsius": "Cel",
    "gpu_memory_temperature_celsius": "Cel",
    "gpu_slowdown_temperature_celsius": "Cel",
    "gpu_nvlink_transmit_bytes_per_second": "By/s",
    "gpu_nvlink_receive_bytes_per_second": "By/s",
    "gpu_pcie_transmit_bytes_per_second": "By/s",
    "gpu_pcie_receive_bytes_per_second": "By/s",
    "gpu_clock_event_reasons": "bitmask",
}
LISTED = ("gpu_utilization_ratio", "gpu_power_watts", "gpu_temperature_celsius", "gpu_memory_used_bytes")
CLUSTERS = ("cedar", "iris", "lotus")
GPUS_A_HOST = 8
PRODUCT = "NVIDIA H100 80GB HBM3"
STRAGGLER = 30
"""The card that works half as hard as the others of its job."""


class State(StrEnum):
    """What the fleet or its api goes through."""

    WELL = "well"
    EMPTY = "empty"
    BROKEN = "broken"
    STALE = "stale"
    PARTIAL = "partial"
    SLOW = "slow"
    FORBIDDEN = "forbidden"


STREAMS_IN = (State.WELL, State.EMPTY, State.STALE, State.PARTIAL)
"""What the fleet goes through while the api streams."""


@dataclass(slots=True)
class Fleet:
    """Cards, and when the one with a gap was silent."""

    cards: list[Card]
    gap_from_ms: int
    gap_to_ms: int
    expected_from_ms: int = 0
    state: State = State.WELL
    requests: list[str] = field(default_factory=list)
    streams: live.Streams = field(default_factory=live.Streams)
    widths: list[str] = field(default_factory=list)
    born_ms: int = field(default_factory=lambda: int(time.time()) * 1000)
    lag_ms: int = 1_000

    @property
    def newest_ms(self) -> int:
        now_ms = int(time.time() * 1000)
        age_ms = 252_000 if self.state is State.STALE else self.lag_ms
        return (now_ms - age_ms) // 1000 * 1000


def make_fleet(hosts: int = 12) -> Fleet:
    now_ms = int(time.time()) * 1000
    odd = {5: "silent", 21: "lost", 22: "lost"}
    cards = [
        Card(
            n,
            f"gpu-node-{n // GPUS_A_HOST:04d}",
            CLUSTERS[n // GPUS_A_HOST % 3],
            n % GPUS_A_HOST,
            odd.get(n, "reporting"),
        )
        for n in range(hosts * GPUS_A_HOST)
    ]
    return Fleet(cards, now_ms - 400_000, now_ms - 310_000)


def noise(seed: int, step: int) -> float:
    """Return a value in [-1, 1] that looks random and is not."""
    mixed = (seed * 374_761_393 + step * 668_265_263) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 1_274_126_177) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)) & 0xFFFF) / 32767.5 - 1


def load(seed: int, second: int) -> float:
    """Return how hard a card works, from 0 to 1: waves, a dip at each checkpoint, a slowdown now and then."""
    if seed == STRAGGLER:
        return 0.42 + 0.02 * noise(seed, second)
    if seed % 11 == 0:
        return 0.02 + 0.02 * abs(noise(seed, second // 7))
    base = 0.86 + 0.06 * math.sin(second / (190 + seed % 7) + seed) + 0.02 * noise(seed, second)
    dip = 0.35 if (second + seed) % 97 < 3 else 0.0
    slow = 0.28 if (second + seed * 13) % 420 < 32 else 0.0
    return min(1.0, max(0.0, base - dip - slow))


def warmth(seed: int, second: int) -> float:
    """Return degrees; cedar's cards run hotter."""
    place = 10.0 if seed // GPUS_A_HOST % 3 == 0 else 0.0
    busy = 0.0 if seed % 11 == 0 else 22.0
    return 44 + place + busy + 5 * math.sin(second / 400 + seed) + 0.8 * noise(seed, second // 3)


VALUES: dict[str, Callable[[int, int], float]] = {
    "gpu_utilization_ratio": lambda g, s: round(min(1.0, load(g, s) + 0.05), 2),
    "gpu_sm_active_ratio": load,
    "gpu_tensor_active_ratio": lambda g, s: load(g, s) * (0.5 + 0.02 * noise(g + 1, s)),
    "gpu_dram_active_ratio": lambda g, s: load(g, s) * (0.66 + 0.015 * noise(g + 2, s)),
    "gpu_memory_used_bytes": lambda g, s: (72.0 if g % 11 else 0.5) * GIB + 0.3 * GIB * math.sin(s / 300 + g),
    "gpu_memory_total_bytes": lambda _g, _s: 80 * GIB,
    "gpu_power_watts": lambda g, s: 90 + 590 * load(g, s) + 8 * noise(g + 3, s),
    "gpu_power_limit_watts": lambda _g, _s: 700,
    "gpu_sm_clock_hertz": lambda g, s: 1.98e9 - 0.6e9 * (0.9 - min(0.9, load(g, s) + 0.05)),
    "gpu_memory_clock_hertz": lambda _g, _s: 2.619e9,
    "gpu_temperature_celsius": warmth,
    "gpu_memory_temperature_celsius": lambda g, s: warmth(g, s) - 5 + 0.5 * math.sin(s / 40),
    "gpu_slowdown_temperature_celsius": lambda _g, _s: 87,
    "gpu_nvlink_transmit_bytes_per_second": lambda g, s: load(g, s) * (350e9 + 8e9 * noise(g + 4, s)),
    "gpu_nvlink_receive_bytes_per_second": lambda g, s: load(g, s) * (330e9 + 8e9 * noise(g + 5, s)),
    "gpu_pcie_transmit_bytes_per_second": lambda g, s: 9e9 + 2e9 * noise(g + 6, s),
    "gpu_pcie_receive_bytes_per_second": lambda g, s: 21e9 + 4e9 * noise(g + 7, s) + (12e9 if (s + g) % 97 < 3 else 0),
    "gpu_clock_event_reasons": lambda g, s: 64 if load(g, s) < 0.6 and g % 11 else 0,
}


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def freshness(fleet: Fleet) -> dict[str, object]:
    """Return what every answer says of its age."""
    newest_ms = fleet.newest_ms
    return {
        "completeThrough": iso(newest_ms - LATENESS_MS),
        "dataFreshnessMs": max(0, int(time.time() * 1000) - newest_ms),
    }


def answer_of(
    fleet: Fleet, series: list[dict[str, object]], times: list[int], width: str, aggregate: str
) -> dict[str, object]:
    """Return series in columns, with what they are worth."""
    partial = fleet.state is State.PARTIAL
    shared = {"tenantId": "north", "links": {}}
    return {
        "metric": series[0]["metric"] if series else "",
        "unit": series[0]["unit"] if series else "",
        "ts": times,
        "series": [{"aggregate": aggregate} | one | shared for one in series],
        "effectiveResolution": width,
        "tier": "hot",
        "aggregate": aggregate,
        "lateRatio": 0.003,
        "expectedFrom": iso(fleet.expected_from_ms) if fleet.expected_from_ms else None,
        "coverage": {"expectedSamples": 1000, "storedSamples": 998, "ratio": 0.998, "gaps": 1, "shed": 0},
        "partial": partial,
        "warnings": ["shard 3 was not read"] if partial else [],
        "seriesTotal": len(series),
        "nextCursor": None,
        "rangeStart": iso(times[0] if times else 0),
        "rangeEnd": iso(times[-1] if times else 0),
        **freshness(fleet),
    }


def telemetry(fleet: Fleet, card: Card, query: dict[str, str]) -> dict[str, object]:
    names = query["metrics"].split(",")
    first_ms, last_ms = int(query["from"]), min(int(query["to"]), fleet.newest_ms + 1)
    width = width_for(query.get("resolution", ""), int(query["to"]) - first_ms)
    step_ms = WIDTHS_MS[width]
    fleet.widths.append(width)
    start_ms = -(-first_ms // step_ms) * step_ms
    times = [
        t
        for t in range(start_ms, last_ms, step_ms)
        if not (card.number == 1 and fleet.gap_from_ms <= t < fleet.gap_to_ms)
    ]
    if card.status == "lost":
        times = [t for t in times if t < fleet.newest_ms - lists.XID_AGO_MS]
    series = [
        {
            "metric": name,
            "unit": UNITS[name],
            "gpuId": card.gpu_id,
            "values": [VALUES[name](card.number, t // 1000) for t in times],
        }
        for name in names
    ]
    return answer_of(fleet, series, times, width, "avg")


def width_for(asked: str, length_ms: int) -> str:
    """Return the width of rows that a range is read in: the one asked, else what its length allows."""
    if asked in WIDTHS_MS:
        return asked
    return "30s" if length_ms <= DAY_MS else "5m" if length_ms <= 14 * DAY_MS else "1h"


def by_gpu(fleet: Fleet, query: dict[str, str]) -> dict[str, object]:
    """Return one series a GPU of those that the filters admit."""
    names = [name for name in query["metrics"].split(",") if name in VALUES]
    cards = [card for card in fleet.cards if admits(card, query) and card.status == "reporting"]
    first_ms, last_ms = span_of(fleet, query)
    step_ms = max(30_000, (last_ms - first_ms) // 120 // 30_000 * 30_000)
    times = list(range(first_ms // step_ms * step_ms, last_ms, step_ms))
    series: list[dict[str, object]] = [
        {
            "metric": name,
            "unit": UNITS[name],
            "clusterId": card.cluster,
            "hostId": card.host,
            "gpuId": card.gpu_id,
            "values": [VALUES[name](card.number, t // 1000) for t in times],
        }
        for name in names
        for card in cards[:200]
    ]
    return answer_of(fleet, series, times, f"{step_ms // 1000}s", "avg")


def admits(card: Card, query: dict[str, str]) -> bool:
    """Tell whether the filters of a request admit a card."""
    own = {"cluster": card.cluster, "host": card.host, "gpu": card.gpu_id, "job": card.job, "model": card.model}
    return all(value in query[name].split(",") for name, value in own.items() if query.get(name))


def span_of(fleet: Fleet, query: dict[str, str]) -> tuple[int, int]:
    """Return the window of a request, whose ends may be relative to the present."""

    def instant(text: str) -> int:
        if text.startswith("now"):
            return fleet.newest_ms - 1000 * int(text[4:-1] or 0)
        return int(text)

    return instant(query["from"]), min(instant(query["to"]), fleet.newest_ms)


def fleet_series(fleet: Fleet, query: dict[str, str]) -> dict[str, object]:
    if query.get("groupBy") == "gpu":
        return by_gpu(fleet, query)
    names = [name for name in query["metrics"].split(",") if name in VALUES]
    aggregates = (query.get("aggregate") or "avg").split(",")
    first_ms, last_ms = span_of(fleet, query)
    step_ms = max(30_000, (last_ms - first_ms) // 240 // 30_000 * 30_000)
    times = list(range(first_ms // step_ms * step_ms, last_ms, step_ms))
    sample = [card for card in fleet.cards if admits(card, query)][::7]

    def point(name: str, aggregate: str, time_ms: int) -> float:
        values = sorted(VALUES[name](card.number, time_ms // 1000) for card in sample)
        match aggregate:
            case "avg":
                return sum(values) / len(values)
            case "min":
                return values[0]
            case "max":
                return values[-1]
            case _:
                return values[int(0.95 * (len(values) - 1))]

    series: list[dict[str, object]] = [
        {"metric": name, "unit": UNITS[name], "aggregate": each, "values": [point(name, each, t) for t in times]}
        for name in names
        for each in aggregates
        if sample
    ]
    common = aggregates[0] if len(aggregates) == 1 else ""
    return answer_of(fleet, series, times if sample else [], f"{step_ms // 1000}s", common)


def row(fleet: Fleet, card: Card) -> dict[str, object]:
    second = fleet.newest_ms // 1000
    return {
        "gpuId": card.gpu_id,
        "hostId": card.host,
        "clusterId": card.cluster,
        "rack": lists.rack_of(card),
        "index": card.index,
        "gpuModel": PRODUCT,
        "tenantId": "north",
        "jobId": card.job,
        "workloadId": "",
        "ownerTeam": team_of(card),
        "modelId": card.model,
        "links": {"gpu": f"/v1/gpus/{card.gpu_id}"},
        "status": card.status,
        "health": verdict(card),
        "lastSeen": iso(fleet.newest_ms - behind_ms(card)),
        "values": {name: value_of(card, name, second) for name in LISTED},
    }


def gpu_page(fleet: Fleet, query: dict[str, str]) -> dict[str, object]:
    start, limit = int(query.get("cursor", "0")), int(query.get("limit", "200"))
    admitted = [card for card in fleet.cards if admits(card, query)]
    cards = admitted[start : start + limit]
    following = start + limit
    cursor = str(following) if following < len(admitted) else None
    return {
        "gpus": [row(fleet, card) for card in cards],
        "nextCursor": cursor,
        "total": len(admitted),
        **freshness(fleet),
    }


def gpu_columns(fleet: Fleet, query: dict[str, str]) -> dict[str, object]:
    """Return the list in columns, its names only to whoever does not have them."""
    cards = [card for card in fleet.cards if admits(card, query)]
    layout, second = f"gpus-{lists.layout_of(cards)}", fleet.newest_ms // 1000
    return {
        "layout": layout,
        "names": None if query.get("layout") == layout else names_of(cards),
        "notable": [
            {"at": at, "status": card.status, "health": verdict(card)}
            for at, card in enumerate(cards)
            if card.status != "reporting" or card.number == lists.HOT
        ],
        "newest": iso(fleet.newest_ms) if cards else None,
        "behindMs": [behind_ms(card) for card in cards],
        "values": {name: [value_of(card, name, second) for card in cards] for name in LISTED},
        "total": len(cards),
        **freshness(fleet),
    }


def names_of(cards: list[Card]) -> dict[str, list[object]]:
    return {
        "tenantId": ["north" for _ in cards],
        "clusterId": [card.cluster for card in cards],
        "rack": [lists.rack_of(card) for card in cards],
        "hostId": [card.host for card in cards],
        "gpuId": [card.gpu_id for card in cards],
        "index": [card.index for card in cards],
        "gpuModel": [PRODUCT for _ in cards],
        "jobId": [card.job for card in cards],
        "workloadId": ["" for _ in cards],
        "ownerTeam": [team_of(card) for card in cards],
        "modelId": [card.model for card in cards],
    }


def team_of(card: Card) -> str:
    return "perception" if card.job else ""


def value_of(card: Card, metric: str, second: int) -> float | None:
    """Return a figure of a card that tells."""
    return round(VALUES[metric](card.number, second), 3) if card.status == "reporting" else None


def behind_ms(card: Card) -> int:
    """Return how long a card has been silent."""
    return {"silent": 94_000, "lost": 752_000}.get(card.status, 0)


def verdict(card: Card) -> dict[str, object]:
    """Return how a card is: unavailable where it does not tell; one is too hot."""
    found = {"no_telemetry": "it was to send samples and does not"} if card.status != "reporting" else {}
    if card.number == lists.HOT:
        found = {"thermal_hardware": "the hardware slows the clocks down because of heat"}
    word = "healthy" if not found else "degraded" if "thermal_hardware" in found else "unavailable"
    return {"verdict": word, "evidence": [{"rule": rule, "since": None, "text": text} for rule, text in found.items()]}


def summary(fleet: Fleet) -> dict[str, object]:
    second = fleet.newest_ms // 1000
    live = [card for card in fleet.cards if card.status == "reporting"]
    counts = {
        name: sum(card.status == name for card in fleet.cards) for name in ("reporting", "silent", "lost", "unknown")
    }
    hottest = max(live, key=lambda card: warmth(card.number, second), default=None)
    return {
        "gpus": {"total": len(fleet.cards), **counts},
        "health": lists.health_of(fleet.cards),
        "hosts": len({card.host for card in fleet.cards}),
        "clusters": len({card.cluster for card in fleet.cards}),
        "powerWatts": sum(VALUES["gpu_power_watts"](card.number, second) for card in live) if live else None,
        "utilizationRatio": sum(load(card.number, second) for card in live) / len(live) if live else None,
        "hottest": hottest
        and {
            "gpuId": hottest.gpu_id,
            "hostId": hottest.host,
            "index": hottest.index,
            "temperatureCelsius": warmth(hottest.number, second),
        },
        "collectors": len({card.host for card in fleet.cards}),
        "idleCollectors": 0,
        "coverage": {"expectedSamples": 1000, "storedSamples": 998, "ratio": 0.998, "gaps": None, "shed": 0},
        "warnings": [],
        "links": {"gpus": "/v1/gpus"},
        **freshness(fleet),
    }


def catalog() -> dict[str, object]:
    lines = [metric_line(name, unit) for name, unit in UNITS.items()]
    return {"metrics": lines, "total": len(lines), "nextCursor": None}


def metric_line(name: str, unit: str) -> dict[str, object]:
    return {
        "name": name,
        "kind": "gpu",
        "unit": unit,
        "type": "gauge",
        "rollup": "distribution",
        "priority": 0,
        "description": "",
        "aggregates": ["avg", "min", "max", "p95"],
        "aliases": [],
        "labels": [],
        "minimum": None,
        "maximum": None,
        "values": {},
        "bitmask": False,
    }


def ways(is_signed_in: bool) -> dict[str, object]:
    """Return how one signs in, and who has."""
    return {"token": True, "issuer": None, "session": SESSION if is_signed_in else None}


def refusal(code: str, message: str, hint: str = "") -> dict[str, object]:
    return {"error": {"code": code, "message": message, "hint": hint}}


class Handler(BaseHTTPRequestHandler):
    """Answers one request; the fleet hangs on the server."""

    protocol_version = "HTTP/1.1"

    @property
    def fleet(self) -> Fleet:
        return self.server.fleet  # type: ignore[attr-defined]

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.server.ended.is_set():  # type: ignore[attr-defined]
            self.close_connection = True  # a connection that outlives its server says nothing more
            return
        url = urlsplit(self.path)
        if not url.path.startswith("/v1/"):
            self.send_page(url.path)
            return
        self.fleet.requests.append(self.path)
        is_signed_in = "secondsight_session=open" in self.headers.get("Cookie", "")
        if url.path == "/v1/session/ways":
            self.send_json(200, ways(is_signed_in))
            return
        if not is_signed_in:
            self.send_json(401, refusal("unauthenticated", "sign in first"))
            return
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/v1/live" and self.fleet.state in STREAMS_IN and self.fleet.streams.is_offered:
            live.stream(self, self.fleet, VALUES, query, self.server.ended)  # type: ignore[attr-defined]
        else:
            self.answer(url.path, query)

    def answer(self, path: str, query: dict[str, str]) -> None:
        state = self.fleet.state
        if state is State.SLOW:
            time.sleep(3)
        if state is State.BROKEN and path != "/v1/catalog":
            self.send_json(503, refusal("store_timeout", "The store did not answer in 10 s", "Other parts are well."))
            return
        if state is State.FORBIDDEN and path not in ("/v1/catalog", "/v1/clusters"):
            told = refusal("not_granted", "This is outside your grant", "You may see cluster iris of tenant north.")
            self.send_json(403, told)
            return
        self.answer_place(path, query)

    def answer_place(self, path: str, query: dict[str, str]) -> None:
        match path.split("/")[2:]:
            case ["fleet"]:
                self.send_json(200, summary(self.fleet))
            case ["fleet", "gpus"]:
                self.send_json(200, gpu_columns(self.fleet, query))
            case ["catalog"]:
                self.send_json(200, catalog())
            case ["gpus"]:
                self.send_json(200, gpu_page(self.fleet, query))
            case ["nodes", host, "gpus"]:
                on_host = replace(self.fleet, cards=[card for card in self.fleet.cards if card.host == unquote(host)])
                self.send_json(200, gpu_page(on_host, query))
            case ["metrics", "query"]:
                self.send_json(200, fleet_series(self.fleet, query))
            case ["gpus", gpu_id, *rest]:
                self.answer_gpu(unquote(gpu_id), rest, query)
            case _:
                found = self.answer_list(path, query)
                self.send_json(200 if found else 404, found or refusal("not_found", f"there is no {path}"))

    def answer_list(self, path: str, query: dict[str, str]) -> dict[str, object]:
        """Return what is told beside samples; nothing for an address that is none."""
        cards, now_ms, quality = self.fleet.cards, self.fleet.newest_ms, freshness(self.fleet)
        admitted = [card for card in cards if admits(card, query)]
        told: dict[str, Callable[[], dict[str, object]]] = {
            "/v1/fleet/map": lambda: lists.frame(admitted, query, VALUES, now_ms, iso),
            "/v1/clusters": lambda: lists.clusters(cards, quality),
            "/v1/events": lambda: lists.events(cards, query, self.fleet.born_ms, iso, quality),
            "/v1/infos": lambda: {"facts": [], "total": 0, "nextCursor": None, **lists.QUALITY, **quality},
            "/v1/telemetry/gaps": lambda: lists.stories(cards, now_ms, iso),
            "/v1/ledger": lambda: lists.ledger(cards, now_ms, iso),
            "/v1/collectors": lambda: lists.collectors(cards, now_ms, iso),
            "/v1/top": lambda: lists.top(
                [card for card in cards if admits(card, query)], query, VALUES, now_ms // 1000, quality
            ),
            "/v1/search": lambda: lists.search(cards, query["q"]),
            "/v1/debug": lists.debug,
        }
        name = path.rsplit("/", 1)[-1]
        if path in told:
            return told[path]()
        if path.startswith("/v1/clusters/"):
            return lists.cluster(cards, unquote(name), quality)
        return lists.administration(name, iso, now_ms) if name in ("tokens", "grants", "tenants") else {}

    def answer_gpu(self, gpu_id: str, rest: list[str], query: dict[str, str]) -> None:
        card = next((card for card in self.fleet.cards if card.gpu_id == gpu_id), None)
        if card is None:
            self.send_json(404, refusal("not_found", f"No GPU is called {gpu_id}", "Look for it in the list of GPUs."))
        elif rest == ["telemetry"]:
            self.send_json(200, telemetry(self.fleet, card, query))
        else:
            self.send_json(200, row(self.fleet, card))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        if self.path == "/v1/ask":
            self.send_json(200, lists.answer(body["question"]))
            return
        if self.path != "/v1/session" or body.get("token") != TOKEN:
            self.send_json(401, refusal("unauthenticated", "this token is not known"))
            return
        cookie = f"{COOKIE}; HttpOnly; SameSite=Strict; Path=/"
        self.send_json(200, SESSION, {"Set-Cookie": cookie})

    def do_DELETE(self) -> None:
        self.send_bytes(204, "application/json", b"", {"Set-Cookie": "secondsight_session=; Max-Age=0; Path=/"})

    def send_page(self, path: str) -> None:
        file = STATIC / path.lstrip("/")
        if path == "/" or not file.is_file() or STATIC not in file.resolve().parents:
            file = STATIC / "index.html"
        self.send_bytes(200, TYPES.get(file.suffix, "application/octet-stream"), file.read_bytes(), {})

    def send_json(self, status: int, answer: dict[str, object], headers: dict[str, str] | None = None) -> None:
        self.send_bytes(status, "application/json", json.dumps(answer).encode(), headers or {})

    def send_bytes(self, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(HTTPStatus(status))
        for name, value in {"Content-Type": kind, "Content-Security-Policy": POLICY, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class FakeApi(ThreadingHTTPServer):
    """The server; daemon threads, one fleet."""

    daemon_threads = True

    def __init__(self, fleet: Fleet, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.fleet = fleet
        self.ended = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that leaves in the middle of an answer is no error."""


@contextmanager
def serve(fleet: Fleet | None = None, port: int = 0) -> Iterator[FakeApi]:
    server = FakeApi(fleet or make_fleet(), port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
