"""Gather the cells that the points of a request feed, and the zeros at which counters began.

A counter that says when it began was 0 then: a point of 0 at that time makes its first value count. One that began long
ago has counted in windows that are over, and adds nothing. A point that counts from its own start on (delta) gets its 0
a millisecond after that start, where it stands in the way of no point before it: such points add up in any order, in
any pieces and any number of times, as the increases of a counter that is reset each time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import PartsAdd
from secondsight.gateway.foreign.points import F64, I32, I64, Points, Refused
from secondsight.gateway.foreign.series import COUNTER_BIT, OVERFLOW_BIT, SeriesIndex
from secondsight.gateway.foreign.taken import Taken

START_MS = 300_000
"""The first value of a counter counts if it began within this."""
NO_PLACE = -1


@dataclass(slots=True)
class Gathered:
    """Cells with their values; arrays of equal length.

    Attributes:
        places: Point that each came from, -1 for zeros at starts.
        exact: Place in these arrays -> value that no float holds.
    """

    places: NDArray[np.intp]
    layouts: I32
    rows: I32
    columns: I32
    values: F64
    times_ms: I64
    exact: dict[int, int]

    def add_zeros(self, cells: NDArray[np.int32], times_ms: I64) -> None:
        """Add the value 0 at these times; (layout, row, column) of each cell."""
        self.places = np.concatenate([self.places, np.full(len(cells), NO_PLACE)])
        self.layouts = np.concatenate([self.layouts, cells[:, 0]])
        self.rows = np.concatenate([self.rows, cells[:, 1]])
        self.columns = np.concatenate([self.columns, cells[:, 2]])
        self.values = np.concatenate([self.values, np.zeros(len(cells))])
        self.times_ms = np.concatenate([self.times_ms, times_ms])


class Starts:
    """Remembers when counters began, so that each start is told once. Used by one thread at a time."""

    def __init__(self) -> None:
        self._known_ms = np.zeros(1024, np.int64)

    def gather(self, index: SeriesIndex, points: Points, good: NDArray[np.intp], taken: Taken) -> Gathered:
        """Return the cells of those points that are good, zeros last."""
        within, cells, numbers = index.cells(points.series[good])
        places = good[within]
        if points.deltas is not None:
            places, cells, numbers = self._without_levels(index, points, (places, cells, numbers), taken)
        gathered = Gathered(
            places, cells[:, 0], cells[:, 1], cells[:, 2], points.values[places], points.times_ms[places], {}
        )
        if points.exact:
            gathered.exact = {n: points.exact[p] for n, p in enumerate(places.tolist()) if p in points.exact}
        if (cells[:, 3] & OVERFLOW_BIT).any():
            gathered, cells, numbers = _summed(index, gathered, cells, numbers)
        if points.starts_ms is not None:
            self._add_zeros(points, gathered, cells, numbers)
        self._add_created(index, points, good, gathered)
        return gathered

    def _without_levels(
        self,
        index: SeriesIndex,
        points: Points,
        found: tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.intp]],
        taken: Taken,
    ) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.intp]]:
        """Leave out deltas of what is no counter: a level cannot be told from its changes."""
        places, cells, numbers = found
        assert points.deltas is not None  # noqa: S101 # the caller has looked
        wrong = points.deltas[places] & ((cells[:, 3] & COUNTER_BIT) == 0)
        for place in np.unique(places[wrong]).tolist():
            name = index.series(int(points.series[place])).name
            taken.refuse(Refused("delta_of_gauge", name), 1, f"{name} is a level, and its sender tells changes of it")
            taken.samples -= 1
        return places[~wrong], cells[~wrong], numbers[~wrong]

    def _add_zeros(
        self, points: Points, gathered: Gathered, cells: NDArray[np.int32], numbers: NDArray[np.intp]
    ) -> None:
        assert points.starts_ms is not None  # noqa: S101 # the caller has looked
        real = gathered.places >= 0
        places = np.where(real, gathered.places, 0)
        starts_ms = np.where(real, points.starts_ms[places], 0)
        is_delta = np.zeros(places.size, np.bool_) if points.deltas is None else points.deltas[places]
        starts_ms = np.where(is_delta, np.minimum(starts_ms + 1, gathered.times_ms - 1), starts_ms)
        is_recent = is_delta | (starts_ms > gathered.times_ms - START_MS)
        wanted = (starts_ms > 1) & (starts_ms < gathered.times_ms) & is_recent & ((cells[:, 3] & COUNTER_BIT) != 0)
        most = int(numbers.max(initial=0)) + 1
        if most > self._known_ms.size:
            self._known_ms = np.concatenate([self._known_ms, np.zeros(2 * most - self._known_ms.size, np.int64)])
        chosen = np.flatnonzero(wanted & (is_delta | (self._known_ms[numbers] != starts_ms)))
        if not chosen.size:
            return
        self._known_ms[numbers[chosen]] = starts_ms[chosen]
        gathered.add_zeros(cells[chosen, :3], starts_ms[chosen])

    def _add_created(self, index: SeriesIndex, points: Points, good: NDArray[np.intp], gathered: Gathered) -> None:
        """Add zeros for series whose very value says when a counter began, in seconds."""
        cells, starts_ms = [], []
        for place in good[index.with_targets(points.series[good])].tolist():
            value, time_ms = float(points.values[place]) * 1000, int(points.times_ms[place])
            for cell in index.starts(int(points.series[place])) if time_ms - START_MS < value < time_ms else ():
                cells.append(index.cell(cell))
                starts_ms.append(int(value))
        if cells:
            gathered.add_zeros(np.array(cells, np.int32), np.array(starts_ms, np.int64))


def _summed(
    index: SeriesIndex, gathered: Gathered, cells: NDArray[np.int32], numbers: NDArray[np.intp]
) -> tuple[Gathered, NDArray[np.int32], NDArray[np.intp]]:
    """Unite points of the overflow part: added where parts of the metric add up, else the greatest of them."""
    over = (cells[:, 3] & OVERFLOW_BIT) != 0
    keys = np.stack([cells[:, 0], cells[:, 1], cells[:, 2], gathered.times_ms], axis=1)[over]
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    values = gathered.values[over]
    sums, tops = np.zeros(first.size), np.full(first.size, -np.inf)
    np.add.at(sums, inverse.ravel(), values)
    np.maximum.at(tops, inverse.ravel(), values)
    chosen = np.flatnonzero(over)[first]
    for number, place in enumerate(chosen.tolist()):
        metric = index.metric(int(numbers[place]))
        gathered.values[place] = sums[number] if metric.parts_add is PartsAdd.SUM else tops[number]
    kept = np.sort(np.concatenate([np.flatnonzero(~over), chosen]))
    united = Gathered(
        gathered.places[kept],
        gathered.layouts[kept],
        gathered.rows[kept],
        gathered.columns[kept],
        gathered.values[kept],
        gathered.times_ms[kept],
        {},
    )
    return united, cells[kept], numbers[kept]
