"""A metric is turned off and tried out on a host, while its real agent runs against a real gateway."""

import threading
from collections.abc import Callable
from pathlib import Path

import orjson

from gateway_fixture import Running, read_definitions, read_ingest, serving
from secondsight.access.sampling import MetricStage, Stage, set_stage
from secondsight.agent.config import AgentConfig
from secondsight.agent.run import run_agent
from secondsight.clock import SystemClock
from secondsight.model import EntityKind
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import decode
from secondsight.wire.schema import Definitions

METRIC = "node_load1"
PATIENCE_SECONDS = 40.0


def newest_has(run: Running, metric: str) -> bool | None:
    """Whether the newest ticks of the node carry a metric, in whatever pieces they come; None before the first."""
    definitions = Definitions()
    for blob in read_definitions(run.config.data):
        definitions.add(blob)
    frames = [decode(one.body, definitions) for one in read_ingest(run.config.data) if one.type is RecordType.FRAME]
    ticks: dict[int, set[str]] = {}
    for frame in frames:
        if frame.header.kind is EntityKind.NODE and frame.content.scalars is not None:
            names = {column.metric for column in frame.content.schema.columns}
            ticks.setdefault(int(frame.header.tick_times_ms[-1]), set()).update(names)
    return any(metric in ticks[tick] for tick in sorted(ticks)[-4:]) if ticks else None


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(round(PATIENCE_SECONDS / 0.25)):
        if condition():
            return
        threading.Event().wait(0.25)
    raise AssertionError("waited too long")


def test_a_metric_goes_off_and_comes_back_on_its_canary(tmp_path: Path):
    with serving(tmp_path / "gateway", SystemClock()) as run:
        (tmp_path / "token").write_text(run.token("host-1"))
        config = AgentConfig(
            gateway=f"http://127.0.0.1:{run.port}",
            token_file=tmp_path / "token",
            spool_dir=tmp_path / "spool",
            host_id="host-1",
            interval_ms=500,
            batch_seconds=0.2,
        )
        stop = threading.Event()
        agent = threading.Thread(target=run_agent, args=(config, SystemClock(), stop))
        agent.start()
        try:
            wait_for(lambda: newest_has(run, METRIC) is True)
            set_stage(run.stores.metadata, MetricStage("t1", METRIC, Stage.CANARY, hosts=("host-2",)), 0)
            wait_for(lambda: newest_has(run, METRIC) is False)
            assert newest_has(run, "node_memory_available_bytes") is True
            set_stage(run.stores.metadata, MetricStage("t1", METRIC, Stage.CANARY, hosts=("host-1",)), 0)
            wait_for(lambda: newest_has(run, METRIC) is True)
        finally:
            stop.set()
            agent.join(PATIENCE_SECONDS)
        assert not agent.is_alive()
        plans = [orjson.loads(one.body) for one in read_ingest(run.config.data) if one.type is RecordType.PLAN]
    mine = [plan for plan in plans if plan["kind"] == "node" and plan["collector_id"] == "host-1"]
    assert [plan.get("without", "") for plan in mine if plan["to_ms"] is None][-3:] == ["", METRIC, ""]
    assert {plan["interval_ms"] for plan in mine} == {500}
