"""Say what an api can be told."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.access.oidc import OidcConfig
from secondsight.ask.models import ModelConfig
from secondsight.errors import Rejected
from secondsight.guard.budget import Budget
from secondsight.lake.cold_config import ColdConfig
from secondsight.live.config import LiveConfig
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.schema import DATABASE


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Settings of an api; build one with `secondsight.config.build`, which refuses unknown keys.

    Attributes:
        data: Folder of the platform: metadata, and the address of the store.
        listen: `HOST:PORT`, or `fd:N` for a listening socket that the parent hands down.
        gateway: Address that ingest requests are passed on to, `http://HOST:PORT`; "" refuses them.
        store: Address of the store, or a file that holds it; "" stands for `run/store.address` in `data`.
        clickhouse: Server that keeps the tables, instead of `store`.
        readers: Questions that are put to it at once; further ones wait.
        metadata: SQLAlchemy address or path; "" stands for `metadata.sqlite` in `data`.
        catalogue: Further catalogue files of the operator.
        static: Folder of the built pages, or None for those of this package.
        forward_bytes: Largest body that is passed on.
        oidc: Sign-in of people by an issuer; tokens work besides.
        tls_certificate, tls_key: PEM files; both or neither. They may be replaced while the api runs.
        session_seconds: How long a sign-in lasts.
        sign_in_address_failures, sign_in_account_failures: Sign-ins, and tokens that are not known, that may fail in a
            minute from one address, and for one account or secret.
        proxies: Addresses of reverse proxies whose `X-Forwarded-For` is believed.
        requests_per_second, requests_burst: Requests that one token or person may send, lastingly and at once.
        queries: Questions that may run at once; 0 stands for one more than the machine has cores, where the store is on
            the same machine, and else for `readers`.
        tenant_queries: Questions of one tenant that may run at once.
        tenant_queries_waiting: Further ones that wait for their turn.
        tenant_query_seconds: Time that the questions of one tenant may take together in a minute.
        query_wait_seconds: How long a question waits for its turn.
        live: The newest minutes that are kept in memory; only beside an embedded store.
        live_streams, tenant_live_streams: Live streams that may be open, in all and of one tenant.
        cache_bytes: About what kept answers may take; 0 keeps none.
        sql: What questions in SQL may cost.
        model: A language model for questions in words; without one the built-in planner answers.
        cold: Reads from the lake, of what the hot store no longer has.
        debug_values_per_second: What debug sessions of a tenant may add together, where it has no budget of its own.
    """

    data: Path
    listen: str = "127.0.0.1:8470"
    gateway: str = ""
    store: str = ""
    clickhouse: ClickHouseConfig | None = None
    readers: int = 8
    metadata: str = ""
    catalogue: tuple[Path, ...] = ()
    static: Path | None = None
    forward_bytes: int = 32 << 20
    forward_seconds: float = 60.0
    oidc: OidcConfig | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    session_seconds: int = 12 * 3600
    sign_in_address_failures: int = 60
    sign_in_account_failures: int = 10
    proxies: tuple[str, ...] = ()
    debug_values_per_second: int = 20_000
    requests_per_second: float = 100.0
    requests_burst: float = 500.0
    queries: int = 0
    tenant_queries: int = 6
    tenant_queries_waiting: int = 100
    tenant_query_seconds: float = 360.0
    query_wait_seconds: float = 15.0
    cache_bytes: int = 64 << 20
    live: LiveConfig = field(default_factory=LiveConfig)
    live_streams: int = 2_000
    tenant_live_streams: int = 1_000
    sql: Budget = field(default_factory=Budget)
    model: ModelConfig = field(default_factory=ModelConfig)
    cold: ColdConfig = field(default_factory=ColdConfig)
    keep_alive_seconds: int = 75
    stop_seconds: int = 10

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise Rejected("bad_config", "api: tls_certificate and tls_key go together")

    @property
    def database(self) -> str:
        """Return the database of the store's tables."""
        return self.clickhouse.database if self.clickhouse is not None else DATABASE

    @property
    def queries_at_once(self) -> int:
        """Return how many questions may run at once: more than there are cores only make each other slower."""
        beside = self.readers if self.clickhouse is not None else (os.cpu_count() or 1) + 1
        return self.queries or beside

    @property
    def metadata_address(self) -> str:
        """Return where the metadata store is."""
        return self.metadata or str(self.data / "metadata.sqlite")

    @property
    def store_address(self) -> str | Path:
        """Return the store's address, or the file that holds it."""
        return self.store if "://" in self.store else Path(self.store or self.data / "run" / "store.address")
