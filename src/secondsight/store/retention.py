"""Say which parts the hot store holds of tables whose old rows may go, and let go of single ones.

Only seconds and rollups of entities may go: events, allocations, lifecycle, the ledger and whatever else is in no list
here are kept for ever. A part is dropped by its name: what came after it was looked at has another one, and stays.
"""

import re
from dataclasses import dataclass

from secondsight.contracts import Store
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.store.client import FlightStore
from secondsight.store.coarse import FINEST, LEVELS
from secondsight.store.spec import quoted

RAW = "1s"
RESOLUTIONS = (RAW, FINEST, *(level.name for level in LEVELS))
RETIRABLE: dict[str, str] = {
    **{f"{kind.value}_{resolution}": resolution for resolution in RESOLUTIONS for kind in EntityKind},
    "histograms_1s": RAW,
}
"""Table -> resolution of its rows."""
_PART = re.compile(r"[0-9A-Za-z_-]{1,200}")


@dataclass(frozen=True, slots=True)
class HotPart:
    """One part of a table.

    Attributes:
        partition: As the engine writes it: `('2026-11-30',0)`, `(202611,0)` or `(2026,0)`.
    """

    table: str
    partition: str
    name: str
    rows: int
    size_bytes: int


def hot_parts(store: Store) -> list[HotPart]:
    """Return the active parts of tables whose rows may go, in order of table, partition and name.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT table, partition, name, toInt64(rows) AS held, toInt64(bytes_on_disk) AS size FROM system.parts "
        "WHERE database = currentDatabase() AND active ORDER BY table, partition, name"
    ).to_pylist()
    return [
        HotPart(row["table"], row["partition"], row["name"], row["held"], row["size"])
        for row in rows
        if row["table"] in RETIRABLE
    ]


def drop_part(store: Store, table: str, part: str) -> None:
    """Delete one part of a table, for ever.

    Raises:
        Rejected(read_only): The table's rows may not go.
        Retryable: The store is busy or away.
        Permanent: There is no such part any more: it was merged with others.
    """
    statement = drop_statement(table, part)
    if isinstance(store, FlightStore):
        store.drop_part(table, part)
    else:
        store.query(statement)


def drop_statement(table: str, part: str) -> str:
    """Return the statement that deletes one part.

    Raises:
        Rejected(read_only): The table's rows may not go, or that is no name of a part.
    """
    if table not in RETIRABLE or not _PART.fullmatch(part):
        raise Rejected("read_only", "only parts of seconds and of rollups of entities may be dropped")
    return f"ALTER TABLE {quoted(table)} DROP PART '{part}'"
