"""Leave out rollup rows of the hot store that were made of less than what the lake has of the same window.

Samples of a window become fewer only where the hot store let go of them or lost them. A window that late rows open
there again is then made of these alone, and its version may still be the greater one. What the lake has stays until
the window is made of as many samples. Owners may divide the same samples otherwise, so the rows of all of them count.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from secondsight.lake.layout import LakeTable
from secondsight.store.coarse import FINEST, SOURCE_SAMPLES
from secondsight.store.retention import RAW, RETIRABLE

WINDOW = ("tenant_id", "cluster_id", "host_id", "entity", "part", "window_start")
COUNTER_SHIFT = 32
"""A version of a rollup row is its recompute counter, then bits of what it covers."""
_COMPUTE: Any = pc


def without_lesser(table: LakeTable, hot: pa.Table, files: Sequence[pa.Table]) -> pa.Table:
    """Return rows of the hot store without those of windows of which the lake's files tell more samples.

    Args:
        table: Whose rows.
        hot: Rows of the hot store.
        files: Rows of the lake's files.
    """
    window = window_columns(table)
    if not window or not hot.num_rows or not any(file.num_rows for file in files):
        return hot
    is_fine = RETIRABLE[table.name] == FINEST
    near = [_between(file.select(_needed(file, window)), hot["window_start"]) for file in files]
    mine, kept = _told([hot], window, is_fine=is_fine), _told(near, window, is_fine=is_fine)
    both = mine.join(kept, window, join_type="inner", right_suffix="_kept")
    lesser = both.filter(_COMPUTE.less(both["told_sum"], both["told_sum_kept"])).select(window)
    if not lesser.num_rows:
        return hot
    places = hot.select(window).append_column("place", pa.array(range(hot.num_rows), pa.int64()))
    return hot.take(places.join(lesser, window, join_type="left anti")["place"])


def window_columns(table: LakeTable) -> list[str]:
    """Return the columns that tell windows of rollups apart, which may have several rows; other tables have none."""
    resolution = RETIRABLE.get(table.name, RAW)
    if resolution == RAW:
        return []
    return [*WINDOW, "collector_id"] if resolution == FINEST else [*WINDOW]


def _between(rows: pa.Table, times: Any) -> pa.Table:
    """Return the rows whose windows lie between the first and the last of some times."""
    bounds = _COMPUTE.min_max(times)
    column = rows["window_start"]
    return rows.filter(
        _COMPUTE.and_(_COMPUTE.greater_equal(column, bounds["min"]), _COMPUTE.less_equal(column, bounds["max"]))
    )


def _needed(rows: pa.Table, window: list[str]) -> list[str]:
    return [*window, "samples", "version", *({SOURCE_SAMPLES} & set(rows.column_names))]


def _told(tables: Sequence[Any], window: list[str], *, is_fine: bool) -> Any:
    """Return the samples that rows of each window tell of together; columns of the window and `told_sum`.

    All rows of 30 s that are true of a window are of its last recompute: a crash may leave that of an earlier owner.
    """
    rows = pa.concat_tables([_narrow(table, window, is_fine=is_fine) for table in tables])
    sums = rows.group_by([*window, "counter"]).aggregate([("told", "sum")])
    last = sums.group_by(window).aggregate([("counter", "max")])
    return sums.join(last, [*window, "counter"], [*window, "counter_max"], join_type="inner").drop_columns("counter")


def _narrow(rows: Any, window: list[str], *, is_fine: bool) -> Any:
    told = rows["samples"].cast(pa.int64())
    if SOURCE_SAMPLES in rows.column_names:
        told = _COMPUTE.max_element_wise(told, rows[SOURCE_SAMPLES].cast(pa.int64()))
    recompute = _COMPUTE.shift_right(rows["version"].cast(pa.int64()), COUNTER_SHIFT)
    counter = recompute if is_fine else _COMPUTE.multiply(recompute, 0)
    return rows.select(window).append_column("counter", counter).append_column("told", told)
