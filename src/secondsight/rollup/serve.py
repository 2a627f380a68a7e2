"""Run the stage that makes rollups as a process: it reads from the store's owner and hands it rows to write."""

import threading

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.rollup.config import RollupConfig
from secondsight.rollup.run import Roller
from secondsight.store.reach import reach_store


def serve_rollup(config: RollupConfig, clock: Clock, stop: threading.Event) -> None:
    """Make rollups until `stop` is set; the store's owner may start later, and restart.

    Raises:
        Rejected(bad_config): A catalogue file is wrong.
    """
    catalog = load_catalog(config.catalogue)
    store = reach_store(config.store_address, config.clickhouse, clock)
    try:
        Roller(store, catalog, clock).run(stop)
    finally:
        store.close()
