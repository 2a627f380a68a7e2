"""Turn the name of an incident into what it does to which hosts and when.

An incident changes causes (air flow, activity, error rates, the clock, whether a host reports); what is measured
follows from the physics.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.errors import Rejected

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Causes:
    """What incidents may change for one second, one value per GPU unless said otherwise.

    Attributes:
        air_flow: Cooling, 1 is normal; heat resistance divides by it.
        activity: Factor on the activity that the job asks for.
        corrected_ecc_per_second: Rate of corrected memory errors.
        reporting: One value per host: False where the host sends nothing.
        clock_offset_ms: One value per host: how far its clock is ahead.
    """

    air_flow: Floats
    activity: Floats
    corrected_ecc_per_second: Floats
    reporting: NDArray[np.bool_]
    clock_offset_ms: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Incident:
    """A named fault in a run.

    Attributes:
        start_seconds: Seconds after the start of the run at which it begins.
        host: Position of the host that it befalls (thermal_runaway takes that host's rack).
    """

    name: str
    start_seconds: int = 60
    host: int = 0


def quiet(hosts: int, gpus: int) -> Causes:
    """Return the causes of a second in which nothing goes wrong."""
    total = hosts * gpus
    return Causes(
        air_flow=np.ones(total),
        activity=np.ones(total),
        corrected_ecc_per_second=np.full(total, 2e-6),
        reporting=np.ones(hosts, dtype=np.bool_),
        clock_offset_ms=np.zeros(hosts, dtype=np.int64),
    )


def causes_at(incidents: Sequence[Incident], hosts: int, gpus: int, seconds_into_run: int) -> Causes:
    """Return what holds at a second of the run, all incidents together."""
    causes = quiet(hosts, gpus)
    for incident in incidents:
        age = seconds_into_run - incident.start_seconds
        if age >= 0:
            _EFFECTS[incident.name](causes, incident.host, gpus, age)
    return causes


def incident_named(name: str, start_seconds: int = 60, host: int = 0) -> Incident:
    """Return an incident.

    Raises:
        Rejected: `unknown_incident`, naming those that exist.
    """
    if name not in _EFFECTS:
        raise Rejected("unknown_incident", f"there is no incident {name!r}", f"one of: {', '.join(_EFFECTS)}")
    return Incident(name, start_seconds, host)


RACK_HOSTS = 4


def _thermal_runaway(causes: Causes, host: int, gpus: int, age: int) -> None:
    first = host // RACK_HOSTS * RACK_HOSTS
    causes.air_flow[first * gpus : (first + RACK_HOSTS) * gpus] = max(0.35, 1.0 - age / 400)


def _straggler(causes: Causes, host: int, gpus: int, age: int) -> None:
    del age
    causes.activity[host * gpus + 3 % gpus] = 0.55


def _node_lost(causes: Causes, host: int, gpus: int, age: int) -> None:
    del gpus, age
    causes.reporting[host] = False


def _ecc_storm(causes: Causes, host: int, gpus: int, age: int) -> None:
    causes.corrected_ecc_per_second[host * gpus + 1 % gpus] = min(20_000.0, 5.0 * 1.2 ** min(age, 60))


def _clock_drift(causes: Causes, host: int, gpus: int, age: int) -> None:
    del gpus
    causes.clock_offset_ms[host] = min(90_000, age * 500)


_EFFECTS: dict[str, Callable[[Causes, int, int, int], None]] = {
    "thermal_runaway": _thermal_runaway,
    "straggler": _straggler,
    "node_lost": _node_lost,
    "ecc_storm": _ecc_storm,
    "clock_drift": _clock_drift,
}
INCIDENTS: tuple[str, ...] = tuple(_EFFECTS)
