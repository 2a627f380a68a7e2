"""State what a check found: how it is, and what to do about it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from secondsight.agent.health.words import plain
from secondsight.errors import SecondsightError

logger = logging.getLogger(__name__)


class Level(StrEnum):
    """How something is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        what: In one line, with the host, file or address that it is about.
        remedy: What to do; "" where there is nothing to do.
    """

    level: Level
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A finding with the group that it belongs to."""

    group: str
    finding: Finding

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "group": self.group,
            "level": self.finding.level.value,
            "what": self.finding.what,
            "remedy": self.finding.remedy,
        }


Check = Callable[[], Iterable[Finding]]


def ok(what: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(Level.OK, what)


def warning(what: str, remedy: str = "") -> Finding:
    """Return that something may go wrong, or costs something."""
    return Finding(Level.WARNING, what, remedy)


def fault(what: str, remedy: str = "") -> Finding:
    """Return that something does not work."""
    return Finding(Level.FAULT, what, remedy)


def skipped(what: str) -> Finding:
    """Return that something could not be looked at, or need not be."""
    return Finding(Level.SKIPPED, what)


def examined(checks: Sequence[tuple[str, Check]]) -> Iterator[Named]:
    """Run checks one after the other; one that breaks is a finding of its own, and the others go on."""
    for group, check in checks:
        try:
            for finding in check():
                yield Named(group, finding)
        except (SecondsightError, OSError) as error:
            yield Named(group, fault(f"this could not be checked to its end: {plain(str(error))}"))
        except Exception as error:  # a doctor that dies of one patient's oddity helps nobody
            logger.debug("a check broke", exc_info=True)
            yield Named(
                group, fault(f"this check is broken: {error!r}", "please report it, with SECONDSIGHT_LOG_LEVEL=debug")
            )
