"""Resolve what a window needs from the store: rows written before, samples before it, rollup rows to replace."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.process.carry import followed
from secondsight.process.cells import Window
from secondsight.process.close import carried_priors, stored_priors
from secondsight.process.enrich import Attribution
from secondsight.process.kinds import KindState
from secondsight.process.load import LOOKBACKS_MS, Stored, joined, load_lasts
from secondsight.process.lookback import Lasts, load_lasts_before
from secondsight.process.series import I32, distinct
from secondsight.process.spans import SpanKey
from secondsight.process.watermark import Progress
from secondsight.process.window import Priors, Samples


class PriorSource:
    """Finds the last samples before a window: in memory where that is exact, else in the store."""

    def __init__(self, store: Store, progress: Mapping[int, Progress]) -> None:
        self._store = store
        self._progress = progress
        self._expected: dict[tuple[EntityKind, int], list[_Expected]] = {}

    def expect(self, batches: Iterable[list[SpanKey]]) -> None:
        """Take note of which windows are asked for next: what one query finds is kept until the next call."""
        self._expected = {}
        for keys in batches:
            batch = _Expected({key[2] for key in keys}, sorted({key[1] for key in keys}))
            for start_ms in batch.starts_ms:
                self._expected.setdefault((keys[0][0], start_ms), []).append(batch)

    def priors(
        self, state: KindState, window: Window, samples: Samples, collectors: Sequence[int]
    ) -> tuple[Priors, ...]:
        """Return the priors of a window's samples, which are of these collectors.

        Raises:
            Retryable: The store is busy or away.
        """
        series = distinct(samples.series)
        fresh = [number for number in collectors if not self._is_consulted(state, number)]
        if not fresh and bool((state.carry.newest_ms(series) < window.start_ms).all()):
            return carried_priors(state, window, samples, series)
        found = self._load(state, window, samples, collectors)
        for group, lasts in enumerate(found[1]):
            state.carry.keep(group, np.arange(lasts.values.shape[0]), found[0], lasts)
        batches = self._expected.get((state.kind, window.start_ms), ())
        for number in fresh:
            is_whole = not any(number in batch.collectors for batch in batches)
            if is_whole and window.start_ms >= self._progress[number].restored_ms:
                self._progress[number].consulted.add(state.kind)
        return stored_priors(window, samples, series, found)

    def _is_consulted(self, state: KindState, collector: int) -> bool:
        """Tell whether the carry holds all that is stored of a collector."""
        progress = self._progress[collector]
        return progress.new or state.kind in progress.consulted

    def _load(
        self, state: KindState, window: Window, samples: Samples, collectors: Sequence[int]
    ) -> tuple[I32, list[Priors]]:
        """Look for the last samples, first the cheap way, then as far back as they count."""
        for lookback_ms in LOOKBACKS_MS[:-1]:
            found = self._lasts(state, collectors, window.start_ms, lookback_ms)
            if _suffice(samples, stored_priors(window, samples, distinct(samples.series), found)):
                return found
        return self._lasts(state, collectors, window.start_ms, LOOKBACKS_MS[-1])

    def _lasts(self, state: KindState, collectors: Sequence[int], start_ms: int, lookback_ms: int) -> Lasts:
        left, found = set(collectors), list[Lasts]()
        for batch in self._expected.get((state.kind, start_ms), ()):
            if left & batch.collectors:
                found.append(self._of_batch(state, batch, start_ms, lookback_ms))
                left -= batch.collectors
        if left or not found:
            found.append(load_lasts(self._store, state, sorted(left), start_ms, lookback_ms))
        if len(found) == 1:
            return found[0]
        groups = range(len(state.layout.groups))
        series: I32 = np.concatenate([each for each, _ in found])
        return series, [joined([lasts[group] for _, lasts in found]) for group in groups]

    def _of_batch(self, state: KindState, batch: "_Expected", start_ms: int, lookback_ms: int) -> Lasts:
        if (start_ms, lookback_ms) not in batch.lasts:
            later = [start for start in batch.starts_ms if start >= start_ms]
            lasts = load_lasts_before(self._store, state, sorted(batch.collectors), later, lookback_ms)
            batch.lasts.update({(start, lookback_ms): each for start, each in lasts.items()})
        return batch.lasts[start_ms, lookback_ms]


@dataclass(frozen=True, slots=True)
class _Expected:
    """Windows of collectors of one cluster that are asked for next.

    Attributes:
        lasts: (Window, lookback) -> the last samples before it, as far as they were asked for.
    """

    collectors: set[int]
    starts_ms: list[int]
    lasts: dict[tuple[int, int], Lasts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What recomputed rows of one collector and window stand for.

    Attributes:
        counter: Recompute counter of its new rows.
        tombstones: Stored rows that are no longer true.
    """

    counter: int
    tombstones: list[Stored]


def replaced(stored: Sequence[Stored], kept: Container[tuple[int, Attribution]]) -> Replaced:
    """Compare the stored rollup rows of a collector's window with the new ones, given as (series, attribution)."""
    counter = max((row.counter for row in stored), default=-1) + 1
    return Replaced(counter, [row for row in stored if row.samples and (row.series, row.attribution) not in kept])


def lost_series(series: I32, stored: Sequence[Stored]) -> set[int]:
    """Return the series of which a window has fewer rows than one owner's rollup was made of: retention took them.

    Rows of several owners are not added up: after a crash that of an owner who is none any more may still be there.

    Args:
        series: Series of each row of the window.
        stored: Its stored rollup rows.
    """
    held: Counter[int] = Counter()
    for row in stored:
        held[row.series] = max(held[row.series], row.samples)
    there = Counter(series[np.isin(series, list(held))].tolist())
    return {number for number, samples in held.items() if there[number] < samples}


def _suffice(samples: Samples, priors: Sequence[Priors]) -> bool:
    """Tell whether every counter and state of every series that needs a last sample has one."""
    series = distinct(samples.series)
    for cells, prior in zip(samples.cells, priors, strict=True):
        some = followed(cells)
        metric, row = np.nonzero(cells.present[some])
        missing = prior.time_ms[some] == 0
        if missing[metric, np.searchsorted(series, samples.series[row])].any():
            return False
    return True
