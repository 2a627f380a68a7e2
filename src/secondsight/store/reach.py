"""Reach a store that another process owns: a server, or the owner of an embedded store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.client import FlightStore
from secondsight.store.failures import StatementFailed, StoreBusy
from secondsight.store.question import Question, Reply, asked_of

_NOT_MADE = frozenset({60, 81})
"""Engine codes of a table and of a database that is not there."""


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

    return _Others(ClickHouseStore(clickhouse, readers, read_only=read_only, clock=clock))


class _Others:
    """A server whose tables a processor makes: without them it is not there yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, table: str, data: Any) -> None:
        with _until_made():
            self._store.insert(table, data)

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> Any:
        with _until_made():
            return self._store.query(sql, params, settings)

    def ask(self, question: Question) -> Reply:
        with _until_made():
            return asked_of(self._store).ask(question)

    def close(self) -> None:
        self._store.close()


@contextmanager
def _until_made() -> Iterator[None]:
    try:
        yield
    except StatementFailed as error:
        if error.engine_code in _NOT_MADE:
            raise StoreBusy("its tables are not there yet, a processor makes them when it starts") from error
        raise
