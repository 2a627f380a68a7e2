"""The ledger balances: what frame headers count is what the tables hold, or stands there with a reason."""

import json
import logging
import random
import threading
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from process_rig import CATALOG, T0, Rig, frame_bytes, new_tenant
from secondsight.errors import Rejected, Retryable
from secondsight.model import EntityKind
from secondsight.process.balance import SETTLED_MS, Checker, differences
from secondsight.process.ledger import Account, Ledger, Name, Ticks, Told, read_records, write_records
from secondsight.store.schema import tables
from secondsight.wire.content import Event
from secondsight.wire.envelope import RecordType
from secondsight.wire.header import read_view

POWER, ENERGY, UTIL = "gpu_power_watts", "gpu_energy_joules_total", "gpu_utilization_ratio"
SPOOLS = {1: (POWER, UTIL), 2: (ENERGY,)}
GPUS = ("GPU-a", "GPU-b")
SPOOLED = ((5, 600, 4000), (2, 300, 1000))
"""Records, bytes and age in milliseconds of two spools."""
FAR_MS = 3_600_000
LATER = T0 + 240 * FAR_MS


def entries(store, tenant, *outcomes):
    """Return (outcome, reason, collector, spool, kind, window) -> (rows, values)."""
    rows = store.query(
        "SELECT * FROM ledger FINAL WHERE tenant_id = {t:String} ORDER BY ALL", {"t": tenant}
    ).to_pylist()
    found = Counter()
    values = Counter()
    for row in rows:
        key = (row["outcome"], row["reason"], row["collector_id"], row["spool_id"], row["kind"], row["window_start"])
        found[key] += row["rows"]
        values[key] += row["values"]
    return {key: (found[key], values[key]) for key in found if not outcomes or key[0] in outcomes}


def differing(store, tenant, around_ms=T0):
    found = differences(store, around_ms - FAR_MS, around_ms + FAR_MS)
    return [one for one in found if one.place.tenant_id == tenant]


def window_of(time_ms):
    return time_ms // 30_000 * 30


# The life of records: cut into frames anew for every attempt, in any order, through crashes.


def records_of(chance, collector, ticks):
    """Return {(spool, sequence): (tick, {GPU: cells})} with cells missing here and there."""
    made = {}
    for number, tick in enumerate(ticks):
        for spool, names in SPOOLS.items():
            cells = {gpu: {name: number for name in names if chance.random() < 0.8} for gpu in GPUS}
            made[collector, spool, number] = (tick, cells)
    return made


def cut(chance, records, collector, spool, *, live):
    """Return the records of a spool as frames, cut at random places."""
    mine = [key for key in sorted(records) if key[:2] == (collector, spool)]
    bodies = []
    while mine:
        count = chance.choice([1, 1, 2, 5, 12, 40])
        some, mine = mine[:count], mine[count:]
        rows = {(gpu, "", place): records[key][1][gpu] for place, key in enumerate(some) for gpu in GPUS}
        times = [records[key][0] for key in some]
        bodies.append(
            frame_bytes(
                rows,
                times,
                sequence=some[0][2],
                collector=collector,
                host=f"host-of-{collector}",
                spool_id=spool,
                names=SPOOLS[spool],
                live=live and chance.random() < 0.3,
            )
        )
    return bodies


class Shaky:
    """A store that is away now and then."""

    def __init__(self, store, chance):
        self._store, self._chance, self.calm = store, chance, True

    def query(self, *arguments):
        return self._store.query(*arguments)

    def insert(self, *arguments):
        if not self.calm and self._chance.random() < 0.1:
            raise Retryable("away")
        if not self.calm and self._chance.random() < 0.1:
            self._store.insert(*arguments)
            raise Retryable("away, having written")
        self._store.insert(*arguments)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), late=st.booleans())
