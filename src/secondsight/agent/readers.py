"""Name every reader that an agent's settings ask for: one line a source."""

from collections.abc import Iterator
from dataclasses import dataclass

from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.host import HostReader, Place
from secondsight.agent.scrape import ScrapeReader
from secondsight.agent.simulate.reader import SimulateReader
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Reader


@dataclass(frozen=True, slots=True)
class Shared:
    """What every reader of an agent works with."""

    catalog: Catalog
    clock: Clock
    counts: Counts


def readers_of(config: AgentConfig, shared: Shared) -> Iterator[Reader]:
    """Make the readers of everything outside the agent itself.

    Raises:
        Rejected: `bad_config`.
    """
    catalog, clock, counts = shared.catalog, shared.clock, shared.counts
    if config.host_metrics:
        yield HostReader(Place(config.host, config.rack, config.root, config.interval_ms), catalog, clock, counts)
    if config.simulate is not None:
        yield SimulateReader(config.simulate, catalog, config.host)
    for target in config.scrape:
        yield ScrapeReader(target, catalog, clock, counts, host_id=config.host, rack=config.rack)
