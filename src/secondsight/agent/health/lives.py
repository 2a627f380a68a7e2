"""Turn what an agent left in its status file into events: how its life before ended, and that it lives again.

Every start tells of the life before it too, so that one whose start never reached the spool is known. Told twice it is
the same event: it is known by when its life began.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secondsight.agent.health.statefile import read_state
from secondsight.errors import Rejected
from secondsight.wire.content import Event

logger = logging.getLogger(__name__)

METRIC = "agent_lifecycle"
STARTED, STOPPED, VANISHED = 1, 2, 3
TIME_MAXIMUM_MS = 253_402_300_799_999

State = Mapping[str, Any]


def before(folder: Path) -> State:
    """Return what the agent of a folder last said of itself, nothing where that cannot be known."""
    try:
        return read_state(folder) or {}
    except (OSError, Rejected) as error:
        logger.warning("how this agent ended before is not known: %s", error)
        return {}


def lives(collector_id: str, last: State, version: str, started_ms: int) -> tuple[Event, ...]:
    """Return the events of a start: of the life before, as far as it is known, and of this one."""
    return (*_past(collector_id, last), _event(collector_id, STARTED, started_ms, started_ms, version))


def _past(collector_id: str, last: State) -> Iterator[Event]:
    began_ms, written_ms, ended_ms = (_time(last.get(name)) for name in ("startedMs", "writtenMs", "endedMs"))
    if not began_ms or last.get("collectorId") != collector_id:
        return
    version = str(last.get("version", ""))
    yield _event(collector_id, STARTED, began_ms, began_ms, version)
    if ended_ms:
        yield _event(collector_id, STOPPED, ended_ms, began_ms, version)
    elif written_ms:
        yield _event(collector_id, VANISHED, written_ms, began_ms, version)


def _time(said: Any) -> int:
    return said if type(said) is int and 0 < said <= TIME_MAXIMUM_MS else 0


def _event(collector_id: str, code: int, time_ms: int, began_ms: int, version: str) -> Event:
    facts = {"id": f"{began_ms}-{code}", "version": version, "started_ms": str(began_ms)}
    return Event(METRIC, collector_id, "", time_ms, code, attributes=facts)
