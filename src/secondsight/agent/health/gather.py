"""Turn the parts of a running agent into one plain description of how it is: what the status file and rows say.

Nothing of it waits for a reader, the driver or the gateway. Ages are in seconds at the time of asking, so that a step
of the wall clock moves none of them. Secrets are in no part of it.
"""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secondsight.agent.client.enrol import Enroller
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.health.cost import ProcessCosts
from secondsight.agent.health.process import pid_namespace, start_ticks, this_boot
from secondsight.agent.health.statefile import FORMAT
from secondsight.agent.health.vitals import Vitals
from secondsight.agent.plan.stage import Stage
from secondsight.agent.ship.shipper import Shipper
from secondsight.agent.spool.classes import Spools
from secondsight.agent.tick.lane import ReaderState
from secondsight.agent.tick.sample import Sampler
from secondsight.agent.write.hold import HeldTicks
from secondsight.agent.write.writer import TickWriter
from secondsight.clock import Clock
from secondsight.model import Priority
from secondsight.release import VERSION

MIB = 1 << 20
ERROR_CHARACTERS = 300
SESSIONS_SHOWN = 20
State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Insight:
    """The parts of one agent.

    Attributes:
        enroller: None where it was given a token.
        started_ms: When the agent started.
    """

    config: AgentConfig
    spools: Spools
    writer: TickWriter
    held: HeldTicks
    counts: Counts
    offset: ClockOffset
    sampler: Sampler
    shipper: Shipper
    stage: Stage
    enroller: Enroller | None
    vitals: Vitals
    costs: ProcessCosts
    clock: Clock
    started_ms: int


def state_of(insight: Insight) -> State:
    """Return how an agent is, as JSON has it."""
    now = insight.clock.monotonic_seconds()
    config = insight.config
    return {
        "format": FORMAT,
        "writtenMs": insight.clock.now_ms(),
        "monotonicSeconds": now,
        "bootId": this_boot(),
        "pid": os.getpid(),
        "startTicks": start_ticks(os.getpid()),
        "pidNamespace": pid_namespace(),
        "startedMs": insight.started_ms,
        "version": VERSION,
        "python": platform.python_version(),
        "collectorId": config.collector,
        "hostId": config.host,
        "gateway": without_user(config.gateway),
        "samplerAgeSeconds": _age(now, insight.sampler.looked),
        "readers": [_reader(one, insight.counts, now) for one in insight.sampler.states],
        "spool": spool_state(insight),
        "delivery": _delivery(insight, now),
        "identity": _identity(insight),
        "plan": plan_state(insight),
        "clock": _clock(insight, now),
        "parts": insight.vitals.all(),
        "lost": _lost(insight.counts),
        "cost": _cost(insight.costs),
    }


def without_user(address: str) -> str:
    """Return an address without a user and password that somebody may have put into it."""
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def class_of(priority: Priority) -> str:
    """Return what a class is called."""
    return f"P{priority.value}"


def spool_state(insight: Insight) -> State:
    """Return what waits, by class, and how much room there is."""
    spools, config = insight.spools, insight.config
    now_ms = insight.clock.now_ms()
    classes: dict[str, State] = {}
    for member in spools.members:
        name = "earlier layout" if member.is_earlier else class_of(member.priority)
        oldest_ms = spools.oldest_ms(member)
        classes[name] = {
            "records": member.spool.records,
            "bytes": member.spool.size_bytes if member.spool.records else 0,
            "oldestAgeSeconds": None if oldest_ms is None else max((now_ms - oldest_ms) / 1000, 0.0),
        }
    free_bytes, floor_bytes = _room(config)
    return {
        "folder": str(config.spool_dir),
        "isOpen": bool(classes),
        "fault": insight.writer.fault[:ERROR_CHARACTERS],
        "sizeBytes": spools.size_bytes,
        "limitBytes": config.spool_mib * MIB,
        "freeBytes": free_bytes,
        "floorBytes": floor_bytes,
        "heldTicks": insight.held.ticks,
        "classes": classes,
    }


