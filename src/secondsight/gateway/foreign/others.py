"""Turn what is no plain cell of a request into contents: histograms, events, facts and ownership."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import MetricType
from secondsight.gateway.foreign.cadence import Cadence
from secondsight.gateway.foreign.histograms import Found, Readings, whole_points
from secondsight.gateway.foreign.layout import Place
from secondsight.gateway.foreign.ownership import Ownership
from secondsight.gateway.foreign.points import (
    STALE_BITS,
    HistogramSample,
    Points,
    Refused,
)
from secondsight.gateway.foreign.series import SeriesIndex, Target
from secondsight.gateway.foreign.taken import Taken
from secondsight.gateway.foreign.times import Times
from secondsight.mapping.buckets import NOT_MEASURED, is_not_measured
from secondsight.mapping.cells import ContentBuilder, Gathered, HistogramPoint
from secondsight.mapping.changes import LastValues
from secondsight.mapping.resolve import Resolver
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Event

EVENT_CODE_MAXIMUM = 2**53
OVERFLOW_EVENT = "ingest_label_overflow"
COLLECTORS_MAXIMUM = 20_000
FIRST_LOOK_MS = 60_000
"""What a sender's series say in its first minute here may have been so for long."""

logger = logging.getLogger(__name__)

PlaceOf = Callable[[str, EntityKind, str], Place]
_At = tuple[str, str, int]
"""(host, job, epoch ms)."""


class _Collector:
    """What one collector's contents are built by."""

    def __init__(self, host: str) -> None:
        self.builder = ContentBuilder(host, "")
        self.cadence = Cadence()
        self.rows: dict[tuple[str, str, str], int] = {}


