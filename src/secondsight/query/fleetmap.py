"""Turn one second of the fleet into a frame: one byte a GPU, in an order that a layout names.

0 is a GPU without a value; 1 to 255 divide the range of the frame evenly. The layout is the list of GPUs that were
expected then; its name changes with it, so that a client that has it asks for bytes alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.access.scope import Scope
from secondsight.catalog.metric import Metric, MetricType
from secondsight.catalog.scale import physical_array
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement
from secondsight.query.windows import filter_predicates, raw_bounds
from secondsight.store.spec import quoted

SLOTS = 3
"""So many of its intervals a value is shown for."""
BACK_MS = 100_000
STEPS = 254

F64 = NDArray[np.float64]
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU of a layout."""

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str
    index: int | None

    @property
    def key(self) -> _Key:
        """Return what rows of it are known by."""
        return (self.tenant_id, self.cluster_id, self.host_id, self.gpu_id)


@dataclass(frozen=True, slots=True)
class Frame:
    """The values of one metric at one second.

    Attributes:
        layout: Name of the order of the cells.
        low, high: What 1 and 255 stand for, in the metric's unit.
        frame: One byte a cell.
    """

    at_ms: int
    metric: Metric
    layout: str
    cells: tuple[Cell, ...]
    low: float
    high: float
    frame: bytes


class MapReader:
    """Reads frames. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, metric: Metric, filters: Filters, at_ms: int, scope: Scope) -> Frame:
        """Return the frame of a second.

        Raises:
            Rejected(forbidden_metric, not_a_map): The grant does not show it, or it is no figure of a GPU as a whole.
            Retryable: The store is away or busy.
        """
        by_part_alone = bool(metric.labels) and metric.type is not MetricType.GAUGE
        if metric.kind is not EntityKind.GPU or not metric.is_scalar or by_part_alone:
            raise Rejected("not_a_map", f"{metric.name} is no figure of a GPU as a whole", "see /v1/catalog")
        scope = scope.showing(metric.name)
        cells = cells_of(self._inventory.expected(EntityKind.GPU, filters, scope).to_pylist(), at_ms)
        rows = self._inventory.read(compile_frame(metric, filters, at_ms, scope)).to_pylist()
        values = {(row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"]): row["figure"] for row in rows}
        stored = np.array([values.get(cell.key, np.nan) for cell in cells], np.float64)
        figures = physical_array(metric, stored)
        low, high = bounds_of(metric, figures)
        return Frame(at_ms, metric, layout_of(cells), cells, low, high, coded(figures, low, high))


def compile_frame(metric: Metric, filters: Filters, at_ms: int, scope: Scope) -> Statement:
    """Return the statement for the value of each GPU at an instant: `figure`, in stored units."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    tables.check_metric(metric.name)
    key = ["tenant_id", "cluster_id", "host_id", "entity"]
    column = quoted(metric.name)
    at = parameters.bind(at_ms, "Int64")
    where = [
        *raw_bounds(Span(at_ms - BACK_MS, at_ms + 1), parameters),
        f"toUnixTimestamp64Milli(event_time) + {SLOTS} * toInt64(greatest(interval_ms, 1)) > {at}",
        "part = ''",
        f"isNotNull({column})",
        *filter_predicates(filters, tables, parameters),
    ]
    figure = f"toFloat64(argMax({column}, (event_time, -toInt32(source_rank), version))) AS figure"
    rows = tables.table("gpu_1s", [*key, figure], where, tail=[f"GROUP BY {', '.join(key)}"])
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def cells_of(expected: Sequence[dict[str, Any]], at_ms: int) -> tuple[Cell, ...]:
    """Return the GPUs that were expected at an instant, in order of cluster, rack, host and index."""
    cells = {
        Cell(
            row["tenant_id"],
            row["cluster_id"],
            row["rack"],
            row["host_id"],
            row["entity"],
            int(row["gpu_index"]) if (row["gpu_index"] or "").isdecimal() else None,
        )
        for row in expected
        if row["start_ms"] <= at_ms < row["end_ms"] and not row["part"]
    }
    return tuple(sorted(cells, key=lambda cell: (*cell.key[:2], cell.rack, cell.host_id, cell.index or 0, cell.gpu_id)))


def layout_of(cells: Sequence[Cell]) -> str:
    """Return the name of an order of cells."""
    told = "\n".join("\0".join((*cell.key, cell.rack, str(cell.index))) for cell in cells)
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def bounds_of(metric: Metric, figures: F64) -> tuple[float, float]:
    """Return what the least and the greatest byte stand for: the metric's own range, else that of the figures."""
    known = figures[~np.isnan(figures)]
    low = metric.minimum if metric.minimum is not None else float(known.min()) if known.size else 0.0
    high = metric.maximum if metric.unit == "1" and metric.maximum is not None else None
    if high is None:
        high = float(known.max()) if known.size else low + 1.0
    return low, high if high > low else low + 1.0


def coded(figures: F64, low: float, high: float) -> bytes:
    """Return one byte a figure; NaN is 0."""
    steps = np.rint(np.clip((figures - low) / (high - low), 0.0, 1.0) * STEPS) + 1
    return np.where(np.isnan(figures), 0, np.nan_to_num(steps)).astype(np.uint8).tobytes()
