"""Keep the rows of one aligned range of a table, sorted by series and time, each key once.

What arrives is kept as it came until somebody reads; then one order of all rows is found, by which each column is put
in order when it is first asked for. A block never changes: more rows make another one, with another id.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Rows = NDArray[np.intp]

_IDS = count(1)


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one column of a block, of its stored type.

    Attributes:
        rows: int32 positions of the rows that have a value, ascending; None where all have one.
        values: One value for each of them: numpy, or an Arrow array where a value is a map.
    """

    rows: I32 | None
    values: Any

    @property
    def nbytes(self) -> int:
        """Return how much memory it takes."""
        return memory_of(self.values) + (0 if self.rows is None else self.rows.nbytes)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as they arrived, or as a block has them; shape (rows,) each.

    Attributes:
        series, owner: Numbers in the directories of the table.
        t: Epoch ms.
        high, low: Halves of the version.
        columns: All else, by name; a column that is not there has no value.
        nbytes: How much memory it takes.
    """

    series: I32
    owner: I32
    t: I64
    high: U64
    low: U64
    columns: Mapping[str, Column]
    nbytes: int


def batch_of(series: I32, owner: I32, t: I64, version: tuple[U64, U64], columns: Mapping[str, Column]) -> Batch:
    """Return rows as a batch."""
    nbytes = sum(memory_of(each) for each in (series, owner, t, *version))
    nbytes += sum(column.nbytes for column in columns.values())
    return Batch(series, owner, t, *version, columns, nbytes)


def memory_of(values: Any) -> int:
    """Return how much memory an array takes; one value that stands for all takes that of one."""
    return int(values.itemsize if isinstance(values, np.ndarray) and _is_one(values) else values.nbytes)


def packed(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of values that holds nothing else in memory; one value where all are the same."""
    few = values[:: max(values.size // 64, 1)]
    if values.size and bool((few == values[0]).all()) and bool((values == values[0]).all()):
        return np.broadcast_to(values[:1].copy()[0], values.shape)
    return values.copy()


def taken(values: Any, rows: Rows) -> Any:
    """Return the values of some rows."""
    if not isinstance(values, np.ndarray):
        return values.take(rows)
    return np.broadcast_to(values[0], rows.size) if _is_one(values) and rows.size else values[rows]


class LiveBlock:
    """The rows of [start_ms, end_ms), sorted by series, then time (and owner), of each key the newest version.

    Safe to read from several threads.

    Attributes:
        id: Another block never has it: figures made of a block may be kept by it.
        series, owner, t: Shape (rows,); see `Batch`.
        codes, starts: Which series have rows, ascending, and where those of each begin; `starts` has one more, the end.
    """

    def __init__(self, start_ms: int, end_ms: int, batches: Sequence[Batch], *, is_owned: bool) -> None:
        self.id = next(_IDS)
        self.start_ms, self.end_ms = start_ms, end_ms
        self.is_owned = is_owned
        self._batches = tuple(batches)
        series, owner, t, high, low = (
            _joined([getattr(batch, name) for batch in batches]) for name in ("series", "owner", "t", "high", "low")
        )
        self._size_before = series.size
        keys = [series.astype(np.int64) << 32 | (t - start_ms)]
        self._order = _order([owner, *keys] if is_owned else keys, (high, low))
        self.series, self.t = series[self._order], t[self._order]
        self.owner, *version = (taken(each, self._order) for each in (owner, high, low))
        self._version: tuple[U64, U64] = version[0], version[1]
        firsts = np.flatnonzero(np.diff(self.series, prepend=-1))
        self.codes: I32 = self.series[firsts]
        self.starts: I64 = np.append(firsts, self.series.size)
        self._inverse: I32 | None = None
        self._columns: dict[str, Column] = {}
        self._lock, self._sealing = Lock(), Lock()
        self._is_sealed = False

    @property
    def size(self) -> int:
        """Return how many rows there are."""
        return int(self.series.size)

    @property
    def version(self) -> tuple[U64, U64]:
        """Return the halves of the version of each row."""
        return self._version

    def column(self, name: str) -> Column:
        """Return the values of a column; none where no row has any."""
        found = self._columns.get(name)
        if found is None:
            with self._lock:
                found = self._columns[name] = self._columns.get(name) or self._made(name)
        return found

    def values(self, name: str) -> NDArray[Any]:
        """Return a column that every row has."""
        column = self.column(name)
        values: NDArray[Any] = column.values
        return values

    def range_of(self, series: int) -> tuple[int, int]:
        """Return where the rows of a series begin and end."""
        place = int(self.codes.searchsorted(series))
        if place == self.codes.size or self.codes[place] != series:
            return 0, 0
        return int(self.starts[place]), int(self.starts[place + 1])

    @property
    def batches(self) -> tuple[Batch, ...]:
        """Return what it was made of, which more rows can be added to."""
        with self._sealing:
            return self._batches

    @property
    def nbytes(self) -> int:
        """Return about how much memory it takes."""
        own: list[Any] = [self.codes, self.starts, self._order, self._inverse]
        if not self._is_sealed:
            own += [self.series, self.owner, self.t, *self._version]
        held: list[Batch | Column] = [*self._batches, *([] if self._is_sealed else list(self._columns.values()))]
        return sum(each.nbytes for each in held) + sum(memory_of(each) for each in own if each is not None)

    def seal(self) -> None:
        """Put every column in order, and keep nothing of how the rows arrived; for a block that hardly changes.

        One column after the other, so that few of them are there twice meanwhile.
        """
        with self._sealing:
            if self._is_sealed:
                return
            names = list(dict.fromkeys(name for batch in self._batches for name in batch.columns))
            columns: dict[str, Column] = {}
            for name in names:
                columns[name] = self.column(name)
                self._batches = tuple(without(batch, (name,)) for batch in self._batches)
            with self._lock:
                self._batches = (batch_of(self.series, self.owner, self.t, self._version, columns),)
                self._size_before, self._order = self.series.size, np.arange(self.series.size)
                self._inverse = None
                self._is_sealed = True

    def _made(self, name: str) -> Column:
        held = [batch.columns.get(name) for batch in self._batches]
        sizes = [batch.series.size for batch in self._batches]
        if all(column is not None and column.rows is None for column in held):
            return Column(None, taken(_joined([column.values for column in held if column is not None]), self._order))
        return self._sparse(held, sizes)

    def _sparse(self, held: Sequence[Column | None], sizes: Sequence[int]) -> Column:
        """Put a column in order that not all rows have."""
        rows, values, start = [], [], 0
        for column, size in zip(held, sizes, strict=True):
            if column is not None:
                rows.append((np.arange(size, dtype=np.int32) if column.rows is None else column.rows) + np.int32(start))
                values.append(column.values)
            start += size
        if not rows:
            return Column(np.empty(0, np.int32), np.empty(0))
        place = self._places()[_joined(rows)]
        there = np.flatnonzero(place >= 0)
        order = there[np.argsort(place[there], kind="stable")]
        found = place[order]
        return Column(None if found.size == self.series.size else found, taken(_joined(values), order))

    def _places(self) -> I32:
        """Return the place of each row that arrived, -1 for those that a newer version stands for."""
        if self._inverse is None:
            inverse = np.full(self._size_before, -1, np.int32)
            inverse[self._order] = np.arange(self._order.size, dtype=np.int32)
            self._inverse = inverse
        return self._inverse


def _order(keys: Sequence[NDArray[Any]], version: tuple[U64, U64]) -> Rows:
    """Return the rows to keep, in order of the last key first; of those of one key the newest version.

    Of rows of one version it is the last to arrive.
    """
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(keys)
    if not _repeats(keys, order).any():
        return order
    order = np.lexsort((*reversed(version), *keys))
    kept: Rows = order[np.append(~_repeats(keys, order), True)]
    return kept


def _repeats(keys: Sequence[NDArray[Any]], order: Rows) -> NDArray[np.bool_]:
    """Tell of each row but the last whether the next one has the same key."""
    same = np.ones(max(order.size - 1, 0), np.bool_)
    for key in keys:
        arranged = key[order]
        same &= arranged[1:] == arranged[:-1]
    return same


def without(batch: Batch, names: Collection[str]) -> Batch:
    """Return a batch without some of its columns."""
    columns = {each: column for each, column in batch.columns.items() if each not in names}
    return batch_of(batch.series, batch.owner, batch.t, (batch.high, batch.low), columns)


def _joined(arrays: Sequence[Any]) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return pa.concat_arrays(arrays)
    first = arrays[0]
    if all(_is_one(array) and array.dtype == first.dtype and array[0] == first[0] for array in arrays):
        return np.broadcast_to(first[0], sum(array.size for array in arrays))
    return np.concatenate(arrays)


def _is_one(values: NDArray[Any]) -> bool:
    """Tell whether one value stands for all."""
    return values.size > 0 and values.strides == (0,)
