"""Run the stage that makes rollups as a process: it reads from the store's owner and hands it rows to write."""

import logging
import threading

from secondsight.catalog.index import Catalog
from secondsight.catalog.living import CatalogFiles, following
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.exposition import SUFFIX, MetricsServer
from secondsight.rollup.config import RollupConfig
from secondsight.rollup.run import Roller
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.migrate import is_migrated
from secondsight.store.reach import reach_store

logger = logging.getLogger(__name__)

MIGRATED_SECONDS = 1.0
"""How often columns that a catalogue wants are looked for."""


def serve_rollup(config: RollupConfig, clock: Clock, stop: threading.Event) -> None:
    """Make rollups until `stop` is set; the store's owner may start later, and restart.

    Catalogue files are followed: the stage goes on anew once the tables have what they add.

    Raises:
        Rejected: A catalogue file is wrong.
    """
    files = CatalogFiles(config.catalogue, config.data)
    store, metrics = reach_store(config.store_address, config.clickhouse, clock), SelfMetrics()
    server = _metrics_server(config, metrics)
    try:
        following(files, clock, stop, lambda catalog, until: _roll(store, catalog, clock, metrics, until))
    finally:
        if server is not None:
            server.close()
        store.close()


def _roll(store: Store, catalog: Catalog, clock: Clock, metrics: SelfMetrics, until: threading.Event) -> None:
    """Make rollups of one catalogue, from when the store's owner has made its columns."""
    while not until.is_set():
        try:
            if is_migrated(store, catalog):
                Roller(store, catalog, clock, metrics).run(until)
        except Retryable as error:
            logger.warning("rollups wait for the store: %s", error)
        until.wait(MIGRATED_SECONDS)


def _metrics_server(config: RollupConfig, metrics: SelfMetrics) -> MetricsServer | None:
    """Return what answers `/metrics`, None where nobody is to be answered."""
    if not config.metrics_listen:
        return None
    return MetricsServer(config.metrics_listen, config.data / "run" / f"rollup{SUFFIX}", metrics.render)
