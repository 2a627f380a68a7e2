"""Say what the stage that lets go of old rows can be told."""

from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.lake.config import CatalogConfig
from secondsight.store.clickhouse.config import ClickHouseConfig


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Settings of the stage that drops old partitions of the hot store; `secondsight retention set` says how old.

    Attributes:
        data: Folder of the platform: metadata, the address of the store, and the lake unless `catalog` says otherwise.
        store: Address of the store, or a file that holds it; "" stands for `run/store.address` in `data`.
        clickhouse: Server that keeps the tables, instead of `store`.
        metadata: SQLAlchemy address or path; "" stands for `metadata.sqlite` in `data`.
        catalogue: Further catalogue files of the operator; the same as the processor has.
        catalog: Where the lake is; the same as the stage that fills it has.
        without_lake: Drop rows that no lake has: they are gone for ever. Off, nothing is dropped that the lake does not
            confirm, so where no lake is filled nothing is dropped at all.
        every_seconds: How often it looks.
        wait_seconds: Between the moment from which the lake answers for rows and their deletion.
        niceness: How much the stage steps back behind other processes.
    """

    data: Path
    store: str = ""
    clickhouse: ClickHouseConfig | None = None
    metadata: str = ""
    catalogue: tuple[Path, ...] = ()
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    without_lake: bool = False
    every_seconds: float = 300.0
    wait_seconds: float = 90.0
    niceness: int = 10

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.every_seconds <= 0 or self.wait_seconds < 0:
            raise Rejected("bad_config", "retention.every_seconds and wait_seconds must be positive")

    @property
    def store_address(self) -> str | Path:
        """Return the store's address, or the file that holds it."""
        return self.store if "://" in self.store else Path(self.store or self.data / "run" / "store.address")

    @property
    def metadata_address(self) -> str:
        """Return where the metadata store is."""
        return self.metadata or str(self.data / "metadata.sqlite")
