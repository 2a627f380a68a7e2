"""Unite rows of one key that come from the hot store and from files of the lake, so that nothing known is lost.

Raw rows are united cell by cell as the processor unites them: of two values the one of better quality counts, of equal
ones the greater bits, so it does not matter which came first. Of other rows the greater version counts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from secondsight.lake.layout import LakeTable
from secondsight.lake.schema import ATTRIBUTION_VERSION
from secondsight.model import QUALITY_RANK, Quality

Rows = NDArray[np.intp]
Booleans = NDArray[np.bool_]
ATTRIBUTION = ("job_id", "workload_id", "owner_team", "model_id", ATTRIBUTION_VERSION)
_RANK = {quality.value: rank for quality, rank in QUALITY_RANK.items()}
_OK, _NONE = int(Quality.OK), int(Quality.NONE)


def united(table: LakeTable, hot: pa.Table | None, files: Sequence[pa.Table]) -> pa.Table:
    """Return rows sorted as files are, each key once.

    Args:
        table: Whose rows.
        hot: Rows of the hot store, each key once.
        files: Rows of the lake's files, each key once in all of them.
    """
    parts = [*([] if hot is None else [hot]), *files]
    whole = pa.concat_tables(parts, promote_options="default")
    hot_rows = 0 if hot is None else hot.num_rows
    order = _order(whole, table, hot_rows)
    if hot is None or hot_rows == whole.num_rows:
        return whole.take(order)
    ordered = whole.take(order)
    again = _same_as_before(ordered, table)
    if not again.any():
        return ordered
    second = np.flatnonzero(again)
    first = second - 1
    kept = np.flatnonzero(~again)
    winners = _united_cells(table, ordered, first, second) if table.is_raw else _newest(table, ordered, first, second)
    return winners.take(pa.array(kept))


def _order(rows: pa.Table, table: LakeTable, hot_rows: int) -> Any:
    """Return the order of rows by what files are sorted by; of one key the hot store's row stands first."""
    source = pa.array((np.arange(rows.num_rows) >= hot_rows).astype(np.int8))
    keys = ["tenant_id", *table.row_order]
    narrow = rows.select(list(dict.fromkeys(keys))).append_column("from_lake", source)
    return pc.sort_indices(narrow, [(name, "ascending") for name in (*table.row_order, "tenant_id", "from_lake")])


def _same_as_before(rows: pa.Table, table: LakeTable) -> Booleans:
    """Tell of each row whether its key is that of the row before it."""
    same = np.ones(max(rows.num_rows - 1, 0), np.bool_)
    for name in ("tenant_id", *table.key):
        column = rows.column(name).combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.bool_), same])


def _newest(table: LakeTable, rows: pa.Table, first: Rows, second: Rows) -> pa.Table:
    """Return rows in which the first of each pair is the one with the greater version."""
    if not table.version_column:
        return rows
    versions = rows.column(table.version_column).combine_chunks()
    newer = pc.greater(versions.take(pa.array(second)), versions.take(pa.array(first)))
    chosen = np.arange(rows.num_rows)
    swap = newer.to_numpy(zero_copy_only=False)
    chosen[first[swap]] = second[swap]
    return rows.take(pa.array(chosen))


def _united_cells(table: LakeTable, rows: pa.Table, first: Rows, second: Rows) -> pa.Table:
    """Return rows in which the first of each pair has all that both know."""
    versions = _numbers(rows.column(ATTRIBUTION_VERSION))
    later = np.arange(rows.num_rows)
    swap = versions[second] > versions[first]
    later[first[swap]] = second[swap]
    overrides, qualities = _qualities(rows, first, second)
    metrics = {column.name for column in table.spec.columns if column.type.startswith("Nullable(")}
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name in ATTRIBUTION:
            columns.append(column.take(pa.array(later)))
        elif name == "quality":
            columns.append(qualities)
        elif name in metrics:
            columns.append(_cells(column, first, second, overrides.get(name, {})))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _cells(column: Any, first: Rows, second: Rows, overrides: dict[int, bool]) -> Any:
    """Return a metric's column in which the first row of each pair has the better cell.

    Args:
        column: Values, null where absent.
        first: Rows that are kept.
        second: Rows that they are united with.
        overrides: Row -> whether the second cell counts, where quality decides it.
    """
    flat = column.combine_chunks()
    present = flat.is_valid().to_numpy(zero_copy_only=False)
    values = flat.fill_null(0).to_numpy(zero_copy_only=False)
    bits = values.view(f"u{values.dtype.itemsize}")
    takes = present[second] & (~present[first] | (bits[second] > bits[first]))
    for place, row in enumerate(first.tolist() if overrides else []):
        takes[place] = overrides.get(row, bool(takes[place]))
    if not takes.any():
        return column
    values, present = values.copy(), present.copy()
    values[first[takes]] = values[second[takes]]
    present[first[takes]] = present[second[takes]]
    return pa.array(values, flat.type, mask=~present)


def _qualities(rows: pa.Table, first: Rows, second: Rows) -> tuple[dict[str, dict[int, bool]], Any]:
    """Return (metric -> row -> whether the second cell counts, the column of qualities)."""
    column = rows.column("quality") if "quality" in rows.column_names else None
    if column is None:
        return {}, None
    flat = column.combine_chunks()
    sizes = np.diff(flat.offsets.to_numpy())
    blemished = np.flatnonzero((sizes[first] > 0) | (sizes[second] > 0))
    if not blemished.size:
        return {}, column
    overrides: dict[str, dict[int, bool]] = {}
    maps = [dict(entry or ()) for entry in flat.to_pylist()]
    for place in blemished.tolist():
        one, other = int(first[place]), int(second[place])
        maps[one] = _united_quality(rows, (one, other), (maps[one], maps[other]), overrides)
    return overrides, pa.array([list(entry.items()) for entry in maps], flat.type)


def _united_quality(
    rows: pa.Table,
    pair: tuple[int, int],
    maps: tuple[dict[str, int], dict[str, int]],
    overrides: dict[str, dict[int, bool]],
) -> dict[str, int]:
    """Return the qualities of two rows of one key, and note which cells they decide."""
    found: dict[str, int] = {}
    for metric in {**maps[0], **maps[1]}:
        codes = [_code(rows, metric, row, known) for row, known in zip(pair, maps, strict=True)]
        ranks = [_RANK[code] for code in codes]
        if ranks[0] != ranks[1]:
            overrides.setdefault(metric, {})[pair[0]] = ranks[1] > ranks[0]
        best = codes[1] if ranks[1] > ranks[0] else codes[0]
        if best not in (_OK, _NONE):
            found[metric] = best
    return found


def _code(rows: pa.Table, metric: str, row: int, known: dict[str, int]) -> int:
    if metric in known:
        return known[metric]
    has_value = metric in rows.column_names and rows.column(metric)[row].is_valid
    return _OK if has_value else _NONE


def _numbers(column: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    return numbers
