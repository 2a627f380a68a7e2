"""Open what a processor reads and writes: the log and the store, embedded or on servers."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import LogConsumer, Store
from secondsight.errors import Retryable
from secondsight.log.embedded import EmbeddedConsumer
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.retention import backlog
from secondsight.log.topics import DEFINITIONS_TOPIC, INGEST_TOPIC, PROCESSOR_GROUP, definitions_topic, ingest_topic
from secondsight.process.config import ServeConfig
from secondsight.process.lag import Waiting
from secondsight.process.run import Processor
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clusters import others_tables
from secondsight.store.migrate import migrate
from secondsight.store.retention import RETIRABLE

logger = logging.getLogger(__name__)

DEFINITIONS_GROUP = "processor-definitions"
AGAIN_SECONDS = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Log:
    """What a processor reads.

    Attributes:
        consumer: Of the topic `ingest`.
        open_definitions: Opens the topic `definitions` at its beginning.
        attach: Has a processor work off what it read before partitions go to another one.
    """

    consumer: LogConsumer
    open_definitions: Callable[[], LogConsumer]
    attach: Callable[[Processor], None]


@contextmanager
def open_store(config: ServeConfig, clock: Clock, stop: threading.Event) -> Iterator[Store | None]:
    """Give the store with its tables for a block, or None if `stop` was set before it was reached.

    Raises:
        Retryable: Another process owns the folder of an embedded store.
        Permanent: A server refuses.
    """
    if config.clickhouse is not None:
        with _server(config.clickhouse, config, clock, stop) as store:
            yield store
        return
    with _embedded(config, clock) as store:
        yield store


def open_log(config: ServeConfig, clock: Clock, stop: threading.Event) -> Log | None:
    """Return what reads the log, or None if `stop` was set before there was one.

    Raises:
        Permanent: Brokers refuse.
    """
    if config.kafka is not None:
        return _kafka_log(config.kafka, clock, stop)
    root = config.data / "log"

    def open_definitions() -> LogConsumer:
        return EmbeddedConsumer(root, DEFINITIONS_TOPIC, DEFINITIONS_GROUP, clock)

    return Log(EmbeddedConsumer(root, INGEST_TOPIC, PROCESSOR_GROUP, clock), open_definitions, lambda _: None)


def measure_of(config: ServeConfig, clock: Clock) -> Callable[[], Mapping[int, Waiting]]:
    """Return what tells how much of each partition is not finished; it may block, and raises Retryable or OSError."""
    if config.kafka is None:
        root = config.data / "log"
        return lambda: {
            number: Waiting(*behind) for number, behind in backlog(root, INGEST_TOPIC, PROCESSOR_GROUP).items()
        }
    from secondsight.log.kafka.admin import Backlog  # only where the extra is installed

    kafka = Backlog(config.kafka, ingest_topic(), PROCESSOR_GROUP, clock)
    return lambda: {number: Waiting(records) for number, records in kafka.by_partition().items()}


def until_there(what: Callable[[], T], stop: threading.Event) -> T | None:
    """Return what a call gives once it is not `Retryable` any more, or None if `stop` was set before."""
    while not stop.is_set():
        try:
            return what()
        except Retryable as error:
            logger.warning("not started yet, it is tried again: %s", error)
            stop.wait(AGAIN_SECONDS)
    return None


@contextmanager
def _embedded(config: ServeConfig, clock: Clock) -> Iterator[Store]:
    """Own the folder of an embedded store, and answer what others read of it."""
    from secondsight.store.chdb import ChdbStore  # the engine, which only its owner needs
    from secondsight.store.serve import start_store_server

    store = ChdbStore(config.data / "hot", config.readers, clock=clock, questions=config.questions)
    try:
        migrate(store, load_catalog(config.catalogue))
        server = start_store_server(store, config.data / "run", others_tables() | RETIRABLE.keys())
        try:
            yield store
        finally:
            server.close()
    finally:
        store.close()


@contextmanager
def _server(
    clickhouse: ClickHouseConfig, config: ServeConfig, clock: Clock, stop: threading.Event
) -> Iterator[Store | None]:
    from secondsight.store.clickhouse.store import ClickHouseStore  # only where the extra is installed

    store = ClickHouseStore(clickhouse, config.readers, clock=clock)
    catalog = load_catalog(config.catalogue)
    try:
        made = until_there(lambda: migrate(store, catalog, clickhouse.database, store.deployment), stop)
        yield None if made is None else store
    finally:
        store.close()


def _kafka_log(kafka: KafkaConfig, clock: Clock, stop: threading.Event) -> Log | None:
    from secondsight.log.kafka.admin import missing_topics  # only where the extra is installed
    from secondsight.log.kafka.consumer import KafkaConsumer
    from secondsight.log.kafka.reader import KafkaReader

    ingest, definitions = ingest_topic(), definitions_topic()
    said: list[str] = []
    while missing := until_there(lambda: missing_topics(kafka, (ingest, definitions)), stop):
        if missing != said:
            logger.info("waiting for a gateway to make the topics %s", ", ".join(missing))
            said = missing
        stop.wait(AGAIN_SECONDS)
    if stop.is_set():
        return None
    consumer = KafkaConsumer(kafka, ingest, PROCESSOR_GROUP, clock)

    def attach(processor: Processor) -> None:
        consumer.before_revoke = processor.give_up

    return Log(consumer, lambda: KafkaReader(kafka, definitions), attach)
