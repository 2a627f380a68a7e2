"""Turn what operators want into what one agent is told, and remember it for as long as that stands.

The tables are read whole every few seconds, in a thread; what an agent is told is worked out when it is first asked for
and kept until the tables change or a session ends. Asking for an entity tag is one look into a dictionary.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy import Engine

from secondsight.access.debug import DebugSession, sessions_since
from secondsight.access.quotas import Quota, read_quotas
from secondsight.access.sampling import COARSE_MS, FULL_MS, MetricStage, Rule, live_rules, metric_stages
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.gateway.gather import Gatherer
from secondsight.model import EntityKind

REMEMBERED_AGENTS = 200_000
ASKERS_MAXIMUM = 500
"""Of one read of the tables."""
REFRESH_SECONDS = 2.0
RECENT_MS = 600_000
"""Sessions that ended so long ago at most still say from when less was to be collected."""

FOREVER_MS = 253_402_300_799_999
OF_JOBS = (EntityKind.PROCESS_JOB, EntityKind.TRAINING)

Home = tuple[str, str, str]
"""Tenant, cluster, host."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How one kind of a host is to be collected.

    Attributes:
        interval_ms: None where nobody said: as the agent is set.
        without: Metrics that are not collected, sorted.
        only: The others, None where there is no `without`.
    """

    interval_ms: int | None
    without: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the agent of one host is told.

    Attributes:
        sessions: As they stand in a plan's body.
        whole_until_ms: Kind -> when the sessions that want every second of it end, 0 where none does.
        ended: Start, of its window, and end of the last such session that is over; zeros where none ended lately.
        until_ms: When this is no longer what it is told.
    """

    kinds: Mapping[EntityKind, Wanted]
    sessions: tuple[Mapping[str, Any], ...] = ()
    jobs: tuple[str, ...] = ()
    whole_until_ms: Mapping[EntityKind, int] = field(default_factory=dict)
    ended: tuple[int, int] = (0, 0)
    until_ms: int = FOREVER_MS
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Tables:
    """What operators want, as the tables had it at one time."""

    rules: tuple[Rule, ...] = ()
    stages: tuple[MetricStage, ...] = ()
    sessions: tuple[DebugSession, ...] = ()
    quotas: Mapping[str, Quota] = field(default_factory=dict)


class Policies:
    """What agents are told. `read` is for a thread, everything else for the event loop.

    Args:
        interval_ms: Cadence where nobody asked for one.
    """

    def __init__(self, metadata: Engine, catalog: Catalog, clock: Clock, interval_ms: int) -> None:
        self._metadata = metadata
        self._interval_ms = interval_ms
        self._clock = clock
        self._names = {kind: tuple(metric.name for metric in catalog.of_kind(kind)) for kind in EntityKind}
        self._tables = Tables()
        self._read_at: float | None = None
        self._told: OrderedDict[Home, Told] = OrderedDict()

    def renew(self, catalog: Catalog) -> None:
        """Go by a later catalogue: agents are told of its metrics with the next answer."""
        self._names = {kind: tuple(metric.name for metric in catalog.of_kind(kind)) for kind in EntityKind}
        self._told.clear()

    @property
    def is_stale(self) -> bool:
        """Tell whether the tables should be read again."""
        return self._read_at is None or self._clock.monotonic_seconds() - self._read_at >= REFRESH_SECONDS

    @property
    def is_known(self) -> bool:
        """Tell whether the tables were read at all."""
        return self._read_at is not None

    def read(self, _askers: Sequence[None] = ()) -> Tables:
        """Read the tables, once for all who ask; blocks.

        Raises:
            Retryable: The metadata store is away.
        """
        since_ms = self._clock.now_ms() - RECENT_MS
        return Tables(
            live_rules(self._metadata),
            metric_stages(self._metadata),
            sessions_since(self._metadata, since_ms),
            read_quotas(self._metadata),
        )

    def take(self, tables: Tables) -> None:
        """Go by these tables from now on."""
        self._read_at = self._clock.monotonic_seconds()
        if tables != self._tables:
            self._tables = tables
            self._told.clear()

    def told(self, home: Home) -> Told:
        """Return what the agent of a host is told now."""
        known = self._told.get(home)
        if known is None or self._clock.now_ms() >= known.until_ms:
            known = self._told[home] = self._told_now(home)
            while len(self._told) > REMEMBERED_AGENTS:
                self._told.popitem(last=False)
        return known

    def _told_now(self, home: Home) -> Told:
        told = told_to(self._tables, home, self._names, self._clock.now_ms())
        body = {kind.value: (one.interval_ms or self._interval_ms, one.only) for kind, one in told.kinds.items()}
        digest = hashlib.blake2b(orjson.dumps([body, told.sessions, told.jobs]), digest_size=8).hexdigest()
        return replace(told, etag=f'"{digest}"')


