"""Turn the points of a foreign sender's requests into native frames, and say what was refused of them.

The same request gives the same cells, whatever came before it: times are the sender's own, the collector's name follows
from token, protocol, host and job, and sequences from the bytes of the request.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.index import Catalog
from secondsight.gateway.actives import OwnSeries
from secondsight.gateway.foreign.layout import Cells, Layout, Place
from secondsight.gateway.foreign.others import Others
from secondsight.gateway.foreign.points import TIME_MS_MAXIMUM, TIME_MS_MINIMUM, Points, Refused
from secondsight.gateway.foreign.series import SeriesIndex
from secondsight.gateway.foreign.starts import Starts
from secondsight.gateway.foreign.taken import Made, Taken
from secondsight.gateway.foreign.times import Times
from secondsight.mapping.cells import plain_text
from secondsight.mapping.identity import Origin
from secondsight.mapping.resolve import Resolver
from secondsight.model import EntityKind
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, encode
from secondsight.wire.schema import named_entities, named_schema

AGE_MS = 3_600_000
UNSEEN_SHARE = 0.2
"""Series are numbered anew when more than this share of them was not seen in the last hour."""
JOB_SEPARATORS = str.maketrans("/", "_")
SEQUENCE_MASK = 2**62 - 1


@dataclass(frozen=True, slots=True)
class Who:
    """A sender.

    Attributes:
        name: First part of its collectors' ids.
        protocol: Second part, and the source of its frames.
        spool_id: Stands for the spool that it does not have.
        allows_host: Tells whether it may write of a host.
    """

    name: str
    protocol: str
    spool_id: int
    allows_host: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Settings:
    """What is taken of any sender.

    Attributes:
        future_ms, past_ms: How far from the gateway's clock a sample may be.
        series_maximum: Series that one sender may have.
        host_labels: Further labels that name a host, looked at first.
    """

    future_ms: int
    past_ms: int
    series_maximum: int
    host_labels: tuple[str, ...] = ()


class Sender:
    """One sender of one protocol. Used by one thread at a time.

    Args:
        own: Its series among those of its tenant; None where nobody counts them.
    """

    def __init__(self, who: Who, catalog: Catalog, settings: Settings, own: OwnSeries | None = None) -> None:
        self._who = who
        self._own = own
        self._catalog = catalog
        self._settings = settings
        self._times = Times(settings.future_ms, settings.past_ms, who.protocol)
        self._age = 0
        self._begin()

    def prepare(self, now_ms: int) -> SeriesIndex:
        """Return the index by which a request is decoded; to be called before each."""
        age = now_ms // AGE_MS
        is_old = age != self._age and (self.index.is_full or self.index.unseen_share(self._age) > UNSEEN_SHARE)
        if is_old or self._is_outdated:
            helps = self.index.helps
            self._begin()
            self.index.helps.update(helps)
        self._age = age
        return self.index

    def learn_help(self, name: str, text: str) -> None:
        """Take what a metric's description says; if it names another unit, series are numbered anew before the next."""
        self._is_outdated |= self.index.learn_help(name, text)

    def renew(self) -> None:
        """Take that the catalogue has more metrics now: series are numbered anew before the next points."""
        self._is_outdated = True

    def take(self, points: Points, request_hash: int, now_ms: int) -> Taken:
        """Return the frames that the points of one request make.

        Args:
            points: Decoded by the index of this sender.
            request_hash: Of the bytes of the request.
            now_ms: The gateway's clock.
        """
        taken = Taken(refused=points.refused, details=points.details, exemplars=points.exemplars)
        good = self._admitted(points, taken, now_ms)
        frames = _Frames(self._who, request_hash, taken)
        if good.size:
            self._take_cells(points, good, taken, frames)
        self._others.take(points, good, taken, now_ms)
        cells = len(taken.frames)
        for place, interval_ms, times_ms, content in self._others.contents(self._place):
            frames.add(place, interval_ms, times_ms, content)
        taken.said = taken.frames[cells:]
        return taken

    def close(self) -> None:
        """Forget all series; it is not used afterwards."""
        if self._own is not None:
            self._own.close()

    def note_unstored(self) -> None:
        """Take that frames were not stored: when counters began is to be told again."""
        self._starts = Starts()

    def _begin(self) -> None:
        """Number series anew."""
        self._is_outdated = False
        origin = Origin(host_id="", target=self._who.name, remote=True, host_labels=self._settings.host_labels)
        resolver = Resolver(self._catalog, origin, self._settings.series_maximum, self._who.allows_host)
        self._layouts: dict[tuple[str, EntityKind, str], Layout] = {}
        maximum = self._settings.series_maximum
        if self._own is None:
            self.index = SeriesIndex(resolver, self._layout, maximum)
        else:
            self._own.forget(are_back_soon=True)
            self.index = SeriesIndex(resolver, self._layout, maximum, self._own.refuse)
        self._others = Others(
            self._who.name,
            self._catalog,
            resolver,
            self.index,
            self._times,
        )
        self._starts = Starts()

    def _layout(self, host: str, kind: EntityKind, job: str) -> Layout:
        layout = self._layouts.get((host, kind, job))
        if layout is None:
            layout = self._layouts[host, kind, job] = Layout(self._place(host, kind, job))
        return layout

    def _place(self, host: str, kind: EntityKind, job: str) -> Place:
        parts = (self._who.name, self._who.protocol, host.translate(JOB_SEPARATORS), job.translate(JOB_SEPARATORS))
        return Place(plain_text("/".join(filter(None, parts)), 500), host, kind)

    def _admitted(self, points: Points, taken: Taken, now_ms: int) -> NDArray[np.intp]:
        """Return the places of points that are neither refused nor of an impossible time."""
        numbers, times_ms = points.series, points.times_ms
        self.index.see(numbers, self._age)
        refused = self.index.refused(numbers)
        if refused.any():
            for reason, count in self.index.refusals(numbers[refused]):
                taken.refuse(reason, count, span_ms=_span(times_ms[refused]))
            self._explain(numbers[refused], taken)
        wrong = refused
        if times_ms.size:
            wrong = refused | self._untimely(points, ~refused, taken, now_ms)
        good = np.flatnonzero(~wrong)
        taken.samples += good.size
        taken.skewed += int((times_ms[good] > now_ms).sum())
        return good

    def _explain(self, numbers: NDArray[np.int32], taken: Taken) -> None:
        """Say what exactly is wrong with the first series of each fault."""
        for number in self.index.faulty(numbers):
            series = self.index.series(number)
            taken.details.setdefault(series.fault, series.detail)

    def _untimely(self, points: Points, asked: NDArray[np.bool_], taken: Taken, now_ms: int) -> NDArray[np.bool_]:
        times_ms = points.times_ms
        unit = (times_ms < TIME_MS_MINIMUM) | (times_ms >= TIME_MS_MAXIMUM)
        future = ~unit & (times_ms > now_ms + self._settings.future_ms)
        old = ~unit & (times_ms < now_ms - self._settings.past_ms)
        for code, found in (("time_unit", unit), ("future_time", future), ("too_old", old)):
            self._refuse_times(points, code, np.flatnonzero(found & asked), taken, now_ms)
        wrong: NDArray[np.bool_] = unit | future | old
        return wrong if points.deltas is None else wrong | self._endless(points, asked & ~wrong, taken, now_ms)

    def _endless(self, points: Points, asked: NDArray[np.bool_], taken: Taken, now_ms: int) -> NDArray[np.bool_]:
        """Refuse deltas that began before anything that can be stored: nobody knows what they stand beside."""
        assert points.deltas is not None  # noqa: S101 # the caller has looked
        assert points.starts_ms is not None  # noqa: S101 # deltas have starts
        wrong = asked & points.deltas & (points.starts_ms < now_ms - self._settings.past_ms)
        for place in np.flatnonzero(wrong).tolist():
            name, start_ms = self.index.series(int(points.series[place])).name, int(points.starts_ms[place])
            detail = f"a delta of {name} counts from {start_ms} ms on, which cannot be stored"
            taken.refuse(Refused("no_start_time", name), 1, detail)
        return wrong

    def _refuse_times(self, points: Points, code: str, found: NDArray[np.intp], taken: Taken, now_ms: int) -> None:
        if not found.size:
            return
        span = _span(points.times_ms[found])
        detail = self._times.words(span[1], now_ms)
        for name, count in Counter(self.index.series(n).name for n in points.series[found].tolist()).items():
            taken.refuse(Refused(code, name), count, detail, span)

    def _take_cells(self, points: Points, good: NDArray[np.intp], taken: Taken, frames: "_Frames") -> None:
        gathered = self._starts.gather(self.index, points, good, taken)
        for layout, chosen in _by_layout(gathered.layouts, self.index.layouts):
            cells = Cells(
                gathered.rows[chosen],
                gathered.columns[chosen],
                gathered.values[chosen],
                gathered.times_ms[chosen],
                _exact_of(gathered.exact, chosen),
            )
            contents, denied = layout.contents(cells)
            self._note_conflicts(points, gathered.places[chosen[denied]], taken)
            interval_ms = layout.cadence.see(cells.rows, cells.times_ms)
            for times_ms, content in contents:
                frames.add(layout.place, interval_ms, times_ms, content)

    def _note_conflicts(self, points: Points, places: NDArray[np.intp], taken: Taken) -> None:
        """Count points that another point of the same series and time denies; starts deny nothing."""
        for place in np.unique(places[places >= 0]).tolist():
            name = self.index.series(int(points.series[place])).name
            time_ms = int(points.times_ms[place])
            detail = f"{name} has two values at {time_ms}, and the first one counts"
            taken.refuse(Refused("conflict", name), 1, detail, (time_ms, time_ms))
            taken.samples -= 1


