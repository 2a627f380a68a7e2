"""Cut contents down: to some rows, to some columns, to what happened. Pure; arrays are shared where they can be."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.plan.model import Selection
from secondsight.wire.content import Bools, Content, Group, HistogramRows, ScalarBlock, Schema

CACHED_SCHEMAS = 256


def happenings(content: Content) -> Content | None:
    """Return a content without its readings, None where nothing happened in it."""
    if not (content.events or content.infos):
        return None
    return replace(content, scalars=None, histograms=())


def readings(content: Content) -> Content:
    """Return a content without what happened."""
    return replace(content, events=(), infos=()) if content.events or content.infos else content


def rows_of(content: Content, selection: Selection) -> Bools:
    """Tell which scalar rows are of selected entities."""
    if content.scalars is None:
        return np.zeros(0, np.bool_)
    return _of_entities(content, selection)[content.scalars.entity_index]


def select(content: Content, selection: Selection) -> Content | None:
    """Return the rows of some entities, histograms included; None where there are none."""
    if selection.everything:
        return content
    wanted = _of_entities(content, selection)
    scalars = content.scalars
    if scalars is not None:
        scalars = select_rows(scalars, wanted[scalars.entity_index])
    histograms = tuple(
        _select_histogram(rows, kept) for rows in content.histograms if (kept := wanted[rows.entity_index]).any()
    )
    if scalars is None and not histograms:
        return None
    return replace(content, scalars=scalars, histograms=histograms)


def select_rows(block: ScalarBlock, keep: Bools) -> ScalarBlock | None:
    """Return some rows of a block; None for no rows."""
    if keep.all():
        return block
    rows = np.flatnonzero(keep)
    if not rows.size:
        return None
    place = np.cumsum(keep) - 1
    listed = keep[block.quality_row]
    return ScalarBlock(
        block.entity_index[rows],
        block.tick_index[rows],
        block.observed_delta_ms[rows],
        tuple(_group_rows(group, rows) for group in block.groups),
        place[block.quality_row[listed]].astype(np.uint32),
        block.quality_column[listed],
        block.quality[listed],
    )


class Columns:
    """Leaves out columns that are not enabled; remembers the schemas that this makes, so that frames can be merged."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, frozenset[str]], tuple[Schema, Schema, tuple[int, ...]]] = {}

    def keep(self, content: Content, enabled: frozenset[str]) -> Content | None:
        """Return a content with enabled metrics alone; None where nothing is left of it."""
        schema, kept = self._schema(content.schema, enabled)
        if schema is content.schema:
            return _happened(content, enabled)
        scalars = None
        if content.scalars is not None and any(kept):
            scalars = _select_columns(content.scalars, kept)
        names = {column.metric: place for place, column in enumerate(schema.histograms)}
        histograms = tuple(
            replace(rows, column=names[metric])
            for rows in content.histograms
            if (metric := content.schema.histograms[rows.column].metric) in names
        )
        left = replace(content, schema=schema, scalars=scalars, histograms=histograms)
        return _happened(left, enabled)

    def _schema(self, schema: Schema, enabled: frozenset[str]) -> tuple[Schema, tuple[int, ...]]:
        key = (id(schema), enabled)
        found = self._known.get(key)
        if found is None or found[0] is not schema:
            kept = tuple(int(column.metric in enabled) for column in schema.columns)
            histograms = tuple(column for column in schema.histograms if column.metric in enabled)
            columns = tuple(column for column, keep in zip(schema.columns, kept, strict=True) if keep)
            whole = len(columns) == len(schema.columns) and len(histograms) == len(schema.histograms)
            made = schema if whole else Schema(schema.kind, columns, histograms)
            if len(self._known) >= CACHED_SCHEMAS:
                self._known.clear()
            found = self._known[key] = (schema, made, kept)
        return found[1], found[2]


def _happened(content: Content, enabled: frozenset[str]) -> Content | None:
    events = tuple(event for event in content.events if event.metric in enabled)
    infos = tuple(info for info in content.infos if info.metric in enabled)
    if content.scalars is None and not (content.histograms or events or infos):
        return None
    if len(events) == len(content.events) and len(infos) == len(content.infos):
        return content
    return replace(content, events=events, infos=infos)


def _select_columns(block: ScalarBlock, kept: Sequence[int]) -> ScalarBlock:
    keep = np.array(kept, np.bool_)
    place = np.cumsum(keep) - 1
    groups = []
    for group in block.groups:
        local = keep[group.first_column : group.first_column + group.values.shape[0]]
        if local.any():
            first = int(place[group.first_column + int(np.argmax(local))])
            present = None if group.present is None else group.present[local]
            groups.append(Group(first, group.values[local], present))
    listed = keep[block.quality_column]
    return replace(
        block,
        groups=tuple(groups),
        quality_row=block.quality_row[listed],
        quality_column=place[block.quality_column[listed]].astype(np.uint16),
        quality=block.quality[listed],
    )


def _group_rows(group: Group, rows: NDArray[np.intp]) -> Group:
    return Group(group.first_column, group.values[:, rows], None if group.present is None else group.present[:, rows])


def _select_histogram(rows: HistogramRows, keep: Bools) -> HistogramRows:
    return HistogramRows(
        rows.column,
        rows.entity_index[keep],
        rows.tick_index[keep],
        rows.buckets[keep],
        rows.sums[keep],
        rows.start_times_ms[keep],
    )


def _of_entities(content: Content, selection: Selection) -> Bools:
    entities = content.entities.entities
    if selection.everything:
        return np.ones(len(entities), np.bool_)
    return np.array([item.entity in selection.entities for item in entities], np.bool_)