class PolicyReads:
    """Reads the tables, once for all who ask at a time. Lives in one event loop.

    Args:
        policies: Go by what was read.
        taken: Told of it as well.
    """

    def __init__(self, policies: Policies, taken: Callable[[Tables], None]) -> None:
        self._policies = policies
        self._taken = taken
        self._reads = Gatherer[None, Tables]("policies", policies.read, lambda _asker: 1, ASKERS_MAXIMUM)
        self._refreshing: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Go by what the tables say now.

        Raises:
            Retryable: The metadata store is away.
        """
        tables = await self._reads.submit((None,))
        self._policies.take(tables)
        self._taken(tables)

    async def refresh(self) -> None:
        """Have the tables read anew; nobody waits for it but those who ask before they were ever read."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        if not self._policies.is_known:
            await asyncio.shield(self._refreshing)

    async def close(self) -> None:
        """Finish what was begun; may be called twice."""
        if self._refreshing is not None:
            await self._refreshing
        await self._reads.close()

    async def _refresh(self) -> None:
        try:
            await self.read()
        except Retryable as error:
            _log.warning("plans stay as they are known: %s", error)
        finally:
            self._refreshing = None


def told_to(tables: Tables, home: Home, names: Mapping[EntityKind, Sequence[str]], now_ms: int) -> Told:
    """Return what the agent of a host is told at a time, without its tag."""
    tenant_id, cluster_id, host_id = home
    mine = [rule for rule in tables.rules if _is_about(rule, home)]
    stages = [stage for stage in tables.stages if stage.tenant_id == tenant_id]
    kinds = {kind: _wanted(kind, mine, stages, (host_id, names[kind])) for kind in EntityKind}
    theirs = [one for one in tables.sessions if (one.tenant_id, one.cluster_id) == (tenant_id, cluster_id)]
    theirs = [one for one in theirs if host_id in one.hosts or one.target_kind == "cluster"]
    active = [one for one in theirs if one.is_active(now_ms)]
    sessions = [item for one in active for item in _items(one, host_id)]
    sessions += [item for rule in mine if rule.gpu_id for item in _always(rule)]
    jobs = tuple(sorted({rule.job_id for rule in mine if rule.job_id}))
    whole = {kind: max((one.until_ms for one in active if _is_whole(one, host_id)), default=0) for kind in EntityKind}
    over = [one for one in theirs if not one.is_active(now_ms) and _is_whole(one, host_id)]
    ended = max(((_end_ms(one), one.start_ms // COARSE_MS * COARSE_MS) for one in over), default=(0, 0))
    until_ms = min((one.until_ms for one in active), default=FOREVER_MS)
    return Told(kinds, tuple(sessions), jobs, whole, (ended[1], ended[0]), until_ms)


def _is_about(rule: Rule, home: Home) -> bool:
    tenant_id, cluster_id, host_id = home
    return rule.tenant_id == tenant_id and rule.cluster_id in ("", cluster_id) and rule.host_id in ("", host_id)


def _wanted(
    kind: EntityKind, rules: Sequence[Rule], stages: Sequence[MetricStage], place: tuple[str, Sequence[str]]
) -> Wanted:
    host_id, names = place
    plain = [rule for rule in rules if not (rule.gpu_id or rule.job_id) and rule.kind in (None, kind)]
    rule = max(plain, key=lambda rule: rule.narrowness, default=None)
    off = {stage.metric for stage in stages if not stage.allows(host_id)}
    if rule is not None and rule.metrics is not None:
        off |= set(names) - set(rule.metrics)
    without = tuple(sorted(off & set(names)))
    only = tuple(sorted(set(names) - off)) if without else None
    return Wanted(None if rule is None else rule.interval_ms, without, only)


def _items(session: DebugSession, host_id: str) -> Iterator[dict[str, Any]]:
    """Give a session as it stands in a plan's body."""
    gpus = session.hosts.get(host_id)
    times = {"fromMs": session.start_ms - session.back_ms, "untilMs": session.until_ms}
    if gpus is None:
        yield {"id": session.session_id, "kinds": "all", "entities": "all", "intervalMs": FULL_MS, **times}
        return
    named = {"id": session.session_id, "intervalMs": FULL_MS, **times}
    yield {**named, "kinds": [EntityKind.GPU.value], "entities": list(gpus)}
    if session.target_kind == "job":
        yield {**named, "kinds": [kind.value for kind in OF_JOBS], "entities": [session.target]}


def _always(rule: Rule) -> Iterator[dict[str, Any]]:
    times = {"fromMs": rule.created_ms, "untilMs": FOREVER_MS}
    kinds = [EntityKind.GPU.value]
    yield {"id": f"rule-{rule.rule_id}", "kinds": kinds, "entities": [rule.gpu_id], "intervalMs": FULL_MS, **times}


def _is_whole(session: DebugSession, host_id: str) -> bool:
    return session.hosts.get(host_id) is None


def _end_ms(session: DebugSession) -> int:
    return min(session.until_ms, session.stopped_ms or session.until_ms)
