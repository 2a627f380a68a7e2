"""Say how a ClickHouse server is reached."""

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from secondsight.errors import Rejected
from secondsight.store.schema import DATABASE

PORTS = {"http": 8123, "https": 8443}


@dataclass(frozen=True, slots=True)
class ClickHouseConfig:
    """How a ClickHouse server is reached, by its HTTP interface.

    Attributes:
        url: `http://HOST:PORT` or `https://HOST:PORT`, without a user or a password.
        user: Who asks; whoever writes may create the database and its tables, and kill own queries.
        password_file: File that holds the password; none if absent.
        database: Database that holds the tables; made when missing.
        cluster: Name of a cluster, as the servers' settings have it, on all of whose replicas tables are made; "" for
            one server.
        ca_file: PEM file of who signed the server's certificate; what the system trusts if absent.
        certificate_file, key_file: PEM files that show who asks; none if absent.
        connect_seconds: How long a connection may take to be made.
        insert_seconds: How long an insert may take.
        question_user: Who asks what people ask in SQL: a user of its own, behind the wall that `secondsight sql --wall`
            prints; "" where nobody may.
        question_password_file: File that holds that user's password; none if absent.
        view_user: User with whose rights the curated views read their tables; "" for the rights of whoever asks.
    """

    url: str
    user: str = "default"
    password_file: Path | None = None
    database: str = DATABASE
    cluster: str = ""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    connect_seconds: float = 5.0
    insert_seconds: float = 120.0
    question_user: str = ""
    question_password_file: Path | None = None
    view_user: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        parts = self.parts()
        if parts.scheme not in PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
            raise Rejected("bad_config", "clickhouse.url is no address of a server", "write https://HOST:8443")
        if "@" in parts.netloc:
            raise Rejected(
                "bad_config", "clickhouse.url holds a user or a password", "say user and password_file instead"
            )
        if not self.user or not self.database or self.connect_seconds <= 0 or self.insert_seconds <= 0:
            raise Rejected("bad_config", "clickhouse: user and database must be named, and times be positive")
        if (self.certificate_file is None) != (self.key_file is None):
            raise Rejected("bad_config", "clickhouse: certificate_file and key_file belong together")

    def parts(self) -> SplitResult:
        """Return the parts of the address.

        Raises:
            Rejected: `bad_config`.
        """
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError as error:
            raise Rejected("bad_config", f"clickhouse.url is no address: {error}") from error
        return parts

    @property
    def port(self) -> int:
        """Return the port of the server."""
        parts = self.parts()
        return parts.port or PORTS[parts.scheme]

    def password(self) -> str:
        """Return the password, "" for none.

        Raises:
            Rejected: `bad_config`: its file cannot be read.
        """
        return _read(self.password_file, "password_file")

    def of_questions(self) -> "ClickHouseConfig":
        """Return how the server is reached by the user who asks what people ask in SQL."""
        return replace(self, user=self.question_user or self.user, password_file=self.question_password_file)


def _read(path: Path | None, name: str) -> str:
    if path is None:
        return ""
    try:
        return path.read_text().strip()
    except OSError as error:
        message = f"clickhouse.{name} {path} cannot be read: {error.strerror}"
        raise Rejected("bad_config", message) from error
