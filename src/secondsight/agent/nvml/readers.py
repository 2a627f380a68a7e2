"""Make the readers that go through the driver's library, all of them over one child."""

import random
from collections.abc import Iterator

from secondsight.agent.counts import Counts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml.devices import PresentGpus
from secondsight.agent.nvml.parts import PartsReader
from secondsight.agent.nvml.plan import plan_of
from secondsight.agent.nvml.processes import ProcessReader
from secondsight.agent.nvml.reader import NvmlReader
from secondsight.agent.nvml.settings import NvmlSettings
from secondsight.agent.nvml.source import Host, gpu_source
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Reader


def nvml_readers(
    settings: NvmlSettings,
    host: Host,
    catalog: Catalog,
    clock: Clock,
    counts: Counts,
    tables: tuple[PresentGpus, KnownGpus],
) -> Iterator[Reader]:
    """Make the reader of GPU rows, which is the first and owns the child, and those of parts and processes.

    Args:
        settings: Not `off`.
        host: Whose GPUs.
        catalog: What to ask for.
        clock: Clock of the host.
        counts: Of the agent.
        tables: Told which GPUs are present.
    """
    source = gpu_source(settings, plan_of(catalog), host, clock, random.SystemRandom().random, tables)
    yield NvmlReader(source, catalog, counts)
    yield PartsReader(source)
    if settings.processes:
        yield ProcessReader(source, counts)
