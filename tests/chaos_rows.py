"""The words of the oracles of a chaos run: keys of rows and windows, and one raw row with its cells."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from secondsight.model import Quality

WINDOW_MS = 30_000
RANKS = {
    quality: rank
    for rank, quality in enumerate(
        (
            Quality.NONE,
            Quality.ABSENT_NOT_SUPPORTED,
            Quality.ABSENT_NO_PERMISSION,
            Quality.ABSENT_SOURCE_BLANK,
            Quality.BAD_PARSE,
            Quality.BAD_RANGE,
            Quality.STALE,
            Quality.SATURATED,
            Quality.ESTIMATE,
            Quality.OK,
        )
    )
}
"""Of two claims of one cell that of the greater rank counts."""
SOURCE_RANKS = {"simulate": 0, "training": 0, "slurm": 1, "scrape": 2}
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id")

Owner = tuple[str, str, str, str]
NOBODY: Owner = ("", "", "", "")


class RowKey(NamedTuple):
    host_id: str
    entity: str
    part: str
    event_time: int
    collector_id: str


class WindowKey(NamedTuple):
    host_id: str
    entity: str
    part: str
    collector_id: str
    window_start: int
    owner: Owner


class LedgerKey(NamedTuple):
    collector_id: str
    kind: str
    window_ms: int


Origin = tuple[int, int, int, int, str, str, bool]


@dataclass(slots=True)
class Row:
    """One raw row; cells as (rank, bits of the value, value, quality)."""

    origin: Origin
    delta_ms: int
    interval_ms: int
    cells: dict[str, tuple[int, int, Any, Quality]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        cell = self.cells.get(name)
        return None if cell is None else cell[2]

    @property
    def blemishes(self) -> dict[str, int]:
        return {name: cell[3].value for name, cell in self.cells.items() if cell[3] not in (Quality.OK, Quality.NONE)}
