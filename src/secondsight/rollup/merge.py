"""Turn rollup rows of one resolution into those of a coarser window: a pure function, exact where integers are.

One row comes out per (entity, part, owner), of rows whose sources are settled (`sources.one_source`). How a member
merges stands in `catalog.members`. What a metric covers is merged metric by metric, and kept where it differs from what
its row covers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.members import Holds, Member, Merge, keeps_sketch, may_wrap, members
from secondsight.catalog.metric import Metric, RollupSet
from secondsight.rollup import wide
from secondsight.rollup.sketch import gather
from secondsight.store.bins import Bins
from secondsight.store.coarse import SOURCE_SAMPLES, is_wide_sum, sketch_columns

I64 = NDArray[np.int64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]
Values = NDArray[Any]
Key = tuple[str, ...]

KEY = ("host_id", "entity", "part", "collector_id", "owner_team", "job_id", "workload_id", "model_id")
"""What tells rows of one tenant, cluster and window apart; a region is what the last of them says."""
ROW = tuple(name for name in KEY if name != "collector_id")
"""The same without the collector, which is one for each entity and part."""
WINDOW_MS = 30_000
_MASK_64 = (1 << 64) - 1
_COLUMNS = frozenset({Holds.VALUE, Holds.WEIGHTED_SUM, Holds.INCREASE})
_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a map column: (row, key) -> number; each pair once."""

    rows: Rows
    keys: list[str]
    numbers: I64


@dataclass(frozen=True, slots=True)
class Sketches:
    """A sketch per row: row r has bins[offsets[r]:offsets[r + 1]], ascending, and their milliseconds."""

    offsets: I64
    bins: Bins
    weights: I64


@dataclass(frozen=True, slots=True)
class Rule:
    """What rows keep of a metric.

    Attributes:
        members: Metric -> its members.
        is_wide: Tells which of them are sums that may leave 64 bits.
    """

    members: Callable[[Metric], tuple[Member, ...]]
    is_wide: Callable[[Metric, Member], bool]


OVER_TIME = Rule(members, is_wide_sum)


@dataclass(slots=True)
class Merged:
    """Rollup rows of one window.

    Attributes:
        key: Columns that tell rows of one tenant and cluster apart.
        keys: Column of `key`, and region -> texts.
        plain: Columns that every row has.
        members: Column -> (values, present).
        maps: Map column -> entries.
        sketches: Metric -> sketches.
    """

    key: tuple[str, ...]
    keys: dict[str, list[str]]
    plain: dict[str, Values]
    members: dict[str, tuple[Values | wide.Wide, Bools]] = field(default_factory=dict)
    maps: dict[str, Entries] = field(default_factory=dict)
    sketches: dict[str, Sketches] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self.plain["samples"].size

    def key_list(self, names: Sequence[str] = ()) -> list[Key]:
        """Return the key of each row, or some texts of it."""
        return list(zip(*(self.keys[name] for name in names or self.key), strict=True))


def merge_rows(table: Any, is_counted: Bools, metrics: Sequence[Metric]) -> Merged:
    """Merge rows of one coarser window.

    Args:
        table: Arrow table in one chunk, sorted by `KEY` and time, at least one row: `KEY`, region, plain columns, maps,
            and those members and sketches that the source's resolution has.
        is_counted: Which rows tell what is covered.
        metrics: Scalars of the kind.
    """
    starts = starts_of(table, KEY)
    tails = pa.array(np.append(starts[1:], table.num_rows) - 1)
    keys = texts_at(table, KEY, starts) | {"region": table["region"].take(tails).to_pylist()}
    merged = Merged(KEY, keys, _plain(table, starts, is_counted))
    merge_metrics(merged, table, metrics, starts, OVER_TIME)
    return merged


