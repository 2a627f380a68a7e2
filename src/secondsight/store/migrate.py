"""Bring a store's tables up to the catalogue: create what is missing, add columns, set settings, take nothing away.

The curated views follow the tables: one whose definition changed is made anew.
"""

from typing import Protocol

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
from secondsight.store.views import Metrics, create_products, curated_views, shared_database


class Described(Scalars, Metrics, Protocol):
    """What migration asks of a catalogue."""


def migrate(
    store: Store, catalog: Described, database: str = DATABASE, deployment: Deployment = EMBEDDED
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
    return created + altered + _migrate_views(store, catalog, database, deployment)


def is_migrated(store: Store, catalog: Scalars, database: str = DATABASE) -> bool:
    """Tell whether a store has every table and column that a catalogue wants.

    Raises:
        Retryable: The store is busy or away.
    """
    found = existing_columns(store, database)
    return all(
        {column.name for column in spec.columns} <= found.get(spec.name, frozenset()) for spec in tables(catalog)
    )


def existing_columns(store: Store, database: str = DATABASE) -> dict[str, frozenset[str]]:
    """Return table -> names of its columns, as the store has them; views are none."""
    tables_alone = "SELECT name FROM system.tables WHERE database = {database:String} AND engine LIKE '%MergeTree'"
    found = store.query(
        "SELECT table, groupArray(name) AS names FROM system.columns "  # noqa: S608 - a statement of this module
        f"WHERE database = {{database:String}} AND table IN ({tables_alone}) GROUP BY table",
        {"database": database},
    )
    return {row["table"]: frozenset(row["names"]) for row in found.to_pylist()}


def existing_engines(store: Store, database: str = DATABASE) -> dict[str, str]:
    """Return table -> its engine with keys and settings, as the store has it."""
    found = store.query(
        "SELECT name, engine_full FROM system.tables WHERE database = {database:String}", {"database": database}
    )
    return {row["name"]: row["engine_full"] for row in found.to_pylist()}


def _migrate_views(store: Store, catalog: Described, database: str, deployment: Deployment) -> tuple[str, ...]:
    """Make the views that are missing or changed, and what they look products up in."""
    made = []
    for home in (database, shared_database(database)):
        found = store.query(
            "SELECT name, comment FROM system.tables WHERE database = {database:String} AND engine = 'View'",
            {"database": home},
        )
        before = {row["name"]: row["comment"] for row in found.to_pylist()}
        made += [
            view.create_statement(database, home, deployment)
            for view in curated_views(catalog, database)
            if before.get(view.name) != view.fingerprint(deployment)
        ]
    if made:
        store.query(create_database(shared_database(database), deployment))
        store.query(create_products(database, deployment))
    for statement in made:
        store.query(statement)
    return tuple(made)


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
