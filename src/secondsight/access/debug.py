"""Keep debug sessions: every second of some hosts or GPUs for a bounded time, inside a tenant's budget.

A session ends by its own time, whoever is running then. What sessions cost is stated in values a second that they add.
"""

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, RowMapping, delete, insert, select, update

from secondsight.access.metadata import DEBUG_BUDGETS, DEBUG_SESSIONS, reading, writing
from secondsight.errors import Rejected

MINUTE_MS = 60_000
MS_PER_SECOND = 1000
MINUTES_MAXIMUM = 8 * 60
BACK_MINUTES_MAXIMUM = 120

Hosts = Mapping[str, tuple[str, ...] | None]
"""Host -> GPUs; None for everything of the host."""


@dataclass(frozen=True, slots=True)
class DebugSession:
    """A session.

    Attributes:
        target_kind, target: What was asked for: a cluster, a host, a GPU or a job.
        hosts: What that was when it started.
        back_ms: How far before its start it also wants the seconds that hosts still have.
        values_per_second: What it adds.
        subject: Who started it.
    """

    tenant_id: str
    cluster_id: str
    target_kind: str
    target: str
    hosts: Hosts
    start_ms: int
    until_ms: int
    back_ms: int = 0
    values_per_second: int = 0
    subject: str = ""
    session_id: str = ""
    stopped_ms: int | None = None

    def is_active(self, now_ms: int) -> bool:
        """Tell whether it still runs."""
        return self.stopped_ms is None and now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class Budget:
    """What a tenant's sessions may add, and what one more of a thing would.

    Attributes:
        per_host, per_gpu: Values a second that one of those asked for adds; at least 1.
    """

    values_per_second: int
    per_host: int = 1
    per_gpu: int = 1


class OverBudget(Rejected):
    """A session would add more than the tenant's budget allows; `retry_after_seconds` says when it would fit."""

    def __init__(self, message: str, hint: str, retry_after_seconds: float | None) -> None:
        super().__init__("debug_budget", message, hint)
        self.retry_after_seconds = retry_after_seconds


def start_session(metadata: Engine, asked: DebugSession, budget: Budget) -> DebugSession:
    """Start a session if the budget has room for it, and return it with its id.

    Raises:
        Rejected(debug_too_long): It would run, or reach back, too long.
        OverBudget: Saying what would fit now, and when more does.
    """
    _check_length(asked)
    session = replace(asked, session_id=secrets.token_hex(6))
    with writing(metadata) as connection:
        connection.execute(insert(DEBUG_SESSIONS).values(**_row(session)))
        rows = connection.execute(_active(session.tenant_id, session.start_ms)).mappings().all()
        others = [known for row in rows if (known := _session(row)).session_id != session.session_id]
        if sum(one.values_per_second for one in others) + session.values_per_second > budget.values_per_second:
            raise _over(session, others, budget)
    return session


def stop_session(metadata: Engine, tenant_ids: Sequence[str], session_id: str, now_ms: int) -> DebugSession:
    """End a session now.

    Raises:
        Rejected(not_found): These tenants have no such session, or it has ended.
    """
    mine = (DEBUG_SESSIONS.c.session_id == session_id, DEBUG_SESSIONS.c.tenant_id.in_(tenant_ids))
    live = (DEBUG_SESSIONS.c.stopped_ms.is_(None), DEBUG_SESSIONS.c.until_ms > now_ms)
    with writing(metadata) as connection:
        stopped = connection.execute(update(DEBUG_SESSIONS).where(*mine, *live).values(stopped_ms=now_ms)).rowcount
        row = connection.execute(select(DEBUG_SESSIONS).where(*mine)).mappings().first()
    if not stopped or row is None:
        raise Rejected(
            "not_found", f"no debug session {session_id!r} is running", "`secondsight debug list` names them"
        )
    return _session(row)


def sessions_since(metadata: Engine, ended_after_ms: int) -> tuple[DebugSession, ...]:
    """Return the sessions of all tenants that had not ended by a time, oldest first; stopped ones included."""
    late = select(DEBUG_SESSIONS).where(DEBUG_SESSIONS.c.until_ms > ended_after_ms)
    with reading(metadata) as connection:
        rows = connection.execute(late.order_by(DEBUG_SESSIONS.c.start_ms)).mappings().all()
    return tuple(_session(row) for row in rows)


