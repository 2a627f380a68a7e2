"""Turn the points of one collector and kind into the contents of frames, by columns and without a look at each value.

A layout knows which rows (entities and their parts) and which columns (a metric from one source) its series have. It
grows with them; what it says is the same in whatever order they came.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric, Source
from secondsight.catalog.scale import Conversion
from secondsight.catalog.scale_table import ConversionTable
from secondsight.gateway.foreign.cadence import Cadence
from secondsight.gateway.foreign.points import F64, I32, I64, STALE_BITS
from secondsight.mapping.cells import Attributes, Key
from secondsight.mapping.columns import HAS_VALUE, ColumnLayout
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content, Entity, EntityTable

CELLS_MAXIMUM = 1 << 20
"""Of one frame; a body of more makes several."""
TICKS_MAXIMUM = 600
SPAN_MS = 30 * 86_400_000


class Place(NamedTuple):
    """Whose rows a layout has."""

    collector_id: str
    host_id: str
    kind: EntityKind


class Ticks(NamedTuple):
    """A content with the instants of its rows."""

    times_ms: I64
    content: Content


@dataclass(frozen=True, slots=True)
class Cells:
    """Points that have a place in one layout, in the order in which they came; arrays of equal length.

    Attributes:
        exact: Place in the arrays -> value that no float holds.
    """

    rows: I32
    columns: I32
    values: F64
    times_ms: I64
    exact: dict[int, int]

    def chosen(self, places: NDArray[np.intp]) -> "Cells":
        """Return some of them."""
        exact = {}
        if self.exact:
            exact = {number: self.exact[place] for number, place in enumerate(places.tolist()) if place in self.exact}
        return Cells(self.rows[places], self.columns[places], self.values[places], self.times_ms[places], exact)


@dataclass(frozen=True, slots=True)
class _Column:
    """Values of one source of a metric; of `quality` all of them, if it is set."""

    metric: Metric
    source: Source
    conversion: Conversion
    quality: Quality | None


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What follows from rows and columns.

    Attributes:
        first: Metric of the schema -> its best column.
        others: (metric, its further columns, best first).
        fixed: (column, quality) of columns whose values are no readings.
        positions: Row -> position in the entity table.
    """

    layout: ColumnLayout
    table: ConversionTable
    first: NDArray[np.intp]
    others: tuple[tuple[int, tuple[int, ...]], ...]
    fixed: tuple[tuple[int, Quality], ...]
    entities: EntityTable
    positions: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Arranged:
    """Where points go.

    Attributes:
        rows, columns: Of the points.
        flat: Place of each in the matrix of rows and columns.
        asked: That matrix: where there is a point.
        is_plain: No two points are of one cell.
        keys: (entity, tick) of each row of the matrix.
    """

    rows: I32
    columns: I32
    flat: NDArray[np.intp]
    asked: NDArray[np.bool_]
    is_plain: bool
    keys: tuple[NDArray[np.uint32], NDArray[np.uint16]]


