"""Number what a question tells apart, of the series or owners that rows in memory have numbers for.

Each table has numbers of its own; a union has one number for what is the same in several of them. What was worked out
is kept as long as no series and no owner is added.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.live.names import Directory
from secondsight.query.windows import IDENTITY

I64 = NDArray[np.int64]
_Fact = TypeVar("_Fact")
_COMPUTE: Any = pc
_UNIONS_KEPT = 16
_FACTS_KEPT = 64


@dataclass(frozen=True, slots=True)
class Numbers:
    """Combinations of some columns, numbered.

    Attributes:
        of: Number of each member of a union.
        firsts: A member that has each number.
    """

    of: I64
    firsts: I64

    @property
    def size(self) -> int:
        """Return how many combinations there are."""
        return self.firsts.size


class Union:
    """Combinations of texts of several directories of the same columns, numbered together.

    Safe to use from several threads: a fact may be worked out twice.

    Args:
        directories: What numbers them one by one.
        sizes: How many combinations of each are known.

    Attributes:
        maps: Number here of each number of each directory.
        size: How many combinations there are.
    """

    def __init__(self, directories: Sequence[Directory], sizes: Sequence[int]) -> None:
        self.directories = tuple(directories)
        self.sizes = tuple(sizes)
        columns = directories[0].columns
        every = {name: self._column(name) for name in columns}
        numbers = combined([codes for codes, _ in every.values()], sum(sizes))
        self.size = numbers.size
        self.maps = np.split(numbers.of, np.cumsum(sizes)[:-1])
        self._codes = {name: codes[numbers.firsts] for name, (codes, _) in every.items()}
        self._items = {name: items for name, (_, items) in every.items()}
        self._facts: dict[Any, Any] = {}

    def codes(self, column: str) -> I64:
        """Return the number of what each combination has in a column."""
        return self._codes[column]

    def numbers(self, columns: Sequence[str], beside: Sequence[I64] = ()) -> Numbers:
        """Return the combinations of some columns, and of numbers beside them, that there are."""
        if beside:
            return combined([*(self._codes[name] for name in columns), *beside], self.size)
        return self._fact(("numbers", *columns), lambda: combined([self._codes[name] for name in columns], self.size))

    def ranks(self, column: str) -> I64:
        """Return the place of what each combination has in a column, in the order of texts."""

        def make() -> I64:
            items = self._items[column].to_pylist()
            places = np.empty(len(items), np.int64)
            places[sorted(range(len(items)), key=items.__getitem__)] = np.arange(len(items))
            return places[self._codes[column]]

        return self._fact(("ranks", column), make)

    def text(self, column: str, member: int) -> str:
        """Return what one combination has in a column."""
        found: str = self._items[column][int(self._codes[column][member])].as_py()
        return found

    def texts(self, column: str) -> Any:
        """Return what each combination has in a column, as an Arrow array."""
        return self._fact(("texts", column), lambda: self._items[column].take(pa.array(self._codes[column])))

    def keys(self) -> Any:
        """Return the name of each entity and part, in their numbers, as `coverage.keys_of` writes it."""

        def make() -> Any:
            firsts = pa.array(self.numbers(IDENTITY).firsts)
            return _COMPUTE.binary_join_element_wise(*(self.texts(name).take(firsts) for name in IDENTITY), "\0")

        return self._fact("keys", make)

    def fact(self, key: Any, make: Callable[[], _Fact]) -> _Fact:
        """Return what follows from the union alone and was worked out for a key before, or work it out now."""
        return self._fact(("others", key), make)

    def _fact(self, key: Any, make: Callable[[], _Fact]) -> _Fact:
        facts = self._facts if len(self._facts) < _FACTS_KEPT else {}
        if key in facts:
            found: _Fact = facts[key]
            return found
        made = facts[key] = make()
        self._facts = facts
        return made

    def _column(self, name: str) -> tuple[I64, Any]:
        """Return the numbers of a column's texts, of every directory one after the other, and the texts."""
        codes, items = [], []
        for directory, size in zip(self.directories, self.sizes, strict=True):
            own = directory.codes(name)[:size].astype(np.int64)
            codes.append(own)
            items.append(directory.names[name].items[: int(own.max(initial=-1)) + 1])
        if len(items) == 1:
            return codes[0], pa.array(items[0], pa.string())
        encoded = pa.array([text for texts in items for text in texts], pa.string()).dictionary_encode()
        places = np.split(encoded.indices.to_numpy().astype(np.int64), np.cumsum([len(texts) for texts in items])[:-1])
        joined = np.concatenate([place[own] for place, own in zip(places, codes, strict=True)])
        return joined, encoded.dictionary


class Unions:
    """Keeps the unions that were made last; safe from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[tuple[int, ...], Union] = {}

    def of(self, directories: Sequence[Directory]) -> Union:
        """Return the union of some directories of the same columns, as they are now."""
        sizes = [directory.size for directory in directories]
        key = tuple(map(id, directories))
        with self._lock:
            found = self._kept.get(key)
        if found is not None and found.sizes == tuple(sizes):
            return found
        made = Union(directories, sizes)
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = made
            while len(self._kept) > _UNIONS_KEPT:
                self._kept.pop(next(iter(self._kept)))
        return made


def combined(columns: Sequence[I64], size: int) -> Numbers:
    """Number the combinations of some columns of numbers, in their order."""
    found = np.zeros(size, np.int64)
    for codes in columns:
        if codes.size and int(codes.min()) != int(codes.max()):
            _, found = np.unique(found * (int(codes.max()) + 1) + codes, return_inverse=True)
    _, firsts = np.unique(found, return_index=True)
    return Numbers(found.astype(np.int64), firsts)
