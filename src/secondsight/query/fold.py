"""Turn windows in memory into the points of a plan and what each entity holds, as the statements of `compile.py` do.

Sums of integers are exact: they are made of parts so narrow that a float adds them up without rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.query.aggregates import Aggregate
from secondsight.query.windowed import I64, Bools, Column, Values, Windows

F64 = NDArray[np.float64]

_MANTISSA_BITS = 53
_NO_MS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Places:
    """Which output window and which series of the answer each window belongs to.

    Attributes:
        group: Number of the answer's series, shape (windows,).
        bucket: Number of the output window, shape (windows,).
        starts_ms: Start of each output window.
        groups: How many series the answer may have.
    """

    group: I64
    bucket: I64
    starts_ms: I64
    groups: int

    @property
    def code(self) -> I64:
        """Return the number of each window's point."""
        return self.group * self.starts_ms.size + self.bucket

    @property
    def points(self) -> int:
        """Return how many points the answer may have."""
        return self.groups * self.starts_ms.size


@dataclass(frozen=True, slots=True)
class HeldArrays:
    """What the tables hold of entities and parts, by their number; shape (entities,) each.

    Attributes:
        there: Whether they hold anything of one.
    """

    there: Bools
    slots: I64
    first_ms: I64
    last_ms: I64
    gaps: I64


def best_of(windows: Windows, entity: I64, rank: I64) -> Bools:
    """Tell which windows are of the source that counts for their entity and window.

    Args:
        windows: Of several sources.
        entity: Number of the entity and part of each.
        rank: Order of its source, the best one first.
    """
    order = np.lexsort((rank, windows.window_ms, entity))
    first = (np.diff(entity[order], prepend=-1) != 0) | (np.diff(windows.window_ms[order], prepend=-1) != 0)
    best = np.empty(rank.size, np.int64)
    best[order] = rank[order][first][np.cumsum(first) - 1] if order.size else 0
    found: Bools = rank == best
    return found


def narrowed(windows: Windows, there: Bools) -> Windows:
    """Return some of the windows."""

    def some(column: Column) -> Column:
        return Column(column.values[there], None if column.present is None else column.present[there])

    plain = ("series", "window_ms", "rank", "slots", "first_ms", "last_ms", "gaps", "late", "rows")
    return replace(
        windows,
        owner=None if windows.owner is None else windows.owner[there],
        members={name: some(column) for name, column in windows.members.items()},
        **{name: getattr(windows, name)[there] for name in plain},
    )


def held_arrays(windows: Windows, entity: I64, size: int) -> HeldArrays:
    """Return what windows hold of each of `size` entities and parts; those of one mostly follow each other."""
    starts = np.flatnonzero(np.diff(entity, prepend=-1))
    runs = entity[starts]

    def total(values: I64) -> I64:
        return np.bincount(runs, np.add.reduceat(values, starts), size).astype(np.int64)

    first_ms, last_ms = np.full(size, _NO_MS), np.zeros(size, np.int64)
    np.minimum.at(first_ms, runs, np.minimum.reduceat(windows.first_ms, starts))
    np.maximum.at(last_ms, runs, np.maximum.reduceat(windows.last_ms, starts))
    there = np.bincount(runs, minlength=size) > 0
    return HeldArrays(there, total(windows.slots), np.where(there, first_ms, 0), last_ms, total(windows.gaps))


def figures_of(aggregate: Aggregate, windows: Windows, places: Places, keyed: I64) -> F64:
    """Return the figure of every point, as stored; NaN where none is known.

    Args:
        aggregate: What is asked.
        windows: Of one source each.
        places: Where each belongs.
        keyed: Number of the entity, part and owner of each, whose averages `sum` adds up.
    """
    code, points = places.code, places.points
    members = windows.members

    def total(name: str) -> F64:
        return _exact(members[name].values, code, points, members[name].present)

    def extreme(name: str, reduce: Any, otherwise: float) -> F64:
        return _extreme(members[name], code, points, (reduce, otherwise))

    made: dict[Aggregate, Callable[[], F64]] = {
        Aggregate.AVG: lambda: _ratio(total("weighted"), total("covered")),
        Aggregate.SUM: lambda: _added(windows, places, keyed),
        Aggregate.MIN: lambda: extreme("lowest", np.minimum, np.inf),
        Aggregate.MAX: lambda: extreme("highest", np.maximum, -np.inf),
        Aggregate.LAST: lambda: _latest(members, code, points),
        Aggregate.COUNT: lambda: total("covered") / 1000,
        Aggregate.RATE: lambda: _ratio(total("gained") * 1000, total("paired")),
        Aggregate.INCREASE: lambda: _where(_there(members["gained"], code, points), total("gained")),
        Aggregate.RESETS: lambda: total("resets"),
        Aggregate.CHANGES: lambda: total("changes"),
    }
    figures = made[aggregate]()
    return _where(np.bincount(code, minlength=points) > 0, figures)


