"""Say what the canary can be told."""

from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.lake.config import CatalogConfig
from secondsight.store.clickhouse.config import ClickHouseConfig


@dataclass(frozen=True, slots=True)
class CanaryConfig:
    """Settings of what sends series that are known in advance, and reads them back from every tier.

    Attributes:
        data: Folder of the platform: what was sent and checked is kept there, as is the address of the store.
        gateway: Address that takes frames and events.
        token_file: Token of the role collector for the tenant and cluster `canary`.
        events_token_file: Token under which what is wrong is told, of the tenant that is to see it; "" tells nobody but
            the log and `/metrics`.
        ca_file: Certificates to trust instead of the system's.
        store: Address of the store, or a file that holds it; "" stands for `run/store.address` in `data`.
        clickhouse: Server that keeps the tables, instead of `store`.
        metadata: SQLAlchemy address or path; "" stands for `metadata.sqlite` in `data`.
        catalogue: Further catalogue files of the operator; the same as the processor has.
        lake: Read the lake as well.
        catalog: Where the lake is; the same as the stage that fills it has.
        send_seconds: Samples of that time go in one request.
        check_seconds: How often the hot store is read back.
        lake_seconds: How often the lake is.
        metrics_listen: Where `/metrics` and `/healthz` are answered, HOST:PORT; port 0 is any free one, noted in
            `run/canary.metrics` of the data folder. Empty for none.
    """

    data: Path
    gateway: str
    token_file: Path
    events_token_file: Path | None = None
    ca_file: Path | None = None
    store: str = ""
    clickhouse: ClickHouseConfig | None = None
    metadata: str = ""
    catalogue: tuple[Path, ...] = ()
    lake: bool = True
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    send_seconds: int = 10
    check_seconds: float = 60.0
    lake_seconds: float = 900.0
    metrics_listen: str = "127.0.0.1:0"

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.send_seconds < 1 or self.check_seconds <= 0 or self.lake_seconds <= 0:
            raise Rejected("bad_config", "canary: send_seconds, check_seconds and lake_seconds must be positive")

    @property
    def store_address(self) -> str | Path:
        """Return the store's address, or the file that holds it."""
        return self.store if "://" in self.store else Path(self.store or self.data / "run" / "store.address")

    @property
    def metadata_address(self) -> str:
        """Return where the metadata store is."""
        return self.metadata or str(self.data / "metadata.sqlite")
