"""Run the simulator again, in this process: what a simulated fleet measured at every second."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight.agent.simulate.cluster import ClusterSpec, Second, SimulatedCluster, gpu_uuid, host_name
from secondsight.agent.simulate.config import fleet_config
from secondsight.catalog.load import load_catalog
from secondsight.config import read_settings


@dataclass(frozen=True)
class Gpu:
    """A GPU of a simulated cluster."""

    spec: ClusterSpec
    host: int
    index: int

    @property
    def name(self) -> str:
        """Return its UUID."""
        return gpu_uuid(self.spec, self.host, self.index)

    @property
    def host_name(self) -> str:
        """Return the name of its host."""
        return host_name(self.spec, self.host)

    def value(self, second: Second, metric: str) -> float:
        """Return what it measured, to the metric's resolution."""
        resolution = load_catalog().get(metric).resolution
        measured = second.gpu[metric][self.host * self.spec.gpus_per_host + self.index]
        return float(np.rint(measured / resolution) * resolution)


def clusters_of(data: Path) -> list[ClusterSpec]:
    """Return the clusters that `up` simulates in a data folder."""
    config = fleet_config(read_settings(data / "run" / "config.toml", {}, "simulate"), {})
    return [config.spec(position) for position in range(len(config.clusters))]


def replay(spec: ClusterSpec, start_second: int, seconds: int) -> Iterator[Second]:
    """Give the first seconds of a cluster."""
    cluster = SimulatedCluster(spec, start_second)
    for second in range(start_second, start_second + seconds):
        yield cluster.advance(second)
