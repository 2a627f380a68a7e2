"""Run a processor as a process: open the store, answer reads of it, process the log until told to stop."""

import logging
import threading
from collections.abc import Callable

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import LogConsumer
from secondsight.errors import Retryable
from secondsight.log.embedded import EmbeddedConsumer
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.retention import enforce_retention
from secondsight.log.topics import DEFINITIONS_TOPIC, INGEST_TOPIC, PROCESSOR_GROUP, definitions_topic, ingest_topic
from secondsight.process.balance import Checker
from secondsight.process.config import ServeConfig
from secondsight.process.run import Processor, ProcessorConfig
from secondsight.store.chdb import ChdbStore
from secondsight.store.migrate import migrate
from secondsight.store.schema import tables
from secondsight.store.serve import start_store_server
from secondsight.store.spec import TableSpec

logger = logging.getLogger(__name__)

DEFINITIONS_GROUP = "processor-definitions"
RETENTION_SECONDS = 60.0
TOPICS_SECONDS = 1.0
MIB = 1 << 20


def serve_processor(config: ServeConfig, clock: Clock, stop: threading.Event) -> None:
    """Process until `stop` is set, then write and commit what was taken in.

    Raises:
        Retryable: Another process owns the store's folder, or the log cannot be read.
    """
    catalog = load_catalog(config.catalogue)
    store = ChdbStore(config.data / "hot", config.readers, clock=clock)
    try:
        migrate(store, catalog)
        server = start_store_server(store, config.data / "run")
        try:
            consumers = _consumers(config, clock, stop)
            if consumers is not None:
                _process(config, consumers, store, clock, stop)
        finally:
            server.close()
    finally:
        store.close()


Consumers = tuple[LogConsumer, Callable[[], LogConsumer]]


def _consumers(config: ServeConfig, clock: Clock, stop: threading.Event) -> Consumers | None:
    """Return what reads the log, or None if `stop` was set before there was one."""
    if config.kafka is not None:
        return _kafka_consumers(config.kafka, stop)
    root = config.data / "log"

    def open_definitions() -> LogConsumer:
        return EmbeddedConsumer(root, DEFINITIONS_TOPIC, DEFINITIONS_GROUP, clock)

    return EmbeddedConsumer(root, INGEST_TOPIC, PROCESSOR_GROUP, clock), open_definitions


def _kafka_consumers(kafka: KafkaConfig, stop: threading.Event) -> Consumers | None:
    from secondsight.log.kafka.admin import missing_topics  # only where the extra is installed
    from secondsight.log.kafka.consumer import KafkaConsumer
    from secondsight.log.kafka.reader import KafkaReader

    ingest, definitions = ingest_topic(), definitions_topic()
    while missing := missing_topics(kafka, (ingest, definitions)):
        logger.info("waiting for a gateway to make the topics %s", ", ".join(missing))
        if stop.wait(TOPICS_SECONDS):
            return None
    return KafkaConsumer(kafka, ingest, PROCESSOR_GROUP), lambda: KafkaReader(kafka, definitions)


def _process(
    config: ServeConfig,
    consumers: Consumers,
    store: ChdbStore,
    clock: Clock,
    stop: threading.Event,
) -> None:
    settings = ProcessorConfig(
        raw_rows=config.raw_rows,
        raw_seconds=config.raw_seconds,
        rollup_rows=config.rollup_rows,
        rollup_seconds=config.rollup_seconds,
        window_bytes=config.window_mib * MIB,
    )
    processor = Processor(*consumers, store, load_catalog(config.catalogue), clock, settings)
    checker = Checker(store, _specs(config), clock, processor.metrics, processor.watched)
    checking = threading.Thread(target=checker.run, args=(stop,), name="ledger", daemon=True)
    checking.start()
    keeping = threading.Thread(target=_keep_log, args=(config, clock, stop), name="retention", daemon=True)
    if config.kafka is None:
        keeping.start()
    try:
        processor.run(stop)
        try:
            processor.finish()
        except Retryable as error:
            logger.warning("stopped before everything was written; it is read from the log again: %s", error)
    finally:
        processor.close()
        stop.set()
        checking.join()
        if config.kafka is None:
            keeping.join()


def _specs(config: ServeConfig) -> dict[str, TableSpec]:
    return {spec.name: spec for spec in tables(load_catalog(config.catalogue))}


def _keep_log(config: ServeConfig, clock: Clock, stop: threading.Event) -> None:
    """Delete old segments of the log once a minute; definitions are kept for ever."""
    while not stop.wait(RETENTION_SECONDS):
        try:
            report = enforce_retention(
                config.data / "log", INGEST_TOPIC, clock.now_ms(), config.log_hours * 3600, config.log_mib * MIB
            )
        except OSError as error:
            logger.warning("log retention failed and is tried again: %s", error)
            continue
        if any(report.unread_records.values()):
            logger.error("log retention deleted records that were not processed: %s", report)
