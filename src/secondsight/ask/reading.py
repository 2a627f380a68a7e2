"""Say what the words of a question name: metrics, things, times, limits, wishes. It decides nothing.

A name counts as known only if it is among the things that the caller may see; every other name is kept apart.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from secondsight.ask.calendar import Calendar, zone_of
from secondsight.ask.known import NAMED_COLUMNS, Known
from secondsight.ask.links import (
    LEAVING_OUT,
    SPELT,
    events_of,
    inside,
    is_zone_name,
    limit_of,
    links_of,
    metrics_of,
    piece_of,
    terms_of,
    unit_at,
    zone_named,
)
from secondsight.ask.question import ERROR_EVENTS, Bucket, Range, Ranking
from secondsight.ask.timetokens import NUMBERS, OF_TIME, ORDINALS, UNITS
from secondsight.ask.timewords import TimeFound, TimeReader
from secondsight.ask.tokens import Token, tokenise
from secondsight.ask.vocabulary import Match, Vocabulary

_NAME_SHAPE = re.compile(r"(?=[\w.-]*[a-z])(?=[\w.-]*[\d_-])[a-z][\w.-]*[\w]", re.ASCII)
_LIMIT_WORDS_BETWEEN = 3
_ROWS_MAXIMUM = 1_000
_COUNTED = frozenset({"noun", "rank", "event"})
_NEWEST = frozenset({"recent", ERROR_EVENTS})
"""What a number before it counts: `5 hosts`, `the 10 most recent errors`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that something has to lie above or below, with the unit beside it."""

    above: bool
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a question names, in the order of its words.

    Attributes:
        dimensions: Columns after `per`, `by`, `each`.
        asked: Columns after `which`, `what`, `top`: what is looked for.
        nouns: Every kind of thing that is spoken of.
        names: Known names by column; excluded ones stand in `without`.
        foreign: Names that are not among those the caller may see.
        times: Stretches of time, oldest first as they were named.
        terms: Meanings of the other tables of the words file, by table.
        unknown: Words that mean nothing here.
        read_as: Slips of the keyboard, and what they were read as.
    """

    text: str
    zone: str
    words: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    nouns: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: tuple[tuple[str, str], ...] = ()
    events: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    times: tuple[Range, ...] = ()
    hours: tuple[int, int] | None = None
    weekdays: frozenset[int] | None = None
    day_kinds: tuple[frozenset[int], ...] = ()
    future: bool = False
    backwards: bool = False
    bucket: Bucket | None = None
    ranking: Ranking | None = None
    limits: tuple[Limit, ...] = ()
    units: tuple[str, ...] = ()
    gpu_index: str = ""
    terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    read_as: Mapping[str, str] = field(default_factory=dict)
    context_used: bool = False

    def has(self, table: str, *values: str) -> bool:
        """Tell whether a word of a table was there, or one of these meanings of it."""
        found = self.terms.get(table, ())
        return bool(found) and (not values or any(value in found for value in values))


def read(text: str, known: Known, vocabulary: Vocabulary, zone: str, now_ms: int) -> Reading:
    """Return what a question names.

    Raises:
        Rejected(bad_zone): There is no such time zone.
    """
    names = known.words()
    tokens = tokenise(text, names, vocabulary.joined, vocabulary.loose)
    tokens, read_as = vocabulary.correct(tokens, names)
    chosen = zone_named(tokens, vocabulary) or zone
    times = TimeReader(tokens, Calendar(zone_of(chosen), now_ms)).read()
    return _Reader(text, tokens, times, known, vocabulary, chosen, now_ms).reading(read_as)


