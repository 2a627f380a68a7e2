"""Turn rows of seconds in memory into windows, as `windows.py` does in SQL: one row per series, owner and base window.

A sample covers its interval, cut at the next sample of its series and at the end of its base window. An increase
belongs to the window of the later sample of a pair. Blocks must hold whole base windows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.live.block import Column as LiveColumn
from secondsight.live.block import LiveBlock
from secondsight.process.counters import Increase, Pairs, increase_of
from secondsight.process.patterns import LOOKBACK_MS as PAIR_MAXIMUM_MS
from secondsight.query.aggregates import PAIRED, QUANTILES, Aggregate
from secondsight.query.coverage import GAP_MS, GAP_SLOTS
from secondsight.query.members import FLOAT, members_of
from secondsight.query.plan import SeriesPlan, Span
from secondsight.query.windows import FAR_MS, LATE_MS

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = NDArray[Any]
Rows = NDArray[Any] | slice
"""Positions in a block, ascending, or a slice of all of them."""
Admit = Callable[[LiveBlock], Bools | None]
"""Tells which rows of a block a question admits; None is all of them."""
Owner = Callable[[LiveBlock, Rows], I64 | None]
"""Tells by number whose each of some rows is, as far as a question tells owners apart; None where it does not."""
CHUNK_ROWS = 1 << 18
"""About as many samples are looked at at once: what is made of each on the way takes many times its memory."""


@dataclass(frozen=True, slots=True)
class Column:
    """Figures of some windows.

    Attributes:
        values: Shape (windows,); anything where absent.
        present: Shape (windows,), or None where every window has one.
    """

    values: Values
    present: Bools | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows of a table in memory.

    Attributes:
        blocks: In order of time; they do not overlap.
        series: How many series have a number.
        complete_ms: Epoch ms from which on every row of the table is in them.
        no_boot: Number of the boot that nobody knows, or -1.
    """

    blocks: Sequence[LiveBlock]
    series: int
    complete_ms: int
    no_boot: int = -1


@dataclass(frozen=True, slots=True)
class Windows:
    """Figures of windows; shape (windows,) each. For percentiles each sample is a window, with `v` and `cover_ms`.

    Attributes:
        owner: Number of the owner, or None where owners are not told apart.
        rank: Rank of the row's source.
        members: Figure by name, and the windows that have one, where not all do.
    """

    series: I64
    window_ms: I64
    owner: I64 | None
    rank: I64
    members: dict[str, Column]
    slots: I64
    first_ms: I64
    last_ms: I64
    gaps: I64
    late: I64
    rows: I64


class LooksFarther(Exception):
    """Counters have samples whose predecessors may lie before what is in memory."""


def joined(parts: Sequence[Windows]) -> Windows:
    """Return windows of several legs or blocks as one."""
    if len(parts) == 1:
        return parts[0]
    plain = {
        one.name: np.concatenate([getattr(part, one.name) for part in parts])
        for one in fields(Windows)
        if one.name not in ("owner", "members")
    }
    members = {name: _joined([part.members[name] for part in parts]) for name in parts[0].members}
    owners = [part.owner for part in parts if part.owner is not None]
    return Windows(owner=np.concatenate(owners) if owners else None, members=members, **plain)


def raw_windows(plan: SeriesPlan, frame: Frame, span: Span, admit: Admit, owner: Owner) -> list[Windows]:
    """Return the windows of a range that 1 s rows give; the rows reach as far back as counters look, or are held.

    Raises:
        LooksFarther: The sample before a counter's first one may be in none of the blocks.
    """
    reaches_back = frame.complete_ms <= span.from_ms - plan.lookback_ms
    found = []
    for samples in samples_of(plan, frame, span, admit):
        if not reaches_back and bool((samples.inside & ~samples.known).any()):
            raise LooksFarther
        if samples.inside.any():
            found.append(_folded(plan, samples, owner))
    return found


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of one metric in one block, sorted by (series, time); shape (samples,) each.

    Attributes:
        row: Positions in the block.
        before_ms, before: Time and value of the sample before each in its series; 0 where none is known.
        known: There is one before.
        inside: It lies inside the range; the others were read for those behind them alone.
        cover_ms: How long each counts.
    """

    block: LiveBlock
    row: Rows
    series: I64
    t: I64
    v: Values
    interval_ms: I64
    before_ms: I64
    before: Values
    new_epoch: Bools
    known: Bools
    inside: Bools
    cover_ms: I64
    late: Bools
    from_ms: int


@dataclass(slots=True)
class _Carried:
    """What is known of the newest sample of each series before a block, by the number of the series."""

    t: I64
    v: Values
    boot: I64


def samples_of(plan: SeriesPlan, frame: Frame, span: Span, admit: Admit) -> Iterator[Samples]:
    """Yield the samples of a plan's metric block by block, those before the range too where counters need them."""
    carried = None
    reach = Span(span.from_ms - plan.lookback_ms, span.to_ms)
    for block in frame.blocks:
        found = picked(block, block.column(plan.selected.metric.name), reach, admit)
        if found is None:
            continue
        row, values = found
        if carried is None:
            size = frame.series
            carried = _Carried(np.zeros(size, np.int64), np.zeros(size, values.dtype), np.full(size, -1))
        for some in _chunks(block.series[row]):
            few = some if isinstance(row, slice) else row[some]
            yield _samples(plan, block, few, values[some], (span.from_ms, frame.no_boot, carried))


