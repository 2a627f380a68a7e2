"""Turn the lines of `health.toml` into rules: what events and figures say of the health of a GPU."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

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


class Beside(StrEnum):
    """Who the peers of a GPU are."""

    JOB = "job"
    PRODUCT = "product"


@dataclass(frozen=True, slots=True)
class LimitRule:
    """One line about a figure that comes near a limit, in the unit of its metric.

    Attributes:
        else_less: Two metrics whose difference stands for the metric where there is none; empty for no such pair.
    """

    name: str
    verdict: Health
    what: str
    metric: str
    else_less: tuple[str, ...]
    most: float

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return what is read."""
        return (self.metric, *self.else_less)


@dataclass(frozen=True, slots=True)
class PeerRule:
    """One line about a figure that lies below that of the peers.

    Attributes:
        below: Share of the median of the peers.
        least: Medians under it say nothing, in the unit of the metric.
        spread: Distances below the median count from so many median distances on.
        load: Utilisation that each one has to have, or the middle one of the peers with `load_of_group`.
    """

    name: str
    verdict: Health
    what: str
    beside: Beside
    metrics: tuple[str, ...]
    below: float
    least: float
    spread: float
    load: float
    load_of_group: bool


@cache
def health_rules() -> tuple[HealthRule, ...]:
    """Return the rules about events, in their order."""
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
        for name, line in _lines().items()
        if "event" in line
    )


@cache
def limit_rules() -> tuple[LimitRule, ...]:
    """Return the rules about figures near a limit."""
    return tuple(
        LimitRule(
            name, Health(line["verdict"]), line["what"], line["metric"], tuple(line.get("else_less", ())), line["most"]
        )
        for name, line in _lines().items()
        if "most" in line
    )


@cache
def peer_rules() -> tuple[PeerRule, ...]:
    """Return the rules about figures below those of peers."""
    return tuple(
        PeerRule(
            name=name,
            verdict=Health(line["verdict"]),
            what=line["what"],
            beside=Beside(line["beside"]),
            metrics=tuple(line["metrics"]),
            below=line["below"],
            least=line.get("least", 0.0),
            spread=line.get("spread", 0.0),
            load=line["load"],
            load_of_group=line.get("load_of") == "group",
        )
        for name, line in _lines().items()
        if "beside" in line
    )


@cache
def _lines() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
