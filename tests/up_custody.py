"""Compare what a sender was promised with what a platform answers and stores."""

from collections import Counter
from pathlib import Path

import pytest

from secondsight.process.balance import differences
from secondsight.process.cells import WINDOW_MS
from secondsight.process.watermark import AGENT_LATENESS_MS
from secondsight.store.chdb import ChdbStore
from up_rig import Platform, Sender, wait_until


def let_pass(sender: Sender, acknowledgements: int) -> None:
    """Wait until every host got so many more acknowledgements."""
    goal = len(sender.acknowledged) + acknowledgements * sender.hosts * sender.gpus
    wait_until(lambda: len(sender.acknowledged) >= goal, 90)


def let_windows_close(sender: Sender) -> None:
    """Wait until windows are closed that the newest two, which may be written as they stand, do not count among."""
    first_ms = min(tick for _, tick in sender.acknowledged)
    closed_ms = first_ms + 3 * WINDOW_MS + AGENT_LATENESS_MS
    wait_until(lambda: max(tick for _, tick in list(sender.acknowledged)) > closed_ms, 120)


def wait_for_all(running: Platform, sender: Sender) -> None:
    """Wait until the newest acknowledged rows can be asked for."""
    newest = max(tick for _, tick in sender.acknowledged)

    def stored() -> bool:
        try:
            fleet = running.get(
                "/v1/metrics/query", metric="power", groupBy="gpu", **{"from": newest, "to": newest + 1000}
            )
        except (AssertionError, OSError):
            return False
        return len(fleet["series"]) == sender.hosts * sender.gpus

    wait_until(stored, 90)


def compare_with_answers(running: Platform, sender: Sender) -> None:
    """Every acknowledged row is in the answer for its GPU, with its value, once."""
    ticks = [tick for _, tick in sender.acknowledged]
    for gpu in {gpu for gpu, _ in sender.acknowledged}:
        answer = running.get(
            f"/v1/gpus/{gpu}/telemetry",
            metrics="power",
            resolution="1s",
            format="columns",
            **{"from": min(ticks), "to": max(ticks) + 1000},
        )
        values = next(iter(answer["series"]))["values"]
        points = [(ts, value) for ts, value in zip(answer["ts"], values, strict=True) if value is not None]
        assert len(dict(points)) == len(points)
        expected = {tick: watts / 1000 for (name, tick), watts in sender.acknowledged.items() if name == gpu}
        missing = {tick: watts for tick, watts in expected.items() if dict(points).get(tick) != pytest.approx(watts)}
        assert not missing


def compare_with_store(data: Path, sender: Sender) -> None:
    """The tables themselves: each row once after de-duplication, and 30 s windows that add up to the rows."""
    store = ChdbStore(data / "hot")
    try:
        rows = store.query(
            "SELECT entity, toUnixTimestamp64Milli(event_time) AS at, gpu_power_watts AS power FROM gpu_1s FINAL"
            " WHERE entity LIKE 'GPU-crash-%'"
        ).to_pylist()
        assert max(Counter((row["entity"], row["at"]) for row in rows).values()) == 1
        stored = {(row["entity"], row["at"]): row["power"] for row in rows}
        assert {key: stored.get(key) for key in sender.acknowledged} == sender.acknowledged
        sums = store.query(
            "SELECT entity, toUnixTimestamp(window_start) AS at, sum(samples) AS slots FROM gpu_30s FINAL"
            " WHERE samples > 0 AND entity LIKE 'GPU-crash-%' GROUP BY entity, at"
        ).to_pylist()
    finally:
        store.close()
    assert sums
    newest = max(row["at"] for row in sums)
    for row in sums:
        inside = [at for entity, at in stored if entity == row["entity"] and at // 30_000 * 30 == row["at"]]
        assert row["slots"] == len(inside) or row["at"] >= newest - 30


def compare_with_ledger(data: Path, sender: Sender) -> None:
    """What the ledger says of windows that are written off is what the tables hold, and was acknowledged."""
    store = ChdbStore(data / "hot")
    try:
        closed = store.query(
            "SELECT collector_id, kind, toUnixTimestamp(window_start) AS at,"
            " sumIf(`values`, outcome = 'received') AS told,"
            " sumIf(`values`, outcome = 'stored') AS held, sumIf(rows, outcome = 'stored') AS rows FROM ledger FINAL"
            " GROUP BY collector_id, kind, window_start HAVING countIf(outcome = 'stored') > 0"
        ).to_pylist()
        odd = store.query("SELECT count() AS n FROM ledger FINAL WHERE outcome = 'unexplained'").to_pylist()
        first_ms = min(tick for _, tick in sender.acknowledged) - 60_000
        found = differences(store, first_ms, max(tick for _, tick in sender.acknowledged) + 60_000)
    finally:
        store.close()
    assert odd == [{"n": 0}]
    mine = [row for row in closed if row["collector_id"].startswith("crash-")]
    assert mine
    assert all(row["told"] == row["held"] for row in mine)
    windows = {(row["collector_id"], row["at"]): row["rows"] for row in mine}
    acknowledged = Counter((f"crash-{gpu.split('-')[2]}", tick // 30_000 * 30) for gpu, tick in sender.acknowledged)
    assert all(windows[key] >= count for key, count in acknowledged.items() if key in windows)
    written = {(row["collector_id"], row["kind"], row["at"]) for row in closed}
    open_yet = [one for one in found if one.ledger == (0, 0)]
    assert [one for one in found if one not in open_yet] == []
    assert all((one.place.collector_id, one.place.kind, one.place.window_ms // 1000) not in written for one in open_yet)