def _chunks(series: I64) -> Iterator[slice]:
    """Yield ranges of about `CHUNK_ROWS` sorted series, each of whole ones; one of all where they are few."""
    edges = series[CHUNK_ROWS::CHUNK_ROWS]
    cuts = np.unique(np.append(np.searchsorted(series, edges), (0, series.size))).tolist()
    yield from (slice(start, end) for start, end in pairwise(cuts))


def picked(block: LiveBlock, column: LiveColumn, span: Span, admit: Admit) -> tuple[Rows, Values] | None:
    """Return which rows of a block count and their values: inside a range, with a value, admitted; None for none."""
    if not column.values.size:
        return None
    mask = admit(block)
    if block.start_ms < span.from_ms or block.end_ms > span.to_ms:
        within = (block.t >= span.from_ms) & (block.t < span.to_ms)
        mask = within if mask is None else mask & within
    if mask is None:
        return slice(None) if column.rows is None else column.rows, column.values
    if column.rows is None:
        found = np.flatnonzero(mask)
        return (found, column.values[found]) if found.size else None
    kept = np.flatnonzero(mask[column.rows])
    return (column.rows[kept], column.values[kept]) if kept.size else None


def _samples(plan: SeriesPlan, block: LiveBlock, row: Rows, v: Values, past: tuple[int, int, _Carried]) -> Samples:
    from_ms, no_boot, carried = past
    series, t = block.series[row], block.t[row]
    interval = np.maximum(whole(block, "interval_ms", row).astype(np.int64), 1)
    heads = np.flatnonzero(np.diff(series, prepend=-1))
    tails = np.append(heads[1:], series.size) - 1
    first, last = series[heads], series[tails]
    before_ms = _shifted(t, heads, carried.t[first])
    after = np.empty_like(t)
    after[:-1], after[tails] = t[1:], FAR_MS
    end_ms = t // plan.base_ms * plan.base_ms + plan.base_ms
    before, new_epoch = v, np.zeros(1, np.bool_)
    if plan.selected.aggregate in PAIRED:
        boot = whole(block, "boot_id", row).astype(np.int64)
        boot[boot == no_boot] = -1
        before, boot_before = _shifted(v, heads, carried.v[first]), _shifted(boot, heads, carried.boot[first])
        new_epoch = (boot != boot_before) & (boot >= 0) & (boot_before >= 0)
        carried.v[last], carried.boot[last] = v[tails], boot[tails]
    carried.t[last] = t[tails]
    return Samples(
        block=block,
        row=row,
        series=series,
        t=t,
        v=v,
        interval_ms=interval,
        before_ms=before_ms,
        before=before,
        new_epoch=new_epoch,
        known=before_ms > 0,
        inside=t >= from_ms,
        cover_ms=np.minimum(np.minimum(interval, after - t), end_ms - t),
        late=whole(block, "ingest_time", row) - t > LATE_MS,
        from_ms=from_ms,
    )


