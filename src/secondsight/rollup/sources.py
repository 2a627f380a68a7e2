"""Leave one collector to each metric of an entity: the first by rank, then name, that has it in the window.

What a row covers is told by the first collector that has rows of the same entity and owner.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.members import members
from secondsight.catalog.metric import Metric
from secondsight.rollup.merge import presence_of
from secondsight.store.coarse import MAPS, sketch_columns

Bools = NDArray[np.bool_]
I64 = NDArray[np.int64]
_COMPUTE: Any = pc


def settle_sources(table: Any, place: I64, owned: I64, source: I64, metrics: Sequence[Metric]) -> tuple[Any, Bools]:
    """Return rows without the values that another collector tells as well, and which rows tell what is covered.

    Args:
        table: Rollup rows of one window.
        place: Number of the entity and part of each row.
        owned: Number of the entity, part and owner of each.
        source: Number of the collector of each, the one that counts first being the least.
        metrics: Scalars of the kind.
    """
    everything = np.ones(place.size, np.bool_)
    counted = _first(owned, source, everything)
    if _first(place, source, everything).all():
        return table, counted
    dropped = {}
    presence = presence_of(table, metrics)
    for metric in metrics:
        there = presence.get(metric.name, ~everything)
        lost = there & ~_first(place, source, there)
        if lost.any():
            dropped[metric.name] = lost
            table = _without(table, metric, lost)
    for name in MAPS:
        table = _replaced(table, name, _map_without(table[name].combine_chunks(), dropped))
    return table, counted


def _first(place: I64, source: I64, there: Bools) -> Bools:
    """Tell which rows are of the first collector among those of their place that are there."""
    least = np.full(int(place.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, place[there], source[there])
    first: Bools = source == least[place]
    return first


def _without(table: Any, metric: Metric, lost: Bools) -> Any:
    """Return rows without what they hold of a metric, where it is lost."""
    mask = pa.array(lost)
    names = {member.column(metric) for member in members(metric)} | set(sketch_columns(metric))
    for name in sorted(names & set(table.column_names)):
        column = table[name].combine_chunks()
        empty = pa.array([[]], column.type)[0] if pa.types.is_list(column.type) else pa.scalar(None, column.type)
        table = _replaced(table, name, _COMPUTE.if_else(mask, empty, column))
    return table


def _map_without(column: Any, dropped: Mapping[str, Bools]) -> Any:
    """Return a map without the entries of metrics that are lost in their row; keys begin with the metric's name."""
    offsets = np.asarray(column.offsets.to_numpy())
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    span = slice(int(offsets[0]), int(offsets[-1]))
    keys, items = column.keys[span], column.items[span]
    names = [key.partition("=")[0].partition("&")[0] for key in keys.to_pylist()]
    kept = np.array(
        [name not in dropped or not dropped[name][row] for name, row in zip(names, rows, strict=True)], np.bool_
    )
    bounds = np.searchsorted(rows[kept], np.arange(len(column) + 1)).astype(np.int32)
    mask = pa.array(kept)
    return pa.MapArray.from_arrays(pa.array(bounds), keys.filter(mask), items.filter(mask))


def _replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)