def merge_metrics(merged: Merged, table: Any, metrics: Sequence[Metric], starts: Rows, rule: Rule) -> dict[str, Bools]:
    """Fill in what merged rows have of each metric, and return which source rows have it.

    Args:
        merged: Rows whose keys and plain columns are there.
        table: Their source in one chunk, sorted by their key.
        metrics: Scalars of the kind.
        starts: Where the source rows of each merged row begin.
        rule: What is kept.
    """
    group = np.repeat(np.arange(starts.size), np.diff(np.append(starts, table.num_rows)))
    presence = presence_of(table, metrics)
    known = [metric for metric in metrics if metric.name in presence]
    for metric in known:
        _members(merged, table, metric, starts, rule)
    _coverage(merged, table, known, presence, group)
    for name in ("resets", "changes", "state_ms"):
        merged.maps[name] = _summed(entries_of(table[name]), group)
    for metric in known:
        if keeps_sketch(metric) and sketch_columns(metric)[0] in table.column_names:
            merged.sketches[metric.name] = _sketch(table, metric, group, starts.size)
    return presence


def presence_of(table: Any, metrics: Sequence[Metric]) -> dict[str, Bools]:
    """Return which rows have each metric that some row has; each has a last value there."""
    names = [metric.name for metric in metrics if f"{metric.name}_last" in table.column_names]
    found = {name: _present(table[f"{name}_last"]) for name in names}
    return {name: there for name, there in found.items() if there.any()}


