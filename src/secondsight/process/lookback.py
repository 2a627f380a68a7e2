"""Turn stored rows into what lies before and after many windows at once: last samples, and windows that follow."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from secondsight.contracts import Store
from secondsight.process.cells import WINDOW_MS
from secondsight.process.kinds import KindState
from secondsight.process.load import START, last_rows, lasts_of, next_rows, series_of
from secondsight.process.patterns import LOOKBACK_MS
from secondsight.process.pieces import Rows
from secondsight.process.series import I32
from secondsight.process.window import Priors, empty_priors

Lasts = tuple[I32, list[Priors]]
"""Series, per group of the layout their last samples."""


def load_lasts_before(
    store: Store, state: KindState, collectors: Sequence[int], starts_ms: Sequence[int], lookback_ms: int
) -> dict[int, Lasts]:
    """Return the last samples before each of some open windows, of collectors of one cluster.

    Of counters and states that none of the windows has there are none.

    Raises:
        Retryable: The store is busy or away.
    """
    tenant, _, cluster, _ = state.collectors.items[collectors[0]]
    names = [state.collectors.items[collector][-1] for collector in collectors]
    reach = (min(starts_ms) - lookback_ms, max(starts_ms))
    rows = last_rows(
        store, state, ((tenant, cluster), names), reach, state.followed_in(starts_ms), f"{START} AS start, "
    )
    if not rows.num_rows:
        nothing: Lasts = (np.zeros(0, np.int32), [lasts_of(None, group, state) for group in state.layout.groups])
        return dict.fromkeys(starts_ms, nothing)
    series, begin_ms = series_of(rows, state, tenant, cluster), np.asarray(rows.column("start").to_numpy())
    lasts = [lasts_of(rows, group, state) for group in state.layout.groups]
    order = np.lexsort((begin_ms, series))
    found: dict[int, Lasts] = {}
    for start_ms in starts_ms:
        near = order[(begin_ms[order] < start_ms) & (begin_ms[order] >= start_ms - lookback_ms)]
        heads = np.flatnonzero(np.diff(series[near], prepend=-1))
        found[start_ms] = (series[near][heads], [_newest(each, near, heads) for each in lasts])
    return found


def _newest(lasts: Priors, rows: Rows, heads: Rows) -> Priors:
    """Return the newest sample of each metric and series; the rows are sorted by (series, time)."""
    if not rows.size or not lasts.values.shape[0]:
        return empty_priors(lasts.values.shape[0], heads.size if rows.size else 0, lasts.values.dtype)
    places = np.where(lasts.time_ms[:, rows] > 0, np.arange(rows.size), 0)
    best = rows[np.maximum(np.maximum.reduceat(places, heads, axis=1), heads)]
    values, times, epochs = (
        np.take_along_axis(each, best, axis=1) for each in (lasts.values, lasts.time_ms, lasts.epoch)
    )
    return Priors(values, times, epochs)


def windows_after(
    store: Store, state: KindState, collectors: Sequence[int], ends_ms: Collection[int]
) -> dict[tuple[int, int], list[int]]:
    """Return, by (collector, end of an open window), the windows that hold the next sample of what that one may have.

    Raises:
        Retryable: The store is busy or away.
    """
    metrics = state.followed_in(end_ms - WINDOW_MS for end_ms in ends_ms)
    rows = next_rows(store, state, collectors, metrics, (min(ends_ms), max(ends_ms) + LOOKBACK_MS))
    codes = {state.collectors.items[collector][-1]: collector for collector in collectors}
    filled: dict[tuple[int, Any], list[int]] = defaultdict(list)
    for name, subject, start_ms, flags in rows:
        for place in np.flatnonzero(flags).tolist():
            filled[codes[name], (subject, place)].append(start_ms)
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    ends = np.array(sorted(ends_ms), np.int64)
    for collector, starts in {(whose, tuple(sorted(some))) for (whose, _), some in filled.items()}:
        sorted_ms = np.array(starts, np.int64)
        at = np.searchsorted(sorted_ms, ends)
        for end_ms, place in zip(ends.tolist(), at.tolist(), strict=True):
            if place < sorted_ms.size and starts[place] < end_ms + LOOKBACK_MS:
                found[collector, end_ms].add(starts[place])
    return {key: sorted(starts) for key, starts in found.items()}
