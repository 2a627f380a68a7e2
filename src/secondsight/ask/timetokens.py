"""The words that times are made of, and the tokens of one question with what is plain in them: numbers, days, years."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from secondsight.ask.calendar import Calendar, Stretch
from secondsight.ask.tokens import Token

_WHOLE_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
UNITS: dict[str, str] = {
    **{unit: unit for unit in _WHOLE_UNITS},
    **{unit + "s": unit for unit in _WHOLE_UNITS},
    "sec": "second", "secs": "second", "s": "second", "min": "minute", "mins": "minute", "m": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week", "wk": "week", "wks": "week", "mo": "month",
    "yr": "year", "yrs": "year", "fortnight": "fortnight", "fortnights": "fortnight",
}  # fmt: skip
NUMBERS: dict[str, float] = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fourteen": 14, "fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60,
    "ninety": 90, "couple": 2, "few": 3, "half": 0.5,
}  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS: dict[str, int] = {
    form: index for index, name in enumerate(_DAYS) for form in (name, name[:3], name + "s")
} | {"tues": 1, "thur": 3, "thurs": 3}
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
MONTHS: dict[str, int] = {form: index for index, name in enumerate(_MONTHS, 1) for form in (name, name[:3])} | {
    "sept": 9
}
ORDINALS: dict[str, int] = {
    name: number
    for number, name in enumerate(
        ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 1
    )
}
PARTS: dict[str, tuple[int, int]] = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (22, 30)}
"""Part of a day -> its hours; a night ends on the next day."""
OF_TIME = frozenset({"ago", "yesterday", "today", "tomorrow", "tonight", *PARTS, *(f"{part}s" for part in PARTS)}) | {
    word for word in (*WEEKDAYS, *MONTHS) if len(word) > 3
}
CLOCK_MINUTES = 5
"""A clock time means so many minutes from it."""
LAST = frozenset({"last", "past", "previous", "trailing", "rolling"})


@dataclass(frozen=True, slots=True)
class Read:
    """How many tokens were taken, and what they mean."""

    count: int
    stretch: Stretch


class TimeTokens:
    """The tokens of one question, and its calendar."""

    def __init__(self, tokens: Sequence[Token], calendar: Calendar) -> None:
        self._words = [token.word for token in tokens]
        self._tokens = tokens
        self._calendar = calendar

    def _hours(self, day: date, start: int, end: int) -> Stretch:
        return self._clipped(Stretch(self._calendar.at(day, start), self._calendar.at(day, end)))

    def _clipped(self, stretch: Stretch) -> Stretch:
        """Return a stretch up to now; one that lies ahead is marked."""
        if stretch.from_ms > self._calendar.now_ms:
            return replace(stretch, future=True)
        return replace(stretch, to_ms=min(stretch.to_ms, self._calendar.now_ms))

    def _number(self, at: int) -> tuple[float | None, int]:
        token = self._token(at)
        if token is None:
            return None, 0
        if token.kind == "number":
            return float(token.word), 1
        number = NUMBERS.get(token.word)
        if number is None:
            return None, 0
        extra = 1 if self._word(at + 1) in ("of", "a", "an", "couple", "few", "dozen") else 0
        if self._word(at + 1) in ("couple", "few"):
            number, extra = NUMBERS[self._word(at + 1)], 2 if self._word(at + 2) == "of" else 1
        return number, 1 + extra

    def _day_number(self, at: int) -> int | None:
        token = self._token(at)
        if self._word(at) in ORDINALS and self._word(at + 1) == "of" and self._word(at + 2) in MONTHS:
            return ORDINALS[self._word(at)]
        if token is None or not re.fullmatch(r"\d{1,2}", token.word):
            return None
        return int(token.word) if 1 <= int(token.word) <= 31 else None

    def _year_number(self, at: int) -> int | None:
        token = self._token(at)
        found = token is not None and token.kind == "number" and re.fullmatch(r"(19|20)\d\d", token.word)
        return int(self._word(at)) if found else None

    def _day_read(self, count: int, day: date | None) -> Read | None:
        if day is None:
            return None
        return Read(count, self._clipped(self._calendar.days(day)))

    def _token(self, at: int) -> Token | None:
        return self._tokens[at] if 0 <= at < len(self._tokens) else None

    def _word(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _token_text(self, at: int) -> str:
        return self._tokens[at].text if 0 <= at < len(self._tokens) else ""
