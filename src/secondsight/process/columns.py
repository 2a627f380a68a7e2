"""Turn the scalar metrics of a kind into matrices by stored type, and a schema's columns into places in them.

Every window of a kind keeps its cells in one matrix per dtype, metric-major, so that the matrix of a frame is copied
whole. A column of a frame that does not fit the catalogue has no place: it is dropped, with a reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Schema

NUMPY_DTYPES: dict[str, "np.dtype[Any]"] = {
    "u64": np.dtype(np.uint64),
    "i64": np.dtype(np.int64),
    "f64": np.dtype(np.float64),
    "u32": np.dtype(np.uint32),
    "i32": np.dtype(np.int32),
    "u16": np.dtype(np.uint16),
    "i16": np.dtype(np.int16),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
}


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Metrics of one stored type, in a fixed order."""

    dtype: "np.dtype[Any]"
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each scalar metric of a kind has its cells: metric name -> (group, column)."""

    kind: EntityKind
    groups: tuple[MetricGroup, ...]
    place: Mapping[str, tuple[int, int]]

    def metric(self, name: str) -> Metric | None:
        """Return a scalar metric of this kind, or None."""
        found = self.place.get(name)
        return self.groups[found[0]].metrics[found[1]] if found else None


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How the matrix of one dtype in a frame goes into a window's matrix.

    Attributes:
        source: Position of the matrix among the frame's groups.
        target: Group of the layout.
        rows: Columns of the frame's matrix that have a place, or None for all of them.
        columns: Their columns in the layout's group.
    """

    source: int
    target: int
    rows: NDArray[np.intp] | None
    columns: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """How frames of one schema are read.

    Attributes:
        cell_group, cell_column: Column of the schema -> group and column of the layout, -1 where it has no place.
        dropped: (metric, reason) of columns without a place.
        places: Columns of the layout that it fills, as one number each.
    """

    groups: tuple[GroupPlan, ...]
    cell_group: NDArray[np.intp]
    cell_column: NDArray[np.intp]
    dropped: tuple[tuple[str, str], ...]
    places: frozenset[int]


def layout_of(kind: EntityKind, metrics: Iterable[Metric]) -> Layout:
    """Lay out the scalar metrics of a kind, each dtype sorted by name."""
    scalars = sorted((metric for metric in metrics if metric.is_scalar), key=lambda metric: metric.name)
    groups = tuple(
        MetricGroup(dtype, members)
        for name, dtype in NUMPY_DTYPES.items()
        if (members := tuple(metric for metric in scalars if metric.dtype == name))
    )
    place = {
        metric.name: (number, column)
        for number, group in enumerate(groups)
        for column, metric in enumerate(group.metrics)
    }
    return Layout(kind, groups, place)


def plan_schema(schema: Schema, layout: Layout) -> SchemaPlan:
    """Find the place of every column of a schema."""
    reasons = [_misfit(column, layout) for column in schema.columns]
    places = [
        (-1, -1) if reason else layout.place[column.metric]
        for column, reason in zip(schema.columns, reasons, strict=True)
    ]
    dropped = tuple((column.metric, reason) for column, reason in zip(schema.columns, reasons, strict=True) if reason)
    cells = np.array(places, np.intp).reshape(-1, 2)
    filled = frozenset(group << 16 | column for group, column in places if group >= 0)
    return SchemaPlan(_group_plans(schema, cells), cells[:, 0], cells[:, 1], dropped, filled)


def _misfit(column: Column, layout: Layout) -> str:
    """Return why a column has no place, or ""."""
    metric = layout.metric(column.metric)
    if metric is None:
        return "unknown_metric"
    if column.dtype != metric.dtype:
        return "dtype_mismatch"
    if column.unit != metric.unit:
        return "unit_mismatch"
    return "" if column.resolution == metric.resolution else "resolution_mismatch"


def _group_plans(schema: Schema, cells: NDArray[np.intp]) -> tuple[GroupPlan, ...]:
    dtypes = [column.dtype for column in schema.columns]
    plans = []
    for source, dtype in enumerate(dict.fromkeys(dtypes)):
        first, count = dtypes.index(dtype), dtypes.count(dtype)
        part = cells[first : first + count]
        kept = np.flatnonzero(part[:, 0] >= 0)
        if kept.size:
            rows = None if kept.size == count else kept
            plans.append(GroupPlan(source, int(part[kept[0], 0]), rows, part[kept, 1]))
    return tuple(plans)
