"""Write the second wall of a server: the users, row policies, quota and settings that questions in SQL stand behind.

Curated views read their tables with the rights of a user who cannot sign in, and row policies show that user only rows
of the tenants, and clusters, that the request names in `log_comment`. A request carries `readonly = 1` too, so no word
of a statement can name others. Whoever asks may read the views and nothing else: no table, no file, no address, no
dictionary, nothing of the server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from secondsight.store.deployment import Deployment
from secondsight.store.params import literal
from secondsight.store.spec import quoted
from secondsight.store.views import PRODUCTS, Metrics, curated_views, shared_database

PASSWORD_PLACE = "CHANGE-ME"  # noqa: S105 - what stands where an administrator writes a password
PROFILE, QUOTA, POLICY, OPEN_POLICY = (
    "secondsight_questions",
    "secondsight_questions",
    "secondsight_rows",
    "secondsight_all",
)
_NAMED = "JSONExtract(getSetting('log_comment'), '{0}', 'Array(String)')"
ROWS_SHOWN = (
    f"has({_NAMED.format('tenants')}, tenant_id) "
    f"AND (NOT JSONHas(getSetting('log_comment'), 'clusters') OR has({_NAMED.format('clusters')}, cluster_id))"
)
"""Predicate over a table below the views; without a caller it shows nothing."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Who asks, with whose rights views read, and what one request and one day may cost.

    Attributes:
        asker: User who asks what people ask.
        reader: User with whose rights views read; nobody signs in as that one.
        killer: User of the api, who ends questions.
        seconds, memory_bytes, read_rows, threads: Of one question, at most.
        daily_questions, daily_rows, daily_seconds: Of one tenant.
    """

    asker: str
    reader: str
    killer: str
    seconds: float
    memory_bytes: int
    read_rows: int
    threads: int
    daily_questions: int
    daily_rows: int
    daily_seconds: int


def wall_statements(catalog: Metrics, database: str, wall: Wall, deployment: Deployment) -> tuple[str, ...]:
    """Return the statements of the wall in their order; an administrator runs them, and may run them again.

    Args:
        catalog: What the views are made from.
        database: Database of the tables.
        wall: Who and how much.
        deployment: Where the tables stand.
    """
    views = curated_views(catalog, database)
    tables = sorted({view.table for view in views})
    place = deployment.on_cluster
    return (
        f"CREATE USER IF NOT EXISTS {quoted(wall.reader)}{place} HOST NONE",
        *(f"GRANT{place} {grant} TO {quoted(wall.reader)}" for grant in reader_grants(database, tables)),
        *_policies(database, tables, wall, place),
        _profile(wall, place),
        f"CREATE USER IF NOT EXISTS {quoted(wall.asker)}{place} IDENTIFIED BY {literal(PASSWORD_PLACE)} "
        f"SETTINGS PROFILE {literal(PROFILE)}",
        *(
            f"GRANT{place} {grant} TO {quoted(wall.asker)}"
            for grant in asker_grants(database, [view.name for view in views])
        ),
        _quota(wall, place),
        f"GRANT{place} KILL QUERY ON *.* TO {quoted(wall.killer)}",
    )


def reader_grants(database: str, tables: Sequence[str]) -> list[str]:
    """Return what views need to read."""
    return [
        *(f"SELECT ON {quoted(database)}.{quoted(table)}" for table in (*tables, "entities")),
        f"dictGet ON {quoted(database)}.{quoted(PRODUCTS)}",
    ]


def asker_grants(database: str, views: Sequence[str]) -> list[str]:
    """Return what whoever asks may do."""
    homes = (database, shared_database(database))
    return [f"SELECT ON {quoted(home)}.{quoted(view)}" for home in homes for view in views]


def _policies(database: str, tables: Sequence[str], wall: Wall, place: str) -> list[str]:
    """Return policies that show one user some rows, and all others what they saw before."""
    made = []
    for table in tables:
        name = f"ON {quoted(database)}.{quoted(table)}"
        made += [
            f"CREATE ROW POLICY IF NOT EXISTS {quoted(OPEN_POLICY)}{place} {name} "
            "AS PERMISSIVE FOR SELECT USING 1 TO ALL",
            f"CREATE ROW POLICY OR REPLACE {quoted(POLICY)}{place} {name} AS RESTRICTIVE FOR SELECT USING {ROWS_SHOWN} "
            f"TO {quoted(wall.reader)}",
        ]
    return made


def _profile(wall: Wall, place: str) -> str:
    capped = (
        ("max_execution_time", wall.seconds),
        ("max_memory_usage", wall.memory_bytes),
        ("max_rows_to_read", wall.read_rows),
        ("max_threads", wall.threads),
    )
    limits = ", ".join(f"{name} = {value} MAX {value}" for name, value in capped)
    fixed = "allow_ddl = 0 CONST, allow_introspection_functions = 0 CONST"
    return f"CREATE SETTINGS PROFILE OR REPLACE {quoted(PROFILE)}{place} SETTINGS {limits}, {fixed}"


def _quota(wall: Wall, place: str) -> str:
    most = f"queries = {3 * wall.daily_questions}, read_rows = {wall.daily_rows}, execution_time = {wall.daily_seconds}"
    return (
        f"CREATE QUOTA OR REPLACE {quoted(QUOTA)}{place} KEYED BY client_key FOR INTERVAL 1 day MAX {most} "
        f"TO {quoted(wall.asker)}"
    )
