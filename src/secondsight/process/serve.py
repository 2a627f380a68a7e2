"""Run a processor as a process: open the store, answer reads of it, process the log until told to stop."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from secondsight.catalog.index import Catalog
from secondsight.catalog.living import CatalogFiles, following
from secondsight.clock import Clock
from secondsight.contracts import Store
from secondsight.errors import Retryable
from secondsight.exposition import SUFFIX, MetricsServer
from secondsight.log.retention import enforce_retention
from secondsight.log.topics import INGEST_TOPIC
from secondsight.process.balance import Checker
from secondsight.process.config import ServeConfig
from secondsight.process.extend import extend
from secondsight.process.holes import Ask, HoleWatch
from secondsight.process.lag import shown
from secondsight.process.memory import memory_bytes
from secondsight.process.opening import Log, measure_of, open_log, open_store, until_there
from secondsight.process.run import Processor, ProcessorConfig
from secondsight.store.schema import tables

logger = logging.getLogger(__name__)

RETENTION_SECONDS = 60.0
MIB = 1 << 20
AskerOf = Callable[[Store, Clock], Ask]


def serve_processor(config: ServeConfig, clock: Clock, stop: threading.Event, asker: AskerOf) -> None:
    """Process until `stop` is set, then write and commit what was taken in.

    Servers that are away are waited for. Catalogue files are followed: what is open is written and committed, columns
    are added, and the log is read on with the later catalogue; the store stays open, and answers.

    Args:
        config: Settings.
        clock: Clock of the machine.
        stop: Ends it.
        asker: Returns what says, from a store, of which minutes agents sent more than came.

    Raises:
        Retryable: Another process owns the folder of an embedded store.
        Permanent: A server refuses; the message names the setting.
        Rejected: A catalogue file is wrong, or gives a metric another meaning.
    """
    files = CatalogFiles(config.catalogue, config.data)
    with open_store(config, clock, stop) as store:
        if store is not None:
            means = _Means(config, store, clock, asker(store, clock))
            following(files, clock, stop, partial(_process_with, means))


@dataclass(frozen=True, slots=True)
class _Means:
    """What outlives a catalogue."""

    config: ServeConfig
    store: Store
    clock: Clock
    ask: Ask


def _process_with(means: _Means, catalog: Catalog, stop: threading.Event) -> None:
    """Process with one catalogue until `stop` is set."""
    if until_there(lambda: extend(means.config, means.store, catalog), stop) is None:
        return
    log = open_log(means.config, means.clock, stop)
    if log is not None:
        _process(means, log, catalog, stop)


def _process(means: _Means, log: Log, catalog: Catalog, stop: threading.Event) -> None:
    config, store, clock = means.config, means.store, means.clock
    settings = ProcessorConfig(
        raw_rows=config.raw_rows,
        raw_seconds=config.raw_seconds,
        rollup_rows=config.rollup_rows,
        rollup_seconds=config.rollup_seconds,
        window_bytes=config.window_mib * MIB or memory_bytes() // 3,
    )
    processor = until_there(
        lambda: Processor(log.consumer, log.open_definitions, store, catalog, clock, settings), stop
    )
    if processor is None:
        log.consumer.close()
        return
    log.attach(processor)
    specs = {spec.name: spec for spec in tables(catalog)}
    checker = Checker(store, specs, clock, processor.metrics, processor.watched, config.letter_days)
    holes = HoleWatch(store, specs["events"], clock, processor.metrics, means.ask)
    beside = {"ledger": partial(checker.run, stop), "custody": partial(holes.run, stop)}
    if config.kafka is None:
        beside["retention"] = partial(_keep_log, config, clock, stop)
    threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in beside.items()]
    for thread in threads:
        thread.start()
    metrics = _metrics_server(config, processor, clock)
    try:
        processor.run(stop)
        try:
            processor.finish()
        except Retryable as error:
            logger.warning("stopped before everything was written; it is read from the log again: %s", error)
    finally:
        processor.close()
        stop.set()
        if metrics is not None:
            metrics.close()
        for thread in threads:
            thread.join()


def _metrics_server(config: ServeConfig, processor: Processor, clock: Clock) -> MetricsServer | None:
    """Return what answers `/metrics`, None where nobody is to be answered."""
    if not config.metrics_listen:
        return None
    waiting = measure_of(config, clock)

    def render() -> str:
        found = shown(processor.world, waiting(), clock.now_ms())
        found.gauge("processor_findings_open", processor.findings)
        return processor.metrics.render() + found.render()

    name = config.kafka.instance if config.kafka is not None and config.kafka.instance else "processor"
    return MetricsServer(config.metrics_listen, config.data / "run" / (name + SUFFIX), render)


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
