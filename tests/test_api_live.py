"""Live streams: a snapshot and what changed, resumed, shared, within bounds, and ended when grants change."""

import asyncio
import base64
import json
import resource
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_client import serving
from query_fixture import T0, Row, insert_entity, insert_rows, scope_of
from secondsight.access.grants import list_grants, revoke_grant
from secondsight.access.identity import Role
from secondsight.access.metadata import open_metadata
from secondsight.access.scope import Grant
from secondsight.access.tokens import TokenSpec, create_token, revoke_token
from secondsight.api.app import make_app
from secondsight.api.config import ApiConfig
from secondsight.api.feed import (
    KEPT_BOARDS,
    Coding,
    Feed,
    FeedLimits,
    Feeds,
    Form,
    Watched,
    difference_of,
    listed,
    snapshot_of,
)
from secondsight.api.feedbytes import range_of, steps_between
from secondsight.api.services import make_services
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Retryable
from secondsight.query.board import Board, Cell, layout_of
from secondsight.query.fleetmap import coded
from secondsight.query.newest import latest_second
from secondsight.query.request import Filters
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate

CATALOG = load_catalog()
GAUGE, POWER = "gpu_utilization_ratio", "gpu_power_watts"
SECONDS = 40


def rows():
    made = []
    for tenant, cluster, host, entity in (
        ("t1", "c1", "h1", "GPU-a"),
        ("t1", "c2", "h2", "GPU-b"),
        ("t2", "secret-cluster", "secret-host", "GPU-secret"),
    ):
        for second in range(SECONDS):
            values = {GAUGE: second * 10, POWER: 100_000 if second < 20 else 200_000}
            made.append(
                Row(
                    T0 + second * 1000, entity, values, tenant=tenant, cluster=cluster, host=host, collector=f"a-{host}"
                )
            )
    return made


class Api:
    def __init__(self, folder, **config) -> None:
        self.clock = ManualClock(T0 + 12_000)
        self.store = ChdbStore(folder / "hot", readers=4)
        migrate(self.store, CATALOG)
        insert_rows(self.store, rows())
        for row in {row.series: row for row in rows()}.values():
            insert_entity(self.store, row, T0)
        self.metadata = open_metadata(f"sqlite:///{folder / 'metadata.sqlite'}")
        self.config = ApiConfig(data=folder, stop_seconds=20, **config)
        self.services = make_services(self.config, self.store, self.metadata, CATALOG, self.clock)
        specs = {
            "admin": TokenSpec(Role.ADMIN, "t1", "admin"),
            "narrow": TokenSpec(Role.VIEWER, "t1", "narrow", grants=(Grant("t1", frozenset({"c2"})),)),
            "blind": TokenSpec(Role.VIEWER, "t1", "blind", grants=(Grant("t1", denied_metrics=frozenset({POWER})),)),
        }
        self.issued = {name: create_token(self.metadata, spec, T0) for name, spec in specs.items()}

    @contextmanager
    def stream(self, token="admin", last="", query="", read_bytes=None):
        with socket.create_connection(("127.0.0.1", self.client.port), timeout=30) as connection:
            if read_bytes is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, read_bytes)
            head = f"GET /v1/live{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.issued[token].secret}\r\n"
            connection.sendall(f"{head}{f'last-event-id: {last}' if last else 'x-no: 1'}\r\n\r\n".encode())
            events = Events(connection)
            try:
                yield events
            finally:
                events.reader.close()


class Events:
    def __init__(self, connection) -> None:
        self.reader = connection.makefile("rb")
        self._lines = self._read_lines()
        self.status = 0

    def answer(self):
        """Read the head; return the status."""
        if not self.status:
            self.status = int(self.reader.readline().split()[1])
            while self.reader.readline().strip():
                pass
        return self.status

    def _read_lines(self):
        reader = self.reader
        self.answer()
        text = b""
        while size := int(reader.readline() or b"0", 16):
            text += reader.read(size)
            reader.readline()
            *lines, text = text.split(b"\n")
            yield from lines

    def next(self):
        """Return (event, id, data) of the next event."""
        found = {}
        for line in self._lines:
            name, _, value = line.partition(b": ")
            if line and name:
                found[name] = value
            elif not line and b"event" in found:
                return found[b"event"].decode(), found.get(b"id", b"").decode(), json.loads(found[b"data"])
            elif not line:
                found = {}
        return None


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    made = Api(tmp_path_factory.mktemp("live"), tenant_live_streams=20, requests_burst=5000.0)
    with serving(make_app(made.services), made.config) as made.client:
        yield made


