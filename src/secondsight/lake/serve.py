"""Run the stage that fills the lake as a process of low priority: it reads from the store's owner and writes files."""

import logging
import os
import threading
from functools import partial

from secondsight.catalog.index import Catalog
from secondsight.catalog.living import CatalogFiles, following
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.exposition import SUFFIX, MetricsServer
from secondsight.lake.config import LakeConfig
from secondsight.lake.export import Means, Pace
from secondsight.lake.rewrite import Bound
from secondsight.lake.run import PAUSE_SECONDS, Stage, Tidying
from secondsight.lake.sweep import Sweeper
from secondsight.lake.tables import Lake, open_lake
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.reach import reach_store
from secondsight.store.schema import tables

logger = logging.getLogger(__name__)

MIB = 1 << 20
HOUR_MS = 3_600_000


def serve_lake(config: LakeConfig, clock: Clock, stop: threading.Event) -> None:
    """Fill the lake until `stop` is set; the store's owner and the lake may start later, and restart.

    Raises:
        Rejected: `bad_config`: a catalogue file or a secret cannot be read.
    """
    os.nice(config.niceness)
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    lake = _opened(config, stop)
    if lake is None:
        return
    files = CatalogFiles(config.catalogue, config.data)
    store = reach_store(config.store_address, config.clickhouse, clock)
    metrics = SelfMetrics()
    server = None
    if config.metrics_listen:
        server = MetricsServer(config.metrics_listen, config.data / "run" / f"lake{SUFFIX}", metrics.render)
    try:
        made = partial(stage_of, config, store, lake, clock, metrics)
        following(files, clock, stop, lambda catalog, until: made(catalog).run(until))
    finally:
        if server is not None:
            server.close()
        store.close()
        lake.close()


def stage_of(
    config: LakeConfig, store: Store, lake: Lake, clock: Clock, metrics: SelfMetrics, catalog: Catalog | None = None
) -> Stage:
    """Return the stage that settings describe, by default with the catalogue that its files make now.

    Raises:
        Rejected: `bad_catalog`.
    """
    pace = Pace(
        settle_ms=round(config.settle_seconds * 1000),
        patience_ms=round(config.patience_hours * HOUR_MS),
        recheck_seconds=config.recheck_seconds,
        commit_seconds=config.commit_seconds,
        commit_bytes=config.commit_mib * MIB,
    )
    bound = Bound(config.portion_values, config.file_mib * MIB)
    means = Means(store, lake, clock, metrics, bound, pace)
    tidying = Tidying(
        compact_seconds=300.0 if config.compact else 0.0,
        over_ms=round(config.compact_hours * HOUR_MS),
    )
    sweeper = Sweeper(means, round(config.snapshot_hours * HOUR_MS), round(config.orphan_hours * HOUR_MS))
    specs = {spec.name: spec for spec in tables(catalog or load_catalog(config.catalogue))}
    return Stage(means, specs, frozenset(config.tables), tidying, sweeper)


def _opened(config: LakeConfig, stop: threading.Event) -> Lake | None:
    """Return the lake once its catalogue is there, None when told to stop before."""
    while not stop.is_set():
        try:
            return open_lake(config.catalog, config.data)
        except Retryable as error:
            logger.warning("the lake's catalogue is waited for: %s", error)
            stop.wait(PAUSE_SECONDS)
    return None
