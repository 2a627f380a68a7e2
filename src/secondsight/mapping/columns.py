"""Turn whole columns of stored values into the content of a frame, for readers that have no need of single cells.

Rows are the entities of a table in their order, columns the metrics of a layout. Values come as 64-bit patterns, as
`catalog.scale_table` gives them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import U16, U32, Column, Content, EntityTable, Event, Group, Info, ScalarBlock
from secondsight.wire.schema import group_layouts, make_schema

HAS_VALUE = np.array([quality.has_value for quality in Quality], np.bool_)
IS_LISTED = np.array([quality not in (Quality.OK, Quality.NONE) for quality in Quality], np.bool_)
"""By quality, which are numbered from 0 on: whether a cell carries a value, and whether a frame lists it."""

_DELTA_MAXIMUM_MS = 2**31 - 1


class ColumnLayout:
    """Metrics of one kind, in the order of a reader's matrix."""

    def __init__(self, kind: EntityKind, metrics: Sequence[Metric]) -> None:
        self.schema = make_schema(kind, [Column(m.name, m.unit, m.dtype, m.resolution) for m in metrics])
        place = {metric.name: position for position, metric in enumerate(metrics)}
        self._order = np.array([place[column.metric] for column in self.schema.columns], np.intp)
        self._groups = group_layouts(self.schema)

    def content(
        self,
        entities: EntityTable,
        patterns: NDArray[np.int64],
        quality: NDArray[np.uint8],
        observed_delta_ms: int,
        happened: tuple[Sequence[Event], Sequence[Info]] = ((), ()),
        keys: tuple[U32, U16] | None = None,
    ) -> Content:
        """Return the content of one tick, or of as many as `keys` name.

        Args:
            entities: One for each row, where there are no keys.
            patterns: Stored values, shape (rows, metrics); what has no value is not looked at.
            quality: Same shape.
            observed_delta_ms: How much later than the tick the values were read.
            happened: Events and facts to go with it.
            keys: Entity and tick of each row, by their positions.
        """
        events, infos = happened
        rows = len(patterns)
        entity_index, tick_index = keys or (np.arange(rows, dtype=np.uint32), np.zeros(rows, np.uint16))
        qualities = np.ascontiguousarray(quality[:, self._order].T)
        present = HAS_VALUE[qualities]
        by_column = np.where(present, patterns[:, self._order].T, 0)
        full = np.logical_and.reduce(present, axis=1)
        groups = []
        for layout in self._groups:
            part = slice(layout.first_column, layout.first_column + layout.columns)
            wide = by_column[part]
            values = wide.astype(layout.dtype) if layout.dtype.itemsize < 8 else wide.view(layout.dtype)
            groups.append(Group(layout.first_column, values, None if full[part].all() else present[part]))
        column, row = np.nonzero(IS_LISTED[qualities])
        delta_ms = min(max(observed_delta_ms, -_DELTA_MAXIMUM_MS), _DELTA_MAXIMUM_MS)
        scalars = ScalarBlock(
            entity_index=entity_index,
            tick_index=tick_index,
            observed_delta_ms=np.full(rows, delta_ms, np.int32),
            groups=tuple(groups),
            quality_row=row.astype(np.uint32),
            quality_column=column.astype(np.uint16),
            quality=qualities[column, row],
        )
        return Content(self.schema, entities, scalars if rows else None, (), tuple(events), tuple(infos))