def quantiles_of(share: float, values: Values, weights: I64, places: Places) -> F64:
    """Return the weighted quantile of every point by nearest rank; NaN where there is no sample."""
    code, points = places.code, places.points
    order = np.lexsort((values, code))
    codes, ordered, heavy = code[order], values[order], weights[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    found = np.full(points, np.nan)
    if not starts.size:
        return found
    sums = np.cumsum(heavy)
    before = np.append(0, sums)[starts]
    totals = np.add.reduceat(heavy, starts)
    wanted = before + np.maximum(np.ceil(totals * share).astype(np.int64), 1)
    found[codes[starts]] = ordered[np.searchsorted(sums, wanted)].astype(np.float64)
    return found


def _added(windows: Windows, places: Places, keyed: I64) -> F64:
    """Return the sum of the averages that each entity has of its own."""
    buckets = places.starts_ms.size
    keys, code = np.unique(keyed * buckets + places.bucket, return_inverse=True)
    members = windows.members
    averages = _ratio(*(_exact(members[name].values, code, keys.size) for name in ("weighted", "covered")))
    into = np.empty(keys.size, np.int64)
    into[code] = places.code
    known = ~np.isnan(averages)
    sums = _added_up(averages[known], into[known], places.points)
    return _where(np.bincount(into[known], minlength=places.points) > 0, sums)


def _latest(members: dict[str, Column], code: I64, points: int) -> F64:
    order = np.lexsort((members["latest_at"].values, code))
    codes = code[order]
    ends = np.flatnonzero(np.diff(codes, append=-1))
    found = np.full(points, np.nan)
    found[codes[ends]] = members["latest"].values[order][ends]
    return found


def _extreme(column: Column, code: I64, points: int, how: tuple[Any, float]) -> F64:
    reduce, otherwise = how
    found = np.full(points, otherwise)
    values, there = column.values, column.present
    reduce.at(found, code if there is None else code[there], values if there is None else values[there])
    return np.where(np.isinf(found), np.nan, found) if np.isinf(found).any() else found


def _there(column: Column, code: I64, points: int) -> Bools:
    """Tell which points have a window with the figure."""
    found: Bools = np.bincount(code if column.present is None else code[column.present], minlength=points) > 0
    return found


def _exact(values: Values, code: I64, points: int, present: Bools | None = None) -> F64:
    """Add up values by number; of integers every bit counts until the sum becomes a float."""
    if present is not None:
        values, code = values[present], code[present]
    if not values.size:
        return np.zeros(points)
    if values.dtype.kind == "f":
        return _added_up(values, code, points)
    bits = max(int(values.max()).bit_length(), int(values.min()).bit_length())
    room = _MANTISSA_BITS - int(values.size).bit_length()
    if bits <= room:
        return _added_up(values, code, points)
    low = _exact(values & values.dtype.type((1 << room) - 1), code, points)
    high = _exact(values >> values.dtype.type(room), code, points)
    total: F64 = (high.astype(np.longdouble) * (1 << room) + low).astype(np.float64)
    return total


def _added_up(values: Values, code: I64, points: int) -> F64:
    sums: F64 = np.bincount(code, values, points).astype(np.float64, copy=False)
    return sums


def _ratio(above: F64, below: F64) -> F64:
    ratio: F64 = np.divide(above, below, out=np.full(above.size, np.nan), where=below > 0)
    return ratio


def _where(there: Bools, figures: F64) -> F64:
    return figures if there.all() else np.where(there, figures, np.nan)
