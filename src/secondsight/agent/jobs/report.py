"""Turn what an allocator's reader found into ticks: events of intervals, and cells beside them."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.counts import Counts
from secondsight.agent.jobs.devices import GpuTable
from secondsight.agent.jobs.kept import KeptIntervals
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import conversion
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, HistogramPoint, count_discarded
from secondsight.mapping.intervals import Intervals, Listing
from secondsight.model import EntityKind
from secondsight.wire.content import Event, Info

logger = logging.getLogger(__name__)

HINTS = {
    "gpu_id": "a device id names no GPU or slice that the driver lists now",
    "gpu_number": "jobs show only numbers inside their own devices: add prolog and epilog, or set agent.slurm.scontrol",
    "no_permission": "the processes of jobs may not be looked at: run as root, or with CAP_SYS_PTRACE",
}
SILENT_TICKS = 3
"""A holder found gone after more ticks without word of the allocator ended at an unknown time."""


@dataclass(frozen=True, slots=True)
class Station:
    """Where an allocator is read.

    Attributes:
        root: Folder that holds proc and sys.
        state_dir: Folder for what must survive a restart.
    """

    host_id: str
    rack: str
    root: Path
    state_dir: Path


@dataclass(frozen=True, slots=True)
class Means:
    """What a reader of an allocator works with."""

    catalog: Catalog
    clock: Clock
    counts: Counts
    offset: ClockOffset
    gpus: GpuTable


@dataclass(slots=True)
class Findings:
    """What one look at an allocator gave.

    Attributes:
        listing: Who holds what, or None where nothing was learnt about that.
        history: Who held what before, oldest first, where it was not known then.
        readings: (metric, entity, part, physical value).
        histograms: As they stand.
        unresolved: Reason -> things that name no GPU or job that is known here; counted.
    """

    listing: Listing | None = None
    history: list[Listing] = field(default_factory=list)
    readings: list[tuple[str, str, str, float]] = field(default_factory=list)
    histograms: list[HistogramPoint] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    infos: list[Info] = field(default_factory=list)
    unresolved: Counter[str] = field(default_factory=Counter)


class AllocationReport:
    """Makes the ticks of one allocator, and remembers its intervals. One thread uses it.

    Counts `job_unresolved:REASON`, `job_intervals_refused` and what `KeptIntervals` counts.
    """

    def __init__(self, via: str, interval_ms: int, station: Station, means: Means) -> None:
        self._via = via
        self._means = means
        self._kept = KeptIntervals(station.state_dir / f"allocations-{via}.json", means.counts)
        self._intervals = Intervals(via, SILENT_TICKS * interval_ms, self._kept.load())
        self._builder = ContentBuilder(station.host_id, station.rack)
        self._refused = 0
        self._complaints: frozenset[str] = frozenset()

    @property
    def open_intervals(self) -> int:
        """Return how many holders are known."""
        return len(self._intervals.open)

    def open_jobs(self) -> set[str]:
        """Return the jobs of the open intervals."""
        return {interval.owner.job_id for interval in self._intervals.open}

    def tick(self, found: Findings, tick_ms: int) -> Tick:
        """Return the tick of what was found, and keep what must survive a restart."""
        gathered = Gathered()
        if found.listing is not None:
            events = self._intervals.see(found.listing, tick_ms, self._correction_ms(), found.history)
            gathered.events += [(EntityKind.PROCESS_JOB, event) for event in events]
            self._kept.save(self._intervals, tick_ms)
        gathered.events += [(EntityKind.PROCESS_JOB, event) for event in found.events]
        gathered.infos += [(EntityKind.PROCESS_JOB, info) for info in found.infos]
        gathered.cells += cells_of(found.readings, self._means.catalog)
        gathered.histograms += found.histograms
        self._count(found, gathered)
        delta_ms = self._means.clock.now_ms() - tick_ms
        return Tick(self._builder.build(gathered, delta_ms), collector=self._via)

    def _correction_ms(self) -> int:
        return self._means.offset.correction_ms(self._means.clock.monotonic_seconds())

    def _count(self, found: Findings, gathered: Gathered) -> None:
        counts = self._means.counts
        for reason, things in found.unresolved.items():
            counts.add(f"job_unresolved:{reason}", things)
        for reason in sorted(found.unresolved.keys() - self._complaints):
            things = found.unresolved[reason]
            logger.warning(
                "%s: %d things have no owner (%s): %s", self._via, things, reason, HINTS.get(reason, "refused")
            )
        self._complaints = frozenset(found.unresolved)
        if self._intervals.refused > self._refused:
            counts.add("job_intervals_refused", self._intervals.refused - self._refused)
            self._refused = self._intervals.refused
        count_discarded(gathered)
        counts.add_discarded(gathered.discarded)


def cells_of(readings: Iterable[tuple[str, str, str, float]], catalog: Catalog) -> list[Cell]:
    """Return the cells of readings in physical units."""
    cells = []
    for name, entity, part, physical in readings:
        metric = catalog.get(name)
        value, quality = conversion(metric, Source("jobs", name)).one(physical)
        cells.append(Cell(metric, entity, part, value, quality))
    return cells