def test_a_stream_begins_with_everything_and_goes_on_with_what_changed(api):
    with api.stream() as events:
        event, first_id, snapshot = events.next()
        assert event == "snapshot"
        assert [cell["gpuId"] for cell in snapshot["cells"]] == ["GPU-a", "GPU-b"]
        assert snapshot["units"][GAUGE] == "1"
        before = snapshot["values"][GAUGE]
        api.clock.move(2)
        event, next_id, delta = events.next()
        assert event == "delta"
        assert delta["at"] > snapshot["at"]
        assert delta["changes"][GAUGE]["cells"] == [0, 1]
        assert delta["changes"][GAUGE]["values"] != before
        assert POWER not in delta["changes"]
    map_ = api.client.get(
        f"/v1/fleet/map?at={delta['at']}", headers={"authorization": f"Bearer {api.issued['admin'].secret}"}
    ).json()
    assert map_["layout"] == snapshot["layout"]
    api.clock.move(3)
    with api.stream(last=next_id) as events:
        event, _, delta = events.next()
        assert event == "delta"
        assert set(delta["changes"]) == {GAUGE}
    for old in ("", "12.abcdef", "x", first_id.replace(".", ".0")):
        with api.stream(last=old) as events:
            assert events.next()[0] == "snapshot"


def test_a_stream_in_bytes_leaves_out_the_cells_that_the_caller_has(api):
    with api.stream(query="?coding=bytes") as events:
        _, _, snapshot = events.next()
        assert [cell["gpuId"] for cell in snapshot["cells"]] == ["GPU-a", "GPU-b"]
        frame = snapshot["frames"][GAUGE]
        assert (frame["low"], frame["high"], len(base64.b64decode(frame["frame"]))) == (0.0, 1.0, 2)
        assert snapshot["sums"][POWER]["count"] == 2
        assert snapshot["sums"][POWER]["sum"] == 2 * snapshot["sums"][POWER]["max"]
        api.clock.move(2)
        event, _, delta = events.next()
        assert (event, delta["frames"]) == ("delta", {}), "a change smaller than a step is in the sums alone"
        assert delta["sums"][GAUGE]["sum"] > snapshot["sums"][GAUGE]["sum"]
    for known, has_cells in ((snapshot["layout"], False), ("another", True)):
        with api.stream(query=f"?coding=bytes&layout={known}") as events:
            assert (events.next()[2]["cells"] is not None) == has_cells
    with api.stream(query="?coding=words") as refused:
        assert refused.answer() == 422


def test_a_stream_shows_what_the_grants_show(api):
    with api.stream("narrow") as events:
        _, event_id, snapshot = events.next()
        assert [cell["gpuId"] for cell in snapshot["cells"]] == ["GPU-b"]
    with api.stream("blind") as events:
        assert POWER not in events.next()[2]["values"]
    with api.stream("admin", last=event_id) as events:
        assert events.next()[0] == "snapshot", "an id of other grants resumes nothing"
    refused = api.client.get(
        f"/v1/live?metrics={POWER}", headers={"authorization": f"Bearer {api.issued['blind'].secret}"}
    )
    assert refused.json()["error"]["code"] == "forbidden_metric"


def test_viewers_of_the_same_share_one_reading(api):
    with api.stream() as first, api.stream() as second, api.stream("narrow") as other:
        for events in (first, second, other):
            assert events.next()[0] == "snapshot"
        keys = {(len(feed.boards) > 0, feed.viewers) for feed in api.services.feeds._feeds.values() if feed.viewers}
        assert (True, 2) in keys


def test_a_stream_ends_when_its_token_is_revoked_or_its_grants_change(api):
    for name in ("gone", "changed"):
        spec = TokenSpec(Role.VIEWER, "t1", name, grants=(Grant("t1", frozenset({"c1"})),))
        api.issued[name] = create_token(api.metadata, spec, T0)
    with api.stream("changed") as changed, api.stream("gone") as gone, api.stream() as admin:
        assert [each.next()[0] for each in (changed, gone, admin)] == ["snapshot"] * 3
        revoke_token(api.metadata, api.issued["gone"].token_id, T0)
        subject = api.issued["changed"].subject
        grants = [one for one in list_grants(api.metadata, ["t1"]) if one.subject == subject]
        revoke_grant(api.metadata, grants[0].grant_id, ["t1"], T0)
        api.clock.move(11)
        ends = []
        for each in (changed, gone):
            found = each.next()
            while found[0] != "end":
                found = each.next()
            ends.append(found[2]["reason"])
        assert ends == ["no_grant", "token_invalid"]
        assert admin.next()[0] == "delta"


