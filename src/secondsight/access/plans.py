"""Keep which collector was to collect which kind how often, as intervals of time.

Coverage counts slots against these intervals, so they are only ever closed and continued, never rewritten. Whoever
writes an interval also announces it in the log; `unlogged` remembers what was written and not yet announced, so a crash
between the two loses nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Engine, Row, and_, bindparam, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import PLANS, reading, writing
from secondsight.errors import Retryable
from secondsight.model import EntityKind

_WRITE_TRIES = 5
_READ_CHUNK = 500  # a statement takes a bounded number of parameters

Key = tuple[str, str, str, EntityKind]
"""Tenant, cluster, collector, kind."""


@dataclass(frozen=True, slots=True)
class PlanInterval:
    """One stretch of time in which a collector was to take a kind's ticks at one cadence.

    Attributes:
        from_ms, to_ms: Half open, epoch ms; to_ms is None while in force.
        version: Counts the intervals of a collector and kind from 1.
        learnt: Taken from what the collector sends; such an interval never follows one that was handed out.
        without: Metrics that were not to be collected, sorted and joined by commas.
    """

    tenant_id: str
    cluster_id: str
    collector_id: str
    host_id: str
    kind: EntityKind
    interval_ms: int
    from_ms: int
    to_ms: int | None = None
    version: int = 1
    learnt: bool = False
    without: str = ""

    @property
    def key(self) -> Key:
        """Return what all intervals of a collector and kind share."""
        return self.tenant_id, self.cluster_id, self.collector_id, self.kind


def plans_in_force(metadata: Engine, tenant_id: str, cluster_id: str, collector_id: str) -> tuple[PlanInterval, ...]:
    """Return the open intervals of a collector, by kind."""
    mine = and_(PLANS.c.tenant_id == tenant_id, PLANS.c.cluster_id == cluster_id, PLANS.c.collector_id == collector_id)
    with reading(metadata) as connection:
        rows = connection.execute(_INTERVALS.where(mine, PLANS.c.to_ms.is_(None)).order_by(PLANS.c.kind)).all()
    return tuple(_interval(row) for row in rows)


def continue_plans(metadata: Engine, wanted: Sequence[PlanInterval]) -> tuple[PlanInterval, ...]:
    """Put cadences in force and return every interval, of these collectors and kinds, that is still to be announced.

    An interval in force is closed where the new one starts; the new one never starts before it. Nothing is written
    where the same cadence is in force already. A learnt interval is written only as the version that it names, and not
    while a handed-out plan is in force. All or nothing; safe beside other processes that do the same.

    Raises:
        Retryable: Others kept being faster.
    """
    chosen = _distinct(wanted)
    for _ in range(_WRITE_TRIES):
        known = _known(metadata, chosen)
        written = [interval for key, each in chosen.items() for interval in _continuation(known[key].newest, each)]
        try:
            if written:
                _write(metadata, written)
        except IntegrityError:
            continue
        for interval in written:
            known[interval.key].unlogged[interval.version] = interval
        return tuple(interval for key in chosen for _, interval in sorted(known[key].unlogged.items()))
    raise Retryable("the plans of these collectors are being written by others")


def newest_plans(metadata: Engine, like: Iterable[PlanInterval]) -> tuple[PlanInterval, ...]:
    """Return the newest interval of each collector and kind named by `like`."""
    found = (known.newest for known in _known(metadata, _distinct(like)).values())
    return tuple(interval for interval in found if interval is not None)


def mark_logged(metadata: Engine, intervals: Sequence[PlanInterval]) -> None:
    """Remember that these intervals were announced as they are now."""
    if intervals:
        with writing(metadata) as connection:
            connection.execute(_SET_LOGGED, [_this(interval) for interval in intervals])


@dataclass(slots=True)
class _Known:
    """What is stored for one collector and kind; `unlogged` is by version."""

    newest: PlanInterval | None = None
    unlogged: dict[int, PlanInterval] = field(default_factory=dict)


_FIELDS = tuple(part.name for part in fields(PlanInterval))
_INTERVALS = select(*(PLANS.c[name] for name in _FIELDS))
_LATER = PLANS.alias()
_NEWEST_VERSION = (
    select(func.max(_LATER.c.version))
    .where(*(_LATER.c[name] == PLANS.c[name] for name in ("tenant_id", "cluster_id", "collector_id", "kind")))
    .scalar_subquery()
)
_NEWEST_AND_UNLOGGED = (
    _INTERVALS.add_columns(PLANS.c.unlogged)
    .where(PLANS.c.tenant_id == bindparam("its_tenant_id"), PLANS.c.cluster_id == bindparam("its_cluster_id"))
    .where(PLANS.c.collector_id.in_(bindparam("its_collector_ids", expanding=True)))
    .where(or_(PLANS.c.unlogged.is_(True), PLANS.c.version == _NEWEST_VERSION))
    .order_by(PLANS.c.version)
)
_THIS = and_(
    *(PLANS.c[name] == bindparam(f"its_{name}") for name in ("tenant_id", "cluster_id", "collector_id", "kind")),
    PLANS.c.version == bindparam("its_version"),
)
_CLOSE = update(PLANS).where(_THIS).values(to_ms=bindparam("its_to_ms"), unlogged=True)
_SET_LOGGED = (
    update(PLANS).where(_THIS, PLANS.c.to_ms.is_not_distinct_from(bindparam("its_to_ms"))).values(unlogged=False)
)


def _distinct(wanted: Iterable[PlanInterval]) -> dict[Key, PlanInterval]:
    """Return one interval per collector and kind: the last that was handed out, else the first learnt."""
    chosen: dict[Key, PlanInterval] = {}
    for interval in wanted:
        if interval.key not in chosen or not interval.learnt:
            chosen[interval.key] = interval
    return chosen


def _continuation(last: PlanInterval | None, wanted: PlanInterval) -> tuple[PlanInterval, ...]:
    """Return the intervals to write: the one closed and the new one, the new one alone, or nothing."""
    if last is None:
        return (replace(wanted, to_ms=None, version=1),)
    if last.to_ms is None and (_same(last, wanted) or _yields(wanted, last)):
        return ()
    from_ms = max(wanted.from_ms, last.to_ms or last.from_ms)
    new = replace(wanted, to_ms=None, version=last.version + 1, from_ms=from_ms)
    return (new,) if last.to_ms is not None else (replace(last, to_ms=from_ms), new)


def _same(last: PlanInterval, wanted: PlanInterval) -> bool:
    return (last.interval_ms, last.learnt, last.without) == (wanted.interval_ms, wanted.learnt, wanted.without)


def _yields(wanted: PlanInterval, last: PlanInterval) -> bool:
    return wanted.learnt and (not last.learnt or wanted.version <= last.version)


def _known(metadata: Engine, wanted: Mapping[Key, PlanInterval]) -> dict[Key, _Known]:
    """Return what is stored for each of these collectors and kinds."""
    found = {key: _Known() for key in wanted}
    with reading(metadata) as connection:
        for its in _collectors(wanted):
            for row in connection.execute(_NEWEST_AND_UNLOGGED, its):
                interval = _interval(row)
                known = found.get(interval.key)
                if known is not None:
                    known.newest = interval
                    known.unlogged |= {interval.version: interval} if row.unlogged else {}
    return found


def _collectors(wanted: Iterable[Key]) -> Iterator[dict[str, Any]]:
    """Give the parameters of the statements that read these collectors."""
    grouped: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for tenant_id, cluster_id, collector_id, _ in wanted:
        grouped[tenant_id, cluster_id][collector_id] = None
    for (tenant_id, cluster_id), collectors in grouped.items():
        names = list(collectors)
        for start in range(0, len(names), _READ_CHUNK):
            some = names[start : start + _READ_CHUNK]
            yield {"its_tenant_id": tenant_id, "its_cluster_id": cluster_id, "its_collector_ids": some}


def _write(metadata: Engine, intervals: Sequence[PlanInterval]) -> None:
    """Write all or raise IntegrityError."""
    closed = [_this(interval) for interval in intervals if interval.to_ms is not None]
    with writing(metadata) as connection:
        connection.execute(insert(PLANS), [_row(interval) for interval in intervals if interval.to_ms is None])
        if closed:
            connection.execute(_CLOSE, closed)


def _row(interval: PlanInterval) -> dict[str, Any]:
    named = {name: getattr(interval, name) for name in _FIELDS}
    return {**named, "kind": interval.kind.value, "unlogged": True}


def _this(interval: PlanInterval) -> dict[str, Any]:
    return {
        "its_tenant_id": interval.tenant_id,
        "its_cluster_id": interval.cluster_id,
        "its_collector_id": interval.collector_id,
        "its_kind": interval.kind.value,
        "its_version": interval.version,
        "its_to_ms": interval.to_ms,
    }


def _interval(row: Row[Any]) -> PlanInterval:
    named: dict[str, Any] = dict(zip(_FIELDS, row, strict=False))
    return PlanInterval(**{**named, "kind": EntityKind(row.kind)})
