"""Make boards of the newest minutes in memory; what is not there is read from the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric
from secondsight.catalog.scale import physical_array
from secondsight.live.block import LiveBlock
from secondsight.live.names import Directory
from secondsight.live.reading import LiveReading
from secondsight.live.window import LiveWindow
from secondsight.query.board import F64, TABLE, Board, BoardSource, Layout, layout_at
from secondsight.query.inventory import Inventory
from secondsight.query.live import some_values
from secondsight.query.newest import SLOTS, latest_second, second_told
from secondsight.query.request import Filters

LAYOUTS_KEPT = 16

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Positions = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Newest:
    """Rows that a value may be taken from, the best one of each cell last.

    Attributes:
        places: Rows by block, and the place of each among all of them.
        cell: Cell of each place.
    """

    places: tuple[tuple[LiveBlock, Positions, Positions], ...]
    cell: I64


class LiveBoards:
    """Gives boards as `StoreBoards` does. Safe from several threads."""

    def __init__(self, inventory: Inventory, live: LiveWindow, beyond: BoardSource) -> None:
        self._inventory = inventory
        self._live = live
        self._beyond = beyond
        self._lock = Lock()
        self._cells: dict[tuple[str, int], I32] = {}

    def read(self, metrics: tuple[Metric, ...], filters: Filters, at_ms: int, scope: Scope) -> Board:
        """Return the board of a second.

        Raises:
            Rejected(forbidden_metric): No grant shows one of the metrics.
            Retryable: The store is away or busy.
        """
        self._live.settle()
        board = self._held(metrics, filters, at_ms, scope)
        self._live.count(held=board is not None)
        return self._beyond.read(metrics, filters, at_ms, scope) if board is None else board

    def newest_ms(self, filters: Filters, now_ms: int, scope: Scope) -> int:
        """Return the newest second that is worth a board.

        Raises:
            Retryable: The store is away or busy.
        """
        self._live.settle()
        table = self._live.table(TABLE)
        if table is None:
            return self._beyond.newest_ms(filters, now_ms, scope)
        latest_ms = latest_second(now_ms)
        layout = layout_at(self._inventory, filters, latest_ms, scope)
        if not layout.cells:
            return latest_ms
        series, told_ms = table.told()
        cell_of = self._cells_of(series, layout)[: told_ms.size]
        known = np.flatnonzero(cell_of >= 0)
        of_cell = np.zeros(len(layout.cells), np.int64)
        np.maximum.at(of_cell, cell_of[known], told_ms[known])
        return second_told(layout.hosts, np.maximum.reduceat(of_cell, layout.hosts.first), latest_ms)

    def _held(self, metrics: tuple[Metric, ...], filters: Filters, at_ms: int, scope: Scope) -> Board | None:
        """Return the board of a second, or None where not all of its rows are in memory."""
        table = self._live.table(TABLE)
        if table is None:
            return None
        layout = layout_at(self._inventory, filters, at_ms, scope)
        where = {
            "cluster_id": filters.cluster,
            "host_id": filters.host,
            "entity": filters.gpu,
            "job_id": filters.job,
            "owner_team": filters.team,
            "model_id": filters.model,
            "part": filters.part,
        }
        found: dict[str, F64] = {}
        for shown, some in _by_scope(metrics, scope).items():
            names = [metric.name for metric in some]
            reading = table.reading(shown, names, where, at_ms - layout.back_ms, at_ms + 1)
            if reading is None:
                return None
            newest = _newest(reading, self._cells_of(reading.series, layout), at_ms)
            for metric in some:
                found[metric.name] = physical_array(metric, _figures(newest, metric.name, len(layout.cells)))
        return Board(at_ms, metrics, layout.name, layout.cells, tuple(found[metric.name] for metric in metrics))

    def _cells_of(self, series: Directory, layout: Layout) -> I32:
        """Return the cell of each series, -1 where it has none or is of a part."""
        key = (layout.name, series.size)
        with self._lock:
            found = self._cells.get(key)
        if found is None:
            places: dict[tuple[str, ...], int] = {cell.key: place for place, cell in enumerate(layout.cells)}
            labels = (series.labels(number) for number in range(key[1]))
            found = np.array([-1 if one[4] else places.get(one[:4], -1) for one in labels], np.int32)
            with self._lock:
                if len(self._cells) >= LAYOUTS_KEPT:
                    self._cells.clear()
                self._cells[key] = found
        return found


def _by_scope(metrics: Sequence[Metric], scope: Scope) -> dict[Scope, list[Metric]]:
    """Return metrics by the boxes of a scope that show them; in rows of other boxes they have no value."""
    found: dict[Scope, list[Metric]] = {}
    for metric in metrics:
        found.setdefault(scope.showing(metric.name), []).append(metric)
    return found


def _newest(reading: LiveReading, cell_of: I32, at_ms: int) -> _Newest:
    """Return the rows of GPUs as a whole that are not too old, in the order that the newest one is last in."""
    taken: list[tuple[LiveBlock, Positions]] = []
    for block in reading.blocks:
        admitted = reading.rows(block)
        fresh = block.t + SLOTS * np.maximum(block.values("interval_ms").astype(np.int64), 1) > at_ms
        fresh &= _cells(block, cell_of) >= 0
        taken.append((block, np.flatnonzero(fresh if admitted is None else fresh & admitted)))
    cell = _joined([_cells(block, cell_of)[rows] for block, rows in taken])
    order = _order(reading, taken, cell)
    place = np.empty(order.size, np.intp)
    place[order] = np.arange(order.size)
    ends = np.cumsum([rows.size for _, rows in taken])
    places = tuple(
        (block, rows, place[end - rows.size : end]) for (block, rows), end in zip(taken, ends.tolist(), strict=True)
    )
    return _Newest(places, cell[order])


def _cells(block: LiveBlock, cell_of: I32) -> I32:
    """Return the cell of each row; a series that came just now has none."""
    if not cell_of.size:
        return np.full(block.size, -1, np.int32)
    there = cell_of[np.minimum(block.series, cell_of.size - 1)]
    found: I32 = np.where(block.series < cell_of.size, there, np.int32(-1))
    return found


def _order(reading: LiveReading, taken: Sequence[tuple[LiveBlock, Positions]], cell: I64) -> Positions:
    """Return the order by cell, then from the worst row to the best: rank, time, version, collector."""
    rank = _joined([block.values("source_rank")[rows] for block, rows in taken])
    t = _joined([block.t[rows] for block, rows in taken])
    since = t - t.min(initial=1 << 62)
    keys = cell << 32 | (255 - rank) << 24 | since
    order = np.argsort(keys, kind="stable")
    arranged = keys[order]
    if not (arranged[1:] == arranged[:-1]).any():
        return order
    names = reading.series.names["collector_id"].items
    by_name = np.empty(len(names), np.int64)
    by_name[np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)] = np.arange(len(names))
    codes = reading.series.codes("collector_id")
    collector = _joined([by_name[codes[block.series[rows]]] for block, rows in taken])
    high, low = (np.concatenate([block.version[half][rows] for block, rows in taken]) for half in (0, 1))
    arranged_by_all: Positions = np.lexsort((collector, low, high, keys))
    return arranged_by_all


def _figures(newest: _Newest, name: str, cells: int) -> F64:
    """Return the newest value of each cell, as stored; NaN where there is none."""
    found = np.full(newest.cell.size, np.nan)
    for block, rows, places in newest.places:
        there, values = some_values(block.column(name), rows)
        found[places[there]] = values
    known = np.flatnonzero(~np.isnan(found))
    figures = np.full(cells, np.nan)
    figures[newest.cell[known]] = found[known]  # of several rows of a cell the last one stays
    return figures


def _joined(arrays: Sequence[NDArray[np.generic]]) -> I64:
    return np.concatenate(arrays).astype(np.int64) if arrays else np.empty(0, np.int64)
