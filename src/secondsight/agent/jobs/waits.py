"""Turn the accounts of jobs into histograms of how long they waited: from when they could run until they ran.

Every run that began since counting did counts once, however often its account is read; a run that was requeued counts
again, from when it could run again. Counts go on over restarts of the agent. The queue tells nothing here, as it does
not have the jobs that ended between two looks.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from secondsight.agent.jobs.slurmjob import JobState, SlurmJob
from secondsight.catalog.metric import Metric
from secondsight.mapping.cells import HistogramPoint, part_text

BOUNDS_SECONDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 259_200, 604_800)
QUEUES_MAXIMUM = 256
RUNS_MAXIMUM = 50_000


@dataclass(slots=True)
class _Waits:
    """Waits of one queue."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    sum_seconds: float = 0.0


class QueueWaits:
    """Waits of one cluster by queue. One thread uses it."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()
        self._since_ms: int | None = None
        self._queues: dict[str, _Waits] = {}
        self._counted: dict[tuple[str, int], None] = {}

    def take(self, jobs: Iterable[SlurmJob], span_ms: tuple[int, int], overlap_ms: int) -> None:
        """Count the runs that began within a span of accounting.

        Args:
            jobs: All jobs of the span.
            span_ms: Its start and end, epoch ms.
            overlap_ms: How far the next span reaches back behind the end of this one.
        """
        start_ms, end_ms = span_ms
        if self._since_ms is None:
            self._since_ms = start_ms
        for job in jobs:
            if job.start_ms is not None and job.start_ms >= start_ms and job.state is not JobState.PENDING:
                self._take_one(job, job.start_ms)
        kept = [run for run in self._counted if run[1] >= end_ms - overlap_ms]
        self._counted = dict.fromkeys(kept[-RUNS_MAXIMUM:])

    def points(self, metric: Metric, entity: str) -> Iterator[HistogramPoint]:
        """Give the histogram of each queue as it stands."""
        for queue, waits in self._queues.items():
            part, bounds = part_text([("queue", queue)]), tuple(map(float, BOUNDS_SECONDS))
            yield HistogramPoint(
                metric, entity, part, bounds, tuple(waits.buckets), waits.sum_seconds, self._since_ms or 0
            )

    def take_refused(self) -> Counter[str]:
        """Return why runs could not be counted, and how many, since the last call."""
        refused, self._refused = self._refused, Counter()
        return refused

    def kept(self) -> dict[str, Any]:
        """Return what must outlive the agent, as JSON."""
        queues = {name: [waits.buckets, waits.sum_seconds] for name, waits in self._queues.items()}
        return {"since_ms": self._since_ms, "queues": queues, "counted": [list(run) for run in self._counted]}

    def restore(self, said: Mapping[str, Any]) -> None:
        """Take up what `kept` gave; counts of other bounds begin anew.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: It is not what `kept` gives.
        """
        queues = {
            str(name): _Waits([int(count) for count in buckets], float(total))
            for name, (buckets, total) in said["queues"].items()
        }
        if any(len(waits.buckets) != len(BOUNDS_SECONDS) + 1 for waits in queues.values()):
            return
        counted = {(str(job), int(start_ms)): None for job, start_ms in said["counted"]}
        self._since_ms = None if said["since_ms"] is None else int(said["since_ms"])
        self._queues, self._counted = queues, counted

    def _take_one(self, job: SlurmJob, start_ms: int) -> None:
        run = (job.job_id, start_ms)
        if run in self._counted or job.eligible_ms is None or job.eligible_ms > start_ms:
            return
        waits = self._queues.get(job.partition)
        if len(self._counted) >= 2 * RUNS_MAXIMUM or (waits is None and len(self._queues) >= QUEUES_MAXIMUM):
            self._refused["parts_limit" if waits is None else "entities_limit"] += 1
            return
        if waits is None:
            waits = self._queues[job.partition] = _Waits()
        seconds = (start_ms - job.eligible_ms) / 1000
        waits.buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        waits.sum_seconds += seconds
        self._counted[run] = None
