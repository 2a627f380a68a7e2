"""Number texts and combinations of numbers, so that rows can be compared and sorted as integers.

Numbers are given in the order of first sight and never taken back.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Names:
    """Texts by number."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._codes: dict[str, int] = {}
        self._last: tuple[Any, I32] = (None, np.empty(0, np.int32))

    def code(self, text: str) -> int:
        """Return the number of a text."""
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.items)
            self.items.append(text)
        return found

    def known(self, texts: Sequence[str]) -> list[int]:
        """Return the numbers of those texts that have one."""
        return [self._codes[text] for text in texts if text in self._codes]

    def codes(self, column: Any) -> I32:
        """Return the number of each text of an Arrow array; dictionaries that come again are looked up once."""
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        words, codes = self._last
        if words is None or not words.equals(column.dictionary):
            words = column.dictionary
            codes = np.array([self.code(text) for text in words.to_pylist()], np.int32)
            self._last = words, codes
        found: I32 = codes[column.indices.to_numpy()] if codes.size else np.empty(0, np.int32)
        return found


class Pairs:
    """Pairs of numbers by number."""

    def __init__(self) -> None:
        self._keys = np.empty(0, np.int64)
        self._codes = np.empty(0, np.int32)
        self._latest = {is_second: np.empty(0, np.int32) for is_second in (False, True)}
        self.firsts = np.empty(0, np.int32)
        self.seconds = np.empty(0, np.int32)

    def codes(self, firsts: I32, seconds: I32) -> I32:
        """Return the number of each pair.

        It is mostly the last one that had one of the two: that of which there are more, as a GPU has one host.
        """
        is_second = int(seconds.max(initial=-1)) > int(firsts.max(initial=-1))
        telling = seconds if is_second else firsts
        latest = self._widened(is_second, int(telling.max(initial=-1)) + 1)
        found: I32 = latest[telling]
        wrong = found < 0
        if self.firsts.size:
            wrong |= (self.firsts[found] != firsts) | (self.seconds[found] != seconds)
        if wrong.any():
            found[wrong] = latest[telling[wrong]] = self._sought(firsts[wrong], seconds[wrong])
        return found

    def _widened(self, is_second: bool, size: int) -> I32:
        latest = self._latest[is_second]
        if latest.size < size:
            more = np.full(max(size - latest.size, latest.size), -1, np.int32)
            latest = self._latest[is_second] = np.concatenate([latest, more])
        return latest

    def _sought(self, firsts: I32, seconds: I32) -> I32:
        keys = firsts.astype(np.int64) << 32 | seconds
        place = np.searchsorted(self._keys, keys)
        known = self._keys[np.minimum(place, self._keys.size - 1)] == keys if self._keys.size else place < 0
        if not known.all():
            self._add(np.unique(keys[~known]))
            place = np.searchsorted(self._keys, keys)
        found: I32 = self._codes[place]
        return found

    def _add(self, new: I64) -> None:
        numbers = np.arange(self._keys.size, self._keys.size + new.size, dtype=np.int32)
        keys, codes = np.concatenate([self._keys, new]), np.concatenate([self._codes, numbers])
        order = np.argsort(keys, kind="stable")
        self._keys, self._codes = keys[order], codes[order]
        self.seconds = np.concatenate([self.seconds, (new & 0xFFFF_FFFF).astype(np.int32)])
        self.firsts = np.concatenate(
            [self.firsts, (new >> 32).astype(np.int32)]
        )  # last: its length is what readers see


class Directory:
    """Combinations of texts by number.

    Args:
        columns: What the texts are called, in order; two or more.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.names = {name: Names() for name in columns}
        self._levels = [Pairs() for _ in columns[1:]]

    @property
    def size(self) -> int:
        """Return how many combinations there are."""
        return int(self._levels[-1].firsts.size)

    @property
    def texts(self) -> int:
        """Return how many texts there are."""
        return sum(len(names.items) for names in self.names.values())

    def numbers(self, rows: Any) -> I32:
        """Return the number of each row's combination; `rows` is an Arrow table. What it lacks is ""."""
        codes = [self._codes(name, rows) for name in self.columns]
        found = codes[0]
        for level, column in zip(self._levels, codes[1:], strict=True):
            found = level.codes(found, column)
        return found

    def _codes(self, name: str, rows: Any) -> I32:
        if name in rows.column_names:
            return self.names[name].codes(_one(rows.column(name)))
        return np.full(rows.num_rows, self.names[name].code(""), np.int32)

    def codes(self, column: str) -> I32:
        """Return the number, in `names[column]`, of what each combination has there; shape (size,)."""
        place = self.columns.index(column)
        found = np.arange(self.size, dtype=np.int32)
        for level in reversed(self._levels[max(place, 1) :]):
            found = level.firsts[found]
        last = self._levels[max(place - 1, 0)]
        return last.seconds[found] if place else last.firsts[found]

    def labels(self, number: int) -> tuple[str, ...]:
        """Return the texts of a combination."""
        found: list[str] = []
        for level, column in zip(reversed(self._levels), reversed(self.columns[1:]), strict=True):
            found.append(self.names[column].items[level.seconds[number]])
            number = int(level.firsts[number])
        return (self.names[self.columns[0]].items[number], *reversed(found))


def _one(column: Any) -> Any:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
