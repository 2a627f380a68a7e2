"""Turn the cells that a reader took at one tick into the contents of frames.

The columns and entities of a reader's frames stay the same from tick to tick (a shipper can merge only frames of equal
definitions), so a layout remembers what it has seen: a metric or entity missing from one tick is just not there. An
entity unseen for `FORGET_TICKS` ticks leaves the layout.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import (
    U16,
    U32,
    Bools,
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
    Values,
)
from secondsight.wire.schema import GroupLayout, group_layouts, make_schema

FORGET_TICKS = 600

Key = tuple[str, str]
"""(entity, part)."""

Attributes = tuple[tuple[str, str], ...]


class Cell(NamedTuple):
    """One scalar reading in stored units; `value` is None unless the quality carries one."""

    metric: Metric
    entity: str
    part: str
    value: float | None
    quality: Quality


class HistogramPoint(NamedTuple):
    """One reading of a histogram; `buckets` are not cumulative and one more than `bounds`."""

    metric: Metric
    entity: str
    part: str
    bounds: tuple[float, ...]
    buckets: tuple[int, ...]
    sum: float
    start_ms: int


@dataclass(slots=True)
class Gathered:
    """What one reader took at one tick, of any kinds.

    Attributes:
        attributes: (entity, part) -> facts for the entity table.
        discarded: Reason -> values that were there and are not in `cells` as a value.
    """

    cells: list[Cell] = field(default_factory=list)
    histograms: list[HistogramPoint] = field(default_factory=list)
    events: list[tuple[EntityKind, Event]] = field(default_factory=list)
    infos: list[tuple[EntityKind, Info]] = field(default_factory=list)
    attributes: dict[Key, Attributes] = field(default_factory=dict)
    discarded: Counter[str] = field(default_factory=Counter)


def part_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the part of sorted `k=v` pairs; `%`, `,` and `=` inside a value are percent-encoded."""
    return _part_text(tuple(pairs))


