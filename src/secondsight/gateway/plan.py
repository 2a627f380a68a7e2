"""Hand out what a collector shall collect, and keep on record what was in force when.

The record is made when a plan is first handed out or changed; a collector that never asks gets one learnt from its own
frames. Each interval is written to the metadata store and announced in the log, so coverage can count against it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Engine

from secondsight.access.identity import Identity
from secondsight.access.plans import Key, PlanInterval, continue_plans, mark_logged, newest_plans
from secondsight.access.sampling import COARSE_MS, FULL_MS
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.gateway.policy import Home, Policies, Told, Wanted
from secondsight.gateway.records import Pair, record
from secondsight.wire.envelope import RecordType
from secondsight.wire.header import HeadView

InForce = Mapping[Key, PlanInterval]
REMEMBERED_PLANS = 500_000
CADENCE_LEFT_MS = 60_000
"""A learnt cadence has ended when ticks of another one come this long, and two of its own, after its last tick."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a collector is told.

    Attributes:
        body: JSON: collectorId, kinds -> {intervalMs, metrics: "all" or a list}, untilMs (null: until changed); `after`
            has the kinds after `untilMs`. `sessions` and `jobs` name what is to be shipped every second besides.
        etag: Quoted entity tag of what operators want; the body may say it differently to differently set agents.
    """

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a plan.

    Attributes:
        interval_ms: Cadence that the agent is set to, 0 where it does not say.
    """

    identity: Identity
    collector_id: str
    host_id: str
    interval_ms: int = 0

    @property
    def home(self) -> Home:
        """Return tenant, cluster and host."""
        return self.identity.tenant_id, self.identity.cluster_id, self.host_id


@dataclass(frozen=True, slots=True)
class Wish:
    """An interval that shall be in force, with the region of who made the wish.

    Attributes:
        last_tick_ms: Of the frames that a learnt interval was learnt from.
    """

    interval: PlanInterval
    region: str
    last_tick_ms: int = 0


@dataclass(slots=True)
class _Known:
    """What this gateway knows to be in force for a collector and kind.

    Attributes:
        last_tick_ms: Of ticks at that cadence.
        other_interval_ms, other_from_ms: The cadence, and the first tick, of what was sent since at another one.
    """

    interval: PlanInterval
    last_tick_ms: int
    other_interval_ms: int = 0
    other_from_ms: int = 0

    def note_other(self, head: HeadView) -> int | None:
        """Note ticks of another cadence, and return when it began where the one in force has ended."""
        last_ms = head.newest_ms
        if last_ms <= self.last_tick_ms:
            return None
        from_ms = _first_ms_after(head, self.last_tick_ms)
        is_new = self.other_interval_ms != head.interval_ms or self.other_from_ms <= self.last_tick_ms
        if is_new or from_ms < self.other_from_ms:
            self.other_interval_ms, self.other_from_ms = head.interval_ms, from_ms
        left_ms = max(CADENCE_LEFT_MS, 2 * self.interval.interval_ms)
        return self.other_from_ms if last_ms > self.last_tick_ms + left_ms else None


