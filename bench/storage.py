"""Bytes per value in the hot store and in the lake, beside VictoriaMetrics on the same values, and files per day.

BENCH_HOSTS (16) hosts x 8 GPUs x 100 metrics at 1 Hz over BENCH_SECONDS (1800), a third of the columns noisy, at the
resolution of their sources: milliwatts, percents, KiB of a link, millionths of a profiling ratio. The same values go
into the platform as frames and into VictoriaMetrics by remote write. The hot store is measured as it settles and merged
into one part, as days that are over are; the peer likewise, settled and merged by force. The lake is a copy of the
merged hot store by the product's own stage. Every value that was sent is compared with what comes back of both.

`floor_bytes_per_value` is the entropy of the columns, each alone, of values or their steps, whichever is less: no way
of coding a value without its neighbours in other columns gets below it, and with few samples it is set too low.
"""

import http.client
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import _fleet
import _fleetrun
import _lakefill
import _platform
import _remotewrite
import _victoria
import ingest_peer
from secondsight.store.chdb import ChdbStore
from secondsight.store.client import FlightStore

QUICK = os.environ.get("BENCH_QUICK") == "1"
HOSTS = int(os.environ.get("BENCH_HOSTS", "4" if QUICK else "16"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "120" if QUICK else "1800"))
DATA = _fleet.Data(hundred=True, kinds=_fleet.HUNDRED.kinds, link_step=1024)
VALUES = HOSTS * _fleet.GPUS * 100 * SECONDS
HOUR_MS = 3_600_000
DAY_SECONDS = 86_400