def test_every_value_is_accounted_for_whatever_happens_to_its_frames(store, seed, late):
    chance, tenant = random.Random(seed), new_tenant()
    phase = chance.randrange(1000)
    ticks = [T0 + 7000 + phase + 1000 * number for number in range(70) if chance.random() < 0.95]
    records = {}
    bodies = []
    for collector in ("c1", "c2"):
        records |= records_of(chance, collector, ticks)
        for spool in SPOOLS:
            bodies += cut(chance, records, collector, spool, live=False)
            bodies += chance.sample(again := cut(chance, records, collector, spool, live=True), len(again) // 2)
    chance.shuffle(bodies)
    shaky = Shaky(store, chance)
    rig = Rig(shaky, T0 + 100_000 + (FAR_MS if late else 0))
    shaky.calm = False
    for body in bodies:
        rig.send(body, tenant=tenant)
        try:
            disturb(rig, chance)
        except Retryable:
            continue
    shaky.calm = True
    rig.settle()
    told = defaultdict(Counter)
    for (collector, spool, _), (tick, cells) in records.items():
        key = ("received", "", collector, spool, "gpu", window_of(tick))
        told[key].update(rows=len(cells), values=sum(map(len, cells.values())))
    assert entries(store, tenant, "received") == {key: (c["rows"], c["values"]) for key, c in told.items()}
    stored = entries(store, tenant, "stored")
    assert sum(values for _, values in stored.values()) == sum(c["values"] for c in told.values())
    assert not entries(store, tenant, "unexplained")
    assert differing(store, tenant) == []


def disturb(rig, chance):
    if chance.random() < 0.7:
        rig.processor.step()
    if chance.random() < 0.2:
        rig.clock.move(chance.choice([2, 7, 33]))
        rig.processor.step()
    if chance.random() < 0.15:
        rig.restart()


def test_what_is_refused_stands_there_with_its_reason(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    state = rig.processor.world.kinds[EntityKind.GPU]
    state.layout = replace(state.layout, place={name: at for name, at in state.layout.place.items() if name != UTIL})
    ticks = [T0 + 1000, T0 + 2000, T0 + 400_000, T0 + 401_000]
    for times, sequence in ((ticks, 5), (ticks[1:], 6), (ticks, 5)):
        rows = {(gpu, "", place): {POWER: 1, UTIL: 2} for gpu in GPUS for place in range(len(times))}
        rig.send(frame_bytes(rows, times, sequence=sequence), T0 + 20_000, tenant=tenant)
        rig.settle()
    broken = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0 + 5000], sequence=9)
    rig.send(broken[:-2] + bytes(2), T0 + 20_000, tenant=tenant)
    rig.settle()
    assert entries(store, tenant) == {
        ("received", "", "c1", 7, "gpu", T0 // 1000): (4, 8),
        ("dead_letter", "unknown_metric", "c1", 7, "gpu", T0 // 1000): (0, 4),
        ("stored", "", "c1", 0, "gpu", T0 // 1000): (4, 4),
        ("quarantine", "future_time", "c1", 7, "gpu", window_of(T0 + 400_000)): (4, 8),
        ("dead_letter", "bad_checksum", "c1", 7, "gpu", T0 // 1000): (1, 1),
    }
    assert differing(store, tenant) == []


def test_what_a_gateway_refused_is_counted_once(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    frame = frame_bytes({("GPU-a", "", 0): {POWER: 1, UTIL: 2}}, [T0 + 1000], sequence=5, offset_ms=2000)
    view = read_view(frame)
    said = {
        "code": "too_old", "message": "older than 30 days", "stage": "quarantine", "kind": "gpu",
        "collector_id": view.collector_id, "host_id": view.host_id, "rows": view.rows, "values": view.values,
        "first_tick_ms": view.first_tick_ms, "last_tick_ms": view.last_tick_ms,
        "spool_id": view.spool_id, "first_sequence": 5, "last_sequence": 5, "correction_ms": view.correction_ms,
    }  # fmt: skip
    for _ in range(2):
        rig.send(json.dumps(said).encode(), tenant=tenant, kind=RecordType.REFUSED)
    rig.settle()
    window = window_of(T0 + 1000 + view.correction_ms)
    assert entries(store, tenant) == {("quarantine", "too_old", "c1", 7, "gpu", window): (1, 2)}


def test_points_of_foreign_senders_that_are_refused_are_values_of_no_row(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    said = {
        "code": "unknown_metric", "message": "foo", "stage": "dead_letter", "kind": "", "collector_id": "prom/write",
        "host_id": "", "rows": 0, "values": 5, "first_tick_ms": None, "last_tick_ms": None,
    }  # fmt: skip
    rig.send(json.dumps(said).encode(), tenant=tenant, kind=RecordType.REFUSED)
    rig.settle()
    found = entries(store, tenant)
    assert found == {("dead_letter", "unknown_metric", "prom/write", 0, "", window_of(T0 + 20_000)): (0, 5)}


def test_what_an_agent_gave_up_is_counted_once_by_reason(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 200_000)
    told = {
        "id": "00ff-1", "reason": "spool_full", "class": "P1", "kind": "gpu", "collector": "c1", "host": "h1",
        "records": "90", "rows": "180", "values": "360", "spool_id": f"{7:016x}",
    }  # fmt: skip
    event = Event("agent_shed", "c1", "", T0 + 31_000, 2, T0 + 121_000, 1, told)
    for _ in range(2):
        rig.send(frame_bytes({}, [], kind=EntityKind.PLATFORM, events=[event], names=[]), tenant=tenant)
        rig.settle()
        rig.restart()
    assert entries(store, tenant) == {("shed", "spool_full", "c1", 7, "gpu", T0 // 1000 + 30): (180, 360)}


def test_pieces_of_one_schema_and_tick_balance(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    for number, cells in enumerate(({POWER: 1}, {UTIL: 2}, {POWER: 1, UTIL: 2})):
        rig.send(frame_bytes({("GPU-a", "", 0): cells}, [T0], sequence=number, names=(POWER, UTIL)), tenant=tenant)
    rig.settle()
    assert entries(store, tenant) == {
        ("received", "", "c1", 7, "gpu", T0 // 1000): (1, 2),
        ("stored", "", "c1", 0, "gpu", T0 // 1000): (1, 2),
    }


def test_what_two_schemas_both_tell_is_no_loss(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1, UTIL: 2}}, [T0], sequence=1), tenant=tenant)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0], sequence=2), tenant=tenant)
    rig.settle()
    assert entries(store, tenant) == {
        ("received", "", "c1", 7, "gpu", T0 // 1000): (2, 3),
        ("stored", "", "c1", 0, "gpu", T0 // 1000): (1, 2),
    }


def test_windows_written_before_there_was_a_ledger_are_taken_over(store):
    tenant, rig = new_tenant(), Rig(store, T0 + 20_000)
    for number in range(3):
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0 + 1000 * number], sequence=number), tenant=tenant)
    rig.settle()
    store.query(f"ALTER TABLE ledger DELETE WHERE tenant_id = '{tenant}' SETTINGS mutations_sync = 1")
    rig.restart()
    rig.clock.move(60)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0 + 9000], sequence=9), tenant=tenant)
    rig.settle()
    assert entries(store, tenant) == {
        ("received", "", "c1", 0, "gpu", T0 // 1000): (3, 3),
        ("received", "", "c1", 7, "gpu", T0 // 1000): (1, 1),
        ("stored", "", "c1", 0, "gpu", T0 // 1000): (4, 4),
    }
    rig.restart()
    rig.clock.move(60)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [T0 + 10_000], sequence=10), tenant=tenant)
    rig.settle()
    assert entries(store, tenant, "received") == {
        ("received", "", "c1", 0, "gpu", T0 // 1000): (3, 3),
        ("received", "", "c1", 7, "gpu", T0 // 1000): (2, 2),
    }
    assert differing(store, tenant) == []


# The check.


def checker_of(rig, store):
    specs = {spec.name: spec for spec in tables(CATALOG)}
    return Checker(store, specs, rig.clock, rig.processor.metrics, rig.processor.watched)


def test_a_row_that_is_gone_is_an_incident_when_it_is_missed_twice(store, caplog):
    store.query("TRUNCATE TABLE ledger")
    rig = Rig(store, LATER - 600_000)
    checker = checker_of(rig, store)
    assert checker.check() == []
    rig.clock.step_wall(630)
    for number in range(5):
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [LATER + 1000 * number], sequence=number))
    rig.settle()
    rig.clock.step_wall((LATER + SETTLED_MS + 60_000 - rig.clock.now_ms()) / 1000)
    assert checker.check() == []
    store.query(
        f"ALTER TABLE gpu_1s DELETE WHERE event_time = fromUnixTimestamp64Milli({LATER + 2000}) "
        "SETTINGS mutations_sync = 1"
    )
    assert checker.check() == []
    ending = threading.Event()
    ending.set()
    assert checker.check(ending) == []
    with caplog.at_level(logging.ERROR):
        (found,) = checker.check()
    assert (found.ledger, found.tables) == ((5, 5), (4, 4))
    assert "collector c1 on host h1, kind gpu" in caplog.text
    (event,) = store.query("SELECT * FROM events FINAL WHERE metric = 'ledger_difference'").to_pylist()
    assert (event["entity"], event["host_id"], event["code"]) == ("c1", "h1", 1)
    assert rig.processor.metrics.total("processor_ledger_incidents_total") == 1
    assert checker.check() == []
    assert rig.processor.metrics.value("processor_ledger_differences") == 1


def test_a_window_that_was_written_late_is_compared_when_it_is(store):
    tenant = new_tenant()
    store.query("TRUNCATE TABLE ledger")
    start = LATER + 48 * FAR_MS
    rig = Rig(store, start - 600_000)
    checker = checker_of(rig, store)
    assert checker.check() == []
    rig.clock.step_wall(1200)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [start + 900_000], sequence=2), tenant=tenant)
    rig.settle()
    rig.clock.step_wall(600)
    assert checker.check() == []
    for number in range(3):
        body = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [start + 1000 * number], sequence=10 + number)
        rig.send(body, tenant=tenant)
    rig.settle()
    store.query(
        f"ALTER TABLE gpu_1s DELETE WHERE tenant_id = '{tenant}' AND event_time = "
        f"fromUnixTimestamp64Milli({start + 1000}) SETTINGS mutations_sync = 1"
    )
    assert checker.check() == []
    (found,) = checker.check()
    assert (found.place.window_ms, found.ledger, found.tables) == (start, (3, 3), (2, 2))


