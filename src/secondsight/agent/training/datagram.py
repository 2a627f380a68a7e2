"""Turn one datagram of the training helper into a report, or say why it is none."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secondsight.errors import Rejected
from secondsight.mapping.cells import plain_text
from secondsight.training import NAME_CHARACTERS, VERSION

ENTRIES_MAXIMUM = 512
EVENTS_MAXIMUM = 64
KEY_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Incident:
    """One event that a job told: `loss_nan`, `loss_inf`, `end`."""

    kind: str
    time_ms: int
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """What one process of a run had said when it sent the datagram.

    Attributes:
        start: Tells processes apart: its first nanosecond.
        rank: None where the job does not say.
        counts: What only grows since the process began, see `Run._datagram` of the helper.
        gauges: Last values; may hold NaN and infinities.
        lost: Datagrams that the process dropped.
        broken: Values that it could not take.
    """

    job: str
    run: str
    start: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    restarts: int | None
    steps_planned: int | None
    framework: str
    model: str
    counts: Mapping[str, float]
    gauges: Mapping[str, float]
    incidents: tuple[Incident, ...] = field(default=())
    lost: int = 0
    broken: int = 0


def parse(data: bytes) -> Report:
    """Return the report that a datagram holds.

    Raises:
        Rejected: `bad_datagram`.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(f"no JSON: {error}") from error
    if not isinstance(said, dict) or said.get("v") != VERSION:
        raise _bad("no report of a version that is known")
    job = _text(said, "job")
    if not job:
        raise _bad("no job id")
    return Report(
        job=job,
        run=_text(said, "run"),
        start=_whole(said, "start") or 0,
        rank=_whole(said, "rank"),
        local_rank=_whole(said, "local_rank"),
        world_size=_whole(said, "world_size"),
        restarts=_whole(said, "restarts"),
        steps_planned=_whole(said, "steps_planned"),
        framework=_text(said, "framework"),
        model=_text(said, "model"),
        counts={key: value for key, value in _numbers(said, "c") if math.isfinite(value) and value >= 0},
        gauges=dict(_numbers(said, "g")),
        incidents=_incidents(said.get("e", [])),
        lost=_whole(said, "lost") or 0,
        broken=_whole(said, "broken") or 0,
    )


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name, "")
    if not isinstance(value, str):
        raise _bad(f"{name} is no text")
    return plain_text(value.strip(), NAME_CHARACTERS).replace("/", "_")


def _whole(said: dict[str, Any], name: str) -> int | None:
    value = said.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _bad(f"{name} is no whole number")
    return value


def _numbers(said: dict[str, Any], name: str) -> list[tuple[str, float]]:
    entries = said.get(name, {})
    if not isinstance(entries, dict) or len(entries) > ENTRIES_MAXIMUM:
        raise _bad(f"{name} is no table of numbers")
    pairs = list(entries.items())
    if not all(isinstance(value, (int, float)) and len(key) <= KEY_CHARACTERS for key, value in pairs):
        raise _bad(f"{name} holds what is no number")
    return [(key, value) for key, value in pairs if abs(value) < 2**1023 or not isinstance(value, int)]


def _incidents(said: object) -> tuple[Incident, ...]:
    if not isinstance(said, list) or len(said) > EVENTS_MAXIMUM:
        raise _bad("e is no list of events")
    return tuple(_incident(event) for event in said)


def _incident(event: object) -> Incident:
    if not isinstance(event, dict):
        raise _bad("an event is no object")
    kind, time_ms = event.get("kind"), event.get("ms")
    if not isinstance(kind, str) or not isinstance(time_ms, int):
        raise _bad("an event has no kind or no time")
    facts = {
        name: plain_text(str(value), NAME_CHARACTERS) for name, value in event.items() if name not in ("kind", "ms")
    }
    return Incident(kind, time_ms, dict(list(facts.items())[:8]))


def _bad(what: str) -> Rejected:
    return Rejected("bad_datagram", what, "send with secondsight.training of the agent's version")
