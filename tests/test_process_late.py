import pytest

from process_rig import T0, Counting, Rig, allocation, frame_bytes
from test_process_flow import ENERGY, POWER, UTIL, check_rollups, raw_rows, rollup_rows, steady

WINDOWS = 300
END = T0 + 30_000 * WINDOWS


def wide(cells, sequence):
    ticks = [T0 + 30_000 * number for number in range(WINDOWS)]
    rows = {("GPU-a", "", number): cells(number) for number in range(WINDOWS)}
    return frame_bytes(rows, ticks, sequence=sequence, interval_ms=30_000)


def late_rig(store, tenant):
    """Return a rig with many closed windows, and a late frame that adds to all of them."""
    rig = Rig(Counting(store), END)
    rig.send(wide(lambda number: {POWER: 5, ENERGY: 1000 * number}, 1), tenant=tenant)
    rig.settle()
    rig.send(wide(lambda _: {UTIL: 7}, 2), tenant=tenant)
    return rig


def check_all_late(store, tenant):
    check_rollups(store, tenant)
    rows = [row for row in rollup_rows(store, tenant) if row["window_start"] * 1000 < END]
    assert [row[f"{UTIL}_max"] for row in rows] == [7] * WINDOWS


def test_a_late_frame_of_many_windows_is_taken_in_by_few_queries(store):
    rig = late_rig(store, "late-few")
    before = rig.store.calls
    rig.settle()
    assert rig.store.calls - before < WINDOWS // 2
    check_all_late(store, "late-few")
    assert {row["version"] >> 32 for row in rollup_rows(store, "late-few")} <= {1, 2}


def test_fresh_rows_do_not_wait_for_late_ones(store):
    rig = late_rig(store, "late-fresh")
    rig.processor.step()
    assert rig.processor.has_more
    fresh = frame_bytes({("GPU-a", "", 0): {POWER: 9}}, [END + 1_000_000], collector="c2", sequence=1)
    rig.clock.move(1000)
    rig.send(fresh, tenant="late-fresh")
    rig.processor.step()
    assert [row[POWER] for row in raw_rows(store, "late-fresh") if row["collector_id"] == "c2"] == [9]
    rig.settle()
    check_all_late(store, "late-fresh")


def test_a_stop_leaves_late_rows_to_the_replay(store):
    rig = late_rig(store, "late-stop")
    rig.processor.step()
    waiting = len(rig.processor.world.late.items)
    rig.processor.finish()
    assert len(rig.processor.world.late.items) == waiting > 0
    assert rig.log.committed == {0: 1}
    rig.restart()
    rig.settle()
    assert rig.log.committed == {0: 2}
    check_all_late(store, "late-stop")


def test_a_stamp_ahead_does_not_make_right_ones_late(store):
    rig = Rig(store)
    steady("ahead", rig, T0, 60)
    ahead = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [rig.clock.now_ms() + 240_000], sequence=61)
    rig.send(ahead, tenant="ahead")
    for number in range(61, 121):
        steady("ahead", rig, T0 + 1000 * number, 1, first=number)
        progress = next(iter(rig.processor.world.progress.values()))
        assert progress.watermark_ms <= rig.clock.now_ms()
    rig.processor.checkpoint()
    assert rig.processor.metrics.total("processor_late_rows_total") == 0
    rows = store.query("SELECT watermark <= last_ingest_time AS right FROM progress FINAL WHERE tenant_id = 'ahead'")
    assert rows.column("right").to_pylist() == [1]
    rig.settle()
    check_rollups(store, "ahead")


def test_events_of_impossible_times_are_refused_alone(store):
    rig = Rig(store)
    events = [allocation("GPU-a", time) for time in (T0, T0 + 300_000, T0 + 300_001, -1)]
    rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 3}}, [T0], events=events), T0, tenant="untimely")
    rig.settle()
    assert [row[POWER] for row in raw_rows(store, "untimely")] == [3]
    count = "SELECT count() AS n FROM {table:Identifier} FINAL WHERE tenant_id = 'untimely'"
    for table in ("events", "allocations"):
        assert store.query(count, {"table": table}).column("n").to_pylist() == [2]
    dead = store.query("SELECT * FROM dead_letters FINAL WHERE tenant_id = 'untimely' ORDER BY code").to_pylist()
    assert [(row["stage"], row["code"], row["metric"], row["rows"]) for row in dead] == [
        ("dead_letter", "bad_time", "job_gpu_allocation", 1),
        ("quarantine", "future_time", "job_gpu_allocation", 1),
    ]


