"""Turn what lines say into events: the first at once, repeats as a greater count of the same event.

An event keeps its time and its first text, so a later version replaces the earlier one wherever it is stored. Versions
follow from the lines alone: reading the same lines again gives the same events.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from secondsight.model import EntityKind
from secondsight.wire.content import Event

WINDOW_MS = 60_000
"""Repeats within this of the first line are the same event, and followers within this of the last join it."""

RESEND_MS = 10_000
"""A growing count is told at most so often; the last count always is."""

OPEN_MAXIMUM = 512
NEW_PER_LOOK = {EntityKind.NODE: 100}
NEW_PER_LOOK_ELSE = 200
FOLLOWERS_MAXIMUM = 16

WITHOUT_XID, WITHOUT_XID_AT_FIRST = "without Xid", "without Xid at first"
"""How a fault that has an Xid can have been told."""


class Hold(StrEnum):
    """How long an event takes repeats."""

    WINDOW = "window"
    LATCHED = "latched"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One thing that a line says.

    Attributes:
        key: What tells events of one metric, entity, part and code apart.
        attributes: Of the event that it opens.
        joins: True if it belongs to another event of the same entity where there is one: a follower.
        prefers: Code of the event to join, where several could be meant; 0 if it does not matter.
        count: How many of it.
        always: True for what is told however much else is new.
    """

    kind: EntityKind
    metric: str
    entity: str
    part: str
    code: int
    key: tuple[str, ...]
    hold: Hold
    attributes: Mapping[str, str]
    joins: bool = False
    prefers: int = 0
    count: int = 1
    always: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what repeats share."""
        return (self.metric, self.entity, self.part, str(self.code), *self.key)


@dataclass(slots=True)
class Burst:
    """One event that may still grow; times are epoch milliseconds."""

    kind: EntityKind
    metric: str
    entity: str
    part: str
    code: int
    hold: Hold
    attributes: dict[str, str]
    first_ms: int
    last_ms: int
    follower: bool = False
    ended: bool = False
    count: int = 0
    joined: dict[str, int] = field(default_factory=dict)
    sent_version: int = 0
    sent_ms: int = 0

    @property
    def version(self) -> int:
        """Return a number that grows with everything that is learnt of the event."""
        return self.count + sum(self.joined.values())

    def event(self) -> Event:
        """Return the event as it is known now."""
        told = dict(self.attributes)
        if self.count > 1:
            told["count"] = str(self.count)
        if self.joined:
            told["followed_by"] = " ".join(f"{code}x{count}" for code, count in sorted(self.joined.items()))
        end_ms = self.last_ms if self.last_ms > self.first_ms else None
        version = min(self.version, 0xFFFF_FFFF)
        return Event(self.metric, self.entity, self.part, self.first_ms, self.code, end_ms, version, told)


class Bursts:
    """Events that may still grow. Not shared between threads."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], Burst] = {}
        self._ended: list[Burst] = []
        self._new: dict[EntityKind, int] = {}

    def see(self, occurrence: Occurrence, time_ms: int) -> Burst | None:
        """Take one occurrence; return the event that it opens or adds to, None if there are too many new ones."""
        burst = self._joined(occurrence, time_ms) if occurrence.joins else None
        if burst is not None:
            code = str(occurrence.code)
            name = code if code in burst.joined or len(burst.joined) < FOLLOWERS_MAXIMUM else "other"
            burst.joined[name] = burst.joined.get(name, 0) + occurrence.count
            return burst
        burst = self._open.get(occurrence.identity)
        if burst is None or not _takes(burst, time_ms):
            burst = self._begin(occurrence, time_ms)
        if burst is not None:
            burst.count += occurrence.count
            burst.last_ms = max(burst.last_ms, time_ms)
        return burst

    def again(self, burst: Burst, time_ms: int) -> bool:
        """Add one more to an event that `see` gave since the last `due`; False if it takes no more at this time."""
        if burst.ended or not _takes(burst, time_ms):
            return False
        burst.count += 1
        burst.last_ms = max(burst.last_ms, time_ms)
        return True

    def detail(self, sxid: int, pci_bus_id: str, text: str) -> bool:
        """Add a text to the newest open event of an SXid of a switch; False if there is none."""
        for burst in reversed(self._open.values()):
            if (burst.code, burst.attributes.get("pci_bus_id")) == (sxid, pci_bus_id):
                burst.attributes.setdefault("detail", text)
                return True
        return False

    def tell_with_xid(self, entity: str, code: int) -> bool:
        """Tell whether an Xid is the first of an open event that was told without one; from now on it has one."""
        for burst in self._open.values():
            if (burst.code, burst.entity, burst.attributes.get("reported")) == (code, entity, WITHOUT_XID):
                burst.attributes["reported"] = WITHOUT_XID_AT_FIRST
                return True
        return False

    def release(self, entity: str | None = None) -> None:
        """End the latched events of one entity, or of all: it was reset, or recovered."""
        for identity, burst in list(self._open.items()):
            if burst.hold is Hold.LATCHED and entity in (None, burst.entity):
                self._end(identity)

    def due(self, log_ms: int, now_ms: int) -> list[tuple[EntityKind, Event]]:
        """Return the events to tell now: new ones, grown ones, and the last word on those that ended.

        Args:
            log_ms: Up to which wall time the log was read.
            now_ms: Wall time.
        """
        for identity, burst in list(self._open.items()):
            if burst.hold is not Hold.LATCHED and log_ms >= max(burst.first_ms, burst.last_ms) + WINDOW_MS:
                self._end(identity)
        telling = [burst for burst in self._open.values() if _is_due(burst, now_ms)]
        telling += [burst for burst in self._ended if burst.version > burst.sent_version]
        for burst in telling:
            burst.sent_version, burst.sent_ms = burst.version, now_ms
        self._ended.clear()
        self._new.clear()
        return [(burst.kind, burst.event()) for burst in telling]

    def state(self) -> list[dict[str, Any]]:
        """Return the open events as plain data."""
        return [
            {name: getattr(burst, name) for name in Burst.__slots__} | {"identity": list(identity)}
            for identity, burst in self._open.items()
        ]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Take the open events of `state` again.

        Raises:
            KeyError, TypeError, ValueError: It is not what `state` gave.
        """
        for item in state[:OPEN_MAXIMUM]:
            values = {name: item[name] for name in Burst.__slots__}
            values |= {"kind": EntityKind(item["kind"]), "hold": Hold(item["hold"])}
            self._open[tuple(map(str, item["identity"]))] = Burst(**values)

    def _begin(self, occurrence: Occurrence, time_ms: int) -> Burst | None:
        kind = occurrence.kind
        if not occurrence.always and self._new.get(kind, 0) >= NEW_PER_LOOK.get(kind, NEW_PER_LOOK_ELSE):
            return None
        self._new[kind] = self._new.get(kind, 0) + 1
        identity = occurrence.identity
        if identity in self._open:
            self._end(identity)
        elif len(self._open) >= OPEN_MAXIMUM:
            self._end(next(iter(self._open)))
        burst = Burst(
            kind,
            occurrence.metric,
            occurrence.entity,
            occurrence.part,
            occurrence.code,
            occurrence.hold,
            dict(occurrence.attributes),
            time_ms,
            time_ms,
            occurrence.joins,
        )
        self._open[identity] = burst
        return burst

    def _end(self, identity: tuple[str, ...]) -> None:
        burst = self._open.pop(identity)
        burst.ended = True
        self._ended.append(burst)

    def _joined(self, occurrence: Occurrence, time_ms: int) -> Burst | None:
        """Return the event that a follower joins: the one it names, else the newest."""
        near = [
            burst
            for burst in self._open.values()
            if (burst.metric, burst.entity) == (occurrence.metric, occurrence.entity)
            and not burst.follower
            and abs(time_ms - burst.last_ms) <= WINDOW_MS
        ]
        named = [burst for burst in near if burst.code == occurrence.prefers]
        return max(named or near, key=lambda burst: burst.last_ms, default=None)


def _takes(burst: Burst, time_ms: int) -> bool:
    if burst.hold is Hold.LATCHED:
        return True
    return burst.hold is Hold.WINDOW and abs(time_ms - burst.first_ms) < WINDOW_MS


def _is_due(burst: Burst, now_ms: int) -> bool:
    if burst.version <= burst.sent_version:
        return False
    return burst.sent_version == 0 or now_ms - burst.sent_ms >= RESEND_MS or now_ms < burst.sent_ms
