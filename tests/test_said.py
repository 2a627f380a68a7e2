"""Custody between agent and log: what an agent says that it sent of a minute against what came."""

import io
from pathlib import Path

import numpy as np
import pytest

from events_rig import platform
from gateway_fixture import content, stamp
from process_rig import T0, Rig, frame_bytes
from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.agent.spool.minutes import KEPT_MINUTES, Minutes
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.model import EntityKind
from secondsight.process.holes import Hole, HoleWatch, Missing, Who, changes
from secondsight.query.custody import print_ledger
from secondsight.query.inventory import Inventory
from secondsight.query.ledger import Asked, Count
from secondsight.query.lost import asker
from secondsight.query.plan import Span
from secondsight.query.said import SaidReader, State
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.chdb import ChdbStore
from secondsight.store.schema import tables
from secondsight.wire.content import Event
from secondsight.wire.frame import encode

MINUTE_MS = 60_000
M0 = T0 - T0 % MINUTE_MS + MINUTE_MS
POWER = "gpu_power_watts"
SAYS = ("agent_minute_start_seconds", "agent_minute_rows", "agent_minute_values")
WAITS = ("agent_spool_waiting_records", "agent_spool_waiting_age_seconds")


class Site:
    """An agent whose frames may be lost on their way, before a processor."""

    def __init__(self, store: ChdbStore, tenant: str) -> None:
        self.tenant, self.store = tenant, store
        self.rig = Rig(store, M0)
        self.minutes = Minutes()
        self.sequence = 0
        self.missing: list[bytes] = []

    def tell(self, minute: int, *lost: int, source: str = "", waiting: tuple[int, int] = (0, 0)) -> None:
        """Spool ten frames of six ticks and two rows, of which those numbered do not come, and beat."""
        for number in range(10):
            first = M0 + minute * MINUTE_MS + 6000 * number
            self.sequence += 1
            ticks = [first + 1000 * place for place in range(6)]
            rows = {(gpu, "", place): {POWER: 1} for gpu in ("GPU-a", "GPU-b") for place in range(6)}
            body = frame_bytes(rows, ticks, sequence=self.sequence, collector=f"h1{source}", live=number == 3)
            self.minutes.take([body])
            if number in lost:
                self.missing.append(body)
            else:
                self.rig.send(body, ticks[-1] + 500, tenant=self.tenant)
        for beat in (0, 30_000):
            self.beat(M0 + (minute + 1) * MINUTE_MS + beat, waiting)

    def beat(self, time_ms: int, waiting: tuple[int, int] = (0, 0)) -> None:
        said = self.minutes.said_at(time_ms)
        cells = {
            ("h1", f"kind={kind.value}", 0): dict(
                zip(SAYS, (said.start_ms // 1000, count.rows, count.values), strict=True)
            )
            for kind, count in said.tally.items()
        }
        cells["h1", "class=P1", 0] = dict(zip(WAITS, waiting, strict=True))
        self.sequence += 1
        body = frame_bytes(
            cells, [time_ms], sequence=self.sequence, collector="h1/health", kind=EntityKind.PLATFORM,
            interval_ms=30_000, names=(*SAYS, *WAITS),
        )  # fmt: skip
        self.minutes.take([body])
        self.rig.send(body, time_ms + 100, tenant=self.tenant)

    def read(self, now_ms: int) -> list[tuple[int, State, Count]]:
        self.rig.clock.step_wall((now_ms - self.rig.clock.now_ms()) / 1000)
        self.rig.settle()
        reader = SaidReader(Inventory(self.store, self.rig.clock))
        scope = Scope((self.tenant,), None, None, None, frozenset(), "test", Role.OPERATOR)
        found = reader.read(Asked(Span(M0, M0 + 20 * MINUTE_MS)), scope, now_ms)
        self.said = found.minutes
        return [((one.minute_ms - M0) // MINUTE_MS, one.state, one.said - one.came) for one in found.shorts]


def test_a_frame_that_is_lost_on_its_way_is_seen_with_its_minute(store: ChdbStore) -> None:
    site = Site(store, "lost")
    for minute in range(6):
        site.tell(minute, *((4, 7) if minute == 2 else ()))
    assert site.read(M0 + 30 * MINUTE_MS) == [(2, State.LOST, Count(24, 24))]
    assert site.said == 6
    again = Site(store, "lost-source")
    for minute in range(4):
        again.tell(minute, *((9,) if minute == 1 else ()), source="/dcgm")
    assert again.read(M0 + 30 * MINUTE_MS) == [(1, State.LOST, Count(12, 12))]


def test_what_waits_in_the_spool_is_not_lost_and_closes_when_it_comes(store: ChdbStore) -> None:
    site = Site(store, "waits")
    for minute in range(4):
        waiting = (minute * 10, (minute + 1) * MINUTE_MS) if minute else (0, 0)
        site.tell(minute, *(range(10) if minute in (1, 2) else ()), waiting=waiting)
    assert [(minute, state) for minute, state, _ in site.read(M0 + 5 * MINUTE_MS)] == [
        (2, State.WAITING),
        (1, State.WAITING),
    ]
    for body in site.missing:
        site.rig.send(body, M0 + 7 * MINUTE_MS, tenant="waits")
    site.beat(M0 + 8 * MINUTE_MS)
    assert site.read(M0 + 12 * MINUTE_MS) == []


def test_what_was_declared_or_refused_over_a_range_is_no_loss(store: ChdbStore) -> None:
    site = Site(store, "declared")
    for minute in range(5):
        site.tell(minute, *(range(5) if minute in (1, 2) else ()))
    told = {"id": "1-1", "reason": "spool_full", "kind": "gpu", "collector": "h1", "host": "h1", "records": "10",
            "rows": "120", "values": "120", "spool_id": f"{7:016x}"}  # fmt: skip
    event = Event("agent_shed", "h1", "", M0 + MINUTE_MS, 2, M0 + 3 * MINUTE_MS - 1000, 1, told)
    body = frame_bytes({}, [], kind=EntityKind.PLATFORM, collector="h1", events=[event], names=[])
    site.rig.send(body, M0 + 5 * MINUTE_MS, tenant="declared")
    site.beat(M0 + 8 * MINUTE_MS)
    assert site.read(M0 + 12 * MINUTE_MS) == [(2, State.DECLARED, Count(60, 60))]


def test_an_agent_that_was_started_anew_says_less_and_nothing_is_lost(store: ChdbStore) -> None:
    site = Site(store, "anew")
    site.tell(0)
    site.minutes = Minutes()
    site.tell(1)
    site.minutes = Minutes()
    site.beat(M0 + 3 * MINUTE_MS)
    assert site.read(M0 + 12 * MINUTE_MS) == []


def test_minutes_are_few_and_a_frame_over_two_of_them_is_in_none() -> None:
    minutes = Minutes()
    for number in range(100):
        minutes.take([encode(stamp(newest_ms=M0 + number * MINUTE_MS + 5000), content())])
    assert minutes.said_at(M0 + 101 * MINUTE_MS).tally == minutes.said_at(M0 + 100 * MINUTE_MS + 30_000).tally
    assert minutes.said_at(M0 + 100 * MINUTE_MS + 30_000).start_ms == M0 + 99 * MINUTE_MS
    assert minutes.said_at(M0 + (100 - KEPT_MINUTES) * MINUTE_MS + 30_000).tally == {}
    over = Minutes()
    ticks = np.array([M0 + 59_000, M0 + 60_000], np.int64)
    over.take([encode(stamp(ticks=2, tick_times_ms=ticks), content(ticks=2)), b"no frame"])
    assert over.said_at(M0 + 90_000).tally == {}


def test_a_hole_is_one_event_that_grows_and_ends_when_it_is_filled(store: ChdbStore) -> None:
    site = Site(store, "holes")
    spec = next(spec for spec in tables(load_catalog()) if spec.name == "events")
    watch = HoleWatch(store, spec, site.rig.clock, SelfMetrics(), asker(store, site.rig.clock))

    def changed(now: int) -> list[tuple[int, int, int, bool, int]]:
        site.read(M0 + now * MINUTE_MS)
        found = [hole for hole in watch.check() if hole.who.tenant_id == "holes"]
        return [
            ((one.from_ms - M0) // MINUTE_MS, (one.until_ms - M0) // MINUTE_MS, one.values, one.is_open, one.version)
            for one in found
        ]

    for minute in range(8):
        site.tell(minute, *((1,) if minute in (2, 3, 6) else ()))
    assert changed(12) == [(2, 4, 24, True, 1), (6, 7, 12, True, 1)]
    assert changed(13) == []
    site.tell(8)
    site.tell(9)
    for body in site.missing[:2]:
        site.rig.send(body, M0 + 14 * MINUTE_MS, tenant="holes")
    assert changed(60) == [(2, 4, 0, False, 2)]
    assert changed(61) == []
    where = "tenant_id = 'holes' AND metric = 'custody_loss'"
    rows = store.query(f"SELECT * FROM events FINAL WHERE {where} ORDER BY event_time").to_pylist()
    assert [(bool(row["end_time"]), row["code"], row["severity"], row["entity"]) for row in rows] == [
        (True, 2, "info", "h1"),
        (False, 1, "error", "h1"),
    ]


WHO = Who("t", "c", "h", "a")
OTHER = Who("t", "c", "h", "b")


@pytest.mark.parametrize(
    ("known", "missing", "whole", "wanted"),
    [
        ([], [(WHO, 0, False), (WHO, 1, False), (WHO, 3, False), (OTHER, 4, False)], [(0, 9)],
         [(WHO, 0, 2, True, 1), (WHO, 3, 4, True, 1), (OTHER, 4, 5, True, 1)]),
        ([], [(WHO, 0, True)], [(0, 9)], []),
        ([(WHO, 0, 2, True)], [(WHO, 2, False), (WHO, 3, False)], [(0, 9)], [(WHO, 0, 4, True, 2)]),
        ([(WHO, 0, 2, True)], [], [(0, 9)], [(WHO, 0, 2, False, 2)]),
        ([(WHO, 0, 2, True)], [], [(1, 9)], []),
        ([(WHO, 0, 2, True)], [], [], []),
        ([(WHO, 0, 2, True)], [(WHO, 1, True)], [(0, 9)], []),
        ([(WHO, 0, 2, True)], [(OTHER, 1, False)], [(0, 9)], [(WHO, 0, 2, False, 2), (OTHER, 1, 2, True, 1)]),
        ([(WHO, 0, 2, False)], [], [(0, 9)], []),
        ([(WHO, 0, 2, False)], [(WHO, 1, False)], [(0, 9)], [(WHO, 0, 2, True, 2)]),
    ],
)  # fmt: skip
def test_holes_open_grow_and_close_once(known, missing, whole, wanted) -> None:
    holes = [
        Hole(who, first * MINUTE_MS, end * MINUTE_MS, 5 * (end - first) if is_open else 0, is_open)
        for who, first, end, is_open in known
    ]
    found = changes(
        holes,
        [Missing(who, at * MINUTE_MS, 5, may_come) for who, at, may_come in missing],
        [(first * MINUTE_MS, end * MINUTE_MS) for first, end in whole],
    )
    told = [(one.who, one.from_ms // MINUTE_MS, one.until_ms // MINUTE_MS, one.is_open, one.version) for one in found]
    assert told == wanted


def test_the_ledger_answers_with_it_and_the_command_fails_for_a_loss(store: ChdbStore, tmp_path: Path) -> None:
    site = Site(store, "t1")
    for minute in range(4):
        site.tell(minute, *((0,) if minute == 1 else ()))
    site.read(M0 + 30 * MINUTE_MS)
    with platform(tmp_path, store, clock=ManualClock(M0 + 30 * MINUTE_MS)) as one, one.api() as api:
        asked = {"from_": M0, "to": M0 + 10 * MINUTE_MS}
        body = api.get("/v1/ledger", **asked)
        (short,) = body["short"]
        assert (short["collectorId"], short["hostId"], short["state"]) == ("h1", "h1", "lost")
        assert short["missing"] == {"rows": 12, "values": 12}
        assert body["said"] == 4
        assert api.get("/v1/ledger", "other", **asked)["short"] == []
        out = io.StringIO()
        assert print_ledger(body, out, as_json=False) == 1
        assert "LOST between agent and log" in out.getvalue()
