"""Say how far a processor is: what of the log waits, how far watermarks are behind, what is held in memory.

Everything is worked out when it is asked for, from copies, so that nothing is added to the work itself.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from secondsight.process.watermark import Progress
from secondsight.process.world import World
from secondsight.selfmetrics import SelfMetrics


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of one partition is not finished: `bytes` is None where the log cannot tell."""

    records: int
    bytes: int | None = None


def shown(world: World, waiting: Mapping[int, Waiting], now_ms: int) -> SelfMetrics:
    """Return gauges of a processor; may be called from any thread.

    Args:
        world: Its state.
        waiting: By partition.
        now_ms: Epoch ms.
    """
    found, frontiers = SelfMetrics(), dict(world.frontiers)
    for partition, each in sorted(waiting.items()):
        name = str(partition)
        found.gauge("processor_lag_records", each.records, partition=name)
        if each.bytes is not None:
            found.gauge("processor_lag_bytes", each.bytes, partition=name)
    for partition, read_ms in sorted(frontiers.items()):
        found.gauge("processor_lag_seconds", max(now_ms - read_ms, 0) / 1000, partition=str(partition))
    _show_collectors(found, list(world.progress.values()), frontiers)
    found.gauge("processor_open_spans", len(world.spans.open))
    found.gauge("processor_unwritten_spans", len(world.spans.closing))
    windows = [window for state in world.kinds.values() for window in list(state.windows.values())]
    found.gauge("processor_window_bytes", sum(window.bytes for window in windows))
    found.gauge("processor_late_rows_waiting", world.late.rows)
    for kind, state in world.kinds.items():
        found.gauge("processor_series", len(state.series), kind=kind.value)
    return found


def _show_collectors(found: SelfMetrics, collectors: list[Progress], frontiers: Mapping[int, int]) -> None:
    """Show how many collectors are live, idle or behind, and how far the watermarks of those that are live are."""
    states, delays_ms = Counter({"live": 0, "idle": 0, "backlog": 0}), []
    for progress in collectors:
        read_ms = frontiers.get(progress.partition, 0)
        if progress.is_idle(read_ms):
            states["idle"] += 1
        elif progress.has_backlog():
            states["backlog"] += 1
        else:
            states["live"] += 1
            delays_ms.append(max(progress.ingest_ms - progress.watermark_ms, 0) if progress.watermark_ms else 0)
    for state, count in states.items():
        found.gauge("processor_collectors", count, state=state)
    if delays_ms:
        seconds = np.array(delays_ms) / 1000
        for name, quantile in (("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)):
            found.gauge("processor_watermark_delay_seconds", float(np.quantile(seconds, quantile)), quantile=name)