def plan_state(insight: Insight) -> State:
    """Return which plan is in force, and what it asks for beyond every second of everything."""
    plan, now_ms = insight.stage.plan, insight.clock.now_ms()
    coarse = sorted(kind.value for kind, one in plan.kinds.items() if one.is_coarse(insight.config.interval_ms))
    sessions = [one for one in plan.sessions if now_ms < one.until_ms]
    return {
        "version": plan.etag.strip('"'),
        "mode": "30s" if coarse else "full",
        "coarseKinds": coarse,
        "sessions": [{"id": one.session_id, "untilMs": one.until_ms} for one in sessions[:SESSIONS_SHOWN]],
        "sessionCount": len(sessions),
        "jobs": len(plan.jobs),
        "failed": insight.counts.get("plan_failed"),
    }


def _reader(one: ReaderState, counts: Counts, now: float) -> State:
    return {
        "name": one.name,
        "intervalMs": one.interval_ms,
        "lastAgeSeconds": _age(now, one.ended),
        "tookSeconds": one.took_seconds if one.ended is not None else None,
        "readingSeconds": _age(now, one.reading_since),
        "isLate": one.is_late,
        "isFailing": one.is_failing,
        "failed": counts.get(f"read_failed:{one.name}"),
        "timedOut": counts.get(f"read_timed_out:{one.name}"),
        "error": one.error[:ERROR_CHARACTERS],
        "errorAgeSeconds": _age(now, one.error_at),
    }


def _room(config: AgentConfig) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(config.spool_dir)
    except OSError:
        return None, None
    total_bytes = found.f_blocks * found.f_frsize
    floor_bytes = min(config.spool_floor_mib * MIB, config.spool_floor_percent / 100 * total_bytes)
    return found.f_bavail * found.f_frsize, int(floor_bytes)


def _delivery(insight: Insight, now: float) -> State:
    one, counts = insight.shipper.delivery, insight.counts
    return {
        "lastAgeSeconds": _age(now, one.succeeded),
        "failures": one.failures,
        "waitsFor": one.waits_for[:ERROR_CHARACTERS],
        "heldBy": one.held_by,
        "againSeconds": None if one.again is None else max(one.again - now, 0.0),
        "failedTotal": counts.get("ship_failed"),
        "requestsTotal": counts.get("ship_requests"),
        "bytesTotal": counts.get("shipped_bytes"),
        "rejected": counts.labelled("rejected"),
    }


def _identity(insight: Insight) -> State:
    config, enroller = insight.config, insight.enroller
    return {
        "enrols": enroller is not None,
        "tokenFile": str(config.token_path),
        "hasToken": config.token_path.is_file(),
        "renewMs": None if enroller is None else enroller.renew_ms,
        "trouble": "" if enroller is None else enroller.trouble[:ERROR_CHARACTERS],
    }


def _clock(insight: Insight, now: float) -> State:
    offset_ms, uncertainty_ms = insight.offset.now(now)
    known = offset_ms is not None
    return {
        "offsetMs": offset_ms,
        "uncertaintyMs": uncertainty_ms if known else None,
        "steps": insight.counts.get("clock_stepped"),
    }


def _lost(counts: Counts) -> State:
    return {
        "ticksMissed": counts.get("ticks_missed"),
        "shed": shed_values(counts),
        "droppedRecords": counts.labelled("dropped"),
        "writeFailures": counts.labelled("spool_write_failed"),
        "discardedValues": counts.labelled("discarded"),
    }


def shed_values(counts: Counts) -> dict[str, dict[str, int]]:
    """Return class -> reason -> values that the spool gave up; a class without any is missing."""
    found: dict[str, dict[str, int]] = {}
    for label, values in sorted(counts.labelled("shed_values").items()):
        named = dict(pair.partition("=")[::2] for pair in label.split(","))
        reasons = found.setdefault(f"P{named['class']}", {})
        reasons[named["reason"]] = reasons.get(named["reason"], 0) + values
    return found


def _cost(costs: ProcessCosts) -> State:
    cost = costs.now()
    processes: list[Mapping[str, Any]] = [
        {"name": one.name, "pid": one.pid, "cpuSeconds": round(one.cpu_seconds, 3), "pssBytes": one.pss_bytes}
        for one in cost.used
    ]
    return {
        "cpuSeconds": round(cost.cpu_seconds, 3),
        "cpuShare": None if cost.cpu_share is None else round(cost.cpu_share, 5),
        "pssBytes": cost.pss_bytes,
        "processes": processes,
    }


def _age(now: float, then: float | None) -> float | None:
    return None if then is None else round(max(now - then, 0.0), 3)
