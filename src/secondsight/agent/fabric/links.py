"""Turn what a port's link was and is into events: down, up, slower, faster, and down and up between two looks."""

from dataclasses import dataclass
from enum import IntEnum

from secondsight.agent.fabric.layout import Rate
from secondsight.wire.content import Event

UP_STATES = (4, 5)
"""Active, and active with a deferred change."""


class Change(IntEnum):
    """Codes of `fabric_port_link_change`."""

    DOWN = 1
    UP = 2
    RATE_LOWERED = 3
    RATE_RAISED = 4
    FLAPPED = 5


_SEVERITY = {
    Change.DOWN: "error",
    Change.UP: "info",
    Change.RATE_LOWERED: "warning",
    Change.RATE_RAISED: "info",
    Change.FLAPPED: "warning",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A port's link at one look; None where it could not be read.

    Attributes:
        downed: Times that it went down, by the port's own count.
    """

    state: int | None = None
    rate: Rate | None = None
    downed: int | None = None

    @property
    def is_up(self) -> bool | None:
        """Tell whether it carries data; None where that is not known."""
        return None if self.state is None else self.state in UP_STATES


GONE = Link(state=0)
"""The link of a port that is no longer there."""


class LinkWatch:
    """Remembers one port's link. What was so at the first look is no change."""

    def __init__(self) -> None:
        self._known = Link()

    def see(self, link: Link, entity: str, time_ms: int) -> list[Event]:
        """Return what changed since the last look."""
        known = self._known
        changes = list(_changes(known, link))
        self._known = Link(
            link.state if link.state is not None else known.state,
            link.rate if link.is_up and link.rate is not None else known.rate,
            link.downed if link.downed is not None else known.downed,
        )
        return [_event(change, known, link, entity, time_ms) for change in changes]


def _changes(known: Link, link: Link) -> list[Change]:
    if known.is_up is None or link.is_up is None:
        return []
    if not link.is_up:
        return [Change.DOWN] if known.is_up else []
    found = [] if known.is_up else [Change.UP]
    if known.is_up and known.downed is not None and link.downed is not None and link.downed > known.downed:
        found.append(Change.FLAPPED)
    if known.rate is not None and link.rate is not None and known.rate.gigabits != link.rate.gigabits:
        found.append(Change.RATE_LOWERED if link.rate.gigabits < known.rate.gigabits else Change.RATE_RAISED)
    return found


def _event(change: Change, known: Link, link: Link, entity: str, time_ms: int) -> Event:
    told = {
        "severity": _SEVERITY[change],
        "change": change.name.lower(),
        "state_before": str(known.state or ""),
        "state": str(link.state or ""),
        "rate_before": str(known.rate or ""),
        "rate": str(link.rate or ""),
    }
    present = {name: value for name, value in told.items() if value}
    return Event("fabric_port_link_change", entity, "", time_ms, change, attributes=present)
