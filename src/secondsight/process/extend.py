"""Give an open store what a later catalogue adds: columns and views, while others read from it."""

from secondsight.catalog.index import Catalog
from secondsight.contracts import Store
from secondsight.process.config import ServeConfig
from secondsight.store.deployment import EMBEDDED
from secondsight.store.migrate import is_migrated, migrate
from secondsight.store.schema import DATABASE


def extend(config: ServeConfig, store: Store, catalog: Catalog) -> tuple[str, ...]:
    """Add what a catalogue has and the store lacks; return the statements that did.

    Raises:
        Retryable: The store is busy or away; do it again.
        Permanent: It refuses.
    """
    server = config.clickhouse
    database = DATABASE if server is None else server.database
    if is_migrated(store, catalog, database):
        return ()
    if server is None:
        return migrate(store, catalog)
    from secondsight.store.clickhouse.store import ClickHouseStore  # only where the extra is installed

    deployment = store.deployment if isinstance(store, ClickHouseStore) else EMBEDDED
    return migrate(store, catalog, database, deployment)
