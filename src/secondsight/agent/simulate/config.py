"""Say what a simulated fleet can be told."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight.agent.simulate.cluster import ClusterSpec
from secondsight.agent.simulate.incidents import incident_named
from secondsight.agent.simulate.machines import BOARDS, Board
from secondsight.config import build
from secondsight.errors import Rejected

INCIDENT_START_SECONDS = 60
BOARD_NAMES: Mapping[str, Board] = {"H100": BOARDS[0], "H200": BOARDS[1], "A100": BOARDS[2]}


@dataclass(frozen=True, slots=True)
class SimulatedClusterConfig:
    """One cluster of the fleet; its token says which tenant and cluster the samples belong to."""

    name: str
    token_file: Path
    hosts: int = 8
    board: str = "H100"


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """Settings of a simulated fleet.

    Attributes:
        incidents: Names of incidents that befall the first cluster, a minute after its live samples begin.
        batch_seconds: Seconds of samples per frame.
        history_seconds: Past that a new fleet is given, behind its live samples.
        speed: Event seconds per second of that past, at most.
    """

    gateway: str
    spool_dir: Path
    clusters: tuple[SimulatedClusterConfig, ...]
    gpus_per_host: int = 8
    seed: int = 1
    incidents: tuple[str, ...] = ()
    batch_seconds: int = 1
    history_seconds: int = 0
    speed: float = 500.0
    spool_mib: int = 256
    stop_seconds: float = 5.0

    def __post_init__(self) -> None:
        """Refuse fleets that cannot be.

        Raises:
            Rejected: `bad_config`.
        """
        if not self.clusters:
            raise Rejected("bad_config", "simulate: no cluster", "give --cluster, --hosts and --token-file")
        sizes = (self.gpus_per_host, self.batch_seconds, *(cluster.hosts for cluster in self.clusters))
        if min(sizes) < 1 or self.speed <= 0 or self.history_seconds < 0:
            raise Rejected("bad_config", "simulate: hosts, gpus and batch_seconds are at least 1, speed above 0")
        unknown = [cluster.board for cluster in self.clusters if cluster.board not in BOARD_NAMES]
        if unknown:
            raise Rejected("bad_config", f"simulate: no board {unknown[0]!r}", f"one of: {', '.join(BOARD_NAMES)}")

    def spec(self, position: int, *, is_past: bool = False) -> ClusterSpec:
        """Return what the cluster at `position` is made of; nothing befell it in its past."""
        cluster = self.clusters[position]
        names = self.incidents if position == 0 and not is_past else ()
        return ClusterSpec(
            name=cluster.name,
            hosts=cluster.hosts,
            gpus_per_host=self.gpus_per_host,
            board=BOARD_NAMES[cluster.board],
            seed=self.seed + position,
            incidents=tuple(incident_named(name, INCIDENT_START_SECONDS) for name in names),
        )


def fleet_config(settings: Mapping[str, Any], arguments: Mapping[str, Any]) -> FleetConfig:
    """Return the settings of a table `[simulate]`, overridden by command-line arguments that were given.

    Raises:
        Rejected: `bad_config`.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    merged = dict(settings)
    renamed = {"incident": "incidents", "gpus": "gpus_per_host"}
    for key in ("gateway", "spool_dir", "gpus", "speed", "seed", "incident", "history_seconds", "batch_seconds"):
        if key in given:
            merged[renamed.get(key, key)] = given[key]
    if "token_file" in given:
        cluster = {"name": given.get("cluster", "sim"), "token_file": str(given["token_file"])}
        merged["clusters"] = [cluster | ({"hosts": given["hosts"]} if "hosts" in given else {})]
    merged.setdefault("spool_dir", "data/spool/simulate")
    return build(FleetConfig, merged, "simulate")
