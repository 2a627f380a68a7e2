"""Say what the stage that makes rollups can be told."""

from dataclasses import dataclass
from pathlib import Path

from secondsight.store.clickhouse.config import ClickHouseConfig


@dataclass(frozen=True, slots=True)
class RollupConfig:
    """Settings of the stage that makes rollups of 5 min, 1 h and 1 d; one runs beside each store.

    Attributes:
        data: Folder of the platform: it holds the address of the store.
        store: Address of the store, or a file that holds it; "" stands for `run/store.address` in `data`.
        clickhouse: Server that keeps the tables, instead of `store`: one, not a cluster of several.
        catalogue: Further catalogue files of the operator; the same as the processor has.
        metrics_listen: Address of `/metrics`; "" for none. Port 0 takes a free one, which `run/rollup.metrics` in
            `data` names.
    """

    data: Path
    store: str = ""
    clickhouse: ClickHouseConfig | None = None
    catalogue: tuple[Path, ...] = ()
    metrics_listen: str = "127.0.0.1:0"

    @property
    def store_address(self) -> str | Path:
        """Return the store's address, or the file that holds it."""
        return self.store if "://" in self.store else Path(self.store or self.data / "run" / "store.address")
