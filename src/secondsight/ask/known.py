"""Names of things that the caller may see, and the words that mean them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

NAMED_COLUMNS = ("cluster_id", "host_id", "gpu_id", "job_id", "workload_id", "owner_team", "model")
_PRODUCT = re.compile(r"[a-z]{1,4}\d{1,4}[a-z]?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Known:
    """Names of things that the caller may see, by column; tenants are those of the caller."""

    names: Mapping[str, frozenset[str]]
    tenants: frozenset[str] = frozenset()
    _by_word: Mapping[str, tuple[tuple[str, str], ...]] = field(init=False, repr=False, compare=False)
    _words: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the names by their small letters."""
        found: dict[str, list[tuple[str, str]]] = {}
        for column in NAMED_COLUMNS:
            for name in self.names.get(column, ()):
                found.setdefault(name.lower(), []).append((column, name))
        for name in self.names.get("model", ()):
            for part in _product_words(name):
                found.setdefault(part, []).append(("model", name))
        object.__setattr__(self, "_by_word", {word: tuple(pairs) for word, pairs in found.items()})
        object.__setattr__(self, "_words", frozenset(found) | {name.lower() for name in self.tenants})

    def columns_of(self, word: str) -> tuple[tuple[str, str], ...]:
        """Return the columns that hold a name, whatever its case, with the name as it is written there."""
        return self._by_word.get(word) or self._by_word.get(word.removesuffix("s"), ())

    def words(self) -> frozenset[str]:
        """Return every name in small letters."""
        return self._words


def _product_words(name: str) -> list[str]:
    """Return the words of a product's name that tell it apart: `h100` of `NVIDIA H100 80GB HBM3`."""
    words = name.lower().split()
    return [word for word in words if len(words) > 1 and _PRODUCT.fullmatch(word)]
