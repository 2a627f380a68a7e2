"""Find what the words of a question stand for: phrases of `words.toml`, names and aliases of the catalogue.

The longest phrase wins. A word that is unknown is read as the known word it differs from by a slip of the keyboard, if
there is exactly one.
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from secondsight.ask.tokens import Token, tokenise
from secondsight.catalog.index import Catalog

PHRASE_WORDS = 7
_SILENT = frozenset({"filler", "time"})
_SETTINGS = frozenset({"plain", "usual", "additive"})
"""Tables that hold no phrases."""
_UNIT_WORDS = ("ratio", "bytes", "celsius", "watts", "hertz", "seconds", "total", "joules", "per")
_SLIP_LETTERS = 4
"""Shorter words are never read as others."""
_SLIPS_TWO_LETTERS = 9


@dataclass(frozen=True, slots=True)
class Term:
    """What a phrase means: a table of `words.toml` and a meaning in it."""

    table: str
    value: str


@dataclass(frozen=True, slots=True)
class Match:
    """A phrase found at tokens [start, end), with all it may mean."""

    start: int
    end: int
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All phrases by their words."""

    phrases: Mapping[tuple[str, ...], tuple[Term, ...]]
    words: frozenset[str]
    """Every word of any phrase, and those that mean nothing by themselves."""
    plain: frozenset[str]
    """Words that mean nothing by themselves."""
    silent: frozenset[str]
    """Words of no meaning here, and words of time."""
    loose: frozenset[str]
    """What a word with a hyphen may fall apart into: words that stand alone, and hyphened pieces of phrases."""
    joined: frozenset[str]
    """Words with a hyphen, slash or dot in them."""
    usual_units: Mapping[str, str]
    usual: Mapping[str, tuple[str, ...]]
    """What is shown of a metric where nobody says how."""
    additive: frozenset[str]
    """Gauges whose sum over GPUs means something."""

    def matches(self, tokens: Sequence[Token]) -> tuple[Match, ...]:
        """Return the phrases of a question, from left to right, without overlap."""
        return tuple(self._walk(tokens))

    def correct(self, tokens: Sequence[Token], names: frozenset[str]) -> tuple[tuple[Token, ...], dict[str, str]]:
        """Return the tokens with slips of the keyboard put right, and what was read as what."""
        read: dict[str, str] = {}
        fixed: list[Token] = []
        for token in tokens:
            other = "" if token.kind != "word" or self.knows(token.word) or token.word in names else self._near(token)
            if other:
                read[token.text] = other
            fixed.append(replace(token, word=other) if other else token)
        return tuple(fixed), read

    def is_plain(self, word: str) -> bool:
        """Tell whether a word means nothing by itself."""
        return any(form in self.silent for form in _forms(word))

    def knows(self, word: str) -> bool:
        """Tell whether a word is one of any phrase, in the singular or the plural."""
        return any(form in self.words for form in _forms(word))

    def _walk(self, tokens: Sequence[Token]) -> Iterator[Match]:
        position = 0
        while position < len(tokens):
            found = self._longest(tokens, position)
            if found is not None:
                yield found
            position = position + 1 if found is None else found.end

    def _longest(self, tokens: Sequence[Token], start: int) -> Match | None:
        for count in range(min(PHRASE_WORDS, len(tokens) - start), 0, -1):
            words = tuple(token.word for token in tokens[start : start + count])
            for last in _forms(words[-1]):
                terms = self.phrases.get((*words[:-1], last))
                if terms:
                    return Match(start, start + count, terms)
        return None

    def _near(self, token: Token) -> str:
        word = token.word
        if len(word) < _SLIP_LETTERS or not word.isalpha():
            return ""
        most = 2 if len(word) >= _SLIPS_TWO_LETTERS else 1
        for slips in range(1, most + 1):
            near = {other for other in self.words if _may_be(word, other, slips) and _slips(word, other) == slips}
            near = {other for other in near if other[0] == word[0] or sorted(other) == sorted(word)}
            meaning = near - self.plain or near
            if len(meaning) == 1:
                return meaning.pop()
            if meaning:
                return _shared(meaning)
        return ""


def load_vocabulary(catalog: Catalog) -> Vocabulary:
    """Return the vocabulary of the words file and a catalogue."""
    tables = _tables()
    joined = frozenset(
        word.lower() for phrase, _ in _listed(tables) for word in phrase.split() if set(word) & set("-/.'+:")
    )
    found: dict[tuple[str, ...], dict[Term, None]] = defaultdict(dict)
    for phrase, term in (*_catalogue(catalog, tables["metric"]), *_listed(tables)):
        key = tuple(token.word for token in tokenise(phrase, phrases=joined))
        if key and term.table not in _SILENT:
            found[key][term] = None
    silent = {word for table in _SILENT for phrase in tables[table]["words"] for word in phrase.lower().split()}
    words = {word for key in found for word in key} | silent
    plain = silent - {key[0] for key in found if len(key) == 1}
    return Vocabulary(
        phrases={key: tuple(terms) for key, terms in found.items()},
        words=frozenset(words),
        plain=frozenset(plain),
        silent=frozenset(silent),
        loose=frozenset(silent | {key[0] for key in found if len(key) == 1} | set(_hyphened(found))),
        joined=joined,
        usual_units=tables["plain"],
        usual={name: tuple(stats) for name, stats in tables["usual"].items()},
        additive=frozenset(tables["additive"]["words"]),
    )


def _hyphened(phrases: Mapping[tuple[str, ...], object]) -> Iterator[str]:
    for key in phrases:
        for start in range(len(key)):
            for end in range(start + 2, len(key) + 1):
                yield "-".join(key[start:end])


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def _listed(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Term]]:
    for table, meanings in tables.items():
        if table not in _SETTINGS:
            for value, phrases in meanings.items():
                for phrase in phrases:
                    yield phrase, Term(table, value)


def _catalogue(catalog: Catalog, said: Mapping[str, Any]) -> Iterator[tuple[str, Term]]:
    """Yield names and aliases; of a metric without phrases its name without prefix and unit as well."""
    for metric in catalog.metrics:
        term = Term("metric", metric.name)
        for word in (metric.name, *metric.aliases):
            yield word, term
            if "_" in word:
                yield word.replace("_", " "), term
        if metric.name not in said:
            yield _spoken(metric.name), term


def _spoken(name: str) -> str:
    words = name.split("_")
    while words and words[-1] in _UNIT_WORDS:
        words.pop()
    return " ".join(words[1:] if words[0] in ("gpu", "node") and len(words) > 2 else words)


def _forms(word: str) -> Iterator[str]:
    yield word
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        yield word[:-1]
    if len(word) > 4 and word.endswith("ies"):
        yield word[:-3] + "y"
    if len(word) > 4 and word.endswith("es"):
        yield word[:-2]


def _may_be(word: str, other: str, slips: int) -> bool:
    return abs(len(word) - len(other)) <= slips and other.isalpha() and len(other) >= _SLIP_LETTERS - 1


def _shared(words: set[str]) -> str:
    """Return the shortest of forms of one word, else nothing."""
    shortest = min(words, key=len)
    return shortest if all(shortest in _forms(word) or word == shortest for word in words) else ""


def _slips(first: str, second: str) -> int:
    """Return how many letters were left out, put in, changed or swapped with their neighbour."""
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        here = [row]
        for column, other in enumerate(second, 1):
            best = min(last[column] + 1, here[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other:
                best = min(best, before[column - 2] + 1)
            here.append(best)
        before, last = last, here
    return last[-1]
