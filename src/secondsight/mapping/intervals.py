"""Turn what an allocator says from time to time into intervals: who had which GPU from when to when.

An interval ends when the allocator says so, or lists the GPU without that holder. An allocator that says nothing ends
nothing. Reporting an interval twice is harmless, so all open ones are reported again at times and after a restart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from secondsight.mapping.allocation import Holding, Interval, Share, conflict_event, event_of
from secondsight.mapping.cells import Key
from secondsight.wire.content import Event

OPEN_MAXIMUM = 10_000
CLOSED_REMEMBERED = 2_000
REPEAT_MS = 600_000
"""Open intervals are reported again this often, for a platform that has lost or never seen the first report."""

Holder = tuple[str, str, str]
"""(entity, part, job)."""
Identity = tuple[str, str, str, int]
"""(entity, part, job, start in ms)."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What an allocator says at one instant.

    Attributes:
        ends: Job -> when it ended, where the allocator tells.
        alive: Jobs that go on though the GPUs they have cannot be told now; their intervals do not end.
        contested: GPU or slice -> jobs that are listed for it though only one of them can have it.
        complete: True if a holder that is not listed has lost the GPU; False if that only means that it is not known.
    """

    holdings: tuple[Holding, ...]
    ends: Mapping[str, int] = field(default_factory=dict)
    alive: frozenset[str] = frozenset()
    contested: Mapping[Key, tuple[str, ...]] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """What survives a restart.

    Attributes:
        open: Intervals without an end.
        closed: Ended lately, so that one that comes back continues its versions.
        unsure: Identities whose last report may not have reached the spool.
    """

    open: tuple[Interval, ...] = ()
    closed: tuple[Interval, ...] = ()
    unsure: tuple[Identity, ...] = ()


class Intervals:
    """The open intervals of one allocator. One thread uses it.

    Args:
        via: Name of the allocator, for its events.
        silence_ms: A holder that was not seen for longer before it is found gone ended at an unknown time: the last
            time it was seen is taken.
        kept: What an earlier run knew.
    """

    def __init__(self, via: str, silence_ms: int, kept: Kept | None = None) -> None:
        kept = kept or Kept()
        self._via = via
        self._silence_ms = silence_ms
        self._open: dict[Holder, Interval] = {_holder(interval): interval for interval in kept.open}
        self._closed: dict[Identity, Interval] = {interval.identity: interval for interval in kept.closed}
        self._again = [*kept.open, *(self._closed[name] for name in kept.unsure if name in self._closed)]
        self._last_reported: tuple[Identity, ...] = ()
        self._conflicts: dict[Key, tuple[str, ...]] = {}
        self._repeat_at_ms: int | None = None
        self._dirty = False
        self.refused = 0

    @property
    def open(self) -> tuple[Interval, ...]:
        """Return the intervals that have not ended."""
        return tuple(self._open.values())

    def take_changed(self) -> bool:
        """Tell whether what must survive a restart has changed since the last call."""
        changed, self._dirty = self._dirty, False
        return changed

    def kept(self) -> Kept:
        """Return what must survive a restart."""
        return Kept(self.open, tuple(self._closed.values()), self._last_reported)

    def see(
        self, listing: Listing, tick_ms: int, correction_ms: int = 0, history: Sequence[Listing] = ()
    ) -> list[Event]:
        """Take what the allocator says at a tick, and return what is to be reported.

        Args:
            listing: All that it says of now.
            tick_ms: When, epoch ms.
            correction_ms: What frames add to times of this host now.
            history: What it says of earlier, oldest first.
        """
        events: list[Event] = []
        reports = self._take_again(tick_ms)
        for each in (*history, listing):
            listed, conflicts = _settled(each)
            events += self._new_conflicts(conflicts, tick_ms)
            self._take(_Look(each, tick_ms, correction_ms, reports), listed)
        if reports or self._last_reported:
            self._dirty = True
        self._last_reported = tuple(reports)
        return events + [event_of(interval, self._via) for interval in reports.values()]

    def _take(self, look: "_Look", listed: Mapping[Holder, Holding]) -> None:
        for holding in listed.values():
            self._see_one(holding, look)
        for holder, interval in list(self._open.items()):
            if look.ends(interval, is_listed=holder in listed):
                self._end(interval, look)

    def _new_conflicts(self, conflicts: dict[Key, tuple[str, ...]], tick_ms: int) -> list[Event]:
        before, self._conflicts = self._conflicts, conflicts
        return [
            conflict_event(place, jobs, tick_ms, self._via)
            for place, jobs in conflicts.items()
            if before.get(place) != jobs
        ]

    def _take_again(self, tick_ms: int) -> dict[Identity, Interval]:
        """Return what is to be reported once more."""
        again, self._again = self._again, []
        if self._repeat_at_ms is None:
            self._repeat_at_ms = tick_ms
        elif abs(tick_ms - self._repeat_at_ms) >= REPEAT_MS:
            self._repeat_at_ms = tick_ms
            lately = [one for one in self._closed.values() if abs(tick_ms - one.last_seen_ms) <= 2 * REPEAT_MS]
            again += [*self._open.values(), *lately]
        return {interval.identity: interval for interval in again}

    def _see_one(self, holding: Holding, look: "_Look") -> None:
        """Take one holding: go on with its interval, or open one."""
        holder = (*holding.place, holding.owner.job_id)
        known = self._open.get(holder)
        if known is not None:
            later = _continued(known, holding, look.tick_ms)
            if later is not None:
                self._open[holder] = later
                if later.version != known.version:
                    look.reports[later.identity] = later
                return
            self._replace(known, holding, look)
        if len(self._open) >= OPEN_MAXIMUM:
            self.refused += 1
            return
        self._open[holder] = opened = self._opened(holding, known, look)
        look.reports[opened.identity] = opened
        if opened.share is Share.SOLE:
            look.successors[opened.place] = opened.start_ms

    def _replace(self, known: Interval, holding: Holding, look: "_Look") -> None:
        """End an interval that another one of the same job takes over from; a wrong guess of a start never was."""
        if known.share is holding.share and not known.exact:
            self._close(replace(known, end_ms=known.start_ms), look)
            return
        if known.share is holding.share and holding.start_ms is not None:
            look.successors[known.place] = holding.start_ms
        self._end(known, look)

    def _opened(self, holding: Holding, known: Interval | None, look: "_Look") -> Interval:
        """Return a new interval; one that takes over from another share starts now, not when the job did."""
        tells = holding.share is Share.SOLE and (known is None or known.share is holding.share)
        told = holding.start_ms if tells else None
        made = Interval(
            *holding.place,
            holding.owner,
            holding.share,
            look.tick_ms if told is None else told,
            holding.exact and told is not None,
            look.tick_ms,
            correction_ms=look.correction_ms if known is None else known.correction_ms,
        )
        before = self._closed.pop(made.identity, None)
        if before is not None:
            made = replace(made, version=before.version + 1, correction_ms=before.correction_ms)
        return made

    def _end(self, interval: Interval, look: "_Look") -> None:
        told = look.listing.ends.get(interval.owner.job_id, -1)
        exact = told > interval.start_ms
        end_ms = told if exact else self._guessed_end(interval, look)
        self._close(replace(interval, end_ms=max(end_ms, interval.start_ms), end_exact=exact), look)

    def _guessed_end(self, interval: Interval, look: "_Look") -> int:
        silent = not 0 <= look.tick_ms - interval.last_seen_ms <= self._silence_ms
        end_ms = interval.last_seen_ms if silent else look.tick_ms
        return min(end_ms, look.successors.get(interval.place, end_ms))

    def _close(self, interval: Interval, look: "_Look") -> None:
        closed = replace(interval, version=interval.version + 1)
        del self._open[_holder(closed)]
        if len(self._closed) >= CLOSED_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        self._closed[closed.identity] = closed
        look.reports[closed.identity] = closed


@dataclass(slots=True)
class _Look:
    """One listing while it is worked through.

    Attributes:
        reports: What is to be reported, newest version of each.
        successors: GPU or slice -> start of the sole holder that took over.
    """

    listing: Listing
    tick_ms: int
    correction_ms: int
    reports: dict[Identity, Interval]
    successors: dict[Key, int] = field(default_factory=dict)

    def ends(self, interval: Interval, *, is_listed: bool) -> bool:
        """Tell whether an open interval ends by what is listed."""
        told = self.listing.ends.get(interval.owner.job_id)
        if told is not None and told > interval.start_ms:
            return True
        if is_listed or interval.owner.job_id in self.listing.alive:
            return False
        return self.listing.complete or interval.start_ms <= self.successors.get(interval.place, -1)


def _settled(listing: Listing) -> tuple[dict[Holder, Holding], dict[Key, tuple[str, ...]]]:
    """Return one holding per holder, several sole ones of one GPU made ambiguous, and the jobs in conflict."""
    listed: dict[Holder, Holding] = {}
    for holding in listing.holdings:
        holder = (*holding.place, holding.owner.job_id)
        known = listed.get(holder)
        listed[holder] = holding if known is None else _united(known, holding)
    claims: dict[Key, list[Holder]] = {}
    for holder, holding in listed.items():
        if holding.share is not Share.SHARED:
            claims.setdefault(holding.place, []).append(holder)
    unsettled = {place: holders for place, holders in claims.items() if len(holders) > 1}
    for holders in unsettled.values():
        listed |= {holder: replace(listed[holder], share=Share.AMBIGUOUS) for holder in holders}
    rivals = {place: tuple(sorted(holder[2] for holder in holders)) for place, holders in unsettled.items()}
    return listed, {**listing.contested, **rivals}


def _holder(interval: Interval) -> Holder:
    return *interval.place, interval.owner.job_id


def _united(one: Holding, other: Holding) -> Holding:
    """Return one holding of two by the same job of the same GPU: two containers, or two steps."""
    first = min(one, other, key=lambda each: (not each.exact, each.start_ms is None, each.start_ms or 0))
    owner = first.owner
    if one.owner.workload_id != other.owner.workload_id:
        owner = replace(owner, workload_id=owner.job_id)
    share = Share.SHARED if Share.SHARED in (one.share, other.share) else first.share
    return replace(first, owner=owner, share=share)


def _continued(known: Interval, holding: Holding, tick_ms: int) -> Interval | None:
    """Return the interval as it goes on, or None if the holding is another one or began at another time.

    What was ambiguous and is not any more was this holder's all along.
    """
    promoted = known.share is Share.AMBIGUOUS and holding.share is Share.SOLE
    moved = holding.share is Share.SOLE and holding.exact and holding.start_ms != known.start_ms
    if not promoted and (known.share is not holding.share or moved):
        return None
    version = known.version + (known.owner != holding.owner or promoted)
    return replace(known, owner=holding.owner, share=holding.share, last_seen_ms=tick_ms, version=version)