@lru_cache(maxsize=4096)
def _part_text(pairs: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{name}={_escape(value)}" for name, value in sorted(pairs) if value)


def plain_text(text: str, limit_characters: int) -> str:
    """Return a text that any frame can carry: cut to a length, `_` for what cannot be printed."""
    cut = text[:limit_characters]
    return cut if cut.isprintable() else "".join(mark if mark.isprintable() else "_" for mark in cut)


def _escape(value: str) -> str:
    text = value.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")
    return plain_text(text, len(text))


DISCARD_REASONS: dict[Quality, str] = {
    Quality.ABSENT_NOT_SUPPORTED: "not_supported",
    Quality.ABSENT_NO_PERMISSION: "no_permission",
    Quality.ABSENT_SOURCE_BLANK: "sentinel",
    Quality.BAD_RANGE: "out_of_range",
    Quality.BAD_PARSE: "parse",
    Quality.STALE: "stale",
    Quality.SATURATED: "saturated",
}
"""What `agent_values_discarded_total` calls a cell without a value."""


def count_discarded(gathered: Gathered) -> None:
    """Add the cells without a value to the count of discarded values."""
    gathered.discarded.update(
        DISCARD_REASONS[cell.quality]
        for cell in gathered.cells
        if cell.value is None and cell.quality in DISCARD_REASONS
    )


class ContentBuilder:
    """Builds the contents of one reader's ticks for one host; not shared between threads."""

    def __init__(self, host_id: str, rack: str) -> None:
        self._host_id = host_id
        self._rack = rack
        self._layouts: dict[EntityKind, _Layout] = {}

    def build(self, gathered: Gathered, observed_delta_ms: int) -> tuple[Content, ...]:
        """Return one content per kind that has anything (more where one histogram comes with several bounds).

        Cells of one (metric, entity, part) must not repeat: the last one would win.

        Args:
            gathered: What was read.
            observed_delta_ms: How much later than the tick it was read.
        """
        contents: list[Content] = []
        for kind, piece in _by_kind(gathered).items():
            layout = self._layouts.get(kind)
            if layout is None:
                layout = self._layouts[kind] = _Layout(kind, self._host_id, self._rack)
            contents += layout.build(piece, observed_delta_ms)
        return tuple(contents)


def _by_kind(gathered: Gathered) -> dict[EntityKind, Gathered]:
    found: defaultdict[EntityKind, Gathered] = defaultdict(lambda: Gathered(attributes=gathered.attributes))
    for cell in gathered.cells:
        found[cell.metric.kind].cells.append(cell)
    for point in gathered.histograms:
        found[point.metric.kind].histograms.append(point)
    for event in gathered.events:
        found[event[0]].events.append(event)
    for info in gathered.infos:
        found[info[0]].infos.append(info)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Arranged:
    """Where the cells of a tick go.

    Attributes:
        keys: (metric, entity, part) of every cell.
        places: (group, column within the group, row, column) of every cell.
        entity_index, tick_index: Of every row.
    """

    keys: list[tuple[str, str, str]]
    places: list[tuple[int, int, int, int]]
    entity_index: U32
    tick_index: U16

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return len(self.entity_index)


class _Layout:
    """Columns and entities of one kind, growing."""

    def __init__(self, kind: EntityKind, host_id: str, rack: str) -> None:
        self._kind = kind
        self._host_id = host_id
        self._rack = rack
        self._tick = 0
        self._metrics: dict[str, Metric] = {}
        self._bounds: dict[str, tuple[Metric, tuple[float, ...]]] = {}
        self._last_seen: dict[Key, int] = {}
        self._attributes: dict[Key, Attributes] = {}
        self._positions: dict[Key, int] = {}
        self._places: dict[str, tuple[int, int, int]] = {}
        self._groups: tuple[GroupLayout, ...] = ()
        self._arranged: _Arranged | None = None
        self._schema: Schema | None = None
        self._entities: EntityTable | None = None

    def build(self, piece: Gathered, observed_delta_ms: int) -> list[Content]:
        self._tick += 1
        batches = _same_bounds(piece.histograms)
        extra = [self._odd_bounds(points) for points in batches[1:]]
        points = batches[0] if batches else []
        self._learn(piece, points)
        scalars = self._scalars(piece.cells, observed_delta_ms) if piece.cells else None
        schema, entities = self._definitions()
        histograms = _histogram_rows(schema, points, self._positions)
        events, infos = tuple(event for _, event in piece.events), tuple(info for _, info in piece.infos)
        return [Content(schema, entities, scalars, histograms, events, infos), *extra]

    def _learn(self, piece: Gathered, points: list[HistogramPoint]) -> None:
        metrics = {cell.metric.name: cell.metric for cell in piece.cells}
        if not metrics.keys() <= self._metrics.keys():
            self._metrics |= metrics
            self._schema = None
        for point in points:
            known = self._bounds.get(point.metric.name)
            if known is None or known[1] != point.bounds:
                self._bounds[point.metric.name] = (point.metric, point.bounds)
                self._schema = None
        keys = {(cell.entity, cell.part) for cell in piece.cells} | {(point.entity, point.part) for point in points}
        for key in keys:
            self._see(key, piece.attributes.get(key))
        if self._tick % FORGET_TICKS == 0:
            self._forget()

    def _see(self, key: Key, attributes: Attributes | None) -> None:
        if key not in self._last_seen or (attributes is not None and attributes != self._attributes.get(key)):
            self._attributes[key] = attributes or ()
            self._entities = None
        self._last_seen[key] = self._tick

    def _forget(self) -> None:
        for key in [key for key, tick in self._last_seen.items() if self._tick - tick >= FORGET_TICKS]:
            del self._last_seen[key]
            self._attributes.pop(key, None)
            self._entities = None

    def _definitions(self) -> tuple[Schema, EntityTable]:
        if self._schema is None:
            columns = [Column(m.name, m.unit, m.dtype, m.resolution) for m in self._metrics.values()]
            histograms = [HistogramColumn(m.name, m.unit, bounds) for m, bounds in self._bounds.values()]
            self._schema = make_schema(self._kind, columns, histograms)
            self._groups = group_layouts(self._schema)
            self._places = _column_places(self._schema)
            self._arranged = None
        if self._entities is None:
            self._arranged = None
            keys = sorted(self._last_seen)
            self._positions = {key: position for position, key in enumerate(keys)}
            rows = tuple(Entity(entity, part, self._attributes.get((entity, part), ())) for entity, part in keys)
            self._entities = EntityTable(self._kind, self._host_id, self._rack, rows)
        return self._schema, self._entities

    def _scalars(self, cells: list[Cell], observed_delta_ms: int) -> ScalarBlock:
        self._definitions()
        at = self._arrangement(cells)
        groups = [Group(one.first_column, *_empty(one.columns, at.rows, one.dtype)) for one in self._groups]
        qualities: list[tuple[int, int, int]] = []
        for (_, _, _, value, quality), (group, column_in_group, row, column) in zip(cells, at.places, strict=True):
            if value is not None:
                groups[group].values[column_in_group, row] = value
                groups[group].present[column_in_group, row] = True  # type: ignore[index] # _empty made it
            if quality is not Quality.OK and quality is not Quality.NONE:
                qualities.append((row, column, quality))
        return _block(at, observed_delta_ms, groups, qualities)

    def _arrangement(self, cells: list[Cell]) -> "_Arranged":
        """Return where cells go; worked out anew only when they are others than at the last tick."""
        keys = [(cell.metric.name, cell.entity, cell.part) for cell in cells]
        if self._arranged is None or self._arranged.keys != keys:
            row_keys = sorted({(entity, part) for _, entity, part in keys})
            row_of = {key: row for row, key in enumerate(row_keys)}
            places = []
            for name, entity, part in keys:
                group, column_in_group, column = self._places[name]
                places.append((group, column_in_group, row_of[entity, part], column))
            index = np.array([self._positions[key] for key in row_keys], np.uint32)
            self._arranged = _Arranged(keys, places, index, np.zeros(len(row_keys), np.uint16))
        return self._arranged

    def _odd_bounds(self, points: list[HistogramPoint]) -> Content:
        """Return a content of its own for points whose bounds differ from those of the layout."""
        columns = {point.metric.name: point for point in points}.values()
        schema = make_schema(self._kind, [], [HistogramColumn(p.metric.name, p.metric.unit, p.bounds) for p in columns])
        keys = sorted({(point.entity, point.part) for point in points})
        entities = EntityTable(self._kind, self._host_id, self._rack, tuple(Entity(*key) for key in keys))
        positions = {key: position for position, key in enumerate(keys)}
        return Content(schema, entities, None, _histogram_rows(schema, points, positions))


def _empty(columns: int, rows: int, dtype: np.dtype[Any]) -> tuple[Values, Bools]:
    return np.zeros((columns, rows), dtype), np.zeros((columns, rows), np.bool_)


def _column_places(schema: Schema) -> dict[str, tuple[int, int, int]]:
    """Return metric -> (group, column within the group, column of the schema)."""
    places: dict[str, tuple[int, int, int]] = {}
    for position, layout in enumerate(group_layouts(schema)):
        for offset in range(layout.columns):
            column = layout.first_column + offset
            places[schema.columns[column].metric] = (position, offset, column)
    return places


def _block(
    at: _Arranged, observed_delta_ms: int, groups: list[Group], qualities: list[tuple[int, int, int]]
) -> ScalarBlock:
    listed = np.array(qualities, np.int64).reshape(-1, 3)
    return ScalarBlock(
        entity_index=at.entity_index,
        tick_index=at.tick_index,
        observed_delta_ms=np.full(at.rows, min(max(observed_delta_ms, -(2**31)), 2**31 - 1), np.int32),
        groups=tuple(
            Group(g.first_column, g.values, None if g.present is None or g.present.all() else g.present) for g in groups
        ),
        quality_row=listed[:, 0].astype(np.uint32),
        quality_column=listed[:, 1].astype(np.uint16),
        quality=listed[:, 2].astype(np.uint8),
    )


def _same_bounds(points: list[HistogramPoint]) -> list[list[HistogramPoint]]:
    """Split points into batches in which every metric has one set of bounds; the commonest bounds come first."""
    by_bounds: dict[tuple[str, tuple[float, ...]], list[HistogramPoint]] = {}
    for point in points:
        by_bounds.setdefault((point.metric.name, point.bounds), []).append(point)
    batches: list[dict[str, list[HistogramPoint]]] = []
    for (name, _), members in sorted(by_bounds.items(), key=lambda item: (-len(item[1]), item[0])):
        batch = next((batch for batch in batches if name not in batch), None)
        if batch is None:
            batches.append({name: members})
        else:
            batch[name] = members
    return [[point for members in batch.values() for point in members] for batch in batches]


def _histogram_rows(
    schema: Schema, points: list[HistogramPoint], positions: dict[Key, int]
) -> tuple[HistogramRows, ...]:
    columns = {column.metric: position for position, column in enumerate(schema.histograms)}
    by_column: dict[int, list[HistogramPoint]] = {}
    for point in points:
        by_column.setdefault(columns[point.metric.name], []).append(point)
    return tuple(
        HistogramRows(
            column=column,
            entity_index=np.array([positions[p.entity, p.part] for p in members], np.uint32),
            tick_index=np.zeros(len(members), np.uint16),
            buckets=np.array([p.buckets for p in members], np.uint64),
            sums=np.array([p.sum for p in members], np.float64),
            start_times_ms=np.array([p.start_ms for p in members], np.int64),
        )
        for column, members in sorted(by_column.items())
    )
