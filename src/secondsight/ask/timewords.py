"""Read the words of time: `yesterday`, `last 3 months`, `since Monday`, `from 14:00 to 16:00 on 2 Nov`.

Calendar words (`last week`) mean whole units of the asker's zone; counts (`last 2 weeks`) and `the past week` end now.
Nothing here knows of questions; it turns words into stretches of time, with the tokens they took.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from secondsight.ask.calendar import HOUR_MS, MINUTE_MS, Calendar, Stretch
from secondsight.ask.tokens import Token

NOW_MINUTES = 5
"""`right now` means so many minutes."""
CLOCK_MINUTES = 5
"""A clock time means so many minutes from it."""

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
PARTS: dict[str, tuple[int, int]] = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (22, 30)}
_LAST = frozenset({"last", "past", "previous", "trailing", "rolling"})
_WHOLE = frozenset({"full", "complete", "whole", "calendar", "entire"})
_CALENDAR_UNITS = frozenset({"hour", "day", "week", "month", "quarter", "year"})
_LEFT_OUT = frozenset({"excluding", "without", "except", "exclude"})
_PIECES = frozenset(
    form
    for word in ("step", "bucket", "interval", "window", "slot", "bin", "piece", "chunk")
    for form in (word, word + "s")
) | {"resolution", "granularity"}
_LEAD = frozenset({"on", "in", "at", "for", "during", "over", "within", "of", "the", "from", "throughout", "across"})
_NIGHT = (22, 6)
_OFFICE = (9, 17)
_WORKDAYS = frozenset({1, 2, 3, 4, 5})
_WEEKEND = frozenset({6, 7})


@dataclass(frozen=True, slots=True)
class TimeFound:
    """A stretch of time that the tokens [start, end) mean."""

    start: int
    end: int
    stretch: Stretch


@dataclass(frozen=True, slots=True)
class _Read:
    """How many tokens were taken, and what they mean."""

    count: int
    stretch: Stretch


class TimeReader:
    """Reads times out of the tokens of one question."""

    def __init__(self, tokens: Sequence[Token], calendar: Calendar) -> None:
        self._words = [token.word for token in tokens]
        self._tokens = tokens
        self._calendar = calendar

    def read(self) -> tuple[TimeFound, ...]:
        """Return what was found, from left to right, without overlap; a day and hours that belong together are one."""
        found: list[TimeFound] = []
        position = 0
        while position < len(self._words):
            one = self._range(position)
            if one is None:
                position += 1
                continue
            found.append(TimeFound(position, position + one.count, one.stretch))
            position += one.count
        return tuple(_joined(found, self._calendar))

    def _range(self, at: int) -> _Read | None:
        for reader in (self._since, self._days_of_month, self._from_to, self._whole_weeks, self._one):
            found = reader(at)
            if found is not None:
                return found
        return None

    def _since(self, at: int) -> _Read | None:
        """`since Monday`, `starting in September`, `from 2 Nov on`."""
        if self._word(at) not in ("since", "starting", "beginning"):
            return None
        found = self._start_of(at + 1) or self._inner(at + 1)
        if found is None or found[1].stretch.future:
            return None
        skipped, one = found
        return _Read(1 + skipped + one.count, Stretch(one.stretch.from_ms, self._calendar.now_ms))

    def _start_of(self, at: int) -> tuple[int, _Read] | None:
        """`the beginning of the month`: of this one."""
        words = [word for word in self._words[at : at + 5] if word not in ("the", "this")]
        unit = UNITS.get(words[2], "") if len(words) > 2 else ""
        if not unit or words[0] not in ("beginning", "start") or words[1] != "of":
            return None
        return self._words.index(words[2], at) - at, _Read(1, self._calendar.unit(unit, 0))

    def _days_of_month(self, at: int) -> _Read | None:
        """`from 2 to 9 November`, `2-9 November`: the month stands behind the last day alone."""
        lead = 1 if self._word(at) in ("from", "between") else 0
        first, middle = self._day_number(at + lead), self._word(at + lead + 1)
        joins = middle in ("to", "until", "till", "through") or (lead and middle == "and")
        last = self._dated(at + lead + 2) if first and joins else None
        if last is None or first is None:
            return None
        end = datetime.fromtimestamp(last.stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone).date()
        start = self._calendar.dated(first, end.month, end.year)
        joined = _between(self._calendar.days(start), last.stretch) if start else None
        return None if joined is None else _Read(lead + 2 + last.count, joined)

    def _from_to(self, at: int) -> _Read | None:
        """`from X to Y`, `between X and Y`, `X until Y`; whole units at the end are part of it."""
        lead = 1 if self._word(at) in ("from", "between") else 0
        first = self._day_at(at + lead) or self._inner(at + lead)
        if first is None or first[1].stretch.recurring:
            return None
        middle = at + lead + first[0] + first[1].count
        if self._word(middle) not in ("to", "until", "till", "through", "-") and not (
            lead and self._word(middle) == "and"
        ):
            return None
        second = self._day_at(middle + 1) or self._inner(middle + 1)
        if second is None or second[1].stretch.recurring or (not lead and second[0] > 1):
            return None
        joined = _between(first[1].stretch, second[1].stretch)
        end = middle + 1 + second[0] + second[1].count
        days = self._weekdays_to(middle - 1, end - 1)
        beside = self._inner(end) is not None or self._word(at - 1) in UNITS
        if days and (joined is None or beside):
            return _Read(end - at, Stretch(0, 0, recurring=True, weekdays=days))
        return None if joined is None else _Read(end - at, joined)

    def _day_at(self, at: int) -> tuple[int, _Read] | None:
        """`5 Nov 08:00`, `yesterday at 2 pm`: a moment of a day."""
        day = self._inner(at)
        if day is None or day[1].stretch.point or day[1].stretch.recurring:
            return None
        skipped, one = day
        end = at + skipped + one.count
        lead = 1 if self._word(end) in ("at", ",") else 0
        clock = self._clock(end + lead)
        joined = _day_and_clock(one.stretch, clock.stretch, self._calendar) if clock is not None else None
        if clock is None or joined is None:
            return None
        return skipped, _Read(one.count + lead + clock.count, replace(joined, point=True))

    def _weekdays_to(self, first: int, last: int) -> frozenset[int]:
        """Return the days of each week from one weekday to a later one, where two words name such."""
        start, end = WEEKDAYS.get(self._word(first)), WEEKDAYS.get(self._word(last))
        if start is None or end is None or end <= start:
            return frozenset()
        return frozenset(range(start + 1, end + 2))

    def _whole_weeks(self, at: int) -> _Read | None:
        """`the week of 2 November`; `the weeks of A and B` gives A here, and B is read as a week by `_of_weeks`."""
        if self._word(at) not in ("week", "weeks") or self._word(at + 1) not in ("of", "from", "starting", "beginning"):
            return self._second_week(at)
        found = self._inner(at + 2)
        if found is None:
            return None
        skipped, one = found
        return _Read(2 + skipped + one.count, self._week_of(one.stretch))

    def _second_week(self, at: int) -> _Read | None:
        """`and 9 November` after `the weeks of 2 November`."""
        before = self._words[:at]
        if self._word(at) not in ("and", "vs", "versus") or "weeks" not in before[-8:]:
            return None
        found = self._inner(at + 1)
        if found is None:
            return None
        skipped, one = found
        if one.stretch.to_ms - one.stretch.from_ms > 26 * HOUR_MS:
            return None
        return _Read(1 + skipped + one.count, self._week_of(one.stretch))

    def _week_of(self, stretch: Stretch) -> Stretch:
        moment = datetime.fromtimestamp(stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone)
        return self._calendar.week(moment.date())

    def _inner(self, at: int) -> tuple[int, _Read] | None:
        """Return what is meant at a place or after a few words that lead to it, with the number of those."""
        skipped = 0
        while self._word(at + skipped) in _LEAD | {"beginning", "start", "around"} and skipped < 4:
            skipped += 1
        for less in range(skipped, -1, -1):
            found = self._one(at + less)
            if found is not None:
                return less, found
        return None

    def _one(self, at: int) -> _Read | None:
        readers: tuple[Callable[[int], _Read | None], ...] = (
            self._moment, self._dated, self._half, self._numbered_week, self._relative, self._named_day, self._counted,
            self._whole_unit, self._calendar_unit, self._weekday, self._part_of_day, self._left_out, self._clock,
            self._month, self._quarter, self._year, self._recurring,
        )  # fmt: skip
        for reader in readers:
            found = reader(at)
            if found is not None:
                return found
        return None

    def _moment(self, at: int) -> _Read | None:
        token = self._token(at)
        if token is None or token.kind not in ("moment", "date"):
            return None
        if token.kind == "date":
            day, month, year = (int(part) for part in token.word.split("."))
            return self._day_read(1, self._calendar.dated(day, month, year))
        return self._iso(token.text)

    def _iso(self, text: str) -> _Read | None:
        try:
            moment = datetime.fromisoformat(text.upper())
        except ValueError:
            return None
        if len(text) == 10:
            return _Read(1, self._calendar.days(moment.date()))
        local = moment if moment.tzinfo else moment.replace(tzinfo=self._calendar.zone)
        start = round(local.astimezone(UTC).timestamp() * 1000)
        return _Read(1, Stretch(start, start + CLOCK_MINUTES * MINUTE_MS, point=True))

    def _dated(self, at: int) -> _Read | None:
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

    def _ordinal(self, at: int) -> _Read | None:
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
        back = day > today.day or (named and bool(_LAST & set(which)))
        month, year = (today.month - 1 or 12, today.year) if back else (today.month, today.year)
        year -= month > today.month
        count = self._words.index("month", at) - at + 1 if named else 1
        return self._day_read(count, self._calendar.dated(day, month, year))

    def _half(self, at: int) -> _Read | None:
        """`the first half of October`: of a month up to its 15th, of a year its first six months."""
        if self._word(at) not in ("first", "second") or self._words[at + 1 : at + 3] != ["half", "of"]:
            return None
        found = self._inner(at + 3)
        if found is None or found[1].stretch.recurring or found[1].stretch.point:
            return None
        skipped, one = found
        middle = self._middle(one.stretch)
        halves = (replace(one.stretch, to_ms=middle), replace(one.stretch, from_ms=middle))
        return _Read(3 + skipped + one.count, self._clipped(halves[self._word(at) == "second"]))

    def _middle(self, stretch: Stretch) -> int:
        start = datetime.fromtimestamp(stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone).date()
        days = (stretch.to_ms - stretch.from_ms) / (24 * HOUR_MS)
        if days > 200 and start.day == 1:
            return self._calendar.months(start.year, start.month, 6).to_ms
        if start.day == 1 and days < 32:
            return self._calendar.days(start, 15).to_ms
        return (stretch.from_ms + stretch.to_ms) // 2

    def _numbered_week(self, at: int) -> _Read | None:
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
        return _Read(lead + 2 + (joins + 1 if year else 0), self._clipped(self._calendar.days(first, 7)))

    def _relative(self, at: int) -> _Read | None:
        """`now`, `right now`, `recently` is no time."""
        words = self._words[at : at + 3]
        for phrase in (("right", "now"), ("at", "the", "moment"), ("now",), ("currently",), ("current",)):
            if tuple(words[: len(phrase)]) == phrase and not (phrase == ("now",) and at == 0):
                start = self._calendar.now_ms - NOW_MINUTES * MINUTE_MS
                return _Read(len(phrase), Stretch(start, self._calendar.now_ms))
        return None

    def _named_day(self, at: int) -> _Read | None:
        if self._words[at : at + 3] == ["day", "before", "yesterday"]:
            return _Read(3, self._calendar.unit("day", 2))
        back = {"today": 0, "yesterday": 1}.get(self._word(at))
        if self._word(at) == "tomorrow":
            return _Read(1, self._calendar.ahead("day"))
        if back is None:
            return None
        day = self._calendar.today - timedelta(days=back)
        part = PARTS.get(self._word(at + 1))
        if part is not None:
            return _Read(2, self._hours(day, *part))
        return _Read(1 + self._so_far(at + 1), self._clipped(self._calendar.unit("day", back)))

    def _counted(self, at: int) -> _Read | None:
        """`last 3 months`, `past two weeks`, `24 hours`, `3 days ago`, `next four weeks`."""
        lead = self._word(at)
        start = at + (lead in _LAST or lead == "next")
        skipped = 1 if self._word(start) in ("full", "complete") else 0
        number, taken = self._number(start + skipped)
        word = UNITS.get(self._word(start + skipped + taken), "")
        if number is None or not word or self._word(start + skipped + taken + 1) in _PIECES:
            return None
        if word == "fortnight":
            word, number = "week", 2 * number
        count = start - at + skipped + taken + 1
        if self._word(at + count) == "ago":
            return _Read(count + 1, self._ago(word, number))
        if lead == "next":
            return _Read(count, self._calendar.ahead(word, number))
        if lead not in _LAST and self._word(at + count) in ("before", "ending", "ended"):
            return self._counted_to(at + count, word, number, count)
        if lead not in _LAST and not self._is_length(at):
            return None
        return _Read(count, self._calendar.rolling(word, number))

    def _counted_to(self, at: int, word: str, number: float, count: int) -> _Read | None:
        """`two weeks ending 15 November` ends with that day, `24 hours before 15 November` where it begins."""
        found = self._day_at(at + 1) or self._inner(at + 1)
        if found is None or found[1].stretch.recurring or found[1].stretch.future:
            return None
        skipped, one = found
        is_start = self._word(at) == "before" or one.stretch.point
        end_ms = one.stretch.from_ms if is_start else one.stretch.to_ms
        start_ms = Calendar(self._calendar.zone, end_ms).rolling(word, number).from_ms
        return _Read(count + 1 + skipped + one.count, Stretch(start_ms, end_ms))

    def _is_length(self, at: int) -> bool:
        """Tell whether a bare `24 hours` is a range: after `over`, `in`, `for`, `within` and the like."""
        before = self._word(at - 1)
        if before == "the":
            before = self._word(at - 2)
        return before in ("over", "in", "for", "within", "during", "of", "these")

    def _ago(self, word: str, number: float) -> Stretch:
        if word in ("second", "minute", "hour"):
            start = self._calendar.rolling(word, number).from_ms
            return Stretch(start, start + CLOCK_MINUTES * MINUTE_MS, point=True)
        return self._calendar.unit(word, round(number))

    def _whole_unit(self, at: int) -> _Read | None:
        """`last full month`, `the week before last`, `past fortnight`."""
        lead, middle, unit = ([*self._words[at : at + 3], "", "", ""])[:3]
        if lead in _LAST and UNITS.get(middle) == "fortnight":
            return _Read(2, self._calendar.rolling("week", 2))
        if lead in _LAST and middle in _WHOLE and unit in _CALENDAR_UNITS:
            return _Read(3, self._calendar.unit(unit, 1))
        if lead in _CALENDAR_UNITS and (middle, unit) == ("before", "last"):
            return _Read(3, self._calendar.unit(lead, 2))
        return None

    def _calendar_unit(self, at: int) -> _Read | None:
        """`this month so far`, `last week`, `the past week`, `previous quarter`, `next year`, `week to date`."""
        lead, unit = self._word(at), self._word(at + 1)
        if lead in ("last", "past", "this", "previous") and unit in ("weekend", "night"):
            return self._past_named(at)
        word = UNITS.get(unit, "")
        if not word or word in ("second", "fortnight") or (word != unit and lead != "past"):
            return self._to_date(at)
        if lead in ("this", "current"):
            return _Read(2 + self._so_far(at + 2), self._clipped(self._calendar.unit(word, 0)))
        if lead == "next":
            return _Read(2, replace(self._calendar.unit(word, -1), future=True))
        return self._last_unit(at, word) if lead in _LAST else self._to_date(at)

    def _to_date(self, at: int) -> _Read | None:
        lead = self._word(at)
        if lead in ("ytd", "mtd"):
            return _Read(1, self._clipped(self._calendar.unit("year" if lead == "ytd" else "month", 0)))
        if UNITS.get(lead) and self._words[at + 1 : at + 3] == ["to", "date"]:
            return _Read(3, self._clipped(self._calendar.unit(UNITS[lead], 0)))
        return None

    def _last_unit(self, at: int, word: str) -> _Read:
        lead = self._word(at)
        rolls = lead in ("past", "trailing", "rolling") or word in ("minute", "hour", "day") or self._is_over(at)
        if rolls and lead != "previous":
            return _Read(2, self._calendar.rolling(word, 1))
        return _Read(2, self._calendar.unit(word, 1))

    def _is_over(self, at: int) -> bool:
        """Tell whether `over the last quarter` is meant, which ends now, rather than the quarter before this one."""
        before = self._words[max(at - 2, 0) : at]
        return "over" in before or "within" in before

    def _past_named(self, at: int) -> _Read:
        today = self._calendar.today
        if self._word(at + 1) == "night":
            back = 0 if self._word(at) == "this" else 1
            return _Read(2, self._hours(today - timedelta(days=back), *PARTS["night"]))
        return _Read(2, self._weekend())

    def _weekend(self) -> Stretch:
        saturday = self._calendar.latest(5, today=True)
        return self._clipped(self._calendar.days(saturday, 2))

    def _weekday(self, at: int) -> _Read | None:
        lead = 1 if self._word(at) in ("last", "this", "past", "previous") else 0
        word = self._word(at + lead)
        if word not in WEEKDAYS or (
            word in ("sun", "sat", "mon", "wed", "fri") and self._token_text(at + lead).islower()
        ):
            return None
        if word.endswith("days") and not lead:
            only = frozenset({WEEKDAYS[word] + 1})
            return _Read(1, Stretch(0, 0, recurring=True, weekdays=only))
        day = self._calendar.latest(WEEKDAYS[word], today=self._word(at) == "this")
        part = PARTS.get(self._word(at + lead + 1))
        if part is not None:
            return _Read(lead + 2, self._hours(day, *part))
        return _Read(lead + 1, self._clipped(self._calendar.days(day)))

    def _part_of_day(self, at: int) -> _Read | None:
        """`this morning`, `overnight`, `last night` is read elsewhere."""
        if self._word(at) == "this" and self._word(at + 1) in PARTS:
            return _Read(2, self._hours(self._calendar.today, *PARTS[self._word(at + 1)]))
        if self._word(at) in ("overnight", "tonight"):
            back = 1 if self._word(at) == "overnight" else 0
            return _Read(1, self._hours(self._calendar.today - timedelta(days=back), *PARTS["night"]))
        return None

    def _clock(self, at: int) -> _Read | None:
        found = self._clock_time(at)
        if found is None:
            return None
        count, hour, minute = found
        start = self._calendar.at(self._calendar.today, hour, minute)
        if start > self._calendar.now_ms:
            start = self._calendar.at(self._calendar.today - timedelta(days=1), hour, minute)
        hours = (hour * 60 + minute, hour * 60 + minute)
        return _Read(count, Stretch(start, start + CLOCK_MINUTES * MINUTE_MS, point=True, hours=hours))

    def _clock_time(self, at: int) -> tuple[int, int, int] | None:
        token = self._token(at)
        if token is None:
            return None
        if token.word in ("noon", "midday", "midnight"):
            return 1, 0 if token.word == "midnight" else 12, 0
        after = self._word(at + 1)
        half = 12 if after in ("pm", "p.m") else 0
        if token.kind == "clock":
            hour, minute = (int(part) for part in token.word.split(":")[:2])
            return _checked_clock(2 if half or after in ("am", "a.m") else 1, _twelve(hour, half, after), minute)
        if token.kind == "number" and token.word.isdigit() and after in ("am", "pm", "a.m", "p.m", "o'clock"):
            return _checked_clock(2, _twelve(int(token.word), half, after), 0)
        return None

    def _month(self, at: int) -> _Read | None:
        lead = 1 if self._word(at) in ("last", "this") else 0
        month = MONTHS.get(self._word(at + lead))
        if month is None or (self._word(at) in ("may", "mar") and not self._token_text(at)[0].isupper()):
            return None
        year = self._year_number(at + lead + 1)
        today = self._calendar.today
        chosen = year or (today.year if month <= today.month else today.year - 1)
        stretch = self._calendar.months(chosen, month)
        return _Read(lead + 1 + (year is not None), self._clipped(stretch))

    def _quarter(self, at: int) -> _Read | None:
        word = self._word(at)
        index = {"q1": 1, "q2": 2, "q3": 3, "q4": 4}.get(word)
        count = 1
        if index is None and self._word(at + 1) == "quarter":
            index, count = {"first": 1, "second": 2, "third": 3, "fourth": 4}.get(word), 2
        if index is None:
            return None
        year = self._year_number(at + count)
        today = self._calendar.today
        chosen = year or (today.year if 3 * index - 2 <= today.month else today.year - 1)
        return _Read(count + (year is not None), self._clipped(self._calendar.months(chosen, 3 * index - 2, 3)))

    def _year(self, at: int) -> _Read | None:
        year = self._year_number(at)
        if year is None or self._word(at - 1) not in ("in", "of", "during", "for", "since", "throughout", "year"):
            return None
        stretch = self._calendar.months(year, 1, 12)
        if stretch.from_ms >= self._calendar.now_ms:
            return _Read(1, replace(stretch, future=True))
        return _Read(1, self._clipped(stretch))

    def _left_out(self, at: int) -> _Read | None:
        """`excluding the weekend`, `without weekdays`: the other days of each week."""
        kind = self._word(at).removesuffix("s")
        if kind not in ("weekend", "weekday") or not _LEFT_OUT & set(self._words[max(at - 2, 0) : at]):
            return None
        return _Read(1, Stretch(0, 0, recurring=True, weekdays=_WORKDAYS if kind == "weekend" else _WEEKEND))

    def _recurring(self, at: int) -> _Read | None:
        """`at night`, `on weekends`, `during business hours`: of each day or week, whatever the range."""
        words = self._words[at : at + 2]
        if words == ["at", "night"] or self._word(at) == "nights":
            return _Read(2 if words == ["at", "night"] else 1, Stretch(0, 0, recurring=True, hours=_NIGHT))
        if self._word(at) in ("business", "working", "office") and self._word(at + 1) == "hours":
            return _Read(2, Stretch(0, 0, recurring=True, hours=_OFFICE, weekdays=_WORKDAYS))
        if self._word(at) in ("weekends", "weekdays", "workdays"):
            days = _WEEKEND if self._word(at) == "weekends" else _WORKDAYS
            return _Read(1, Stretch(0, 0, recurring=True, weekdays=days))
        paired = {"weekday", "weekdays"} & set(self._words)
        if paired and self._word(at) in ("weekend", "weekday"):
            days = _WEEKEND if self._word(at) == "weekend" else _WORKDAYS
            return _Read(1, Stretch(0, 0, recurring=True, weekdays=days))
        if self._word(at) == "weekend":
            return _Read(1, self._weekend())
        return None

    def _hours(self, day: date, start: int, end: int) -> Stretch:
        return self._clipped(Stretch(self._calendar.at(day, start), self._calendar.at(day, end)))

    def _clipped(self, stretch: Stretch) -> Stretch:
        """Return a stretch up to now; one that lies ahead is marked."""
        if stretch.from_ms > self._calendar.now_ms:
            return replace(stretch, future=True)
        return replace(stretch, to_ms=min(stretch.to_ms, self._calendar.now_ms))

    def _so_far(self, at: int) -> int:
        return 2 if self._words[at : at + 2] == ["so", "far"] else 0

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
        if token is None or not re.fullmatch(r"\d{1,2}", token.word):
            return None
        return int(token.word) if 1 <= int(token.word) <= 31 else None

    def _year_number(self, at: int) -> int | None:
        token = self._token(at)
        found = token is not None and token.kind == "number" and re.fullmatch(r"(19|20)\d\d", token.word)
        return int(self._word(at)) if found else None

    def _day_read(self, count: int, day: date | None) -> _Read | None:
        if day is None:
            return None
        return _Read(count, self._clipped(self._calendar.days(day)))

    def _token(self, at: int) -> Token | None:
        return self._tokens[at] if 0 <= at < len(self._tokens) else None

    def _word(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _token_text(self, at: int) -> str:
        return self._tokens[at].text if 0 <= at < len(self._tokens) else ""


def _monday(year: int, week: int) -> date | None:
    try:
        return date.fromisocalendar(year, week, 1)
    except ValueError:
        return None


def _twelve(hour: int, half: int, after: str) -> int:
    if after in ("am", "a.m", "pm", "p.m"):
        return hour % 12 + half
    return hour


def _checked_clock(count: int, hour: int, minute: int) -> tuple[int, int, int] | None:
    return (count, hour, minute) if hour <= 24 and minute < 60 else None


def _between(first: Stretch, second: Stretch) -> Stretch | None:
    end = second.from_ms if second.point else second.to_ms
    if first.point and second.point and end <= first.from_ms and first.hours and second.hours:
        end += 24 * HOUR_MS
    if end <= first.from_ms:
        return None
    both = first.point and second.point
    hours = (first.hours[0], second.hours[0]) if both and first.hours and second.hours else None
    return Stretch(first.from_ms, end, point=both, hours=hours)


def _joined(found: Sequence[TimeFound], calendar: Calendar) -> list[TimeFound]:
    """Return stretches with a day and a clock time beside it made one: `yesterday between 14:00 and 16:00`."""
    whole: list[TimeFound] = []
    for one in found:
        before = whole[-1] if whole else None
        if before is not None and one.start - before.end <= 3:
            joined = _day_and_clock(before.stretch, one.stretch, calendar)
            if joined is not None:
                whole[-1] = TimeFound(before.start, one.end, joined)
                continue
        whole.append(one)
    return whole


def _day_and_clock(first: Stretch, second: Stretch, calendar: Calendar) -> Stretch | None:
    day, clock = (second, first) if first.point else (first, second)
    if day.point or not clock.point or clock.hours is None or day.recurring:
        return None
    start = datetime.fromtimestamp(day.from_ms / 1000, UTC).astimezone(calendar.zone)
    if day.to_ms - day.from_ms > 25 * HOUR_MS:
        return None
    begin, end = clock.hours
    from_ms = calendar.at(start.date(), 0, begin)
    to_ms = (
        calendar.at(start.date(), 0, end + (1440 if end < begin else 0))
        if end != begin
        else from_ms + CLOCK_MINUTES * MINUTE_MS
    )
    return Stretch(from_ms, min(to_ms, calendar.now_ms) if to_ms > calendar.now_ms > from_ms else to_ms)
