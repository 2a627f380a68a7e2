"""Keep planned work: in which time nothing is expected of a host, or of a whole cluster. Windows are never deleted."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, RowMapping, insert, or_, select, update

from secondsight.access.metadata import MAINTENANCE, reading, writing
from secondsight.errors import Rejected

DAY_MS = 86_400_000
LENGTH_MAXIMUM_MS = 31 * DAY_MS
PAST_MAXIMUM_MS = DAY_MS
"""So far back planned work can be put on record that nobody had announced."""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """Planned work on one host, or on a whole cluster where `host_id` is "".

    Attributes:
        ended_ms: When somebody ended it early, or None.
        subject: Who announced it.
    """

    tenant_id: str
    cluster_id: str
    host_id: str
    start_ms: int
    until_ms: int
    reason: str
    subject: str
    created_ms: int
    window_id: str = ""
    ended_ms: int | None = None

    @property
    def to_ms(self) -> int:
        """Return where it ends."""
        return self.until_ms if self.ended_ms is None else max(min(self.until_ms, self.ended_ms), self.start_ms)


def add_windows(metadata: Engine, asked: Sequence[MaintenanceWindow]) -> tuple[MaintenanceWindow, ...]:
    """Put windows on record, all or none, and return them with their ids.

    Raises:
        Rejected(bad_maintenance): One begins after its end, is too long, or too long ago.
    """
    for window in asked:
        _check(window)
    made = tuple(replace(window, window_id=secrets.token_hex(6)) for window in asked)
    with writing(metadata) as connection:
        connection.execute(insert(MAINTENANCE), [{name: getattr(one, name) for name in _COLUMNS} for one in made])
    return made


def end_window(metadata: Engine, tenant_ids: Sequence[str], window_id: str, now_ms: int) -> MaintenanceWindow:
    """End a window now; one that has not begun never was.

    Raises:
        Rejected(not_found): These tenants have no such window, or it is over.
    """
    mine = (MAINTENANCE.c.window_id == window_id, MAINTENANCE.c.tenant_id.in_(tenant_ids))
    live = (MAINTENANCE.c.ended_ms.is_(None), MAINTENANCE.c.until_ms > now_ms)
    with writing(metadata) as connection:
        ended = connection.execute(update(MAINTENANCE).where(*mine, *live).values(ended_ms=now_ms)).rowcount
        row = connection.execute(select(MAINTENANCE).where(*mine)).mappings().first()
    if not ended or row is None:
        raise Rejected("not_found", f"no planned work {window_id!r} is under way or to come", "list it to see the ids")
    return _window(row)


def windows_between(
    metadata: Engine, tenant_ids: Sequence[str], from_ms: int, to_ms: int
) -> tuple[MaintenanceWindow, ...]:
    """Return the windows of some tenants that reach into a range, oldest first."""
    inside = (MAINTENANCE.c.start_ms < to_ms, MAINTENANCE.c.until_ms > from_ms)
    open_then = or_(MAINTENANCE.c.ended_ms.is_(None), MAINTENANCE.c.ended_ms > from_ms)
    mine = select(MAINTENANCE).where(MAINTENANCE.c.tenant_id.in_(tenant_ids), *inside, open_then)
    with reading(metadata) as connection:
        rows = connection.execute(mine.order_by(MAINTENANCE.c.start_ms, MAINTENANCE.c.window_id)).mappings().all()
    windows = (_window(row) for row in rows)
    return tuple(window for window in windows if window.to_ms > window.start_ms)


def _check(window: MaintenanceWindow) -> None:
    length_ms = window.until_ms - window.start_ms
    if not 0 < length_ms <= LENGTH_MAXIMUM_MS:
        hint = "let it end after it begins, within 31 days"
        raise Rejected("bad_maintenance", f"planned work of {length_ms / 3_600_000:g} h is not allowed", hint)
    if window.created_ms - window.start_ms > PAST_MAXIMUM_MS:
        message = "planned work cannot be put on record more than a day after it began"
        raise Rejected("bad_maintenance", message, "let it begin within the last 24 h")
    if not window.cluster_id:
        raise Rejected("bad_maintenance", "planned work is of a cluster", "name the cluster, and a host if it is one")


def _window(row: RowMapping) -> MaintenanceWindow:
    named: dict[str, Any] = {name: row[name] for name in _COLUMNS}
    return MaintenanceWindow(**named)


_COLUMNS = tuple(column.name for column in MAINTENANCE.columns)
