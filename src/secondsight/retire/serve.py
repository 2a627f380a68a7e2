"""Run retention as a process of low priority: it asks the lake, and has the store's owner drop parts."""

import logging
import os
import threading

from secondsight.access.metadata import open_metadata
from secondsight.catalog.living import CatalogFiles
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.lake.confirm import confirmed
from secondsight.lake.hot import hot_specs
from secondsight.lake.layout import lake_tables
from secondsight.lake.tables import open_lake
from secondsight.retire.config import RetentionConfig
from secondsight.retire.run import Confirms, Means, Retirement
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.reach import reach_store
from secondsight.store.schema import tables

logger = logging.getLogger(__name__)


def serve_retention(config: RetentionConfig, clock: Clock, stop: threading.Event) -> None:
    """Let go of old rows until `stop` is set; the store's owner and the lake may start later, and restart.

    Raises:
        Rejected: `bad_config`: a catalogue file or a secret cannot be read.
        Retryable: The metadata store cannot be opened.
    """
    os.nice(config.niceness)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    store = reach_store(config.store_address, config.clickhouse, clock)
    metadata = open_metadata(config.metadata_address)
    try:
        confirms = None if config.without_lake else asking(config, store)
        means = Means(store, metadata, clock, SelfMetrics(), confirms, config.wait_seconds)
        Retirement(means).run(stop, config.every_seconds)
    finally:
        metadata.dispose()
        store.close()


def asking(config: RetentionConfig, store: Store) -> Confirms:
    """Return what asks the lake, which is opened for each question: it may be away, or not there yet."""
    files = CatalogFiles(config.catalogue, config.data)

    def confirms(table: str, start_ms: int, end_ms: int) -> bool:
        files.look()
        specs = {spec.name: spec for spec in tables(files.catalog)}
        lake = open_lake(config.catalog, config.data)
        try:
            shape = lake_tables(hot_specs(store, {table: specs[table]}).values()).get(table)
            return shape is not None and confirmed(store, lake, shape, start_ms, end_ms)
        finally:
            lake.close()

    return confirms
