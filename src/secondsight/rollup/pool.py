"""Turn the rollup rows of one window of a cluster into rows of the whole cluster: merged over GPUs, or over hosts.

Every entity counts once: where several collectors tell of one, each metric is taken from the first by rank, then name,
that has it, as answers do. How a member merges over entities is how it merges over time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.rollup.merge import (
    Bools,
    Entries,
    Merged,
    Rows,
    Rule,
    Values,
    merge_metrics,
    numbers_of,
    starts_of,
    texts_at,
)
from secondsight.rollup.sources import PLACE, codes_of, settle_sources
from secondsight.store.clusters import CLUSTER_KEY, is_wide_total, pooled_members

I64 = NDArray[np.int64]
OVER_ENTITIES = Rule(pooled_members, is_wide_total)


def pool_rows(rows: Any, products: Mapping[str, str], metrics: Sequence[Metric], end_ms: int, counted: str) -> Merged:
    """Return the rows of a cluster.

    Args:
        rows: Arrow table of one window, at least one row, as it is stored: each with samples.
        products: Entity -> its `gpu_model`; others have none.
        metrics: Scalars of the kind.
        end_ms: End of the window.
        counted: Name of the column for the number of distinct entities.
    """
    table = _sorted(_with_products(rows.combine_chunks(), products))
    place, owned = codes_of(table, PLACE), codes_of(table, (*PLACE, *CLUSTER_KEY[:-1]))
    table, is_counted = settle_sources(table, place, owned, _source(table), metrics)
    starts = starts_of(table, CLUSTER_KEY)
    entity, group = codes_of(table, ("entity",)), _groups(starts, table.num_rows)
    plain = _plain(table, starts, is_counted, end_ms) | {
        counted: _distinct(group, entity, np.ones(group.size, np.bool_), starts.size)
    }
    merged = Merged(CLUSTER_KEY, texts_at(table, CLUSTER_KEY, starts), plain)
    presence = merge_metrics(merged, table, metrics, starts, OVER_ENTITIES)
    merged.maps[f"{counted}_other"] = _carrying(presence, group, entity, plain[counted])
    return merged


def _with_products(table: Any, products: Mapping[str, str]) -> Any:
    texts = table["entity"].cast(pa.string()).combine_chunks().dictionary_encode()
    models = pa.array([products.get(entity, "") for entity in texts.dictionary.to_pylist()], pa.string())
    return table.append_column("gpu_model", models.take(texts.indices))


def _sorted(table: Any) -> Any:
    """Return the rows in the order of their cluster key, those of one entity together."""
    order = np.lexsort((_source(table), codes_of(table, PLACE), codes_of(table, CLUSTER_KEY)))
    return table.take(pa.array(order)).combine_chunks()


def _source(table: Any) -> I64:
    """Number the collectors of rows, the one that counts first being the least."""
    collector = codes_of(table, ("collector_id",))
    return numbers_of(table, "source_rank") * (int(collector.max(initial=0)) + 1) + collector


def _groups(starts: Rows, rows: int) -> I64:
    return np.repeat(np.arange(starts.size), np.diff(np.append(starts, rows)))


def _plain(table: Any, starts: Rows, is_counted: Bools, end_ms: int) -> dict[str, Values]:
    first, last = numbers_of(table, "first_ms"), numbers_of(table, "last_ms")
    covered, interval = numbers_of(table, "covered_ms"), numbers_of(table, "interval_ms")
    ends = np.minimum(last + interval, end_ms)
    span = np.where(_overlaps(table, first, ends), covered, np.maximum(ends - first, covered))
    sums = {"samples": numbers_of(table, "samples"), "covered_ms": covered, "expected_ms": span}
    return {
        "first_event_time": np.minimum.reduceat(first, starts),
        "last_event_time": np.maximum.reduceat(last, starts),
        "interval_ms": np.maximum.reduceat(interval, starts).astype(np.uint32),
        **{
            name: np.add.reduceat(np.where(is_counted, values, 0), starts).astype(np.uint64)
            for name, values in sums.items()
        },
    }


def _overlaps(table: Any, first: I64, ends: I64) -> Bools:
    """Tell which rows of one part of an entity lie between those of another owner: their own time is not one piece."""
    place = codes_of(table, (*PLACE, "collector_id"))
    order = np.lexsort((first, place))
    least = int(first.min(initial=0))
    apart = place[order] * (int(ends.max(initial=0)) - least + 1) - least  # one part's times lie behind another's
    starts, reached = first[order] + apart, np.maximum.accumulate(ends[order] + apart)
    found = np.zeros(place.size, np.bool_)
    found[order[1:][starts[1:] < reached[:-1]]] = True
    found[order[:-1][starts[1:] < ends[order][:-1] + apart[:-1]]] = True
    return found


def _carrying(presence: Mapping[str, Bools], group: I64, entity: I64, every: Values) -> Entries:
    """Return how many entities have a metric, where these are not all of the row."""
    rows: list[Rows] = []
    keys: list[str] = []
    numbers: list[I64] = []
    for name in sorted(presence):
        count = _distinct(group, entity, presence[name], every.size)
        differs = np.flatnonzero((count > 0) & (count != every))
        rows.append(differs)
        keys += [name] * differs.size
        numbers.append(count[differs].astype(np.int64))
    if not keys:
        return Entries(np.zeros(0, np.intp), [], np.zeros(0, np.int64))
    places = np.concatenate(rows)
    order = np.argsort(places, kind="stable")
    return Entries(places[order], [keys[place] for place in order.tolist()], np.concatenate(numbers)[order])


def _distinct(group: I64, entity: I64, there: Bools, count: int) -> Values:
    """Return how many distinct entities each group has among some rows."""
    pairs = np.unique(group[there] * (int(entity.max(initial=0)) + 1) + entity[there])
    return np.bincount(pairs // (int(entity.max(initial=0)) + 1), minlength=count).astype(np.uint32)