def test_tables_older_than_the_ledger_are_no_incident(store):
    store.query("TRUNCATE TABLE ledger")
    rig = Rig(store, LATER + 20_000)
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [LATER]))
    rig.settle()
    store.query("TRUNCATE TABLE ledger")
    checker = checker_of(rig, store)
    for _ in range(3):
        rig.clock.step_wall(300)
        assert checker.check() == []


# Accounts by themselves.

KEY = (EntityKind.GPU, T0, 0)


def told_of(first, ticks, *, definitions=1, spool=1, values=3):
    each = Ticks([1] * ticks, [values] * ticks)
    return Told(KEY, spool, Name(definitions, 1000, 0), first, ticks, ticks, values * ticks, lambda: each)


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(1, 10)), max_size=20))
def test_an_account_counts_every_tick_once(parts):
    account = Account()
    for first, ticks in parts:
        account.take(told_of(first, ticks))
    covered = {number for first, ticks in parts for number in range(first, first + ticks)}
    assert (account.rows, account.values, account.version) == (len(covered), 3 * len(covered), len(covered))
    assert read_records(write_records(account.records)) == account.records


def test_a_value_that_nothing_accounts_for_is_said_to_be_missing():
    ledger = Ledger(lambda _: ("t", "k", "h", "c"))
    ledger.know(1, frozenset({1}))
    ledger.know(2, frozenset({2}))
    ledger.take(told_of(0, 10), later=False)
    ledger.take(told_of(0, 10, definitions=2, spool=2), later=False)
    ledger.close(KEY, (10, 58))
    assert [row[4:9] for row in ledger.take_rows() if row.outcome == "unexplained"] == [
        ("unexplained", "less", "", 0, 2)
    ]