class _Reader:
    """Gathers what tokens mean, one group after the other; each token is taken once."""

    def __init__(  # noqa: PLR0913, PLR0917 - the pieces of one question
        self,
        text: str,
        tokens: Sequence[Token],
        times: Sequence[TimeFound],
        known: Known,
        vocabulary: Vocabulary,
        zone: str,
        now_ms: int,
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._times = times
        self._known = known
        self._vocabulary = vocabulary
        self._zone = zone
        self._now_ms = now_ms
        self._taken = {index for found in times for index in range(found.start, found.end)}
        self._names: dict[str, list[str]] = {}
        self._without: dict[str, list[str]] = {}
        self._foreign: list[tuple[str, str]] = []
        self._codes: list[str] = []
        self._no_codes: list[str] = []
        self._limits: list[Limit] = []
        self._gpu_index = ""
        self._rows: int | None = None
        self._left: list[str] = []

    def reading(self, read_as: Mapping[str, str]) -> Reading:
        """Return all that was found."""
        self._take_names()
        matches = self._matches()
        terms = terms_of(matches)
        self._take_numbers(matches)
        events = events_of(terms, self._codes)
        links = links_of(matches, self._tokens)
        recurring = [found.stretch for found in self._times if found.stretch.recurring]
        days = [one.weekdays for one in recurring if one.weekdays]
        return Reading(
            text=self._text,
            zone=self._zone,
            words=tuple(token.word for token in self._tokens),
            metrics=metrics_of(matches),
            aggregates=terms.get("aggregate", ()),
            dimensions=links["by"],
            asked=links["which"],
            nouns=terms.get("noun", ()),
            names={column: tuple(dict.fromkeys(found)) for column, found in self._names.items()},
            without={column: tuple(dict.fromkeys(found)) for column, found in self._without.items()},
            foreign=tuple(self._foreign),
            events=events,
            times=self._ranges(),
            hours=next((one.hours for one in recurring if one.hours), None),
            weekdays=days[0] if len(days) == 1 else None,
            day_kinds=tuple(days) if len(days) > 1 else (),
            future=any(found.stretch.future for found in self._times),
            backwards=any(found.stretch.backwards for found in self._times),
            bucket=Bucket(terms["bucket"][0]) if "bucket" in terms else piece_of(self._times, self._tokens),
            ranking=self._ranking(terms),
            limits=tuple(self._limits),
            units=self._units(matches),
            gpu_index=self._gpu_index,
            terms=terms,
            unknown=self._unknown(matches),
            read_as=read_as,
        )

    def _take_names(self) -> None:
        for index, token in enumerate(self._tokens):
            if index not in self._taken and token.kind in ("word", "uuid", "number"):
                self._take_name(index, token)

    def _take_name(self, index: int, token: Token) -> None:
        column = self._noun_before(index)
        found = self._known.columns_of(token.word)
        if token.kind == "number":
            if column in ("job_id", "host_id", "workload_id") and not self._is_count(index):
                self._keep(column, dict(found).get(column, ""), index, token)
            elif column == "gpu_id" and not self._is_count(index):
                self._gpu_index = token.text
                self._taken.add(index)
            return
        if found:
            self._take_known(index, token, found)
        elif token.word in self._tenants():
            self._taken.add(index)
        elif self._is_foreign(index, token, column):
            self._keep(column, "", index, token)

    def _take_known(self, index: int, token: Token, found: Sequence[tuple[str, str]]) -> None:
        column = self._noun_before(index)
        chosen = next((pair for pair in found if pair[0] == column), found[0])[0]
        if column in ("", chosen, "fleet", "tenant_id") or not self._vocabulary.knows(token.word):
            for name in dict.fromkeys(name for of, name in found if of == chosen):
                self._keep(chosen, name, index, token)

    def _tenants(self) -> frozenset[str]:
        return frozenset(name.lower() for name in self._known.tenants)

    def _is_foreign(self, index: int, token: Token, column: str) -> bool:
        """Tell whether a word can only be a name: by its shape, or by the word before it."""
        if self._vocabulary.knows(token.word) or token.word in ("id", "ids", "named", "called"):
            is_letter = len(token.text) == 1 and (token.text.isupper() or token.word not in ("a", "i"))
            return bool(column) and is_letter and not self._is_last_of_pair(index)
        if token.kind == "uuid" or _NAME_SHAPE.fullmatch(token.word):
            return True
        return column in (*NAMED_COLUMNS, "tenant_id") and column not in ("gpu_id", "model")

    def _is_last_of_pair(self, index: int) -> bool:
        return self._tokens[index].text == "I"

    def _keep(self, column: str, name: str, index: int, token: Token) -> None:
        self._taken.add(index)
        if not name:
            prefix = self._gpu_prefix(token)
            if prefix:
                self._names.setdefault("gpu_id", []).append(prefix)
            else:
                self._foreign.append((column, token.text))
            return
        before = {self._word(index - 1), self._word(index - 2), self._word(index - 3)}
        chosen = self._without if before & LEAVING_OUT else self._names
        chosen.setdefault(column, []).append(name)

    def _gpu_prefix(self, token: Token) -> str:
        """Return the one known GPU whose UUID begins so."""
        if token.kind != "uuid":
            return ""
        near = [name for name in self._known.names.get("gpu_id", ()) if name.lower().startswith(token.word)]
        return near[0] if len(near) == 1 else ""

    def _noun_before(self, index: int) -> str:
        """Return what kind of thing the words before say a name is: `job`, `cluster named`, `hosts h1 and`."""
        for back in range(1, 5):
            word = self._word(index - back)
            if word in ("id", "named", "called", "number", "no", "name"):
                continue
            if index - back in self._taken and (back > 1 or self._is_listed(index)):
                continue
            if word in ("and", "or", "&", "vs", "versus", "to", "with") and index - back - 1 in self._taken:
                continue
            for form in (word, word.rstrip("s")):
                for term in self._vocabulary.phrases.get((form,), ()):
                    if term.table == "noun" and (term.value in NAMED_COLUMNS or term.value == "tenant_id"):
                        return term.value
            return ""
        return ""

    def _is_listed(self, index: int) -> bool:
        """Tell whether a comma stands between a token and the one before it."""
        before, here = self._tokens[index - 1], self._tokens[index]
        return "," in self._text[before.end : here.start]

    def _is_count(self, index: int) -> bool:
        """Tell whether a number counts or measures what follows or stands after `than`, rather than names something."""
        after = self._word(index + 1)
        return after in UNITS or any(
            term.table in ("unit", "noun") for term in self._vocabulary.phrases.get((after,), ())
        )

    def _matches(self) -> tuple[Match, ...]:
        """Return the phrases, found in the stretches of tokens that nothing else took."""
        found: list[Match] = []
        start = 0
        while start < len(self._tokens):
            end = start
            while end < len(self._tokens) and end not in self._taken:
                end += 1
            for match in self._vocabulary.matches(self._tokens[start:end]):
                found.append(Match(match.start + start, match.end + start, match.terms))
            start = end + 1
        return tuple(found)

    def _take_numbers(self, matches: Sequence[Match]) -> None:
        ends = {match.end: match for match in matches}
        for index, token in enumerate(self._tokens):
            if index in self._taken or inside(index, matches):
                continue
            if token.kind == "number":
                self._take_number(index, token, ends, matches)
            elif token.word in NUMBERS and unit_at(index + 1, matches):
                self._take_spelt(index, token, ends, matches)
            elif token.kind in ("ordinal", "moment", "date", "clock"):
                self._left.append(token.text)

    def _take_number(self, index: int, token: Token, ends: Mapping[int, Match], matches: Sequence[Match]) -> None:
        before = [ends[at] for at in range(index, index - _LIMIT_WORDS_BETWEEN, -1) if at in ends]
        tables = {term.table for match in before for term in match.terms}
        limit, unit = limit_of(before), unit_at(index + 1, matches)
        if limit or (unit and not self._is_after_rank(index)):
            self._limits.append(Limit(limit != "below", float(token.word), unit))
        elif self._is_code(index):
            (self._codes if token.word.isdecimal() else self._no_codes).append(token.word)
        elif self._is_row_count(token) and ("rank" in tables or self._is_before_noun(index, matches)):
            self._rows = int(token.word)
        else:
            self._left.append(token.text)

    def _take_spelt(self, index: int, token: Token, ends: Mapping[int, Match], matches: Sequence[Match]) -> None:
        """Take a limit whose number is a word: `for more than an hour`."""
        limit = limit_of([ends[index]] if index in ends else [])
        if limit:
            self._limits.append(Limit(limit != "below", NUMBERS[token.word], unit_at(index + 1, matches)))

    def _is_row_count(self, token: Token) -> bool:
        """Tell whether a number can say how many rows are wanted: a whole one without a sign, and not none."""
        is_negative = self._text[max(token.start - 1, 0) : token.start] in ("-", "\u2212")
        return token.word.isdecimal() and int(token.word) > 0 and not is_negative

    def _is_code(self, index: int) -> bool:
        """Tell whether a number is the code of an event: after `Xid` or `code`, or in a list of such."""
        words = [self._word(at) for at in range(max(index - 6, 0), index)]
        while words and (words[-1].isdigit() or words[-1] in ("and", "or", "in")):
            words.pop()
        return bool(words) and words[-1].rstrip("s") in ("xid", "code")

    def _is_after_rank(self, index: int) -> bool:
        return self._word(index - 1) in ("top", "bottom", "first")

    def _is_before_noun(self, index: int, matches: Sequence[Match]) -> bool:
        following = [match for match in matches if index < match.start <= index + 2]
        return any(term.table in _COUNTED or term.value in _NEWEST for match in following for term in match.terms)

    def _ranking(self, terms: Mapping[str, tuple[str, ...]]) -> Ranking | None:
        rank = terms.get("rank", ())
        words = [token.word for token in self._tokens]
        rows = self._rows
        if rows is None and rank:
            rows = next((int(NUMBERS[word]) for word in words if word in SPELT), None)
        if not rank:
            return Ranking(min(rows, _ROWS_MAXIMUM)) if rows and rows > 1 else None
        down = rank[0] in ("top", "hot")
        return Ranking(min(rows or 0, _ROWS_MAXIMUM), descending=down)

    def _units(self, matches: Sequence[Match]) -> tuple[str, ...]:
        """Return units that stand alone: those beside a number belong to a limit, plain spans of time to a time."""
        found: list[str] = []
        for match in matches:
            for term in match.terms:
                beside = match.start and self._tokens[match.start - 1].kind == "number"
                spans = term.value in ("s", "min", "h") and self._word(match.start - 1) != "in"
                if term.table == "unit" and not beside and not spans:
                    found.append(term.value)
        return tuple(dict.fromkeys(found))

    def _ranges(self) -> tuple[Range, ...]:
        found = []
        for one in self._times:
            stretch = one.stretch
            if stretch.recurring:
                continue
            words = self._text_of(one.start, one.end)
            ends = stretch.to_ms >= self._now_ms
            found.append(Range(stretch.from_ms, stretch.to_ms, words, self._zone, open_ended=ends))
        return tuple(found)

    def _text_of(self, start: int, end: int) -> str:
        return self._text[self._tokens[start].start : self._tokens[end - 1].end]

    def _unknown(self, matches: Sequence[Match]) -> tuple[str, ...]:
        words = tuple(
            token.text
            for index, token in enumerate(self._tokens)
            if token.kind == "word"
            and index not in self._taken
            and not inside(index, matches)
            and not self._vocabulary.is_plain(token.word)
            and not is_zone_name(token.text)
            and len(token.word) > 1
        )
        return (*words, *self._no_codes, *self._left, *self._stray_times(matches))

    def _stray_times(self, matches: Sequence[Match]) -> tuple[str, ...]:
        """Return words of time that no stretch of time was made of: `two Mondays ago`, `the second week of May`."""
        return tuple(
            token.text
            for index, token in enumerate(self._tokens)
            if index not in self._taken
            and (
                (token.word in OF_TIME and not inside(index, matches))
                or (token.word in ORDINALS and self._word(index + 1) in UNITS and self._word(index + 2) == "of")
            )
        )

    def _word(self, index: int) -> str:
        return self._tokens[index].word if 0 <= index < len(self._tokens) else ""
