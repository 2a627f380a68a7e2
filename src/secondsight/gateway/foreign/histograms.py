"""Turn readings of histograms into points: whole ones, and those that come as a series for each bucket.

A sender may spread the buckets, sum and count of one reading over several requests. They are held until they are
together, which is when as many bounds are there as the histogram is known to have. What stays apart for too long is
given as it stands if it makes a histogram, and refused if not. Counts are cumulative over time, so a reading that is
lost with this process takes nothing from the next one.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from secondsight.catalog.metric import MetricType
from secondsight.gateway.foreign.points import HistogramSample
from secondsight.gateway.foreign.series import Target
from secondsight.mapping.buckets import BUCKETS, COUNT, SUM, Series, began_ms, histogram_point
from secondsight.mapping.cells import HistogramPoint

HELD_MAXIMUM = 50_000
"""Readings that are held for one sender; of more the oldest are given up."""
HELD_MS = 30_000
BOUNDS_REMEMBERED = 50_000
DONE_REMEMBERED = 16
"""Readings of one histogram whose samples are passed over when they come again."""

_Key = tuple[str, str, str, str, str, str]
"""(host, job, source, metric, entity, part)."""


class Found(NamedTuple):
    """A point, and whose it is."""

    host: str
    job: str
    time_ms: int
    point: HistogramPoint


class _Held:
    """One reading while its parts come in."""

    def __init__(self, target: Target, now_ms: int) -> None:
        slot = target.slot
        self.series = Series(slot.metric, slot.source, slot.entity, slot.part)
        self.since_ms = now_ms
        self.samples = 0

    def take(self, target: Target, value: float) -> None:
        slot = target.slot
        self.samples += 1
        if slot.suffix == BUCKETS:
            self.series.buckets.append((slot.bound, value))
        elif slot.suffix == SUM:
            self.series.sum = value
        elif slot.suffix == COUNT:
            self.series.count = value
        else:
            self.series.start_ms = began_ms(value)

    def is_whole(self, bounds: int) -> bool:
        """Tell whether nothing is missing of a histogram of so many bounds."""
        one = self.series
        return one.sum is not None and one.count is not None and len(one.buckets) >= bounds


class Readings:
    """The histogram readings of one sender. Used by one thread at a time."""

    def __init__(self) -> None:
        self._held: dict[tuple[_Key, int], _Held] = {}
        self._bounds: dict[_Key, set[float]] = {}
        self._done: dict[_Key, deque[int]] = {}
        self._touched: set[tuple[_Key, int]] = set()

    def take(self, target: Target, value: float, time_ms: int, now_ms: int) -> None:
        """Take one sample of a bucket, a sum, a count, or of when they began."""
        slot = target.slot
        key = (slot.host, target.job, slot.source.name, slot.metric.name, slot.entity, slot.part)
        if time_ms in self._done.get(key, ()):
            return
        if slot.suffix == BUCKETS:
            if len(self._bounds) >= BOUNDS_REMEMBERED:
                self._bounds.clear()
            self._bounds.setdefault(key, set()).add(slot.bound)
        held = self._held.get((key, time_ms))
        if held is None:
            held = self._held[key, time_ms] = _Held(target, now_ms)
        held.take(target, value)
        self._touched.add((key, time_ms))

    def whole(self) -> Iterator[tuple[Found | None, str, str, int]]:
        """Give what the samples taken since the last call made whole: (point, code of its fault, metric, samples)."""
        touched, self._touched = self._touched, set()
        for place in sorted(touched):
            held = self._held[place]
            if held.is_whole(len(self._bounds.get(place[0], ()))):
                del self._held[place]
                yield self._closed(place, held)

    def overdue(self, now_ms: int) -> Iterator[tuple[Found | None, str, str, int]]:
        """Give, likewise, what waited for too long: as it stands, or that it is no histogram."""
        excess = len(self._held) - HELD_MAXIMUM
        late = [
            place
            for number, (place, held) in enumerate(self._held.items())
            if number < excess or not 0 <= now_ms - held.since_ms <= HELD_MS
        ]
        for place in late:
            held = self._held.pop(place)
            self._bounds[place[0]] = {bound for bound, _ in held.series.buckets}
            yield self._closed(place, held)

    def _closed(self, place: tuple[_Key, int], held: _Held) -> tuple[Found | None, str, str, int]:
        key, time_ms = place
        if len(self._done) >= BOUNDS_REMEMBERED:
            self._done.clear()
        self._done.setdefault(key, deque(maxlen=DONE_REMEMBERED)).append(time_ms)
        held.series.buckets = sorted(dict(held.series.buckets).items())
        held.series.has_buckets = bool(held.series.buckets)
        try:
            point = histogram_point(held.series)
        except ValueError as error:
            missing = held.series.sum is None or held.series.count is None
            code = "histogram_split" if missing else str(error)
            return None, code, key[3], held.samples
        return Found(key[0], key[1], time_ms, point), "", key[3], held.samples


def whole_points(target: Target, sample: HistogramSample) -> Iterator[Found]:
    """Give the points that a whole reading makes: one, and where it counts from its start on, zeros there too."""
    slot = target.slot
    if slot.metric.type is not MetricType.HISTOGRAM:
        return
    scale = slot.source.scale
    bounds = tuple(bound * scale for bound in sample.bounds)
    start_ms = min(sample.start_ms + 1, sample.time_ms - 1) if sample.is_delta else sample.start_ms
    made = HistogramPoint(slot.metric, slot.entity, slot.part, bounds, sample.buckets, sample.sum * scale, start_ms)
    yield Found(slot.host, target.job, sample.time_ms, made)
    if sample.is_delta:
        yield Found(slot.host, target.job, start_ms, made._replace(buckets=(0,) * len(sample.buckets), sum=0.0))
