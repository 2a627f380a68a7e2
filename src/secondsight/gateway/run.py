"""Run a gateway: open what it writes to, serve until told to stop, and leave everything durable."""

import gc
import resource
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import uvicorn

from secondsight.access.metadata import open_metadata
from secondsight.catalog.living import CatalogFiles, Follower, living
from secondsight.clock import Clock
from secondsight.contracts import LogWriter
from secondsight.errors import Rejected, Retryable
from secondsight.gateway.app import Gateway, RecordAt, Stores
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.connection import Connection, bounded, by_tenant, surplus
from secondsight.gateway.tls import Certificate
from secondsight.log.at import read_record
from secondsight.log.disk import Disk
from secondsight.log.embedded import EmbeddedLogWriter
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.retention import backlog_bytes
from secondsight.log.topics import DEFINITIONS_TOPIC, INGEST_TOPIC, PROCESSOR_GROUP, definitions_topic, ingest_topic

LISTEN_BACKLOG = 1024
COLLECT_AFTER = (100_000, 50)
COLLECT_ALL_AFTER = 1000
OWN_FILES = 256
"""Open files besides connections."""

ADOPT_SECONDS = 15.0
"""What catalogue files add is taken from senders so much later: processors have columns for it by then."""

CERTIFICATE_TICKS = 50
"""Ticks of uvicorn, ten a second, between two looks at the certificate."""

CONNECTION_TICKS = 10
"""Likewise between two looks at the connections that wait for a head."""


def serve_gateway(config: GatewayConfig, clock: Clock) -> None:
    """Serve until SIGTERM or SIGINT; blocks. What was answered with 200 is durable, whatever ends the process.

    Raises:
        Rejected(bad_config): `listen` is no address.
        Retryable, Permanent: The log or the metadata store cannot be opened.
        OSError: The address is taken.
    """
    listening = open_listening(config.listen)
    stores = open_stores(config, clock)
    files = CatalogFiles(config.catalogue, config.data)
    catalog = living(files.catalog)
    gateway = Gateway(config, stores, catalog, clock)
    calm_collector()
    server = make_server(gateway, config)
    server.follow = Follower(files, catalog, clock, gateway.renew, ADOPT_SECONDS).step
    server.run(sockets=[listening])


def open_stores(config: GatewayConfig, clock: Clock) -> Stores:
    """Open the metadata store and the log: that of a data folder, or topics of Kafka.

    Raises:
        Retryable: The file system, the database or the brokers refuse.
        Permanent: Another gateway writes to this log, or a topic is of other settings.
    """
    metadata = open_metadata(config.metadata_address)
    if config.kafka is not None:
        return Stores(metadata, *_kafka_log(config.kafka, config.partitions, clock), record_at=_of_kafka(config.kafka))
    root = config.data / "log"
    ingest = EmbeddedLogWriter(root, INGEST_TOPIC, config.partitions, clock)
    definitions = EmbeddedLogWriter(root, DEFINITIONS_TOPIC, 1, clock)
    return Stores(
        metadata,
        ingest,
        definitions,
        lambda: _measure_backlog(root),
        lambda: _measure_disk(root),
        partial(read_record, root, INGEST_TOPIC),
    )


def _kafka_log(kafka: KafkaConfig, partitions: int, clock: Clock) -> tuple[LogWriter, LogWriter, Callable[[], int]]:
    """Return the writers of both topics, and what measures the backlog in bytes."""
    from secondsight.log.kafka.admin import Backlog, open_topics  # only where the extra is installed
    from secondsight.log.kafka.writer import KafkaWriter

    topics = ingest_topic(partitions), definitions_topic()
    open_topics(kafka, topics)
    ingest, definitions = (KafkaWriter(kafka, topic) for topic in topics)
    backlog = Backlog(kafka, topics[0], PROCESSOR_GROUP, clock)
    return ingest, definitions, lambda: round(backlog.records() * ingest.mean_bytes)


def _of_kafka(kafka: KafkaConfig) -> RecordAt:
    from secondsight.log.kafka.at import KafkaRecords  # only where the extra is installed

    return KafkaRecords(kafka, ingest_topic()).read


