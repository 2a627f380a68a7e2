"""Each reader of the agent is named to the platform by what it reads, and known there to use its host's clock."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.health.heartbeat import HeartbeatReader
from secondsight.agent.readers import Shared, readers_of
from secondsight.agent.write.writer import Sender, TickWriter
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock, SystemClock
from secondsight.config import build
from secondsight.contracts import Tick
from secondsight.process.sources import AGENT_SOURCES, source_rank
from secondsight.process.watermark import AGENT_LATENESS_MS, Progress, lateness_ms
from secondsight.wire.header import Stamp

EVERYTHING: dict[str, Any] = {
    "gateway": "http://127.0.0.1:1",
    "token_file": "/t",
    "host_id": "node-a",
    "processes": {},
    "storage_probe": {"paths": ["/data"]},
    "simulate": {},
    "nvml": {"enabled": "on"},
    "dcgm": {"bindings": str(Path(__file__).parent / "dcgm_stub")},
    "smi": {},
    "slurm": {},
    "sacct": {},
    "lifecycle": {"file": "/changes.jsonl"},
    "training": {},
    "logs": {"files": [{"glob": "/var/log/train.log"}]},
    "scrape": [{"name": "exporter", "url": "http://127.0.0.1:9400/metrics"}],
}
OTHERWISE = {
    "chassis": "host",
    "processes": "host",
    "storage": "host",
    "nvml-parts": "nvml",
    "nvml-processes": "nvml",
    "health": "self",
    "exporter": "scrape",
}
"""Reader -> the source that its ticks name, where that is not the reader."""


@pytest.mark.parametrize("kernel_log", [True, False])
def test_every_reader_s_source_is_known_as_an_agent_s(tmp_path: Path, kernel_log: bool) -> None:
    settings = EVERYTHING | {"spool_dir": str(tmp_path), "kernel_log": {"enabled": kernel_log}}
    config = build(AgentConfig, settings, "agent")
    catalog = load_catalog()
    readers = [*readers_of(config, Shared(catalog, SystemClock(), Counts())), HeartbeatReader(catalog, "c", "h")]
    names = {reader.name for reader in readers}
    for reader in readers:
        reader.close()
    assert names >= {
        "host",
        "nvml",
        "sacct",
        "training",
        "logs",
        "kernel_log" if kernel_log else "xid_counts",
        *OTHERWISE,
    }
    assert {OTHERWISE.get(name, name) for name in names} <= AGENT_SOURCES.keys()


def header(source: str, interval_ms: int, *, tick_ms: int = 1_700_000_100_000, live: bool = False) -> Stamp:
    return Stamp("c", "h", source, 1, 0, 0, np.array([tick_ms], np.int64), interval_ms, live=live)


@pytest.mark.parametrize("source", sorted(AGENT_SOURCES))
@pytest.mark.parametrize("interval_ms", [100, 1000, 600_000])
def test_a_source_of_an_agent_is_waited_for_as_long_whatever_its_cadence(source: str, interval_ms: int) -> None:
    told: Any = header(source, interval_ms)
    assert lateness_ms(told) == AGENT_LATENESS_MS
    progress = Progress("h", 0)
    progress.observe(told, 1_700_000_100_000, 1_700_000_100_500, 1_700_000_100_500)
    assert progress.watermark_ms == 1_700_000_090_000
    later: Any = header(source, interval_ms, live=True)
    progress.observe(later, 1_700_000_200_000, 1_700_000_200_500, 1_700_000_200_500)
    assert progress.watermark_ms == 1_700_000_090_000


@pytest.mark.parametrize("source", ["otlp", "remote_write", "", "NVML"])
def test_a_foreign_sender_is_waited_for_two_intervals(source: str) -> None:
    told: Any = header(source, 15_000)
    assert lateness_ms(told) == 30_000


def test_what_is_read_at_its_origin_counts_before_what_an_exporter_says_of_it() -> None:
    for nearer, farther in [
        ("nvml", "dcgm"),
        ("dcgm", "scrape"),
        ("fabric", "scrape"),
        ("sacct", "scrape"),
        ("scrape", "smi"),
    ]:
        assert source_rank(nearer) < source_rank(farther)
    assert source_rank("training") < source_rank("logs")
    assert source_rank("remote_write") >= max(AGENT_SOURCES.values())


def test_a_tick_names_its_reader_unless_it_says_otherwise(tmp_path: Path) -> None:
    class Named:
        name, interval_ms = "sacct", 600_000

    writer = TickWriter(Sender("c", "h", "b"), None, ClockOffset(), ManualClock(0), Counts())  # type: ignore[arg-type] # nothing is kept
    reader: Any = Named()
    stamps = [writer.stamp(reader, 1000, tick) for tick in (Tick(()), Tick((), "sacct"), Tick((), "x", "scrape"))]
    assert [(stamp.collector_id, stamp.source) for stamp in stamps] == [
        ("c", "sacct"),
        ("c/sacct", "sacct"),
        ("c/x", "scrape"),
    ]
