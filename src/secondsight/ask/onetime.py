"""Read one time: a day, a clock time, `last week`, `3 days ago`, `at night`.

Calendar words (`last week`) mean whole units of the asker's zone; counts (`last 2 weeks`) and `the past week` end now.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from secondsight.ask.calendar import HOUR_MS, MINUTE_MS, Calendar, Stretch
from secondsight.ask.datewords import DateReader
from secondsight.ask.timetokens import CLOCK_MINUTES, LAST, PARTS, UNITS, WEEKDAYS, Read

NOW_MINUTES = 5
"""`right now` means so many minutes."""
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


class OneTimeReader(DateReader):
    """Reads the time that stands at a token."""

    def _day_at(self, at: int) -> tuple[int, Read] | None:
        """`5 Nov 08:00`, `yesterday at 2 pm`: a moment of a day."""
        day = self._inner(at)
        if day is None or day[1].stretch.point or day[1].stretch.recurring:
            return None
        skipped, one = day
        end = at + skipped + one.count
        lead = 1 if self._word(end) in ("at", ",") else 0
        clock = self._clock(end + lead)
        joined = day_and_clock(one.stretch, clock.stretch, self._calendar) if clock is not None else None
        if clock is None or joined is None:
            return None
        return skipped, Read(one.count + lead + clock.count, replace(joined, point=True))

    def _inner(self, at: int) -> tuple[int, Read] | None:
        """Return what is meant at a place or after a few words that lead to it, with the number of those."""
        skipped = 0
        while self._word(at + skipped) in _LEAD | {"beginning", "start", "around"} and skipped < 4:
            skipped += 1
        for less in range(skipped, -1, -1):
            found = self._one(at + less)
            if found is not None:
                return less, found
        return None

    def _one(self, at: int) -> Read | None:
        readers: tuple[Callable[[int], Read | None], ...] = (
            self._moment, self._part_of_date, self._dated, self._half, self._numbered_week, self._relative,
            self._named_day, self._counted, self._whole_unit, self._calendar_unit, self._weekday, self._part_of_day,
            self._left_out, self._clock, self._month, self._quarter, self._year, self._recurring,
        )  # fmt: skip
        for reader in readers:
            found = reader(at)
            if found is not None:
                return found
        return None

    def _half(self, at: int) -> Read | None:
        """`the first half of October`: of a month up to its 15th, of a year its first six months."""
        if self._word(at) not in ("first", "second", "1st", "2nd") or self._word(at + 1) != "half":
            return self._half_year(at)
        count = 3 if self._word(at + 2) in ("of", "in") else 2
        year = self._year_number(at + count)
        if year is not None:
            return self._half_of(year, self._word(at) in ("first", "1st"), count + 1)
        found = self._inner(at + 3) if count == 3 else None
        if found is None or found[1].stretch.recurring or found[1].stretch.point:
            return None
        skipped, one = found
        middle = self._middle(one.stretch)
        halves = (replace(one.stretch, to_ms=middle), replace(one.stretch, from_ms=middle))
        return Read(3 + skipped + one.count, self._clipped(halves[self._word(at) in ("second", "2nd")]))

    def _part_of_date(self, at: int) -> Read | None:
        """`2 November evening`, `the morning of 2 November`, `the night of the 2nd`."""
        lead = 2 if self._word(at) in PARTS and self._word(at + 1) in ("of", "on") else 0
        lead += 1 if lead and self._word(at + lead) == "the" else 0
        found = self._dated(at + lead) or self._moment(at + lead)
        part = PARTS.get(self._word(at) if lead else self._word(at + found.count) if found else "")
        if found is None or part is None or found.stretch.point:
            return None
        day = datetime.fromtimestamp(found.stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone).date()
        return Read((lead or 1) + found.count, self._hours(day, *part))

    def _middle(self, stretch: Stretch) -> int:
        start = datetime.fromtimestamp(stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone).date()
        days = (stretch.to_ms - stretch.from_ms) / (24 * HOUR_MS)
        if days > 200 and start.day == 1:
            return self._calendar.months(start.year, start.month, 6).to_ms
        if start.day == 1 and days < 32:
            return self._calendar.days(start, 15).to_ms
        return (stretch.from_ms + stretch.to_ms) // 2

    def _relative(self, at: int) -> Read | None:
        """`now`, `right now`, `recently` is no time."""
        words = self._words[at : at + 3]
        for phrase in (("right", "now"), ("at", "the", "moment"), ("now",), ("currently",), ("current",)):
            if tuple(words[: len(phrase)]) == phrase and not (phrase == ("now",) and at == 0):
                start = self._calendar.now_ms - NOW_MINUTES * MINUTE_MS
                return Read(len(phrase), Stretch(start, self._calendar.now_ms))
        return None

    def _named_day(self, at: int) -> Read | None:
        if self._words[at : at + 3] == ["day", "before", "yesterday"]:
            return Read(3, self._calendar.unit("day", 2))
        back = {"today": 0, "yesterday": 1}.get(self._word(at))
        if self._word(at) == "tomorrow":
            return Read(1, self._calendar.ahead("day"))
        if back is None:
            return None
        day = self._calendar.today - timedelta(days=back)
        part = PARTS.get(self._word(at + 1))
        if part is not None:
            return Read(2, self._hours(day, *part))
        return Read(1 + self._so_far(at + 1), self._clipped(self._calendar.unit("day", back)))

    def _counted(self, at: int) -> Read | None:
        """`last 3 months`, `past two weeks`, `24 hours`, `3 days ago`, `next four weeks`."""
        lead = self._word(at)
        start = at + (lead in LAST or lead == "next")
        skipped = 1 if self._word(start) in ("full", "complete") else 0
        number, taken = self._number(start + skipped)
        word = UNITS.get(self._word(start + skipped + taken), "")
        if number is None or not word or self._word(start + skipped + taken + 1) in _PIECES:
            return None
        if word == "fortnight":
            word, number = "week", 2 * number
        count = start - at + skipped + taken + 1
        if self._word(at + count) == "ago":
            return Read(count + 1, self._ago(word, number))
        if lead == "next":
            return Read(count, self._calendar.ahead(word, number))
        if lead not in LAST and self._word(at + count) in ("before", "ending", "ended"):
            return self._counted_to(at + count, word, number, count)
        if lead not in LAST and not self._is_length(at):
            return None
        return Read(count, self._calendar.rolling(word, number))

    def _counted_to(self, at: int, word: str, number: float, count: int) -> Read | None:
        """`two weeks ending 15 November` ends with that day, `24 hours before 15 November` where it begins."""
        found = self._day_at(at + 1) or self._inner(at + 1)
        if found is None or found[1].stretch.recurring or found[1].stretch.future:
            return None
        skipped, one = found
        is_start = self._word(at) == "before" or one.stretch.point
        end_ms = one.stretch.from_ms if is_start else one.stretch.to_ms
        start_ms = Calendar(self._calendar.zone, end_ms).rolling(word, number).from_ms
        return Read(count + 1 + skipped + one.count, Stretch(start_ms, end_ms))

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

    def _whole_unit(self, at: int) -> Read | None:
        """`last full month`, `the week before last`, `past fortnight`."""
        lead, middle, unit = ([*self._words[at : at + 3], "", "", ""])[:3]
        if lead in LAST and UNITS.get(middle) == "fortnight":
            return Read(2, self._calendar.rolling("week", 2))
        if lead in LAST and middle in _WHOLE and unit in _CALENDAR_UNITS:
            return Read(3, self._calendar.unit(unit, 1))
        if lead in _CALENDAR_UNITS and (middle, unit) == ("before", "last"):
            return Read(3, self._calendar.unit(lead, 2))
        return None

    def _calendar_unit(self, at: int) -> Read | None:
        """`this month so far`, `last week`, `the past week`, `previous quarter`, `next year`, `week to date`."""
        lead, unit = self._word(at), self._word(at + 1)
        if lead in ("last", "past", "this", "previous") and unit in ("weekend", "night"):
            return self._past_named(at)
        word = UNITS.get(unit, "")
        if not word or word in ("second", "fortnight") or (word != unit and lead != "past"):
            return self._to_date(at)
        if lead in ("this", "current"):
            return Read(2 + self._so_far(at + 2), self._clipped(self._calendar.unit(word, 0)))
        if lead == "next":
            return Read(2, replace(self._calendar.unit(word, -1), future=True))
        return self._last_unit(at, word) if lead in LAST else self._to_date(at)

    def _to_date(self, at: int) -> Read | None:
        lead = self._word(at)
        if lead in ("ytd", "mtd"):
            return Read(1, self._clipped(self._calendar.unit("year" if lead == "ytd" else "month", 0)))
        if UNITS.get(lead) and self._words[at + 1 : at + 3] == ["to", "date"]:
            return Read(3, self._clipped(self._calendar.unit(UNITS[lead], 0)))
        return None

    def _last_unit(self, at: int, word: str) -> Read:
        lead = self._word(at)
        rolls = lead in ("past", "trailing", "rolling") or word in ("minute", "hour", "day") or self._is_over(at)
        if rolls and lead != "previous":
            return Read(2, self._calendar.rolling(word, 1))
        return Read(2, self._calendar.unit(word, 1))

    def _is_over(self, at: int) -> bool:
        """Tell whether `over the last quarter` is meant, which ends now, rather than the quarter before this one."""
        before = self._words[max(at - 2, 0) : at]
        return "over" in before or "within" in before

    def _past_named(self, at: int) -> Read:
        today = self._calendar.today
        if self._word(at + 1) == "night":
            back = 0 if self._word(at) == "this" else 1
            return Read(2, self._hours(today - timedelta(days=back), *PARTS["night"]))
        return Read(2, self._weekend())

    def _weekend(self) -> Stretch:
        saturday = self._calendar.latest(5, today=True)
        return self._clipped(self._calendar.days(saturday, 2))

    def _weekday(self, at: int) -> Read | None:
        lead = 1 if self._word(at) in ("last", "this", "past", "previous") else 0
        word = self._word(at + lead)
        if word not in WEEKDAYS or (
            word in ("sun", "sat", "mon", "wed", "fri") and self._token_text(at + lead).islower()
        ):
            return None
        if word.endswith("days") and not lead:
            only = frozenset({WEEKDAYS[word] + 1})
            return Read(1, Stretch(0, 0, recurring=True, weekdays=only))
        day = self._calendar.latest(WEEKDAYS[word], today=self._word(at) == "this")
        part = PARTS.get(self._word(at + lead + 1))
        if part is not None:
            return Read(lead + 2, self._hours(day, *part))
        return Read(lead + 1, self._clipped(self._calendar.days(day)))

    def _part_of_day(self, at: int) -> Read | None:
        """`this morning`, `overnight`, `last night` is read elsewhere."""
        if self._word(at) == "this" and self._word(at + 1) in PARTS:
            return Read(2, self._hours(self._calendar.today, *PARTS[self._word(at + 1)]))
        if self._word(at) in ("overnight", "tonight"):
            back = 1 if self._word(at) == "overnight" else 0
            return Read(1, self._hours(self._calendar.today - timedelta(days=back), *PARTS["night"]))
        return None

    def _clock(self, at: int) -> Read | None:
        found = self._clock_time(at)
        if found is None:
            return None
        count, hour, minute = found
        start = self._calendar.at(self._calendar.today, hour, minute)
        if start > self._calendar.now_ms:
            start = self._calendar.at(self._calendar.today - timedelta(days=1), hour, minute)
        hours = (hour * 60 + minute, hour * 60 + minute)
        return Read(count, Stretch(start, start + CLOCK_MINUTES * MINUTE_MS, point=True, hours=hours))

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

    def _left_out(self, at: int) -> Read | None:
        """`excluding the weekend`, `without weekdays`: the other days of each week."""
        kind = self._word(at).removesuffix("s")
        if kind not in ("weekend", "weekday") or not _LEFT_OUT & set(self._words[max(at - 2, 0) : at]):
            return None
        return Read(1, Stretch(0, 0, recurring=True, weekdays=_WORKDAYS if kind == "weekend" else _WEEKEND))

    def _recurring(self, at: int) -> Read | None:
        """`at night`, `on weekends`, `during business hours`: of each day or week, whatever the range."""
        words = self._words[at : at + 2]
        if words == ["at", "night"] or self._word(at) == "nights":
            return Read(2 if words == ["at", "night"] else 1, Stretch(0, 0, recurring=True, hours=_NIGHT))
        if self._word(at) in ("business", "working", "office") and self._word(at + 1) == "hours":
            return Read(2, Stretch(0, 0, recurring=True, hours=_OFFICE, weekdays=_WORKDAYS))
        if self._word(at) in ("weekends", "weekdays", "workdays"):
            days = _WEEKEND if self._word(at) == "weekends" else _WORKDAYS
            return Read(1, Stretch(0, 0, recurring=True, weekdays=days))
        paired = {"weekday", "weekdays"} & set(self._words)
        if paired and self._word(at) in ("weekend", "weekday"):
            days = _WEEKEND if self._word(at) == "weekend" else _WORKDAYS
            return Read(1, Stretch(0, 0, recurring=True, weekdays=days))
        if self._word(at) == "weekend":
            return Read(1, self._weekend())
        return None

    def _so_far(self, at: int) -> int:
        return 2 if self._words[at : at + 2] == ["so", "far"] else 0


def _twelve(hour: int, half: int, after: str) -> int:
    if after in ("am", "a.m", "pm", "p.m"):
        return hour % 12 + half
    return hour


def _checked_clock(count: int, hour: int, minute: int) -> tuple[int, int, int] | None:
    return (count, hour, minute) if hour <= 24 and minute < 60 else None


def day_and_clock(first: Stretch, second: Stretch, calendar: Calendar) -> Stretch | None:
    """Return the hours of a day that a day and a clock time mean; None where they are no such two."""
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