class Layout:
    """Rows and columns of one collector and kind. Used by one thread at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.cadence = Cadence()
        self._rows: dict[Key, int] = {}
        self._attributes: list[Attributes] = []
        self._columns: dict[tuple[str, Source, Quality | None], int] = {}
        self._listed: list[_Column] = []
        self._compiled: _Compiled | None = None
        self._last: _Arranged | None = None

    def row(self, key: Key, attributes: Attributes) -> int:
        """Return the number of an entity's or part's row."""
        number = self._rows.setdefault(key, len(self._rows))
        if number == len(self._attributes):
            self._attributes.append(attributes)
            self._compiled = None
        elif attributes and not self._attributes[number]:
            self._attributes[number] = attributes
            self._compiled = None
        return number

    def column(self, metric: Metric, source: Source, conversion: Conversion, quality: Quality | None) -> int:
        """Return the number of a source's column; with a quality, its values are no readings for this reason."""
        number = self._columns.setdefault((metric.name, source, quality), len(self._columns))
        if number == len(self._listed):
            self._listed.append(_Column(metric, source, conversion, quality))
            self._compiled = None
        return number

    def contents(self, cells: Cells) -> tuple[list[Ticks], NDArray[np.intp]]:
        """Return the contents that these points make, and the places of points that another one of their cell denies.

        Of two points of one cell in one request the first counts; a value counts before the end of its series, and
        both before what is no number.
        """
        compiled = self._compiled or self._compile()
        first_ms = int(cells.times_ms[0])
        if (cells.times_ms == first_ms).all():
            content, denied = self._content(compiled, cells, self._arranged_at_once(cells))
            return [Ticks(np.array([first_ms], np.int64), content)], denied
        found: list[Ticks] = []
        conflicts: list[NDArray[np.intp]] = []
        for times_ms, chosen in self._portions(cells):
            some = cells if chosen is None else cells.chosen(chosen)
            ticks = np.searchsorted(times_ms, some.times_ms)
            content, denied = self._content(compiled, some, self._arranged(some.rows, some.columns, ticks))
            found.append(Ticks(times_ms, content))
            conflicts.append(denied if chosen is None else chosen[denied])
        return found, np.concatenate(conflicts)

    def _portions(self, cells: Cells) -> Iterator[tuple[I64, NDArray[np.intp] | None]]:
        """Give (ticks, places of points) of each frame: all at once where that is within bounds."""
        times_ms = np.unique(cells.times_ms)
        ticks = max(1, min(TICKS_MAXIMUM, CELLS_MAXIMUM // max(1, len(self._rows) * len(self._listed))))
        if times_ms.size <= ticks and int(times_ms[-1] - times_ms[0]) <= SPAN_MS:
            yield times_ms, None
            return
        first = 0
        while first < times_ms.size:
            end = min(first + ticks, int(np.searchsorted(times_ms, times_ms[first] + SPAN_MS, side="right")))
            portion = times_ms[first:end]
            yield portion, np.flatnonzero((cells.times_ms >= portion[0]) & (cells.times_ms <= portion[-1]))
            first = end

    def _arranged_at_once(self, cells: Cells) -> _Arranged:
        """Return where points of one instant go; worked out anew only when they are others than the last time."""
        last = self._last
        if last is None or not (np.array_equal(last.rows, cells.rows) and np.array_equal(last.columns, cells.columns)):
            last = self._last = self._arranged(cells.rows, cells.columns, np.zeros(cells.rows.size, np.intp))
        return last

    def _arranged(self, rows: I32, columns: I32, ticks: NDArray[np.intp]) -> _Arranged:
        compiled = self._compiled or self._compile()
        width = len(self._rows)
        keys = ticks * width + rows
        used = np.zeros((int(ticks.max()) + 1) * width, np.bool_)
        used[keys] = True
        row_keys = np.flatnonzero(used)
        shape = row_keys.size, len(self._listed)
        flat = (np.cumsum(used) - 1)[keys] * shape[1] + columns
        asked = np.zeros(shape, np.bool_)
        asked.ravel()[flat] = True
        at = compiled.positions[row_keys % width], (row_keys // width).astype(np.uint16)
        return _Arranged(rows, columns, flat, asked, int(np.count_nonzero(asked)) == flat.size, at)

    def _content(self, compiled: _Compiled, cells: Cells, at: _Arranged) -> tuple[Content, NDArray[np.intp]]:
        values, asked, stale, conflicts = _matrix(cells, at)
        patterns, quality = compiled.table.reals(values, asked)
        if cells.exact:
            self._put_exact(cells, at.flat, (patterns, quality))
        if stale is not None:
            quality[stale] = Quality.STALE
        for column, fixed in compiled.fixed:
            quality[:, column][quality[:, column] != Quality.NONE] = fixed
        if compiled.others:
            patterns, quality = _best(compiled, patterns, quality)
        return compiled.layout.content(compiled.entities, patterns, quality, 0, keys=at.keys), conflicts

    def _put_exact(self, cells: Cells, flat: NDArray[np.intp], out: tuple[I64, NDArray[np.uint8]]) -> None:
        """Convert integers that no float holds as what they are."""
        patterns, quality = out
        for place, value in reversed(cells.exact.items()):
            conversion = self._listed[int(cells.columns[place])].conversion
            stored, quality.ravel()[flat[place]] = conversion.one(value)
            whole = int(stored or 0)
            patterns.ravel()[flat[place]] = whole - 2**64 if whole >= 2**63 else whole

    def _compile(self) -> _Compiled:
        self._last = None
        by_metric: dict[str, list[int]] = {}
        for number, column in enumerate(self._listed):
            by_metric.setdefault(column.metric.name, []).append(number)
        for numbers in by_metric.values():
            numbers.sort(key=lambda number: _preference(self._listed[number]))
        metrics = [self._listed[numbers[0]].metric for numbers in by_metric.values()]
        keys = sorted(self._rows)
        rows = tuple(Entity(entity, part, self._attributes[self._rows[entity, part]]) for entity, part in keys)
        positions = np.zeros(len(keys), np.uint32)
        positions[[self._rows[key] for key in keys]] = np.arange(len(keys))
        self._compiled = _Compiled(
            layout=ColumnLayout(self.place.kind, metrics),
            table=ConversionTable([column.conversion for column in self._listed]),
            first=np.array([numbers[0] for numbers in by_metric.values()], np.intp),
            others=tuple(
                (metric, tuple(numbers[1:])) for metric, numbers in enumerate(by_metric.values()) if len(numbers) > 1
            ),
            fixed=tuple(
                (number, column.quality) for number, column in enumerate(self._listed) if column.quality is not None
            ),
            entities=EntityTable(self.place.kind, self.place.host_id, "", rows),
            positions=positions,
        )
        return self._compiled


def _preference(column: _Column) -> tuple[bool, int, str]:
    return column.quality is not None, column.source.rank, column.source.name


def _matrix(cells: Cells, at: _Arranged) -> tuple[F64, NDArray[np.bool_], NDArray[np.bool_] | None, NDArray[np.intp]]:
    """Return values, where there is one, where a series ends, and the places of points that are denied."""
    given, flat, asked = cells.values, at.flat, at.asked
    values = np.zeros(asked.shape)
    if at.is_plain:
        values.ravel()[flat] = given
        denied = np.zeros(0, np.intp)
    else:
        blank, ended = np.isnan(given), given.view(np.uint64) == STALE_BITS
        order = np.argsort(blank * 2 - ended, kind="stable")[::-1]
        values.ravel()[flat[order]] = given[order]
        denied = np.flatnonzero(~blank & (values.ravel()[flat] != given))
    blank = np.isnan(values)
    if not blank.any():
        return values, asked, None, denied
    stale = values.view(np.uint64) == STALE_BITS
    values[blank] = np.nan
    return values, asked & ~stale, stale, denied


def _best(compiled: _Compiled, patterns: I64, quality: NDArray[np.uint8]) -> tuple[I64, NDArray[np.uint8]]:
    """Return one column for each metric: of several sources the best that has a value, else the best that speaks."""
    best_patterns, best_quality = patterns[:, compiled.first], quality[:, compiled.first]
    for metric, columns in compiled.others:
        for column in columns:
            mine, other = best_quality[:, metric], quality[:, column]
            takes = ~HAS_VALUE[mine] & ((mine == Quality.NONE) | HAS_VALUE[other])
            best_patterns[takes, metric] = patterns[takes, column]
            best_quality[takes, metric] = other[takes]
    return best_patterns, best_quality
