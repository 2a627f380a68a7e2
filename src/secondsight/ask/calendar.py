"""Cut time in a zone: days of 23, 24 or 25 hours, weeks from Monday, months, quarters, years."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from secondsight.errors import Rejected

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A half-open stretch of time in epoch ms; `point` where a clock time was meant.

    Attributes:
        future: True where it lies after now.
        recurring: True where the words name hours of each day or days of each week, whatever the range.
        hours: Local hours [from, to) of each day, or None.
        weekdays: ISO weekdays, or None.
        backwards: True where the words name an end before the beginning; what it spans means nothing then.
    """

    from_ms: int
    to_ms: int
    point: bool = False
    future: bool = False
    recurring: bool = False
    hours: tuple[int, int] | None = None
    weekdays: frozenset[int] | None = None
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Calendar:
    """The calendar of a zone at a moment."""

    zone: ZoneInfo
    now_ms: int

    @property
    def now(self) -> datetime:
        """Return the local time now."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC).astimezone(self.zone)

    @property
    def today(self) -> date:
        """Return the local date now."""
        return self.now.date()

    def at(self, day: date, hour: int = 0, minute: int = 0) -> int:
        """Return the epoch ms of a local time; hour 24 is the next midnight."""
        moment = datetime(day.year, day.month, day.day, tzinfo=self.zone) + timedelta(hours=hour, minutes=minute)
        return round(moment.astimezone(UTC).timestamp() * 1000)

    def days(self, first: date, count: int = 1) -> Stretch:
        """Return whole local days."""
        return Stretch(self.at(first), self.at(first + timedelta(days=count)))

    def week(self, day: date) -> Stretch:
        """Return the week from Monday that a day is in."""
        return self.days(day - timedelta(days=day.weekday()), 7)

    def months(self, year: int, month: int, count: int = 1) -> Stretch:
        """Return whole months; `month` may lie outside 1 to 12 and then means other years."""
        return Stretch(self.at(_first_of(year, month)), self.at(_first_of(year, month + count)))

    def unit(self, word: str, back: int) -> Stretch:
        """Return the calendar `word` (hour, day, week, month, quarter, year) that lies `back` before this one."""
        today = self.today
        match word:
            case "hour":
                start = self.now_ms - self.now_ms % HOUR_MS - back * HOUR_MS
                return Stretch(start, start + HOUR_MS)
            case "day":
                return self.days(today - timedelta(days=back))
            case "week":
                return self.week(today - timedelta(weeks=back))
            case "month":
                return self.months(today.year, today.month - back)
            case "quarter":
                return self.months(today.year, (today.month - 1) // 3 * 3 + 1 - 3 * back, 3)
            case _:
                return self.months(today.year - back, 1, 12)

    def rolling(self, word: str, count: float) -> Stretch:
        """Return the stretch of `count` units that ends now."""
        now = self.now
        if word in ("month", "quarter", "year"):
            months = round(count * {"month": 1, "quarter": 3, "year": 12}[word])
            day = _first_of(now.year, now.month - months)
            last = (_first_of(day.year, day.month + 1) - timedelta(days=1)).day
            start = now.replace(year=day.year, month=day.month, day=min(now.day, last))
            return Stretch(round(start.astimezone(UTC).timestamp() * 1000), self.now_ms)
        width = {"second": 1000, "minute": MINUTE_MS, "hour": HOUR_MS, "day": DAY_MS, "week": 7 * DAY_MS}[word]
        return Stretch(self.now_ms - round(count * width), self.now_ms)

    def ahead(self, word: str, count: float = 1) -> Stretch:
        """Return `count` units after now."""
        back = self.rolling(word, count)
        return Stretch(self.now_ms, self.now_ms + (back.to_ms - back.from_ms), future=True)

    def latest(self, weekday: int, *, today: bool = False) -> date:
        """Return the last day of this weekday (0 is Monday) before today, or today where it is one and may count."""
        back = (self.today.weekday() - weekday) % 7
        return self.today - timedelta(days=back or (0 if today else 7))

    def dated(self, day: int, month: int, year: int | None) -> date | None:
        """Return a date; without a year the last one that is not in the future; None where there is no such day."""
        years = [year] if year else [self.today.year, self.today.year - 1]
        for one in years:
            try:
                found = date(one, month, day)
            except ValueError:
                continue
            if year or found <= self.today:
                return found
        return None


def zone_of(name: str) -> ZoneInfo:
    """Return a zone by its name.

    Raises:
        Rejected(bad_zone): There is no such zone.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "name one such as Europe/Berlin or America/New_York"
        raise Rejected("bad_zone", f"there is no time zone {name[:40]!r}", hint) from None


def _first_of(year: int, month: int) -> date:
    shift, index = divmod(month - 1, 12)
    return date(year + shift, index + 1, 1)
