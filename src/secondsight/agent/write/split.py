"""Divide what a reader took by the priority of each metric: one content per class, which the processor unites again.

A row goes to the classes of which it has a cell; one without any cell stays with the most important class. Events and
facts are of the first class whatever their metric. How a schema divides is worked out once and kept.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.load import Catalog
from secondsight.errors import Rejected
from secondsight.model import Priority
from secondsight.wire.content import Bools, Content, Group, HistogramRows, ScalarBlock, Schema

SCHEMAS_KEPT = 256

Columns = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Part:
    """The columns of one class in a schema.

    Attributes:
        groups: (group of the whole schema, its columns that are taken, first column in the part).
        numbers: Column of the whole schema -> column of the part, -1 where it is of another class.
        histograms: Histogram of the whole schema -> that of the part.
    """

    schema: Schema
    groups: tuple[tuple[int, Columns, int], ...]
    numbers: NDArray[np.int32]
    histograms: Mapping[int, int]


class Splitter:
    """Divides contents by a catalogue's priorities; a metric that it does not know is of the last class."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._divided: OrderedDict[int, tuple[Schema, dict[Priority, _Part]]] = OrderedDict()

    def split(self, content: Content) -> dict[Priority, Content]:
        """Return the content of each class that has something; together they say what the whole says."""
        parts = self._parts(content.schema)
        found = {
            priority: Content(part.schema, content.entities, scalars, histograms)
            for priority, part in parts.items()
            for scalars in (_scalars_of(content.scalars, part, takes_rest=priority is min(parts)),)
            for histograms in (_histograms_of(content.histograms, part),)
            if scalars is not None or histograms
        }
        if content.events or content.infos:
            first = found.get(Priority.P0) or Content(_bare(content, parts), content.entities)
            found[Priority.P0] = replace(first, events=content.events, infos=content.infos)
        return found

    def _parts(self, schema: Schema) -> dict[Priority, _Part]:
        """Return how a schema divides, worked out once an object: readers keep theirs, and comparing costs more."""
        known = self._divided.get(id(schema))
        if known is None or known[0] is not schema:
            known = self._divided[id(schema)] = (schema, self._divide(schema))
            while len(self._divided) > SCHEMAS_KEPT:
                self._divided.popitem(last=False)
        return known[1]

    def _divide(self, schema: Schema) -> dict[Priority, _Part]:
        columns: defaultdict[Priority, list[int]] = defaultdict(list)
        histograms: defaultdict[Priority, list[int]] = defaultdict(list)
        for number, column in enumerate(schema.columns):
            columns[self._priority(column.metric)].append(number)
        for number, histogram in enumerate(schema.histograms):
            histograms[self._priority(histogram.metric)].append(number)
        classes = sorted({*columns, *histograms})
        return {priority: _part_of(schema, columns[priority], histograms[priority]) for priority in classes}

    def _priority(self, metric: str) -> Priority:
        try:
            return self._catalog.get(metric).priority
        except Rejected:
            return max(Priority)


def _part_of(schema: Schema, columns: list[int], histograms: list[int]) -> _Part:
    numbers = np.full(len(schema.columns), -1, np.int32)
    numbers[columns] = np.arange(len(columns))
    groups, first = [], 0
    position = 0
    for dtype in dict.fromkeys(column.dtype for column in schema.columns):
        size = sum(column.dtype == dtype for column in schema.columns)
        taken = np.array([number - first for number in columns if first <= number < first + size], np.intp)
        if taken.size:
            groups.append((first, taken, position))
            position += taken.size
        first += size
    part = Schema(
        schema.kind,
        tuple(schema.columns[number] for number in columns),
        tuple(schema.histograms[number] for number in histograms),
    )
    return _Part(part, tuple(groups), numbers, {number: place for place, number in enumerate(histograms)})


def _scalars_of(block: ScalarBlock | None, part: _Part, *, takes_rest: bool) -> ScalarBlock | None:
    """Return the columns of a part; without rows that have no cell of it, unless those are of no other class."""
    if block is None or not part.schema.columns:
        return None
    by_first = {group.first_column: group for group in block.groups}
    groups = [
        Group(position, group.values[taken], None if group.present is None else group.present[taken])
        for first, taken, position in part.groups
        for group in (by_first[first],)
    ]
    listed = part.numbers[block.quality_column] >= 0
    rows = len(block.entity_index)
    used = _used(groups, block.quality_row[listed], rows)
    if takes_rest:
        used |= ~_used(block.groups, block.quality_row, rows)
    if not used.any():
        return None
    whole = ScalarBlock(
        block.entity_index,
        block.tick_index,
        block.observed_delta_ms,
        tuple(groups),
        block.quality_row[listed],
        part.numbers[block.quality_column[listed]].astype(np.uint16),
        block.quality[listed],
    )
    return whole if used.all() else _only(whole, used)


def _used(groups: tuple[Group, ...] | list[Group], quality_row: NDArray[np.uint32], rows: int) -> Bools:
    """Return which rows have a cell: a value, or a quality that says why there is none."""
    if any(group.present is None for group in groups):
        return np.ones(rows, np.bool_)
    used = np.zeros(rows, np.bool_)
    for group in groups:
        if group.present is not None:
            used |= group.present.any(axis=0)
    used[quality_row] = True
    return used


def _only(block: ScalarBlock, used: Bools) -> ScalarBlock:
    numbers = np.cumsum(used, dtype=np.uint32) - np.uint32(1)
    groups = [
        Group(
            group.first_column, group.values[:, used], None if group.present is None else _dense(group.present[:, used])
        )
        for group in block.groups
    ]
    return ScalarBlock(
        block.entity_index[used],
        block.tick_index[used],
        block.observed_delta_ms[used],
        tuple(groups),
        numbers[block.quality_row].astype(np.uint32),
        block.quality_column,
        block.quality,
    )


def _dense(present: Bools) -> Bools | None:
    return None if present.all() else present


def _histograms_of(histograms: tuple[HistogramRows, ...], part: _Part) -> tuple[HistogramRows, ...]:
    return tuple(
        replace(rows, column=part.histograms[rows.column]) for rows in histograms if rows.column in part.histograms
    )


def _bare(content: Content, parts: Mapping[Priority, _Part]) -> Schema:
    part = parts.get(Priority.P0)
    return Schema(content.schema.kind, ()) if part is None else part.schema
