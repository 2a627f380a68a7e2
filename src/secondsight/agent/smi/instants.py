"""Turn written times into instants: RFC 3339 with its zone, and local times of a zone that somebody named.

An instant is an integer of microseconds since 1970, UTC. Finer digits are cut off, never rounded up, so that nothing
moves into the next second. A local time that a zone has twice is settled by the times around it, or refused.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from secondsight.errors import Rejected

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JITTER_US = 5_000_000
NEAR_US = 3_600_000_000
"""A row so soon after another is taken as its successor."""

_FRACTION = re.compile(r"(\d{2}:\d{2}:\d{2})[.,](\d+)")
_OFFSET = re.compile(r"(?:utc|gmt)?([+-])(\d{1,2}):?(\d{2})?", re.IGNORECASE).fullmatch
_LOCAL_FORMS = (
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S",
    "%Y%m%d %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
)


def rfc3339_us(text: str) -> int:
    """Return the instant of an RFC 3339 text with a zone.

    Raises:
        Rejected: `bad_time`; `no_zone` where it names no zone.
    """
    moment = _zoned(text.strip())
    if moment is None:
        raise Rejected("bad_time", f"{text!r} is no time", "write RFC 3339 such as 2026-11-29T10:00:00Z")
    if moment.tzinfo is None:
        raise Rejected("no_zone", f"{text!r} names no zone", "append Z or an offset such as +02:00")
    return _us(moment)


def zone_of(text: str) -> tzinfo:
    """Return the zone that a name of the IANA list, `UTC` or an offset such as `+02:00` means.

    Raises:
        Rejected: `bad_zone`.
    """
    written = text.strip()
    offset = _OFFSET(written)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if written.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(written)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Rejected("bad_zone", f"{text!r} is no time zone", "such as Europe/Berlin, UTC or +02:00") from None


class LocalTimes:
    """Resolves the times of one text in their order."""

    def __init__(self, zone: tzinfo | None) -> None:
        self._zone = zone
        self._before: int | None = None

    def resolve(self, text: str) -> int:
        """Return the instant of a written time.

        Raises:
            Rejected: `bad_time`, `no_zone`, `no_such_time` (clocks were put forward over it), `ambiguous_time`.
        """
        moment = _zoned(text.strip())
        if moment is None or moment.tzinfo is None:
            local = moment or _local(text)
            if local is None:
                raise Rejected("bad_time", f"{text!r} is no time that nvidia-smi prints")
            instant = self._of_local(local, text)
        else:
            instant = _us(moment)
        self._before = instant
        return instant

    def _of_local(self, local: datetime, text: str) -> int:
        if self._zone is None:
            raise Rejected("no_zone", f"{text} is a local time and names no zone", "give --timezone")
        found = [_us(local.replace(tzinfo=self._zone, fold=fold)) for fold in (0, 1)]
        real = sorted({us for us in found if _is_local(us, self._zone, local)})
        if not real:
            raise Rejected("no_such_time", f"{text} does not exist there: clocks were put forward over it")
        return real[0] if len(real) == 1 else self._settled(real, text)

    def _settled(self, both: list[int], text: str) -> int:
        """Return which of two instants of one local time is meant: the one that follows the row before it."""
        if self._before is not None:
            later = [us for us in both if us - self._before + JITTER_US >= 0]
            if later and later[0] - self._before <= NEAR_US:
                return later[0]
        hint = "clocks were put back over it; give --timezone as an offset such as +02:00"
        raise Rejected("ambiguous_time", f"{text} happens twice there", hint)


def _zoned(text: str) -> datetime | None:
    """Return the time of an RFC 3339 text, digits beyond microseconds cut off; None if it is none."""
    cut = _FRACTION.sub(lambda found: f"{found[1]}.{found[2][:6].ljust(6, '0')}", text)
    try:
        cut.encode("ascii")
        return datetime.fromisoformat(cut)
    except ValueError:
        return None


def _local(text: str) -> datetime | None:
    cut = _FRACTION.sub(lambda found: f"{found[1]}.{found[2][:6].ljust(6, '0')}", " ".join(text.split()))
    for form in _LOCAL_FORMS:
        try:
            return datetime.strptime(cut, form)  # noqa: DTZ007 - the zone is added by whoever asks
        except ValueError:
            continue
    return None


def _us(moment: datetime) -> int:
    elapsed = moment - EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _is_local(us: int, zone: tzinfo, local: datetime) -> bool:
    """Tell whether clocks of a zone show this local time at an instant."""
    shown = (EPOCH + timedelta(microseconds=us)).astimezone(zone)
    return shown.replace(tzinfo=None) == local.replace(tzinfo=None)
