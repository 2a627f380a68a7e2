"""Reach a store that another process owns: a server, or the owner of an embedded store."""

from pathlib import Path

from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.client import FlightStore


def reach_store(
    address: str | Path, clickhouse: ClickHouseConfig | None, clock: Clock, *, readers: int = 4, read_only: bool = False
) -> Store:
    """Return a store that is reached at its first statement, and may start later.

    Args:
        address: Of the owner of an embedded store, or the file that holds it.
        clickhouse: The server that keeps the tables instead, if one does.
        clock: Source of deadlines.
        readers: Questions that are put to a server at once.
        read_only: Refuse whatever writes to a server.

    Raises:
        Rejected: `bad_config`: a file of the settings cannot be used.
    """
    if clickhouse is None:
        return FlightStore(address)
    from secondsight.store.clickhouse.store import ClickHouseStore  # only where the extra is installed

    return ClickHouseStore(clickhouse, readers, read_only=read_only, clock=clock)
