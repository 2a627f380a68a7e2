"""A metric is added while the platform runs: it reaches every tier with no restart, beside senders that lack it.

The canary runs beside it, and finds every tier as it is to be.
"""

import time
from http import HTTPStatus
from urllib.request import urlopen

import numpy as np

from secondsight.catalog.load import load_catalog
from secondsight.lake.config import CatalogConfig
from secondsight.lake.tables import open_lake
from secondsight.model import EntityKind
from secondsight.store.client import FlightStore
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import make_schema
from test_catalog_living import CHANGES, LINE, OTHER
from up_rig import CANARY, LAKE, Sender, platform, request, wait_until

PUMP, VALVE = "gpu_site_pump_speed", "gpu_site_valve_speed"
GPU, HOST = "GPU-0e1a2b3c-0000-0000-0000-00000000e001", "evolved-1"
PAST_S, TICKS = 7200, 60
WITHIN_SECONDS = 240


def frames(catalog, first_s: int) -> bytes:
    """Return a minute of both metrics, a second apart."""
    columns = [Column(each.name, each.unit, each.dtype, each.resolution) for each in map(catalog.get, (PUMP, VALVE))]
    stamp = Stamp(
        collector_id=HOST,
        host_id=HOST,
        source="test",
        spool_id=first_s,
        first_sequence=1,
        last_sequence=1,
        tick_times_ms=np.arange(first_s, first_s + TICKS, dtype=np.int64) * 1000,
        interval_ms=1000,
    )
    nothing = np.zeros(0, np.uint32)
    block = ScalarBlock(
        np.zeros(TICKS, np.uint32),
        np.arange(TICKS, dtype=np.uint16),
        np.zeros(TICKS, np.int32),
        (Group(0, np.stack([np.arange(TICKS), np.arange(TICKS) * 100]).astype("<u2"), None),),
        nothing,
        nothing.astype(np.uint16),
        nothing.astype(np.uint8),
    )
    table = EntityTable(EntityKind.GPU, HOST, "", (Entity(GPU),))
    return encode(stamp, Content(make_schema(EntityKind.GPU, columns), table, scalars=block), inline=True)


def sent(up, body: bytes) -> bool:
    kind = {"Content-Type": "application/x-secondsight-frame"}
    status, answer = request(up.address, "POST", "/v1/frames", up.token("collector"), body, **kind)
    assert status == HTTPStatus.OK
    return b'"rejected":[]' in answer


def test_a_metric_is_added_while_everything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "SECONDSIGHT_LAKE_RECHECK_SECONDS", "1"
    )  # an hour that changed after the first look is copied at once
    site = tmp_path / "site.toml"
    site.write_text(LINE)
    data = tmp_path / "data"
    options = ("--simulate", "0", "--no-local-agent", "--catalogue", str(site), CANARY, LAKE)
    with platform(data, "--listen", "127.0.0.1:0", *options) as up:
        before = up.parts()
        old = Sender(up, hosts=1, gpus=1)
        old.start()
        site.write_text(LINE + OTHER)
        wait_until(lambda: VALVE in names(up), WITHIN_SECONDS)
        now_s = int(time.time())
        past_s = now_s // 3600 * 3600 - PAST_S
        past, newest = (frames(load_catalog([site]), at_s) for at_s in (past_s, now_s - TICKS))
        wait_until(lambda: sent(up, past), WITHIN_SECONDS)  # the gateway follows the file on its own
        assert sent(up, newest)
        store = FlightStore(data / "run" / "store.address")
        for table, column in (("gpu_1s", VALVE), ("gpu_30s", f"{VALVE}_max"), ("gpu_5m", f"{VALVE}_max")):
            sql = f"SELECT count() AS n FROM {table} WHERE {column} > 0"
            wait_until(lambda sql=sql: store.query(sql).to_pylist()[0]["n"], WITHIN_SECONDS)
        store.close()
        found = up.get("/v1/metrics/query", metric=VALVE, gpu=GPU, resolution="1s", **{"from": (now_s - TICKS) * 1000})
        assert [round(point["value"] * 100) for point in found["series"][0]["points"]] == list(range(TICKS))
        wait_until(lambda: in_lake(data, past_s) == TICKS // 30, WITHIN_SECONDS)
        assert VALVE in str(up.get("/v1/sql/views"))
        site.write_text(LINE.replace(*CHANGES["unit"]) + OTHER)
        for part in ("processor", "gateway", "api"):
            log = data / "logs" / f"{part}.log"
            wait_until(lambda log=log: "means something else than before" in log.read_text(), WITHIN_SECONDS)
        old.stop()
        assert old.acknowledged
        assert up.parts() == before
        fleet = up.get("/v1/clusters")
        assert "canary" not in str(fleet)
        shown = urlopen((data / "run" / "canary.metrics").read_text() + "/metrics").read().decode()
        assert "canary_seconds_sent_total" in shown
        assert "canary_mismatch_total" not in shown


def names(up) -> set[str]:
    return {one["name"] for one in up.get("/v1/catalog", limit=5000)["metrics"]}


def in_lake(data, start_s: int) -> int:
    """Return how many windows of an hour of the lake have the metric."""
    column = f"{VALVE}_max"
    lake = open_lake(CatalogConfig(), data)
    try:
        table = lake.table("gpu_30s")
        if table is None or column not in {field.name for field in table.schema().fields}:
            return 0
        times = table.scan(f"{column} is not null", selected_fields=("window_start",)).to_arrow()["window_start"]
        return sum(start_s <= each.timestamp() < start_s + 3600 for each in times.to_pylist())
    finally:
        lake.close()
