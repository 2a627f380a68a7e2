"""Say what the phrases of a question mean together: metrics, events, and which nouns belong to which word."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from secondsight.ask.known import NAMED_COLUMNS
from secondsight.ask.question import Bucket
from secondsight.ask.timetokens import UNITS
from secondsight.ask.timewords import TimeFound
from secondsight.ask.tokens import Token
from secondsight.ask.vocabulary import Match, Vocabulary

SPELT = frozenset({"two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twenty", "fifteen"})
LEAVING_OUT = frozenset({"except", "excluding", "exclude", "without", "not", "outside", "besides", "apart"})
"""Words before a name, or a kind of errors, that leave it out."""
DENIALS = frozenset({"not", "haven't", "hasn't", "didn't", "don't", "doesn't", "isn't", "aren't", "wasn't", "weren't"})
"""Words that turn a verb into its opposite."""
_PIECES = frozenset({"hour", "day", "week", "month", "quarter"})
_GROUPED = frozenset({*NAMED_COLUMNS, "kind", "code", "severity"})


def terms_of(matches: Sequence[Match]) -> dict[str, tuple[str, ...]]:
    """Return the meanings of phrases, by table."""
    found: dict[str, dict[str, None]] = {}
    for match in matches:
        for term in match.terms:
            found.setdefault(term.table, {})[term.value] = None
    return {table: tuple(values) for table, values in found.items()}


def metrics_of(matches: Sequence[Match]) -> tuple[str, ...]:
    """Return the metrics of phrases that mean no event; a word that is a place's or event's as well gives way."""
    found: dict[str, None] = {}
    for match in matches:
        tables = {term.table for term in match.terms}
        if not tables & {"event", "vague"}:
            found |= dict.fromkeys(term.value for term in match.terms if term.table == "metric")
    return tuple(found)


def events_of(terms: Mapping[str, tuple[str, ...]], codes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what is asked of events, by column; codes stand for themselves."""
    found: dict[str, tuple[str, ...]] = {}
    for value in terms.get("event", ()):
        column, _, word = value.partition("=")
        found[column] = (*found.get(column, ()), word)
    if codes:
        found["code"] = tuple(dict.fromkeys(codes))
    return found


def links_of(matches: Sequence[Match], tokens: Sequence[Token]) -> dict[str, tuple[str, ...]]:
    """Return the columns after `by`-words and after `which`-words; a list of nouns belongs to the word before it.

    What `how many` counts is looked for as well, where it is a thing in the plural.
    """
    found: dict[str, dict[str, None]] = {"by": {}, "which": {}}
    link, last = "", -1
    ranked = any(term.table == "rank" for match in matches for term in match.terms)
    for match in matches:
        first: Any = {term.table: term.value for term in reversed(match.terms)}
        opened = _opens(first)
        if opened:
            link, last = opened, match.end
        elif first.get("noun") in _GROUPED and ranked and _is_numbered(match, tokens):
            found["which"][first["noun"]] = None
        elif first.get("noun") in _GROUPED and link and match.start - last <= 2:
            if link != "count" or _is_plural(match, tokens):
                found["which" if link == "count" else link][first["noun"]] = None
            link, last = ("" if link == "count" else link), match.end
        elif "noun" not in first and link == "by" and not _is_joining(match, tokens):
            link = ""
        elif link == "which" and match.start - last <= 1:
            last = match.end
    return {name: tuple(columns) for name, columns in found.items()}


def _opens(first: Mapping[str, str]) -> str:
    """Return what a phrase asks of the nouns behind it: one row of each, which one, or how many."""
    if "link" in first:
        return first["link"]
    if first.get("aggregate") == "count":
        return "count"
    return "which" if "rank" in first else "by" if "bucket" in first else ""


def _is_plural(match: Match, tokens: Sequence[Token]) -> bool:
    return tokens[match.end - 1].word.endswith("s")


def _is_numbered(match: Match, tokens: Sequence[Token]) -> bool:
    """Tell whether a number of things is looked for: `the ten GPUs with the highest power`."""
    before = tokens[match.start - 1] if match.start else None
    return before is not None and (before.kind == "number" or before.word in SPELT) and _is_plural(match, tokens)


def _is_joining(match: Match, tokens: Sequence[Token]) -> bool:
    return all(token.word in ("and", ",", "or") for token in tokens[match.start : match.end])


def zone_named(tokens: Sequence[Token], vocabulary: Vocabulary) -> str:
    """Return the zone that a question names itself: a place before or after `time`, or a zone's own name."""
    for token in tokens:
        if is_zone_name(token.text):
            return token.text
    for match in vocabulary.matches(tokens):
        named = next((term.value for term in match.terms if term.table == "zone"), "")
        near = {token.word for token in tokens[max(match.start - 2, 0) : match.end + 2]}
        if named and (near & {"time", "in", "zone", "timezone", "local"} or named == "UTC"):
            return named
    return ""


def is_zone_name(text: str) -> bool:
    """Tell whether a word is the name of a time zone, as `Europe/Berlin` is."""
    return bool(re.fullmatch(r"[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+(/[A-Z][A-Za-z_]+)?", text))


def limit_of(before: Sequence[Match]) -> str:
    """Return whether phrases set an upper or a lower limit, "" for none."""
    return next((term.value for match in before for term in match.terms if term.table == "limit"), "")


def unit_at(index: int, matches: Sequence[Match]) -> str:
    """Return the unit whose phrase begins at a token, or ""."""
    return next((t.value for m in matches if m.start == index for t in m.terms if t.table == "unit"), "")


def inside(index: int, matches: Sequence[Match]) -> bool:
    """Tell whether a token is part of a phrase."""
    return any(match.start <= index < match.end for match in matches)


def piece_of(times: Sequence[TimeFound], tokens: Sequence[Token]) -> Bucket | None:
    """Return the pieces of `each of the last 4 weeks`."""
    for found in times:
        before = [token.word for token in tokens[max(found.start - 3, 0) : found.start]]
        unit = UNITS.get(tokens[found.end - 1].word, "")
        if unit in _PIECES and (before[-2:] == ["each", "of"] or before[-3:] == ["each", "of", "the"]):
            return Bucket(unit)
    return None