class _Frames:
    """Makes the frames of one request."""

    def __init__(self, who: Who, request_hash: int, taken: Taken) -> None:
        self._who = who
        self._sequence = request_hash & SEQUENCE_MASK
        self._taken = taken

    def add(self, place: Place, interval_ms: int, times_ms: NDArray[np.int64], content: Content) -> None:
        """Make one frame."""
        stamp = Stamp(
            collector_id=place.collector_id,
            host_id=place.host_id,
            source=self._who.protocol,
            spool_id=self._who.spool_id,
            first_sequence=self._sequence,
            last_sequence=self._sequence,
            tick_times_ms=times_ms,
            interval_ms=interval_ms,
        )
        self._sequence += 1
        made = Made(encode(stamp, content), named_schema(content.schema), named_entities(content.entities))
        self._taken.frames.append(made)


def _by_layout(numbers: NDArray[np.int32], layouts: list[Layout]) -> Iterator[tuple[Layout, NDArray[np.intp]]]:
    """Give each layout with the places of its points, in their order."""
    if not numbers.size:
        return
    first = int(numbers[0])
    if (numbers == first).all():
        yield layouts[first], np.arange(numbers.size)
        return
    order = np.argsort(numbers, kind="stable")
    listed = numbers[order]
    edges = np.flatnonzero(np.diff(listed)) + 1
    for chosen in np.split(order, edges):
        yield layouts[int(numbers[chosen[0]])], chosen


def _exact_of(exact: dict[int, int], chosen: NDArray[np.intp]) -> dict[int, int]:
    if not exact:
        return {}
    return {number: exact[place] for number, place in enumerate(chosen.tolist()) if place in exact}


def _span(times_ms: NDArray[np.int64]) -> tuple[int, int]:
    return int(times_ms.min()), int(times_ms.max())
