"""Run the stage that makes rollups as a process: it reads from the store's owner and hands it rows to write."""

import threading

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.rollup.config import RollupConfig
from secondsight.rollup.run import Roller
from secondsight.store.client import FlightStore


def serve_rollup(config: RollupConfig, clock: Clock, stop: threading.Event) -> None:
    """Make rollups until `stop` is set; the store's owner may start later, and restart.

    Raises:
        Rejected(bad_config): A catalogue file is wrong.
    """
    catalog, store = load_catalog(config.catalogue), _open_store(config, clock)
    try:
        Roller(store, catalog, clock).run(stop)
    finally:
        store.close()


def _open_store(config: RollupConfig, clock: Clock) -> Store:
    if config.clickhouse is None:
        return FlightStore(config.store_address)
    from secondsight.store.clickhouse.store import ClickHouseStore  # only where the extra is installed

    return ClickHouseStore(config.clickhouse, clock=clock)