class Others:
    """The histograms, events, facts and ownership of one sender. Used by one thread at a time."""

    def __init__(self, name: str, catalog: Catalog, resolver: Resolver, index: SeriesIndex, times: Times) -> None:
        self._name = name
        self._catalog = catalog
        self._resolver = resolver
        self._index = index
        self._times = times
        self._readings = Readings()
        self._events = LastValues()
        self._began_ms: int | None = None
        self._ownership = Ownership()
        self._collectors: dict[tuple[str, str], _Collector] = {}
        self._gathered: defaultdict[_At, Gathered] = defaultdict(Gathered)
        self._points: dict[tuple[str, str, int, str, str, str], HistogramPoint] = {}

    def take(self, points: Points, good: NDArray[np.intp], taken: Taken, now_ms: int) -> None:
        """Take the points of a request, those of `good` among its numbers."""
        numbers = points.series[good]
        for place in good[self._index.with_targets(numbers)].tolist():
            time_ms, value = int(points.times_ms[place]), float(points.values[place])
            if int(points.values[place : place + 1].view(np.uint64)[0]) != STALE_BITS:
                for target in self._index.targets(int(points.series[place])):
                    self._take_number(target, value, time_ms, now_ms)
        for sample in points.histograms:
            self._take_histogram(sample, taken, now_ms)
        self._ownership.see(self._index.sights(numbers, points.times_ms[good]), self._give_owner)
        self._close_readings(taken, now_ms)
        newest_ms = int(points.times_ms[good].max()) if good.size else now_ms
        if self._began_ms is None:
            self._began_ms = newest_ms
        elif newest_ms - self._began_ms > FIRST_LOOK_MS:
            self._events.look_done()
        self._take_facts(newest_ms)
        self._take_overflow(taken, newest_ms)

    def contents(self, place_of: PlaceOf) -> Iterator[tuple[Place, int, NDArray[np.int64], Content]]:
        """Give (place, cadence, tick, content) of what was taken since the last call."""
        gathered, self._gathered = self._gathered, defaultdict(Gathered)
        self._points.clear()
        for (host, job, time_ms), one in sorted(gathered.items(), key=lambda item: item[0]):
            collector = self._collector(host, job)
            interval_ms = self._interval_ms(collector, one, time_ms)
            times_ms = np.array([time_ms], np.int64)
            for content in collector.builder.build(one, 0):
                yield place_of(host, content.schema.kind, job), interval_ms, times_ms, content

    def _collector(self, host: str, job: str) -> _Collector:
        if len(self._collectors) >= COLLECTORS_MAXIMUM and (host, job) not in self._collectors:
            self._collectors.clear()
        return self._collectors.setdefault((host, job), _Collector(host))

    def _interval_ms(self, collector: _Collector, gathered: Gathered, time_ms: int) -> int:
        keys = {(point.metric.name, point.entity, point.part) for point in gathered.histograms}
        if not keys:
            return collector.cadence.interval_ms
        rows = [collector.rows.setdefault(key, len(collector.rows)) for key in sorted(keys)]
        return collector.cadence.see(np.array(rows, np.int32), np.full(len(rows), time_ms, np.int64))

    def _take_number(self, target: Target, value: float, time_ms: int, now_ms: int) -> None:
        if target.slot.metric.type is MetricType.HISTOGRAM:
            self._readings.take(target, value, time_ms, now_ms)
        elif target.slot.convert is not None:
            code, _ = target.slot.convert.one(value)
            self._take_event(target, code, time_ms)

    def _take_event(self, target: Target, code: float | None, time_ms: int) -> None:
        slot = target.slot
        if code is not None and abs(code) > EVENT_CODE_MAXIMUM:
            return
        event = self._events.see(slot.metric.name, slot.entity, slot.part, code, time_ms)
        if event is not None:
            self._gathered[slot.host, target.job, time_ms].events.append((slot.metric.kind, event))

    def _take_histogram(self, sample: HistogramSample, taken: Taken, now_ms: int) -> None:
        name = self._index.series(sample.series).name
        one = np.array([sample.series], np.int32)
        code, detail = self._fault(sample, now_ms)
        if self._index.refused(one)[0]:
            for refused, count in self._index.refusals(one):
                taken.refuse(refused, count, self._index.series(sample.series).detail)
        elif code:
            taken.refuse(Refused(code, name), 1, f"{name}: {detail}", (sample.time_ms, sample.time_ms))
        else:
            taken.histograms += 1
            for target in self._index.targets(sample.series) if sample.buckets else ():
                for found in whole_points(target, sample):
                    if not self._add_point(found) and found.time_ms == sample.time_ms:
                        detail = f"{name} has two readings at {sample.time_ms}, and the first one counts"
                        taken.refuse(Refused("conflict", name), 1, detail, (sample.time_ms, sample.time_ms))
                        taken.histograms -= 1

    def _fault(self, sample: HistogramSample, now_ms: int) -> tuple[str, str]:
        """Return the code of why a reading is refused and what exactly is wrong, "" where nothing is."""
        if sample.fault:
            return ("bad_histogram" if sample.fault.startswith("histogram_") else sample.fault), sample.fault
        if sample.buckets and is_not_measured(sample.sum, sum(sample.buckets), sample.buckets[0]):
            return NOT_MEASURED, "all values are 0"
        untimely = self._times.fault(sample.time_ms, now_ms)
        if not untimely and sample.is_delta and self._times.fault(sample.start_ms, now_ms) in ("time_unit", "too_old"):
            return "no_start_time", f"it counts from {sample.start_ms} ms on, which cannot be stored"
        return untimely, self._times.words(sample.time_ms, now_ms)

    def _close_readings(self, taken: Taken, now_ms: int) -> None:
        whole = list(self._readings.whole())
        for found, code, metric, samples in (*whole, *self._readings.overdue(now_ms)):
            if found is not None:
                self._add_point(found)
            else:
                detail = f"{metric}: {samples} samples of a histogram do not make one"
                taken.refuse(Refused(code, metric), samples, detail)
        taken.samples -= min(taken.samples, sum(samples for found, _, _, samples in whole if found is None))

    def _add_point(self, found: Found) -> bool:
        """Add a point; return False if another one of its cell was there before it, which stays."""
        point = found.point
        place = (found.host, found.job, found.time_ms, point.metric.name, point.entity, point.part)
        before = self._points.setdefault(place, point)
        if before is not point:
            return before == point
        gathered = self._gathered[found.host, found.job, found.time_ms]
        gathered.histograms.append(point)
        key = (point.entity, point.part)
        gathered.attributes[key] = self._resolver.attributes.get(key, ())
        return True

    def _take_facts(self, time_ms: int) -> None:
        for info in self._resolver.facts.take(time_ms):
            host = self._resolver.host_of_fact.get(info.entity, "")
            if host:
                kind = self._catalog.get(info.metric).kind
                self._gathered[host, "", time_ms].infos.append((kind, info))

    def _take_overflow(self, taken: Taken, time_ms: int) -> None:
        """Tell of labels that have too many values, once for each."""
        overflow = self._index.overflow
        taken.overflowed, overflow.replaced = overflow.replaced, 0
        for told in overflow.news:
            logger.warning(
                "sender %s: label %s of %s has over %d values", self._name, told.label, told.metric, told.limit
            )
            facts = {"metric": told.metric, "label": told.label, "limit": str(told.limit)}
            event = Event(OVERFLOW_EVENT, self._name, "", time_ms, told.limit, attributes=facts)
            self._gathered[self._name, "", time_ms].events.append((EntityKind.PLATFORM, event))
        overflow.news.clear()

    def _give_owner(self, host: str, time_ms: int, event: Event) -> None:
        self._gathered[host, "", time_ms].events.append((EntityKind.PROCESS_JOB, event))
