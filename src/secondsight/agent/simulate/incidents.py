"""Turn the name of an incident into what it does to which hosts and when.

An incident changes causes (air flow, links, the data that jobs get, error rates, the clock, whether a host reports or
can be reached); what is measured follows from the physics.
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
        nvlink_up: Share of the NVLinks that are up.
        nvlink_errors_per_second: Rate of replayed NVLink transfers.
        data_supply: One value per host: what its jobs get of the data that they ask for, as a share.
        reporting: One value per host: False where nothing is collected.
        reachable: One value per host: False where what is collected cannot leave the host.
        agent_age_seconds: One value per host: since its agent was started again, or -1 where it was not.
        clock_offset_ms: One value per host: how far its clock is ahead.
    """

    air_flow: Floats
    activity: Floats
    corrected_ecc_per_second: Floats
    nvlink_up: Floats
    nvlink_errors_per_second: Floats
    data_supply: Floats
    reporting: NDArray[np.bool_]
    reachable: NDArray[np.bool_]
    agent_age_seconds: NDArray[np.int64]
    clock_offset_ms: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Incident:
    """A named fault in a run.

    Attributes:
        start_seconds: Seconds after the start of the run at which it begins.
        host: Position of the host that it befalls (thermal_runaway and network_partition take that host's rack,
            dataloader_stall the hosts of its job).
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
        nvlink_up=np.ones(total),
        nvlink_errors_per_second=np.full(total, 2e-5),
        data_supply=np.ones(hosts),
        reporting=np.ones(hosts, dtype=np.bool_),
        reachable=np.ones(hosts, dtype=np.bool_),
        agent_age_seconds=np.full(hosts, -1, dtype=np.int64),
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


NETWORK_PARTITION = "network_partition"
RACK_HOSTS = 4
JOB_HOSTS = 2
PARTITION_SECONDS = 90
RESTART_SECONDS = 8
STALL_PERIOD_SECONDS, STALL_SECONDS = 10, 7


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


def _nvlink_degraded(causes: Causes, host: int, gpus: int, age: int) -> None:
    """Take links of one GPU down, one after another; whoever exchanges data with it waits for it."""
    gpu = host * gpus + 2 % gpus
    share = max(1 / 3, 1.0 - (1 + age // 20) / 9)
    causes.nvlink_up[gpu] = share
    causes.nvlink_errors_per_second[gpu] = 40.0 / share
    causes.activity[host * gpus : (host + 1) * gpus] *= 0.55 + 0.45 * share


def _dataloader_stall(causes: Causes, host: int, gpus: int, age: int) -> None:
    """Let a job's GPUs work in bursts, each as long as the data lasts that came since the one before."""
    first = host // JOB_HOSTS * JOB_HOSTS
    causes.data_supply[first : first + JOB_HOSTS] = 0.25
    if age % STALL_PERIOD_SECONDS < STALL_SECONDS:
        causes.activity[first * gpus : (first + JOB_HOSTS) * gpus] *= 0.04


def _network_partition(causes: Causes, host: int, gpus: int, age: int) -> None:
    del gpus
    first = host // RACK_HOSTS * RACK_HOSTS
    if age < PARTITION_SECONDS:
        causes.reachable[first : first + RACK_HOSTS] = False


def _collector_restart(causes: Causes, host: int, gpus: int, age: int) -> None:
    del gpus
    causes.reporting[host] &= age >= RESTART_SECONDS
    causes.agent_age_seconds[host] = max(age - RESTART_SECONDS, 0)


_EFFECTS: dict[str, Callable[[Causes, int, int, int], None]] = {
    "thermal_runaway": _thermal_runaway,
    "straggler": _straggler,
    "node_lost": _node_lost,
    "ecc_storm": _ecc_storm,
    "clock_drift": _clock_drift,
    "nvlink_degraded": _nvlink_degraded,
    "dataloader_stall": _dataloader_stall,
    NETWORK_PARTITION: _network_partition,
    "collector_restart": _collector_restart,
}
INCIDENTS: tuple[str, ...] = tuple(_EFFECTS)