def budget_of(metadata: Engine, tenant_id: str, usual: int) -> int:
    """Return the values a second that a tenant's sessions may add."""
    mine = select(DEBUG_BUDGETS.c.values_per_second).where(DEBUG_BUDGETS.c.tenant_id == tenant_id)
    with reading(metadata) as connection:
        own = connection.execute(mine).scalar()
    return usual if own is None else int(own)


def set_budget(metadata: Engine, tenant_id: str, values_per_second: int | None) -> None:
    """Give a tenant a budget of its own; None takes it away."""
    with writing(metadata) as connection:
        connection.execute(delete(DEBUG_BUDGETS).where(DEBUG_BUDGETS.c.tenant_id == tenant_id))
        if values_per_second is not None:
            row = {"tenant_id": tenant_id, "values_per_second": values_per_second}
            connection.execute(insert(DEBUG_BUDGETS).values(**row))


def _check_length(asked: DebugSession) -> None:
    minutes = (asked.until_ms - asked.start_ms) / MINUTE_MS
    if not 0 < minutes <= MINUTES_MAXIMUM:
        raise Rejected("debug_too_long", f"a session of {minutes:g} min is not allowed", f"1 to {MINUTES_MAXIMUM} min")
    if not 0 <= asked.back_ms <= BACK_MINUTES_MAXIMUM * MINUTE_MS:
        message = f"no host keeps seconds for {asked.back_ms / MINUTE_MS:g} min"
        raise Rejected("debug_too_long", message, f"reach back {BACK_MINUTES_MAXIMUM} min at most")


def _active(tenant_id: str, now_ms: int) -> Any:
    mine = select(DEBUG_SESSIONS).where(DEBUG_SESSIONS.c.tenant_id == tenant_id)
    return mine.where(DEBUG_SESSIONS.c.stopped_ms.is_(None), DEBUG_SESSIONS.c.until_ms > now_ms)


def _over(session: DebugSession, others: Sequence[DebugSession], budget: Budget) -> OverBudget:
    used = sum(one.values_per_second for one in others)
    free = max(budget.values_per_second - used, 0)
    message = (
        f"a session of {session.target_kind} {session.target} adds {session.values_per_second:,} values/s; "
        f"{free:,} of {budget.values_per_second:,} are free for tenant {session.tenant_id}"
    )
    fits_ms = _fits_from(session, others, budget)
    hint = f"what fits now: {_fitting(free, budget)}"
    if fits_ms is None:
        return OverBudget(message, f"{hint}; this session is larger than the whole budget", None)
    at = datetime.fromtimestamp(fits_ms / MS_PER_SECOND, UTC).strftime("%H:%M:%SZ")
    return OverBudget(message, f"{hint}; this one fits from {at} on", (fits_ms - session.start_ms) / MS_PER_SECOND)


def _fitting(free: int, budget: Budget) -> str:
    hosts, gpus = free // budget.per_host, free // budget.per_gpu
    if not (hosts or gpus):
        return "nothing"
    return f"{hosts} hosts or {gpus} GPUs like these, for up to {MINUTES_MAXIMUM} min"


def _fits_from(session: DebugSession, others: Sequence[DebugSession], budget: Budget) -> int | None:
    """Return when enough of the sessions that run have ended for another one; None for never."""
    if session.values_per_second > budget.values_per_second:
        return None
    return next(at_ms for at_ms, used in _ends(others) if used + session.values_per_second <= budget.values_per_second)


def _ends(sessions: Sequence[DebugSession]) -> Iterator[tuple[int, int]]:
    """Give (end of a session, what those that run on take)."""
    used = sum(one.values_per_second for one in sessions)
    for one in sorted(sessions, key=lambda one: one.until_ms):
        used -= one.values_per_second
        yield one.until_ms, used


def _row(session: DebugSession) -> dict[str, Any]:
    named = {name: getattr(session, name) for name in _COLUMNS}
    return {**named, "hosts": json.dumps(session.hosts)}


def _session(row: RowMapping) -> DebugSession:
    hosts = {host: None if gpus is None else tuple(gpus) for host, gpus in json.loads(row["hosts"]).items()}
    return DebugSession(**{name: row[name] for name in _COLUMNS} | {"hosts": hosts})


_COLUMNS = tuple(column.name for column in DEBUG_SESSIONS.columns)
