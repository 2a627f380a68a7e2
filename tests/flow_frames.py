"""Build frames of one tick as an agent does, or as it must not, from physical values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from secondsight.catalog.load import load_catalog
from secondsight.model import EntityKind
from secondsight.wire.content import (
    Column,
    Content,
    Entity,
    EntityTable,
    Event,
    Group,
    HistogramColumn,
    HistogramRows,
    Info,
    ScalarBlock,
    Schema,
)
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import group_layouts, make_schema

FRAMES = "application/x-secondsight-frame"
INTERVAL_MS = 1000


@dataclass(frozen=True)
class Tick:
    """One tick of one host's GPUs.

    Attributes:
        values: Metric -> physical value of each GPU.
        odd: Columns that are not as the catalogue has them: `metric`, and any of unit, dtype, resolution.
        offset_ms: What the sender knows of its clock, None for nothing.
    """

    host: str
    time_ms: int
    values: Mapping[str, Sequence[float]]
    odd: Sequence[Mapping[str, Any]] = ()
    collector: str = ""
    sequence: int = 1
    offset_ms: int | None = None
    uncertainty_ms: int = 0
    inline: bool = True

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        return encode(self._stamp(), self._content(()), inline=self.inline)

    def encode_with(
        self, histograms: Sequence[HistogramColumn], events: Sequence[Event], infos: Sequence[Info]
    ) -> bytes:
        """Return the bytes of a frame that has one row of each histogram, of the first GPU, and events and infos."""
        content = self._content(histograms)
        rows = tuple(
            HistogramRows(
                column=place,
                entity_index=np.zeros(1, np.uint32),
                tick_index=np.zeros(1, np.uint16),
                buckets=np.ones((1, len(column.bounds) + 1), np.uint64),
                sums=np.ones(1),
                start_times_ms=np.array([self.time_ms - INTERVAL_MS], np.int64),
            )
            for place, column in enumerate(content.schema.histograms)
        )
        content = replace(content, histograms=rows, events=tuple(events), infos=tuple(infos))
        return encode(self._stamp(), content, inline=self.inline)

    def _content(self, histograms: Sequence[HistogramColumn]) -> Content:
        odd = {str(one["metric"]): one for one in self.odd}
        columns = [_column(name, odd.get(name, {})) for name in self.values]
        rows = len(next(iter(self.values.values())))
        schema = make_schema(EntityKind.GPU, columns, list(histograms))
        entities = tuple(Entity(f"GPU-{self.host}-{index}") for index in range(rows))
        block = ScalarBlock(
            entity_index=np.arange(rows, dtype=np.uint32),
            tick_index=np.zeros(rows, np.uint16),
            observed_delta_ms=np.zeros(rows, np.int32),
            groups=self._groups(schema),
            quality_row=np.zeros(0, np.uint32),
            quality_column=np.zeros(0, np.uint16),
            quality=np.zeros(0, np.uint8),
        )
        return Content(schema, EntityTable(EntityKind.GPU, self.host, "r1", entities), scalars=block)

    def _groups(self, schema: Schema) -> tuple[Group, ...]:
        groups = []
        for layout in group_layouts(schema):
            part = schema.columns[layout.first_column : layout.first_column + layout.columns]
            stored = np.array([[value / one.resolution for value in self.values[one.metric]] for one in part])
            groups.append(Group(layout.first_column, np.rint(stored).astype(layout.dtype), None))
        return tuple(groups)

    def _stamp(self) -> Stamp:
        return Stamp(
            collector_id=self.collector or self.host,
            host_id=self.host,
            source="nvml",
            spool_id=7,
            first_sequence=self.sequence,
            last_sequence=self.sequence,
            tick_times_ms=np.array([self.time_ms], np.int64),
            interval_ms=INTERVAL_MS,
            clock_offset_ms=self.offset_ms,
            clock_uncertainty_ms=self.uncertainty_ms,
        )


def _column(name: str, changes: Mapping[str, Any]) -> Column:
    catalog = load_catalog()
    known = catalog.get(name) if name in catalog else None
    plain = {"unit": "1", "dtype": "u32", "resolution": 1.0}
    if known is not None:
        plain = {"unit": known.unit, "dtype": known.dtype, "resolution": known.resolution}
    return Column(**{"metric": name} | plain | dict(changes))
