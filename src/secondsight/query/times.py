"""Turn written times and widths into epoch milliseconds and back."""

import re
from datetime import UTC, datetime

from secondsight.errors import Rejected

UNITS_MS: dict[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
TIME_MAXIMUM_MS = 4_102_444_800_000
WIDTH_MAXIMUM_MS = 366 * 86_400_000
_WIDTH = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)", re.ASCII)
_RELATIVE = re.compile(r"now(?:([+-])(\d{1,9})(ms|s|m|h|d|w))?", re.ASCII)
_EPOCH = re.compile(r"\d{1,15}", re.ASCII)
_HINT = "write RFC 3339 such as 2026-11-29T10:00:00Z, epoch milliseconds, or now-15m"


def parse_time(text: str, now_ms: int) -> int:
    """Return the epoch milliseconds that RFC 3339, epoch milliseconds or `now-15m` means.

    Raises:
        Rejected(bad_time): It is none of these, or names no zone, or lies outside 1970 to 2100.
    """
    written = text.strip()
    relative = _RELATIVE.fullmatch(written)
    if relative is not None:
        sign, count, unit = relative.groups()
        shift_ms = int(count) * UNITS_MS[unit] if count else 0
        return _checked(now_ms - shift_ms if sign == "-" else now_ms + shift_ms, text)
    if _EPOCH.fullmatch(written):
        return _checked(int(written), text)
    return _checked(_parse_rfc3339(written), text)


def parse_width(text: str) -> int:
    """Return the milliseconds of a width such as `30s` or `5m`.

    Raises:
        Rejected(bad_resolution): It is not a count and a unit, is zero, or is over 366 days.
    """
    found = _WIDTH.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise Rejected("bad_resolution", f"{text!r} is not a resolution", "write auto, 1s, 30s, 5m, 1h or a multiple")
    width_ms = int(found[1]) * UNITS_MS[found[2]]
    if width_ms > WIDTH_MAXIMUM_MS:
        raise Rejected("bad_resolution", f"{text!r} is wider than 366 days", "write range for one figure of it all")
    return width_ms


def format_time(time_ms: int) -> str:
    """Write epoch milliseconds as RFC 3339 in UTC, with milliseconds."""
    whole, rest = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def format_width(width_ms: int) -> str:
    """Write a width with the largest unit that divides it, up to days."""
    for unit in ("d", "h", "m", "s"):
        if width_ms % UNITS_MS[unit] == 0:
            return f"{width_ms // UNITS_MS[unit]}{unit}"
    return f"{width_ms}ms"


def _parse_rfc3339(text: str) -> int:
    try:
        text.encode("ascii")
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise Rejected("bad_time", f"{text!r} is not a time", _HINT) from None
    if moment.tzinfo is None:
        raise Rejected("bad_time", f"{text!r} names no time zone", _HINT)
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1000 + elapsed.microseconds // 1000


def _checked(time_ms: int, text: str) -> int:
    if not 0 <= time_ms <= TIME_MAXIMUM_MS:
        raise Rejected("bad_time", f"{text!r} lies outside 1970 to 2100", _HINT)
    return time_ms
