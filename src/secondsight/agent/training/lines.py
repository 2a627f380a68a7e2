"""Turn raw lines of logs into their text, their time and who wrote them: prefixes of launchers and loggers come off.

Times without a zone are those of a given zone; times without a year are of the year that makes them latest but not
future.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIXES = (
    re.compile(r"\[default(?P<local_rank>\d+)\]:\s?"),
    re.compile(r"\[rank\s?(?P<rank>\d+)\]:\s?"),
    re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr)>:\s?"),
    re.compile(r"(?:stdout|stderr): "),
    re.compile(r"\[[\w.-]+\] "),
    re.compile(r"(?P<rank>\d{1,6}): "),
    re.compile(r"[A-Za-z][\w.-]*-\d+: "),
)
"""What launchers put before a line: torchrun, PyTorch, mpirun, DeepSpeed, Slurm's `srun -l`, pdsh."""

_FULL = re.compile(
    r"\[?(?P<date>\d{4}[-/]\d\d[-/]\d\d)[T_ ](?P<time>\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)"
    r"\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?(?![\d:])"
)
_NAMED = re.compile(r"\[(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2}) (?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d)\]")
_GLOG = re.compile(r"\[?[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d\.\d{1,9})\s")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LOOKED_AT_CHARACTERS = 120
"""A line's time stands near its beginning."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        text: Without prefixes of launchers and without colours.
        time_ms: What the line says of its time, None if nothing.
        who: `rank` and `local_rank` where a prefix tells them.
    """

    text: str
    time_ms: int | None = None
    who: dict[str, str] = field(default_factory=dict)


def cleaned(raw: str, zone: tzinfo, now_ms: int) -> Iterator[Line]:
    """Give the lines that a raw line holds: progress bars write several over each other.

    Args:
        raw: Without its line break.
        zone: Zone of times that name none.
        now_ms: For times that name no year.
    """
    for piece in _ANSI.sub("", raw).split("\r"):
        text, who = _without_prefixes(piece)
        if text.strip():
            yield Line(text, time_of(text, zone, now_ms), who)


def time_of(text: str, zone: tzinfo, now_ms: int) -> int | None:
    """Return the time that a line says at its beginning, epoch ms, or None."""
    head = text[:LOOKED_AT_CHARACTERS]
    try:
        return _full(head, zone) or _named(head, zone) or _glog(head, zone, now_ms)
    except ValueError:
        return None


def _without_prefixes(text: str) -> tuple[str, dict[str, str]]:
    who: dict[str, str] = {}
    for _ in range(4):
        stripped = text.lstrip()
        found = next((match for prefix in _PREFIXES if (match := prefix.match(stripped))), None)
        if found is None:
            break
        who |= {name: value for name, value in found.groupdict().items() if value}
        text = stripped[found.end() :]
    return text, who


def _full(head: str, zone: tzinfo) -> int | None:
    found = _FULL.search(head)
    if found is None:
        return None
    year, month, day = (int(part) for part in re.split("[-/]", found["date"]))
    return _epoch_ms(datetime(year, month, day, tzinfo=_zone(found["zone"], zone)), found["time"])


def _named(head: str, zone: tzinfo) -> int | None:
    found = _NAMED.search(head)
    if found is None or found["month"] not in _MONTHS:
        return None
    month = _MONTHS.index(found["month"]) + 1
    return _epoch_ms(datetime(int(found["year"]), month, int(found["day"]), tzinfo=zone), found["time"])


def _glog(head: str, zone: tzinfo, now_ms: int) -> int | None:
    found = _GLOG.search(head)
    if found is None:
        return None
    year = datetime.fromtimestamp(now_ms / 1000, UTC).year
    for candidate in (year + 1, year):
        day = datetime(candidate, int(found["month"]), int(found["day"]), tzinfo=zone)
        time_ms = _epoch_ms(day, found["time"])
        if time_ms <= now_ms + 86_400_000:
            return time_ms
    return _epoch_ms(datetime(year - 1, int(found["month"]), int(found["day"]), tzinfo=zone), found["time"])


def _epoch_ms(day: datetime, time: str) -> int:
    parts = [*time.replace(",", ".").split(":"), "0"]
    whole, _, fraction = parts[2].partition(".")
    moment = day.replace(hour=int(parts[0]), minute=int(parts[1]), second=min(int(whole), 59))
    return int(moment.timestamp()) * 1000 + int((fraction + "000")[:3])


def _zone(text: str | None, otherwise: tzinfo) -> tzinfo:
    if not text:
        return otherwise
    if text in ("Z", "UTC"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    hours, minutes = int(text[1:3]), int(text[-2:])
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
