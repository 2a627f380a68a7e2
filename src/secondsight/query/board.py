"""Turn one second of the fleet into a board: the value of some metrics of each GPU, in an order that a layout names.

The value of a GPU at a second is the newest of the GPU as a whole, at or before it, that is not older than three of
its intervals; NaN where there is none. The layout is the list of GPUs that were expected then, and its name changes
with it. Which second is the newest one says `newest.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric
from secondsight.catalog.scale import physical_array
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.newest import SLOTS, WAITED_MS, Hosts, hosts_of, latest_second, second_told
from secondsight.query.plan import Span, rewritten
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement
from secondsight.query.windows import filter_predicates, raw_bounds

BACK_MINIMUM_MS = 3_000
TOLD_SECONDS = 1.0
METRICS_MAXIMUM = 20
TABLE = "gpu_1s"

F64 = NDArray[np.float64]
CellKey = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU of a layout; `cadence_ms` is how often it tells."""

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str
    index: int | None
    cadence_ms: int

    @property
    def key(self) -> CellKey:
        """Return what rows of it are known by."""
        return (self.tenant_id, self.cluster_id, self.host_id, self.gpu_id)


@dataclass(frozen=True, slots=True)
class Board:
    """The values of some metrics at one second.

    Attributes:
        layout: Name of the order of the cells.
        values: One array a metric, in its unit, one figure a cell; NaN is no value.
        behind_ms: How long before the time of reading the second was, where that was asked for as the newest.
    """

    at_ms: int
    metrics: tuple[Metric, ...]
    layout: str
    cells: tuple[Cell, ...]
    values: tuple[F64, ...]
    behind_ms: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The GPUs that were expected at an instant, in order of cluster, rack, host and index.

    Attributes:
        back_ms: How far back the value of some GPU may be.
    """

    cells: tuple[Cell, ...]
    name: str
    back_ms: int
    hosts: Hosts


class BoardSource(Protocol):
    """Where boards come from."""

    def read(self, metrics: tuple[Metric, ...], filters: Filters, at_ms: int, scope: Scope) -> Board:
        """Return the board of a second.

        Raises:
            Rejected(forbidden_metric): No grant shows one of the metrics.
            Retryable: The store is away or busy.
        """
        ...

    def newest_ms(self, filters: Filters, now_ms: int, scope: Scope) -> int:
        """Return the newest second that is worth a board: see `second_told`.

        Raises:
            Retryable: The store is away or busy.
        """
        ...


class StoreBoards:
    """Reads boards from the tables. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, metrics: tuple[Metric, ...], filters: Filters, at_ms: int, scope: Scope) -> Board:
        """Return the board of a second, as the tables have it."""
        layout = layout_at(self._inventory, filters, at_ms, scope)
        cells = layout.cells
        span = Span(at_ms - layout.back_ms, at_ms + 1)
        final = rewritten(TABLE, span, self._inventory.rewrites(EntityKind.GPU, span, scope))
        statement = compile_board(metrics, filters, span, scope, final=final)
        rows = self._inventory.read(statement).to_pylist()
        known = {(row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"]): row for row in rows}
        values = tuple(_values(cells, known, number, metric) for number, metric in enumerate(metrics))
        return Board(at_ms, metrics, layout.name, cells, values)

    def newest_ms(self, filters: Filters, now_ms: int, scope: Scope) -> int:
        """Return the newest second that is worth a board, as the tables have it."""
        latest_ms = latest_second(now_ms)
        hosts = layout_at(self._inventory, filters, latest_ms, scope).hosts
        if not hosts.keys:
            return latest_ms

        def read() -> dict[tuple[str, ...], int]:
            rows = self._inventory.read(compile_told(filters, now_ms, scope)).to_pylist()
            return {(row["tenant_id"], row["cluster_id"], row["host_id"]): row["told_ms"] for row in rows}

        told = self._inventory.remember(("told", filters, scope), TOLD_SECONDS, read)
        return second_told(hosts, np.array([told.get(key, 0) for key in hosts.keys], np.int64), latest_ms)


def checked_metrics(metrics: Sequence[Metric]) -> tuple[Metric, ...]:
    """Return metrics that a board can have.

    Raises:
        Rejected(not_a_map, too_many_metrics): One is no figure of a GPU, or there are too many.
    """
    for metric in metrics:
        if metric.kind is not EntityKind.GPU or not metric.is_scalar:
            raise Rejected("not_a_map", f"{metric.name} is no figure of a GPU", "see /v1/catalog")
    if not 0 < len(metrics) <= METRICS_MAXIMUM:
        raise Rejected("too_many_metrics", f"{len(metrics)} metrics are asked", f"ask 1 to {METRICS_MAXIMUM}")
    return tuple(metrics)


def layout_at(inventory: Inventory, filters: Filters, at_ms: int, scope: Scope) -> Layout:
    """Return the GPUs that were expected at an instant; made once for all instants at which they are the same."""
    expected = inventory.expected(EntityKind.GPU, filters, scope)
    there = (expected["start_ms"].to_numpy() <= at_ms) & (at_ms < expected["end_ms"].to_numpy())
    found: Layout = inventory.derive(
        (expected,), ("layout", np.packbits(there).tobytes()), lambda: _layout(expected.filter(pa.array(there)))
    )
    return found


def _layout(expected: Any) -> Layout:
    found: dict[CellKey, Cell] = {}
    for row in expected.to_pylist():
        if not row["part"]:
            cell = _cell(row)
            before = found.get(cell.key)
            if before is None or cell.cadence_ms > before.cadence_ms:
                found[cell.key] = cell
    order = sorted(found.values(), key=lambda one: (*one.key[:2], one.rack, one.host_id, one.index or 0, one.gpu_id))
    cells = tuple(order)
    back_ms = max([BACK_MINIMUM_MS, *(SLOTS * cell.cadence_ms for cell in cells)])
    return Layout(cells, layout_of(cells), back_ms, hosts_of([(cell.key[:3], cell.cadence_ms) for cell in cells]))


def layout_of(cells: Sequence[Cell]) -> str:
    """Return the name of an order of cells."""
    told = "\n".join("\0".join((*cell.key, cell.rack, str(cell.index))) for cell in cells)
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compile_board(metrics: Sequence[Metric], filters: Filters, span: Span, scope: Scope, *, final: bool) -> Statement:
    """Return the statement for the values of each GPU at the last instant of a range, one column a metric, as stored.

    With `final`, of rows that were written again the newest alone counts: its owner may be another one.

    Raises:
        Rejected(forbidden_metric): No grant shows one of the metrics.
    """
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    key = ["tenant_id", "cluster_id", "host_id", "entity"]
    at = parameters.bind(span.to_ms - 1, "Int64")
    order = "(-toInt32(source_rank), event_time, version, toString(collector_id))"
    columns = [
        f"toFloat64(argMax({tables.shown(TABLE, metric.name)}, {order})) AS figure_{number}"
        for number, metric in enumerate(metrics)
    ]
    where = [
        *raw_bounds(span, parameters),
        f"toUnixTimestamp64Milli(event_time) + {SLOTS} * toInt64(greatest(interval_ms, 1)) > {at}",
        "part = ''",
        *filter_predicates(filters, tables, parameters),
    ]
    rows = tables.table(TABLE, [*key, *columns], where, tail=[f"GROUP BY {', '.join(key)}"], final=final)
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def compile_told(filters: Filters, now_ms: int, scope: Scope) -> Statement:
    """Return the statement for the time of the newest row of any GPU as a whole, of each host that told one lately."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    key = ["tenant_id", "cluster_id", "host_id"]
    span = Span(latest_second(now_ms) - WAITED_MS, now_ms)
    where = [*raw_bounds(span, parameters), "part = ''", *filter_predicates(filters, tables, parameters)]
    columns = [*key, "toUnixTimestamp64Milli(max(event_time)) AS told_ms"]
    rows = tables.table(TABLE, columns, where, tail=[f"GROUP BY {', '.join(key)}"])
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def _values(cells: Sequence[Cell], known: dict[CellKey, dict[str, Any]], number: int, metric: Metric) -> F64:
    name = f"figure_{number}"
    stored = [known[cell.key][name] if cell.key in known else None for cell in cells]
    return physical_array(metric, np.array([np.nan if value is None else value for value in stored], np.float64))


def _cell(row: dict[str, Any]) -> Cell:
    index = row["gpu_index"] or ""
    return Cell(
        tenant_id=row["tenant_id"],
        cluster_id=row["cluster_id"],
        rack=row["rack"],
        host_id=row["host_id"],
        gpu_id=row["entity"],
        index=int(index) if index.isdecimal() else None,
        cadence_ms=row["cadence_ms"],
    )
