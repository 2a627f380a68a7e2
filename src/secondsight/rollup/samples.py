"""Turn raw rows into sketches: how long each metric stood in each bin, by entity, part and owner.

A sample weighs the milliseconds that it covers: until the next one of its series that has the metric, its interval's
end, or the end of its 30 s window, as in the rollups of 30 s. Of several collectors that which counts in its window.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.catalog.metric import Metric
from secondsight.rollup.merge import ROW, WINDOW_MS, Key, Sketches, numbers_of
from secondsight.rollup.sketch import gather
from secondsight.rollup.sources import PLACE, codes_of, combined, first_of, has_one, least
from secondsight.store.bins import bins_of

SERIES = (*PLACE, "collector_id")

I64 = NDArray[np.int64]
Rows = NDArray[np.intp]
Bools = NDArray[np.bool_]
_COMPUTE: Any = pc


def sketches_of(rows: Any, metrics: Sequence[Metric], keys: Mapping[Key, int]) -> dict[str, Sketches]:
    """Return a sketch per metric and rollup row; empty where a row has no value.

    Args:
        rows: Arrow table sorted by `SERIES` and time: `KEY`, source_rank, event_ms, interval_ms, and the metrics.
        metrics: Whose sketches.
        keys: `ROW` of a rollup row -> its number; rows of others are left out.
    """
    count = len(keys)
    table = rows.combine_chunks()
    if not table.num_rows:
        return {metric.name: _nothing(count) for metric in metrics}
    series, group = _codes(table, SERIES)[0], _groups(table, keys)
    time_ms, interval_ms = (np.asarray(table[name].to_numpy()).astype(np.int64) for name in ("event_ms", "interval_ms"))
    window, source = _sources(table, time_ms)
    covers: dict[bytes, tuple[Rows, I64]] = {}
    found = {}
    for metric in metrics:
        values, present = _values(table[metric.name])
        key = np.packbits(present).tobytes()
        if key not in covers:
            there, cover = _covered(np.flatnonzero(present), series, time_ms, interval_ms)
            mine = (group[there] >= 0) & first_of(window, source, present)[there]
            covers[key] = there[mine], cover[mine]
        there, cover = covers[key]
        found[metric.name] = Sketches(*gather(group[there], bins_of(values[there]), cover, count))
    return found


def _covered(there: Rows, series: I64, time_ms: I64, interval_ms: I64) -> tuple[Rows, I64]:
    """Return the rows that cover any time, and how much."""
    at = time_ms[there]
    limit = np.minimum(np.maximum(interval_ms[there], 1), WINDOW_MS - at % WINDOW_MS)
    follows = np.flatnonzero(np.diff(series[there]) == 0)
    limit[follows] = np.minimum(limit[follows], np.diff(at)[follows])
    some = limit > 0
    return there[some], limit[some]


def _sources(table: Any, time_ms: I64) -> tuple[I64, I64]:
    """Return the number of the entity, part and window of 30 s of each row, and of its collector, by its rank there."""
    place, collector = _codes(table, PLACE)[0], codes_of(table, ("collector_id",))
    if has_one(place, collector):
        return np.zeros_like(place), np.zeros_like(place)
    window = combined(place, time_ms // WINDOW_MS)
    rank = least(combined(window, collector), numbers_of(table, "source_rank"))
    return window, combined(rank, collector)


def _values(column: Any) -> tuple[NDArray[Any], Bools]:
    values = np.asarray(_COMPUTE.fill_null(column, 0).to_numpy())
    present = np.asarray(column.is_valid().to_numpy(), np.bool_)
    return values, present & np.isfinite(values) if values.dtype.kind == "f" else present


def _groups(table: Any, keys: Mapping[Key, int]) -> I64:
    """Return the number of the rollup row of each row, -1 where there is none."""
    codes, heads = _codes(table, ROW)
    texts = [table[name].take(pa.array(heads)).to_pylist() for name in ROW]
    numbers = np.array([keys.get(key, -1) for key in zip(*texts, strict=True)], np.int64)
    return numbers[codes]


def _codes(table: Any, columns: Sequence[str]) -> tuple[I64, Rows]:
    """Number the distinct combinations of some columns; return the number of each row, and a row of each number."""
    combined = np.zeros(table.num_rows, np.int64)
    for name in columns:
        coded = table[name].combine_chunks().dictionary_encode()
        combined = combined * len(coded.dictionary) + np.asarray(coded.indices.to_numpy())
        combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    heads = np.unique(combined, return_index=True)[1]
    return combined, heads


def _nothing(count: int) -> Sketches:
    return Sketches(np.zeros(count + 1, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64))
