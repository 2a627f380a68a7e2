"""Cut a question into tokens: words, numbers, dates, clock times, names of things, symbols.

Words with a hyphen are cut into their parts, except names that hold a digit (`job-1`) and names that are known. A unit
that sticks to its number (`80GB`, `24h`) becomes a token of its own.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

QUESTION_CHARACTERS = 2_000

_TOKEN = re.compile(
    r"(?P<url>https?://\S+)"
    r"|(?P<uuid>\b(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{6,})"
    r"|(?P<moment>\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?)"
    r"|(?P<date>\b\d{1,2}\.\d{1,2}\.\d{4}\b)"
    r"|(?P<clock>\b\d{1,2}:\d{2}(?::\d{2})?\b)"
    r"|(?P<number>\b\d{1,3}(?:,\d{3})+\b|\b\d+(?:\.\d+)?(?![\w-]*[A-Za-z_]*\d))(?P<suffix>-?[A-Za-z°%µ]+(?:/[A-Za-z]+)?)?"
    r"|(?P<word>[^\W\d_][\w°/.':+-]*|\w[\w./'-]*)"
    r"|(?P<symbol>>=|<=|[><%€$°=+])",
)
_POSSESSIVE = re.compile(r"('s|')$")
_TYPOGRAPHY = {0x2019: "'", 0x2018: "'", 0x2013: "-", 0x2014: "-"}
_ORDINAL = re.compile(r"^(st|nd|rd|th)$")
_DEGREES = {"c": "celsius", "f": "fahrenheit"}
"""Letters that are degrees where they stick to a number: `85C`."""


@dataclass(frozen=True, slots=True)
class Token:
    """One piece of a question.

    Attributes:
        text: As it was written.
        word: In small letters, without possessive; what phrases are looked up by.
        kind: `word`, `number`, `ordinal` (`12th`), `moment`, `clock`, `date`, `uuid`, `url` or `symbol`.
        start: Offset in the question.
    """

    text: str
    word: str
    kind: str
    start: int

    @property
    def end(self) -> int:
        """Return the offset after it."""
        return self.start + len(self.text)


def tokenise(
    question: str, names: Collection[str] = (), phrases: Collection[str] = (), words: Collection[str] = ()
) -> tuple[Token, ...]:
    """Return the tokens of a question.

    Args:
        question: What was asked; only its first `QUESTION_CHARACTERS` count.
        names: Known names in small letters, kept whole whatever they hold.
        phrases: Known single words that hold a hyphen, slash or dot, kept whole.
        words: What a word with a hyphen may fall apart into, where it is given; others are kept whole.
    """
    text = question[:QUESTION_CHARACTERS].translate(_TYPOGRAPHY)
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        found += _tokens_of(match, names, phrases, words)
    return tuple(found)


def _tokens_of(
    match: re.Match[str], names: Collection[str], phrases: Collection[str], words: Collection[str]
) -> list[Token]:
    kind = next(name for name in match.re.groupindex if match.group(name) is not None and name != "suffix")
    start, text = match.start(kind), match.group(kind)
    if kind == "number":
        ordinal = _ORDINAL.match((match.group("suffix") or "").lower())
        return [Token(text, text.replace(",", ""), "ordinal" if ordinal else kind, start), *_suffix(match)]
    if kind == "word":
        return _words(text.rstrip(".':/-+"), start, (names, phrases, words))
    return [Token(text, text.lower(), kind, start)]


def _suffix(match: re.Match[str]) -> list[Token]:
    suffix = match.group("suffix")
    if not suffix:
        return []
    start, text = match.start("suffix"), suffix
    if text.startswith("-"):
        start, text = start + 1, text[1:]
    word = _DEGREES.get(text.lower(), text.lower())
    return [] if _ORDINAL.match(text.lower()) else [Token(text, word, "word", start)]


def _words(text: str, start: int, known_words: tuple[Collection[str], Collection[str], Collection[str]]) -> list[Token]:
    if not text:
        return []
    names, phrases, words = known_words
    whole = _POSSESSIVE.sub("", text.lower())
    known = text.lower() in phrases or whole in names or whole in phrases
    if known or not re.search("[-/]", text) or re.search(r"\d", text) or _is_zone(text):
        shown = text if text.lower() in phrases else text[: len(whole)]
        return [Token(shown, text.lower() if text.lower() in phrases else whole, "word", start)]
    pieces = re.split("-", whole)
    falls_apart = whole in words or all(_is_word(piece, words) for piece in pieces)
    if words and len(pieces) > 1 and not falls_apart:
        return [Token(text[: len(whole)], whole, "word", start)]
    parts: list[Token] = []
    for piece in re.finditer(r"[^-/]+", text):
        word = _POSSESSIVE.sub("", piece[0].lower())
        parts.append(Token(piece[0], word, "word", start + piece.start()))
    return parts


def _is_word(piece: str, words: Collection[str]) -> bool:
    return not piece or piece in words or piece.removesuffix("s") in words


def _is_zone(text: str) -> bool:
    return bool(re.fullmatch(r"[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+(/[A-Z][A-Za-z_]+)?", text))
