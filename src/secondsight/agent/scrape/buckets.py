"""Gather the bucket, sum and count samples of a scrape into histogram points.

An exposition counts cumulatively over buckets; a point does not. A histogram that contradicts itself is refused as a
whole, with the reason.
"""

from collections.abc import Callable

from secondsight.agent.scrape.exposition import Exposition, Sample, type_of
from secondsight.mapping.buckets import BUCKETS, COUNT, NOT_MEASURED, SUM, Series, began_ms, histogram_point
from secondsight.mapping.cells import Gathered
from secondsight.mapping.resolve import Slot
from secondsight.model import EntityKind


class Histograms:
    """Gathers the samples of histograms of one scrape."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._series: dict[tuple[str, str, str, str], tuple[str, Series]] = {}

    def add(self, slot: Slot, sample: Sample) -> None:
        """Take one sample of a series that belongs to a histogram."""
        key = (slot.source.name, slot.metric.name, slot.entity, slot.part)
        _, one = self._series.setdefault(key, (slot.host, Series(slot.metric, slot.source, slot.entity, slot.part)))
        one.has_buckets = one.has_buckets and type_of(self._exposition, sample.name) != "summary"
        if slot.suffix == BUCKETS:
            one.buckets.append((slot.bound, sample.value))
        elif slot.suffix == SUM:
            one.sum = sample.value
        elif slot.suffix == COUNT:
            one.count = sample.value
        else:
            one.start_ms = began_ms(sample.value)

    def take(self, gathered_of: Callable[[str], Gathered]) -> dict[str, str]:
        """Add the points to their hosts; return engine -> latencies that were counted but not measured."""
        taken: set[tuple[str, str, str]] = set()
        unmeasured: dict[str, str] = {}
        for host, one in sorted(self._series.values(), key=lambda item: item[1].source.rank):
            gathered = gathered_of(host)
            key = (one.metric.name, one.entity, one.part)
            try:
                point = histogram_point(one)
            except ValueError as error:
                gathered.discarded[str(error)] += 1
                if str(error) == NOT_MEASURED and one.metric.kind is EntityKind.INFERENCE:
                    unmeasured[one.entity] = ",".join(filter(None, (unmeasured.get(one.entity), one.metric.name)))
                continue
            if key in taken:
                gathered.discarded["duplicate"] += 1
                continue
            taken.add(key)
            gathered.histograms.append(point)
        return unmeasured