def entries_of(column: Any) -> Entries:
    """Return the entries of a map column."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    offsets = np.asarray(array.offsets.to_numpy())
    span = slice(int(offsets[0]), int(offsets[-1]))
    rows = np.repeat(np.arange(len(array)), np.diff(offsets))
    numbers = np.asarray(array.items.to_numpy())[span].astype(np.int64)
    return Entries(rows, array.keys.to_pylist()[span], numbers)


def starts_of(table: Any, key: Sequence[str]) -> Rows:
    """Return where the rows of each key begin in a table that is sorted by it."""
    differs = np.zeros(table.num_rows, np.bool_)
    differs[0] = True
    for name in key:
        column = table[name].combine_chunks()
        differs[1:] |= np.asarray(
            _COMPUTE.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False),
            np.bool_,
        )
    return np.flatnonzero(differs)


def texts_at(table: Any, names: Sequence[str], rows: Rows) -> dict[str, list[str]]:
    """Return some text columns of some rows."""
    places = pa.array(rows)
    return {name: table[name].take(places).to_pylist() for name in names}


def numbers_of(table: Any, name: str) -> I64:
    """Return a column of integers, none of which is absent."""
    return np.asarray(table[name].to_numpy()).astype(np.int64)


def _plain(table: Any, starts: Rows, is_counted: Bools) -> dict[str, Values]:
    counted = {name: np.where(is_counted, numbers_of(table, name), 0) for name in ("samples", "covered_ms")}
    sums = counted | {SOURCE_SAMPLES: numbers_of(table, "told")}
    return {
        "source_rank": np.minimum.reduceat(numbers_of(table, "source_rank"), starts).astype(np.uint8),
        "first_event_time": np.minimum.reduceat(numbers_of(table, "first_ms"), starts),
        "last_event_time": np.maximum.reduceat(numbers_of(table, "last_ms"), starts),
        "interval_ms": np.maximum.reduceat(numbers_of(table, "interval_ms"), starts).astype(np.uint32),
        **{name: np.add.reduceat(numbers, starts).astype(np.uint32) for name, numbers in sums.items()},
    }


def _members(merged: Merged, table: Any, metric: Metric, starts: Rows, rule: Rule) -> None:
    for member in rule.members(metric):
        name = member.column(metric)
        if member.holds in _COLUMNS and member.merge is not Merge.NONE and name in table.column_names:
            column = _sums_of(table, metric) if member.holds is Holds.WEIGHTED_SUM else table[name]
            merged.members[name] = _member(column, member, starts, may_leave=rule.is_wide(metric, member))


def _sums_of(table: Any, metric: Metric) -> Any:
    """Return the sums of a gauge; those of 30 s that may have left 64 bits are brought back.

    What is stored of them is right but for a multiple of 2^64, and at least the least value for all that it covers.
    """
    total, low, high = (table[f"{metric.name}_{suffix}"] for suffix in ("sum", "min", "max"))
    if total.type == wide.TYPE or not may_wrap(metric, WINDOW_MS):
        return total
    covered = numbers_of(table, "covered_ms")
    other = _by_key(table, "covered_other").get(metric.name)
    if other is not None:
        covered[other[0]] = other[1]
    greatest = max(abs(_COMPUTE.min(low).as_py() or 0), abs(_COMPUTE.max(high).as_py() or 0))
    if greatest * int(covered.max(initial=0)) < 1 << 63:
        return total
    least = [
        None if each is None else each * time for each, time in zip(low.to_pylist(), covered.tolist(), strict=True)
    ]
    exact = [
        None if each is None else each + (stored - each & _MASK_64)
        for stored, each in zip(total.to_pylist(), least, strict=True)
    ]
    return pa.chunked_array([pa.array([None if each is None else Decimal(each) for each in exact], wide.TYPE)])


def _member(column: Any, member: Member, starts: Rows, *, may_leave: bool) -> tuple[Values | wide.Wide, Bools]:
    """Return one member of merged rows; `may_leave` tells of a sum that may leave 64 bits."""
    if may_leave:
        is_wide = column.type == wide.TYPE
        total, present = wide.of_arrow(column) if is_wide else _widened(column)
        return wide.add_by(total, starts), np.logical_or.reduceat(present, starts)
    values, present = _nullable(column)
    known = np.logical_or.reduceat(present, starts)
    if member.merge in (Merge.FIRST, Merge.LAST):
        return values[_place(present, starts, last=member.merge is Merge.LAST)], known
    if member.merge in (Merge.MIN, Merge.MAX):
        better, worst = (
            (np.minimum, _greatest(values.dtype)) if member.merge is Merge.MIN else (np.maximum, _least(values.dtype))
        )
        return better.reduceat(np.where(present, values, worst), starts), known
    add = np.bitwise_or if member.merge is Merge.OR else np.add
    return add.reduceat(values, starts), known


def _place(present: Bools, starts: Rows, *, last: bool) -> Rows:
    """Return where the first or the last value of each run is."""
    place = np.arange(present.size)
    if last:
        found: Rows = np.maximum.reduceat(np.where(present, place, 0), starts)
        return found
    return np.minimum.reduceat(np.where(present, place, present.size - 1), starts)


def _coverage(
    merged: Merged, table: Any, metrics: Sequence[Metric], presence: Mapping[str, Bools], group: Rows
) -> None:
    """Merge what each metric covers, counts and spans; keep what differs from its row."""
    covered, samples = numbers_of(table, "covered_ms"), numbers_of(table, "samples")
    paired = {
        metric.name: _present(table[f"{metric.name}_increase"])
        for metric in metrics
        if metric.rollup is RollupSet.INCREASE
    }
    for name, there, base, others in (
        ("covered_other", presence, covered, _by_key(table, "covered_other")),
        ("samples_other", presence, samples, _slots(table)),
        ("increase_other", paired, covered, _by_key(table, "increase_other")),
    ):
        row_total = merged.plain["samples" if name == "samples_other" else "covered_ms"].astype(np.int64)
        merged.maps[name] = _joined(_differing(there, base, others, group, row_total))


def _differing(
    presence: Mapping[str, Bools],
    base: I64,
    others: Mapping[str, tuple[Rows, I64]],
    group: Rows,
    row_total: I64,
) -> Iterator[tuple[str, Rows, I64]]:
    """Give (metric, merged rows, sums) where a metric's sum is not that of its row."""
    for name, there in presence.items():
        own = np.where(there, base, 0)
        if name in others:
            rows, numbers = others[name]
            own[rows] = numbers
        total = np.bincount(group, own, row_total.size).astype(np.int64)
        some = np.bincount(group, there, row_total.size) > 0
        differs = np.flatnonzero(some & (total != row_total))
        if differs.size:
            yield name, differs, total[differs]