def told_ms(store, tenant):
    """Return the watermark that readers are told."""
    sql = "SELECT toUnixTimestamp64Milli(watermark) AS ms FROM progress FINAL WHERE tenant_id = {t:String}"
    return store.query(sql, {"t": tenant}).column("ms").to_pylist()[0]


def test_readers_are_told_of_no_time_whose_rows_wait_for_their_windows(store):
    rig, tenant = Rig(store), "told"
    steady(tenant, rig, T0, 10)
    for number in range(10):
        tick = T0 + 30_000 * number + 29_000
        body = frame_bytes({("GPU-a", "", 0): {POWER: 1}}, [tick], sequence=100 + number, live=True)
        rig.send(body, tick, tenant=tenant)
    rig.settle()
    assert told_ms(store, tenant) == T0 - 1000
    rig.clock.step_wall(300)
    ticks = [T0 + 1000 * number for number in range(10, 300)]
    backlog = {("GPU-a", "", number): {POWER: 2} for number in range(len(ticks))}
    rig.send(frame_bytes(backlog, ticks, sequence=11), tenant=tenant)
    rig.processor.finish()
    stored = {row["event_time"] for row in raw_rows(store, tenant)}
    assert set(ticks) - stored
    assert told_ms(store, tenant) <= min(set(ticks) - stored)
    rig.restart()
    rig.settle()
    assert told_ms(store, tenant) == ticks[-1] - 10_000
    assert set(ticks) <= {row["event_time"] for row in raw_rows(store, tenant)}
    check_rollups(store, tenant)


@pytest.mark.parametrize("many", [1, 3])
def test_a_late_row_whose_seconds_are_gone_leaves_their_window_as_it_is(store, many, caplog):
    """Retention took the seconds; who is new in the window gets a row of its own."""
    tenant = f"late-gone-{many}"
    rig = Rig(store, T0 + 300_000)
    for second in range(60):
        body = frame_bytes({("GPU-a", "", 0): {POWER: 5, ENERGY: second}}, [T0 + 1000 * second], sequence=second + 1)
        rig.send(body, tenant=tenant)
    rig.settle()
    before = rollup_rows(store, tenant)
    store.query("ALTER TABLE gpu_1s DELETE WHERE tenant_id = {t:String} SETTINGS mutations_sync = 2", {"t": tenant})
    rig.restart()
    for number in range(many):
        rows = {(gpu, "", 0): {POWER: 9, ENERGY: 7} for gpu in ("GPU-a", "GPU-b")}
        rig.send(frame_bytes(rows, [T0 + 500 + number], sequence=100 + number, live=True), tenant=tenant)
        rig.settle()
    assert sorted(row["entity"] for row in raw_rows(store, tenant)) == ["GPU-a"] * many + ["GPU-b"] * many
    after = rollup_rows(store, tenant)
    assert [row for row in after if row["entity"] == "GPU-a"] == before
    assert [row["samples"] for row in after if row["entity"] == "GPU-b"] == [many]
    assert "left as they are" in caplog.text


def test_a_row_of_an_owner_who_is_none_any_more_is_buried_though_both_are_stored(store):
    """As after a crash between the new owner's row and the old one's end."""
    tenant = "late-owner"
    rig = Rig(store, T0 + 300_000)
    for second in range(30):
        rig.send(frame_bytes({("GPU-a", "", 0): {POWER: 5}}, [T0 + 1000 * second], sequence=second + 1), tenant=tenant)
    rig.settle()
    columns = "* REPLACE ('team-x' AS owner_team, 'x' AS job_id, bitShiftLeft(toUInt64(1), 32) + 30000 AS version)"
    store.query(f"INSERT INTO gpu_30s SELECT {columns} FROM gpu_30s FINAL WHERE tenant_id = '{tenant}'")
    rig.restart()
    fact = allocation("GPU-a", T0, T0 + 30_000, job="y", team="team-y")
    rig.send(frame_bytes({}, [T0], events=[fact], sequence=90, names=[POWER]), tenant=tenant)
    rig.settle()
    assert [(row["owner_team"], row["samples"]) for row in rollup_rows(store, tenant)] == [("team-y", 30)]