def make_server(gateway: Gateway, config: GatewayConfig) -> "Server":
    """Return the server of a gateway, not yet running."""
    certificate = server_certificate(config)
    served = server_config(gateway, config, certificate)
    return Server(served, certificate, config.head_timeout_seconds, gateway.note_connections)


def server_config(gateway: Gateway, config: GatewayConfig, certificate: Certificate | None) -> uvicorn.Config:
    """Return how uvicorn serves a gateway; it never logs requests, whose headers hold secrets."""
    return uvicorn.Config(
        gateway,
        loop="uvloop",
        http=bounded(connections_maximum(config.connections)),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=config.keep_alive_seconds,
        timeout_graceful_shutdown=config.stop_seconds,
        ssl_context_factory=None if certificate is None else lambda _config, _default: certificate.context(),
    )


def open_listening(listen: str) -> socket.socket:
    """Return a listening socket for `HOST:PORT`, or the one that `fd:N` names.

    Raises:
        Rejected(bad_config): The text is neither.
        OSError: The address is taken or not of this machine.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise Rejected("bad_config", f"gateway.listen: {listen!r} is no HOST:PORT", "write 127.0.0.1:8471, or fd:N")
    if host == "fd":
        return socket.socket(fileno=int(port))
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=LISTEN_BACKLOG)


def server_certificate(config: GatewayConfig) -> Certificate | None:
    """Return the watched files of a gateway that serves TLS, else None."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    required = config.tls_client_required
    return Certificate(config.tls_certificate, config.tls_key, config.tls_client_ca, is_client_required=required)


def connections_maximum(wanted: int) -> int:
    """Return how many connections there may be, at most as wanted, and have the process allowed to open them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + OWN_FILES if most == resource.RLIM_INFINITY else min(wanted + OWN_FILES, most)
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now != resource.RLIM_INFINITY and now < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return max(min(wanted, files - OWN_FILES), 1)


def calm_collector(all_after: int = COLLECT_ALL_AFTER) -> None:
    """Let the garbage collector leave what is there alone and look less often: requests leave few cycles behind.

    Of ten thousand connections a look at everything takes a tenth of a second.

    Args:
        all_after: After how many looks at what is young it looks at everything.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER, all_after)


def _measure_backlog(root: Path) -> int:
    try:
        return backlog_bytes(root, INGEST_TOPIC, PROCESSOR_GROUP)
    except OSError as error:
        raise Retryable(f"the backlog of {root} cannot be measured: {error}") from error


def _measure_disk(root: Path) -> tuple[int, int]:
    try:
        return Disk().space(root)
    except OSError as error:
        raise Retryable(f"the disk of {root} cannot be measured: {error}") from error


def _nothing() -> None:
    """Follow no catalogue."""


class Server(uvicorn.Server):
    """A server that ends by itself after SIGTERM, instead of sending the signal on.

    `follow` is called every second.

    It renews its certificate, closes connections that are slow to say what they want, and those that are too many.

    Args:
        observe: Told every second how many connections each tenant has.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        certificate: Certificate | None = None,
        head_timeout_seconds: float = 20.0,
        observe: Callable[[Counter[str]], None] = lambda _counts: None,
    ) -> None:
        super().__init__(config)
        self._observe = observe
        self.follow: Callable[[], object] = _nothing
        self._head_timeout_seconds = head_timeout_seconds
        self._certificate = certificate

    async def on_tick(self, counter: int) -> bool:
        """Look at connections and at the certificate's files every few seconds; return whether to stop."""
        if counter % CONNECTION_TICKS == 0:
            self._look_at_connections()
            self.follow()
        if self._certificate is not None and self.config.ssl is not None and counter % CERTIFICATE_TICKS == 0:
            self._certificate.refresh(self.config.ssl)
        return await super().on_tick(counter)

    def _look_at_connections(self) -> None:
        connections = [one for one in self.server_state.connections if isinstance(one, Connection)]
        counts = by_tenant(connections)
        self._observe(counts)
        now = connections[0].loop.time() if connections else 0.0
        for connection in connections:
            connection.close_if_slow(now, self._head_timeout_seconds)
        maximum = connections[0].maximum if connections else 0
        for connection in surplus(connections, counts, maximum):
            connection.transport.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the server while the block runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
