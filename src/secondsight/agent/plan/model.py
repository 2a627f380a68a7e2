"""Turn the plan that a gateway hands out into what an agent ships at an instant.

Pure. A plan says for each kind how often and which metrics, and which sessions ship every second of some entities until
when. Sessions end by their own time, so a plan that is kept needs no gateway to end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secondsight.errors import Rejected
from secondsight.model import EntityKind

WINDOW_MS = 30_000
FULL_MS = 1000
DAY_MS = 86_400_000
TIME_MAXIMUM_MS = 253_402_300_799_999
SESSIONS_MAXIMUM = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """Some entities of a kind: all of them, or those named."""

    everything: bool = False
    entities: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.everything or bool(self.entities)

    def __or__(self, other: "Selection") -> "Selection":
        if self.everything or other.everything:
            return EVERYTHING
        return Selection(entities=self.entities | other.entities)

    def __sub__(self, other: "Selection") -> "Selection":
        """Return what is in this one and not in the other; all but some is all."""
        if other.everything:
            return NOTHING
        return self if self.everything else Selection(entities=self.entities - other.entities)


EVERYTHING = Selection(everything=True)
NOTHING = Selection()


@dataclass(frozen=True, slots=True)
class KindPlan:
    """How one kind is shipped; `metrics` are the enabled ones, None for all. An interval of 0 is the reader's own."""

    interval_ms: int = 0
    metrics: frozenset[str] | None = None

    def is_coarse(self, interval_ms: int) -> bool:
        """Tell whether less is asked for than a reader of this interval takes: one row a window."""
        return self.interval_ms >= WINDOW_MS > interval_ms


@dataclass(frozen=True, slots=True)
class Session:
    """Every second of some entities until `until_ms`, and from `from_ms` on as far as it is still there.

    Attributes:
        kinds: None for every kind.
    """

    session_id: str
    kinds: frozenset[EntityKind] | None
    entities: Selection
    from_ms: int
    until_ms: int

    def covers(self, kind: EntityKind, now_ms: int) -> bool:
        """Tell whether it speaks of a kind and has not ended; it ends with the window that its time lies in."""
        return (self.kinds is None or kind in self.kinds) and now_ms < -(-self.until_ms // WINDOW_MS) * WINDOW_MS


@dataclass(frozen=True, slots=True)
class Plan:
    """What an agent ships.

    Attributes:
        etag: Of the answer that it came with; "" where none did.
        jobs: Jobs of which every second is shipped, whatever they run on.
    """

    etag: str = ""
    kinds: Mapping[EntityKind, KindPlan] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    jobs: frozenset[str] = frozenset()

    def kind(self, kind: EntityKind) -> KindPlan:
        """Return the plan of a kind; one that is not named is shipped as it is read."""
        return self.kinds.get(kind, _AS_READ)

    def in_session(self, kind: EntityKind, now_ms: int) -> Selection:
        """Return the entities of a kind that a session ships every second of."""
        found = NOTHING
        for session in self.sessions:
            if session.covers(kind, now_ms):
                found = found | session.entities
        return found


_AS_READ = KindPlan()


def parse_plan(body: bytes, etag: str) -> Plan:
    """Return the plan of an answer's body.

    Raises:
        Rejected: `bad_plan`; unknown kinds are left out, as a gateway may be newer.
    """
    try:
        told = json.loads(body)
        kinds = told["after"] if told.get("after") else told["kinds"]
        sessions = [_session(item) for item in told.get("sessions", ())[:SESSIONS_MAXIMUM]]
        return Plan(etag, _kinds(kinds), tuple(sessions), frozenset(map(str, told.get("jobs", ()))))
    except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Rejected("bad_plan", f"the plan cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _kinds(told: Mapping[str, Any]) -> dict[EntityKind, KindPlan]:
    known = {kind.value: kind for kind in EntityKind}
    return {known[name]: _kind(item) for name, item in told.items() if name in known}


def _kind(told: Mapping[str, Any]) -> KindPlan:
    metrics = told.get("metrics", "all")
    return KindPlan(
        _bounded(told.get("intervalMs") or 0, DAY_MS), None if metrics == "all" else frozenset(map(str, metrics))
    )


def _session(told: Mapping[str, Any]) -> Session:
    known = {kind.value: kind for kind in EntityKind}
    kinds, entities = told.get("kinds", "all"), told.get("entities", "all")
    return Session(
        str(told["id"]),
        None if kinds == "all" else frozenset(known[name] for name in kinds if name in known),
        EVERYTHING if entities == "all" else Selection(entities=frozenset(map(str, entities))),
        _bounded(told["fromMs"], TIME_MAXIMUM_MS),
        _bounded(told["untilMs"], TIME_MAXIMUM_MS),
    )


def _bounded(told: Any, most: int) -> int:
    """Return a number of a plan within 0 to `most`; what times have to be worked out with stays small."""
    return min(max(int(told), 0), most)
