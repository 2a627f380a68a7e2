"""Turn the bytes of one kernel log line into its text and the times that it states.

Lines come as the device node gives them (`4,1234,171167620236,-;text`) or as programs print them, with any of the
usual prefixes or none. Times are worked out only for lines that somebody wants, as most lines are of no interest.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

TEXT_CHARACTERS = 2048
"""What is looked at of a line; longer ones are cut."""

DAY_MS = 86_400_000

_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};(.*)", re.DOTALL).match
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_PRIORITY = re.compile(r"<(\d{1,4})>").match
_MONOTONIC = re.compile(r"\[\s*(\d{1,12})\.(\d{1,9})\]").search
_DATED = re.compile(r"\[([A-Z][a-z]{2} +[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4})\]").search
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)").search
_PLAIN = re.compile(
    r"(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?"
    r"(?: ?(Z|UTC|[+-]\d\d:?\d\d))?(?![\d:.,])"
).match
_EPOCH = re.compile(r"(\d{10})\.(\d{1,9}) ").match
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? ").match
_FABRIC_MANAGER = re.compile(r"\[([A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[[A-Z]+\] ").match
_PREFIX_CHARACTERS = 120
"""Times stand at the front of a line; what looks like one later is part of the message."""


class Line(NamedTuple):
    """One line.

    Attributes:
        text: The message, with its prefixes where it came from a text.
        sequence: Number of the record in its boot; None in a text.
        monotonic_us: Microseconds since boot, None where the line does not say.
        facility: Who wrote it: 0 is the kernel, others are programs; None in a text.
        indented: True if it goes on with the line before.
    """

    text: str
    sequence: int | None = None
    monotonic_us: int | None = None
    facility: int | None = None
    indented: bool = False


def parse_line(data: bytes) -> Line:
    """Return the line of these bytes (without the newline); any bytes are a line."""
    record = _RECORD(data)
    if record is None:
        text = data[:TEXT_CHARACTERS].decode(errors="replace")
        return Line(text, monotonic_us=_stated_us(text), indented=data[:1] in (b" ", b"\t"))
    message = record[4][:TEXT_CHARACTERS]
    if b"\\x" in message:
        message = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), message)
    return Line(message.decode(errors="replace"), int(record[2]), int(record[3]), int(record[1]) >> 3)


def stated_time_ms(text: str, now_ms: int) -> int | None:
    """Return the wall time that a line of text states in epoch milliseconds, or None.

    A time without a zone is read in the zone of this host; one without a year is the latest that is not in the future.
    """
    head = text[:_PREFIX_CHARACTERS]
    try:
        return _iso_ms(head) or _plain_ms(head) or _dated_ms(head) or _syslog_ms(head, now_ms)
    except (ValueError, OverflowError, OSError):
        return None


def _stated_us(text: str) -> int | None:
    found = _MONOTONIC(text, 0, _PREFIX_CHARACTERS) if "[" in text else None
    return None if found is None else int(found[1]) * 1_000_000 + int(found[2][:6].ljust(6, "0"))


def _iso_ms(head: str) -> int | None:
    found = _ISO(head)
    if found is None:
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    seconds = datetime.strptime(found[1] + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return round(seconds * 1000) + _fraction_ms(found[2])


def _plain_ms(head: str) -> int | None:
    epoch = _EPOCH(head)
    if epoch is not None:
        return int(epoch[1]) * 1000 + _fraction_ms(epoch[2])
    found = _PLAIN(head)
    if found is None:
        return None
    moment, zone = f"{found[1]} {found[2]}", found[4]
    if zone is None:
        return _local_ms(moment, "%Y-%m-%d %H:%M:%S") + _fraction_ms(found[3])
    offset = "+00:00" if zone in ("Z", "UTC") else zone
    seconds = datetime.strptime(moment + offset, "%Y-%m-%d %H:%M:%S%z").timestamp()
    return round(seconds * 1000) + _fraction_ms(found[3])


def _fraction_ms(digits: str | None) -> int:
    return int((digits or "0")[:3].ljust(3, "0"))


def _dated_ms(head: str) -> int | None:
    found = _DATED(head)
    if found is not None:
        return _local_ms(" ".join(found[1].split()), "%a %b %d %H:%M:%S %Y")
    found = _FABRIC_MANAGER(head)
    return None if found is None else _local_ms(found[1], "%b %d %Y %H:%M:%S")


def _syslog_ms(head: str, now_ms: int) -> int | None:
    priority = _PRIORITY(head)
    found = _SYSLOG(head[priority.end() :] if priority else head)
    if found is None:
        return None
    year = datetime.fromtimestamp(now_ms / 1000, UTC).year
    for candidate in (year + 1, year, year - 1):
        with suppress(ValueError):  # there is no 29 February in it
            time_ms = _local_ms(f"{candidate} {found[1]} {found[2]} {found[3]}", "%Y %b %d %H:%M:%S")
            if time_ms <= now_ms + DAY_MS:
                return time_ms + _fraction_ms(found[4])
    return None


def _local_ms(text: str, form: str) -> int:
    naive = datetime.strptime(text, form)  # noqa: DTZ007 # logs are written in the host's own zone, without saying it
    return round(naive.astimezone().timestamp() * 1000)
