"""30 s sampling through the whole platform: a plan, a debug session that reaches back, its budget, its end."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flow_http import send
from flow_tables import Tables
from secondsight.agent.config import AgentConfig
from secondsight.agent.fabric.config import FabricConfig
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.run import run_agent
from secondsight.agent.simulate.reader import SimulatedGpus
from secondsight.cli import main
from secondsight.clock import SystemClock
from up_rig import Platform, platform

HOST = "sim-1"
GPUS = 2
GAUGES = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio", "gpu_sm_active_ratio")
WINDOW_MS = 30_000
PATIENCE_SECONDS = 60.0

pytestmark = pytest.mark.timeout(400)


@contextmanager
def agent(running: Platform, folder: Path) -> Iterator[None]:
    config = AgentConfig(
        gateway=running.address,
        token_file=running.data / "tokens" / "collector",
        spool_dir=folder,
        host_id=HOST,
        host_metrics=False,
        simulate=SimulatedGpus(GPUS, seed=3),
        nvml=NvmlSettings(enabled="off"),
        kernel_log=KernelLogConfig(enabled=False),
        fabric=FabricConfig(enabled=False),
        batch_seconds=0.5,
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def ask(running: Platform, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    told = None if body is None else json.dumps(body).encode()
    return send(running.address, method, path, running.token("admin"), told, "application/json")


def test_a_window_of_30_s_has_the_figures_of_its_seconds_and_a_session_brings_these(tmp_path: Path):
    data = tmp_path / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent", "--history", "0") as running:
        tables = Tables(running)
        try:
            assert main(["plan", "set", "--host", HOST, "--interval", "30s", "--data", str(data)]) == 0
            with agent(running, tmp_path / "agent"):
                window_ms = _first_whole_window(tables)
                before = _rollups(tables, window_ms)
                assert len(before) == GPUS
                assert _seconds(tables, window_ms) == dict.fromkeys({row["entity"] for row in before}, 2)
                _budget_refuses(running, data)
                started = _start(running)
                gpu_rows = tables.wait(
                    f"SELECT entity, count() AS seconds FROM gpu_1s FINAL WHERE {_IN_WINDOW} GROUP BY entity",
                    lambda rows: {row["seconds"] for row in rows} == {30},
                    start=window_ms,
                )
                assert [row["seconds"] for row in gpu_rows] == [30] * GPUS
                _check_rollups(tables, window_ms, before)
                _check_session(running, tables, started)
        finally:
            tables.close()


_IN_WINDOW = (
    "part = '' AND toUnixTimestamp64Milli(event_time) >= {start:Int64}"
    f" AND toUnixTimestamp64Milli(event_time) < {{start:Int64}} + {WINDOW_MS}"
)


def _first_whole_window(tables: Tables) -> int:
    """Wait for the first window that the agent saw from its start and that is rolled up; return its start."""
    sql = (
        "SELECT toInt64(toUnixTimestamp(min(window_start))) * 1000 AS start FROM gpu_30s FINAL"
        " WHERE samples = 1 AND covered_ms > 29000"
    )
    for _ in range(2):
        [row] = tables.wait(sql, lambda rows: rows[0]["start"] > 0)
    assert row["start"] > 0, tables.rows("SELECT window_start, samples, covered_ms FROM gpu_30s FINAL")
    return int(row["start"])


def _rollups(tables: Tables, window_ms: int) -> list[dict[str, Any]]:
    members = [f"`{name}_{member}`" for name in GAUGES for member in ("sum", "min", "max", "last", "p95")]
    members.append("`gpu_energy_joules_total_increase`")
    return tables.rows(
        f"SELECT entity, covered_ms, {', '.join(members)} FROM gpu_30s FINAL WHERE part = '' AND samples > 0"
        " AND toUnixTimestamp(window_start) * 1000 = {start:Int64} ORDER BY entity",
        start=window_ms,
    )


def _seconds(tables: Tables, window_ms: int) -> dict[str, int]:
    rows = tables.rows(
        f"SELECT entity, count() AS seconds FROM gpu_1s FINAL WHERE {_IN_WINDOW} AND isNotNull(gpu_power_watts)"
        " GROUP BY entity",
        start=window_ms,
    )
    return {row["entity"]: row["seconds"] for row in rows}


def _budget_refuses(running: Platform, data: Path) -> None:
    assert main(["debug", "budget", "10", "--data", str(data)]) == 0
    status, told = ask(running, "POST", "/v1/debug", {"host": HOST, "minutes": 2})
    assert (status, told["error"]["code"]) == (429, "debug_budget")
    assert "10 of 10 are free" in told["error"]["message"]
    assert "larger than the whole budget" in told["error"]["hint"]
    assert main(["debug", "budget", "default", "--data", str(data)]) == 0


def _start(running: Platform) -> dict[str, Any]:
    status, _ = ask(running, "POST", "/v1/debug", {"host": "nobody", "minutes": 2})
    assert status == 404
    status, started = ask(running, "POST", "/v1/debug", {"host": HOST, "minutes": 0.5, "backMinutes": 5})
    assert status == 201, started
    assert started["valuesPerSecond"] > 50
    assert started["active"] is True
    return dict(started)


def _check_rollups(tables: Tables, window_ms: int, before: list[dict[str, Any]]) -> None:
    """The seconds that came later say what the rollup said already."""
    names = ", ".join(f"`{name}`" for name in GAUGES)
    seconds = tables.rows(
        f"SELECT entity, toUnixTimestamp64Milli(event_time) AS at, {names} FROM gpu_1s FINAL WHERE {_IN_WINDOW}"
        " ORDER BY entity, at",
        start=window_ms,
    )
    marked = "SELECT count() AS rows FROM {} WHERE position(part, 'secondary=') > 0"
    assert tables.rows(marked.format("gpu_1s"))[0]["rows"] > 0
    assert [tables.rows(marked.format(name))[0]["rows"] for name in ("gpu_30s", "entities")] == [0, 0]
    for row in before:
        mine = [second for second in seconds if second["entity"] == row["entity"]]
        weights = [min(1000, window_ms + WINDOW_MS - second["at"]) for second in mine]
        for name in GAUGES:
            values = [second[name] for second in mine]
            assert row[f"{name}_sum"] == sum(v * w for v, w in zip(values, weights, strict=True)), name
            assert (row[f"{name}_min"], row[f"{name}_max"]) == (min(values), max(values)), name
            assert row[f"{name}_last"] == values[-1], name
        assert row["covered_ms"] == sum(weights)
    assert _rollups(tables, window_ms) == before


def _check_session(running: Platform, tables: Tables, started: dict[str, Any]) -> None:
    """It is listed and on record, its plan is an interval, and it ends by itself."""
    status, listed = ask(running, "GET", "/v1/debug")
    assert status == 200
    assert [one["sessionId"] for one in listed["sessions"]] == [started["sessionId"]]
    sql = (
        "SELECT interval_ms, toUnixTimestamp64Milli(from_time) AS start FROM plans FINAL"
        " WHERE kind = 'gpu' AND host_id = {host:String} ORDER BY from_time"
    )
    plans = tables.wait(sql, lambda rows: [row["interval_ms"] for row in rows][-2:] == [1000, 30_000], host=HOST)
    assert [row["interval_ms"] for row in plans][-2:] == [1000, 30_000]
    assert {row["start"] % WINDOW_MS for row in plans[-2:]} == {0}
    status, listed = ask(running, "GET", "/v1/debug")
    assert [one["active"] for one in listed["sessions"]] == [False]
    assert ask(running, "DELETE", f"/v1/debug/{started['sessionId']}")[0] == 404
