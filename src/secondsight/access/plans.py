"""Keep which collector was to collect which kind how often, as intervals of time.

Coverage counts slots against these intervals, so they are only ever closed and continued, never rewritten.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, and_, insert, select, update
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import PLANS
from secondsight.model import EntityKind


@dataclass(frozen=True, slots=True)
class PlanInterval:
    """One stretch of time in which a collector was to take a kind's ticks at one cadence.

    Attributes:
        from_ms, to_ms: Half open, epoch ms; to_ms is None while in force.
        version: Counts the intervals of a collector and kind from 1.
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


def plans_in_force(metadata: Engine, tenant_id: str, cluster_id: str, collector_id: str) -> tuple[PlanInterval, ...]:
    """Return the open intervals of a collector, by kind."""
    mine = _of_collector(tenant_id, cluster_id, collector_id)
    with metadata.connect() as connection:
        rows = connection.execute(_INTERVALS.where(mine, PLANS.c.to_ms.is_(None)).order_by(PLANS.c.kind)).all()
    return tuple(_interval(row) for row in rows)


def continue_plan(metadata: Engine, wanted: PlanInterval) -> tuple[PlanInterval, ...]:
    """Put a cadence in force from `wanted.from_ms` on and return the intervals written: the one it closed, the new one.

    The new interval never starts before the one it follows. Returns nothing where the same cadence is in force, or
    where another process changed the plan meanwhile; `wanted.version` is replaced by the next one.
    """
    last = _last_interval(metadata, wanted)
    if last is None:
        new, closed = replace(wanted, version=1), None
    elif last.to_ms is None and last.interval_ms == wanted.interval_ms:
        return ()
    else:
        from_ms = max(wanted.from_ms, last.to_ms or last.from_ms)
        new = replace(wanted, version=last.version + 1, from_ms=from_ms)
        closed = replace(last, to_ms=from_ms) if last.to_ms is None else None
    written = (new,) if closed is None else (closed, new)
    return written if _write(metadata, new, closed) else ()


_INTERVALS = select(*(PLANS.c[field.name] for field in fields(PlanInterval)))


def _of_collector(tenant_id: str, cluster_id: str, collector_id: str) -> ColumnElement[bool]:
    return and_(PLANS.c.tenant_id == tenant_id, PLANS.c.cluster_id == cluster_id, PLANS.c.collector_id == collector_id)


def _interval(row: Row[Any]) -> PlanInterval:
    return PlanInterval(**{**row._mapping, "kind": EntityKind(row.kind)})


def _last_interval(metadata: Engine, like: PlanInterval) -> PlanInterval | None:
    mine = and_(_of_collector(like.tenant_id, like.cluster_id, like.collector_id), PLANS.c.kind == like.kind.value)
    with metadata.connect() as connection:
        row = connection.execute(_INTERVALS.where(mine).order_by(PLANS.c.version.desc()).limit(1)).first()
    return None if row is None else _interval(row)


def _write(metadata: Engine, new: PlanInterval, closed: PlanInterval | None) -> bool:
    """Write both or, where another process was first, neither. The first statement writes, so SQLite waits its turn."""
    try:
        with metadata.begin() as connection:
            connection.execute(insert(PLANS).values(**{**asdict(new), "kind": new.kind.value}))
            if closed is not None:
                mine = and_(
                    _of_collector(closed.tenant_id, closed.cluster_id, closed.collector_id),
                    PLANS.c.kind == closed.kind.value,
                    PLANS.c.version == closed.version,
                )
                connection.execute(update(PLANS).where(mine).values(to_ms=closed.to_ms))
    except IntegrityError:
        return False
    return True