# The answer.


def test_an_answer_adds_up(store):
    from query_fixture import scope_of
    from secondsight.query.inventory import Inventory
    from secondsight.query.ledger import Asked, Count, LedgerReader
    from secondsight.query.plan import Span

    tenant, rig = new_tenant(), Rig(store, T0 + 50_000)
    ticks = [T0 + 1000 * number for number in range(45)]
    for spool, names in SPOOLS.items():
        rows = {("GPU-a", "", place): dict.fromkeys(names, 1) for place in range(len(ticks))}
        rig.send(frame_bytes(rows, ticks, spool_id=spool), T0 + 46_000, tenant=tenant)
    told = {"id": "00ff-2", "reason": "floor", "kind": "gpu", "collector": "c1", "rows": "3", "values": "5"}
    event = Event("agent_shed", "c1", "", T0 + 2000, 3, None, 1, told)
    rig.send(frame_bytes({}, [], kind=EntityKind.PLATFORM, events=[event], names=[]), tenant=tenant)
    names = ("agent_spool_waiting_records", "agent_spool_waiting_bytes", "agent_spool_waiting_age_seconds")
    spools = {("c1", f"class=P{number}", 0): dict(zip(names, each, strict=True)) for number, each in enumerate(SPOOLED)}
    rig.send(frame_bytes(spools, [T0 + 30_000], kind=EntityKind.PLATFORM, collector="c1/health"), tenant=tenant)
    rig.processor.step()
    rig.processor.world.ledger.show_open(rig.clock.now_ms())
    rig.processor.checkpoint()
    reader = LedgerReader(Inventory(store, rig.clock))
    asked = Asked(Span(T0 - 60_000, T0 + 120_000), collectors=("c1",))
    minute_ms = T0 // 60_000 * 60_000
    page = reader.read(asked, scope_of(tenant), T0 + 46_000)
    assert [(one.records, one.bytes, one.oldest_seconds) for one in page.waiting] == [(7, 900, 4.0)]
    for entry in page.entries:
        refused = sum((count for each in entry.spools.values() for count in each.reasons.values()), Count())
        assert entry.produced == entry.stored + entry.merged + entry.in_flight + refused
    shown = {entry.key[4]: entry for entry in page.entries}
    second = shown[minute_ms + 60_000]
    assert second.in_flight.values > 0
    assert second.stored == Count()
    rig.settle()
    shown = {entry.key[4]: entry for entry in reader.read(asked, scope_of(tenant), T0).entries}
    whole = sum((entry.stored for entry in shown.values()), Count())
    assert whole == Count(45, 135)
    assert sum((entry.merged for entry in shown.values()), Count()) == Count(45, 0)
    assert shown[minute_ms].of_reason("shed") == {"floor": Count(3, 5)}
    assert all(entry.is_balanced for entry in shown.values())
    assert reader.read(Asked(asked.span, unbalanced=True), scope_of(tenant), T0).entries == ()
    assert reader.read(asked, scope_of("somebody-else"), T0).total == 0
    with pytest.raises(Rejected, match="custody"):
        reader.read(asked, scope_of(tenant, teams=frozenset({"team-a"})), T0)
