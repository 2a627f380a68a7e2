"""The command `secondsight doctor`: run all checks and print what they found."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence

from secondsight.agent.config import AgentConfig
from secondsight.agent.health.command import USUAL_CONFIG
from secondsight.clock import Clock, SystemClock
from secondsight.doctor import settings
from secondsight.doctor.findings import Check, Level, Named, examined, fault
from secondsight.doctor.gateway import gateway
from secondsight.doctor.gpus import gpus
from secondsight.doctor.host import host
from secondsight.doctor.identity import identity
from secondsight.doctor.install import install
from secondsight.doctor.platform import platform
from secondsight.doctor.running import look, running
from secondsight.doctor.sources import sources
from secondsight.doctor.spool import spool

SIGNS = {Level.OK: "ok     ", Level.WARNING: "WARNING", Level.FAULT: "FAULT  ", Level.SKIPPED: "-      "}


def doctor_command(arguments: argparse.Namespace) -> int:
    """Print what is wrong and what to do; 0 if nothing is at fault, 1 if something is."""
    own = logging.getLogger("secondsight")
    before = own.level
    own.setLevel(logging.CRITICAL if arguments.json else logging.ERROR)
    try:
        return _examine(arguments)
    finally:
        own.setLevel(before)


def _examine(arguments: argparse.Namespace) -> int:
    clock = SystemClock()
    named = _examined(arguments, clock)
    if arguments.json:
        found = list(named)
        told = {"faults": _count(found, Level.FAULT), "warnings": _count(found, Level.WARNING)}
        _say(json.dumps({**told, "findings": [one.as_json() for one in found]}, indent=2))
    else:
        found = list(_printed(named, quiet=arguments.quiet))
        _say(_summary(found))
    return 1 if _count(found, Level.FAULT) else 0


def _examined(arguments: argparse.Namespace, clock: Clock) -> Iterator[Named]:
    """Give findings as they are made, so that a slow check does not hold back those before it."""
    if arguments.data is not None:
        yield from examined([("platform", lambda: platform(arguments.data, clock))])
        if arguments.config is None:
            return
    file = arguments.config or (USUAL_CONFIG if USUAL_CONFIG.exists() else None)
    read = settings.read(file, os.environ)
    if file is None and read.config is None:
        remedy = "name them with --config FILE, or the folder of a platform with --data DIR"
        yield Named("settings", fault(f"there are no settings in {USUAL_CONFIG}", remedy))
        yield from examined([("install", lambda: install(None))])
        return
    yield from examined([("install", lambda: install(read.config)), ("settings", lambda: read.findings)])
    if read.config is not None:
        yield from examined(checks(read.config, clock))


def checks(config: AgentConfig, clock: Clock) -> Sequence[tuple[str, Check]]:
    """Return the checks of an agent with these settings, by group."""
    state, verdict = look(config, clock)
    return (
        ("agent", lambda: running(state, verdict)),
        ("identity", lambda: identity(config, clock)),
        ("spool", lambda: (*settings.owner_warning(config.spool_dir), *spool(config))),
        ("gateway", lambda: gateway(config, clock, os.environ)),
        ("gpus", lambda: gpus(config, clock, os.environ)),
        ("host", lambda: host(config, state)),
        ("scrape", lambda: sources(config, clock)),
    )


def _printed(found: Iterator[Named], *, quiet: bool) -> Iterator[Named]:
    group = ""
    for one in found:
        if not quiet or one.finding.level in (Level.WARNING, Level.FAULT):
            if one.group != group:
                group = one.group
                _say(group)
            _say(f"  {SIGNS[one.finding.level]} {one.finding.what}")
            if one.finding.remedy:
                _say(f"          -> {one.finding.remedy}")
            sys.stdout.flush()
        yield one


def _summary(found: Sequence[Named]) -> str:
    faults, warnings = _count(found, Level.FAULT), _count(found, Level.WARNING)
    if not faults and not warnings:
        return "nothing is wrong"
    return f"{faults} fault{'' if faults == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"


def _count(found: Sequence[Named], level: Level) -> int:
    return sum(one.finding.level is level for one in found)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