class Unclosed:
    """A store that others still use."""

    def __init__(self, store) -> None:
        self.query = store.query

    def close(self) -> None:
        pass


@contextmanager
def beside(api, boards):
    """Serve the same fleet once more, with feeds of its own."""
    feeds = Feeds(boards, api.clock, FeedLimits(1000, 1000))
    services = replace(api.services, store=Unclosed(api.store), feeds=feeds)
    first = api.client
    with serving(make_app(services), api.config) as api.client:
        yield services
    api.client = first


def test_streams_end_when_the_api_stops(api):
    with beside(api, api.services.boards) as services, api.stream() as events:
        events.next()
        services.feeds.stop()
        assert events.next()[2] == {"reason": "stopping"}
        assert events.next() is None


def test_more_streams_than_there_is_room_for_are_refused(api):
    with ExitStack() as stack:
        until = time.monotonic() + 30
        while api.services.feeds.viewers:
            assert time.monotonic() < until
            time.sleep(0.01)
        for _ in range(20):
            stack.enter_context(api.stream()).next()
        with api.stream() as refused:
            assert refused.answer() == 429
    until = time.monotonic() + 30
    while api.services.feeds.viewers:
        assert time.monotonic() < until, "every stream that was closed has left"
        time.sleep(0.01)


def cells(count):
    return tuple(Cell("t1", "c1", "", "h", f"GPU-{number}", number, 1000) for number in range(count))


def board(second, values, size=None):
    mine = cells(size or len(values))
    metric = CATALOG.get(GAUGE)
    return Board(second * 1000, (metric,), layout_of(mine), mine, (np.array(values, np.float64),))


FIGURES = st.lists(st.sampled_from([float("nan"), 0.0, 0.25, 0.5, 1.0]), min_size=3, max_size=4)
STEPS = st.lists(st.tuples(st.booleans(), FIGURES), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_whatever_a_viewer_misses_it_ends_up_with_the_newest_board(steps):
    feed = Feed(Watched((CATALOG.get(GAUGE),), Filters(), scope_of("t1")), "name")
    has, shown, layout = None, None, ""
    for second, (looks, values) in enumerate(steps, start=1):
        feed.add(board(second, values))
        while looks and (found := feed.next_for(has)):
            has, text = found
            told = dict(line.split(b": ", 1) for line in text.strip().split(b"\n"))
            data = json.loads(told[b"data"])
            assert feed.number_of(told[b"id"].decode()) == has
            if told[b"event"] == b"snapshot":
                shown, layout = data["values"][GAUGE], data["layout"]
            for position, value in zip(*data.get("changes", {}).get(GAUGE, {"c": [], "v": []}).values(), strict=True):
                shown[position] = value
        newest = feed.newest.board
        if looks:
            assert layout == newest.layout
            assert shown == listed(newest.values[0])
        assert len(feed.boards) <= KEPT_BOARDS


def moved(frame, steps):
    """Take a frame to the next, as a client does."""
    at, pairs = 0, iter(steps)
    for gap in pairs:
        at += gap
        if gap < 255:
            frame[at] = next(pairs)
            at += 1


@settings(deadline=None, max_examples=60)
@given(st.binary(min_size=1, max_size=40), st.data(), st.integers(0, 700))
def test_steps_take_a_frame_to_any_other(old, data, before):
    new = data.draw(st.binary(min_size=len(old), max_size=len(old)))
    pad = bytes(before)
    frame = bytearray(pad + old)
    steps = steps_between(*(np.frombuffer(pad + each, np.uint8) for each in (old, new)))
    moved(frame, steps)
    assert bytes(frame) == pad + new
    assert (len(steps) == 0) == (old == new)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), FIGURES), min_size=1, max_size=20))
def test_a_viewer_of_bytes_ends_up_with_the_frame_of_the_map(seen):
    feed, metric = Feed(Watched((CATALOG.get(POWER),), Filters(), scope_of("t1")), "name"), CATALOG.get(POWER)
    has, frame, low, high = None, bytearray(), 0.0, 0.0
    for second, (looks, shares) in enumerate(seen, start=1):
        values = np.array(shares, np.float64) * 700
        feed.add(replace(board(second, shares), metrics=(metric,), values=(values,)))
        while looks and (found := feed.next_for(has, Form(Coding.BYTES))):
            has, text = found
            told = json.loads(text.split(b"data: ", 1)[1]).get("frames", {}).get(POWER, {"steps": ""})
            if "frame" in told:
                frame, low, high = bytearray(base64.b64decode(told["frame"])), told["low"], told["high"]
            moved(frame, base64.b64decode(told.get("steps", "")))
        if looks:
            assert (low, high) == range_of(metric, values)
            assert bytes(frame) == coded(values, low, high)


