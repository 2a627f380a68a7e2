"""Stream the small fleet of the browser tests as the api does, by the feeds of the api itself."""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import numpy as np

import web_fake_lists as lists
from query_fixture import scope_of
from secondsight.api.feed import Coding, Feed, Form, Watched
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import Metric
from secondsight.query.board import Board, Cell
from secondsight.query.request import Filters

if TYPE_CHECKING:
    from web_fake_api import Fleet

STREAMED = ("gpu_utilization_ratio", "gpu_power_watts", "gpu_temperature_celsius", "gpu_memory_used_bytes")


@cache
def metrics() -> tuple[Metric, ...]:
    catalog = load_catalog()
    return tuple(catalog.get(name) for name in STREAMED)


class Streams:
    """The feeds of a fleet, which outlive the server that tells them, and who listens."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}
        self._lock = threading.Lock()
        self.open = 0
        self.is_offered = True

    def next_for(
        self, fleet: "Fleet", values: lists.Values, asked: Mapping[str, str], has: int | None
    ) -> tuple[int, bytes] | None:
        """Return the event that takes a viewer to the newest second, and the number of what it has then."""
        with self._lock:
            feed = self.feed(asked)
            if feed.newest is None or feed.newest.board.at_ms < fleet.newest_ms:
                feed.add(board(fleet, asked.get("cluster", ""), values))
            return feed.next_for(has, Form(Coding(asked.get("coding", "numbers")), asked.get("layout", "")))

    def feed(self, asked: Mapping[str, str]) -> Feed:
        cluster = asked.get("cluster", "")
        watched = Watched(metrics(), Filters(), scope_of("north"))
        return self._feeds.setdefault(cluster, Feed(watched, f"small{cluster}"))


def board(fleet: "Fleet", cluster: str, values: lists.Values) -> Board:
    cards = [card for card in fleet.cards if cluster in ("", card.cluster)]
    second = fleet.newest_ms // 1000
    figures = tuple(
        np.array([values[name](card.number, second) if card.status == "reporting" else np.nan for card in cards])
        for name in STREAMED
    )
    behind_ms = int(time.time() * 1000) - fleet.newest_ms
    return Board(fleet.newest_ms, metrics(), lists.layout_of(cards), cells(cards), figures, behind_ms)


def cells(cards: Sequence[lists.Card]) -> tuple[Cell, ...]:
    return tuple(
        Cell("north", card.cluster, lists.rack_of(card), card.host, card.gpu_id, card.index, 1000) for card in cards
    )


def stream(
    handler: BaseHTTPRequestHandler,
    fleet: "Fleet",
    values: lists.Values,
    asked: Mapping[str, str],
    ended: threading.Event,
) -> None:
    """Tell a viewer every second until the server ends or the viewer is gone."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    has = fleet.streams.feed(asked).number_of(handler.headers.get("Last-Event-ID", ""))
    if has is not None:
        fleet.requests[fleet.requests.index(handler.path)] += " after a board"
    fleet.streams.open += 1
    try:
        while not ended.is_set():
            found = fleet.streams.next_for(fleet, values, asked, has)
            if found is not None:
                has, text = found
                handler.wfile.write(text)
                handler.wfile.flush()
            ended.wait(1.02 - time.time() % 1)
    finally:
        fleet.streams.open -= 1
