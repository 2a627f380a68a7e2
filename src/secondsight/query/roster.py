"""Turn what was expected and what is held into coverage, for very many entities at once.

The definitions are those of `coverage.py`, one entity a row of arrays in place of one entity an object. What follows
from the expected rows alone is worked out once for each reading of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.query.coverage import GAP_MS, GAP_SLOTS, Coverage, Lack, slots_between
from secondsight.query.fold import HeldArrays
from secondsight.query.made import places_of
from secondsight.query.plan import Span
from secondsight.query.windows import IDENTITY

I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
_COMPUTE: Any = pc


@dataclass(frozen=True, slots=True)
class Stretches:
    """What entities and parts were to deliver inside a range; shape (keys,) each, see `coverage.Stretch`."""

    there: Bools
    slots: I64
    interval_ms: I64
    from_ms: I64
    to_ms: I64


class Roster:
    """Entities and parts that were expected, numbered.

    Args:
        expected: Rows of `inventory.compile_expected`.

    Attributes:
        keys: Name of each entity and part, as `coverage.keys_of` writes it.
        sources: How many pairs of a key and a collector there are.
        interval_ms: Finest cadence of any, 1000 where there is none.
        places: Their tenants and clusters, one row each, and since when (`start_ms`); an Arrow table.
    """

    def __init__(self, expected: Any) -> None:
        encoded = joined_keys(expected).dictionary_encode()
        self.keys = encoded.dictionary
        self.size = len(self.keys)
        self._key = encoded.indices.to_numpy().astype(np.int64)
        collectors = expected["collector_id"].cast(pa.string()).combine_chunks().dictionary_encode()
        pairs = self._key * (len(collectors.dictionary) + 1) + collectors.indices.to_numpy()
        _, firsts, self._pair = np.unique(pairs, return_index=True, return_inverse=True)
        self._pair_key = self._key[firsts]
        self._pair_first = firsts
        self.sources = firsts.size
        self._start_ms, self._end_ms, self._cadence_ms = (
            expected[name].to_numpy().astype(np.int64) for name in ("start_ms", "end_ms", "cadence_ms")
        )
        self.interval_ms = int(self._cadence_ms.min()) if self._cadence_ms.size else 1000
        names = {name: expected[name].cast(pa.string()) for name in ("tenant_id", "cluster_id", "collector_id")}
        self.places = places_of(expected)
        self._collectors = collector_keys(pa.table(names).group_by(list(names)).aggregate([]))
        without = expected["without"].cast(pa.string())
        self._without = without if expected.num_rows and _COMPUTE.max(_COMPUTE.utf8_length(without)).as_py() else None

    def progress(self, rows: Any) -> Any:
        """Return those rows of `inventory.compile_progress` whose collectors are expected; all where none is."""
        if not self.size:
            return rows
        return rows.filter(_COMPUTE.is_in(collector_keys(rows), value_set=self._collectors))

    def stretches(self, span: Span, due_ms: int, metric: str = "") -> Stretches:
        """Return what each was to deliver in a range, up to what is due; as `coverage.stretches_of`.

        With a metric, only the time counts in which it was to be collected.
        """
        start = np.maximum(self._start_ms, span.from_ms)
        end = np.minimum(self._end_ms, min(span.to_ms, due_ms))
        slots = slots_between(start, end, self._cadence_ms)
        row = np.flatnonzero((slots > 0) & self._collecting(metric))
        pair, count = self._pair[row], self.sources
        total = np.bincount(pair, slots[row], count).astype(np.int64)
        interval, first, last = (
            np.zeros(count, np.int64),
            np.full(count, np.iinfo(np.int64).max),
            np.zeros(count, np.int64),
        )
        np.maximum.at(interval, pair, self._cadence_ms[row])
        np.minimum.at(first, pair, start[row])
        np.maximum.at(last, pair, end[row])
        begun = np.full(count, self._start_ms.size)
        np.minimum.at(begun, pair, row)
        order = np.lexsort((begun, -total, self._pair_key))
        heads = order[np.flatnonzero(np.diff(self._pair_key[order], prepend=-1))]
        there = total[heads] > 0
        first = np.where(there, first[heads], 0)
        return Stretches(there, total[heads], interval[heads], first, last[heads])

    @property
    def tells_metrics_apart(self) -> bool:
        """Tell whether some were not to collect some metrics at times."""
        return self._without is not None

    def _collecting(self, metric: str) -> Bools:
        if self._without is None or not metric:
            return np.ones(self._start_ms.size, np.bool_)
        told = _COMPUTE.binary_join_element_wise("", self._without, "", ",")
        found: Bools = ~_COMPUTE.match_substring(told, f",{metric},").to_numpy()
        return found


class Universe:
    """Entities and parts that were expected or have rows in memory, numbered: first those of a roster, then others.

    Args:
        roster: What was expected.
        keys: Names of those that have numbers in memory.

    Attributes:
        place: Number here of each that has one in memory.
    """

    def __init__(self, roster: Roster, keys: Any) -> None:
        self.roster = roster
        found = _COMPUTE.index_in(keys, value_set=roster.keys)
        known = found.is_valid().to_numpy(zero_copy_only=False)
        self.place = found.fill_null(0).to_numpy().astype(np.int64)
        self.place[~known] = roster.size + np.arange(int((~known).sum()))
        self.keys = pa.concat_arrays([roster.keys, keys.filter(pa.array(~known))])
        self.size = len(self.keys)
        halves = _COMPUTE.split_pattern(self.keys, "\0", max_splits=1, reverse=True).flatten()
        entities, parts = halves[0::2].dictionary_encode(), halves[1::2].dictionary_encode()
        self.entity, self.entities = entities.indices.to_numpy().astype(np.int64), entities.dictionary
        self._part, names = parts.indices.to_numpy().astype(np.int64), parts.dictionary.to_pylist()
        self._labels = [frozenset(pair.partition("=")[0] for pair in name.split(",") if pair) for name in names]
        self.has_part: Bools = np.array([bool(name) for name in names], np.bool_)[self._part]

    def fits(self, labels: Collection[str]) -> Bools:
        """Tell whose part is named by some labels alone."""
        allowed = set(labels)
        fits: Bools = np.array([names <= allowed for names in self._labels], np.bool_)[self._part]
        return fits

    def spread(self, held: HeldArrays) -> HeldArrays:
        """Return what is held by the numbers of here."""

        def over(values: Any) -> Any:
            wide = np.zeros(self.size, values.dtype)
            wide[self.place] = values
            return wide

        return HeldArrays(
            *(over(values) for values in (held.there, held.slots, held.first_ms, held.last_ms, held.gaps))
        )

    def widened(self, stretches: Stretches) -> Stretches:
        """Return stretches with those of whom none was expected behind them."""
        more = self.size - stretches.there.size

        def over(values: Any) -> Any:
            return np.concatenate([values, np.zeros(more, values.dtype)]) if more else values

        return Stretches(
            *(
                over(values)
                for values in (
                    stretches.there,
                    stretches.slots,
                    stretches.interval_ms,
                    stretches.from_ms,
                    stretches.to_ms,
                )
            )
        )

    def among(self, names: Any) -> Bools:
        """Tell whose key is one of some."""
        if not names:
            return np.zeros(self.size, np.bool_)
        found: Bools = _COMPUTE.is_in(self.keys, value_set=pa.array(sorted(names), pa.string())).to_numpy(
            zero_copy_only=False
        )
        return found

    def names(self, some: Bools) -> list[str]:
        """Return the names of some."""
        found: list[str] = self.keys.filter(pa.array(some)).to_pylist()
        return found

    def by_entity(self, lacks: Mapping[str, Lack]) -> tuple[I64, I64, I64]:
        """Return what the gaps of each one's entity come to: gaps, shed slots, slots that were not due."""
        found = np.zeros((3, len(self.entities)), np.int64)
        place = _COMPUTE.index_in(pa.array(list(lacks), pa.string()), value_set=self.entities)
        known = place.is_valid().to_numpy(zero_copy_only=False)
        told = np.array([(one.gaps, one.shed, one.not_due) for one in lacks.values()], np.int64).reshape(-1, 3)
        found[:, place.drop_null().to_numpy()] = told[known].T
        return found[0][self.entity], found[1][self.entity], found[2][self.entity]


