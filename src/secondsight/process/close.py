"""Turn the open rows of collectors whose window ends into samples for the rollup."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from secondsight.process.carry import followed
from secondsight.process.cells import RANK, VALUE_RANK, WINDOW_MS, Window
from secondsight.process.kinds import KindState
from secondsight.process.pieces import Rows
from secondsight.process.raw import selection_of
from secondsight.process.series import I32
from secondsight.process.sources import source_rank
from secondsight.process.stamps import Stamps
from secondsight.process.window import Cells, Priors, Rollup, Samples, no_priors

MAX_ROWS = 120_000
"""Rows that are rolled up at once, so that temporary arrays stay small."""


def sorted_rows(window: Window, collectors: Iterable[int]) -> Rows:
    """Return the rows of some collectors, sorted by (series, event time)."""
    lanes = [window.lanes[collector].rows() for collector in collectors if collector in window.lanes]
    rows = np.concatenate(lanes) if lanes else np.zeros(0, np.intp)
    order = np.lexsort((window.time_ms[rows], window.series[rows]))
    return rows[order]


def portions(window: Window, rows: Rows) -> list[Rows]:
    """Cut sorted rows into portions of whole series."""
    if rows.size <= MAX_ROWS:
        return [rows] if rows.size else []
    heads = np.flatnonzero(np.diff(window.series[rows])) + 1
    wanted = np.arange(MAX_ROWS, rows.size, MAX_ROWS)
    cuts = np.unique(heads[np.minimum(np.searchsorted(heads, wanted), heads.size - 1)]) if heads.size else heads
    return [portion for portion in np.split(rows, cuts) if portion.size]


def samples_of(state: KindState, window: Window, rows: Rows, stamps: Stamps) -> Samples:
    """Return the samples of sorted rows, without priors."""
    chosen = selection_of(rows) if bool((np.diff(rows) == 1).all()) else rows
    time_ms, series = window.time_ms[chosen], window.series[chosen]
    epochs = np.array([state.epochs.code(origin.boot_id) for origin in window.origins], np.int32)
    cells = tuple(_cells(window, group, chosen) for group in range(len(window.values)) if window.used[group].any())
    return Samples(
        window.start_ms,
        window.start_ms + WINDOW_MS,
        series,
        time_ms,
        window.interval_ms[chosen],
        epochs[window.origin[chosen]],
        stamps.of(series, time_ms)[0],
        cells,
        (),
    )


def _cells(window: Window, group: int, rows: Rows | slice) -> Cells:
    used = np.flatnonzero(window.used[group])
    metrics = tuple(window.layout.groups[group].metrics[column] for column in used.tolist())
    quality = _take(window.quality[group], used, rows)
    present = RANK[quality] >= VALUE_RANK if window.blemished else quality.view(np.bool_)
    return Cells(metrics, _take(window.values[group], used, rows), present)


def _take(matrix: NDArray[np.generic], columns: Rows, rows: Rows | slice) -> NDArray[np.generic]:
    """Return some columns and rows of a metric-major matrix, row-contiguous."""
    if isinstance(rows, slice):
        return np.ascontiguousarray(matrix[columns, rows])
    taken = np.empty((columns.size, rows.size), matrix.dtype)
    for place, column in enumerate(columns.tolist()):
        np.take(matrix[column], rows, out=taken[place], mode="clip")
    return taken


def used_groups(window: Window) -> list[tuple[int, Rows]]:
    """Return (group, used columns) in the order of `samples_of(...).cells`."""
    return [(group, np.flatnonzero(used)) for group, used in enumerate(window.used) if used.any()]


def carried_priors(state: KindState, window: Window, samples: Samples, series: I32) -> tuple[Priors, ...]:
    """Return the last samples that the carry has of distinct series; exact where the carry is older than the window."""
    found = []
    for (group, columns), cells in zip(used_groups(window), samples.cells, strict=True):
        priors = no_priors(cells, series.size)
        some = followed(cells)
        kept = state.carry.priors(group, columns[some], series)
        _fill(priors, some, kept, samples.start_ms)
        found.append(priors)
    return tuple(found)


def stored_priors(
    window: Window, samples: Samples, series: I32, stored: tuple[I32, Sequence[Priors]]
) -> tuple[Priors, ...]:
    """Return the last samples that the store has of distinct series."""
    place = {number: position for position, number in enumerate(stored[0].tolist())}
    at = np.array([place.get(number, -1) for number in series.tolist()], np.intp)
    known = np.flatnonzero(at >= 0)
    found = []
    for (group, columns), cells in zip(used_groups(window), samples.cells, strict=True):
        priors = no_priors(cells, series.size)
        source, chosen = stored[1][group], np.ix_(columns, at[known])
        priors.values[:, known] = source.values[chosen]
        priors.time_ms[:, known] = source.time_ms[chosen]
        priors.epoch[:, known] = source.epoch[chosen]
        found.append(priors)
    return tuple(found)


def keep_lasts(state: KindState, window: Window, samples: Samples, rollup: Rollup, series: I32) -> None:
    """Hand the last samples of a window over to the next one."""
    for (group, columns), cells, lasts in zip(used_groups(window), samples.cells, rollup.lasts, strict=True):
        some = followed(cells)
        chosen = Priors(lasts.values[some], lasts.time_ms[some], lasts.epoch[some])
        state.carry.keep(group, columns[some], series, chosen)


def ranks_of(window: Window, rows: Rows, rollup: Rollup) -> NDArray[np.uint8]:
    """Return the source rank of each rollup row: the best of its series' rows."""
    ranks = np.array([source_rank(origin.source) for origin in window.origins], np.uint8)[window.origin[rows]]
    series = window.series[rows]
    heads = np.concatenate([[0], np.flatnonzero(np.diff(series)) + 1]) if series.size else np.zeros(0, np.intp)
    best = np.minimum.reduceat(ranks, heads)
    return best[np.searchsorted(series[heads], rollup.series)]


def _fill(priors: Priors, rows: Rows, kept: Priors, before_ms: int) -> None:
    older = (kept.time_ms > 0) & (kept.time_ms < before_ms)
    priors.values[rows] = np.where(older, kept.values, 0)
    priors.time_ms[rows] = np.where(older, kept.time_ms, 0)
    priors.epoch[rows] = np.where(older, kept.epoch, 0)
