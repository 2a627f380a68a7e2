"""Keep the last sample of every counter and state, as the next window's `Priors`.

It always holds the newest sample of the windows closed so far, so it is the right prior of a window that starts after
it. Older windows ask the store instead.
"""

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric, RollupSet
from secondsight.process.columns import Layout
from secondsight.process.window import Cells, Priors, empty_priors

FOLLOWED = (RollupSet.INCREASE, RollupSet.STATE)
"""Rollup sets whose members need the sample before the window."""


class Carry:
    """Last samples by group, metric and series; arrays grow by doubling."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._capacity = 256
        self._lasts = [self._empty(group, 0) for group in range(len(layout.groups))]
        self._lasts = [self._empty(group, self._capacity) for group in range(len(layout.groups))]
        self._newest = np.zeros(self._capacity, np.int64)

    def newest_ms(self, series: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the newest event time kept of each series, 0 where there is none."""
        self._reserve(series)
        return self._newest[series]

    def priors(self, group: int, columns: NDArray[np.intp], series: NDArray[np.int32]) -> Priors:
        """Return the last samples of some metrics and series."""
        self._reserve(series)
        kept, at = self._lasts[group], np.ix_(columns, series)
        return Priors(kept.values[at], kept.time_ms[at], kept.epoch[at])

    def keep(self, group: int, columns: NDArray[np.intp], series: NDArray[np.int32], lasts: Priors) -> None:
        """Take over samples that are as new as what is kept, or newer."""
        self._reserve(series)
        kept, at = self._lasts[group], np.ix_(columns, series)
        newer = (lasts.time_ms > 0) & (lasts.time_ms >= kept.time_ms[at])
        kept.values[at] = np.where(newer, lasts.values, kept.values[at])
        kept.time_ms[at] = np.where(newer, lasts.time_ms, kept.time_ms[at])
        kept.epoch[at] = np.where(newer, lasts.epoch, kept.epoch[at])
        if columns.size:
            self._newest[series] = np.maximum(self._newest[series], lasts.time_ms.max(axis=0))

    def compact(self, members: NDArray[np.intp]) -> None:
        """Keep some series alone, which are numbered in this order from now on."""
        self._reserve(members[-1:].astype(np.int32))
        capacity = max(256, members.size + members.size // 4)
        for group, kept in enumerate(self._lasts):
            left = self._empty(group, capacity)
            for name in ("values", "time_ms", "epoch"):
                getattr(left, name)[:, : members.size] = getattr(kept, name)[:, members]
            self._lasts[group] = left
        newest = np.zeros(capacity, np.int64)
        newest[: members.size] = self._newest[members]
        self._newest, self._capacity = newest, capacity

    def _empty(self, group: int, series: int) -> Priors:
        metrics = self._layout.groups[group]
        return empty_priors(len(metrics.metrics), series, metrics.dtype)

    def _reserve(self, series: NDArray[np.int32]) -> None:
        needed = int(series.max()) + 1 if series.size else 0
        if needed <= self._capacity:
            return
        old, self._capacity = self._capacity, max(needed, 2 * self._capacity)
        for group, kept in enumerate(self._lasts):
            grown = self._empty(group, self._capacity)
            for name in ("values", "time_ms", "epoch"):
                getattr(grown, name)[:, :old] = getattr(kept, name)
            self._lasts[group] = grown
        self._newest = np.concatenate([self._newest, np.zeros(self._capacity - old, np.int64)])


def is_followed(metric: Metric) -> bool:
    """Tell whether a metric needs the sample before the window."""
    return metric.rollup in FOLLOWED


def followed(cells: Cells) -> NDArray[np.intp]:
    """Return which metrics need the sample before the window."""
    return np.array([place for place, metric in enumerate(cells.metrics) if is_followed(metric)], np.intp)
