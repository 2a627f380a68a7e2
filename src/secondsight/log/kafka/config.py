"""Say how Kafka brokers are reached, and what topics are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight.errors import Rejected

SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RECORD_OVERHEAD_BYTES = 1024
"""What a record's key and framing may take beyond its value."""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """How brokers are reached and what topics are made of.

    Attributes:
        brokers: `HOST:PORT`, several divided by commas.
        prefix: Put before the names of topics and groups.
        replication: Copies of each partition; with 3 or more, two must be in sync for an append to succeed.
        instance: Name that this process keeps over restarts, so that a short one moves no partitions; "" for none.
        security: plaintext, ssl, sasl_plaintext or sasl_ssl.
        ca_file: PEM file of who signed the brokers' certificates; what the system trusts if absent.
        certificate_file, key_file: PEM files that show who asks, for brokers that want it; none if absent.
        sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        sasl_username: Who asks.
        sasl_password_file: File that holds the password.
        open_seconds: How long a question to the brokers may take.
        delivery_seconds: How long an append may try before it fails.
        session_seconds: How long a member may be silent before its partitions go to others.
    """

    brokers: str
    prefix: str = ""
    replication: int = 3
    instance: str = ""
    security: str = "plaintext"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password_file: Path | None = None
    open_seconds: float = 30.0
    delivery_seconds: float = 20.0
    session_seconds: float = 45.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.security not in SECURITY:
            raise Rejected("bad_config", f"kafka: no security {self.security!r}", f"one of: {', '.join(SECURITY)}")
        if not self.brokers or self.replication < 1 or self.delivery_seconds <= 0:
            raise Rejected("bad_config", "kafka: brokers must be named, replication and delivery_seconds positive")
        if self.sasl_mechanism not in ("", *MECHANISMS):
            allowed = f"one of: {', '.join(MECHANISMS)}"
            raise Rejected("bad_config", f"kafka: no sasl_mechanism {self.sasl_mechanism!r}", allowed)
        if self.security.startswith("sasl") and not (self.sasl_mechanism and self.sasl_password_file):
            raise Rejected("bad_config", "kafka: SASL needs sasl_mechanism, sasl_username and sasl_password_file")

    def client(self, on_error: Callable[[Any], None]) -> dict[str, Any]:
        """Return what every client of librdkafka is told; `on_error` hears of its connections.

        Raises:
            Rejected: `bad_config`: the password cannot be read.
        """
        told: dict[str, Any] = {
            "bootstrap.servers": self.brokers,
            "security.protocol": self.security,
            "client.id": self.instance or "secondsight",
            "error_cb": on_error,
            "log_level": 2,  # what is not reached is told by who needed it, not twenty times a second
        }
        files = {"ssl.ca.location": self.ca_file, "ssl.certificate.location": self.certificate_file}
        files["ssl.key.location"] = self.key_file
        told |= {name: str(path) for name, path in files.items() if path is not None}
        if self.sasl_password_file is not None:
            told["sasl.mechanism"] = self.sasl_mechanism
            told["sasl.username"] = self.sasl_username
            told["sasl.password"] = _password(self.sasl_password_file)
        return told


def _password(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Rejected("bad_config", f"kafka.sasl_password_file {path} cannot be read: {error.strerror}") from error
