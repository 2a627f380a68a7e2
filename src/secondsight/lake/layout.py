"""Say how each table of the hot store lies in the lake: its time, its slices, its partitions, the order of its rows.

A slice is what is copied at once: the rows of one tenant and cluster in an hour of seconds and windows of 30 s, in a
day of everything else. A partition is a cluster's day, month or year, as the hot store divides the table, so that what
the hot store drops as one piece is one piece here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from secondsight.model import EntityKind
from secondsight.store.coarse import FINEST
from secondsight.store.schema import raw_table
from secondsight.store.spec import TableSpec

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TIMES = ("event_time", "window_start", "start_time", "ingest_time")
"""Columns that a row is placed in time by, the first that a table has."""
PERIODS = {"toDate": "day", "toYYYYMM": "month", "toYear": "year"}
"""Function of the hot store's partition -> period of the lake's."""
UNTIMED = "month"
"""Period of tables that the hot store does not divide."""
ROW_ORDER = ("host_id", "entity", "part")
HOT_ONLY = frozenset(
    {"progress", "rewrites", "schema_version", "rollups_made", "rollups_seen", "rollups_through", "entities", "plans"}
)
"""Tables about the hot store itself, and small ones that it keeps whole."""
_VERSION = re.compile(r"ReplacingMergeTree\((\w+)\)")


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """The rows of one tenant and cluster in [start_ms, end_ms) of one table."""

    start_ms: int
    end_ms: int
    tenant: str
    cluster: str


@dataclass(frozen=True, slots=True)
class LakeTable:
    """One table of the lake.

    Attributes:
        spec: The hot store's table.
        time_column: What places a row in time.
        slice_ms: Width of a slice.
        period: `day`, `month` or `year`: width of a partition.
        version_column: The greater value of it wins among rows of one key; "" where rows of one key are the same.
        is_raw: Rows are cells, of which those of one key are united.
    """

    spec: TableSpec
    time_column: str
    slice_ms: int
    period: str
    version_column: str
    is_raw: bool

    @property
    def name(self) -> str:
        """Return the name, here and there."""
        return self.spec.name

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns that tell rows apart."""
        return tuple(name for name in self.spec.order if "(" not in name)

    @property
    def row_order(self) -> tuple[str, ...]:
        """Return the columns that rows of a file are sorted by: whom they are about, then time, then the rest."""
        placed = [name for name in ROW_ORDER if name in self.key]
        others = [name for name in self.key if name not in (*placed, "tenant_id", "cluster_id", self.time_column)]
        return (*placed, self.time_column, *others) if self.time_column in self.key else (*placed, *others)

    def slice_of(self, time_ms: int, tenant: str, cluster: str) -> Slice:
        """Return the slice that a row lies in."""
        start_ms = time_ms // self.slice_ms * self.slice_ms
        return Slice(start_ms, start_ms + self.slice_ms, tenant, cluster)


def lake_tables(specs: Iterable[TableSpec]) -> dict[str, LakeTable]:
    """Return the tables that the lake holds, by name: those with a tenant, a cluster and a time."""
    found = (lake_table(spec) for spec in specs if spec.name not in HOT_ONLY)
    return {each.name: each for each in found if each is not None}


def lake_table(spec: TableSpec) -> LakeTable | None:
    """Return how a table lies in the lake; None where it cannot."""
    columns = {column.name for column in spec.columns}
    time_column = next((name for name in TIMES if name in columns), "")
    if not time_column or not {"tenant_id", "cluster_id"} <= columns:
        return None
    version = _VERSION.search(spec.engine)
    is_fine = spec.name.endswith(("_1s", f"_{FINEST}"))
    return LakeTable(
        spec,
        time_column,
        HOUR_MS if is_fine else DAY_MS,
        _period(spec),
        version[1] if version else "",
        spec.name in {raw_table(kind) for kind in EntityKind},
    )


def period_bounds(period: str, time_ms: int) -> tuple[int, int]:
    """Return the first instant of the period that an instant lies in, and of the next one, in ms."""
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    if period == "day":
        start_ms = time_ms // DAY_MS * DAY_MS
        return start_ms, start_ms + DAY_MS
    if period == "month":
        return _ms(at.year, at.month), _ms(at.year + at.month // 12, at.month % 12 + 1)
    return _ms(at.year, 1), _ms(at.year + 1, 1)


def period_number(period: str, time_ms: int) -> int:
    """Return the number of a period as Iceberg counts: days, months or years since 1970."""
    if period == "day":
        return time_ms // DAY_MS
    at = datetime.fromtimestamp(time_ms / 1000, UTC)
    years = at.year - 1970
    return years if period == "year" else years * 12 + at.month - 1


def _period(spec: TableSpec) -> str:
    words = [expression.partition("(")[0] for expression in spec.partition]
    return next((PERIODS[word] for word in words if word in PERIODS), UNTIMED)


def _ms(year: int, month: int) -> int:
    return round(datetime(year, month, 1, tzinfo=UTC).timestamp() * 1000)
