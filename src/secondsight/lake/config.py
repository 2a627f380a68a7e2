"""Say where the lake is, and what the stage that fills it can be told."""

from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.store.clickhouse.config import ClickHouseConfig

CATALOG_KINDS = ("sql", "rest")


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """Where the Iceberg catalogue and the files of the lake are.

    Attributes:
        kind: `sql`: a catalogue in a database that SQLAlchemy reaches; `rest`: an Iceberg REST catalogue.
        uri: Address of the catalogue; "" for a SQLite file in the data folder.
        warehouse: Where files go: a folder, `file://...` or `s3://BUCKET/...`; "" for a folder in the data folder.
        name: Under which name the catalogue keeps its tables, where it holds several.
        namespace: Namespace of the tables.
        credential_file: File with `ID:SECRET` of a REST catalogue; none if absent.
        token_file: File with a bearer token of a REST catalogue; none if absent.
        token_uri: Where a token is had for the credential; "" for the REST catalogue itself.
        s3_endpoint: Address of an object store that is not Amazon's.
        s3_region: Its region.
        s3_access_key_file, s3_secret_key_file: Files with its keys; if absent the usual `AWS_*` variables and roles of
            the machine count.
        connect_seconds, request_seconds: How long a connection and a request may take, to an object store and to a
            REST catalogue.
    """

    kind: str = "sql"
    uri: str = ""
    warehouse: str = ""
    name: str = "lake"
    namespace: str = "secondsight"
    credential_file: Path | None = None
    token_file: Path | None = None
    token_uri: str = ""
    s3_endpoint: str = ""
    s3_region: str = ""
    s3_access_key_file: Path | None = None
    s3_secret_key_file: Path | None = None
    connect_seconds: float = 5.0
    request_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.kind not in CATALOG_KINDS:
            raise Rejected("bad_config", f"lake.catalog.kind is {self.kind!r}", f"one of {', '.join(CATALOG_KINDS)}")
        if self.kind == "rest" and not self.uri:
            raise Rejected("bad_config", "lake.catalog.uri is not set", "write the address of the REST catalogue")
        if (self.s3_access_key_file is None) != (self.s3_secret_key_file is None):
            raise Rejected("bad_config", "lake.catalog: s3_access_key_file and s3_secret_key_file belong together")
        if self.connect_seconds <= 0 or self.request_seconds <= 0:
            raise Rejected("bad_config", "lake.catalog: times must be positive")


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """Settings of the stage that copies the hot store's tables into the lake; one runs beside each store.

    Attributes:
        data: Folder of the platform: it holds the address of the store, and the lake unless `catalog` says otherwise.
        store: Address of the store, or a file that holds it; "" stands for `run/store.address` in `data`.
        clickhouse: Server that keeps the tables, instead of `store`: one, not a cluster of several.
        catalogue: Further catalogue files of the operator; the same as the processor has.
        catalog: Where the lake is.
        tables: Tables that are copied; empty for all that a lake can hold.
        settle_seconds: After its end a slice waits that long for its last rows.
        patience_hours: A collector that is behind holds its cluster's slices back for no longer.
        recheck_seconds: A slice that changed again waits that long for more, before it is copied again.
        commit_seconds: Files that are written are committed after that time at the latest.
        commit_mib: Files that are written are committed at that size at the latest.
        file_mib: Size that files are made to have.
        portion_values: Values that are in memory at once.
        compact: Join small files of days that are over.
        compact_hours: After its end a partition waits that long for being compacted.
        snapshot_hours: Age beyond which snapshots are forgotten.
        orphan_hours: Age beyond which files that no snapshot names are deleted; more than any commit takes.
        niceness: How much the stage steps back behind other processes.
        metrics_listen: Where `/metrics` and `/healthz` are answered, HOST:PORT; port 0 is any free one, noted in
            `run/lake.metrics` of the data folder. Empty for none.
    """

    data: Path
    store: str = ""
    clickhouse: ClickHouseConfig | None = None
    catalogue: tuple[Path, ...] = ()
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    tables: tuple[str, ...] = ()
    settle_seconds: float = 120.0
    patience_hours: float = 6.0
    recheck_seconds: float = 300.0
    commit_seconds: float = 300.0
    commit_mib: int = 256
    file_mib: int = 256
    portion_values: int = 12_000_000
    compact: bool = True
    compact_hours: float = 2.0
    snapshot_hours: float = 6.0
    orphan_hours: float = 24.0
    niceness: int = 10
    metrics_listen: str = "127.0.0.1:0"

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        positive = ("commit_seconds", "commit_mib", "file_mib", "portion_values", "recheck_seconds", "patience_hours")
        for name in positive:
            if getattr(self, name) <= 0:
                raise Rejected("bad_config", f"lake.{name} must be more than 0")
        if self.orphan_hours < 1:
            message = f"lake.orphan_hours is {self.orphan_hours:g}, files of a running commit would be in danger"
            raise Rejected("bad_config", message, "say 1 or more")

    @property
    def store_address(self) -> str | Path:
        """Return the store's address, or the file that holds it."""
        return self.store if "://" in self.store else Path(self.store or self.data / "run" / "store.address")
