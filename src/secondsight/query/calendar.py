"""Turn a time zone and a width into the instants at which its windows begin: days, months and hours of local clocks.

Windows of less than a day begin at local midnight. Where a change of clocks is a multiple of their width all of them
are of that width: an hour that comes twice is two windows of an hour. Else they follow the clock on the wall: the one
that holds the hour which a change leaves out is that much shorter, and the one in which an hour comes twice is longer.
A day may have 23 or 25 hours. All windows of a day together are the day. Several days together are counted from
1 January 1970, as windows of UTC are.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from secondsight.errors import Rejected

DAY_MS = 86_400_000
FROM_MS = 1_800_000
"""Narrower windows begin at the same instants in every zone: offsets are whole quarters of an hour."""
MONTH = "1mo"
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Calendar:
    """Whose clocks windows follow.

    Attributes:
        zone: Name of the time zone, as the tz database has it.
        months: Months in a window; 0 where its width is a time.
    """

    zone: str
    months: int = 0


def parse_zone(name: str) -> str:
    """Return the name of a time zone.

    Raises:
        Rejected(bad_timezone): There is none of that name.
    """
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Rejected(
            "bad_timezone", f"{name[:80]!r} is no time zone", "name one such as Europe/Berlin, or UTC"
        ) from None


def edges_of(calendar: Calendar, width_ms: int, from_ms: int, to_ms: int) -> tuple[int, ...]:
    """Return where the windows that hold a range begin, ascending, and where the last one ends; epoch ms.

    Args:
        calendar: Whose clocks.
        width_ms: Width of a window; a day is as long as the zone makes it.
        from_ms: First instant that a window has to hold.
        to_ms: End of the last one, at least.
    """
    zone = ZoneInfo(calendar.zone)
    first = datetime.fromtimestamp(from_ms / 1000, zone).date()
    last = datetime.fromtimestamp(to_ms / 1000, zone).date()
    local = _months(first, last, calendar.months) if calendar.months else _times(first, last, width_ms)
    edges = sorted({edge_s * 1000 for moment in local for edge_s in _instants(moment, zone, width_ms // 1000)})
    begin = max(place for place, edge in enumerate(edges) if edge <= from_ms)
    end = min(place for place, edge in enumerate(edges) if edge >= to_ms)
    return tuple(edges[begin : max(end, begin + 1) + 1])


def unequal_windows(edges: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (start, width) in ms of the windows that are not as long as most are."""
    widths = [(start, end - start) for start, end in pairwise(edges)]
    counts: dict[int, int] = {}
    for _, width in widths:
        counts[width] = counts.get(width, 0) + 1
    usual = max(counts, key=lambda width: counts[width], default=0)
    return [(start, width) for start, width in widths if width != usual]


def _times(first: date, last: date, width_ms: int) -> Iterator[datetime]:
    """Yield the local starts of windows of a width from before a day to after another."""
    days = max(width_ms // DAY_MS, 1)
    day = date.fromordinal(first.toordinal() - (first.toordinal() - _EPOCH_DAY) % days)
    while day.toordinal() <= last.toordinal() + 2 * days:
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a time on the wall
        for shift_ms in range(0, DAY_MS, min(width_ms, DAY_MS)):
            yield midnight + timedelta(milliseconds=shift_ms)
        day += timedelta(days=days)


def _instants(moment: datetime, zone: ZoneInfo, width_s: int) -> tuple[int, ...]:
    """Return the instants, in epoch s, at which windows begin whose local start is a moment.

    One that comes twice is two where windows are no wider than the change. One that is left out is the change itself,
    or, where the change is a multiple of the width, what the clock would have shown without it.
    """
    early_s, late_s = (round(moment.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    if early_s == late_s:
        return (early_s,)
    is_narrow = 0 < width_s <= abs(late_s - early_s)
    if early_s < late_s:
        return (early_s, late_s) if is_narrow else (early_s,)
    if is_narrow and (early_s - late_s) % width_s == 0:
        return (early_s,)
    return (_change_between(late_s, early_s, zone),)


def _change_between(from_s: int, to_s: int, zone: ZoneInfo) -> int:
    """Return the first instant after one, up to another, at which clocks are not as they were at the first."""
    before = datetime.fromtimestamp(from_s - 1, zone).utcoffset()
    later = range(from_s, to_s + 1)
    return later[bisect_left(later, True, key=lambda at_s: datetime.fromtimestamp(at_s, zone).utcoffset() != before)]


def _months(first: date, last: date, months: int) -> Iterator[datetime]:
    number = (first.year * 12 + first.month - 1) // months * months
    while number <= last.year * 12 + last.month - 1 + 2 * months:
        yield datetime(number // 12, number % 12 + 1, 1)  # noqa: DTZ001 - a time on the wall
        number += months
