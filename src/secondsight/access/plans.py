"""Keep which collector was to collect which kind how often, as intervals of time.

Coverage counts slots against these intervals, so they are only ever closed and continued, never rewritten. Whoever
writes an interval also announces it in the log; `unlogged` remembers what was written and not yet announced, so a crash
between the two loses nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, insert, select, update
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import PLANS, reading, writing
from secondsight.errors import Retryable
from secondsight.model import EntityKind

_WRITE_TRIES = 5


@dataclass(frozen=True, slots=True)
class PlanInterval:
    """One stretch of time in which a collector was to take a kind's ticks at one cadence.

    Attributes:
        from_ms, to_ms: Half open, epoch ms; to_ms is None while in force.
        version: Counts the intervals of a collector and kind from 1.
        learnt: Taken from what the collector sends; such an interval never follows one that was handed out.
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


def plans_in_force(metadata: Engine, tenant_id: str, cluster_id: str, collector_id: str) -> tuple[PlanInterval, ...]:
    """Return the open intervals of a collector, by kind."""
    mine = _of_collector(tenant_id, cluster_id, collector_id)
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
    for _ in range(_WRITE_TRIES):
        written = [interval for each in _distinct(wanted) for interval in _continuation(metadata, each)]
        try:
            if written:
                _write(metadata, written)
        except IntegrityError:
            continue
        return _unlogged(metadata, wanted)
    raise Retryable("the plans of these collectors are being written by others")


def newest_plans(metadata: Engine, like: Iterable[PlanInterval]) -> tuple[PlanInterval, ...]:
    """Return the newest interval of each collector and kind named by `like`."""
    found = (_last(metadata, each) for each in _distinct(like))
    return tuple(interval for interval in found if interval is not None)


def mark_logged(metadata: Engine, intervals: Iterable[PlanInterval]) -> None:
    """Remember that these intervals were announced as they are now."""
    with writing(metadata) as connection:
        for interval in intervals:
            same_end = PLANS.c.to_ms.is_(None) if interval.to_ms is None else PLANS.c.to_ms == interval.to_ms
            connection.execute(update(PLANS).where(_this(interval), same_end).values(unlogged=False))


_INTERVALS = select(*(PLANS.c[field.name] for field in fields(PlanInterval)))


def _distinct(wanted: Iterable[PlanInterval]) -> Iterable[PlanInterval]:
    """Return one interval per collector and kind: the last that was handed out, else the first learnt."""
    chosen: dict[tuple[str, ...], PlanInterval] = {}
    for interval in wanted:
        key = (interval.tenant_id, interval.cluster_id, interval.collector_id, interval.kind)
        if key not in chosen or not interval.learnt:
            chosen[key] = interval
    return chosen.values()


def _continuation(metadata: Engine, wanted: PlanInterval) -> tuple[PlanInterval, ...]:
    """Return the intervals to write: the one closed and the new one, the new one alone, or nothing."""
    last = _last(metadata, wanted)
    if last is None:
        return (replace(wanted, to_ms=None, version=1),)
    if last.to_ms is None and (_same(last, wanted) or _yields(wanted, last)):
        return ()
    from_ms = max(wanted.from_ms, last.to_ms or last.from_ms)
    new = replace(wanted, to_ms=None, version=last.version + 1, from_ms=from_ms)
    return (new,) if last.to_ms is not None else (replace(last, to_ms=from_ms), new)


def _same(last: PlanInterval, wanted: PlanInterval) -> bool:
    return (last.interval_ms, last.learnt) == (wanted.interval_ms, wanted.learnt)


def _yields(wanted: PlanInterval, last: PlanInterval) -> bool:
    return wanted.learnt and (not last.learnt or wanted.version <= last.version)


def _last(metadata: Engine, like: PlanInterval) -> PlanInterval | None:
    newest = _INTERVALS.where(_of_kind(like)).order_by(PLANS.c.version.desc()).limit(1)
    with reading(metadata) as connection:
        row = connection.execute(newest).first()
    return None if row is None else _interval(row)


def _write(metadata: Engine, intervals: Sequence[PlanInterval]) -> None:
    """Write all or raise IntegrityError."""
    with writing(metadata) as connection:
        new = [interval for interval in intervals if interval.to_ms is None]
        connection.execute(insert(PLANS), [_row(interval) for interval in new])
        for interval in intervals:
            if interval.to_ms is not None:
                _close(connection, interval)


def _close(connection: Connection, interval: PlanInterval) -> None:
    connection.execute(update(PLANS).where(_this(interval)).values(to_ms=interval.to_ms, unlogged=True))


def _unlogged(metadata: Engine, wanted: Sequence[PlanInterval]) -> tuple[PlanInterval, ...]:
    found: dict[PlanInterval, None] = {}
    with reading(metadata) as connection:
        for each in _distinct(wanted):
            waiting = _INTERVALS.where(_of_kind(each), PLANS.c.unlogged.is_(True)).order_by(PLANS.c.version)
            found.update((_interval(row), None) for row in connection.execute(waiting))
    return tuple(found)


def _row(interval: PlanInterval) -> dict[str, Any]:
    named = {field.name: getattr(interval, field.name) for field in fields(interval)}
    return {**named, "kind": interval.kind.value, "unlogged": True}


def _interval(row: Row[Any]) -> PlanInterval:
    return PlanInterval(**{**row._mapping, "kind": EntityKind(row.kind)})


def _of_collector(tenant_id: str, cluster_id: str, collector_id: str) -> ColumnElement[bool]:
    return and_(PLANS.c.tenant_id == tenant_id, PLANS.c.cluster_id == cluster_id, PLANS.c.collector_id == collector_id)


def _of_kind(like: PlanInterval) -> ColumnElement[bool]:
    return and_(_of_collector(like.tenant_id, like.cluster_id, like.collector_id), PLANS.c.kind == like.kind.value)


def _this(interval: PlanInterval) -> ColumnElement[bool]:
    return and_(_of_kind(interval), PLANS.c.version == interval.version)