def _folded(plan: SeriesPlan, samples: Samples, owner: Owner) -> Windows:
    """Return the windows of some samples."""
    inside = slice(None) if samples.inside.all() else np.flatnonzero(samples.inside)
    series, t, interval = samples.series[inside], samples.t[inside], samples.interval_ms[inside]
    before_ms = samples.before_ms[inside]
    window = t // plan.base_ms * plan.base_ms
    rows = np.arange(samples.block.size)[samples.row][inside]
    owners = owner(samples.block, rows)
    changes = (np.diff(series, prepend=-1) != 0) | (np.diff(window, prepend=-1) != 0)
    if owners is not None:
        changes |= np.diff(owners, prepend=-1) != 0
    is_each = plan.selected.aggregate in QUANTILES
    starts = np.arange(t.size) if is_each else np.flatnonzero(changes)
    ends = np.append(starts[1:], t.size) - 1
    is_slot = (_divided(t, interval) != _divided(before_ms, interval)) & (t < plan.due_ms)
    long_ms = interval + np.maximum(GAP_SLOTS * interval, GAP_MS)
    is_gap = (before_ms >= samples.from_ms) & (t - before_ms > long_ms)
    return Windows(
        series=series[starts],
        window_ms=window[starts],
        owner=None if owners is None else owners[starts],
        rank=whole(samples.block, "source_rank", rows[starts]).astype(np.int64),
        members=_sampled(plan, samples, inside, starts),
        slots=_sums(is_slot, starts),
        first_ms=t[starts],
        last_ms=t[ends],
        gaps=_sums(is_gap, starts),
        late=_sums(samples.late[inside], starts),
        rows=ends - starts + 1,
    )


def _sampled(plan: SeriesPlan, samples: Samples, inside: Rows, starts: I64) -> dict[str, Column]:
    """Return the members of windows over their samples, as the left half of `members.py` says."""
    v, t, cover = samples.v[inside], samples.t[inside], samples.cover_ms[inside]
    if plan.selected.aggregate in QUANTILES:
        return {"v": Column(v), "cover_ms": Column(cover)}
    ends = np.append(starts[1:], t.size) - 1
    exact = v if plan.selected.metric.dtype == FLOAT else v.astype(np.int64)
    pairs = _pairs(plan, samples, inside)
    made: dict[str, Callable[[], Column]] = {
        "weighted": lambda: Column(_sums(exact * cover, starts)),
        "covered": lambda: Column(_sums(cover, starts)),
        "lowest": lambda: Column(np.minimum.reduceat(v, starts).astype(np.float64)),
        "highest": lambda: Column(np.maximum.reduceat(v, starts).astype(np.float64)),
        "latest": lambda: Column(v[ends].astype(np.float64)),
        "latest_at": lambda: Column(t[ends]),
        "gained": lambda: Column(_sums(pairs.increase, starts), _sums(pairs.counted, starts) > 0),
        "paired": lambda: Column(_sums(np.where(pairs.counted, t - samples.before_ms[inside], 0), starts)),
        "resets": lambda: Column(_sums(pairs.reset, starts)),
        "changes": lambda: Column(_sums(_changes(samples, inside), starts)),
    }
    return {member.name: made[member.name]() for member in members_of(plan.selected.aggregate)}


def _pairs(plan: SeriesPlan, samples: Samples, inside: Rows) -> Increase:
    """Return what each sample adds to the one before it; nothing where the aggregate does not ask."""
    v, known = samples.v[inside], samples.known[inside]
    if plan.selected.aggregate not in PAIRED or plan.selected.aggregate is Aggregate.CHANGES:
        nothing = np.zeros(v.size, np.bool_)
        return Increase(np.zeros(v.size), nothing, nothing, 0)
    gap_ms = samples.t[inside] - samples.before_ms[inside]
    new_epoch = samples.new_epoch[inside] & known
    return increase_of(plan.selected.metric, Pairs(v, samples.before[inside], gap_ms, new_epoch, known))


def _changes(samples: Samples, inside: Rows) -> Bools:
    near = samples.t[inside] - samples.before_ms[inside] <= PAIR_MAXIMUM_MS
    found: Bools = samples.known[inside] & near & (samples.v[inside] != samples.before[inside])
    return found


def whole(block: LiveBlock, name: str, row: Rows) -> Values:
    """Return values of a column that every row has."""
    return block.values(name)[row]


def _shifted(values: Values, heads: I64, first: Values) -> Values:
    """Return the value before each; before the heads of series stands `first`."""
    before = np.empty_like(values)
    before[1:] = values[:-1]
    before[heads] = first
    return before


def _divided(t: I64, interval: I64) -> I64:
    """Divide times by intervals, which are most often all the same."""
    first = interval[0] if interval.size else 1
    found: I64 = t // int(first) if bool((interval == first).all()) else t // interval
    return found


def _sums(values: Values, starts: I64) -> Values:
    wide = values.astype(np.int64) if values.dtype == np.bool_ else values
    sums: Values = np.add.reduceat(wide, starts) if starts.size else wide[:0]
    return sums


def _joined(columns: Sequence[Column]) -> Column:
    values = np.concatenate([column.values for column in columns])
    if all(column.present is None for column in columns):
        return Column(values)
    present = [
        np.ones(column.values.size, np.bool_) if column.present is None else column.present for column in columns
    ]
    return Column(values, np.concatenate(present))
