"""Turn an agent's ticks into samples of simulated GPUs in its own host, for trying things where there are none."""

from secondsight.agent.simulate.asked import SimulatedGpus
from secondsight.agent.simulate.cluster import ClusterSpec, SimulatedCluster
from secondsight.agent.simulate.config import BOARD_NAMES
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.simulate.incidents import incident_named
from secondsight.catalog.index import Catalog
from secondsight.contracts import Tick
from secondsight.model import EntityKind

CATCH_UP_SECONDS = 3600
REAL_KINDS = (EntityKind.NODE, EntityKind.PLATFORM)
"""Kinds that the agent reads from the machine itself."""


class SimulateReader:
    """A reader of simulated GPUs, with their jobs, engines and Xids. Not thread-safe; one thread calls it."""

    name = "simulate"
    interval_ms = 1000

    def __init__(self, asked: SimulatedGpus, catalog: Catalog, host_id: str) -> None:
        incidents = tuple(incident_named(name) for name in asked.incidents)
        self._spec = ClusterSpec(
            host_id, 1, asked.gpus, BOARD_NAMES[asked.board], asked.seed, incidents=incidents, names=(host_id,)
        )
        self._contents = HostContents(self._spec, catalog)
        self._cluster: SimulatedCluster | None = None
        self._next_second = 0

    def read(self, tick_ms: int) -> Tick:
        """Advance to the tick's second and return its samples; a second that was had already gives nothing."""
        second = tick_ms // 1000
        if self._cluster is None or second - self._next_second > CATCH_UP_SECONDS:
            self._cluster, self._next_second = SimulatedCluster(self._spec, second), second
        if second < self._next_second:
            return Tick(())
        while self._next_second < second:
            self._cluster.advance(self._next_second)
            self._next_second += 1
        self._next_second = second + 1
        made = self._contents.batch([self._cluster.advance(second)]).get(0, ())
        return Tick(tuple(content for content in made if content.schema.kind not in REAL_KINDS))

    def close(self) -> None:
        """Forget the simulated state; may be called twice."""
        self._cluster = None
