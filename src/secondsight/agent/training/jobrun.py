"""What one host knows of a training run and of its processes."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from secondsight.agent.training.datagram import Report
from secondsight.agent.training.losses import LossWatch
from secondsight.agent.training.measures import Key, Measured
from secondsight.agent.training.pace import Pace
from secondsight.mapping.cells import Attributes

OWN_GAUGES = ("allocator_allocated_bytes", "allocator_reserved_bytes", "allocator_inactive_split_bytes")
SILENT_SECONDS = 5.0


@dataclass(slots=True)
class Process:
    """One process of a run.

    Attributes:
        counted: What its last report had counted, by the report's keys.
        heard: When it last reported, monotonic seconds.
        pid: 0 where it is not known.
        done: It said that it ends, or is gone.
    """

    start: int
    counted: dict[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    heard: float = 0.0
    pid: int = 0
    local_rank: int | None = None
    done: bool = False


@dataclass(slots=True)
class JobRun:
    """One run as this host sees it.

    Attributes:
        wide: Process key -> what every process counts alike; that of the lowest rank is the run's.
        uid: Whose processes it has; None while it has none, or that is not known.
        lead_here: False if rank 0 is on another host.
        counted: Counts that were told already.
    """

    entity: str
    measured: Measured = field(default_factory=Measured)
    wide: dict[str, Measured] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    attributes: Attributes = ()
    lead_here: bool = True
    world_size: int | None = None
    steps_planned: int | None = None
    pace: Pace = field(default_factory=Pace)
    watch: LossWatch = field(default_factory=LossWatch)
    told: dict[int, float] = field(default_factory=dict)
    stalled_since_ms: int | None = None
    touched: float = 0.0
    uid: int | None = None
    counted: set[Key] = field(default_factory=set)

    @property
    def lead(self) -> str | None:
        """Return the key of the process with the lowest rank."""
        return min(self.processes, key=rank_order, default=None)


def process_key(run: JobRun, report: Report) -> str:
    """Return the rank as text; without one "" for the first of a run, and a name of its own for each beside it."""
    own = f"p{report.start}"
    if report.rank is not None or own in run.processes:
        return own if report.rank is None else str(report.rank)
    first = run.processes.get("")
    beside = first is not None and first.start != report.start and run.touched - first.heard < SILENT_SECONDS
    return own if beside else ""


def rank_order(key: str) -> tuple[bool, int]:
    """Order ranks as numbers; a process without a rank is before others without."""
    return (False, int(key)) if key.isdecimal() else (True, int(key[1:] or -1))


def own_gauges(run: JobRun) -> Iterator[tuple[Key, float]]:
    """Give what each process has of its own, under its local rank."""
    for key, process in run.processes.items():
        label = str(process.local_rank if process.local_rank is not None else key or "0")
        known = {name: process.gauges[name] for name in OWN_GAUGES if name in process.gauges}
        for name, value in known.items():
            yield (name, label), value
        allocated, reserved = (known.get(f"allocator_{name}_bytes") for name in ("allocated", "reserved"))
        if allocated is not None and reserved is not None and 0 < reserved >= allocated:
            yield ("allocator_fragmentation", label), (reserved - allocated) / reserved


def lag_seconds(run: JobRun) -> float | None:
    """Return how much longer the slowest process of this host took for its last step than the median."""
    seconds = [p.gauges["step_seconds"] for p in run.processes.values() if "step_seconds" in p.gauges]
    return max(seconds) - statistics.median(seconds) if len(seconds) > 1 else None
