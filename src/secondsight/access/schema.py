"""Turn a database address into an engine, and grow its schema.

A schema only ever grows: what is lacking is created and nothing else changes, so an older program keeps working beside
a newer one. Several processes may start at once: growing happens under a row lock, and for SQLite under a file lock
too. What is particular to SQLite stays in this file.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Executable,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

SQLITE_BUSY_SECONDS = 10.0
_GROW_TRIES = 3
_LOCK = Table("schema_lock", MetaData(), Column("id", Integer, primary_key=True, autoincrement=False))


def open_engine(url: str) -> Engine:
    """Open a database as it is; see `metadata.open_metadata` for `url`."""
    address = url if "://" in url else f"sqlite:///{Path(url).absolute()}"
    return _open_sqlite(address) if address.startswith("sqlite") else create_engine(address, pool_pre_ping=True)


def grow_schema(engine: Engine, wanted: MetaData) -> None:
    """Create what `wanted` has and the database lacks; safe from several processes at once."""
    with engine.connect() as connection:
        if not _growth(connection, wanted):
            return
    _make_lock(engine)
    with engine.begin() as connection:
        connection.execute(update(_LOCK).values(id=1))  # others wait here until this transaction ends
        for statement in _growth(connection, wanted):
            connection.execute(statement)


@contextmanager
def alone(engine: Engine) -> Iterator[None]:
    """Keep other processes from opening the same SQLite file meanwhile: it cannot wait while it is switched to WAL."""
    path = engine.url.database
    if engine.dialect.name != "sqlite" or not path or path == ":memory:":
        yield
        return
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _open_sqlite(address: str) -> Engine:
    path = make_url(address).database
    if path and path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(address, connect_args={"timeout": SQLITE_BUSY_SECONDS})
    event.listen(engine, "connect", _set_sqlite_connection)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_sqlite_connection(connection: Any, _record: Any) -> None:
    """Set a new connection up. A power cut may undo the last commits (NORMAL), each as a whole; a kill undoes none."""
    connection.isolation_level = None  # the driver's own BEGIN would leave DDL outside transactions
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _make_lock(engine: Engine) -> None:
    """Create the lock's table and row; losing the race to another process is as good as winning it."""
    for attempt in range(_GROW_TRIES):
        try:
            with engine.begin() as connection:
                connection.execute(CreateTable(_LOCK, if_not_exists=True))
            with engine.begin() as connection:
                connection.execute(insert(_LOCK).values(id=1))
        except IntegrityError:
            return
        except (OperationalError, ProgrammingError):
            if attempt == _GROW_TRIES - 1:
                raise
        else:
            return


def _growth(connection: Connection, wanted: MetaData) -> list[Executable]:
    """Return the statements that create what the database lacks."""
    have = inspect(connection)
    names = set(have.get_table_names())
    statements: list[Executable] = []
    for table in wanted.sorted_tables:
        if table.name not in names:
            statements += [CreateTable(table), *(CreateIndex(index) for index in table.indexes)]
            continue
        columns = {column["name"] for column in have.get_columns(table.name)}
        indexes = {index["name"] for index in have.get_indexes(table.name)}
        statements += [_add_column(connection, column) for column in table.columns if column.name not in columns]
        statements += [CreateIndex(index) for index in table.indexes if index.name not in indexes]
    return statements


def _add_column(connection: Connection, column: Column[Any]) -> Executable:
    definition = CreateColumn(column).compile(dialect=connection.dialect)
    return text(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}")