def _slots(table: Any) -> dict[str, tuple[Rows, I64]]:
    """Return the samples of metrics that are not those of their row; rows of 30 s say it by what they cover."""
    if "samples_other" in table.column_names:
        return _by_key(table, "samples_other")
    interval = np.maximum(numbers_of(table, "interval_ms"), 1)
    return {
        name: (rows, np.floor(covered / interval[rows] + 0.5).astype(np.int64))
        for name, (rows, covered) in _by_key(table, "covered_other").items()
    }


def _by_key(table: Any, name: str) -> dict[str, tuple[Rows, I64]]:
    entries = entries_of(table[name])
    if not entries.keys:
        return {}
    codes = pa.array(entries.keys).dictionary_encode()
    numbers = np.asarray(codes.indices.to_numpy())
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    parts = np.split(order, cuts)
    words = codes.dictionary.to_pylist()
    return {words[numbers[part[0]]]: (entries.rows[part], entries.numbers[part]) for part in parts}


def _summed(entries: Entries, group: Rows) -> Entries:
    """Add up the entries of each merged row by key; entries of a row are sorted by key."""
    if not entries.keys:
        return entries
    words = sorted(set(entries.keys))
    places = {word: place for place, word in enumerate(words)}
    codes = np.array([places[key] for key in entries.keys], np.int64)
    combined = group[entries.rows].astype(np.int64) * len(words) + codes
    distinct, which = np.unique(combined, return_inverse=True)
    totals = np.zeros(distinct.size, np.int64)
    np.add.at(totals, which, entries.numbers)
    row, code = np.divmod(distinct, len(words))
    return Entries(row.astype(np.intp), [words[each] for each in code.tolist()], totals)


def _joined(parts: Iterator[tuple[str, Rows, I64]]) -> Entries:
    """Return entries of several keys as one list, sorted by row and key."""
    found = sorted(parts, key=lambda part: part[0])
    if not found:
        return Entries(np.zeros(0, np.intp), [], np.zeros(0, np.int64))
    rows = np.concatenate([each for _, each, _ in found])
    keys = [name for name, each, _ in found for _ in range(each.size)]
    order = np.argsort(rows, kind="stable")
    numbers = np.concatenate([each for _, _, each in found])
    return Entries(rows[order], [keys[place] for place in order.tolist()], numbers[order])


def _sketch(table: Any, metric: Metric, group: Rows, count: int) -> Sketches:
    bins_name, weights_name = sketch_columns(metric)
    lists, weights = table[bins_name].combine_chunks(), table[weights_name].combine_chunks()
    lengths = np.diff(np.asarray(lists.offsets.to_numpy()))
    found = gather(
        np.repeat(group, lengths),
        np.asarray(lists.flatten().to_numpy()),
        np.asarray(weights.flatten().to_numpy()).astype(np.int64),
        count,
    )
    return Sketches(*found)


def _widened(column: Any) -> tuple[wide.Wide, Bools]:
    values, present = _nullable(column)
    return wide.widened(values), present


def _nullable(column: Any) -> tuple[Values, Bools]:
    return np.asarray(_COMPUTE.fill_null(column, 0).to_numpy()), _present(column)


def _present(column: Any) -> Bools:
    return np.asarray(column.is_valid().to_numpy(), np.bool_)


def _greatest(dtype: "np.dtype[Any]") -> Any:
    return dtype.type(np.inf) if dtype.kind == "f" else np.iinfo(dtype).max


def _least(dtype: "np.dtype[Any]") -> Any:
    return dtype.type(-np.inf) if dtype.kind == "f" else np.iinfo(dtype).min
