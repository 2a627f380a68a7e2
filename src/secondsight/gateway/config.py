"""Say what a gateway can be told."""

from dataclasses import dataclass
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.log.kafka.config import KafkaConfig

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of a gateway; build one with `secondsight.config.build`, which refuses unknown keys.

    Attributes:
        data: Folder of the embedded log and, by default, of the metadata.
        listen: `HOST:PORT`, or `fd:N` for a listening socket that the parent hands down.
        metadata: SQLAlchemy address or path; "" stands for `metadata.sqlite` in `data`.
        kafka: Brokers that hold the log, instead of files in `data`.
        partitions: Partitions of the topic `ingest` when the log is first made.
        connections: How many there may be; from three quarters of it on, idle ones of the tenants that have most are
            closed. The process's limit of open files counts too.
        head_timeout_seconds: How long a connection may take to say what it asks for; then it is closed.
        in_flight_bytes: Bodies in memory from which senders are told to wait that are beyond their share of it; there
            may be twice as much.
        in_flight_requests: Likewise of requests that are not answered yet.
        future_seconds: How far ahead of this gateway's clock a tick may be.
        past_days: How old a tick may be: the keep time of the lake.
        backlog_bytes: Likewise of the log that is not processed yet.
        log_floor_bytes: Free space of the log's disk, or a fiftieth of the disk if that is less, below which only
            events and states are taken.
        retry_after_seconds: When senders that were told to wait come back at the earliest.
        returns_per_second: How many of them are told to come back in the same second; few come back later than need be.
        quota_share: Part of each tenant's quota of values and bytes that this gateway gives, where there are several.
        interval_ms: Cadence that the default plan asks for, of agents that do not say what they are set to.
        agent_token_days: How long the token of an enrolled agent lives; it renews it in time.
        agent_token_grace_hours: How long a token that was renewed stays good.
        enrol_per_second, enrol_burst: Enrolments that one address may ask for, lastingly and at once.
        foreign_series: Series that one sender of remote write or OTLP may have.
        foreign_series_in_all: Series that are remembered of all such senders; each takes about 1 KiB of memory.
        foreign_host_labels: Labels of such senders that name a host, looked at before the usual ones.
        catalogue: Further catalogue files of the operator.
        tls_certificate, tls_key: PEM files; both or neither. They may be replaced while the gateway runs.
        tls_client_ca: PEM file of who signs the certificates of senders; with it they are asked for one.
        tls_client_required: Whoever has none is not served.
    """

    data: Path
    listen: str = "127.0.0.1:8471"
    metadata: str = ""
    kafka: KafkaConfig | None = None
    partitions: int = 4
    body_bytes: int = 16 * MIB
    in_flight_bytes: int = 128 * MIB
    in_flight_requests: int = 4096
    body_timeout_seconds: float = 30.0
    connections: int = 20_000
    head_timeout_seconds: float = 20.0
    future_seconds: float = 300.0
    past_days: float = 400.0
    backlog_bytes: int = 8192 * MIB
    log_floor_bytes: int = 512 * MIB
    retry_after_seconds: float = 5.0
    returns_per_second: float = 200.0
    quota_share: float = 1.0
    interval_ms: int = 1000
    agent_token_days: float = 30.0
    agent_token_grace_hours: float = 24.0
    enrol_per_second: float = 5.0
    enrol_burst: float = 200.0
    foreign_series: int = 200_000
    foreign_series_in_all: int = 1_000_000
    foreign_host_labels: tuple[str, ...] = ()
    catalogue: tuple[Path, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_client_required: bool = False
    keep_alive_seconds: int = 75
    stop_seconds: int = 20

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise Rejected("bad_config", "gateway: tls_certificate and tls_key go together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise Rejected("bad_config", "gateway: tls_client_ca needs tls_certificate and tls_key")
        if self.tls_client_required and self.tls_client_ca is None:
            raise Rejected("bad_config", "gateway: tls_client_required needs tls_client_ca")
        if min(self.agent_token_days, self.enrol_per_second, self.enrol_burst) <= 0 or self.agent_token_grace_hours < 0:
            raise Rejected("bad_config", "gateway: agent_token_days, enrol_per_second and enrol_burst are above 0")
        if min(self.retry_after_seconds, self.returns_per_second, self.quota_share) <= 0:
            raise Rejected("bad_config", "gateway: retry_after_seconds, returns_per_second, quota_share are above 0")
        if (
            min(self.partitions, self.body_bytes, self.interval_ms, self.in_flight_requests, self.connections) < 1
            or self.in_flight_bytes < self.body_bytes
        ):
            raise Rejected(
                "bad_config",
                "gateway: partitions, body_bytes, interval_ms, in_flight_requests, connections are at least 1, "
                "in_flight_bytes at least body_bytes",
            )

    @property
    def metadata_address(self) -> str:
        """Return where the metadata store is."""
        return self.metadata or str(self.data / "metadata.sqlite")
