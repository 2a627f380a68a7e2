"""Hold what the readers of one agent share of the driver: the child, the plan, and who is present.

The reader of GPU rows sets what is here; the readers of parts and processes look at it.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.agent.bootfile import BootFile
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml.decode import Decoded
from secondsight.agent.nvml.devices import Present, PresentGpus
from secondsight.agent.nvml.driver import Driver
from secondsight.agent.nvml.plan import Plan, Start
from secondsight.agent.nvml.settings import NvmlSettings, child_environment, is_there
from secondsight.agent.turn import SHARED_FILE
from secondsight.clock import Clock

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
DEADLINE_SHARE = 0.5
WAIT_SHARE = 0.65
"""Shares of the interval that the child may wait for a GPU, and that the agent waits for the child."""


@dataclass(frozen=True, slots=True)
class Host:
    """The host whose GPUs are read.

    Attributes:
        root: Folder that holds proc and sys.
        kept: Where the GPUs of this boot outlive the agent; None to forget them.
        dev: Folder of the device files that the driver's library opens.
        turn_files: Where processes of the host take turns in starting the driver.
    """

    host_id: str
    rack: str = ""
    root: Path = Path("/")
    interval_ms: int = 1000
    kept: BootFile | None = None
    dev: Path = Path("/dev")
    turn_files: tuple[Path, ...] = (SHARED_FILE,)


@dataclass(frozen=True, slots=True)
class RareReading:
    """What was read rarely of one GPU.

    Attributes:
        names: Of the columns of `decoded`.
        monotonic_seconds: When.
        has: Metrics that the GPU's own row has a value of.
        links_active: NVLinks that are on, None for a GPU without any.
    """

    decoded: Decoded
    names: tuple[str, ...]
    monotonic_seconds: float
    has: frozenset[str] = frozenset()
    links_active: int | None = None


@dataclass(slots=True)
class GpuSource:
    """The driver of one host.

    Attributes:
        present: Table for readers that name a GPU by something else than its UUID.
        known: Where UUIDs are looked up by PCI address or index, by other readers.
        by_number: GPUs by the child's number; replaced as a whole, never changed.
        rare: UUID -> what was read rarely; likewise.
    """

    settings: NvmlSettings
    plan: Plan
    host: Host
    clock: Clock
    driver: Driver
    present: PresentGpus
    known: KnownGpus
    by_number: Mapping[int, Present] = field(default_factory=dict)
    rare: Mapping[str, RareReading] = field(default_factory=dict)
    _found: bool = False
    _look_at: float = 0.0

    @property
    def found(self) -> bool:
        """Tell whether there was a driver to ask when it was last looked for."""
        return self._found

    def is_usable(self) -> bool:
        """Tell whether there is a driver to ask; looks for the library every minute while there is none."""
        if self._found:
            return True
        now = self.clock.monotonic_seconds()
        if now < self._look_at:
            return False
        is_first, self._look_at = self._look_at == 0.0, now + LOOK_SECONDS
        self._found = self.settings.enabled == "on" or is_there(self.settings, os.environ)
        if not self._found and is_first:
            logger.info("no NVIDIA driver library on this host, no GPU is read through it")
        return self._found

    @property
    def waits_seconds(self) -> tuple[float, float]:
        """Return how long the agent waits for the child, and the child for a GPU."""
        interval_seconds = self.host.interval_ms / 1000
        deadline_seconds = self.settings.deadline_ms / 1000 or DEADLINE_SHARE * interval_seconds
        deadline_seconds = min(deadline_seconds, WAIT_SHARE * interval_seconds)
        return deadline_seconds + (WAIT_SHARE - DEADLINE_SHARE) * interval_seconds, deadline_seconds


def gpu_source(
    settings: NvmlSettings,
    plan: Plan,
    host: Host,
    clock: Clock,
    random: Callable[[], float],
    tables: tuple[PresentGpus, KnownGpus],
) -> GpuSource:
    """Make a source; the child is started with the first reading."""
    start = Start(random() * settings.start_spread_seconds, host.turn_files)
    driver = Driver(
        plan.message(settings, host.root, host.interval_ms, start),
        lambda: child_environment(settings),
        clock,
        random,
        abandon_seconds=settings.abandon_seconds,
    )
    return GpuSource(settings, plan, host, clock, driver, *tables)
