"""Leave one collector to each metric of an entity: the first by rank, then name, that has it in the window.

What a row covers is told by the first collector that has rows of the same entity and owner. Windows that are merged
over time settle this each for itself before, so that where one collector takes over from another both count.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.members import members
from secondsight.catalog.metric import Metric
from secondsight.rollup.merge import KEY, numbers_of, presence_of
from secondsight.store.coarse import MAPS, sketch_columns

Bools = NDArray[np.bool_]
I64 = NDArray[np.int64]
_COMPUTE: Any = pc


PLACE = ("host_id", "entity", "part")


def one_source(rows: Any, metrics: Sequence[Metric]) -> tuple[Any, Bools]:
    """Return rows of a coarser window with one collector for each entity and part, and which tell what is covered.

    Each window of the source has the collector that counts there; what others tell of the same is left out. All rows of
    an entity and part then bear the name and rank of the first of its collectors.

    Args:
        rows: Arrow table sorted by `KEY` and time, at least one row, as `merge.merge_rows` takes it.
        metrics: Scalars of the kind.
    """
    table = rows.combine_chunks()
    place, collector = codes_of(table, PLACE), codes_of(table, ("collector_id",))
    if has_one(place, collector):
        return _named(table, place, collector), np.ones(place.size, np.bool_)
    window = combined(place, numbers_of(table, "start_s"))
    rank = least(combined(window, collector), numbers_of(table, "source_rank"))
    owned = combined(window, codes_of(table, KEY[4:]))
    table, counted = settle_sources(table, window, owned, combined(rank, collector), metrics)
    table = _named(table, place, combined(rank, collector))
    order = np.lexsort((numbers_of(table, "start_s"), codes_of(table, KEY[4:]), place))
    return table.take(pa.array(order)).combine_chunks(), counted[order]


def _named(table: Any, place: I64, source: I64) -> Any:
    """Return rows with the collector and the rank of the first source of their place."""
    first = np.zeros(int(place.max(initial=0)) + 1, np.int64)
    order = np.lexsort((source, place))[::-1]
    first[place[order]] = order
    table = _replaced(table, "collector_id", table["collector_id"].take(pa.array(first[place])))
    return _replaced(table, "source_rank", pa.array(least(place, numbers_of(table, "source_rank"))))


def combined(first: I64, second: I64) -> I64:
    """Number the distinct pairs of two lists of integers, in their order."""
    low = int(second.min(initial=0))
    pairs = first * (int(second.max(initial=0)) - low + 1) + second - low
    numbers: I64 = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def least(group: I64, values: I64) -> I64:
    """Return for each row the least value of its group."""
    found = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(found, group, values)
    every: I64 = found[group]
    return every


def has_one(place: I64, collector: I64) -> bool:
    """Tell whether each place has one collector."""
    return bool((least(place, collector) == -least(place, -collector)).all())


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
    counted = first_of(owned, source, everything)
    if first_of(place, source, everything).all():
        return table, counted
    dropped = {}
    presence = presence_of(table, metrics)
    for metric in metrics:
        there = presence.get(metric.name, ~everything)
        lost = there & ~first_of(place, source, there)
        if lost.any():
            dropped[metric.name] = lost
            table = _without(table, metric, lost)
    for name in MAPS:
        if name not in table.column_names:
            continue
        table = _replaced(table, name, _map_without(table[name].combine_chunks(), dropped))
    return table, counted


def codes_of(table: Any, names: Sequence[str]) -> I64:
    """Number the distinct combinations of some text columns, in the order of their texts."""
    codes = np.zeros(table.num_rows, np.int64)
    for name in names:
        texts = table[name].cast(pa.string()).combine_chunks().dictionary_encode()
        rank = np.argsort(np.argsort(np.array(texts.dictionary.to_pylist(), np.object_), kind="stable"))
        codes = combined(codes, rank[texts.indices.to_numpy()])
    return codes


def first_of(place: I64, source: I64, there: Bools) -> Bools:
    """Tell which rows are of the first collector among those of their place that are there."""
    first: Bools = source == least(place, np.where(there, source, np.iinfo(np.int64).max))
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
