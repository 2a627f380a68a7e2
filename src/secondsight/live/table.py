"""Keep the newest rows of one table of samples, and give them to who reads under a scope.

One thread adds; any number of threads read. Rows lie in blocks of one aligned range each (`block.py`). What a row is
of (its series) and whose it is (its owner) are numbers in directories of the table.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.catalog.secondary import MARK
from secondsight.live.block import Batch, Column, LiveBlock, batch_of, packed, taken, without
from secondsight.live.names import Directory, Names
from secondsight.live.reading import LiveReading, Visible, visible
from secondsight.live.shape import OWNER, SERIES, Shape

NEVER_MS = 1 << 62
VISIBLE_KEPT = 256
QUIET_ROUNDS = 15
"""Blocks that were added nothing to for so many rounds hardly change, and are put in order for good."""

I64 = NDArray[np.int64]


class LiveTable:
    """The newest rows of one table.

    Args:
        shape: What is kept of a row.

    Attributes:
        series, owners: Directories of what rows are of, and of whose they are.
        texts: Column -> the texts that its numbers in blocks stand for: `boot_id`.
        kept_from_ms: Rows of blocks from here on are taken in.
        complete_from_ms: Every stored row of a time from here on is held.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self.series = Directory(SERIES)
        self.owners = Directory(OWNER)
        self._blocks: dict[int, LiveBlock] = {}
        self._waiting: defaultdict[int, list[Batch]] = defaultdict(list)
        self._rounds: dict[int, int] = {}
        self._visible: dict[Any, Visible] = {}
        self._metrics: frozenset[str] = frozenset()
        self._left_out: frozenset[str] = frozenset()
        self.kept_from_ms = NEVER_MS
        self.complete_from_ms = NEVER_MS
        self._told_ms: I64 = np.empty(0, np.int64)
        self.texts: dict[str, Names] = {}

    def reading(
        self,
        scope: Scope,
        metrics: Sequence[str],
        where: Mapping[str, Collection[str]],
        from_ms: int,
        to_ms: int,
    ) -> LiveReading | None:
        """Return what a scope may see of the rows of [from_ms, to_ms); None where not all of them are held.

        Args:
            scope: Who reads.
            metrics: Catalogue names whose columns are to be read, and no others.
            where: Column of `SERIES` or `OWNER` -> values that are admitted; an empty collection admits all.
            from_ms: Event time, epoch ms.
            to_ms: Likewise.

        Raises:
            TypeError: There is no scope.
            Rejected(forbidden_metric): The scope denies one of the metrics.
        """
        if not isinstance(scope, Scope):
            raise TypeError("nothing is read without a Scope")
        for name in metrics:
            scope = scope.showing(name)
        with self._lock:
            if from_ms < self.complete_from_ms or not self._metrics.issuperset(metrics):
                return None
            blocks = self._joined(from_ms, to_ms)
            return LiveReading(self.series, self.owners, blocks, self._seen(scope, where), from_ms, to_ms)

    @property
    def bytes(self) -> int:
        """Return about how much memory the rows take."""
        with self._lock:
            waiting = sum(batch.nbytes for batches in self._waiting.values() for batch in batches)
            return waiting + sum(block.nbytes for block in self._blocks.values())

    @property
    def rows(self) -> int:
        """Return about how many rows are held."""
        return self.rows_since(-NEVER_MS)

    @property
    def starts_ms(self) -> list[int]:
        """Return where the ranges begin that rows are held of, ascending."""
        with self._lock:
            return sorted({*self._blocks, *self._waiting})

    def begin(self, kept_from_ms: int, metrics: Collection[str]) -> None:
        """Forget everything; rows of blocks from `kept_from_ms` on are kept, and none are shown before `trust`.

        Args:
            kept_from_ms: Event time, epoch ms.
            metrics: Catalogue names whose columns come with the rows.
        """
        with self._lock:
            self._clear()
            self.kept_from_ms = kept_from_ms
            self._metrics = frozenset(metrics)

    def narrow(self, metrics: Collection[str], left_out: Collection[str]) -> None:
        """Keep the columns of some metrics alone, of the rows that are held and of all further ones.

        Args:
            metrics: Catalogue names of those that are kept.
            left_out: Columns of all others.
        """
        with self._lock:
            self._metrics, self._left_out = frozenset(metrics), frozenset(left_out)
            for start in [*self._blocks]:
                self._waiting[start] = [*self._blocks.pop(start).batches, *self._waiting[start]]
                self._rounds[start] = 0
            for start, batches in self._waiting.items():
                self._waiting[start] = [without(batch, self._left_out) for batch in batches]

    def trust(self) -> None:
        """Show what is held: every stored row of a time since the beginning was added, and all further ones will be."""
        with self._lock:
            self.complete_from_ms = self.kept_from_ms

    def add(self, rows: Any) -> int:
        """Take in rows that were stored, as an Arrow table; return how many are kept.

        Rows of times that are never read are left out, and those that are no samples.
        """
        with self._lock:
            made = self._batch(rows)
            self._note(made)
            starts = made.t // self.shape.block_ms * self.shape.block_ms
            found = np.unique(starts).tolist()
            for start in found:
                if start + self.shape.block_ms > self.kept_from_ms:
                    some = made if len(found) == 1 else _some(made, np.flatnonzero(starts == start))
                    self._waiting[start].append(some)
                    self._rounds[start] = 0
            return made.series.size

    def told(self) -> tuple[Directory, I64]:
        """Return the directory of what rows are of, and the time of the newest row of each, of any owner."""
        with self._lock:
            return self.series, self._told_ms.copy()

    def drop_before(self, time_ms: int) -> None:
        """Forget the blocks that end at or before a time, and take no more rows of them."""
        with self._lock:
            end_ms = time_ms // self.shape.block_ms * self.shape.block_ms
            for start in [start for start in {*self._blocks, *self._waiting} if start < end_ms]:
                self._blocks.pop(start, None)
                self._waiting.pop(start, None)
                self._rounds.pop(start, None)
            self.kept_from_ms = max(self.kept_from_ms, end_ms)
            self.complete_from_ms = max(self.complete_from_ms, end_ms)

    def seal_quiet(self) -> None:
        """Put the blocks in order for good that no row came to in the last rounds; each call is a round.

        It goes by when rows came and not by their times, as those of a store that lags are all old.
        """
        with self._lock:
            self._rounds = {start: rounds + 1 for start, rounds in self._rounds.items()}
            quiet = [start for start, rounds in self._rounds.items() if rounds >= QUIET_ROUNDS]
            for start in quiet:
                del self._rounds[start]
            ready = [block for start in quiet for block in self._joined(start, start + 1)]
        for block in ready:
            block.seal()

    def rows_since(self, time_ms: int) -> int:
        """Return about how many rows are held of the blocks that end after a time."""
        with self._lock:
            sizes = [(start, block.size) for start, block in self._blocks.items()]
            sizes += [(start, batch.series.size) for start, batches in self._waiting.items() for batch in batches]
        return sum(size for start, size in sizes if start + self.shape.block_ms > time_ms)

    def _note(self, made: Batch) -> None:
        """Note up to when each series has told."""
        new = self.series.size - self._told_ms.size
        self._told_ms = np.concatenate([self._told_ms, np.zeros(new, np.int64)]) if new else self._told_ms
        np.maximum.at(self._told_ms, made.series, made.t)

    def _joined(self, from_ms: int, to_ms: int) -> tuple[LiveBlock, ...]:
        """Return the blocks of a range, in order, with all that was added."""
        width = self.shape.block_ms
        first = from_ms // width * width
        for start in [start for start in self._waiting if first <= start < to_ms]:
            before = self._blocks.get(start)
            batches = (*(before.batches if before is not None else ()), *self._waiting.pop(start))
            self._blocks[start] = LiveBlock(start, start + width, batches, is_owned=self.shape.is_owned)
        return tuple(self._blocks[start] for start in sorted(self._blocks) if first <= start < to_ms)

    def _seen(self, scope: Scope, where: Mapping[str, Collection[str]]) -> Visible:
        """Return what a scope and filters admit, made again when there are new series or owners."""
        key = (scope, tuple((name, tuple(values)) for name, values in where.items()))
        found = self._visible.get(key)
        if found is None or (found.series.size, found.owner_count) != (self.series.size, self.owners.size):
            if len(self._visible) >= VISIBLE_KEPT:
                self._visible.clear()
            found = self._visible[key] = visible(self.series, self.owners, scope, where)
        return found

    def _batch(self, rows: Any) -> Batch:
        rows = rows.combine_chunks()
        plain = _plain(rows["part"])
        if not plain.all():
            rows = rows.filter(pa.array(plain)).combine_chunks()
        names = set(rows.column_names)
        is_wide = "version_hi" in names
        left_out = {*SERIES, *OWNER, self.shape.time, "version", "version_hi", "version_lo"}
        kept = names - left_out - self._left_out
        columns = {name: self._column(name, rows[name].chunk(0)) for name in kept} if rows.num_rows else {}
        for name in set(self.shape.fixed) - left_out - names:
            columns[name] = Column(None, np.full(rows.num_rows, self._default(name)))
        high = rows["version_hi"].to_numpy() if is_wide else np.zeros(rows.num_rows, np.uint64)
        low = rows["version_lo" if is_wide else "version"].to_numpy()
        return batch_of(
            series=self.series.numbers(rows),
            owner=packed(self.owners.numbers(rows)),
            t=_times(rows[self.shape.time]).copy(),
            version=(packed(high), packed(low)),
            columns={name: column for name, column in columns.items() if column is not None},
        )

    def _default(self, name: str) -> int:
        """Return what stands for a column that rows came without."""
        return self.texts.setdefault(name, Names()).code("") if name == "boot_id" else 0

    def _column(self, name: str, array: Any) -> Column | None:
        """Return a column as it is kept, apart from the rows it came with; None where no row has a value."""
        kind = array.type
        if array.null_count == len(array):
            return None
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)) if array.null_count else None
        values = array if rows is None else array.drop_null()
        if pa.types.is_dictionary(kind) or pa.types.is_string(kind):
            values = self.texts.setdefault(name, Names()).codes(values)
        elif pa.types.is_timestamp(kind):
            values = _times(values)
        elif not pa.types.is_map(kind):
            values = values.to_numpy(zero_copy_only=False)
        values = packed(values) if isinstance(values, np.ndarray) else _map(values)
        return Column(None if rows is None else rows.astype(np.int32), values)