def main() -> None:
    """Measure all and print one JSON line."""
    program = _victoria.binary()
    print(f"versions {json.dumps(_platform.versions())}; VictoriaMetrics {_victoria.version_of(program)}")
    print(f"load average before {_platform.load_average():.2f}", flush=True)
    fleet = _fleet.prepare(SECONDS // _fleet.TICKS, DATA)
    begin_ms = (int(time.time() * 1000) // HOUR_MS - 1) * HOUR_MS
    print(f"data: {HOSTS} hosts, {SECONDS} s, {fleet.noisy_share:.0%} of columns noisy, {VALUES:,} values", flush=True)
    with tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder:
        figures = _own(fleet, begin_ms, Path(folder))
    figures |= _peer(fleet, begin_ms, program)
    print(json.dumps({"name": "storage", "figures": figures}))


def _own(fleet: _fleet.Fleet, begin_ms: int, folder: Path) -> dict[str, Any]:
    """Store the values, let them settle, merge them and copy them into a lake."""
    settled = _stored(fleet, begin_ms, folder)
    store = ChdbStore(folder / "hot")
    try:
        for (name,) in _rows(
            store, "SELECT DISTINCT table FROM system.parts WHERE active AND database = 'secondsight'"
        ):
            store.query(f"OPTIMIZE TABLE {name} FINAL", settings={"max_execution_time": 600})
        sizes = {name: (size, rows) for name, size, rows in _rows(store, _SIZES)}
        sent = _lakefill.sent_values(fleet, HOSTS)
        lake = _lakefill.Filled(store, folder, begin_ms + 2 * HOUR_MS)
        copied = lake.copy()
        figures = {
            "hot_bytes_per_value": round(sizes["gpu_1s"][0] / VALUES, 4),
            "hot_settled_bytes_per_value": round(settled, 4),
            "lake_bytes_per_value": round(lake.bytes_of("gpu_1s") / VALUES, 4),
            "floor_bytes_per_value": round(_lakefill.floor(sent), 4),
            "hot_exact": _lakefill.exact(sent, _hot_values(store, sent)),
            "lake_exact": _lakefill.exact(sent, lake.values(sent)),
            "rollup_bytes_per_gpu_day": round(_per_gpu_day(sizes, lambda name: sizes[name][0])),
            "lake_rollup_bytes_per_gpu_day": round(_per_gpu_day(sizes, lake.bytes_of)),
            "lake_write_cpu_ns_per_value": round(copied.cpu_seconds / VALUES * 1e9, 1),
            "lake_rows": copied.rows,
        }
        return figures | lake.day(6 if QUICK else 24)
    finally:
        store.close()


_SIZES = (
    "SELECT table, sum(bytes_on_disk) AS bytes, sum(rows) AS total FROM system.parts "
    "WHERE active AND database = 'secondsight' GROUP BY table"
)


def _stored(fleet: _fleet.Fleet, begin_ms: int, folder: Path) -> float:
    """Send the values to a platform on a folder until it has settled; return bytes per value then."""
    with ingest_peer._site_settings() as settings:
        rollup = {"SECONDSIGHT_ROLLUP_CATALOGUE": settings["SECONDSIGHT_PROCESSOR_CATALOGUE"]}
        with _platform.started("--no-lake", environment=settings | rollup, folder=folder) as running:
            store = FlightStore(running.data / "run" / "store.address")
            bodies = [
                [
                    b"".join(
                        (_fleet.host_frames if batch else _fleet.first_frames)(
                            fleet, host, batch, begin_ms + 5000 * batch
                        )
                    )
                    for batch in range(len(fleet.templates[0].frames))
                ]
                for host in range(HOSTS)
            ]
            token = (running.data / "tokens" / "collector").read_text().strip()
            port = int(running.gateway.rsplit(":", 1)[1])
            headers = ingest_peer.NATIVE | {"Authorization": f"Bearer {token}"}
            ingest_peer._send(port, "/v1/frames", headers, bodies)
            ingest_peer._settle(
                lambda: _fleetrun.stored_values(store) >= VALUES and _rolled(store), lambda: _fleetrun.merging(store)
            )
            stored = _fleetrun.stored_values(store)
            settled = float(_fleetrun.table_bytes(store, stored)["bytes_per_value"])
            store.close()
            print(f"platform: {stored:,} values stored, {settled:.4f} bytes each as they settled", flush=True)
    return settled


def _rolled(store: FlightStore) -> bool:
    """Tell whether the hour's rollups are made."""
    return bool(store.query("SELECT count() AS rows FROM gpu_1h FINAL").to_pylist()[0]["rows"])


def _hot_values(store: ChdbStore, sent: "_lakefill.Sent") -> "_lakefill.Sent":
    names = ", ".join(sent)
    rows = store.query(
        f"SELECT {names} FROM gpu_1s FINAL ORDER BY host_id, entity, event_time", settings={"max_execution_time": 600}
    )
    return {name: rows.column(name).to_numpy() for name in sent}


def _per_gpu_day(sizes: dict[str, tuple[int, int]], bytes_of: Any) -> float:
    """Return what a GPU's rollups of all resolutions take in a day: bytes a row x rows a day."""
    widths = {"gpu_30s": 30, "gpu_5m": 300, "gpu_1h": 3600, "gpu_1d": DAY_SECONDS}
    each = {name: bytes_of(name) / sizes[name][1] for name in widths if name in sizes and sizes[name][1]}
    return sum(size * DAY_SECONDS / widths[name] for name, size in each.items())


def _peer(fleet: _fleet.Fleet, begin_ms: int, program: Path) -> dict[str, Any]:
    """Send the values to VictoriaMetrics and let it settle, then merge by force."""
    catalog = _fleet.hundred_catalog()
    with (
        tempfile.TemporaryDirectory(prefix="secondsight-bench-") as folder,
        _victoria.running(program, Path(folder)) as victoria,
    ):
        bodies = [list(_remotewrite.bodies(fleet, catalog, host, begin_ms, 15)) for host in range(HOSTS)]
        ingest_peer._send(victoria.port, "/api/v1/write", ingest_peer.FOREIGN, bodies)
        ingest_peer._settle(
            lambda: ingest_peer._total(victoria, "vm_parts", "inmemory") == 0,
            lambda: ingest_peer._total(victoria, "vm_active_merges") > 0,
        )
        settled = victoria.size_bytes()
        _force_merge(victoria)
        stored = round(ingest_peer._total(victoria, "vm_rows_inserted_total"))
        merged = victoria.size_bytes()
    print(f"VictoriaMetrics: {stored:,} of {VALUES:,} values, {settled:,} bytes settled, {merged:,} merged", flush=True)
    return {
        "peer_bytes_per_value": round(merged / stored, 4),
        "peer_settled_bytes_per_value": round(settled / stored, 4),
        "peer_version": _victoria.version_of(program),
        "values": VALUES,
        "noisy_share": round(fleet.noisy_share, 3),
    }


def _force_merge(victoria: _victoria.Victoria) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", victoria.port, timeout=600)
    connection.request("GET", "/internal/force_merge")
    connection.getresponse().read()
    connection.close()
    ingest_peer._settle(lambda: True, lambda: ingest_peer._total(victoria, "vm_active_force_merges") > 0)


def _rows(store: ChdbStore, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in store.query(sql).to_pylist()]


if __name__ == "__main__":
    main()
