"""Number the series of one sender, and know where the points of each go.

A series is resolved once, when it is first seen; afterwards its key leads to its number, and its number to a cell.
Series that go to the same cells are one: labels that mean nothing to the catalogue make no further ones, nor do those
of series that are refused. Their number is bounded: those that were not seen for an hour are forgotten, further ones
are refused.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric, MetricType, Source
from secondsight.catalog.scale import conversion, source_for_help
from secondsight.gateway.foreign.layout import Layout
from secondsight.gateway.foreign.overflow import OVERFLOW, Overflow
from secondsight.gateway.foreign.points import HISTOGRAM_SCOPE, I32, I64, Refused, Series
from secondsight.gateway.foreign.units import source_for_unit
from secondsight.mapping.cells import Key
from secondsight.mapping.identity import Workload
from secondsight.mapping.resolve import Resolver, Slot
from secondsight.model import EntityKind

JOB_LABELS = ("job", "service.name")
"""What tells the sources apart that a sender speaks for."""
JOB_CHARACTERS = 64
KEYS_PER_SERIES = 2
RUN_KEYS = 128
TABLES_MAXIMUM = 16
"""Tables of symbols that are remembered; a sender whose requests are alike has few."""
COUNTER_BIT, OVERFLOW_BIT = 1, 2
"""Of the last column of a cell."""

LayoutOf = Callable[[str, EntityKind, str], Layout]
"""Takes host, kind and job."""


class Target(NamedTuple):
    """A series whose points are looked at one by one, and for what."""

    slot: Slot
    job: str


class Sighted(NamedTuple):
    """Who has a GPU, by the labels of one of its series."""

    host: str
    place: Key
    workload: Workload


class SeriesIndex:
    """The series of one sender; see `points.Index`. Used by one thread at a time.

    Args:
        resolver: Of the sender.
        layout_of: Finds or makes a layout.
        maximum: Series that it may have.
        refuse: Returns the code and the words by which a further series is refused for now, "" where it is not.
    """

    def __init__(
        self,
        resolver: Resolver,
        layout_of: LayoutOf,
        maximum: int,
        refuse: Callable[[], tuple[str, str]] = lambda: ("", ""),
    ) -> None:
        self._refuse = refuse
        self._resolver = resolver
        self._layout_of = layout_of
        self._maximum = maximum
        self.overflow = Overflow(resolver.whose)
        self._known: dict[object, int] = {}
        self._tables: OrderedDict[bytes, dict[bytes, int]] = OrderedDict()
        self._numbers: dict[Series, int] = {}
        self._places: dict[object, int] = {}
        self._series: list[Series] = []
        self._keys: list[object] = []
        self._layouts: dict[int, int] = {}
        self._refusals: dict[Refused, int] = {}
        self.helps: dict[str, str] = {}
        self._targets: dict[int, tuple[Target, ...]] = {}
        self._first_cell = np.zeros(1024, np.int32)
        self._cell_count = np.zeros(1024, np.int32)
        self._refusal = np.full(1024, -1, np.int32)
        self._has_targets = np.zeros(1024, np.bool_)
        self._has_fault = np.zeros(1024, np.bool_)
        self._sight = np.full(1024, -1, np.int32)
        self._sights: dict[Sighted, int] = {}
        self._start_cells: dict[int, tuple[int, ...]] = {}
        self._metrics: list[Metric] = []
        self._seen = np.zeros(1024, np.int32)
        self._cells = np.zeros((1024, 4), np.int32)
        self._cell_total = 0
        self.layouts: list[Layout] = []
        self.is_full = False

    @property
    def size(self) -> int:
        """Return how many series there are."""
        return len(self._series)

    def get(self, key: object) -> int:
        """Return the number that a key stands for, -1 if it is not known."""
        return self._known.get(key, -1)

    def many(self, keys: list[bytes]) -> I32:
        """Return the number of each key, -1 for those that are not known.

        Series mostly come in the order in which they were first seen: runs of them are compared, not looked up.
        """
        numbers = np.empty(len(keys), np.int32)
        for start in range(0, len(keys), RUN_KEYS):
            run = keys[start : start + RUN_KEYS]
            first = self._known.get(run[0], -1)
            if first >= 0 and self._keys[first : first + len(run)] == run:
                numbers[start : start + len(run)] = np.arange(first, first + len(run))
            else:
                numbers[start : start + len(run)] = list(map(self._known.get, run, repeat(-1)))
        return numbers

    def table(self, name: bytes) -> dict[bytes, int]:
        """Return the numbers of keys that mean something beside the symbols of this name; the caller adds to it."""
        if sum(map(len, self._tables.values())) > self._maximum:
            self._tables.clear()
        table = self._tables.setdefault(name, {})
        self._tables.move_to_end(name)
        while len(self._tables) > TABLES_MAXIMUM:
            self._tables.popitem(last=False)
        return table

    def put(self, key: object, series: Series) -> int:
        """Return the number of a series, and let a key stand for it from now on, unless there are too many."""
        number = self._numbers.get(series)
        if number is None:
            slots = self._slots(series)
            place = _place_of(series, slots)
            number = self._places.get(place)
            if number is None:
                code, detail = self._limit()
                if code:
                    return self._beyond(code, detail)
                number = self._places[place] = self._add(series, slots)
            elif not isinstance(slots, str):
                self._learn_infos(series, slots)
        if len(self._known) >= KEYS_PER_SERIES * self._maximum:
            self._known.clear()
        self._known[key] = number
        self._keys[number] = key
        return number

    def learn_help(self, name: str, text: str) -> bool:
        """Take what a metric's description says; tell whether series that are known are to be resolved anew."""
        if self.helps.get(name) == text or not any(s.help_scales for _, s in self._resolver.bindings(name)):
            return False
        self.helps[name] = text
        return any(series.name == name for series in self._series)

    def see(self, numbers: I32, age: int) -> None:
        """Note that points of these series came."""
        self._seen[numbers] = age

    def unseen_share(self, age: int) -> float:
        """Return the share of series that were last seen before `age`."""
        return float((self._seen[: self.size] < age).mean()) if self.size else 0.0

    def refused(self, numbers: I32) -> NDArray[np.bool_]:
        """Return which of these series are refused."""
        refused: NDArray[np.bool_] = self._refusal[numbers] >= 0
        return refused

    def refusals(self, numbers: I32) -> list[tuple[Refused, int]]:
        """Return why series are refused, all of which are, and how often each reason is there."""
        counts = np.bincount(self._refusal[numbers], minlength=len(self._refusals))
        names = list(self._refusals)
        return [(names[place], int(counts[place])) for place in np.flatnonzero(counts).tolist()]

    def series(self, number: int) -> Series:
        """Return a series."""
        return self._series[number]

    def targets(self, number: int) -> tuple[Target, ...]:
        """Return what the points of a series are, where they are no plain cells."""
        return self._targets.get(number, ())

    def with_targets(self, numbers: I32) -> NDArray[np.intp]:
        """Return the places of those series that have targets."""
        return np.flatnonzero(self._has_targets[numbers])

    def cells(self, numbers: I32) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.intp]]:
        """Return the cells of series: the place of its series, (layout, row, column, bits) and number of each."""
        counts = self._cell_count[numbers]
        if (counts == 1).all():
            places, cells = np.arange(numbers.size), self._first_cell[numbers].astype(np.intp)
        else:
            places = np.repeat(np.arange(numbers.size), counts)
            within = np.arange(places.size) - np.repeat(np.cumsum(counts) - counts, counts)
            cells = (self._first_cell[numbers][places] + within).astype(np.intp)
        return places, self._cells[cells], cells

    def metric(self, cell: int) -> Metric:
        """Return the metric of a cell."""
        return self._metrics[cell]

    def faulty(self, numbers: I32) -> list[int]:
        """Return those of these series that have a fault of their own."""
        found: list[int] = np.unique(numbers[self._has_fault[numbers]]).tolist()
        return found

    def starts(self, number: int) -> tuple[int, ...]:
        """Return the cells of which a series says when they began."""
        return self._start_cells.get(number, ())

    def cell(self, number: int) -> tuple[int, int, int]:
        """Return (layout, row, column) of a cell."""
        layout, row, column, _ = self._cells[number].tolist()
        return layout, row, column

    def sights(self, numbers: I32, times_ms: I64) -> Iterator[tuple[Sighted, int]]:
        """Give who has a GPU by the labels of its series, and when, once for each."""
        if not self._sights:
            return
        found = self._sight[numbers]
        named = found >= 0
        if not named.any():
            return
        times, at = np.unique(times_ms[named], return_inverse=True)
        seen = np.bincount(found[named] * times.size + at.ravel())
        listed = list(self._sights)
        for place in np.flatnonzero(seen).tolist():
            yield listed[place // times.size], int(times[place % times.size])

    def _beyond(self, code: str, detail: str) -> int:
        """Return the number by which series are refused that are too many."""
        full = Series("", (), code, detail)
        number = self._numbers.get(full)
        return self._add(full, code) if number is None else number

    def _limit(self) -> tuple[str, str]:
        """Return the code and the words by which a further series is refused, "" where it is taken."""
        if len(self._series) >= self._maximum:
            self.is_full = True
            return "series_limit", f"this sender has more than {self._maximum} series"
        return self._refuse()

    def _add(self, series: Series, slots: tuple[Slot, ...] | str) -> int:
        number = len(self._series)
        if number >= self._refusal.size:
            self._grow()
        self._series.append(series)
        self._keys.append(None)
        self._numbers[series] = number
        if isinstance(slots, str):
            refused = Refused(slots, series.name)
            self._refusal[number] = self._refusals.setdefault(refused, len(self._refusals))
            self._has_fault[number] = bool(series.fault)
        else:
            self._place(number, series, slots)
        return number

    def _slots(self, series: Series) -> tuple[Slot, ...] | str:
        """Return where points of a series go, or why nowhere."""
        if series.fault:
            return series.fault
        labels = self.overflow.bounded(series, self._resolver.bindings(series.name))
        return self._resolver.resolve(series.name, labels, is_histogram=series.scope == HISTOGRAM_SCOPE)

    def _place(self, number: int, series: Series, slots: tuple[Slot, ...]) -> None:
        """Give a series its cells and targets."""
        job = job_of(dict(series.labels))
        self._first_cell[number] = self._cell_total
        targets = []
        self._learn_infos(series, slots)
        for slot in slots:
            if slot.workload.is_known:
                sight = Sighted(slot.host, (slot.entity, slot.part), slot.workload)
                self._sight[number] = self._sights.setdefault(sight, len(self._sights))
            if slot.metric.type is MetricType.INFO:
                continue
            if slot.is_start:
                self._start_cells[number] = (*self.starts(number), self._add_cell(job, series, slot))
            elif slot.metric.type in (MetricType.EVENT, MetricType.HISTOGRAM):
                targets.append(Target(replace(slot, source=self._source(slot.metric, slot.source, series)), job))
            else:
                self._add_cell(job, series, slot)
                self._cell_count[number] += 1
        self._targets[number] = tuple(targets)
        self._has_targets[number] = bool(targets) or number in self._start_cells

    def _learn_infos(self, series: Series, slots: tuple[Slot, ...]) -> None:
        for slot in slots:
            if slot.metric.type is MetricType.INFO:
                self._resolver.learn_info(slot, series.labels)

    def _add_cell(self, job: str, series: Series, slot: Slot) -> int:
        layout = self._layout_of(slot.host, slot.metric.kind, job)
        if self._cell_total >= len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros_like(self._cells)])
        source = self._source(slot.metric, slot.source, series)
        row = layout.row((slot.entity, slot.part), slot.attributes)
        column = layout.column(slot.metric, source, conversion(slot.metric, source), slot.quality)
        number = self._layouts.setdefault(id(layout), len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        bits = (slot.metric.type is MetricType.COUNTER) * COUNTER_BIT | (OVERFLOW in slot.part) * OVERFLOW_BIT
        self._cells[self._cell_total] = (number, row, column, bits)
        self._metrics.append(slot.metric)
        self._cell_total += 1
        return self._cell_total - 1

    def _source(self, metric: Metric, source: Source, series: Series) -> Source:
        help_text = series.help or self.helps.get(series.name, "")
        return source_for_unit(metric, source_for_help(source, help_text), series.unit)

    def _grow(self) -> None:
        self._first_cell = np.concatenate([self._first_cell, np.zeros_like(self._first_cell)])
        self._cell_count = np.concatenate([self._cell_count, np.zeros_like(self._cell_count)])
        self._refusal = np.concatenate([self._refusal, np.full_like(self._refusal, -1)])
        self._has_targets = np.concatenate([self._has_targets, np.zeros_like(self._has_targets)])
        self._has_fault = np.concatenate([self._has_fault, np.zeros_like(self._has_fault)])
        self._sight = np.concatenate([self._sight, np.full_like(self._sight, -1)])
        self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)])


def job_of(labels: Mapping[str, str]) -> str:
    """Return what tells the sources of one sender apart."""
    return next((labels[name] for name in JOB_LABELS if name in labels), "")[:JOB_CHARACTERS]


def _place_of(series: Series, slots: tuple[Slot, ...] | str) -> object:
    """Return what series share whose points mean the same."""
    if isinstance(slots, str):
        return slots, series.name
    told = job_of(dict(series.labels)), series.help, series.unit, series.scope
    cells = ((s.key, s.host, s.source.name, s.suffix, s.bound, s.quality, s.workload) for s in slots)
    return series.name, told, tuple(cells)