class Plans:
    """Plans of all collectors. `announce` is for a thread, everything else for the event loop.

    Args:
        interval_ms: Cadence where nobody asked for one, and the agent does not say what it is set to.
    """

    def __init__(self, metadata: Engine, ingest: LogWriter, clock: Clock, policies: Policies, interval_ms: int) -> None:
        self._metadata = metadata
        self._ingest = ingest
        self._clock = clock
        self._policies = policies
        self._interval_ms = interval_ms
        self._in_force: OrderedDict[Key, _Known] = OrderedDict()

    def etag(self, identity: Identity, host_id: str) -> str:
        """Return the tag of the plan of a host's agent."""
        return self._policies.told((identity.tenant_id, identity.cluster_id, host_id)).etag

    def plan(self, asker: Asker) -> Plan:
        """Return the plan of a collector's agent; the part of an id after its first slash names one of its sources."""
        told = self._policies.told(asker.home)
        usual = {kind.value: self._kind(one, asker) for kind, one in told.kinds.items()}
        body: dict[str, Any] = {"collectorId": agent_id(asker.collector_id), "kinds": usual, "untilMs": None}
        ends = {kind: until_ms for kind, until_ms in told.whole_until_ms.items() if until_ms}
        if ends:
            now = {kind.value: {**usual[kind.value], "intervalMs": FULL_MS} for kind in ends}
            body |= {"kinds": usual | now, "untilMs": min(ends.values()), "after": usual}
        if told.sessions or told.jobs:
            body |= {"sessions": told.sessions, "jobs": told.jobs}
        return Plan(orjson.dumps(body), told.etag)

    def handed_out(self, asker: Asker) -> list[Wish]:
        """Return the wishes that handing out the plan makes and that are not settled yet."""
        told = self._policies.told(asker.home)
        identity, host_id = asker.identity, asker.host_id
        home = (identity.tenant_id, identity.cluster_id, asker.collector_id, host_id)
        wishes = []
        for kind, wanted in told.kinds.items():
            usual_ms = self._kind(wanted, asker)["intervalMs"]
            interval_ms = min(usual_ms, FULL_MS) if told.whole_until_ms[kind] else usual_ms
            interval = PlanInterval(*home, kind, interval_ms, self._clock.now_ms(), without=",".join(wanted.without))
            wishes.append(Wish(self._begun(interval, told), identity.region))
        return [wish for wish in wishes if self._is_news(wish)]

    def _kind(self, wanted: Wanted, asker: Asker) -> dict[str, Any]:
        usual_ms = wanted.interval_ms or asker.interval_ms or self._interval_ms
        return {"intervalMs": usual_ms, "metrics": "all" if wanted.only is None else wanted.only}

    def _begun(self, interval: PlanInterval, told: Told) -> PlanInterval:
        """Return an interval that begins where an agent begins with it: with a window of 30 s, where one of the two is.

        Seconds are shipped from the start of the window in which they are first asked for, and to the end of the one in
        which they no longer are. A session that has ended did so by itself, when it was to end.
        """
        known = self._in_force.get(interval.key)
        if interval.interval_ms >= COARSE_MS:
            began_ms, ended_ms = told.ended
            of_session = known is not None and began_ms <= known.interval.from_ms < ended_ms
            since_ms = ended_ms if of_session else interval.from_ms
            return replace(interval, from_ms=-(-since_ms // COARSE_MS) * COARSE_MS)
        if known is not None and known.interval.interval_ms >= COARSE_MS:
            return replace(interval, from_ms=interval.from_ms // COARSE_MS * COARSE_MS)
        return interval

    def learnt(self, identity: Identity, heads: Iterable[HeadView]) -> list[Wish]:
        """Return a wish for each collector and kind that no plan is known of, or whose learnt cadence was left."""
        found: dict[Key, Wish] = {}
        ticking = [head for head in heads if head.ticks and head.interval_ms >= 1]
        if len(ticking) > 1:
            ticking.sort(key=_first_ms)
        for head in ticking:
            known = self._in_force.get((identity.tenant_id, identity.cluster_id, head.collector_id, head.kind))
            if known is not None and known.interval.interval_ms == head.interval_ms:
                known.last_tick_ms = max(known.last_tick_ms, head.newest_ms)
                continue
            interval = _learnt_interval(identity, head, known)
            if interval is not None:
                first = found.setdefault(interval.key, Wish(interval, identity.region, head.newest_ms))
                if first.interval.interval_ms == head.interval_ms:
                    found[interval.key] = replace(first, last_tick_ms=max(first.last_tick_ms, head.newest_ms))
        return list(found.values())

    def settle(self, wishes: Iterable[Wish], in_force: InForce) -> None:
        """Remember what the announcement of these wishes put, or found, in force."""
        for wish in wishes:
            key = wish.interval.key
            if key in in_force:
                self._in_force[key] = _settled(wish, in_force[key])
        while len(self._in_force) > REMEMBERED_PLANS:
            self._in_force.popitem(last=False)

    def announce(self, wishes: Sequence[Wish]) -> InForce:
        """Put plans in force, announce in the log what that changed, and return what is in force then; blocks.

        Raises:
            Retryable: Doing it again is right.
        """
        regions = {_collector(wish.interval): wish.region for wish in wishes}
        wanted = [wish.interval for wish in wishes]
        intervals = continue_plans(self._metadata, wanted)
        if intervals:
            now_ms = self._clock.now_ms()
            self._ingest.append([_record(interval, regions[_collector(interval)], now_ms) for interval in intervals])
            mark_logged(self._metadata, intervals)
        return {interval.key: interval for interval in newest_plans(self._metadata, wanted)}

    def _is_news(self, wish: Wish) -> bool:
        known, wanted = self._in_force.get(wish.interval.key), wish.interval
        if known is None:
            return True
        told = (known.interval.interval_ms, known.interval.without)
        return known.interval.learnt or told != (wanted.interval_ms, wanted.without)


def _settled(wish: Wish, interval: PlanInterval) -> _Known:
    """Return what is known once `interval` is in force, where `wish` was; an unlike wish is of another cadence."""
    wanted = wish.interval
    if wanted.interval_ms == interval.interval_ms:
        return _Known(interval, max(wish.last_tick_ms, wanted.from_ms))
    return _Known(interval, wanted.from_ms - 1, wanted.interval_ms, wanted.from_ms)


def _learnt_interval(identity: Identity, head: HeadView, known: _Known | None) -> PlanInterval | None:
    """Return the interval that a frame's other cadence is to begin, or None where nothing is to change."""
    home = (identity.tenant_id, identity.cluster_id, head.collector_id, head.host_id)
    wanted = PlanInterval(*home, head.kind, head.interval_ms, _first_ms(head), learnt=True)
    if known is None:
        return wanted
    from_ms = known.note_other(head) if known.interval.learnt else None
    return None if from_ms is None else replace(wanted, from_ms=from_ms, version=known.interval.version + 1)


def _first_ms(head: HeadView) -> int:
    return head.first_tick_ms + head.correction_ms


def _first_ms_after(head: HeadView, time_ms: int) -> int:
    """Return a frame's first tick after a time, as its cadence has it."""
    skipped = max((time_ms - _first_ms(head)) // head.interval_ms + 1, 0)
    return _first_ms(head) + skipped * head.interval_ms


def agent_id(collector_id: str) -> str:
    """Return the id of the agent that a collector belongs to."""
    return collector_id.partition("/")[0]


def _record(interval: PlanInterval, region: str, now_ms: int) -> Pair:
    body = orjson.dumps(
        {
            "collector_id": interval.collector_id,
            "host_id": interval.host_id,
            "kind": interval.kind.value,
            "interval_ms": interval.interval_ms,
            "from_ms": interval.from_ms,
            "to_ms": interval.to_ms,
            "version": interval.version,
        }
        | ({"without": interval.without} if interval.without else {})
    )
    home = (interval.tenant_id, region, interval.cluster_id)
    return record(RecordType.PLAN, home, interval.host_id, now_ms, body)


def _collector(interval: PlanInterval) -> tuple[str, str, str]:
    return interval.tenant_id, interval.cluster_id, interval.collector_id
