"""Hand out what a collector shall collect, and keep on record what was in force when.

The record is made when a plan is first handed out or changed; a collector that never asks gets one learnt from its own
frames. Each interval is written to the metadata store and announced in the log, so coverage can count against it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from sqlalchemy import Engine

from secondsight.access.identity import Identity
from secondsight.access.plans import Key, PlanInterval, continue_plans, mark_logged, newest_plans
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.model import EntityKind
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope, partition_key
from secondsight.wire.header import HeadView

InForce = Mapping[Key, PlanInterval]
REMEMBERED_PLANS = 500_000
CADENCE_LEFT_MS = 60_000
"""A learnt cadence has ended when ticks of another one come this long, and two of its own, after its last tick."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a collector is told.

    Attributes:
        body: JSON: collectorId, kinds -> {intervalMs, metrics: "all" or a list}, untilMs (null: until changed).
        etag: Quoted entity tag of the body.
    """

    body: bytes
    etag: str


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
        last_ms = _last_ms(head)
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
        interval_ms: Cadence of the default plan.
    """

    def __init__(self, metadata: Engine, ingest: LogWriter, clock: Clock, interval_ms: int) -> None:
        self._metadata = metadata
        self._ingest = ingest
        self._clock = clock
        self._interval_ms = interval_ms
        self._kinds = {kind.value: {"intervalMs": interval_ms, "metrics": "all"} for kind in EntityKind}
        self._in_force: OrderedDict[Key, _Known] = OrderedDict()
        self.etag = f'"{hashlib.blake2b(orjson.dumps(self._kinds), digest_size=8).hexdigest()}"'

    def plan(self, collector_id: str) -> Plan:
        """Return the plan of a collector's agent; the part of an id after its first slash names one of its sources."""
        body = {"collectorId": agent_id(collector_id), "kinds": self._kinds, "untilMs": None}
        return Plan(orjson.dumps(body), self.etag)

    def handed_out(self, identity: Identity, collector_id: str, host_id: str) -> list[Wish]:
        """Return the wishes that handing out the plan makes and that are not settled yet."""
        home = (identity.tenant_id, identity.cluster_id, collector_id, host_id)
        now_ms = self._clock.now_ms()
        wishes = [Wish(PlanInterval(*home, kind, self._interval_ms, now_ms), identity.region) for kind in EntityKind]
        return [wish for wish in wishes if self._is_news(wish)]

    def learnt(self, identity: Identity, heads: Iterable[HeadView]) -> list[Wish]:
        """Return a wish for each collector and kind that no plan is known of, or whose learnt cadence was left."""
        found: dict[Key, Wish] = {}
        for head in sorted((head for head in heads if head.ticks and head.interval_ms >= 1), key=_first_ms):
            known = self._in_force.get((identity.tenant_id, identity.cluster_id, head.collector_id, head.kind))
            if known is not None and known.interval.interval_ms == head.interval_ms:
                known.last_tick_ms = max(known.last_tick_ms, _last_ms(head))
                continue
            interval = _learnt_interval(identity, head, known)
            if interval is not None:
                first = found.setdefault(interval.key, Wish(interval, identity.region, _last_ms(head)))
                if first.interval.interval_ms == head.interval_ms:
                    found[interval.key] = replace(first, last_tick_ms=max(first.last_tick_ms, _last_ms(head)))
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
        known = self._in_force.get(wish.interval.key)
        if known is None:
            return True
        return known.interval.learnt or known.interval.interval_ms != wish.interval.interval_ms


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


def _last_ms(head: HeadView) -> int:
    return head.last_tick_ms + head.correction_ms


def _first_ms_after(head: HeadView, time_ms: int) -> int:
    """Return a frame's first tick after a time, as its cadence has it."""
    skipped = max((time_ms - _first_ms(head)) // head.interval_ms + 1, 0)
    return _first_ms(head) + skipped * head.interval_ms


def agent_id(collector_id: str) -> str:
    """Return the id of the agent that a collector belongs to."""
    return collector_id.partition("/")[0]


def _record(interval: PlanInterval, region: str, now_ms: int) -> tuple[bytes, bytes]:
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
    )
    envelope = Envelope(RecordType.PLAN, interval.tenant_id, region, interval.cluster_id, now_ms, body)
    return partition_key(interval.tenant_id, interval.cluster_id, interval.host_id), encode_envelope(envelope)


def _collector(interval: PlanInterval) -> tuple[str, str, str]:
    return interval.tenant_id, interval.cluster_id, interval.collector_id