def collector_keys(rows: Any) -> Any:
    """Return one text per row that names the collector within its cluster."""
    columns = [rows[name].cast(pa.string()) for name in ("tenant_id", "cluster_id", "collector_id")]
    return _COMPUTE.binary_join_element_wise(*columns, "\0").combine_chunks()


def joined_keys(rows: Any) -> Any:
    """Return one text per row that names entity and part, as `coverage.keys_of`."""
    columns = [rows[name].cast(pa.string()) for name in IDENTITY]
    joined = _COMPUTE.binary_join_element_wise(*columns, "\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def unlisted(stretches: Stretches, held: HeldArrays) -> Bools:
    """Tell what no list expects and the tables hold all the same."""
    found: Bools = ~stretches.there & held.there & (held.slots > 0)
    return found


def with_unlisted(stretches: Stretches, held: HeldArrays) -> Stretches:
    """Return stretches with what no list expects: of each of those just the slots it has."""
    new = unlisted(stretches, held)
    if not new.any():
        return stretches
    return Stretches(
        there=stretches.there | new,
        slots=np.where(new, held.slots, stretches.slots),
        interval_ms=np.where(new, GAP_MS // GAP_SLOTS, stretches.interval_ms),
        from_ms=np.where(new, held.first_ms, stretches.from_ms),
        to_ms=np.where(new, held.last_ms + 1, stretches.to_ms),
    )


def carriers(metric: Metric, universe: Universe, stretches: Stretches, held: HeldArrays) -> Bools:
    """Tell which entities and parts were to deliver a metric; as `coverage.carriers`."""
    if not metric.labels:
        plain: Bools = stretches.there & (held.there | ~universe.has_part)
        return plain
    fitting = stretches.there & universe.fits(metric.labels)
    count = len(universe.entities)

    def has(some: Bools) -> Bools:
        found: Bools = (np.bincount(universe.entity[some], minlength=count) > 0)[universe.entity]
        return found

    delivered, parts = fitting & held.there, fitting & universe.has_part
    others = np.where(has(parts), parts, fitting)
    return np.where(has(delivered), delivered, others)


def lacking(carrying: Bools, stretches: Stretches, held: HeldArrays) -> int:
    """Return how many of those that carry a metric hold less of it than was due."""
    there = np.where(held.there, held.slots, 0)
    return int((carrying & (there < _due_slots(stretches, held))).sum())


def coverage_of(
    universe: Universe,
    carrying: Bools,
    stretches: Stretches,
    held: HeldArrays,
    lacks: Mapping[str, Lack] | None,
    *,
    counts_gaps: bool,
) -> Coverage:
    """Sum up coverage and gaps; as `coverage.coverage_of`, of those alone that carry the metric."""
    there = np.where(held.there, held.slots, 0)
    due = _due_slots(stretches, held)
    gaps, shed, not_due = universe.by_entity(lacks) if lacks else (there * 0, there * 0, there * 0)
    due = due - np.minimum(not_due, np.maximum(due - there, 0))
    stored = np.minimum(there, due)
    lost = np.minimum(shed, np.maximum(due - there, 0))
    counted = _gaps(stretches, held) if counts_gaps else gaps
    sums = [int(values[carrying].sum()) for values in (due, stored, counted, lost)]
    return Coverage(sums[0], sums[1], sums[2] if counts_gaps or lacks is not None else None, sums[3])


def _due_slots(stretches: Stretches, held: HeldArrays) -> I64:
    start, end, step = stretches.from_ms, stretches.to_ms, np.maximum(stretches.interval_ms, 1)
    steady = held.there & (held.slots > 0) & (stretches.slots == slots_between(start, end, step))
    phase = held.first_ms % step
    return np.where(steady, slots_between(start - phase, end - phase, step), stretches.slots)


def _gaps(stretches: Stretches, held: HeldArrays) -> I64:
    long_ms = np.maximum(GAP_SLOTS * stretches.interval_ms, GAP_MS)
    head = held.first_ms - stretches.from_ms > long_ms
    tail = stretches.to_ms - held.last_ms - stretches.interval_ms > long_ms
    missing = stretches.to_ms - stretches.from_ms > long_ms
    return np.where(held.there, held.gaps + head + tail, missing.astype(np.int64))