def _map(values: Any) -> Any:
    """Return maps apart from the rows they came with, of one type whether a stream or a statement told them."""
    own = values.take(pa.array(np.arange(len(values))))
    return pa.MapArray.from_arrays(own.offsets, own.keys, own.items)


def _plain(part: Any) -> NDArray[np.bool_]:
    """Tell which rows are samples; the others only say what many of them were together."""
    part = part if pa.types.is_dictionary(part.type) else part.dictionary_encode()
    chunk = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
    is_plain = np.array([MARK not in text for text in chunk.dictionary.to_pylist()], np.bool_)
    found: NDArray[np.bool_] = is_plain[chunk.indices.to_numpy()] if is_plain.size else np.ones(len(chunk), np.bool_)
    return found


def _times(values: Any) -> I64:
    """Return times as epoch ms; integers of 64 bits are that already, those of 32 are seconds."""
    if pa.types.is_uint32(values.type):
        seconds: I64 = values.to_numpy().astype(np.int64)
        return seconds * 1000
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms", values.type.tz)).cast(pa.int64())
    found: I64 = values.to_numpy()
    return found


def _some(batch: Batch, rows: NDArray[np.intp]) -> Batch:
    """Return some rows of a batch, ascending."""
    place = np.full(batch.series.size, -1, np.int32)
    place[rows] = np.arange(rows.size, dtype=np.int32)
    columns = {name: _cut(column, rows, place) for name, column in batch.columns.items()}
    version = taken(batch.high, rows), taken(batch.low, rows)
    return batch_of(batch.series[rows], taken(batch.owner, rows), batch.t[rows], version, columns)


def _cut(column: Column, rows: NDArray[np.intp], place: NDArray[np.int32]) -> Column:
    if column.rows is None:
        return Column(None, taken(column.values, rows))
    there = np.flatnonzero(place[column.rows] >= 0)
    return Column(place[column.rows[there]], taken(column.values, there))
