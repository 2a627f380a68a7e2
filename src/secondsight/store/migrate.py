"""Bring a store's tables up to the catalogue: create what is missing, add columns, set settings, take nothing away."""

from secondsight.contracts import Store
from secondsight.store.deployment import EMBEDDED, Deployment
from secondsight.store.schema import (
    DATABASE,
    Scalars,
    alter_statements,
    create_database,
    create_statements,
    fingerprint,
    setting_statements,
    tables,
)


def migrate(
    store: Store, catalog: Scalars, database: str = DATABASE, deployment: Deployment = EMBEDDED
) -> tuple[str, ...]:
    """Run what is missing and return the statements that changed something; safe twice, at once and after a crash.

    Raises:
        Retryable: The store is busy or away; run it again.
    """
    before = existing_columns(store, database)
    wanted = create_statements(catalog, database, deployment)
    created = tuple(statement for name, statement in wanted.items() if name not in before)
    for statement in (create_database(database, deployment), *created):
        store.query(statement)
    altered = (
        *alter_statements(before, catalog, database, deployment),
        *setting_statements({} if not before else existing_engines(store, database), catalog, database, deployment),
    )
    for statement in altered:
        store.query(statement)
    if created or altered:
        _note_version(store, catalog, database)
    return created + altered


def existing_columns(store: Store, database: str = DATABASE) -> dict[str, frozenset[str]]:
    """Return table -> names of its columns, as the store has them."""
    found = store.query(
        "SELECT table, groupArray(name) AS names FROM system.columns WHERE database = {database:String} GROUP BY table",
        {"database": database},
    )
    return {row["table"]: frozenset(row["names"]) for row in found.to_pylist()}


def existing_engines(store: Store, database: str = DATABASE) -> dict[str, str]:
    """Return table -> its engine with keys and settings, as the store has it."""
    found = store.query(
        "SELECT name, engine_full FROM system.tables WHERE database = {database:String}", {"database": database}
    )
    return {row["name"]: row["engine_full"] for row in found.to_pylist()}


def schema_version(store: Store) -> int:
    """Return how many times the tables were changed; 0 before the first migration."""
    return int(store.query("SELECT max(version) AS version FROM schema_version").to_pylist()[0]["version"])


def _note_version(store: Store, catalog: Scalars, database: str) -> None:
    store.query(
        "INSERT INTO {database:Identifier}.schema_version (fingerprint, version, tables) "
        "SELECT {fingerprint:UInt64}, toUInt32(max(version) + 1), {tables:UInt32} "
        "FROM {database:Identifier}.schema_version",
        {"database": database, "fingerprint": fingerprint(catalog), "tables": len(tables(catalog))},
    )
