"""Count what a spool was given, by entity kind, in bytes that stand before every record.

Each record carries the tally of all that was spooled before it. So what is missing between two records is known by
kind, rows and values without being read, and the count of everything ever produced survives a kill with the records.
Rows and values are those that frame headers count; events, infos and histograms are in neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

import google_crc32c

from secondsight.errors import Rejected
from secondsight.model import KIND_CODES, EntityKind
from secondsight.wire.header import HeadView, read_view


@dataclass(frozen=True, slots=True)
class Count:
    """Records, and the rows and values that their headers count."""

    records: int = 0
    rows: int = 0
    values: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.records + other.records, self.rows + other.rows, self.values + other.values)

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.records - other.records, self.rows - other.rows, self.values - other.values)


Tally = Mapping[EntityKind, Count]
"""Kind -> count; a kind that never occurred is missing."""

NOTHING: Tally = {}
_NONE = Count()
_MAGIC = b"SSTL"
_HEAD = Struct("<4sIB")
_ENTRY = Struct("<BQQQ")
_KINDS = {code: kind for kind, code in KIND_CODES.items()}
NUMBERS = 3 * len(KIND_CODES)


def plus(one: Tally, other: Tally) -> Tally:
    """Return the sum of two tallies."""
    return {kind: one.get(kind, _NONE) + other.get(kind, _NONE) for kind in {**one, **other}}


def minus(one: Tally, other: Tally) -> Tally:
    """Return the difference of two tallies, without kinds of which nothing is left."""
    left = {kind: one.get(kind, _NONE) - other.get(kind, _NONE) for kind in {**one, **other}}
    return {kind: count for kind, count in left.items() if count != _NONE}


def head_of(frame: bytes) -> HeadView | None:
    """Return what a frame's head says, or None where it is no frame or its head is damaged."""
    try:
        return read_view(frame, 0)
    except Rejected:
        return None


def tally_of(frame: bytes) -> Tally:
    """Return the tally of one record; nothing where the frame cannot be read."""
    head = head_of(frame)
    return NOTHING if head is None else {head.kind: Count(1, head.rows, head.values)}


def pack_tally(tally: Tally) -> bytes:
    """Return the bytes of a tally."""
    entries = [_ENTRY.pack(KIND_CODES[kind], count.records, count.rows, count.values) for kind, count in tally.items()]
    body = b"".join(entries)
    crc: int = google_crc32c.value(body)
    return _HEAD.pack(_MAGIC, crc, len(entries)) + body


def split_tally(payload: bytes) -> tuple[Tally | None, bytes]:
    """Return the tally that stands before a frame, and the frame; None where there is none, or a damaged one."""
    if payload[:4] != _MAGIC or len(payload) < _HEAD.size:
        return None, payload
    _, crc, entries = _HEAD.unpack_from(payload)
    end = _HEAD.size + entries * _ENTRY.size
    body = payload[_HEAD.size : end]
    if len(body) != entries * _ENTRY.size or google_crc32c.value(body) != crc:
        return None, payload
    found = [_ENTRY.unpack_from(body, position) for position in range(0, len(body), _ENTRY.size)]
    return {_KINDS[code]: Count(*counts) for code, *counts in found if code in _KINDS}, payload[end:]


def tally_numbers(tally: Tally) -> tuple[int, ...]:
    """Return a tally as `NUMBERS` numbers."""
    counts = [tally.get(kind, _NONE) for kind in KIND_CODES]
    return tuple(number for count in counts for number in (count.records, count.rows, count.values))


def tally_from(numbers: Sequence[int]) -> Tally:
    """Return the tally of `NUMBERS` numbers."""
    counts = [Count(*numbers[start : start + 3]) for start in range(0, NUMBERS, 3)]
    return {kind: count for kind, count in zip(KIND_CODES, counts, strict=True) if count != _NONE}
