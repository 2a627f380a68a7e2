"""Read the words of time: `yesterday`, `last 3 months`, `since Monday`, `from 14:00 to 16:00 on 2 Nov`.

Nothing here knows of questions; it turns words into stretches of time, with the tokens they took.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from secondsight.ask.calendar import HOUR_MS, Calendar, Stretch
from secondsight.ask.onetime import OneTimeReader, day_and_clock
from secondsight.ask.timetokens import ORDINALS, PARTS, UNITS, WEEKDAYS, Read

LIFE_DAYS = 400
"""So far back a question looks that asks for the whole life of something."""
_WEEKS_OF_MONTH = 4
_PIECE_DAYS = {"week": 7, "day": 1}
_STARTS = frozenset({"start", "started", "starts", "began", "begun", "beginning", "launch", "launched", "submitted"})
_THEM = frozenset({"it", "its", "they", "their", "job", "jobs", "run", "training", "gpu", "host", "node", "cluster"})
_OF_THEM = _THEM | {"the", "this", "that", "these", "those", "was", "were", "has", "have", "had", "been", "first"}


@dataclass(frozen=True, slots=True)
class TimeFound:
    """A stretch of time that the tokens [start, end) mean."""

    start: int
    end: int
    stretch: Stretch


class TimeReader(OneTimeReader):
    """Reads times out of the tokens of one question."""

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

    def _range(self, at: int) -> Read | None:
        for reader in (
            self._since,
            self._piece_of_month,
            self._night_between,
            self._days_of_month,
            self._from_to,
            self._whole_weeks,
            self._one,
        ):
            found = reader(at)
            if found is not None:
                return found
        return None

    def _since(self, at: int) -> Read | None:
        """`since Monday`, `starting in September`, `from 2 Nov on`."""
        if self._word(at) not in ("since", "starting", "beginning"):
            return None
        whole_life = self._whole_life(at)
        if whole_life is not None:
            return whole_life
        found = self._start_of(at + 1) or self._inner(at + 1)
        if found is None or found[1].stretch.future:
            return None
        skipped, one = found
        return Read(1 + skipped + one.count, Stretch(one.stretch.from_ms, self._calendar.now_ms))

    def _whole_life(self, at: int) -> Read | None:
        """`since it started`, `since its start`, `since the job began`: as far back as anything is looked for."""
        for end in range(at + 2, at + 7):
            word, between = self._word(end), set(self._words[at + 1 : end])
            if word in _STARTS and between <= _OF_THEM and between & _THEM:
                return Read(end + 1 - at, self._calendar.rolling("day", LIFE_DAYS))
        return None

    def _start_of(self, at: int) -> tuple[int, Read] | None:
        """`the beginning of the month`: of this one."""
        words = [word for word in self._words[at : at + 5] if word not in ("the", "this")]
        unit = UNITS.get(words[2], "") if len(words) > 2 else ""
        if not unit or words[0] not in ("beginning", "start") or words[1] != "of":
            return None
        return self._words.index(words[2], at) - at, Read(1, self._calendar.unit(unit, 0))

    def _piece_of_month(self, at: int) -> Read | None:
        """`the second week of May`, `the last day of October`: seven days, or one, counted from its start or end."""
        number = -1 if self._word(at) == "last" else ORDINALS.get(self._word(at))
        days = _PIECE_DAYS.get(self._word(at + 1))
        whole = self._month(at + 3) if number and days and self._word(at + 2) == "of" else None
        if whole is None or number is None or days is None or (days > 1 and number > _WEEKS_OF_MONTH):
            return None
        month = self._calendar.months(*self._month_at(whole.stretch))
        first, end = (self._date_of(ms) for ms in (month.from_ms, month.to_ms))
        start = end - timedelta(days=days) if number < 0 else first + timedelta(days=days * (number - 1))
        return Read(3 + whole.count, self._clipped(self._calendar.days(start, min(days, (end - start).days))))

    def _month_at(self, stretch: Stretch) -> tuple[int, int]:
        first = self._date_of(stretch.from_ms)
        return first.year, first.month

    def _date_of(self, time_ms: int) -> date:
        return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone(self._calendar.zone).date()

    def _night_between(self, at: int) -> Read | None:
        """`the night from 18 to 19 November`: from the evening of the one to the morning of the other."""
        if self._word(at) != "night":
            return None
        skipped = 1 if self._word(at + 1) in ("of", "on") else 0
        days = self._days_of_month(at + 1 + skipped) or self._from_to(at + 1 + skipped)
        if days is None or days.stretch.point or days.stretch.recurring:
            return None
        zone = self._calendar.zone
        first, end = (
            datetime.fromtimestamp(ms / 1000, UTC).astimezone(zone).date()
            for ms in (days.stretch.from_ms, days.stretch.to_ms - 1)
        )
        if (end - first).days != 1:
            return None
        return Read(1 + skipped + days.count, self._hours(first, *PARTS["night"]))

    def _days_of_month(self, at: int) -> Read | None:
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
        return None if joined is None else Read(lead + 2 + last.count, joined)

    def _from_to(self, at: int) -> Read | None:
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
            return Read(end - at, Stretch(0, 0, recurring=True, weekdays=days))
        if joined is None and lead and not first[1].stretch.point:
            return Read(end - at, replace(first[1].stretch, backwards=True))
        return None if joined is None else Read(end - at, joined)

    def _weekdays_to(self, first: int, last: int) -> frozenset[int]:
        """Return the days of each week from one weekday to a later one, where two words name such."""
        start, end = WEEKDAYS.get(self._word(first)), WEEKDAYS.get(self._word(last))
        if start is None or end is None or end <= start:
            return frozenset()
        return frozenset(range(start + 1, end + 2))

    def _whole_weeks(self, at: int) -> Read | None:
        """`the week of 2 November`; `the weeks of A and B` gives A here, and B is read as a week by `_second_week`."""
        if self._word(at) not in ("week", "weeks") or self._word(at + 1) not in ("of", "from", "starting", "beginning"):
            return self._second_week(at)
        found = self._inner(at + 2)
        if found is None or found[1].stretch.to_ms - found[1].stretch.from_ms > 26 * HOUR_MS:
            return None
        skipped, one = found
        return Read(2 + skipped + one.count, self._week_of(one.stretch))

    def _second_week(self, at: int) -> Read | None:
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
        return Read(1 + skipped + one.count, self._week_of(one.stretch))

    def _week_of(self, stretch: Stretch) -> Stretch:
        moment = datetime.fromtimestamp(stretch.from_ms / 1000, UTC).astimezone(self._calendar.zone)
        return self._calendar.week(moment.date())


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
            joined = day_and_clock(before.stretch, one.stretch, calendar)
            if joined is not None:
                whole[-1] = TimeFound(before.start, one.end, joined)
                continue
        whole.append(one)
    return whole
