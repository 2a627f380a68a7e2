"""Turn the names of row subjects into small integers, and back into dictionary columns.

A series is one (tenant, region, cluster, host, entity, part, collector). Names never leave memory while the process
lives; a series id is never used for two series.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from secondsight.store.rows import DictionaryColumn

I32 = NDArray[np.int32]
Names = tuple[str, str, str, str, str, str, str]
FIELDS = ("tenant_id", "region", "cluster_id", "host_id", "entity", "part", "collector_id")
TENANT, REGION, CLUSTER, HOST, ENTITY, PART, COLLECTOR = range(7)

T = TypeVar("T", bound=Hashable)


class Interner(Generic[T]):
    """Gives each distinct item a small integer, counting from 0."""

    def __init__(self, *first: T) -> None:
        self.items: list[T] = list(first)
        self._codes: dict[T, int] = {item: code for code, item in enumerate(first)}

    def __len__(self) -> int:
        return len(self.items)

    def code(self, item: T) -> int:
        """Return the integer of an item, new or known."""
        code = self._codes.setdefault(item, len(self.items))
        if code == len(self.items):
            self.items.append(item)
        return code

    def known(self, item: T) -> int | None:
        """Return the integer of a known item, or None."""
        return self._codes.get(item)


class SeriesTable:
    """All series of one kind. Field codes grow by doubling; `codes[field][series]` indexes `names[field].items`.

    Args:
        root_of: What a series is looked up by within its cluster.
    """

    def __init__(self, root_of: Callable[[Names], str] = lambda names: names[ENTITY]) -> None:
        self._series: Interner[Names] = Interner()
        self._root_of = root_of
        self._of_root: dict[tuple[str, str, str], list[int]] = {}
        self.names: tuple[Interner[str], ...] = tuple(Interner[str]() for _ in FIELDS)
        self._codes = np.zeros((len(FIELDS), 1024), np.int32)

    def __len__(self) -> int:
        return len(self._series)

    def id_of(self, names: Names) -> int:
        """Return the id of a series, new or known."""
        before = len(self._series)
        series = self._series.code(names)
        if series == before:
            self._register(series, names)
        return series

    def names_of(self, series: int) -> Names:
        """Return the names of a series."""
        return self._series.items[series]

    def of_root(self, tenant_id: str, cluster_id: str, root: str) -> list[int]:
        """Return the series that are looked up by a root."""
        return self._of_root.get((tenant_id, cluster_id, root), [])

    def codes(self, field: int) -> I32:
        """Return series -> code of one field."""
        return self._codes[field, : len(self)]

    def _register(self, series: int, names: Names) -> None:
        root = (names[TENANT], names[CLUSTER], self._root_of(names))
        self._of_root.setdefault(root, []).append(series)
        if series >= self._codes.shape[1]:
            self._codes = np.concatenate([self._codes, np.zeros_like(self._codes)], axis=1)
        for field, name in enumerate(names):
            self._codes[field, series] = self.names[field].code(name)


def series_columns(table: SeriesTable, series: I32) -> dict[str, DictionaryColumn]:
    """Return the seven name columns of rows."""
    local, members = compact(series, len(table))
    return {
        name: dictionary_column(table.codes(field)[members][local], table.names[field].items)
        for field, name in enumerate(FIELDS)
    }


def distinct(series: I32) -> I32:
    """Return sorted series, each once."""
    heads = np.concatenate([[True], series[1:] != series[:-1]])
    once: I32 = series[heads]
    return once


def compact(codes: I32, size: int) -> tuple[I32, NDArray[np.intp]]:
    """Renumber codes < `size` densely; return (new codes, new code -> old code)."""
    used = np.zeros(size, np.bool_)
    used[codes] = True
    members = np.flatnonzero(used)
    renumber = np.empty(size, np.int32)
    renumber[members] = np.arange(members.size, dtype=np.int32)
    return renumber[codes], members


def dictionary_column(codes: I32, items: Sequence[str]) -> DictionaryColumn:
    """Return a column whose dictionary holds only what the rows use."""
    local, members = compact(codes, len(items))
    return DictionaryColumn(local, [items[member] for member in members.tolist()])
