"""Turn the agent's own state into platform rows: that it lives, what it costs, what it missed, what its spool holds."""

import os
import resource
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

from secondsight.agent.counts import Counts
from secondsight.agent.host.textfile import read_text
from secondsight.agent.spool.classes import Spools
from secondsight.agent.tick.lane import Duration
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered, HistogramPoint, part_text

DURATION_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Histogram:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS_SECONDS) + 1))
    sum_seconds: float = 0.0
    processor_seconds: float = 0.0


class ReadDurations:
    """How long reads took, by source. Safe to call from threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_source: defaultdict[str, _Histogram] = defaultdict(_Histogram)

    def observe(self, duration: Duration) -> None:
        """Count one read."""
        with self._lock:
            histogram = self._by_source[duration.source]
            histogram.buckets[bisect_left(DURATION_BOUNDS_SECONDS, duration.seconds)] += 1
            histogram.sum_seconds += duration.seconds
            histogram.processor_seconds += duration.processor_seconds

    def all(self) -> list[tuple[str, tuple[int, ...], float]]:
        """Return (source, buckets, sum in seconds) of every source."""
        with self._lock:
            return [(name, tuple(h.buckets), h.sum_seconds) for name, h in sorted(self._by_source.items())]

    def processor_seconds(self) -> list[tuple[str, float]]:
        """Return (source, seconds on a processor) of every source."""
        with self._lock:
            return [(name, h.processor_seconds) for name, h in sorted(self._by_source.items())]


@dataclass(frozen=True, slots=True)
class SelfParts:
    """What the reader looks at.

    Attributes:
        started_ms: When the agent started, the start of all its counts.
        resident_bytes: Returns the memory that the process holds, or None.
    """

    spools: Spools
    spool_limit_bytes: int
    counts: Counts
    durations: ReadDurations
    started_ms: int
    resident_bytes: Callable[[], int | None]


class SelfReader:
    """Reads the agent itself. The entity is the collector id."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        parts: SelfParts,
        *,
        collector_id: str,
        host_id: str,
        interval_ms: int = 1000,
    ) -> None:
        self.name = "self"
        self.interval_ms = interval_ms
        self._catalog = catalog
        self._clock = clock
        self._parts = parts
        self._collector_id = collector_id
        self._builder = ContentBuilder(host_id, "")
        self._conversion = lru_cache(maxsize=64)(self._new_conversion)

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of platform rows."""
        gathered = Gathered()
        gathered.cells = [*self._process_cells(), *self._spool_cells(), *self._count_cells()]
        gathered.histograms = self._histograms()
        return Tick(self._builder.build(gathered, self._clock.now_ms() - tick_ms))

    def close(self) -> None:
        """Nothing is held."""

    def _cell(self, metric: str, physical: float, **labels: str) -> Cell:
        value, quality = self._conversion(metric).one(physical)
        return Cell(self._catalog.get(metric), self._collector_id, part_text(labels.items()), value, quality)

    def _new_conversion(self, metric: str) -> Conversion:
        return conversion(self._catalog.get(metric), Source("agent", metric))

    def _process_cells(self) -> list[Cell]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        cells = [
            self._cell("agent_up", 1),
            self._cell("agent_cpu_seconds_total", used.ru_utime + used.ru_stime),
            self._cell("agent_samples_missed_total", self._parts.counts.get("ticks_missed")),
        ]
        resident_bytes = self._parts.resident_bytes()
        if resident_bytes is not None:
            cells.append(self._cell("agent_resident_memory_bytes", resident_bytes))
        for source, seconds in self._parts.durations.processor_seconds():
            cells.append(self._cell("agent_collect_cpu_seconds_total", seconds, source=source))
        return cells

    def _spool_cells(self) -> list[Cell]:
        spools = self._parts.spools
        held_bytes = spools.waiting_bytes
        return [
            self._cell("agent_spool_bytes", held_bytes),
            self._cell("agent_spool_utilization_ratio", min(held_bytes / self._parts.spool_limit_bytes, 1.0)),
            self._cell("agent_spool_oldest_age_seconds", min(spools.oldest_age_seconds, 1e7)),
        ]

    def _count_cells(self) -> list[Cell]:
        counts = self._parts.counts
        discarded = counts.labelled("discarded")
        dropped = counts.labelled("dropped")
        failed = counts.labelled("spool_write_failed")
        return [
            *(self._cell("agent_values_discarded_total", n, reason=name) for name, n in sorted(discarded.items())),
            *(self._cell("agent_spool_dropped_records_total", n, reason=name) for name, n in sorted(dropped.items())),
            *(self._cell("agent_spool_write_failures_total", n, errno=name) for name, n in sorted(failed.items())),
        ]

    def _histograms(self) -> list[HistogramPoint]:
        metric = self._catalog.get("agent_collect_duration_seconds")
        return [
            HistogramPoint(
                metric,
                self._collector_id,
                part_text([("source", source)]),
                DURATION_BOUNDS_SECONDS,
                buckets,
                sum_seconds,
                self._parts.started_ms,
            )
            for source, buckets, sum_seconds in self._parts.durations.all()
        ]


def resident_bytes() -> int | None:
    """Return the memory that this process holds, or None where /proc does not tell."""
    try:
        return int((read_text("/proc/self/statm") or "").split()[1]) * _PAGE_BYTES
    except (ValueError, IndexError):
        return None
