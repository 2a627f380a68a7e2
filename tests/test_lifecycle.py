"""Lives of agents, hosts, GPUs and jobs are put on record append-only: nothing is overwritten, by nobody."""

import random
from pathlib import Path
from typing import Any

from process_rig import T0, Rig, allocation, frame_bytes
from secondsight.agent.health.lives import before, lives
from secondsight.agent.health.statefile import FILE, StateFile
from secondsight.model import EntityKind
from secondsight.store.chdb import ChdbStore
from secondsight.store.layout import fixed_tables
from secondsight.wire.content import Event

POWER = "gpu_power_watts"


def history(store: ChdbStore, tenant: str, metric: str) -> list[dict[str, Any]]:
    """Return every version that the store holds after its merges."""
    store.query("OPTIMIZE TABLE event_history FINAL")
    columns = "host_id, entity, toUnixTimestamp64Milli(event_time) AS t, end_time, event_version, job_id, code"
    where = "tenant_id = {t:String} AND metric = {m:String}"
    sql = f"SELECT {columns} FROM event_history WHERE {where} ORDER BY t, event_version, host_id, entity"
    found: list[dict[str, Any]] = store.query(sql, {"t": tenant, "m": metric}).to_pylist()
    return found


def test_every_version_outlives_merges_in_any_order_and_repeats_are_one(store: ChdbStore) -> None:
    versions = [
        allocation("GPU-a", T0, None, 1),
        allocation("GPU-a", T0, T0 + 60_000, 2),
        allocation("GPU-a", T0, T0 + 50_000, 3),
        allocation("GPU-a", T0, T0 + 55_000, 3),
    ]
    for seed in (7,):
        tenant, rig = f"versions-{seed}", Rig(store, T0 + 100_000)
        told = versions * 2
        random.Random(seed).shuffle(told)
        for number, event in enumerate(told):
            body = frame_bytes({}, [], kind=EntityKind.PROCESS_JOB, events=[event], names=[], sequence=number)
            rig.send(body, tenant=tenant)
            if number % 3 == 0:
                rig.processor.drain()
                rig.restart()
        rig.processor.drain()
        found = history(store, tenant, "job_gpu_allocation")
        assert [row["event_version"] for row in found] == [1, 2, 3, 3]
        ends = {None if row["end_time"] is None else round(row["end_time"].timestamp() * 1000) - T0 for row in found}
        assert ends == {None, 50_000, 55_000, 60_000}


def test_a_gpu_is_on_record_from_when_it_was_seen_until_it_moved(store: ChdbStore) -> None:
    tenant, rig = "moves", Rig(store, T0)
    for host, first in (("h1", 0), ("h2", 120)):
        for second in range(first, first + 90, 10):
            ticks = [T0 + 1000 * (second + place) for place in range(10)]
            rows = {("GPU-m", "", place): {POWER: 1} for place in range(10)}
            rig.clock.step_wall((ticks[-1] + 500 - rig.clock.now_ms()) / 1000)
            rig.send(frame_bytes(rows, ticks, sequence=second + 1, collector=host, host=host), tenant=tenant)
            rig.processor.step()
    rig.settle()
    found = [
        (row["host_id"], row["event_version"], row["end_time"] is None) for row in history(store, tenant, "gpu_stay")
    ]
    assert found == [("h1", 1, True), ("h1", 2, False), ("h2", 1, True)]