def test_boards_and_their_texts_stay_inside_their_bounds():
    feed = Feed(Watched((CATALOG.get(GAUGE),), Filters(), scope_of("t1")), "name")
    viewers = {}
    for second in range(1, 1000):
        feed.add(board(second, np.full(50, second / 1000)))
        for number in range(0, 200, 1 + second % 7):
            found = feed.next_for(viewers.get(number))
            viewers[number] = found[0] if found else viewers.get(number)
    assert len(feed.boards) == KEPT_BOARDS
    assert len(feed.differences) <= KEPT_BOARDS


class Boards:
    """A fleet of many GPUs, all of which change every second."""

    def __init__(self, count) -> None:
        self.cells = cells(count)
        self.layout = layout_of(self.cells)
        self.reads = 0

    def newest_ms(self, _filters, now_ms, _scope):
        return latest_second(now_ms)

    def read(self, metrics, _filters, at_ms, _scope):
        self.reads += 1
        figures = np.random.default_rng(at_ms).random(len(self.cells))
        return Board(at_ms, metrics, self.layout, self.cells, tuple(figures for _ in metrics))


@pytest.mark.soak
def test_memory_stays_inside_its_bounds_with_500_clients_that_read_nothing(api):
    boards = Boards(2_000)
    with beside(api, boards) as services, ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(api.stream(read_bytes=4096))
        until = time.monotonic() + 60
        while services.feeds.viewers < 500:
            assert time.monotonic() < until
            time.sleep(0.05)
        before = rss_mib()
        for _ in range(60):
            api.clock.move(1)
            reads = boards.reads
            while boards.reads == reads:
                time.sleep(0.02)
        assert services.feeds.readings == 1
        assert rss_mib() - before < 200


def rss_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def test_a_board_that_cannot_be_read_is_said_and_read_again():
    clock = ManualClock(T0)

    class Broken(Boards):
        def read(self, *asked):
            if self.reads == 0:
                self.reads += 1
                raise Retryable("away")
            return super().read(*asked)

    async def run():
        feeds = Feeds(Broken(3), clock, FeedLimits(10, 10))
        watched = Watched((CATALOG.get(GAUGE),), Filters(), scope_of("t1"))
        feed = Feed(watched, "name")
        await feeds.read_once(feed)
        assert (feed.trouble, feed.newest) == ("unavailable", None)
        await feeds.read_once(feed)
        assert feed.trouble == ""
        assert snapshot_of(feed.newest.board)["layout"]
        clock.move(1)
        await feeds.read_once(feed)
        first, second = list(feed.boards.values())
        assert difference_of(first.board, second.board)["changes"][GAUGE]["cells"] == [0, 1, 2]
        await feeds.close()

    asyncio.run(run())


def test_a_lag_is_said_and_no_feed_goes_back():
    clock = ManualClock(T0)

    class Lagging(Boards):
        lag_ms = 0

        def newest_ms(self, _filters, now_ms, _scope):
            return latest_second(now_ms) - self.lag_ms

    async def run():
        boards = Lagging(3)
        feeds = Feeds(boards, clock, FeedLimits(10, 10))
        feed = Feed(Watched((CATALOG.get(GAUGE),), Filters(), scope_of("t1")), "name")
        told = []
        for lag_ms in (0, 0, 3_000, 3_000, 3_000, 3_000, 3_000, 0, 0):
            boards.lag_ms = lag_ms
            await feeds.read_once(feed)
            newest = feed.newest.board
            told.append(((newest.at_ms - T0) // 1000, newest.behind_ms // 1000, boards.reads))
            clock.move(1)
        assert told == [
            (-2, 2, 1),
            (-1, 2, 2),
            (-1, 2, 2),
            (-1, 2, 2),
            (-1, 2, 2),
            (0, 5, 3),
            (1, 5, 4),
            (5, 2, 5),
            (6, 2, 6),
        ]
        assert snapshot_of(feed.newest.board)["behindMs"] == 2_000
        await feeds.close()

    asyncio.run(run())
