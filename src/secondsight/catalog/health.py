"""Turn the lines of `health.toml` into rules: what an event says of the health of the GPU that it is about."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "health.toml"


class Health(StrEnum):
    """How a GPU is, worst first."""

    UNAVAILABLE = "unavailable"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


class Lasts(StrEnum):
    """For how long an event counts."""

    OPEN = "open"
    RESET = "reset"
    RECENT = "recent"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class HealthRule:
    """One line; empty codes or severities admit all."""

    name: str
    event: str
    verdict: Health
    lasts: Lasts
    what: str
    codes: tuple[int, ...] = ()
    severities: tuple[str, ...] = ()

    def fits(self, event: str, code: int, severity: str) -> bool:
        """Tell whether an event is of this line."""
        named = not self.codes or code in self.codes
        return event == self.event and named and (not self.severities or severity in self.severities)


@cache
def health_rules() -> tuple[HealthRule, ...]:
    """Return the rules, in their order."""
    lines = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        HealthRule(
            name=name,
            event=line["event"],
            verdict=Health(line["verdict"]),
            lasts=Lasts(line["for"]),
            what=line["what"],
            codes=tuple(line.get("codes", ())),
            severities=tuple(line.get("severities", ())),
        )
        for name, line in lines.items()
    )
