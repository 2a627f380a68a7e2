"""Run the canary as a process: it sends to the gateway and reads by the questions of the read side."""

import logging
import random
from threading import Event

from secondsight.access.metadata import open_metadata
from secondsight.access.retention import read_floors
from secondsight.canary.check import Checker
from secondsight.canary.config import CanaryConfig
from secondsight.canary.courier import Courier
from secondsight.canary.frames import Framer
from secondsight.canary.kept import load_kept
from secondsight.canary.run import Canary, Outlet, Pace
from secondsight.canary.tiers import COLD, Readers
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.exposition import SUFFIX, MetricsServer
from secondsight.lake.cold_config import ColdConfig
from secondsight.lake.cold_pool import ColdPool
from secondsight.lake.cold_request import ColdRequest
from secondsight.query.cold import ColdTier
from secondsight.query.inventory import Inventory
from secondsight.query.run import QueryRunner
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.reach import reach_store

FILE = "canary.json"
EVERYTHING_MS = 1 << 60
COLD_MIB = 256


class BriefPool:
    """Cold reads whose process ends after each round: it is needed for seconds in a quarter of an hour."""

    def __init__(self, config: CanaryConfig) -> None:
        self._data = config.data
        self._config = ColdConfig(config.catalog, config.catalogue, threads=1, memory_mib=COLD_MIB)
        self._pool: ColdPool | None = None

    def query(self, request: ColdRequest) -> object:
        """Return the rows of a statement over the lake; see `ColdPool.query`."""
        self._pool = self._pool or ColdPool(self._config, self._data)
        return self._pool.query(request)

    def close(self) -> None:
        """End its process until the next question; may be called twice."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def serve_canary(config: CanaryConfig, clock: Clock, stop: Event) -> None:
    """Send and check until `stop` is set; gateway, store and lake may start later, and restart.

    Raises:
        Rejected: `bad_config`, `bad_url`.
        Retryable: The metadata store cannot be opened.
    """
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    catalog, metrics = load_catalog(config.catalogue), SelfMetrics()
    metadata = open_metadata(config.metadata_address)
    store = reach_store(config.store_address, config.clickhouse, clock)
    courier = Courier(
        config.gateway,
        config.token_file,
        clock,
        events_token_file=config.events_token_file,
        ca_file=config.ca_file,
    )
    pool = BriefPool(config)
    inventory = Inventory(store, clock)
    lake = ColdTier(pool, lambda: {tier.table: EVERYTHING_MS for tier in COLD}, inventory)
    readers = Readers(
        catalog,
        clock,
        QueryRunner(store, clock, inventory),
        QueryRunner(store, clock, inventory, cold=lake) if config.lake else None,
        lambda: read_floors(metadata),
    )
    kept = load_kept(config.data / FILE)
    checker = Checker(readers, kept, courier.event, clock, metrics, random.SystemRandom())
    outlet = Outlet(Framer(catalog, random.SystemRandom().getrandbits(63)), courier.frames, pool.close)
    pace = Pace(config.send_seconds, config.check_seconds, config.lake_seconds if config.lake else 0.0)
    server = _metrics_server(config, metrics)
    try:
        Canary(outlet, kept, checker, clock, metrics, pace).run(stop)
    finally:
        if server is not None:
            server.close()
        pool.close()
        courier.close()
        store.close()
        metadata.dispose()


def _metrics_server(config: CanaryConfig, metrics: SelfMetrics) -> MetricsServer | None:
    """Return what answers `/metrics`, None where nobody is to be answered."""
    if not config.metrics_listen:
        return None
    return MetricsServer(config.metrics_listen, config.data / "run" / f"canary{SUFFIX}", metrics.render)
