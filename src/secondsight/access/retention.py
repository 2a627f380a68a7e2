"""Keep what retention was set to, and from when on the hot store has every row of a table.

A floor is raised before anything below it is dropped, and never lowered: what reads takes rows below it from the lake.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, delete, insert, select, update

from secondsight.access.metadata import HOT_FLOORS, RETENTION, reading, writing

EVERY_CLASS = -1
"""Stands for all retention classes of a table that have no rule of their own."""


@dataclass(frozen=True, slots=True)
class KeepRule:
    """How long the hot store keeps rows.

    Attributes:
        table: A table, or a resolution (`1s`, `30s`, ...) that stands for the tables of all kinds.
        retention_class: Of rows, or `EVERY_CLASS`.
        days: None for ever.
    """

    table: str
    retention_class: int
    days: float | None


def read_rules(metadata: Engine) -> tuple[KeepRule, ...]:
    """Return the rules that were set, in order of their tables and classes."""
    columns = (RETENTION.c.table_name, RETENTION.c.retention_class, RETENTION.c.days)
    with reading(metadata) as connection:
        rows = connection.execute(select(*columns).order_by(*columns[:2])).all()
    return tuple(KeepRule(row.table_name, row.retention_class, row.days) for row in rows)


def set_rule(metadata: Engine, rule: KeepRule, now_ms: int) -> None:
    """Store a rule in place of the one of the same table and class."""
    with writing(metadata) as connection:
        connection.execute(
            delete(RETENTION).where(
                RETENTION.c.table_name == rule.table, RETENTION.c.retention_class == rule.retention_class
            )
        )
        values = {"table_name": rule.table, "retention_class": rule.retention_class, "days": rule.days}
        connection.execute(insert(RETENTION).values(changed_ms=now_ms, **values))


def read_floors(metadata: Engine) -> Mapping[str, int]:
    """Return table -> epoch ms from which on the hot store has every row; tables that have all are left out."""
    with reading(metadata) as connection:
        rows = connection.execute(select(HOT_FLOORS.c.table_name, HOT_FLOORS.c.floor_ms)).all()
    return {row.table_name: int(row.floor_ms) for row in rows}


def raise_floor(metadata: Engine, table: str, floor_ms: int, now_ms: int) -> None:
    """Note that rows of a table before a time are read from the lake; a lower floor than the known one is none."""
    with writing(metadata) as connection:
        values = {"floor_ms": floor_ms, "changed_ms": now_ms}
        mine = HOT_FLOORS.c.table_name == table
        raised = connection.execute(update(HOT_FLOORS).where(mine, HOT_FLOORS.c.floor_ms < floor_ms).values(values))
        if not raised.rowcount and connection.execute(select(HOT_FLOORS.c.floor_ms).where(mine)).first() is None:
            connection.execute(insert(HOT_FLOORS).values(table_name=table, **values))
