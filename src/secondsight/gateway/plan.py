"""Hand out what a collector shall collect, and keep on record what was in force when.

The record is made when a plan is first handed out or changed; a collector that never asks gets one learnt from its own
frames. Each interval is written to the metadata store and announced in the log, so coverage can count against it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import Engine

from secondsight.access.identity import Identity
from secondsight.access.plans import PlanInterval, PlanWish, continue_plans, mark_logged
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.model import EntityKind
from secondsight.wire.content import Header
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope, partition_key

REMEMBERED_PLANS = 500_000


@dataclass(frozen=True, slots=True)
class Wish:
    """A plan wish with the region of who made it."""

    wish: PlanWish
    region: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a collector is told.

    Attributes:
        body: JSON: collectorId, kinds -> {intervalMs, metrics: "all" or a list}, untilMs (null: until changed).
        etag: Quoted entity tag of the body.
    """

    body: bytes
    etag: str


class Plans:
    """Plans of all collectors. `note` and `settled` are for the event loop, `announce` for a thread.

    Args:
        interval_ms: Cadence of the default plan.
    """

    def __init__(self, metadata: Engine, ingest: LogWriter, clock: Clock, interval_ms: int) -> None:
        self._metadata = metadata
        self._ingest = ingest
        self._clock = clock
        self._interval_ms = interval_ms
        self._settled: OrderedDict[tuple[str, ...], int | None] = OrderedDict()

    def plan(self, collector_id: str) -> Plan:
        """Return the plan of a collector's agent; the part of an id after its first slash names one of its sources."""
        kinds = {kind.value: {"intervalMs": self._interval_ms, "metrics": "all"} for kind in EntityKind}
        body = orjson.dumps({"collectorId": agent_id(collector_id), "kinds": kinds, "untilMs": None})
        return Plan(body, f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"')

    def handed_out(self, identity: Identity, collector_id: str, host_id: str) -> list[Wish]:
        """Return the wishes that handing out the plan makes and that are not settled yet."""
        now_ms = self._clock.now_ms()
        wishes = [
            Wish(PlanWish(_interval(identity, collector_id, host_id, kind, self._interval_ms, now_ms)), identity.region)
            for kind in EntityKind
        ]
        return [wish for wish in wishes if self._settled.get(_key(wish.wish)) != self._interval_ms]

    def learnt(self, identity: Identity, headers: Iterable[Header]) -> list[Wish]:
        """Return a wish for each collector and kind that no plan is known of."""
        found: dict[tuple[str, ...], Wish] = {}
        for header in headers:
            key = (identity.tenant_id, identity.cluster_id, header.collector_id, header.kind)
            if key in self._settled or not len(header.tick_times_ms) or header.interval_ms < 1:
                continue
            from_ms = int(header.tick_times_ms[0]) + header.correction_ms
            if key not in found or from_ms < found[key].wish.interval.from_ms:
                interval = _interval(
                    identity, header.collector_id, header.host_id, header.kind, header.interval_ms, from_ms
                )
                found[key] = Wish(PlanWish(interval, learnt=True), identity.region)
        return list(found.values())

    def settle(self, wishes: Iterable[Wish]) -> None:
        """Remember that these wishes were announced."""
        for wish in wishes:
            interval = wish.wish.interval
            self._settled[_key(wish.wish)] = None if wish.wish.learnt else interval.interval_ms
        while len(self._settled) > REMEMBERED_PLANS:
            self._settled.popitem(last=False)

    def announce(self, wishes: Sequence[Wish]) -> None:
        """Put plans in force and announce in the log what that changed; blocks.

        Raises:
            Retryable: Doing it again is right.
        """
        regions = {_collector(wish.wish.interval): wish.region for wish in wishes}
        intervals = continue_plans(self._metadata, [wish.wish for wish in wishes])
        if intervals:
            now_ms = self._clock.now_ms()
            self._ingest.append([_record(interval, regions[_collector(interval)], now_ms) for interval in intervals])
            mark_logged(self._metadata, intervals)


def agent_id(collector_id: str) -> str:
    """Return the id of the agent that a collector belongs to."""
    return collector_id.partition("/")[0]


def _interval(
    identity: Identity, collector_id: str, host_id: str, kind: EntityKind, interval_ms: int, from_ms: int
) -> PlanInterval:
    return PlanInterval(identity.tenant_id, identity.cluster_id, collector_id, host_id, kind, interval_ms, from_ms)


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


def _key(wish: PlanWish) -> tuple[str, ...]:
    return (*_collector(wish.interval), wish.interval.kind)
