"""Read the dates that stand for themselves: `2 November`, `the 12th`, `week 45`, `Q3 2025`, a moment in ISO 8601."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime

from secondsight.ask.calendar import MINUTE_MS, Stretch
from secondsight.ask.timetokens import CLOCK_MINUTES, LAST, MONTHS, UNITS, Read, TimeTokens


class DateReader(TimeTokens):
    """Reads the date that stands at a token."""

    def _moment(self, at: int) -> Read | None:
        token = self._token(at)
        if token is None or token.kind not in ("moment", "date"):
            return None
        if token.kind == "date":
            day, month, year = (int(part) for part in token.word.split("."))
            return self._day_read(1, self._calendar.dated(day, month, year))
        return self._iso(token.text)

    def _iso(self, text: str) -> Read | None:
        try:
            moment = datetime.fromisoformat(text.upper())
        except ValueError:
            return None
        if len(text) == 10:
            return Read(1, self._calendar.days(moment.date()))
        local = moment if moment.tzinfo else moment.replace(tzinfo=self._calendar.zone)
        start = round(local.astimezone(UTC).timestamp() * 1000)
        return Read(1, Stretch(start, start + CLOCK_MINUTES * MINUTE_MS, point=True))

    def _dated(self, at: int) -> Read | None:
        """`2 November`, `Nov 2nd 2026`, `the 12th of November`."""
        day, month = self._day_number(at), MONTHS.get(self._word(at + 1))
        count = 2
        if day and month is None and self._word(at + 1) == "of":
            month, count = MONTHS.get(self._word(at + 2)), 3
        if not (day and month):
            month, day, count = MONTHS.get(self._word(at)), self._day_number(at + 1), 2
        if not (day and month) or (self._word(at + 2) in UNITS and count == 2 and MONTHS.get(self._word(at))):
            return self._ordinal(at)
        year = self._year_number(at + count)
        return self._day_read(count + (year is not None), self._calendar.dated(day, month, year))

    def _ordinal(self, at: int) -> Read | None:
        """`the 12th`: of this month, or of the one before where that is still to come."""
        token = self._token(at)
        if token is None or token.kind != "ordinal" or self._word(at - 1) not in ("the", "on"):
            return None
        day = self._day_number(at)
        if not day or self._word(at + 1) in (*UNITS, "percentile"):
            return None
        today = self._calendar.today
        which = [word for word in self._words[at + 1 : at + 4] if word != "the"]
        named = which[:1] == ["of"] and "month" in which
        back = day > today.day or (named and bool(LAST & set(which)))
        month, year = (today.month - 1 or 12, today.year) if back else (today.month, today.year)
        year -= month > today.month
        count = self._words.index("month", at) - at + 1 if named else 1
        return self._day_read(count, self._calendar.dated(day, month, year))

    def _numbered_week(self, at: int) -> Read | None:
        """`calendar week 45`, `week 7 of 2025`, by ISO 8601: of this year, or of the last where it lies ahead."""
        lead = 1 if self._word(at) in ("calendar", "iso") else 0
        number = self._token(at + lead + 1)
        if self._word(at + lead) != "week" or number is None or not re.fullmatch(r"\d{1,2}", number.word):
            return None
        after = at + lead + 2
        joins = 1 if self._word(after) in ("of", "in") else 0
        year = self._year_number(after + joins)
        today = self._calendar.today
        first = _monday(year or today.year, int(number.word))
        if first is not None and year is None and first > today:
            first = _monday(today.year - 1, int(number.word))
        if first is None:
            return None
        return Read(lead + 2 + (joins + 1 if year else 0), self._clipped(self._calendar.days(first, 7)))

    def _month(self, at: int) -> Read | None:
        lead = 1 if self._word(at) in ("last", "this") else 0
        month = MONTHS.get(self._word(at + lead))
        if month is None or (self._word(at) in ("may", "mar") and not self._token_text(at)[0].isupper()):
            return None
        year = self._year_number(at + lead + 1)
        today = self._calendar.today
        chosen = year or (today.year if month <= today.month else today.year - 1)
        stretch = self._calendar.months(chosen, month)
        return Read(lead + 1 + (year is not None), self._clipped(stretch))

    def _quarter(self, at: int) -> Read | None:
        word = self._word(at)
        quarters = {"q1": 1, "q2": 2, "q3": 3, "q4": 4}
        index = quarters.get(word)
        count = 1
        year = self._year_number(at)
        if year is not None and self._word(at + 1) in quarters:
            return Read(2, self._clipped(self._calendar.months(year, 3 * quarters[self._word(at + 1)] - 2, 3)))
        if index is None and self._word(at + 1) == "quarter":
            index, count = {"first": 1, "second": 2, "third": 3, "fourth": 4}.get(word), 2
        if index is None:
            return None
        year = self._year_number(at + count)
        today = self._calendar.today
        chosen = year or (today.year if 3 * index - 2 <= today.month else today.year - 1)
        return Read(count + (year is not None), self._clipped(self._calendar.months(chosen, 3 * index - 2, 3)))

    def _half_year(self, at: int) -> Read | None:
        """`H1 2026`, `2026 H2`; without its year it is no time but the name of something."""
        halves = ("h1", "h2")
        first, second = self._word(at), self._word(at + 1)
        if first in halves:
            joins = 1 if second in ("of", "in") else 0
            year = self._year_number(at + 1 + joins)
            return None if year is None else self._half_of(year, first == "h1", 2 + joins)
        year = self._year_number(at)
        return self._half_of(year, second == "h1", 2) if year is not None and second in halves else None

    def _half_of(self, year: int, is_first: bool, count: int) -> Read:
        return Read(count, self._clipped(self._calendar.months(year, 1 if is_first else 7, 6)))

    def _year(self, at: int) -> Read | None:
        year = self._year_number(at)
        if year is None or self._word(at - 1) not in ("in", "of", "during", "for", "since", "throughout", "year"):
            return None
        stretch = self._calendar.months(year, 1, 12)
        if stretch.from_ms >= self._calendar.now_ms:
            return Read(1, replace(stretch, future=True))
        return Read(1, self._clipped(stretch))


def _monday(year: int, week: int) -> date | None:
    try:
        return date.fromisocalendar(year, week, 1)
    except ValueError:
        return None