def test_an_agent_tells_how_its_life_before_ended(tmp_path: Path) -> None:
    assert before(tmp_path) == {}
    (first,) = lives("c1", {}, "1.2", 5000)
    assert (first.code, first.time_ms, first.attributes["id"]) == (1, 5000, "5000-1")
    file = StateFile(tmp_path)
    state = {"collectorId": "c1", "startedMs": 5000, "writtenMs": 9000, "version": "1.2"}
    file.write(state)
    told = lives("c1", before(tmp_path), "1.3", 20_000)
    assert [(event.code, event.time_ms) for event in told] == [(1, 5000), (3, 9000), (1, 20_000)]
    assert told[0] == first
    file.write({**state, "endedMs": 9500})
    file.close()
    told = lives("c1", before(tmp_path), "1.3", 20_000)
    assert [(event.code, event.time_ms) for event in told] == [(1, 5000), (2, 9500), (1, 20_000)]
    assert len(lives("another", before(tmp_path), "1.3", 20_000)) == 1
    for odd in ({"startedMs": "x"}, {"startedMs": -1}, {"startedMs": True}, {"startedMs": 10**20}):
        assert len(lives("c1", {**state, **odd}, "1.3", 20_000)) == 1
    (tmp_path / FILE).write_bytes(b"damaged")
    assert before(tmp_path) == {}


def test_lives_of_agents_are_rows_that_stay(store: ChdbStore) -> None:
    tenant, rig = "lives", Rig(store, T0 + 100_000)
    state: dict[str, Any] = {}
    for number in range(3):
        events = lives("c1", state, "1", T0 + 20_000 * number)
        body = frame_bytes({}, [], kind=EntityKind.PLATFORM, events=list(events), names=[], sequence=number)
        rig.send(body, tenant=tenant)
        started = T0 + 20_000 * number
        state = {"collectorId": "c1", "startedMs": started, "writtenMs": started + 15_000, "version": "1"}
    rig.settle()
    found = [((row["t"] - T0) // 1000, row["code"]) for row in history(store, tenant, "agent_lifecycle")]
    assert found == [(0, 1), (15, 3), (20, 1), (35, 3), (40, 1)]


def test_heartbeats_are_rows_of_their_own_and_a_repeat_overwrites_none(store: ChdbStore) -> None:
    tenant, rig = "beats", Rig(store, T0)
    for number in range(6):
        tick = T0 + 30_000 * number
        cells = {("c1", "", 0): {"agent_held_ticks": number}}
        body = frame_bytes(cells, [tick], kind=EntityKind.PLATFORM, interval_ms=30_000, sequence=number + 1)
        rig.clock.step_wall((tick + 500 - rig.clock.now_ms()) / 1000)
        for _ in range(2):
            rig.send(body, tenant=tenant)
        rig.processor.step()
    rig.settle()
    store.query("OPTIMIZE TABLE platform_1s FINAL")
    sql = "SELECT agent_held_ticks FROM platform_1s WHERE tenant_id = {t:String} ORDER BY event_time"
    beats = store.query(sql, {"t": tenant}).to_pylist()
    assert [row["agent_held_ticks"] for row in beats] == [0, 1, 2, 3, 4, 5]


def test_what_usage_rests_on_has_no_retention_class_by_which_it_could_be_dropped() -> None:
    """Rows are dropped by partitions of a retention class; what is kept for ever has no such class and no TTL."""
    kept = {"event_history", "events", "infos", "allocations", "entities", "plans", "ledger"}
    for spec in fixed_tables():
        if spec.name in kept:
            assert "retention_class" not in "".join(spec.partition)
            assert "TTL" not in spec.create_statement("d").upper().split("ORDER BY")[1]
    (found,) = (spec for spec in fixed_tables() if spec.name == "event_history")
    assert found.order[-2:] == ("event_version", "content_hash")


def test_events_of_a_source_that_counts_repeats_keep_each_count(store: ChdbStore) -> None:
    tenant, rig = "bursts", Rig(store, T0 + 100_000)
    for version in (1, 2, 3):
        event = Event("gpu_xid", "GPU-x", "", T0, 31, T0 + 1000 * version, version, {"count": str(version)})
        rig.send(frame_bytes({}, [], events=[event], names=[], sequence=version), tenant=tenant)
    rig.settle()
    assert [row["event_version"] for row in history(store, tenant, "gpu_xid")] == [1, 2, 3]
