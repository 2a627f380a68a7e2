"""Run the stage that makes rollups as a process: it reads from the store's owner and hands it rows to write."""

import threading

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.exposition import SUFFIX, MetricsServer
from secondsight.rollup.config import RollupConfig
from secondsight.rollup.run import Roller
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.reach import reach_store


def serve_rollup(config: RollupConfig, clock: Clock, stop: threading.Event) -> None:
    """Make rollups until `stop` is set; the store's owner may start later, and restart.

    Raises:
        Rejected(bad_config): A catalogue file is wrong.
    """
    catalog = load_catalog(config.catalogue)
    store, metrics = reach_store(config.store_address, config.clickhouse, clock), SelfMetrics()
    server = _metrics_server(config, metrics)
    try:
        Roller(store, catalog, clock, metrics).run(stop)
    finally:
        if server is not None:
            server.close()
        store.close()


def _metrics_server(config: RollupConfig, metrics: SelfMetrics) -> MetricsServer | None:
    """Return what answers `/metrics`, None where nobody is to be answered."""
    if not config.metrics_listen:
        return None
    return MetricsServer(config.metrics_listen, config.data / "run" / f"rollup{SUFFIX}", metrics.render)
