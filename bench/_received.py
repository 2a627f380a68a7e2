"""Read back from a gateway's log what one agent sent: values by tick and metric, counters, durations by reader."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import _tests  # noqa: F401 # lets the next line find it
from gateway_fixture import read_definitions, read_ingest
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Frame
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import decode
from secondsight.wire.schema import Definitions


@dataclass(slots=True)
class Received:
    """What frames of a span of ticks held.

    Attributes:
        ticks: Kind -> tick times in ms.
        values: Kind -> values with a reading.
        gpu_series: (metric, entity, part) -> stored values in order of ticks.
        counters: (metric, part) -> values of the agent's own counters, in order of ticks.
        reads: Reader -> (reads, seconds) so far, at each tick.
        quality_cells: Cells that say why they have no value.
    """

    ticks: dict[EntityKind, set[int]] = field(default_factory=lambda: defaultdict(set))
    values: Counter[EntityKind] = field(default_factory=Counter)
    gpu_series: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    counters: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    quality_cells: int = 0

    @property
    def gpu_metrics(self) -> list[str]:
        """Return the metrics of GPUs that had a value, by name."""
        return sorted({metric for metric, _, _ in self.gpu_series})

    @property
    def noisy_share(self) -> float:
        """Return the share of GPU series that changed on more than half of their ticks."""
        changes = [np.count_nonzero(np.diff(series)) / max(len(series) - 1, 1) for series in self.gpu_series.values()]
        return sum(change > 0.5 for change in changes) / max(len(changes), 1)

    def increase(self, metric: str, part: str | None = None) -> float:
        """Return by how much a counter of the agent grew, in one part of it or in all."""
        return sum(
            series[-1] - series[0]
            for (name, its_part), series in self.counters.items()
            if name == metric and part in (None, its_part)
        )


def received(data: Path, begin_ms: int, end_ms: int) -> Received:
    """Read the ticks of `begin_ms` <= tick < `end_ms` from the log in `data`."""
    definitions = Definitions(max_entries=4096)
    for blob in read_definitions(data):
        definitions.add(blob)
    found = Received()
    for record in read_ingest(data):
        if record.type is RecordType.FRAME:
            _take(found, decode(record.body, definitions), begin_ms, end_ms)
    return found


def _take(found: Received, frame: Frame, begin_ms: int, end_ms: int) -> None:
    times = frame.header.tick_times_ms
    for tick, time_ms in enumerate(times.tolist()):
        if begin_ms <= time_ms < end_ms:
            found.ticks[frame.header.kind].add(time_ms)
            _take_scalars(found, frame.header.kind, frame.content, tick)
            _take_histograms(found, frame.content, tick)


def _take_scalars(found: Received, kind: EntityKind, content: Content, tick: int) -> None:
    if content.scalars is None:
        return
    rows = np.flatnonzero(content.scalars.tick_index == tick)
    found.quality_cells += int(np.isin(content.scalars.quality_row, rows).sum())
    for group in content.scalars.groups:
        for offset, column in enumerate(group.values):
            metric = content.schema.columns[group.first_column + offset]
            for row in rows:
                if group.present is not None and not group.present[offset, row]:
                    continue
                found.values[kind] += 1
                entity = content.entities.entities[content.scalars.entity_index[row]]
                value = float(column[row]) * (metric.resolution or 1.0)
                if kind is EntityKind.GPU:
                    found.gpu_series[metric.metric, entity.entity, entity.part].append(value)
                elif kind is EntityKind.PLATFORM:
                    found.counters[metric.metric, entity.part].append(value)


def _take_histograms(found: Received, content: Content, tick: int) -> None:
    for rows in content.histograms:
        if content.schema.histograms[rows.column].metric != "agent_collect_duration_seconds":
            continue
        for row in np.flatnonzero(rows.tick_index == tick):
            source = content.entities.entities[rows.entity_index[row]].part.removeprefix("source=")
            found.reads[source].append((int(rows.buckets[row].sum()), float(rows.sums[row])))
